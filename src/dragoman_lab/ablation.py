"""A Transformer with one change, for experiments that ask what a part of the architecture is worth.

Importing this module makes its kind of model known. Models of this kind are then built, saved and opened like others.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dragoman.config import TransformerConfig
from dragoman.config.toml import KINDS
from dragoman.errors import UsageError
from dragoman.model import BUILDERS
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.transformer import TokenContext, Transformer

SHARING = {"query-key": ("key",), "query-key-value": ("key", "value")}  # projections that are the query's own


@dataclass(frozen=True)
class AblationConfig(TransformerConfig):
    """A Transformer with a change that neither the paper nor a preset has, to measure what it is worth."""

    change: Literal["query-key", "query-key-value", "layer-pool", "embedding-norm"] = "query-key"
    "one matrix for queries and keys, or for values too; a mixture of all encoder layers; a norm of the embeddings"

    def __post_init__(self) -> None:
        super().__post_init__()
        d_k, d_v = self.attention.head_sizes(self.d_model)
        if self.change == "query-key-value" and d_k != d_v:
            raise UsageError(f"queries and values of {d_k} and {d_v} numbers cannot have one matrix")
        if self.change == "layer-pool" and not self.encoder_layers:
            raise UsageError("without encoder layers there is nothing to mix: encoder_layers must be 1 or more")

    @property
    def departure(self) -> str:
        """What the Transformer of the paper has not."""
        return f"the change '{self.change}'"

    def __str__(self) -> str:
        return f"{super().__str__()}, changed: {self.change}"


class Ablation(Transformer):
    """A Transformer with the change that its config names.

    With one matrix for queries and keys, two tokens give each other the same score. The norm of the embeddings, one for
    both languages, comes before their dropout. All weights that the change leaves are at first those of the Transformer
    with the same random state.
    """

    def __init__(
        self, config: AblationConfig, vocabulary: int, target_vocabulary: int | None = None, pad: int = 0
    ) -> None:
        super().__init__(config, vocabulary, target_vocabulary, pad)
        self.pool = LayerPool(config.encoder_layers) if config.change == "layer-pool" else None
        if config.change == "embedding-norm":
            self.dropout = nn.Sequential(nn.LayerNorm(config.d_model, config.norm_epsilon), self.dropout)
        share_projections(self, SHARING.get(config.change, ()))

    def encode(self, x: Tensor, context: TokenContext) -> Tensor:
        """Return the output (N, M) of the last encoder layer, or the mixture of all, for the source tokens x (N, M)."""
        if self.pool is None:
            return super().encode(x, context)
        outputs = []
        for layer in self.encoder:
            x = layer(x, context)
            outputs.append(x)
        return self.pool(torch.stack(outputs))


class LayerPool(nn.Module):
    """A mixture of layers with learned weights, softmax(w), equal at first."""

    title = "Mixture of all layers"  # in drawings of the model

    def __init__(self, layers: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))

    def forward(self, outputs: Tensor) -> Tensor:
        """Return the mixture (...) of the layers' outputs (L, ...)."""
        return torch.tensordot(self.weights.softmax(0), outputs, dims=1)


def share_projections(model: nn.Module, names: tuple[str, ...]) -> None:
    """Replace the projections of these names ("key", "value") by the query's in every attention layer of the model.

    It is the same matrix, not a copy. The model is changed in place.
    """
    for layer in model.modules():
        if isinstance(layer, MultiHeadAttention):
            for name in names:
                setattr(layer, name, layer.query)


KINDS["ablation"] = AblationConfig
BUILDERS[AblationConfig] = Ablation
