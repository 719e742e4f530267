"""Make a small run folder with the current code, and record what its model gives, for tests/storage/test_formats.py.

    python scripts/make_format_example.py tests/formats/0.2.0

Make one for each release, and whenever a format changes; never make one again that is there. Further flags are those of
`dragoman train`. Takes half a minute and 200 kB. The folder of version 0.1.0 was made with its code in PYTHONPATH and
with --training.joined 0.1.
"""

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

WORDS = dict(zip("one two three four five six".split(), "uno dos tres cuatro cinco seis".split(), strict=True))
# Additive attention, because its weight had another name in format 1.
TRAIN = """
--train train.tsv --dev dev.tsv --out run --preset tiny --vocabulary 300
--model.d-model 16 --model.encoder-layers 1 --model.decoder-layers 1 --model.feed-forward.d-ff 32 --model.dropout 0
--model.attention.heads 2 --model.attention.score additive
--training.batch-tokens 400 --training.micro-batches 1 --training.threads 1 --training.precision float32
--training.device cpu --training.epochs 1000 --training.max-steps 500 --training.validate-every 500 --training.keep 1
--training.learning-rate 0.3 --training.warmup 50 --quiet
"""


def dragoman(folder: Path, *words: str) -> str:
    """Run a command in a folder and return what it prints."""
    command = [sys.executable, "-m", "dragoman", *words]
    return subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    folder, *flags = sys.argv[1:]
    out, chance = Path(folder), random.Random(0)
    out.mkdir(parents=True)
    pairs = []
    for _ in range(150):
        words = chance.choices([*WORDS], k=chance.randint(2, 4))
        pairs.append((" ".join(words), " ".join(map(WORDS.__getitem__, words))))
    for name, rows in (("train", pairs[:140]), ("dev", pairs[140:])):
        (out / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows))
    dragoman(out, "train", *TRAIN.split(), *flags)
    sources = [source for source, _ in pairs[140:]]
    lines = dragoman(out, "translate", "-m", "run", "--output-format", "jsonl", "--threads", "1", "--quiet", *sources)
    scores = dragoman(out, "score", "-m", "run", "dev.tsv", "--json")
    translated = [
        {"source": source, "target": target, "log_p": json.loads(score)["log_p"]}
        | {name: json.loads(line)[name] for name in ("translation", "score")}
        for (source, target), line, score in zip(pairs[140:], lines.splitlines(), scores.splitlines(), strict=True)
    ]
    shutil.copytree(out / "run", out / "resumed", symlinks=True)
    more = "--training.max-steps", "525"  # a row is of at least 25 steps
    dragoman(out, "train", *TRAIN.split(), *flags, "--out", "resumed", *more)
    (*_, last) = filter(lambda row: row["event"] == "step", map(json.loads, (out / "resumed/metrics.jsonl").open()))
    shutil.rmtree(out / "resumed")
    recorded = {"pairs": translated, "resumed": {name: last[name] for name in ("step", "loss")}}
    (out / "recorded.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    main()
