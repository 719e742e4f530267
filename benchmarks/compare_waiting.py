"""Measure what it costs how threads wait for each other, on a machine with and without other work.

    python -m benchmarks compare-waiting PAIRS [--shape small] [--precision float32] [--rounds 5] [--seconds 5]

The precision is bfloat16 unless you say otherwise or the processor has no instructions for it, which makes it far too
slow.

Each row is a way to wait, as OpenMP's environment variables set it, and a process that trains on the pairs and one that
searches, with two threads; the first row has one. They have their turns one after the other and are suspended
meanwhile, so that all meet the same machine. The busy columns have a process beside them that computes on one core
without end. Prints Markdown: target tokens a second, the median and the spread of the turns after the first one.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.peers.trainers import TrainerProcess
from benchmarks.training import SHAPES, make_task
from dragoman.evaluation.timing import Contender, markdown_table, time_in_turn
from dragoman.inference.products import supported_types

WAITS: dict[str, tuple[int, dict[str, str]]] = {
    "one thread": (1, {}),
    "dragoman's default": (2, {}),
    "`GOMP_SPINCOUNT=300000`": (2, {"GOMP_SPINCOUNT": "300000"}),
    "`GOMP_SPINCOUNT=10000`": (2, {"GOMP_SPINCOUNT": "10000"}),
    "`GOMP_SPINCOUNT=1000 OMP_WAIT_POLICY=PASSIVE`": (2, {"GOMP_SPINCOUNT": "1000", "OMP_WAIT_POLICY": "PASSIVE"}),
}
BUSY = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"
# Greedy search in batches of 32, without end, for sources of 39 tokens and outputs of 90.
SEARCH = """
import sys
from pathlib import Path
import torch
from benchmarks.peers.task import TrainingTask
from dragoman.config import SearchConfig
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.model import build
from dragoman.runtime.waiting import use_threads

task = TrainingTask.read(Path(sys.argv[1]))
use_threads(task.threads)
torch.manual_seed(1)
engine = TorchEngine(build(task.model, task.vocabulary).eval(), compute_type=task.precision)
sources = [[*torch.randint(3, task.vocabulary, (38,)).tolist(), 2] for _ in range(32)]
print("ready", flush=True)
while True:
    found = engine.search(sources, SearchConfig(beam=1, min_length=90))
    print("tokens", sum(len(own[0].tokens) for own in found), flush=True)
"""
PROGRAMS = {"training": ["-m", "benchmarks.dragoman_trainer"], "searching": ["-c", SEARCH]}


@contextlib.contextmanager
def contender(name: str, command: Sequence[str], environment: dict[str, str], seconds: float) -> Iterator[Contender]:
    """Start a process, suspend it once it is ready, and let it go on for `seconds` each time; kill it at the end."""
    process = TrainerProcess("dragoman", [sys.executable, *command], environment)
    try:
        process.run_until(process.ready.search, 600)
        yield Contender(name, partial(process.advance, seconds))
    finally:
        process.signal(signal.SIGKILL)
        process.process.wait()


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Keep the first core busy in the block."""
    program = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        program.kill()
        program.wait()


def main() -> None:
    parser = ArgumentParser(usage=__doc__)
    parser.add_argument("pairs")
    parser.add_argument("--shape", default="small", choices=SHAPES)
    parser.add_argument("--precision", default="bfloat16" if "bfloat16" in supported_types() else "float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    columns: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as opened:
        folders = {threads: Path(opened) / str(threads) for threads, _ in WAITS.values()}
        task = make_task(SHAPES[options.shape], options.pairs, 2)
        for threads, folder in folders.items():
            folder.mkdir()
            replace(task, threads=threads, precision=options.precision).write(folder)
        for (kind, program), busy in product(PROGRAMS.items(), (False, True)):
            with contextlib.ExitStack() as stack:
                starts = (
                    contender(name, [*program, str(folders[threads])], ours | wait, options.seconds)
                    for name, (threads, wait) in WAITS.items()
                )
                contenders = [stack.enter_context(start) for start in starts]
                with busy_core() if busy else contextlib.nullcontext():
                    time_in_turn(contenders, options.rounds)
            columns[f"{kind}, {'busy' if busy else 'idle'}"] = list(map(str, contenders))
            print(kind, busy, *columns[[*columns][-1]], sep=" | ", file=sys.stderr)
    print(markdown_table(["waiting", *columns], [list(row) for row in zip(WAITS, *columns.values(), strict=True)]))


if __name__ == "__main__":
    main()
