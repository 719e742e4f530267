"""Attention (section 3.2): the kernels that weigh values, and the multi-head layer around them.

Shapes: B batch, H heads, T queries, S keys, K = d_k, V = d_v, M = d_model, N real tokens of a batch (packing.py).

One rule for masks: True, or an integer that is not 0, = may attend. A float mask is added to the scores instead
(relative positions), with -inf where attention is not allowed. A query that may attend nowhere gets zeros, and finite
gradients.

A kernel is a callable `kernel(query, key, value, mask, dropout) -> output`, linear in the values and never a module. A
layer's `kernel` is a plain attribute: to watch a layer, or to try another kernel, assign to it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import AttentionConfig
from dragoman.model.packing import Packing, is_wide

FEW_KEYS = 256  # for more, PyTorch's kernel is faster in float32, and keeps no scores in memory

Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]
Rotate = Callable[[Tensor], Tensor]


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute equation 1, softmax(Q K^T / sqrt(d_k)) V, in PyTorch's fused kernel, or in steps where these are faster.

    query (..., T, K), key (..., S, K), value (..., S, V), mask broadcastable to (..., T, S) -> (..., T, V). dropout:
    the share of weights that is dropped. Raise ValueError, naming both shapes, where they do not fit.
    """
    if steps_are_faster(query, key):
        return explicit_attention(query, key, value, mask, dropout)
    mask = check_attention_inputs(query, key, value, mask)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


def steps_are_faster(query: Tensor, key: Tensor) -> bool:
    """Return whether PyTorch's kernel would take several times as long as equation 1 step by step."""
    if query.device.type != "cpu":
        return False
    half = query.dtype in (torch.bfloat16, torch.float16)
    return half or (is_wide() and key.size(-2) <= FEW_KEYS)


def explicit_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute what `fused_attention` does in the steps of the paper's equation 1; it keeps all scores in memory."""
    mask = check_attention_inputs(query, key, value, mask)
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return F.dropout(masked_softmax(scores, mask), dropout) @ value


def unscaled_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
) -> Tensor:
    """Compute softmax(Q K^T) V, equation 1 without sqrt(d_k), with the arguments of `fused_attention`."""
    return fused_attention(query * math.sqrt(query.size(-1)), key, value, mask, dropout)


class Additive(nn.Module):
    """Additive attention: the score of a query and a key is w . tanh(q + k), one hidden layer per head.

    A layer with this score keeps the module, for its trained w, as `score`, and the method `forward` as its kernel. The
    matrices of the hidden layer, W_q and W_k, are the query and key projections of that layer. It needs memory for
    (..., T, S, K) hidden units; the dot product, which needs none, has replaced it.
    """

    def __init__(self, heads: int, d_k: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, 1, 1, d_k))
        nn.init.uniform_(self.weight, -math.sqrt(3 / d_k), math.sqrt(3 / d_k))

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: float = 0.0
    ) -> Tensor:
        """Return (B, H, T, V) for query (B, H, T, K), key (B, H, S, K) and value (B, H, S, V).

        mask, dropout and what is raised: as for `fused_attention`.
        """
        mask = check_attention_inputs(query, key, value, mask)
        hidden = (query.unsqueeze(-2) + key.unsqueeze(-3)).tanh()  # B H T S K
        scores = (hidden * self.weight).sum(-1)
        return F.dropout(masked_softmax(scores, mask), dropout) @ value


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return the softmax of scores (..., T, S) over keys, the last dimension, after masking.

    Zeros for rows without keys. mask: bool, True where a query may attend; or floats, which are added to the scores;
    None: no mask.
    """
    if mask is None:
        return scores.softmax(-1)
    allowed = mask if mask.dtype == torch.bool else mask > -math.inf
    some_key = allowed.any(-1, keepdim=True)
    if scores.device.type == "cpu" and bool(some_key.all()):  # a GPU is not asked, as it would have to be waited for
        if mask.dtype == torch.bool:
            mask = scores.new_zeros(mask.shape).masked_fill_(~mask, -math.inf)
        return (scores + mask).softmax(-1)  # unlike a fill, the sum costs nothing in the backward pass
    if mask.dtype != torch.bool:
        scores = scores + mask
    # A row of nothing but -inf has no softmax (0/0 is NaN). Both fills also stop its gradient.
    weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)
    return weights.masked_fill(~some_key, 0.0)


def check_attention_inputs(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor | None:
    """Check the four arguments of a kernel; return the mask as bool or float, with at least two dimensions, or None.

    Raise ValueError, naming two shapes, unless: query (..., T, K) and key (..., S, K) agree in K, key and value (...,
    S, V) agree in S, the dimensions before these can be broadcast, and each size of the mask, from the last, is 1 or
    that of the scores (..., T, S), whose dimensions before T are those of the query.
    """
    if query.size(-1) != key.size(-1):
        raise ValueError(f"queries and keys differ in size: {tuple(query.shape)} and {tuple(key.shape)}")
    if key.size(-2) != value.size(-2):
        raise ValueError(f"each key needs one value: keys are {tuple(key.shape)}, values {tuple(value.shape)}")
    for first, second in ((query, key), (key, value)):
        if first.shape[:-2] != second.shape[:-2] and not broadcastable(first.shape[:-2], second.shape[:-2]):
            raise ValueError(f"batch sizes differ: {tuple(first.shape)} and {tuple(second.shape)}")
    if mask is None:
        return None
    scores = torch.Size((*query.shape[:-1], key.size(-2)))
    if mask.dim() > len(scores) or any(
        m not in (1, s) for m, s in zip(reversed(mask.shape), reversed(scores), strict=False)
    ):
        raise ValueError(f"mask {tuple(mask.shape)} does not fit scores {tuple(scores)}")
    return torch.atleast_2d(mask if mask.is_floating_point() else mask.bool())


def broadcastable(first: torch.Size, second: torch.Size) -> bool:
    """Return whether two shapes can be broadcast: each pair of sizes, counted from the last, is equal or has a 1."""
    return all(1 in (a, b) or a == b for a, b in zip(reversed(first), reversed(second), strict=False))


# Masks. Real tokens are those that are not padding.


def padding_mask(ids: Tensor, pad: int) -> Tensor:
    """Return the mask (B, 1, 1, S) for ids (B, S): every query may attend to real tokens only."""
    return (ids != pad)[:, None, None, :]


def causal_mask(queries: int, keys: int | None = None, device: torch.device | None = None) -> Tensor:
    """Return the mask (T, S): a query may attend to the keys up to its own position.

    Where there are more keys than queries, the queries are at the last positions.
    """
    keys = queries if keys is None else keys
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def decoder_mask(ids: Tensor, pad: int) -> Tensor:
    """Return the mask (B, 1, T, T) for ids (B, T): every query may attend to real tokens up to its own position."""
    return padding_mask(ids, pad) & causal_mask(ids.size(1), device=ids.device)


@dataclass(frozen=True)
class KeyValues:
    """The keys and values of the tokens that one attention layer has seen so far."""

    key: Tensor  # B H S K
    value: Tensor  # B H S V

    def extend(self, new: "KeyValues") -> "KeyValues":
        """Return these keys and values with those of new tokens behind them."""
        return KeyValues(torch.cat([self.key, new.key], 2), torch.cat([self.value, new.value], 2))

    def select(self, rows: Tensor) -> "KeyValues":
        """Return the rows (of dimension B) in `rows` (n,), in that order; one may come several times or not at all."""
        return KeyValues(self.key[rows], self.value[rows])


def no_rotation(x: Tensor) -> Tensor:
    """Return x: the `Rotate` of position schemes that do not rotate."""
    return x


class MultiHeadAttention(nn.Module):
    """Multi-head attention, section 3.2.2. All heads are one matmul; `heads * d_k` need not be d_model."""

    def __init__(self, d_model: int, config: AttentionConfig):
        super().__init__()
        heads, bias = config.heads, config.bias
        d_k, d_v = config.head_sizes(d_model)
        self.heads, self.dropout = heads, config.dropout
        self.query = nn.Linear(d_model, heads * d_k, bias)
        self.key = nn.Linear(d_model, heads * d_k, bias)
        self.value = nn.Linear(d_model, heads * d_v, bias)
        self.out = nn.Linear(heads * d_v, d_model, bias)
        self.kernel: Kernel
        if config.score == "additive":
            self.score = Additive(heads, d_k)
            self.kernel = self.score.forward
        else:
            self.kernel = {"dot": fused_attention, "unscaled": unscaled_attention}[config.score]

    def split_heads(self, x: Tensor, packing: Packing) -> Tensor:
        """Return the heads (B, H, T, D) of projected tokens (N, H * D)."""
        return packing.unpack(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # N H*D -> B T H D -> B H T D

    def project(self, x: Tensor, packing: Packing, rotate: Rotate = no_rotation) -> KeyValues:
        """Return the keys, rotated by `rotate`, and the values of the tokens x (N, M)."""
        return KeyValues(rotate(self.split_heads(self.key(x), packing)), self.split_heads(self.value(x), packing))

    def forward(
        self, x: Tensor, packing: Packing, seen: KeyValues, mask: Tensor | None, rotate: Rotate = no_rotation
    ) -> Tensor:
        """Return the vectors (N, M) that the tokens x (N, M) get from attending to the keys and values `seen`.

        mask: broadcastable to the scores (B, H, T, S), see `Kernel`; rotate: what turns the queries by their positions.
        """
        query = rotate(self.split_heads(self.query(x), packing))
        y = self.kernel(query, seen.key, seen.value, mask, self.dropout if self.training else 0.0)
        return self.out(packing.pack(y.transpose(1, 2)).flatten(1))  # B H T V -> B T H V -> N H*V -> N M
