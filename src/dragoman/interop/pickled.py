"""Read weights that are pickles, such as pytorch_model.bin, without letting them run: see `pickled_process`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.errors import DragomanError
from dragoman.interop import pickled_process
from dragoman.interop.tensors import SafeTensors

MAX_ANSWER = 1 << 20  # bytes


def convert_pickles(files: Sequence[Path], scratch: Path) -> SafeTensors:
    """Return the tensors of pickles, each of which a process of its own rewrites as safetensors in `scratch`.

    Raise DragomanError, naming the file, where one is not only tensors, or is damaged.
    """
    copies = [scratch / f"{number}.safetensors" for number in range(len(files))]
    aliases: dict[str, str] = {}
    for file, copy in zip(files, copies, strict=True):
        aliases |= rewrite(file, copy)["aliases"]
    return SafeTensors(copies, aliases)


def convert_checkpoint(file: Path, scratch: Path) -> tuple[SafeTensors, dict[str, Any]]:
    """Return the tensors of a checkpoint of fairseq and its settings, none where it is no such checkpoint.

    Raise DragomanError as `convert_pickles` does, and where it has objects of fairseq or OmegaConf.
    """
    rewritten = rewrite(file, copy := scratch / "0.safetensors")
    return SafeTensors([copy], rewritten["aliases"]), rewritten["settings"]


def rewrite(file: Path, copy: Path) -> dict[str, Any]:
    """Let a process rewrite a pickle as safetensors. Return its answer, see `pickled_process`; raise DragomanError."""
    # Isolated, so that nothing in the working directory or the environment is imported.
    command = [sys.executable, "-I", pickled_process.__file__, str(file.resolve()), str(copy.resolve())]
    ended = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode:
        said = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise DragomanError(f"{file}: not weights that can be read: {said[:300] or f'exit {ended.returncode}'}")
    try:
        answer: dict[str, Any] = json.loads(ended.stdout[:MAX_ANSWER])
    except ValueError:
        raise DragomanError(f"{file}: not weights that can be read: no answer") from None
    return answer
