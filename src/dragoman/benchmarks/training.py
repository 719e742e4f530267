"""Measure how fast training is: whole steps (forward, label-smoothed loss, backward, clipping, Adam), beside others.

All train the same architecture on the same sentences, each with the settings that are fastest for it. Target tokens
include EOS and no padding.
"""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from dragoman.benchmarks.peers.pytorch import CLIP, RATE, SMOOTHING, Step, marianmt_steps, torch_steps
from dragoman.benchmarks.peers.trainers import PROGRAMS, TrainingTask, train_in_turns
from dragoman.benchmarks.profile import OTHER, PARTS, matmul_rate, operations_per_update, time_shares
from dragoman.config import TrainingConfig, TransformerConfig
from dragoman.config.presets import BASE, SMALL, TINY
from dragoman.data.batches import Batch, Ids, plan_batches
from dragoman.data.corpus import read_corpus
from dragoman.data.tokenizer import PAD, Tokenizer
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.model.transformer import Transformer
from dragoman.training.distributed import ProcessGroup
from dragoman.training.learner import Learner

BATCH_TOKENS = 2048  # padding included
MAX_TOKENS = 128  # of a sentence, EOS included
RANDOM_PAIRS = 20_000
OURS, OURS_PLANNED = "dragoman", "dragoman, own batches"
TORCH_STEPS = {"marianmt": marianmt_steps, "torch": torch_steps}
NAMES = {
    "marianmt": "HF MarianMT",
    "torch": "nn.Transformer",
    "marian": "Marian",
    "joeynmt": "JoeyNMT",
    "eole": "Eole",
}
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BEST = "best of each"


@dataclass(frozen=True)
class Shape:
    """An architecture that all contenders have, and how many batches are timed at once."""

    model: TransformerConfig
    vocabulary: int
    batches: int


SHAPES = {
    name: Shape(replace(preset.model, positions="sinusoidal", norm_first=False), preset.vocabulary, batches)
    for name, preset, batches in (("tiny", TINY, 8), ("small", SMALL, 4), ("base", BASE, 2))
}


@dataclass(frozen=True)
class ShapeResult:
    """Hold what was measured of one shape in one precision."""

    contenders: dict[str, Contender]  # by column
    matmuls: tuple[float, float]  # operations per second in matmuls: in training, and alone
    parts: dict[str, float]  # of our time


def benchmark(threads: int, rounds: int, shapes: Sequence[str], corpus: str | None, peers: Sequence[str]) -> str:
    """Return tables in Markdown: target tokens per second, share of the machine's speed, and where our time goes.

    shapes: names in SHAPES; corpus: a file of pairs, None for random ones; peers: keys of NAMES. Sets PyTorch's threads
    and seed, and prints progress on standard error.
    """
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    notes: list[str] = []
    rows: dict[tuple[str, str], ShapeResult] = {}
    for shape in shapes:
        work = TimedBatches(SHAPES[shape], corpus)
        for precision in PRECISIONS:
            print(f"{shape}, {precision} ...", file=sys.stderr)
            rows[shape, precision] = measure(work, precision, threads, rounds, peers, notes)
    columns = [OURS, OURS_PLANNED, *(NAMES[peer] for peer in NAMES if peer in peers)]
    columns = [name for name in columns if any(name in row.contenders for row in rows.values())]
    speeds = []
    for shape in shapes:
        timed = {precision: rows[shape, precision].contenders for precision in PRECISIONS}
        best = {name: max((c[name] for c in timed.values() if name in c), key=lambda c: c.median) for name in columns}
        speeds += [[shape, label, *cells_of(row, columns)] for label, row in (*timed.items(), (BEST, best))]
    of = f"sentences of {Path(corpus).name}" if corpus else "random sentences of realistic length"
    return "\n".join(
        [
            f"Training steps on {of}, {BATCH_TOKENS:,} tokens per batch; target tokens per second, median and spread "
            f"of {rounds} interleaved rounds.",
            describe_machine() + ".",
            "",
            markdown_table(["model", "precision", *columns, "ours / fastest, same", "ours / fastest, own"], speeds),
            "",
            *(f"- {note}" for note in dict.fromkeys(notes)),
            "",
            "Matmuls of our own batches, real tokens only, and what the machine reaches in matmuls alone.",
            "",
            markdown_table(
                ["model", "precision", "GFLOP/s in training", "GFLOP/s alone", "share"],
                [
                    [
                        *key,
                        f"{row.matmuls[0] / 1e9:,.0f}",
                        f"{row.matmuls[1] / 1e9:,.0f}",
                        as_percent(matmul_share(row)),
                    ]
                    for key, row in rows.items()
                ],
            ),
            "",
            "Where our time goes.",
            "",
            markdown_table(
                ["model", "precision", *PARTS, OTHER],
                [[*key, *map(as_percent, row.parts.values())] for key, row in rows.items()],
            ),
        ]
    )


def cells_of(row: dict[str, Contender], columns: list[str]) -> list[str]:
    """Return the rate of each column as a cell, and two ratios.

    row: the contenders by column; '–' stands for one that is missing. The first ratio is our rate to that of the
    fastest of MarianMT and torch.nn.Transformer, on the same batches; the second is our rate on batches of our own to
    that of the fastest of all peers.
    """
    cells = [str(row[name]) if name in row else "–" for name in columns]
    same = [row[NAMES[peer]].median for peer in TORCH_STEPS if NAMES[peer] in row]
    own = [contender.median for name, contender in row.items() if name not in (OURS, OURS_PLANNED)]
    for ours, others in ((OURS, same), (OURS_PLANNED, own)):
        cells.append(f"{row[ours].median / max(others):.2f}" if others else "–")
    return cells


def matmul_share(row: ShapeResult) -> float:
    """Return the rate of the matmuls in training as a share of their rate alone."""
    return row.matmuls[0] / row.matmuls[1]


def as_percent(value: float) -> str:
    """Return '12 %' for 0.12."""
    return f"{100 * value:.0f} %"


class TimedBatches:
    """Sentences, and the batches of them that are timed, evenly chosen from short to long."""

    def __init__(self, shape: Shape, corpus: str | None):
        self.shape = shape
        self.sources, self.targets = read_ids(corpus, shape.vocabulary) if corpus else random_pairs(shape.vocabulary)
        lengths = np.array([(len(s) + 1, len(t) + 1) for s, t in zip(self.sources, self.targets, strict=True)])
        planned = plan_batches(lengths, BATCH_TOKENS, seed=1, epoch=0)
        self.shared = self.choose(group_by_length(lengths))
        self.planned = [self.batch(group) for group in self.choose([planned[n] for n in range(len(planned))])]

    def choose(self, groups: list[np.ndarray]) -> list[np.ndarray]:
        """Return as many of the groups as the shape says, evenly spread from the shortest targets to the longest."""
        groups = sorted(groups, key=lambda group: np.mean([len(self.targets[i]) for i in group]))
        count = self.shape.batches
        return [groups[int((n + 0.5) * len(groups) / count)] for n in range(count)]

    def batch(self, group: np.ndarray) -> Batch:
        """Return the pairs with these indices as a batch."""
        return Batch.of([self.sources[i] for i in group], [self.targets[i] for i in group])

    def task(self, threads: int, precision: str) -> TrainingTask:
        """Return the sentences of the shared batches as a task for programs that make batches of their own."""
        order = np.concatenate(self.shared)
        sources, targets = [self.sources[i] for i in order], [self.targets[i] for i in order]
        shape, bfloat16 = self.shape, precision == "bfloat16"
        return TrainingTask(shape.model, shape.vocabulary, sources, targets, BATCH_TOKENS, threads, bfloat16)


def read_ids(corpus: str, vocabulary: int) -> tuple[list[Ids], list[Ids]]:
    """Return sources and targets of a corpus as ids, without pairs of more than MAX_TOKENS tokens, EOS included.

    corpus: a file of pairs; vocabulary: subwords to learn from it, special tokens included; fewer if it is small. Raise
    DragomanError where the file cannot be read.
    """
    pairs = read_corpus([corpus]).pairs
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), suggested=vocabulary)
    sides = zip(*(tokenizer.encode_all(texts) for texts in zip(*pairs, strict=True)), strict=True)
    kept = [(source, target) for source, target in sides if max(len(source), len(target)) < MAX_TOKENS]
    return [source for source, _ in kept], [target for _, target in kept]


def random_pairs(vocabulary: int) -> tuple[list[Ids], list[Ids]]:
    """Return RANDOM_PAIRS random sources and targets as ids, with lengths like those of news and books.

    vocabulary: ids, special tokens included, which are not drawn. Lengths are log-normal, those of targets around those
    of their sources. The pairs are the same each time.
    """
    random = np.random.default_rng(1)
    source = random.lognormal(np.log(25), 0.5, RANDOM_PAIRS)
    lengths = (
        np.stack([source, source * random.lognormal(0, 0.15, RANDOM_PAIRS)], 1).clip(1, MAX_TOKENS - 1).astype(int)
    )
    sources, targets = ([random.integers(3, vocabulary, n).tolist() for n in side] for side in lengths.T)
    return sources, targets


def group_by_length(lengths: np.ndarray) -> list[np.ndarray]:
    """Group pairs of similar length; return their indices.

    A group has at most BATCH_TOKENS target tokens, padding included. lengths (n, 2): tokens of each source and target.
    """
    order = np.argsort(lengths.max(axis=1), kind="stable")
    groups, start, width = [], 0, 0
    for end, target in enumerate(lengths[order, 1]):
        width = max(width, target)
        if width * (end + 1 - start) > BATCH_TOKENS:
            groups.append(order[start:end])
            start, width = end, target
    return [*groups, order[start:]]


def measure(
    work: TimedBatches, precision: str, threads: int, rounds: int, peers: Sequence[str], notes: list[str]
) -> ShapeResult:
    """Time all contenders on the same batches in one precision, in turn; return what was measured.

    peers: keys of NAMES. Add to `notes` which attention is used, and what is not installed.
    """
    shape, dtype = work.shape, PRECISIONS[precision]
    model, step = our_step(shape, precision)
    same = [work.batch(group) for group in work.shared]
    row = {
        OURS: Contender(OURS, pass_over(step, same)),
        OURS_PLANNED: Contender(OURS_PLANNED, pass_over(step, work.planned)),
    }
    with contextlib.ExitStack() as stack:
        for peer in peers:
            name = NAMES[peer]
            try:
                if peer in TORCH_STEPS:
                    ways = TORCH_STEPS[peer](shape.model, shape.vocabulary, dtype)
                    kind, fastest = fastest_step(ways, work.batch(work.shared[len(same) // 2][::4]))
                    del ways  # only the model of the fastest way is kept in memory
                    notes.append(f"{name}, d_model {shape.model.d_model}, {precision}: attention '{kind}'.")
                    row[name] = Contender(name, pass_over(fastest, same))
                elif precision == "float32" or PROGRAMS[peer].bfloat16:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                    run = stack.enter_context(train_in_turns(peer, work.task(threads, precision), folder))
                    row[name] = Contender(name, run)
            except ImportError:
                notes.append(f"{name} is left out: pip install 'dragoman[benchmark]' installs it.")
            except DragomanError as error:
                notes.append(f"{name} is left out: {error}.")
        time_in_turn(list(row.values()), rounds)
    done = sum(operations_per_update(model, batch) for batch in work.planned) / sum(
        batch.tokens for batch in work.planned
    )
    machines = matmul_rate(model, same[0].tokens, dtype)
    parts = time_shares(pass_over(step, work.planned[len(work.planned) // 2 :][:1]))
    return ShapeResult(row, (done * row[OURS_PLANNED].median, machines), parts)


def our_step(shape: Shape, precision: str) -> tuple[Transformer, Step]:
    """Return a new model on the CPU, and a function that trains it on a batch and returns the number of target tokens.

    precision: 'float32' or 'bfloat16'.
    """
    model = Transformer(shape.model, shape.vocabulary, pad=PAD)
    settings = TrainingConfig(label_smoothing=SMOOTHING, clip=CLIP, precision=precision)  # type: ignore[arg-type]
    learner = Learner(model, settings, ProcessGroup(torch.device("cpu")))

    def step(batch: Batch) -> int:
        learner.update([batch], batch.tokens, RATE, seeds=(1,))
        return batch.tokens

    return model, step


def pass_over(step: Step, batches: list[Batch]) -> Callable[[], int]:
    """Return a function that trains on the batches once and returns the number of their target tokens."""
    return lambda: sum(step(batch) for batch in batches)


def fastest_step(steps: dict[str, Step], batch: Batch) -> tuple[str, Step]:
    """Run each step twice on the batch, which trains its model; return name and step of the fastest the second time."""
    tried = [Contender(name, pass_over(step, [batch])) for name, step in steps.items()]
    time_in_turn(tried, rounds=1)
    name = max(tried, key=lambda contender: contender.median).name
    return name, steps[name]
