"""Measure ways to fine-tune a model on new pairs: what it learns of them, and what it forgets of the old ones.

    python -m benchmarks compare-fine-tuning MODEL NEW OLD OUT [--steps 400] [--limit 200]
        [--schedules default constant-0.0001 ...] [--shares 0 0.25 0.5]

NEW and OLD are folders with train.tsv, dev.tsv and test.tsv. Trains the model for so many steps with each schedule and
each share of old pairs. Prints a table in Markdown: the BLEU on the first `limit` test pairs of both, first of the
model as it was, then of each run's checkpoint with the best BLEU on the dev pairs of NEW. The runs and scores stay in
the folder OUT: rerun the same command to go on.
"""

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

CONSTANT = "--training.schedule constant --training.learning-rate"
SCHEDULES = {
    "default": "",
    "constant-0.001": f"{CONSTANT} 0.001 --training.warmup 100",
    "constant-0.0003": f"{CONSTANT} 0.0003 --training.warmup 100",
    "constant-0.0001": f"{CONSTANT} 0.0001 --training.warmup 100",
    "linear-0.001": "--training.schedule linear --training.learning-rate 0.001 --training.warmup 50",
}


def dragoman(*arguments: object) -> str:
    """Run a command and return what it prints. Raise CalledProcessError where it fails."""
    command = [sys.executable, "-m", "dragoman", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def fine_tune(options: Namespace, schedule: str, share: float) -> Path:
    """Return the run folder of the model trained with a schedule and a share of old pairs, 0 for none."""
    run = options.out / f"{schedule}-share-{share:g}"
    train = [options.new / "train.tsv", *([options.old / "train.tsv", f"share={share}"] if share else [])]
    flags = f"--training.max-steps {options.steps} --training.validate-every {max(options.steps // 2, 1)}"
    flags += " --model.dropout 0.1 --quiet"
    files = ["--init-from", options.model, "--train", *train, "--dev", options.new / "dev.tsv", "--out", run]
    dragoman("train", *files, *flags.split(), *SCHEDULES[schedule].split())
    return run


def scores(options: Namespace, model: Path) -> list[float]:
    """Return the BLEU of a model on the first test pairs of NEW and of OLD."""
    bleu = []
    for corpus in (options.new, options.old):
        few = options.out / f"{corpus.resolve().name}-test.tsv"
        lines = (corpus / "test.tsv").read_text(encoding="utf-8").removesuffix("\n").split("\n")
        few.write_text("".join(f"{line}\n" for line in lines[: options.limit]), encoding="utf-8")
        bleu.append(json.loads(dragoman("evaluate", "-m", model, few, "--json"))["bleu"]["value"])
    return bleu


def main() -> None:
    parser = ArgumentParser(usage=__doc__)
    for name in ("model", "new", "old", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--schedules", nargs="+", choices=list(SCHEDULES), default=list(SCHEDULES))
    parser.add_argument("--shares", type=float, nargs="+", default=[0.0, 0.25, 0.5])
    parser.add_argument("--limit", type=int, default=200)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "scores.json"
    known: dict[str, list[float]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    print("| schedule | share of old pairs | BLEU, new | BLEU, old |")
    print("|---|---:|---:|---:|")
    for schedule, share in [("", 0.0), *((name, share) for name in options.schedules for share in options.shares)]:
        key = f"{schedule} {share:g}"
        if key not in known:
            known[key] = scores(options, fine_tune(options, schedule, share) if schedule else options.model)
            file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        new, old = known[key]
        trained = f"{schedule} | {share:g}" if schedule else "not fine-tuned | "
        print(f"| {trained} | {new:.1f} | {old:.1f} |", flush=True)


if __name__ == "__main__":
    main()
