"""How fast one training step is: forward, loss, backward, clipping and Adam, beside other implementations."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.batches import Batch
from dragoman.benchmarks import Contender, compete, machine
from dragoman.config import TransformerConfig
from dragoman.model import build
from dragoman.model.positions import sinusoids
from dragoman.presets import SMALL
from dragoman.training.loop import update_weights
from dragoman.training.optimizer import adam

VOCABULARY, SENTENCES, LENGTH = 8000, 64, 30
SMOOTHING, RATE = 0.1, 1e-4
MODEL = replace(SMALL.model, positions="sinusoidal", norm_first=False)  # as MarianMT and torch.nn.Transformer are


@dataclass(frozen=True)
class Row:
    spread: int  # lengths are drawn evenly from LENGTH - spread to LENGTH + spread
    contenders: list[Contender]  # ours first


def benchmark(threads: int, rounds: int) -> str:
    """A table in Markdown: target tokens per second, and how many times the others' rate ours is."""
    torch.set_num_threads(threads)
    rows = []
    for spread in (0, 10, 20):
        batch = random_batch(spread)
        contenders = [Contender("dragoman", ours(batch)), Contender("torch.nn.Transformer", torch_module(batch))]
        with contextlib.suppress(ImportError):
            contenders.append(Contender("transformers MarianMT", marian(batch)))
        compete(contenders, rounds)
        rows.append(Row(spread, contenders))
    return table(rows)


def table(rows: list[Row]) -> str:
    names = [contender.name for contender in rows[0].contenders]
    lines = [
        f"Training step, d_model 256, 3+3 layers, d_ff 1024, {VOCABULARY:,} words, {SENTENCES} sentences per batch; "
        f"target tokens per second, median of {len(rows[0].contenders[0].rates)} rounds in turn.",
        machine() + ".",
        "",
        "| tokens per sentence | " + " | ".join(names) + " | " + " | ".join(f"ours / {n}" for n in names[1:]) + " |",
        "|---" * (2 * len(names)) + "|",
    ]
    for row in rows:
        ours, *others = row.contenders
        rates = [f"{c.median:,.0f} ± {100 * c.spread:.0f} %" for c in row.contenders]
        ratios = [f"{ours.median / other.median:.2f}" for other in others]
        lengths = f"{LENGTH - row.spread} to {LENGTH + row.spread}" if row.spread else f"{LENGTH}"
        lines.append(f"| {lengths} | " + " | ".join(rates + ratios) + " |")
    if len(names) < 3:
        lines.append("\ntransformers is not installed: its MarianMT is left out.")
    return "\n".join(lines)


def random_batch(spread: int) -> Batch:
    random = torch.Generator().manual_seed(1)
    lengths = torch.randint(LENGTH - spread - 1, LENGTH + spread, (SENTENCES, 2), generator=random).tolist()
    sources, targets = (
        [torch.randint(3, VOCABULARY, (pair[side],), generator=random).tolist() for pair in lengths] for side in (0, 1)
    )
    return Batch.of(sources, targets)


def ours(batch: Batch) -> Callable[[], int]:
    model = build(MODEL, VOCABULARY)
    optimizer = adam(model)
    return lambda: update_weights(model, optimizer, batch, RATE, SMALL.training)[1]


def theirs(model: nn.Module, logits: Callable[[], Tensor], batch: Batch) -> Callable[[], int]:
    """A step as one writes it with PyTorch's own parts: padded logits, F.cross_entropy, fused Adam."""
    optimizer = torch.optim.Adam(model.parameters(), RATE, betas=(0.9, 0.98), eps=1e-9, fused=True)
    tokens = int(batch.real.sum())
    model.train()

    def step() -> int:
        found = logits().flatten(0, 1)
        F.cross_entropy(found, batch.labels.flatten(), ignore_index=0, label_smoothing=SMOOTHING).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return tokens

    return step


def torch_module(batch: Batch) -> Callable[[], int]:
    model = TorchTransformer(MODEL)
    return theirs(model, lambda: model(batch.source, batch.target), batch)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer with embeddings, positions and a tied output around it."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, config.d_model, padding_idx=0)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.positions = nn.Buffer(sinusoids(256, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.attention.heads,
            config.encoder_layers,
            config.decoder_layers,
            config.feed_forward.d_ff,
            config.dropout,
            batch_first=True,
        )
        for module in self.transformer.modules():  # dropout where the paper has it, as in ours, and nowhere else
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: tokens.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == 0
        x = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=nn.Transformer.generate_square_subsequent_mask(target.size(1)),
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return x @ self.embedding.weight.T


def marian(batch: Batch) -> Callable[[], int]:
    """Hugging Face MarianMTModel of the same shape. Raises ImportError where transformers is not installed."""
    from transformers import MarianConfig, MarianMTModel

    config = MODEL
    layers, heads, d_ff = config.encoder_layers, config.attention.heads, config.feed_forward.d_ff
    model = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=config.d_model,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_ffn_dim=d_ff,
            decoder_ffn_dim=d_ff,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            pad_token_id=0,
            eos_token_id=2,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
            activation_function="relu",
            max_position_embeddings=256,
            scale_embedding=True,
            dropout=config.dropout,
        )
    )
    mask = (batch.source != 0).long()
    return theirs(
        model,
        lambda: model(input_ids=batch.source, attention_mask=mask, decoder_input_ids=batch.target).logits,
        batch,
    )
