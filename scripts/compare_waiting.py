"""Measure what it costs how threads wait for each other, on a machine with and without other work.

    python scripts/compare_waiting.py MODEL PAIRS [--rounds 3] [--seconds 20]

Trains `tiny` on the pairs and translates 500 of their sources with the model, with two threads, in turns: each row is a
way to wait, as OpenMP's environment variables set it. The busy columns have a process beside it that computes on one
core without end. Prints Markdown: the median over the rounds, of target tokens a second and of seconds.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from itertools import product
from pathlib import Path
from statistics import median

# libgomp spins 300,000 times by default, which none of its settings says in words.
WAITS = {
    "GOMP_SPINCOUNT=300000 (libgomp's default)": {"GOMP_SPINCOUNT": "300000"},
    "GOMP_SPINCOUNT=300000 KMP_BLOCKTIME=0": {"GOMP_SPINCOUNT": "300000", "KMP_BLOCKTIME": "0"},
    "GOMP_SPINCOUNT=10000": {"GOMP_SPINCOUNT": "10000"},
    "GOMP_SPINCOUNT=1000": {"GOMP_SPINCOUNT": "1000"},
    "OMP_WAIT_POLICY=PASSIVE": {"OMP_WAIT_POLICY": "PASSIVE"},
}
LINES = 500
BUSY = "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"


def training_speed(pairs: Path, minutes: float, environment: dict[str, str]) -> float:
    """Return the target tokens a second of `tiny`. Raise CalledProcessError where dragoman fails."""
    with tempfile.TemporaryDirectory() as folder:
        dev = Path(folder) / "dev.tsv"
        dev.write_text("".join(pairs.read_text(encoding="utf-8").splitlines(keepends=True)[:8]), encoding="utf-8")
        flags = f"--preset tiny --training.threads 2 --training.minutes {minutes} --training.epochs 1000 --quiet"
        files = ["--train", str(pairs), "--dev", str(dev), "--out", f"{folder}/run"]
        command = [sys.executable, "-m", "dragoman", "train", *files, *flags.split()]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        last = [event for line in lines if (event := json.loads(line))["event"] == "step"][-1]
        return last["target_tokens"] / last["seconds"]


def translation_seconds(model: str, sources: str, environment: dict[str, str]) -> float:
    """Return how long the command takes for the sources, its start included."""
    command = [sys.executable, "-m", "dragoman", "translate", "-m", model, "--threads", "2", "--quiet"]
    began = time.monotonic()
    subprocess.run(command, check=True, env=environment, input=sources, text=True, capture_output=True)
    return time.monotonic() - began


def main() -> None:
    parser = ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    lines = options.pairs.read_text(encoding="utf-8").splitlines()[:LINES]
    sources = "".join(line.split("\t")[0] + "\n" for line in lines)
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    found: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for number, busy, (name, wait) in product(range(options.rounds), (False, True), WAITS.items()):
        beside = subprocess.Popen([sys.executable, "-c", BUSY]) if busy else None
        try:
            speed = training_speed(options.pairs, options.seconds / 60, {**ours, **wait})
            seconds = translation_seconds(options.model, sources, {**ours, **wait})
        finally:
            if beside:
                beside.kill()
                beside.wait()
        found.setdefault((name, busy), []).append((speed, seconds))
        print(f"round {number + 1}, busy {busy}, {name}: {speed:,.0f} tokens/s, {seconds:.1f} s", file=sys.stderr)
    print("| waiting | training, idle | training, busy | translating, idle | translating, busy |")
    print("|---|---:|---:|---:|---:|")
    for name in WAITS:
        cells = [zip(*found[name, busy], strict=True) for busy in (False, True)]
        (idle_speed, idle_seconds), (busy_speed, busy_seconds) = (map(median, cell) for cell in cells)
        print(f"| {name} | {idle_speed:,.0f} | {busy_speed:,.0f} | {idle_seconds:.1f} s | {busy_seconds:.1f} s |")


if __name__ == "__main__":
    main()
