"""Layer norm and batch norm: padding, the size of the batch, and a Transformer that is trained with either.

Shapes: B sentences, L tokens each, N tokens, M d_model.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.drawing import losses_figure
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Learned, Pair, copying, judged, learn, summary
from dragoman.model.transformer import Transformer

LAYER, BATCH = "layer norm", "batch norm"
SENTENCES, TOKENS, SIZE = 4, 7, 512  # note 001: four sentences of size 512
PADDING = (0, 1, 2, 5, 10, 20, 50)
BATCHES = (64, 4)
STEPS = 800
PEAK, WARMUP = 5e-3, 20  # the learning rate, and the steps in which it is reached
TASK = copying(vocabulary=12, shortest=1, longest=6)
CONFIG = TransformerConfig(
    d_model=32,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=64),
    dropout=0.0,
)


def norm_of(kind: str, size: int) -> nn.Module:
    return nn.LayerNorm(size) if kind == LAYER else nn.BatchNorm1d(size)


def with_batch_norm(model: Transformer) -> Transformer:
    """The same model with a batch norm in the place of each layer norm.

    Our layers see the real tokens only (packing.py), so that padding cannot disturb its statistics here.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LayerNorm):
                module.add_module(name, nn.BatchNorm1d(model.config.d_model))
    return model


def make(kind: str, seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = Transformer(CONFIG, TASK.vocabulary)
    return with_batch_norm(model) if kind == BATCH else model


def vectors(sentences: int, tokens: int, seed: int) -> Tensor:
    """Random vectors (B, L, M) whose features have means of their own, as those of a network have."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(sentences, tokens, SIZE, generator=random) + torch.randn(SIZE, generator=random)


def normalised(x: Tensor, over: tuple[int, ...]) -> tuple[Tensor, int]:
    """x (B, L, M) with mean 0 and standard deviation 1 over some of its dimensions, and how many means that takes."""
    center = x.mean(over, keepdim=True)
    return (x - center) / (x.var(over, correction=0, keepdim=True) + nn.LayerNorm(1).eps).sqrt(), center.numel()


def statistics(x: Tensor) -> dict[str, tuple[int, float]]:
    """Numbers per token or per sentence: how many means, and the largest difference from PyTorch's layer norm."""
    expected = nn.LayerNorm(x.size(-1))(x).detach()
    found = {"token": normalised(x, (2,)), "sentence": normalised(x, (1, 2))}
    return {name: (count, float((y - expected).abs().max())) for name, (y, count) in found.items()}


@torch.no_grad()
def change_by_padding(kind: str, tokens: Tensor, padding: int) -> float:
    """How much outputs of the tokens (N, M) change when so many rows of zeros join the batch."""
    norm, size = norm_of(kind, tokens.size(1)), len(tokens)
    padded = torch.cat([tokens, torch.zeros(padding, tokens.size(1))])
    return float((norm(padded)[:size] - norm(tokens)).abs().max())


@torch.no_grad()
def change_by_batch(kind: str, sentences: Tensor) -> float:
    """How much the outputs of the first sentence differ between a batch of its own and the whole batch (B, L, M)."""
    norm = norm_of(kind, sentences.size(-1))
    alone, together = (norm(x.flatten(0, 1))[: sentences.size(1)] for x in (sentences[:1], sentences))
    return float((alone - together).abs().max())


@torch.no_grad()
def losses(model: Transformer, pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """Nats per token of the same pairs: in use; and with the statistics of training, all at once and one by one."""

    def loss(batch: Sequence[Pair]) -> float:
        return float(judged(model, batch)[0])

    model.eval()
    in_use = loss(pairs)
    model.train()
    one_by_one = np.average([loss([pair]) for pair in pairs], weights=[len(target) + 1 for _, target in pairs])
    return in_use, loss(pairs), float(one_by_one)


def judge_padding(changes: dict[str, float], padding: int) -> Verdict:
    seen = changes[LAYER] == 0 < changes[BATCH]
    return Verdict(
        seen,
        f"{padding} rows of padding change what a batch norm makes of the real tokens by up to {changes[BATCH]:.2f}, "
        f"and what a layer norm makes of them by "
        f"{'exactly 0' if changes[LAYER] == 0 else format(changes[LAYER], '.2g')}.",
    )


def judge_batch(changes: dict[str, float]) -> Verdict:
    seen = changes[LAYER] == 0 < changes[BATCH]
    return Verdict(
        seen,
        f"A sentence alone and among eight: batch norm gives outputs that differ by up to {changes[BATCH]:.2f}, layer "
        f"norm {'the same ones' if changes[LAYER] == 0 else f'ones that differ by {changes[LAYER]:.2g}'}.",
    )


def judge_statistics(found: dict[str, tuple[int, float]]) -> Verdict:
    """Of the note's claim: one mean and one standard deviation per sentence."""
    (by_token, token_gap), (by_sentence, sentence_gap) = found["token"], found["sentence"]
    seen = sentence_gap < 1e-4 < token_gap
    return Verdict(
        seen,
        f"For {SENTENCES} sentences of {TOKENS} tokens, layer norm uses one mean and one standard deviation per "
        f"{'sentence' if seen else 'token'}, {by_sentence if seen else by_token} of each: so computed, its output is "
        f"met to {token_gap:.1g} by token and to {sentence_gap:.1g} by sentence.",
    )


def judge_learning(reached: dict[tuple[str, int], float]) -> Verdict:
    """reached: accuracy by kind and pairs in a batch."""
    large, small = BATCHES
    seen = reached[LAYER, small] > reached[BATCH, small] + 0.02
    return Verdict(
        seen,
        f"Trained with {small} pairs at a time, layer norm reaches {reached[LAYER, small]:.1%} and batch norm "
        f"{reached[BATCH, small]:.1%} (with {large}: {reached[LAYER, large]:.1%} and {reached[BATCH, large]:.1%}): "
        f"{'small batches are' if seen else 'small batches are not'} where batch norm falls behind.",
    )


def judge_modes(by_kind: dict[str, tuple[float, float, float]]) -> Verdict:
    """by_kind: what `losses` found."""
    spread = {kind: max(found) - min(found) for kind, found in by_kind.items()}
    seen = spread[LAYER] < 1e-4 < 1e-2 < spread[BATCH]
    told = ", with ".join(f"{kind} {use:.4f}, {all_:.4f} and {one:.4f}" for kind, (use, all_, one) in by_kind.items())
    return Verdict(
        seen,
        f"The loss of the same pairs in use, in training all at once, and in training one by one is, with {told}: "
        f"batch norm {'depends' if seen else 'alone does not depend'} on the company a sentence is in.",
    )


def rate(step: int) -> float:
    return PEAK * min(1.0, step / WARMUP)


def draw_padding(figure: Any, changes: dict[str, list[float]]) -> None:
    axes = figure.subplots()
    for index, (kind, values) in enumerate(changes.items()):
        axes.plot(PADDING, values, label=kind, **style(index))
    axes.set_xlabel(f"rows of padding beside {SENTENCES * TOKENS} real tokens")
    axes.set_ylabel("largest change of a real token's numbers")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def draw_axes(figure: Any) -> None:
    """Which cells of a batch (tokens by features) share a mean."""
    for axes, (kind, across) in zip(figure.subplots(1, 2), ((LAYER, True), (BATCH, False)), strict=True):
        shares = torch.arange(6.0)[:, None].expand(6, 8) if across else torch.arange(8.0).expand(6, 8)
        axes.imshow(shares % 2, cmap="Blues", vmin=0, vmax=2, aspect="auto")
        axes.set_title(f"{kind}: one mean per {'token' if across else 'feature'}", fontsize=10)
        axes.set_xlabel("feature")
        axes.set_ylabel("token of the batch")
        axes.set_xticks([x - 0.5 for x in range(9)] if not across else [], [])
        axes.set_yticks([y - 0.5 for y in range(7)] if across else [], [])
        axes.grid(color="black", linewidth=1)
        axes.tick_params(length=0)


def run(effort: Effort) -> Findings:
    first = effort.seeds[0]
    x = vectors(SENTENCES, TOKENS, first)
    by_padding = {kind: [change_by_padding(kind, x.flatten(0, 1), rows) for rows in PADDING] for kind in (LAYER, BATCH)}
    by_batch = {kind: change_by_batch(kind, vectors(8, TOKENS, first)) for kind in (LAYER, BATCH)}
    counted = statistics(x)
    runs: dict[tuple[str, int], list[Learned]] = {(kind, size): [] for size in BATCHES for kind in (LAYER, BATCH)}
    by_company: dict[str, tuple[float, float, float]] = {}
    for (kind, size), each in runs.items():
        for seed in effort.seeds:
            model = make(kind, seed)
            each.append(learn(model, TASK, steps=effort.of(STEPS), seed=seed, rate=rate, batch=size))
            if size == BATCHES[0] and seed == first:
                by_company[kind] = losses(model, TASK.pairs(64, seed + 1))
    rows = {key: summary([learned.accuracy for learned in each]) for key, each in runs.items()}
    return Findings(
        setting=f"Norms of random vectors of {SIZE} numbers; and a Transformer ({CONFIG.encoder_layers} and "
        f"{CONFIG.decoder_layers} layer of d_model {CONFIG.d_model}, post-norm) that learns to copy 1 to 6 words in "
        f"{effort.of(STEPS)} steps, seeds {', '.join(map(str, effort.seeds))}. Its layers never see padding, so batch "
        "norm is spared that part of the harm there.",
        verdicts=(
            judge_padding({kind: values[PADDING.index(10)] for kind, values in by_padding.items()}, 10),
            judge_batch(by_batch),
            judge_statistics(counted),
            judge_modes(by_company),
            judge_learning({key: row[0] for key, row in rows.items()}),
        ),
        tables=(
            Table(
                f"Largest change of {SENTENCES * TOKENS} real tokens when padding joins the batch",
                ("rows of padding", LAYER, BATCH),
                tuple(zip(PADDING, by_padding[LAYER], by_padding[BATCH], strict=True)),
            ),
            Table(
                "A sentence alone and among eight",
                ("norm", "largest difference"),
                tuple(by_batch.items()),
            ),
            Table(
                f"{SENTENCES} sentences of {TOKENS} tokens: what a mean is taken of",
                ("of each", "means", "standard deviations", "largest difference from layer norm"),
                tuple((name, count, count, gap) for name, (count, gap) in counted.items()),
            ),
            Table(
                "The same 64 pairs and weights: loss (nats)",
                ("norm", "in use", "in training, all at once", "in training, one by one"),
                tuple((kind, *found) for kind, found in by_company.items()),
            ),
            Table(
                "Learning to copy",
                ("norm", "pairs in a batch", "accuracy", "lowest seed", "highest seed"),
                tuple((kind, size, *row) for (kind, size), row in rows.items()),
            ),
        ),
        figures=(
            Figure(
                "means",
                "Which numbers of a batch share a mean and a standard deviation: the rows of a layer norm, the columns "
                "of a batch norm.",
                draw_axes,
                (8.0, 3.2),
            ),
            Figure(
                "padding",
                "How far outputs of real tokens move when rows of zeros join the batch.",
                lambda figure: draw_padding(figure, by_padding),
                (6.5, 4.0),
            ),
            losses_figure({f"{kind}, {size} pairs a batch": each for (kind, size), each in runs.items()}),
        ),
    )


EXPERIMENT = Experiment(
    title="Layer norm and batch norm",
    source="notes 001 (Add & Norm) and 004 (Add & Norm); section 3.1",
    claim="Padding distorts the statistics of a batch norm, which depends on the size of the batch and differs between "
    "training and use; a layer norm has none of this. (Note 001 counts one mean and one standard deviation per "
    "sentence, note 004 one per row, that is per word.)",
    run=run,
)
