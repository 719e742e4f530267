"""Choose the layer and head to align words with. It differs from model to model, so it is measured, and recorded.

Shapes: B pairs, L layers, H heads, T target tokens, S source tokens. With EOS, the two sides have T+1 and S+1.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dragoman.alignment.ibm1 import mutual_links
from dragoman.data.batches import Ids
from dragoman.decoding.engine import require_numbers
from dragoman.decoding.forced import forced_batches
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model
from dragoman.model.capture import AttentionCapture, attention_layers
from dragoman.storage.records import read_record

# What heads are measured on: pairs of at most so many tokens, until the word model's table has so many token pairs.
MAX_LENGTH, MAX_CELLS = 100, 2_000_000
ENOUGH_LINKS = 5_000


@dataclass(frozen=True)
class AlignmentHead:
    """The layer and head that align words, and how well they agree with a word model."""

    RECORD: ClassVar = "alignment.json"  # in a model folder

    layer: int  # from 1
    head: int | None = None  # from 1; None: the mean of all
    # The share of the word model's links between tokens that this head finds too; None: not measured.
    agreement: float | None = None
    links: int = 0  # how many of them there were

    def __str__(self) -> str:
        which = f"layer {self.layer}, {f'head {self.head}' if self.head else 'mean of all heads'}"
        if self.agreement is None:
            return f"{which}, not measured"
        return f"{which}, agrees with {100 * self.agreement:.1f} % of {self.links:,} links of a word model"

    def as_json(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def save(self, folder: Path) -> None:
        """Write the record into a model folder that is still being written."""
        (folder / self.RECORD).write_text(self.as_json(), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "AlignmentHead | None":
        """Read the record of a model folder; return None where there is none.

        Raise DragomanError where the file is not such a record.
        """

        def make(fields: Any) -> AlignmentHead:
            record = cls(**fields)
            numbers = [record.layer, 1 if record.head is None else record.head, record.links + 1]
            if any(type(number) is not int or number < 1 for number in numbers):
                raise ValueError
            if record.agreement is not None and not 0 <= record.agreement <= 1:
                raise ValueError
            return record

        return read_record(folder / cls.RECORD, "an alignment record", make)


def alignment_weights(
    model: Model, sources: Sequence[Ids], targets: Sequence[Ids], head: AlignmentHead
) -> list[Tensor]:
    """Return, for each pair, the attention (T+1, S+1) of the head from each target token to each source token.

    It is that of the step that predicted the token. The last row and column are EOS; each row sums to 1. The weights of
    a pair do not depend on the other pairs. Raise UsageError for a layer or head that the model does not have,
    DragomanError for a model without attention over the source, and where the attention is not numbers.
    """
    capture = cross_attention_capture(model)
    if not 1 <= head.layer <= len(capture.weights["cross"]):
        raise UsageError(f"layer {head.layer}: the model has layers 1 to {len(capture.weights['cross'])}")
    tables: dict[int, Tensor] = {}
    for rows, batch in forced_batches(model, sources, targets):
        with torch.inference_mode():
            capture.run(batch.source, batch.target, batch.real)
        weights = capture.weights["cross"][head.layer - 1]
        if head.head is not None and not 1 <= head.head <= weights.size(1):
            raise UsageError(f"head {head.head}: the model has heads 1 to {weights.size(1)}")
        weights = (weights.mean(1) if head.head is None else weights[:, head.head - 1]).float().cpu()
        for row, table in zip(rows, weights, strict=True):
            tables[row] = table[: len(targets[row]) + 1, : len(sources[row]) + 1].clone()
            require_numbers(tables[row])
    return [tables[row] for row in range(len(sources))]


def cross_attention_capture(model: Model) -> AttentionCapture:
    """Return a copy of a model that records its cross-attention.

    Raise DragomanError for a model without attention over the source.
    """
    capture = AttentionCapture(model, ["cross"])
    if not capture.weights["cross"]:
        raise DragomanError("this model has no attention over the source, so it cannot align words")
    return capture


def measure_heads(model: Model, sources: Sequence[Ids], targets: Sequence[Ids]) -> AlignmentHead:
    """Return the head, or the mean of a layer's heads, that agrees best with a word model learned from these pairs.

    Where the word model finds no links, return `default_head`. Raise DragomanError for a model without attention over
    the source.
    """
    capture = cross_attention_capture(model)
    sources, targets = select_pairs(sources, targets)
    wanted = mutual_links(sources, targets)
    so_far = np.cumsum([(ids >= 0).sum() for ids in wanted])  # links
    pairs = int(np.searchsorted(so_far, ENOUGH_LINKS)) + 1
    sources, targets, wanted = sources[:pairs], targets[:pairs], wanted[:pairs]
    links = int(so_far[:pairs].max(initial=0))
    if not links:
        return default_head(model)
    hits: np.ndarray = np.zeros(())  # L H+1
    for rows, batch in forced_batches(model, sources, targets):
        with torch.inference_mode():
            capture.run(batch.source, batch.target, batch.real)
        maps = torch.stack(capture.weights["cross"], 1)  # B L H T S
        maps = torch.cat([maps, maps.mean(2, keepdim=True)], 2).cpu()
        for row, table in zip(rows, maps, strict=True):
            strongest = table[..., : len(targets[row]), : len(sources[row])].argmax(-1).numpy()  # L H+1 T
            # By token, not by position: if a token occurs twice in a source, attention to either is right.
            hits = hits + (np.array(sources[row])[strongest] == wanted[row]).sum(-1)
    layer, head = np.unravel_index(hits.argmax(), hits.shape)
    mean = head == hits.shape[1] - 1
    return AlignmentHead(int(layer) + 1, None if mean else int(head) + 1, float(hits.max() / links), links)


def default_head(model: Model) -> AlignmentHead:
    """Return the mean of the last layer's heads, without a measurement.

    Raise DragomanError for a model without attention over the source.
    """
    if not (layers := attention_layers(model)["cross"]):
        raise DragomanError("this model has no attention over the source, so it cannot align words")
    return AlignmentHead(layer=len(layers))


def select_pairs(sources: Sequence[Ids], targets: Sequence[Ids]) -> tuple[list[Ids], list[Ids]]:
    """Return (sources, targets) of the first pairs, as many as fit into the memory of a word model.

    Pairs with an empty side, or with more than MAX_LENGTH tokens on one, are left out. Those that are kept have at most
    MAX_CELLS pairs of a source and a target token together, the empty word included.
    """
    kept: tuple[list[Ids], list[Ids]] = ([], [])
    cells = 0
    for source, target in zip(sources, targets, strict=True):
        if 0 < len(source) <= MAX_LENGTH and 0 < len(target) <= MAX_LENGTH:
            cells += (len(source) + 1) * (len(target) + 1)
            if cells > MAX_CELLS:
                break
            kept[0].append(source)
            kept[1].append(target)
    return kept
