"""Fill our Transformer with the weights of others: rows renumbered, columns sorted, matrices tied as their tensors are.

Pad, start and end become 0, 1 and 2, and the rest keeps its order. A row that a model has not got is zero, and it is
never said: its logit is UNSAYABLE. That is no minus infinity, which label smoothing would multiply.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dragoman.config import SharedMatrices, TransformerConfig
from dragoman.data.tokenizer import PAD
from dragoman.errors import plural
from dragoman.interop.checker import Checker
from dragoman.interop.names import split_name
from dragoman.interop.tensors import Tensors
from dragoman.model import build_empty
from dragoman.model.transformer import Transformer
from dragoman.model_folder.weights import DTYPES, Description, expected_shapes, named_tensors

UNSAYABLE = -50.0  # nats, added to a logit
MISSING = -1  # in an order: a row that the original has not got
WORDS = {"source_embedding.weight": "source", "target_embedding.weight": "target", "output.weight": "target"}


def rows_of(size: int, pad: int, start: int, end: int) -> list[int]:
    """Return the row of the original for each of our ids: pad, start, end, then the rest in its order.

    size: how many rows it has; pad, start: MISSING where it has none. They may be the same row, or the end's.
    """
    return [pad, start, end, *(row for row in range(size) if row not in (pad, start, end))]


def columns_in_pairs(d_model: int) -> Tensor:
    """Return the order of vectors in which sines and cosines in halves become those of the paper, which alternate.

    Hugging Face's MarianMT has the paper's table with its columns sorted: all sines, then all cosines.
    """
    order = torch.empty(d_model, dtype=torch.long)
    half = (d_model + 1) // 2
    order[0::2], order[1::2] = torch.arange(half), torch.arange(half, d_model)
    return order


@dataclass(frozen=True)
class Original:
    """The weights of a model of others, and how they become ours.

    names: where the original keeps one of our weights, by our name, the first that is there counts; source, target: the
    row for each of our ids, see `rows_of`; unsayable: our ids of the target that are never said; columns: an order for
    the vectors between layers, None to leave them; transposed: whether matrices are (inputs, outputs).
    """

    tensors: Tensors
    names: Callable[[str], list[str]]
    config: TransformerConfig
    source: Sequence[int]
    target: Sequence[int]
    unsayable: Collection[int] = ()
    columns: Tensor | None = None
    transposed: bool = False

    def find(self, ours: str) -> str | None:
        """Return where the original keeps one of our weights, by our name; None where it has none."""
        return next((name for name in self.names(ours) if name in self.tensors.shapes), None)

    def is_transposed(self, ours: str, name: str) -> bool:
        """Return whether the original has one of our matrices as (inputs, outputs). name: its own name of it."""
        inside = split_name(ours).layer is not None and ours.endswith(".weight") and not ours.endswith("norm.weight")
        return self.transposed and (inside or name == OUTPUT_MATRIX)

    def rows(self, ours: str) -> Sequence[int] | None:
        """Return the rows of a matrix or vector that has one for each word, by our name; None for any other."""
        if ours == "output.bias":
            return self.target
        return {"source": self.source, "target": self.target}.get(WORDS.get(ours, ""))

    def read(self, ours: str) -> Tensor:
        """Return one of our weights, by our name, in our order and in float32."""
        name, rows = self.find(ours), self.rows(ours)
        if name is None:  # only an output bias may be missing
            value = torch.zeros(1 + max(self.target))
        else:
            value = self.tensors.read(name)
            value = value.flatten() if ours.endswith((".bias", "norm.weight")) else value
            value = value.T if self.is_transposed(ours, name) else value
        if rows is not None:
            index = torch.tensor(rows)
            value = value[index.clamp(min=0)]
            value[index == MISSING] = 0
        if ours == "output.bias":
            value[list(self.unsayable)] = UNSAYABLE
        return value if self.columns is None else in_order(ours, value, self.columns)


OUTPUT_MATRIX = "decoder_ff_logit_out_W"  # of Marian, the only matrix of words that it has as (inputs, outputs)


def in_order(ours: str, value: Tensor, columns: Tensor) -> Tensor:
    """Return one of our weights, by our name, for vectors between layers whose numbers are in another order."""
    _, layer, part, _ = split_name(ours)
    if ours == "output.bias" or (layer is not None and value.dim() == 1 and not part.endswith(("norm", "out"))):
        return value
    if part.endswith(".out") or value.dim() == 1:
        return value[columns]
    return value[:, columns]


def shared_matrices(original: Original) -> SharedMatrices:
    """Return which of the matrices of words are one: those that are stored once, and those with equal numbers.

    What a config says of it counts for nothing: many folders contradict themselves.
    """

    def same(name: str, other: str) -> bool:
        first, second = original.find(name), original.find(other)
        assert first
        assert second
        if original.rows(name) != original.rows(other):
            return False
        if first == second:
            return True
        if original.tensors.shapes[first] != original.tensors.shapes[second]:  # Marian's own output matrix, too
            return False
        return torch.equal(original.tensors.read(first), original.tensors.read(second))

    source, target, output = WORDS
    match same(source, target), same(target, output):
        case True, True:
            return "all"
        case True, False:
            return "embeddings"
        case False, True:
            return "output"
    return "none"


def build_model(original: Original) -> Transformer:
    """Return our model with the weights of the original, in eval mode. Raise DragomanError where they are not finite.

    Tensors are read one at a time.
    """
    config = replace(original.config, share=shared_matrices(original))
    model = build_empty(config, len(original.source), len(original.target), PAD)
    assert isinstance(model, Transformer)
    with torch.no_grad():
        for (ours, *_), tensor in named_tensors(model):
            tensor.copy_(original.read(ours))
    return model.eval()


def check_tensors(original: Original, checker: Checker, ignored: Collection[str] = ()) -> None:
    """Add what is wrong with the tensors: missing ones, those of other shapes or types, and those that we do not know.

    ignored: names in the original that may be there.
    """
    config, tensors = replace(original.config, share="none"), original.tensors
    used: set[str] = set()
    problems: list[str] = []
    for (ours, *_), shape in expected_shapes(Description(config, len(original.source), len(original.target))):
        names = original.names(ours)
        used |= set(names)
        name = original.find(ours)
        if name is None:
            if ours != "output.bias":
                problems.append(f"the tensor '{names[0]}' is missing")
            continue
        expected, theirs = original_shape(original, ours, name, shape), tensors.shapes[name]
        vector = tuple(each for each in theirs if each != 1) or (1,)  # which may have any number of dimensions
        if expected != (vector if len(expected) == 1 else theirs):
            problems.append(f"the tensor '{name}' is {theirs} instead of {expected}")
        if tensors.dtypes[name] not in DTYPES:
            kind = "8-bit numbers" if "8" in tensors.dtypes[name] else tensors.dtypes[name]
            problems.append(f"the tensor '{name}' has {kind}, not floats of 16, 32 or 64 bits")
    problems += [f"the tensor '{name:.100}' is unknown" for name in sorted(set(tensors.shapes) - used - set(ignored))]
    for problem in problems[:5]:
        checker.refuse(problem)
    if len(problems) > 5:
        checker.refuse(f"{plural(len(problems) - 5, 'more tensor')} like these")


def original_shape(original: Original, ours: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape that a tensor of the original must have, for our shape of one of our weights."""
    rows = original.rows(ours)
    if rows is not None:
        shape = (1 + max(rows), *shape[1:])
    return shape[::-1] if original.is_transposed(ours, name) else shape
