"""Compare how fast two commits search: the same untrained model and sources, processes in turn.

    python -m benchmarks compare-search-speed OLD [NEW] [--preset small] [--rounds 3] [--threads 1]

Sources have 39 tokens, outputs 90. Prints a table of target tokens per second, the best of all rounds. With one thread
these are seconds of processor time, which whatever else runs on the machine disturbs less than those of a clock.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SETTINGS = [(1, 1), (4, 1), (1, 32), (4, 32)]  # beams, sources of a batch
VOCABULARY = 8000

# Runs with the code of either commit, so it uses names that both have.
MEASURE = """
import random, sys, time
import torch
from dragoman.config import SearchConfig
from dragoman.config.presets import PRESETS
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.model import build

preset, kind, vocabulary, beam, batch = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
torch.manual_seed(0)
random.seed(0)
engine = TorchEngine(build(PRESETS[preset].model, vocabulary).eval(), compute_type=kind)
sources = [[*(random.randrange(300, vocabulary) for _ in range(39)), 2] for _ in range(batch)]
config = SearchConfig(beam=beam, min_length=90)
engine.search(sources, config)
best = 0.0
for _ in range(3):
    start = clock()
    found = engine.search(sources, config)
    best = max(best, sum(len(own[0].tokens) for own in found) / (clock() - start))
print(best)
"""


def main() -> None:
    """Check out both commits, run the rounds, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--types", nargs="+", default=["float32", "bfloat16", "int8"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sides = {name: Path(folder) / name for name in ("before", "after")}
        for (name, side), commit in zip(sides.items(), (options.old, options.new), strict=True):
            subprocess.run(["git", "worktree", "add", "--quiet", "--detach", side, commit], check=True)
            print(f"{name}: {commit}", file=sys.stderr)
        try:
            print(f"| {' | '.join(['', *(f'{kind}, {name}' for kind in options.types for name in sides)])} |")
            print(f"| --- |{' ---: |' * 2 * len(options.types)}")
            for beam, batch in SETTINGS:
                best: dict[tuple[str, str], float] = {}
                for _ in range(options.rounds):
                    for kind in options.types:
                        for name, side in sides.items():
                            setting = [options.preset, kind, str(VOCABULARY), str(beam), str(batch)]
                            speed = measure(side, setting, options.threads)
                            best[kind, name] = max(best.get((kind, name), 0.0), speed)
                cells = [f"{best[kind, name]:,.0f}" for kind in options.types for name in sides]
                print(f"| {' | '.join([f'beam {beam}, batch {batch}', *cells])} |", flush=True)
        finally:
            for side in sides.values():
                subprocess.run(["git", "worktree", "remove", "--force", side], check=True)


def measure(side: Path, setting: list[str], threads: int) -> float:
    """Return the tokens per second that a process with the code in `side` reaches."""
    environment = {**os.environ, "PYTHONPATH": str(side / "src"), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", MEASURE, *setting]
    return float(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()
