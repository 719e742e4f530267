"""Say what is trained: the same model on the same sentences, whoever trains it, each in a process of its own."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dragoman.config import Device, TransformerConfig, as_dict, model_config
from dragoman.data.batches import Batch, Ids

SMOOTHING, CLIP, RATE = 0.1, 1.0, 1e-4

Step = Callable[[Batch], int]  # one update; returns the target tokens


@dataclass(frozen=True)
class TrainingTask:
    """A model's settings, the pairs to train it on, and how."""

    model: TransformerConfig
    vocabulary: int
    batch_tokens: int  # padding included
    threads: int
    precision: str = "float32"  # or bfloat16
    device: Device = "cpu"
    rate: float = RATE  # after the warm-up, the highest
    # Updates over which the rate rises, and then falls with the inverse square root; 0: the toolkit's own schedule.
    warmup: int = 0
    smoothing: float = SMOOTHING
    clip: float = CLIP  # 0: no clipping
    ema: float = 0.0  # decay of the moving average of the weights, 0 for none
    seed: int = 0  # 0: the toolkit's own
    sources: list[Ids] = field(default_factory=list)
    targets: list[Ids] = field(default_factory=list)

    @property
    def lengths(self) -> np.ndarray:
        """Return the tokens of each source and target (n, 2), EOS included."""
        return np.array([(len(s) + 1, len(t) + 1) for s, t in zip(self.sources, self.targets, strict=True)])

    def batch(self, pairs: Iterable[int]) -> Batch:
        """Return the pairs with these indices as a batch."""
        pairs = list(pairs)
        return Batch.from_pairs([self.sources[i] for i in pairs], [self.targets[i] for i in pairs])

    def vocabulary_words(self) -> list[str]:
        """Return a made-up word for each id that is not PAD, BOS or EOS."""
        return [f"w{id}" for id in range(3, self.vocabulary)]

    def write(self, folder: Path) -> None:
        """Write the settings into `folder` as task.json, and sentences as text.source and text.target, one a line.

        The vocabulary is in `words`, and the first sentence alone in dev.source and dev.target.
        """
        settings = {name: value for name, value in vars(self).items() if name not in ("sources", "targets")}
        (folder / "task.json").write_text(json.dumps(settings | {"model": as_dict(self.model)}), encoding="ascii")
        for side, rows in (("source", self.sources), ("target", self.targets)):
            lines = [f"{as_words(ids)}\n" for ids in rows]
            (folder / f"text.{side}").write_text("".join(lines), encoding="ascii")
            (folder / f"dev.{side}").write_text(lines[0], encoding="ascii")
        (folder / "words").write_text("".join(f"{word}\n" for word in self.vocabulary_words()), encoding="ascii")

    @classmethod
    def read(cls, folder: Path) -> "TrainingTask":
        """Return the task that `write` has written into `folder`."""
        settings = json.loads((folder / "task.json").read_text(encoding="ascii"))
        settings["model"] = model_config(settings["model"], "task.json")
        for side in ("source", "target"):
            lines = (folder / f"text.{side}").read_text(encoding="ascii").splitlines()
            settings[f"{side}s"] = [as_ids(line) for line in lines]
        return cls(**settings)

    def in_groups(self, seed: int = 1) -> "TrainingTask":
        """Return the task with its pairs in groups of similar length, which are in random order.

        For toolkits that do not sort, but close a batch with the sentence that makes it full: each group is a batch.
        """
        groups = group_by_length(self.lengths.max(axis=1), self.batch_tokens, beyond=True)
        order = [groups[n] for n in np.random.default_rng(seed).permutation(len(groups) - 1)]
        pairs = np.concatenate([*order, groups[-1]])  # the last one is not full
        sources, targets = ([side[i] for i in pairs] for side in (self.sources, self.targets))
        return dataclasses.replace(self, sources=sources, targets=targets)


def as_words(ids: Ids) -> str:
    """Return the made-up words of ids as one line: 'w5 w17'."""
    return " ".join(f"w{id}" for id in ids)


def as_ids(line: str) -> Ids:
    """Return the ids of the made-up words of a line. Other words, such as special tokens of a toolkit, have none."""
    return [int(word[1:]) for word in line.split() if word[0] == "w"]


def group_by_length(widths: np.ndarray, batch_tokens: int, beyond: bool = False) -> list[np.ndarray]:
    """Group pairs of similar length; return the indices of each group, the shortest pairs first.

    widths (n): how many tokens each pair counts for, 1 or more. A group has at most `batch_tokens` of them, padding
    included. With `beyond` it is full only when it has that many or more, and the pair that fills it belongs to it.
    """
    order = np.argsort(widths, kind="stable")
    groups, start = [], 0
    for end, width in enumerate(widths[order]):
        if width * (end + 1 - start) > batch_tokens - beyond:
            groups.append(order[start : end + beyond])
            start = end + beyond
    return [*groups, order[start:]]


def grouped_batches(task: TrainingTask, seed: int = 1) -> Iterator[Batch]:
    """Yield batches of pairs of similar length, in random order, epoch after epoch without end."""
    widths, random = task.lengths.max(axis=1), np.random.default_rng(seed)
    while True:
        pairs = random.permutation(len(widths))
        groups = group_by_length(widths[pairs], task.batch_tokens)
        for number in random.permutation(len(groups)):
            yield task.batch(pairs[groups[number]])


def train_on(batches: Iterable[Batch], step: Step) -> None:
    """Train on the batches, and print what `TrainerProcess` reads: 'ready', then the target tokens of each update."""
    print("ready", flush=True)
    for batch in batches:
        print("tokens", step(batch), flush=True)
