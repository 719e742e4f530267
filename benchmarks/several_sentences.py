"""Measure how translations suffer where several sentences stand in a line, with each way to split them.

    python -m benchmarks several-sentences MODEL PAIRS

Joins 1, 2, 3 and 8 neighbouring pairs, of the first 240 of a file, to a line, and prints the BLEU of the lines for each
`--split`. The words are the same in each row, so their figures can be compared.
"""

import subprocess
import sys
import tempfile
from json import loads
from pathlib import Path

PAIRS = 240
SPLITS = ("sentences", "long", "none")


def bleu(model: str, pairs: Path, split: str) -> float:
    """Return the BLEU of a file of pairs. Raise CalledProcessError where dragoman fails."""
    command = [sys.executable, "-m", "dragoman", "evaluate", "-m", model, str(pairs), "--split", split, "--json"]
    return loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["bleu"]["value"]


def main() -> None:
    model, file = sys.argv[1:3]
    rows = [line.split("\t") for line in Path(file).read_text(encoding="utf-8").split("\n")[:PAIRS] if "\t" in line]
    print("sentences to a line", *(f"{split:>10}" for split in SPLITS))
    with tempfile.TemporaryDirectory() as folder:
        for size in (1, 2, 3, 8):
            joined = Path(folder) / f"{size}.tsv"
            groups = [rows[start : start + size] for start in range(0, len(rows), size)]
            lines = ("\t".join(" ".join(row[side] for row in group) for side in (0, 1)) for group in groups)
            joined.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            print(f"{size:19}", *(f"{bleu(model, joined, split):10.1f}" for split in SPLITS), flush=True)


if __name__ == "__main__":
    main()
