"""Measure whether training takes little memory however large the corpus is, and how long preparing it takes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from dragoman.config.presets import SMALL
from dragoman.data.batches import plan_batches
from dragoman.data.corpus import stream_rows
from dragoman.data.dataset import Pairs, tokenise
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.model import parameter_count
from dragoman.model_folder import read_model

WORDS, VOCABULARY, LENGTH = 50_000, 8000, 12  # number of made-up words; subwords; mean words of a sentence
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
BLOCK = 100_000  # pairs written at once
DEV = 50
COLUMNS = [
    *("pairs", "tokenise, s", "pairs/s", "plan, s"),
    *("file, MB", "peak, MB", "model and optimizer, MB", "everything else, MB"),
]
BYTES = 16  # of a parameter: weight, gradient and two moments, in float32


@dataclass(frozen=True)
class MemoryUse:
    """Time and memory for one number of pairs."""

    pairs: int
    tokenise: float  # seconds
    plan: float
    file: int  # bytes
    peak: int
    model: int  # bytes of weights, gradients and moments


def benchmark(threads: int, pairs: tuple[int, ...], steps: int) -> str:
    """Return a table in Markdown of the time and memory of training on made-up corpora, a row for each size.

    pairs: the sizes; steps: updates in each training. Sets PyTorch's threads, and the tokenizer's for this process.
    Raise DragomanError where a training fails.
    """
    torch.set_num_threads(threads)
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    rows = []
    for count in pairs:
        with TemporaryDirectory() as folder:
            rows.append(measure(count, threads, steps, Path(folder)))
    lines = [
        f"Artificial sentences of {LENGTH} words, {VOCABULARY:,} subwords, preset small; peak: the peak memory of "
        f"`dragoman train`, from reading the corpus over {steps} steps to the last checkpoint.",
        describe_machine() + ".",
        "",
        markdown_table(COLUMNS, [cells(row) for row in rows]),
    ]
    return "\n".join(lines)


def cells(row: MemoryUse) -> list[str]:
    """Return what was measured for one size of corpus as cells of the table, in the order of COLUMNS."""
    sizes = [f"{size / 1e6:,.0f}" for size in (row.file, row.peak, row.model, row.peak - row.model)]
    return [f"{row.pairs:,}", f"{row.tokenise:.1f}", f"{row.pairs / row.tokenise:,.0f}", f"{row.plan:.2f}", *sizes]


def measure(count: int, threads: int, steps: int, folder: Path) -> MemoryUse:
    """Tokenise a made-up corpus and train on it for some steps in another process; return the time and the memory.

    count: pairs of the corpus; steps: updates; folder: where the corpus and the run are written. Raise DragomanError
    where the training fails.
    """
    train, dev = folder / "train.tsv", folder / "dev.tsv"
    write_corpus(train, count, seed=1)
    write_corpus(dev, DEV, seed=2)
    spec = CorpusSpec((str(train),))
    tokenizer = Tokenizer.train((text for row in stream_rows(spec) for text in row[1:3]), VOCABULARY)
    began = time.perf_counter()
    tokenised, _ = tokenise(
        (spec,), Tokenizers.from_tokenizer(tokenizer), SMALL.training.max_tokens, folder / "train.arrow"
    )
    tokenise_seconds = time.perf_counter() - began
    size = (folder / "train.arrow").stat().st_size
    plan_seconds = planning_time(tokenised)
    out = folder / "run"
    command = [sys.executable, "-m", "dragoman", "train", "--quiet", "--preset", "small", "--device", "cpu"]
    command += ["--out", str(out), "--train", str(train), "--dev", str(dev), "--vocabulary", str(VOCABULARY)]
    command += ["--training.max-steps", str(steps), "--training.threads", str(threads)]
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise DragomanError(f"training on {count:,} pairs failed; see its message above")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    model = parameter_count(read_model(out)[0])
    return MemoryUse(count, tokenise_seconds, plan_seconds, size, peak, BYTES * model)


def planning_time(pairs: Pairs) -> float:
    """Plan the batches of one epoch of `pairs` once, with the preset small, and return the seconds that it took."""
    began = time.perf_counter()
    plan_batches(pairs.lengths, int(SMALL.training.batch_tokens), 1, 0, pairs.repeats)
    return time.perf_counter() - began


def write_corpus(path: Path, pairs: int, seed: int) -> None:
    """Write a TSV file of `pairs` made-up sentence pairs; `seed` decides which."""
    with path.open("w", encoding="utf-8") as file:
        for source, target in made_up_pairs(pairs, seed):
            file.write(f"{source}\t{target}\n")


def made_up_pairs(pairs: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield `pairs` sentences of a made-up language with their word-for-word translations into another.

    The two languages are always the same; `seed` decides the sentences. A few words are frequent, as in real text.
    """
    source, target = made_up_words(0), made_up_words(1)
    random = np.random.default_rng(seed)
    share = 1 / np.arange(10, WORDS + 10)
    for start in range(0, pairs, BLOCK):
        lengths = 1 + random.poisson(LENGTH - 1, min(BLOCK, pairs - start))
        ends = np.cumsum(lengths)
        words = random.choice(WORDS, ends[-1], p=share / share.sum()).tolist()
        for begin, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True):
            sentence = words[begin:end]
            yield " ".join([source[word] for word in sentence]), " ".join([target[word] for word in sentence])


def made_up_words(seed: int) -> list[str]:
    """Return WORDS made-up words of one to five syllables, which `seed` decides; short ones occur several times."""
    random = np.random.default_rng(seed)
    words = random.choice(SYLLABLES, (WORDS, 5))
    return ["".join(word[:length]) for word, length in zip(words, random.integers(1, 6, WORDS), strict=True)]
