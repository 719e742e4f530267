"""The baselines that the paper beat: recurrent encoder-decoders, with a fixed context vector or with attention.

They have the contract of the Transformer, start / step / select: training, search and inspection are the same.

Shapes: B sentences, S source tokens, T target tokens, M d_model, L layers, D directions, V target vocabulary.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from dragoman.config import RecurrentConfig
from dragoman.model.attention import Additive, Kernel, fused_attention, padding_mask
from dragoman.model.embedding import word_matrices
from dragoman.model.packing import Packing
from dragoman.model.transformer import Dropout

Hidden = tuple[Tensor, ...]  # one (L * D, B, M / D) per part: h, and c for the LSTM

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
}


class PlainRNN(nn.Module):
    """A layer in one direction: h_t = activation(x_t W_x + h_(t-1) W_h + b), and h_t = h_(t-1) in padding."""

    def __init__(self, inputs: int, size: int, activation: str, backward: bool = False):
        super().__init__()
        self.input, self.recurrent = nn.Linear(inputs, size), nn.Linear(size, size, bias=False)
        self.activation, self.backward = ACTIVATIONS[activation], backward
        for weight in (self.input.weight, self.input.bias, self.recurrent.weight):
            nn.init.uniform_(weight, -1 / math.sqrt(size), 1 / math.sqrt(size))

    def forward(self, x: Tensor, real: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return all states (B, S, size), with zeros in the padding, and the last one (B, size).

        x (B, S, inputs); real (B, S), bool: which positions hold a token; h (B, size): the state before.
        """
        states: list[Tensor] = []
        steps = list(zip(self.input(x).unbind(1), real[:, :, None].unbind(1), strict=True))
        for now, alive in reversed(steps) if self.backward else steps:
            h = torch.where(alive, self.activation(now + self.recurrent(h)), h)
            states.append(h * alive)
        return torch.stack(states[::-1] if self.backward else states, 1), h


class Recurrence(nn.Module):
    """Layers of one cell over a padded batch: the plain cell step by step, LSTM and GRU in PyTorch's kernels."""

    def __init__(self, config: RecurrentConfig, directions: int):
        super().__init__()
        size = config.d_model // directions
        self.shape = (config.layers * directions, size)
        self.directions, self.parts = directions, 2 if config.cell == "lstm" else 1
        self.dropout = Dropout(config.dropout)
        self.cells: nn.Module
        if config.cell == "rnn":
            self.cells = nn.ModuleList(
                PlainRNN(config.d_model, size, config.activation, backward=d == 1)
                for _ in range(config.layers)
                for d in range(directions)
            )
        else:
            kind = nn.LSTM if config.cell == "lstm" else nn.GRU
            between = config.dropout if config.layers > 1 else 0.0
            self.cells = kind(
                config.d_model, size, config.layers, batch_first=True, dropout=between, bidirectional=directions == 2
            )

    def zero_state(self, x: Tensor) -> Hidden:
        """Return zeros as the state before the first token of x (B, S, M): each part (L * D, B, M / D)."""
        layers, size = self.shape
        return tuple(x.new_zeros(layers, x.size(0), size) for _ in range(self.parts))

    def forward(self, x: Tensor, real: Tensor | None, hidden: Hidden) -> tuple[Tensor, Hidden]:
        """Return the states (B, S, M) of the top layer, and the hidden state after the last real token.

        x (B, S, M); real (B, S): which positions hold a token, None for all; hidden: the state before.
        """
        if isinstance(self.cells, nn.ModuleList):
            return self.run_plain_cells(
                x, torch.ones_like(x[..., 0], dtype=torch.bool) if real is None else real, hidden[0]
            )
        cell: Callable = self.cells
        before = hidden if self.parts == 2 else hidden[0]
        if real is None:
            states, after = cell(x, before)
        else:
            # Up to the last real token; a sentence of nothing is read as one padding token.
            lengths = (real * torch.arange(1, real.size(1) + 1, device=real.device)).amax(1).clamp(min=1).cpu()
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            states, after = cell(packed, before)
            states, _ = pad_packed_sequence(states, batch_first=True, total_length=x.size(1))
        return states, after if self.parts == 2 else (after,)

    def run_plain_cells(self, x: Tensor, real: Tensor, hidden: Tensor) -> tuple[Tensor, Hidden]:
        """Run the plain cells, layer by layer, over x (B, S, M); return states and hidden state as `forward` does.

        real (B, S), bool; hidden (L * D, B, M / D): the state before.
        """
        last: list[Tensor] = []
        for index in range(0, len(hidden), self.directions):
            if index:
                x = self.dropout(x)
            both = [
                self.cells[index + d](x, real, hidden[index + d])  # type: ignore[index]
                for d in range(self.directions)
            ]
            x = torch.cat([states for states, _ in both], -1)
            last += [h for _, h in both]
        return x, (torch.stack(last),)


class GlobalAttention(nn.Module):
    """Let the decoder's state attend to all encoder states: a weighted mean of them is its context."""

    def __init__(self, d_model: int, score: str):
        super().__init__()
        additive = score == "additive"
        self.query, self.key = (
            nn.Linear(d_model, d_model, bias=False) if additive else nn.Identity() for _ in range(2)
        )
        self.scale = 1.0 if additive else math.sqrt(d_model)  # the plain dot product: undo the kernel's division
        self.kernel: Kernel = fused_attention
        if additive:
            self.score = Additive(1, d_model)
            self.kernel = self.score.forward

    def forward(self, states: Tensor, keys: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return the context (B, T, M) of each of the decoder's states (B, T, M).

        keys, memory (B, S, M): of the encoder; mask (B, 1, 1, S).
        """
        query = self.query(states)[:, None] * self.scale
        return self.kernel(query, keys[:, None], memory[:, None], mask, 0.0)[:, 0]


@dataclass
class State:
    """All that decoding one more token needs; row i belongs to hypothesis i."""

    memory: Tensor  # B S M, the encoder's states
    keys: Tensor  # B S M
    mask: Tensor  # B 1 1 S
    hidden: Hidden  # of the decoder

    def select(self, rows: Tensor) -> None:
        """Keep the hypotheses `rows` (n,), in that order, in place; one may be chosen several times or not at all."""
        self.memory, self.keys, self.mask = self.memory[rows], self.keys[rows], self.mask[rows]
        self.hidden = tuple(part[:, rows] for part in self.hidden)


class Recurrent(nn.Module):
    """A recurrent encoder and decoder from token ids to logits, with the arguments of `Transformer`."""

    def __init__(self, config: RecurrentConfig, vocabulary: int, target_vocabulary: int | None = None, pad: int = 0):
        super().__init__()
        self.config, self.pad, d_model = config, pad, config.d_model
        self.source_embedding, self.target_embedding, self.output = word_matrices(
            vocabulary, target_vocabulary, d_model, config.share, pad
        )
        self.encoder = Recurrence(config, directions=2 if config.bidirectional else 1)
        self.decoder = Recurrence(config, directions=1)
        self.attention = None if config.attention == "none" else GlobalAttention(d_model, config.attention)
        self.combine = nn.Linear(d_model if self.attention is None else 2 * d_model, d_model)
        self.dropout = Dropout(config.dropout)

    def extra_repr(self) -> str:
        """Return what `print` shows of the model above its modules: its settings."""
        return str(self.config)

    def embed(self, tokens: Tensor, words: nn.Embedding) -> Tensor:
        """Return the vectors (B, T, M) of the ids `tokens` (B, T) by the embedding `words`, scaled, after dropout."""
        return self.dropout(words(tokens) * math.sqrt(self.config.d_model))

    def start(self, source: Tensor) -> State:
        """Encode the source ids (B, S); return the state before the first target token: the encoder's last one."""
        real = source != self.pad
        x = self.embed(source, self.source_embedding)
        memory, hidden = self.encoder(x, real, self.encoder.zero_state(x))
        directions = self.encoder.directions
        # L*D B M/D -> L B M: both directions of a layer side by side
        hidden = tuple(part.unflatten(0, (-1, directions)).transpose(1, 2).flatten(2) for part in hidden)
        keys = memory if self.attention is None else self.attention.key(memory)
        return State(memory, keys, padding_mask(source, self.pad), hidden)

    def step(self, tokens: Tensor, state: State, real: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V) after each token (B, T), and put the tokens into the state.

        With `real` (B, T), bool, return the logits of the real tokens alone, in order: (N, V).
        """
        logits = self.output(self.vectors(tokens, state, real))
        return logits if real is not None else logits.unflatten(0, tokens.shape)

    def vectors(self, tokens: Tensor, state: State, real: Tensor | None = None) -> Tensor:
        """Return what `step` multiplies with the output matrix: vectors (N, M) of the real tokens.

        The tokens (B, T) are then part of `state`. real (B, T), bool: which are not padding; None for all.
        """
        states, state.hidden = self.decoder(self.embed(tokens, self.target_embedding), None, state.hidden)
        if self.attention is not None:
            context = self.attention(states, state.keys, state.memory, state.mask)
            states = torch.cat([states, context], -1)
        packing = Packing.full(tokens) if real is None else Packing(real)
        return self.dropout(self.combine(packing.pack(states)).tanh())[: packing.tokens]

    def forward(self, source: Tensor, target: Tensor, real: Tensor | None = None) -> Tensor:
        """Return logits (B, T, V), or as `step` does, for source (B, S) and target (B, T), which begins with BOS."""
        return self.step(target, self.start(source), real)
