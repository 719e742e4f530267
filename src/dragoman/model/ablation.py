"""A Transformer with one change, for experiments that ask what a part of the architecture is worth."""

import torch
from torch import Tensor, nn

from dragoman.config import AblationConfig
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.transformer import TokenContext, Transformer

SHARING = {"query-key": ("key",), "query-key-value": ("key", "value")}  # projections that are the query's own


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

    def encode(self, x: Tensor, source: TokenContext) -> Tensor:
        """Return the output (N, M) of the last encoder layer, or the mixture of all, for the source tokens x (N, M)."""
        if self.pool is None:
            return super().encode(x, source)
        outputs = []
        for layer in self.encoder:
            x = layer(x, source)
            outputs.append(x)
        return self.pool(torch.stack(outputs))


class LayerPool(nn.Module):
    """A mixture of layers with learned weights, softmax(w), equal at first."""

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
