"""Tell a Transformer the order of its tokens (section 3.5): several schemes behind one interface.

Shapes: B batch, H heads, T queries, S keys, D head size, M d_model.
"""

import math

import torch
from torch import Tensor, nn

from dragoman.config import TransformerConfig
from dragoman.errors import UsageError

FIRST_LENGTH = 1024  # of a table that is computed; it grows when a longer sentence comes


class Positions(nn.Module):
    """A position scheme without effect. Others override one or two of the four hooks and have a line in POSITIONS.

    A model has one instance for its encoder and one for its decoder, each shared by all layers. Parameters keep the
    values that `__init__` gives them; vectors get no weight decay. CTranslate2 refuses a scheme that it does not know;
    `dragoman inspect --view positions` draws what `embed` adds, and refuses a new scheme that adds nothing there.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Return the embeddings x (B, T, M) of tokens at positions start, start + 1, ... with what the scheme adds."""
        return x

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Return the queries or keys x (B, H, T, D) of the tokens at positions start, start + 1, ... rotated."""
        return x

    def rotate_across(self, x: Tensor, start: int) -> Tensor:
        """Return x, queries or source keys from position `start` on, rotated for attention over the source."""
        return x

    def bias(self, start: int, queries: int, keys: int) -> Tensor | None:
        """Return scores (H, T, S) to add before the softmax of self-attention, but not of attention over the source.

        The queries are at positions start, start + 1, ..., the keys at 0 to keys - 1. In the decoder, the causal mask
        hides later keys, whatever their scores. The scores are on the device of the model, in the dtype of its weights;
        a constant that they need is a buffer with persistent=False.
        """
        return None


def sinusoids(length: int, size: int) -> Tensor:
    """Return the table (length, size) of section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/size)), PE(pos, 2i+1) = cos."""
    position = torch.arange(length, dtype=torch.float64)[:, None]
    angle = position * torch.exp(torch.arange(0, size, 2, dtype=torch.float64) * (-math.log(10000.0) / size))
    table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :size]
    return table.to(torch.get_default_dtype())


def sinusoids_in_halves(length: int, size: int) -> Tensor:
    """Return the table as Marian lays it out: all sines, then all cosines, wavelengths spread over size/2 - 1 steps."""
    half = (size + 1) // 2
    position = torch.arange(length, dtype=torch.float64)[:, None]
    step = math.log(10000.0) / max(half - 1, 1)
    angle = position * torch.exp(torch.arange(half, dtype=torch.float64) * -step)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)[:, :size].to(torch.get_default_dtype())


class Table(Positions):
    """A scheme with a table that a formula gives; it is computed again when a longer sentence comes."""

    table: Tensor
    formula = staticmethod(sinusoids)

    def __init__(self, size: int):
        nn.Module.__init__(self)
        self.register_buffer("table", torch.empty(0, size), persistent=False)

    def rows(self, start: int, end: int) -> Tensor:
        """Return the vectors (end - start, size) of the positions from start to end - 1; the table grows if need be."""
        table = self.table  # another thread may put a shorter one there meanwhile
        if end > table.size(0):
            longer = FIRST_LENGTH if end <= FIRST_LENGTH else 2 * end
            with torch.inference_mode(False):  # the table outlives a search that made it grow
                self.table = table = self.formula(longer, table.size(1)).to(table)
        return table[start:end]


class Sinusoidal(Table):
    """Add the table of section 3.5 to the embeddings, for sentences of any length."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config.d_model)

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Return the embeddings x (B, T, M) plus the table's rows for the positions start, start + 1, ..."""
        return x + self.rows(start, start + x.size(1))


class SinusoidalHalves(Sinusoidal):
    """Add the sinusoids in Marian's layout: all sines, then all cosines."""

    formula = staticmethod(sinusoids_in_halves)


class Learned(Positions):
    """Add one learned vector per position to the embeddings (Table 3, row E). Raise ValueError past max_length."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.table = nn.Embedding(config.max_length, config.d_model)
        nn.init.normal_(self.table.weight, std=config.d_model**-0.5)

    def embed(self, x: Tensor, start: int) -> Tensor:
        """Return x (B, T, M) plus the vectors of its positions from `start` on. Raise ValueError past `max_length`."""
        end, max_length = start + x.size(1), self.table.num_embeddings
        if end > max_length:
            raise ValueError(f"{end} tokens, but the learned positions end at {max_length} (max_length)")
        return x + self.table.weight[start:end]


class Rotary(Table):
    """Rotate queries and keys by an angle that grows with the position: scores depend on distances (RoPE)."""

    def __init__(self, config: TransformerConfig):
        super().__init__(config.attention.head_sizes(config.d_model)[0])

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Return x (B, H, T, D), each pair of its D numbers rotated by an angle for its position, from `start` on."""
        kind = torch.promote_types(self.table.dtype, torch.float32)  # 16 bits are too coarse for angles
        sin, cos = self.rows(start, start + x.size(2)).to(kind).unflatten(-1, (-1, 2)).unbind(-1)
        # Pairs as complex numbers: one multiplication rotates them, several times as fast as four of their parts.
        pairs = torch.view_as_complex(x.to(kind).unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * torch.complex(cos, sin)).flatten(-2).to(x.dtype)


class RotaryAcross(Rotary):
    """Rotate queries and keys in attention over the source, too.

    A head can then attend to source words at a fixed distance from the target's position before the model knows any
    word, so the model learns sooner.
    """

    def rotate_across(self, x: Tensor, start: int) -> Tensor:
        """Return x (B, H, T, D) rotated as for self-attention: queries of target tokens or keys of source tokens."""
        return self.rotate(x, start)


class Relative(Positions):
    """Add a learned score per head and distance, the same in all layers; distances beyond `reach` count as `reach`."""

    reach = 32

    def __init__(self, config: TransformerConfig):
        super().__init__(config)
        self.scores = nn.Embedding(2 * self.reach + 1, config.attention.heads)
        nn.init.zeros_(self.scores.weight)

    def bias(self, start: int, queries: int, keys: int) -> Tensor:
        """Return the learned scores (H, T, S) by distance of the keys, from 0 on, from the queries, from `start` on."""
        device = self.scores.weight.device
        query = torch.arange(start, start + queries, device=device)[:, None]
        distance = torch.arange(keys, device=device) - query  # T S
        return self.scores(distance.clamp(-self.reach, self.reach) + self.reach).permute(2, 0, 1)


POSITIONS: dict[str, type[Positions]] = {
    "none": Positions,
    "sinusoidal": Sinusoidal,
    "sinusoidal-halves": SinusoidalHalves,
    "learned": Learned,
    "rotary": Rotary,
    "rotary-across": RotaryAcross,
    "relative": Relative,
}


def build_positions(config: TransformerConfig) -> Positions:
    """Return a new instance of the position scheme of a model. Raise UsageError where POSITIONS does not have it."""
    if config.positions not in POSITIONS:
        raise UsageError(f"no position scheme '{config.positions}' in POSITIONS; choose from {', '.join(POSITIONS)}")
    return POSITIONS[config.positions](config)
