"""Commands whose files fail: full disks, broken disks, interrupted calls, short writes, kills, at any call.

The library failing_files.c stands between the process and the system, so it also sees the writes of safetensors, which
is Rust, and would see those of C++; a fake `os` would not. This file is also the program into which it is loaded: it
imports PyTorch once, then forks for each command.
"""

import contextlib
import ctypes
import errno
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

# As in failing_files.c.
OPEN, READ, WRITE, SYNC, CUT, CLOSE, RENAME, MAKE, REMOVE, MODE = (1 << bit for bit in range(10))
SHORT, KILL = -1, -2
CHANGES = OPEN | WRITE | SYNC | CUT | CLOSE | RENAME | MAKE | MODE


class SharedFault(ctypes.Structure):
    """What the library is told, and what it tells, in memory that a child shares."""

    _fields_ = (
        ("calls", ctypes.c_int),
        ("error", ctypes.c_int),
        ("lasting", ctypes.c_int),
        ("number", ctypes.c_long),
        ("count", ctypes.c_long),
        ("folder", ctypes.c_char * 4096),
        ("failed", ctypes.c_char * 4096),
    )


@dataclass(frozen=True)
class Failure:
    """Which calls fail, and how; `lasting`: all after the first one, too."""

    calls: int
    error: int
    lasting: bool = False


FAILURES = {
    "full disk": Failure(CHANGES, errno.ENOSPC, lasting=True),
    "error": Failure(CHANGES | READ | REMOVE, errno.EIO),
    "read-only disk": Failure(CHANGES | REMOVE, errno.EROFS, lasting=True),
    "no sync": Failure(SYNC, errno.EIO, lasting=True),
    "interrupted": Failure(OPEN | READ | WRITE | SYNC | CUT | CLOSE, errno.EINTR),
    "short write": Failure(WRITE, SHORT),
    "other device": Failure(RENAME, errno.EXDEV, lasting=True),
    "kill": Failure(CHANGES | REMOVE, KILL),
}


def shared_fault() -> SharedFault:
    """Return memory of the loaded library, shared with forks. It stays to the very end of the process."""
    make = ctypes.CDLL(None).shared_fault
    make.restype = ctypes.POINTER(SharedFault)
    return make().contents


def arm(fault: SharedFault) -> None:
    """Let calls of this process fail from now on."""
    ctypes.CDLL(None).arm(ctypes.byref(fault))


class Ended(NamedTuple):
    """The exit code of a command, -9 after SIGKILL; how many calls could have failed; the path of the one that did."""

    code: int
    calls: int
    failed: str


class FailingFiles:
    """A process with the library, which runs commands, one at a time, each in a fork."""

    def __init__(self, library: Path):
        alone = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}  # a process with threads should not fork
        environment = {**os.environ, **alone, "PYTHONFAULTHANDLER": "1", "LD_PRELOAD": str(library)}
        arguments = [sys.executable, __file__]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(arguments, env=environment, stdin=pipe, stdout=pipe, text=True)

    def run(
        self,
        arguments: Sequence[str],
        log: Path,
        folder: Path,
        failure: Failure = FAILURES["error"],
        number: int = 0,
        *,
        in_place: bool = False,
    ) -> Ended:
        """Run a command with call `number` on files in `folder`, counted from 1, failing; 0: none fails.

        in_place: folders are written under their final names, as a naive program would do it.
        """
        request = {"arguments": arguments, "log": str(log), "folder": str(folder), "number": number, **asdict(failure)}
        return Ended(*self._answer({**request, "in_place": in_place}))

    def warm_up(self, arguments: Sequence[str]) -> None:
        """Run a command in the process itself, so that its forks find everything imported and initialised."""
        self._answer({"arguments": arguments})

    def _answer(self, request: dict[str, Any]) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()


def compiled(folder: Path) -> Path:
    """Return the library, compiled into a folder. Skip the test where that is impossible."""
    import pytest

    compiler = shutil.which("cc")
    if not sys.platform.startswith("linux") or not compiler:
        pytest.skip("files fail only on Linux with a C compiler: install gcc")
    library = folder / "failing_files.so"
    options = ["-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-Wall", "-Werror"]
    subprocess.run([compiler, *options, "-o", library, Path(__file__).with_suffix(".c"), "-ldl"], check=True)
    return library


def write_in_place() -> None:
    """Let checkpoints be written under their final names: the control."""
    from dragoman.storage.writing import MANIFEST, fingerprint
    from dragoman.training import checkpoint

    @contextlib.contextmanager
    def new_folder(path: Path) -> Iterator[Path]:
        path.mkdir(parents=True)
        yield path
        (path / MANIFEST).write_text(json.dumps({file.name: fingerprint(file) for file in path.iterdir()}))

    checkpoint.new_folder = new_folder


def serve() -> None:
    """Run the commands that come on standard input; answer each with a line."""
    import torch

    import dragoman.commands.backtranslate
    import dragoman.commands.train
    import dragoman.synthesis.synthesise
    import dragoman.training.loop  # noqa: F401
    from dragoman.cli import main

    torch.set_num_threads(1)
    fault = shared_fault()
    for line in sys.stdin:
        request = json.loads(line)
        if "number" not in request:
            with contextlib.redirect_stdout(sys.stderr):
                main(request["arguments"])
            gc.freeze()  # so that the end of a fork does not copy all memory
            print("true", flush=True)
            continue
        for name in ("calls", "error", "lasting", "number"):
            setattr(fault, name, int(request[name]))
        fault.count, fault.failed, fault.folder = 0, b"", request["folder"].encode()
        child = os.fork()
        if not child:
            log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            if request["in_place"]:
                write_in_place()
            arm(fault)
            code = main(request["arguments"])
            if fault.failed:
                sys.exit(code)
            os._exit(code)  # what Python does at its end would take as long as the command
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps([code, fault.count, os.fsdecode(fault.failed)]), flush=True)


if __name__ == "__main__":
    serve()
