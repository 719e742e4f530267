"""Fuzz all targets, or those that are named, each in a process of its own, and print a table of what came of it."""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from fuzz.targets import targets

ROW = "| {:18} | {:>10} | {:>8} | {:>7} | {:>7} | {} |"
TIMEOUT = 20  # seconds after which one input counts as endless


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"choose from {', '.join(targets())}")
    parser.add_argument("--seconds", type=int, default=60, help="for each target; default: 60")
    parser.add_argument("--memory", type=int, default=500, help="most megabytes of a process; default: 500")
    parser.add_argument("--out", type=Path, default=Path("runs/fuzz"), help="default: runs/fuzz")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(targets()):
        parser.error(f"unknown targets: {', '.join(sorted(unknown))}")
    print(ROW.format("target", "executions", "a second", "peak MB", "edges", "finding"))
    print(ROW.format("---", "---:", "---:", "---:", "---:", "---"), flush=True)
    clean = [fuzz(name, options) for name in options.targets or targets()]
    return 0 if all(clean) else 1


def fuzz(name: str, options: argparse.Namespace) -> bool:
    """Fuzz one target and print its row; return whether nothing was found. Its log is beside what it found."""
    folder = options.out / name
    folder.mkdir(parents=True, exist_ok=True)
    flags = [f"-max_total_time={options.seconds}", f"-rss_limit_mb={options.memory}", f"-timeout={TIMEOUT}"]
    log = folder / "log.txt"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "fuzz.one", name, str(folder), *flags]
        ended = subprocess.run(command, stdout=file, stderr=file, check=False)
    text = log.read_text(encoding="utf-8", errors="replace")
    stats = dict(re.findall(r"^stat::(\w+):\s*(\d+)", text, re.MULTILINE))
    numbers = [stats.get(key, "") for key in ("number_of_executed_units", "average_exec_per_sec", "peak_rss_mb")]
    edges = re.findall(r" cov: (\d+) ", text)[-1:] or [""]
    finding = describe(text, log) if ended.returncode else ""
    print(ROW.format(name, *numbers, *edges, finding), flush=True)
    return not finding


def describe(text: str, log: Path) -> str:
    """Return the error in a log, in one line, and where the log and the input are."""
    errors = re.findall(r"=== Uncaught Python exception: ===\n(.*)|(libFuzzer: .*|ERROR: .*)", text)
    inputs = re.findall(r"Test unit written to (\S+)", text)
    return "; ".join([next((one or other for one, other in errors), "ended early"), *inputs[:1], str(log)])


if __name__ == "__main__":
    sys.exit(main())
