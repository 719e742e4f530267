"""Rewrite a stranger's pickle as safetensors, in a process of its own that has nothing of dragoman and strict limits.

Arguments: the file, and the file to write. The pickle may only make tensors (`weights_only`) and settings as argparse
has them, and every tensor must have as many bytes as its numbers need. A checkpoint of fairseq has its tensors in
'model' and its settings beside them. Tied matrices are written once. Standard output is JSON: 'aliases', the other
names of these, and 'settings', those of fairseq that are numbers, texts or lists of texts. On failure, standard error
ends with one line that says why.
"""

import json
import os
import re
import resource
import struct
import sys
from argparse import Namespace

import torch
from torch import Tensor

KINDS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
ROOM = 2 << 30  # bytes of addresses beside the file's
SECONDS = 600
MAX_TENSORS = 100_000


def limit(size: int) -> None:
    """Limit what this process may use; size: bytes of the file that it reads."""
    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: PTH123, SIM115
    for kind, most in (
        (resource.RLIMIT_AS, pages * resource.getpagesize() + 3 * size + ROOM),
        (resource.RLIMIT_FSIZE, size + (1 << 20)),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        resource.setrlimit(kind, (most, most if hard == resource.RLIM_INFINITY else min(most, hard)))


def load(path: str) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Return the tensors in a file by name, and the settings if it is a checkpoint of fairseq.

    Raise ValueError where it has anything else, or a tensor is not sound.
    """
    torch.serialization.add_safe_globals([Namespace])  # which only keeps what it is given
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # files before PyTorch 1.6 are no zip and cannot be mapped
        content = torch.load(path, map_location="cpu", weights_only=True)
    settings: dict[str, object] = {}
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content, settings = content["model"], settings_of(content)
    if not isinstance(content, dict) or len(content) > MAX_TENSORS:
        raise ValueError("it is no dictionary of tensors")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"{name!r:.100} is no tensor")
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_complex():
            raise ValueError(f"'{name:.100}' is not a plain tensor")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise ValueError(f"'{name:.100}' has more numbers than bytes")
    return content, settings


def settings_of(checkpoint: dict) -> dict[str, object]:
    """Return the settings of a checkpoint of fairseq: 'args' of older ones, else 'model' in 'cfg'."""
    cfg = checkpoint.get("cfg")
    arguments = checkpoint.get("args") or (cfg.get("model") if isinstance(cfg, dict) else None)
    settings = vars(arguments) if isinstance(arguments, Namespace) else arguments
    if not isinstance(settings, dict):
        return {}

    def plain(value: object) -> bool:
        return value is None or isinstance(value, str | int | float)

    return {
        name: value
        for name, value in settings.items()
        if isinstance(name, str) and (plain(value) or (isinstance(value, list) and all(map(plain, value))))
    }


def write(tensors: dict[str, Tensor], path: str) -> dict[str, str]:
    """Write tensors as safetensors; return the other names of those that are there under several."""
    first: dict[tuple, str] = {}
    aliases: dict[str, str] = {}
    header: dict[str, dict] = {}
    end = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in KINDS:
            continue  # a table of ids, such as position_ids
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if tensor.numel() and (other := first.setdefault(place, name)) != name:
            aliases[name] = other
            continue
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": KINDS[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as file:  # noqa: PTH123
        file.write(struct.pack("<Q", len(text)) + text)
        for name in header:
            file.write(tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return aliases


def main() -> None:
    """Rewrite the file of the first argument as the second."""
    path, out = sys.argv[1:]
    torch.set_num_threads(1)
    limit(os.stat(path).st_size)  # noqa: PTH116
    try:
        tensors, settings = load(path)
        answer = {"aliases": write(tensors, out), "settings": settings}
    except BaseException as error:
        if other := re.search(r"(?i)unsupported (?:global: )?GLOBAL (\S{1,100})", str(error)):
            sys.exit(f"{type(error).__name__}: it has {other[1]!a}, neither a tensor nor a setting")
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
