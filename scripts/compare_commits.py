"""Prove that two commits compute the same: train, resume, translate, evaluate, score, align and inspect in both.

    python scripts/compare_commits.py OLD [NEW]

Both run the same short training of the preset `tiny` with a fixed seed on one thread; all weights and moments must have
the same bits. Then both use the model that OLD has trained, and continue its run: words, scores, alignments, attention
maps and weights must be the same, under whatever name. Prints a table; exits with 1 where something differs.

Against version 0.1, these rows differ. Weights, moments and attention maps: in their last digits, as the loss and the
masked softmax add up in another order. Translations of a model as bad as this one, and their chrF: those that came out
empty are searched again, and all ranks of an n-best list have the placeholders. Samples and forbidden words are not
compared, because they mean something else since.
"""

import argparse
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

# What has another name since: flags, and fields of JSON. A name that a commit does not know is replaced by the other.
FLAGS = {
    "--words": "--word-scores",
    "--no-repeat": "--no-repeat-ngram",
    "--groups": "--beam-groups",
    "--diversity": "--diversity-penalty",
    "--numbers": "--keep-numbers",
    "--pieces": "--subwords",
}
FIELDS = {
    "again": "retried",
    "met": "terms_met",
    "others": "alternatives",
    "parts": "segments",
    "read": "decoder_input",
    "places": "positions",
    "pieces": "tokens",
    "ends": "special",
    "piece": "token",
    "spread": "normalised_entropy",
    "shift": "offset",
    "peak": "max_weight",
    "habit": "pattern",
}

STAMP = {"format", "version"}

ANIMALS = {"dog": "개", "cat": "고양이", "bear": "곰", "horse": "말", "rabbit": "토끼"}
VERBS = {"sees": "봐요", "likes": "좋아해요", "finds": "찾아요", "paints": "그려요"}
COLOURS = {"red": "빨간", "black": "검은", "white": "하얀", "blue": "파란"}
# Not here: tabs and no-break spaces, where words were made whole since (align and inspect agree), and texts too long
# for the model, whose pieces are now read without the space behind them.
HARD = [
    "The dog sees {name} and <b>2</b> cats.",
    "The cat likes 3 red dogs. The bear finds 5 blue cats! Who paints 7 white horses?",
    "",
    "Unknown words: zebra, 12 km, https://example.org/a?b=c",
]

Sentences = list[tuple[str, str]]


def sentence_pairs() -> Sentences:
    """Return English and Korean sentences, all different, in an order that looks random and is always the same."""
    pairs = [
        (
            f"The {a} {verb} {n} {colour} {b}s.",
            f"{ANIMALS[a]}가 {COLOURS[colour]} {ANIMALS[b]} {n}마리를 {VERBS[verb]}.",
        )
        for a, verb, colour, b, n in itertools.product(ANIMALS, VERBS, COLOURS, ANIMALS, range(2, 9))
    ]
    return random.Random(1).sample(pairs, len(pairs))


class Tree:
    """The source of a commit, unpacked into a folder of its own."""

    def __init__(self, commit: str, folder: Path):
        self.commit, self.folder = commit, folder
        self.texts: dict[str, str] = {}  # the help of each command, once it was needed
        folder.mkdir()
        archive = subprocess.run(["git", "archive", commit, "src"], check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)

    def run(self, command: str, *arguments: str | Path, stdin: str = "") -> str:
        """Run a command of dragoman and return its standard output. Raises RuntimeError where it fails."""
        words = [self.flag(command, str(word)) for word in arguments]
        if command in ("translate", "evaluate") and "--split" in self.help(command):
            words += ["--split", "long"]  # as earlier commits did
        done = self.python("-m", "dragoman", command, *words, stdin=stdin)
        if done.returncode:
            raise RuntimeError(f"{self.commit}: dragoman {command} {' '.join(words)}:\n{done.stderr}")
        return done.stdout

    def flag(self, command: str, word: str) -> str:
        """Return a flag by its new name as this commit calls it."""
        old = next((old for old, new in FLAGS.items() if new == word), None)
        if old is None:
            return word
        return word if re.search(rf"(?<![\w-]){word}(?![\w-])", self.help(command)) else old

    def help(self, command: str) -> str:
        """Return the help of a command."""
        if command not in self.texts:
            self.texts[command] = self.python("-m", "dragoman", command, "--help").stdout
        return self.texts[command]

    def python(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, *words], input=stdin, env=environment, cwd=self.folder, capture_output=True, text=True
        )


def fingerprints(run: Path) -> dict[str, str]:
    """Return the SHA-256 of every weight and moment of the last checkpoint of a run, by name."""
    tensors = {
        f"{file} {name}": tensor
        for file in ("model.safetensors", "state.safetensors")
        for name, tensor in load_file(run / "last" / file).items()
    }
    return {
        name: hashlib.sha256(f"{tensor.dtype} {tensor.shape}".encode() + tensor.tobytes()).hexdigest()
        for name, tensor in tensors.items()
    }


def in_new_words(value: Any) -> Any:
    """Return JSON with the new names of fields, without its format and the version of dragoman."""
    if isinstance(value, dict):
        if "piece" in value:  # where a piece is called a token, a token is called its id
            value = {"token_id" if name == "token" else name: inner for name, inner in value.items()}
        if "habit" in value:
            value = {**value, "habit": FIELDS.get(value["habit"], value["habit"])}
        return {FIELDS.get(name, name): in_new_words(inner) for name, inner in value.items() if name not in STAMP}
    return [in_new_words(inner) for inner in value] if isinstance(value, list) else value


def json_lines(text: str) -> list[Any]:
    return [in_new_words(json.loads(line)) for line in text.splitlines()]


def difference(old: Any, new: Any, where: str = "") -> str:
    """Return where two JSON values first differ, and how; nothing if they are equal. New fields are no difference."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            if name not in new:
                return f"{where}.{name} is missing"
            if mismatch := difference(value, new[name], f"{where}.{name}"):
                return mismatch
        return ""
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (ours, theirs) in enumerate(zip(old, new, strict=True)):
            if mismatch := difference(ours, theirs, f"{where}[{number}]"):
                return mismatch
        return ""
    return "" if old == new else f"{where}: {str(old)[:60]!r} -> {str(new)[:60]!r}"


def values(value: Any) -> int:
    """Return how many numbers and texts a JSON value has."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if inner is None else sum(map(values, inner))


def comparisons(old: Tree, new: Tree, folder: Path, steps: int) -> Iterator[tuple[str, Any, Any]]:
    """Yield what is compared, and what the two commits have computed, as JSON."""
    pairs = sentence_pairs()
    sets = {"train": pairs[:1500], "dev": pairs[1500:1540], "test": pairs[1540:1580]}
    for name, rows in sets.items():
        (folder / f"{name}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    test = folder / "test.tsv"

    def train(tree: Tree, out: Path, until: int) -> dict[str, str]:
        fixed = (
            f"--training.threads 1 --training.micro-batches 1 --training.precision float32 --training.max-steps {until}"
        )
        files = ["--train", folder / "train.tsv", "--dev", folder / "dev.tsv", "--out", out]
        small = "--preset tiny --vocabulary 400 --training.validate-every 50 --quiet".split()
        cpu = "--training.device cpu --training.precision float32".split()
        tree.run("train", *files, *small, *cpu, *fixed.split())
        return fingerprints(out)

    runs = {tree: folder / f"run-{name}" for tree, name in ((old, "old"), (new, "new"))}
    yield f"weights and moments after {steps} steps", *(train(tree, runs[tree], steps) for tree in (old, new))
    model = folder / "model"
    shutil.copytree(runs[old] / "last", model)
    copies = [shutil.copytree(runs[old], folder / f"resumed-{name}", symlinks=True) for name in ("old", "new")]
    yield (
        f"weights and moments after {steps} + {steps // 5} steps, the first of them by the old commit",
        *(train(tree, copy, steps + steps // 5) for tree, copy in zip((old, new), copies, strict=True)),
    )

    def both(command: str, *arguments: str | Path, stdin: str = "") -> tuple[str, str]:
        return tuple(tree.run(command, *arguments, stdin=stdin) for tree in (old, new))  # type: ignore[return-value]

    lines = "".join(f"{text}\n" for text in [*(source for source, _ in sets["test"]), *HARD])
    searches = {
        "beam search": "--word-scores --alignment",
        "greedy search": "--beam 1",
        "four best, in groups": "--n-best 4 --beam-groups 2 --no-repeat-ngram 3",
        "coverage and numbers": "--coverage-penalty 0.2 --keep-numbers",
        "prefix": "--prefix 고양이",
    }
    for name, flags in searches.items():
        words = ["-m", model, "--output-format", "jsonl", "--threads", "1", "--quiet", *flags.split()]
        yield f"translate: {name}", *map(json_lines, both("translate", *words, stdin=lines))
    yield "evaluate", *map(json_lines, both("evaluate", "-m", model, test, "--json", "--details"))
    yield "score", *map(json_lines, both("score", "-m", model, test, "--json"))
    for flags in ("--soft", "--text", "--subwords"):
        yield f"align {flags}", *(text.splitlines() for text in both("align", "-m", model, test, flags))
    for source, _ in sets["test"][:2]:
        yield f"inspect --json: {source}", *map(json_lines, both("inspect", "-m", model, "--json", source))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    differences = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, new = Tree(options.old, folder / "old"), Tree(options.new, folder / "new")
        print(f"{'compared':<80} {'values':>8}  {options.old} and {options.new}")
        for what, ours, theirs in comparisons(old, new, folder, options.steps):
            mismatch = difference(ours, theirs)
            differences += bool(mismatch)
            print(f"{what:<80} {values(ours):>8,}  {mismatch or 'equal'}", flush=True)
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
