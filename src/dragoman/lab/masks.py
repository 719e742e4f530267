"""Masks: what they look like, why they act before the softmax, and which rows and columns they need.

Shapes: B sentences, T queries or target words, S keys or source words, M d_model.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.model.attention import causal_mask, decoder_mask, fused, masked_softmax, padding_mask
from dragoman.model.packing import Packing
from dragoman.model.transformer import EncoderLayer

PAD = 0
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 0, 0, 0]])
TARGET = torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0]])  # note 001
SCORES = ((2.0, 1.0, 0.0), (-2.0, -1.0, 0.0))  # the last key is padding, whatever its score
TINY_FACTOR = 1e-9  # note 004

PLAIN, OURS = "softmax as note 001 writes it", "the model's kernel"
INTEGERS, INVERTED = "integers, 1 = may attend", "the keep-mask where True means blocked (wrong)"


def multiplied(scores: Tensor, mask: Tensor) -> Tensor:
    """What note 004 says: the scores of padding times 1e-9, then the softmax."""
    return torch.where(mask, scores, scores * TINY_FACTOR).softmax(-1)


def pictures() -> dict[str, Tensor]:
    """(T, S) each, for five source words and four target words, padded to eight; cross: for three target words."""
    padding = padding_mask(SOURCE, PAD)[0, 0]
    return {
        "padding (encoder)": padding.expand(8, 8),
        "look-ahead": causal_mask(8),
        "decoder: both": decoder_mask(TARGET, PAD)[0, 0],
        "cross: source padding": padding.expand(3, 8),
    }


# What reaches whom.


def influence(mask: Tensor, size: int = 8) -> Tensor:
    """How much output i changes with input j as a key and a value under the mask (T, S), as a norm: (T, S)."""
    random = torch.Generator().manual_seed(0)
    query, seen = (torch.randn(rows, size, generator=random, dtype=torch.float64) for rows in mask.shape)

    def attend(seen: Tensor) -> Tensor:
        return fused(query, seen, seen, mask)

    derivative = torch.autograd.functional.jacobian(attend, seen)  # T M S M
    assert isinstance(derivative, Tensor)
    return derivative.square().sum((1, 3)).sqrt()


def unmoved(masked: bool) -> float:
    """How much the outputs of real words change when the vectors in the padding are replaced by others."""
    random = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, SOURCE.size(1), 8, generator=random, dtype=torch.float64)
    real = (SOURCE != PAD)[0]
    mask = padding_mask(SOURCE, PAD)[0, 0] if masked else None
    replaced = torch.where(real[:, None], x, other)
    return float((fused(x, x, x, mask) - fused(replaced, replaced, replaced, mask))[real].abs().max())


# Columns alone, or rows and columns.


@dataclass(frozen=True)
class Training:
    """One step of a small encoder that predicts a label for each word; labels of padding are ignored."""

    vectors: Tensor  # of the real words, N M
    loss: float
    gradients: list[Tensor]

    def gap(self, other: "Training") -> tuple[float, float, float]:
        """Largest differences: vectors, loss, gradients."""
        pairs = zip(self.gradients, other.gradients, strict=True)
        return (
            float((self.vectors - other.vectors).abs().max()),
            abs(self.loss - other.loss),
            max(float((a - b).abs().max()) for a, b in pairs),
        )


def training(rows_too: bool, seed: int, ignore: bool = True) -> Training:
    """rows_too: the queries of padding may look nowhere either. The padding goes through all layers, unpacked."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        d_model=16, attention=AttentionConfig(heads=2), feed_forward=FeedForwardConfig(d_ff=32), dropout=0.0
    )
    model = nn.ModuleDict(
        {
            "words": nn.Embedding(12, 16),
            "first": EncoderLayer(config),
            "second": EncoderLayer(config),
            "output": nn.Linear(16, 12),
        }
    ).double()
    ids = torch.cat([SOURCE, TARGET])
    real = ids != PAD
    mask = padding_mask(ids, PAD)
    if rows_too:
        mask = mask & real[:, None, :, None]
    rectangle = Packing.full(ids)
    x = rectangle.pack(model["words"](ids))
    for layer in (model["first"], model["second"]):
        x = layer(x, rectangle, mask, lambda y: y)
    labels = torch.where(real, (ids * 5) % 12, PAD).flatten()
    loss = F.cross_entropy(model["output"](x), labels, ignore_index=PAD if ignore else -100)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return Training(x.detach()[real.flatten()], float(loss.detach()), gradients)


# Rows without any key.


def nowhere() -> dict[str, bool]:
    """For a query that may look nowhere: are output and gradients finite?"""
    mask = decoder_mask(torch.tensor([[0, 0, 5, 6]]), PAD)[0, 0]  # padding on the left

    def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = query @ key.T / math.sqrt(query.size(-1))
        return scores.masked_fill(~mask, -math.inf).softmax(-1) @ value

    found = {}
    for name, kernel in ((PLAIN, plain), (OURS, fused)):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
        output = kernel(x, x, x, mask)
        output.sum().backward()
        assert x.grad is not None
        found[name] = bool(output.isfinite().all() and x.grad.isfinite().all())
    return found


# One rule for masks.


def rules() -> dict[str, float]:
    """Forms of one padding mask, and how far the outputs are from those of the bool mask, True = may attend."""
    x = torch.randn(1, 8, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = padding_mask(SOURCE, PAD)[:, 0]  # B 1 S
    expected = fused(x, x, x, mask)
    other = nn.MultiheadAttention(16, 1, bias=False, batch_first=True).double()
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.eye(16).repeat(3, 1))
        other.out_proj.weight.copy_(torch.eye(16))
    with torch.no_grad():
        found = {
            INTEGERS: fused(x, x, x, mask.int()),
            "bool, True = may attend, PyTorch's scaled_dot_product_attention": F.scaled_dot_product_attention(
                x, x, x, mask
            ),
            "bool, True = may NOT attend, nn.MultiheadAttention": other(x, x, x, key_padding_mask=~mask[:, 0])[0],
            INVERTED: fused(x, x, x, ~mask),
        }
    return {name: float((output - expected).abs().max()) for name, output in found.items()}


def run(effort: Effort) -> Findings:
    shown = pictures()
    seeds = [1000 * seed + draw for seed in effort.seeds for draw in range(1 + effort.of(20))]
    gaps = [training(False, seed).gap(training(True, seed)) for seed in seeds]
    worst = [max(values) for values in zip(*gaps, strict=True)]
    unlike = min(training(False, s, ignore=False).gap(training(True, s, ignore=False))[1] for s in seeds)
    by_rule, finite = rules(), nowhere()
    leak = [(scores, multiplied(*of(scores)), masked_softmax(*of(scores))) for scores in SCORES]
    ahead = influence(causal_mask(8))
    return Findings(
        "A source of 5 words and a target of 4, both filled up to 8 places; True = may attend. Rows and columns: two "
        f"encoder layers with a label for each word, {len(seeds)} draws of weights, 64-bit numbers.",
        (
            judge_multiplying([float(weights[-1]) for _, weights, _ in leak], [float(w[-1]) for _, _, w in leak]),
            judge_padding(unmoved(masked=True), unmoved(masked=False)),
            judge_future(ahead),
            judge_columns(worst, unlike),
            judge_nowhere(finite),
            judge_integers(by_rule),
        ),
        (
            Table(
                "Weights of three keys, the last one padding",
                ("scores", "form", "1", "2", "padding"),
                tuple(
                    (str(scores), form, *weights.tolist())
                    for scores, wrong, right in leak
                    for form, weights in (("padding times 1e-9", wrong), ("padding minus infinity", right))
                ),
            ),
            Table(
                "Masking columns, or rows and columns: largest difference over the draws",
                ("vectors of real words", "loss", "gradients", "loss where labels of padding count (at least)"),
                ((*worst, unlike),),
            ),
            Table("A query that may look nowhere", ("softmax", "finite"), tuple(finite.items())),
            Table("Forms of one mask", ("form", "largest difference"), tuple(by_rule.items())),
        ),
        (
            Figure(
                "masks",
                "The four masks, one row for each query and one column for each key: dark and 1 = may attend. The "
                "mask of the decoder is that of note 001 for the ids 1 2 3 4 0 0 0 0.",
                partial(draw_masks, shown=shown),
                (10.0, 3.2),
            ),
            Figure(
                "who-reaches-whom",
                "How much the output of a query changes with each key and its value (norm of the derivative), measured "
                "under the four masks: where a mask is 0 it is exactly zero (hatched).",
                partial(draw_influence, shown=shown),
                (11.0, 3.2),
            ),
            Figure(
                "leak-of-1e-9",
                "The weight of one padded key beside two real ones whose scores differ by 1, by the larger score of "
                "the two: multiplied by 1e-9 its score is 0 whatever it was, and 0 is much where the others are "
                "negative.",
                draw_leak,
                (6.0, 3.4),
            ),
        ),
    )


def of(scores: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Scores as a tensor, and the mask of the last one."""
    return torch.tensor(scores, dtype=torch.float64), torch.tensor([True, True, False])


# What follows from the numbers.


def judge_multiplying(wrong: Sequence[float], right: Sequence[float]) -> Verdict:
    """The weights of padding, by example. The claim is note 004's: multiplied by 1e-9 a score does not matter."""
    seen = max(wrong) < 0.001
    return Verdict(
        seen,
        f"Multiplied by 1e-9, padding {'gets no weight' if seen else 'still gets weight'}, "
        f"{' and '.join(f'{w:.4f}' for w in wrong)} in the two examples; with minus infinity added before the softmax "
        f"{' and '.join(f'{w:g}' for w in right)}.",
    )


def judge_padding(masked: float, unmasked: float) -> Verdict:
    seen = masked == 0 < unmasked
    return Verdict(
        seen,
        f"Other vectors in the padding change the outputs of real words by {masked:g} with the mask and by "
        f"{unmasked:.2g} without: {'only the mask keeps it out' if seen else 'the mask is not what keeps it out'}.",
    )


def judge_future(influence: Tensor) -> Verdict:
    """influence (S, S) of inputs (columns) on outputs (rows) under the look-ahead mask."""
    ahead, behind = float(influence.triu(1).max()), float(influence[influence.tril() > 0].min())
    seen = ahead == 0
    return Verdict(
        seen,
        f"Under the look-ahead mask the derivative of an output by a later word is {'exactly' if seen else 'up to'} "
        f"{ahead:g}, and by itself or an earlier one at least {behind:.2g}.",
    )


def judge_columns(worst: Sequence[float], counted: float) -> Verdict:
    seen = max(worst) < 1e-10 < counted
    return Verdict(
        seen,
        "Masking columns alone and ignoring the labels of padding "
        f"{'gives' if seen else 'does not give'} the same vectors of real words, loss and gradients as masking rows, "
        f"too (off by at most {max(worst):.1e}); were those labels counted, the losses would differ by at least "
        f"{counted:.2g}.",
    )


def judge_nowhere(finite: Mapping[str, bool]) -> Verdict:
    seen = finite[OURS] and not finite[PLAIN]
    return Verdict(
        seen,
        "For a query that may look nowhere (padding on the left, rows that are masked, too) the plain softmax gives "
        f"{'numbers' if finite[PLAIN] else 'NaN'}, the model's kernel "
        f"{'finite outputs and gradients' if finite[OURS] else 'NaN, too'}.",
    )


def judge_integers(by_rule: Mapping[str, float]) -> Verdict:
    """Note 001 says that masks must be integers."""
    same = by_rule[INTEGERS] == 0
    return Verdict(
        not same,
        f"Integer and bool masks {'give exactly the same' if same else 'do not give the same'}: it is "
        f"{'not needed' if same else 'needed'} to turn masks into integers, as note 001 does. What must be known is "
        "whether True means may or may not attend: PyTorch uses both.",
    )


# Figures.


def draw_masks(figure: Any, shown: Mapping[str, Tensor]) -> None:
    for axes, (name, mask) in zip(figure.subplots(1, len(shown)), shown.items(), strict=True):
        axes.imshow(mask.int().numpy(), cmap="Blues", vmin=0, vmax=1.3)
        for y, row in enumerate(mask.int().tolist()):
            for x, may in enumerate(row):
                axes.text(x, y, may, ha="center", va="center", fontsize=7, color="white" if may else "black")
        labelled(axes, name, *mask.shape)


def draw_influence(figure: Any, shown: Mapping[str, Tensor]) -> None:
    found = {name: influence(mask) for name, mask in shown.items()}
    most = max(float(reach.max()) for reach in found.values())
    grid = figure.subplots(1, len(found))
    for axes, (name, reach) in zip(grid, found.items(), strict=True):
        image = axes.imshow(reach.numpy(), cmap="Blues", vmin=0, vmax=most)
        for y, x in (reach == 0).nonzero().tolist():
            axes.fill([x - 0.5, x + 0.5, x + 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5], fill=False,
                      hatch="////", edgecolor="0.6", linewidth=0)  # fmt: skip
        labelled(axes, name, *reach.shape)
    figure.colorbar(image, ax=grid, shrink=0.8, label="norm of the derivative")


def labelled(axes: Any, name: str, queries: int, keys: int) -> None:
    axes.set_title(name, fontsize=9)
    axes.set(xlabel="key", ylabel="query")
    axes.set_xticks(range(keys), range(1, keys + 1), fontsize=7)
    axes.set_yticks(range(queries), range(1, queries + 1), fontsize=7)


def draw_leak(figure: Any) -> None:
    axes, larger = figure.subplots(), torch.linspace(-6, 6, 25)
    scores, mask = torch.stack([larger, larger - 1, torch.zeros(25)], dim=-1), torch.tensor([True, True, False])
    for number, (name, weigh) in enumerate({"score times 1e-9": multiplied, "minus infinity": masked_softmax}.items()):
        axes.plot(larger, weigh(scores, mask)[:, -1], label=name, markevery=4, **style(number))
    axes.set(xlabel="larger score of the two real keys", ylabel="weight of the padding", ylim=(-0.05, 1.05))
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


EXPERIMENT = Experiment(
    title="Masks, and why 1e-9 leaks",
    source="notes 001, 002, 004; section 3.2.3",
    claim="Padding and later words are hidden by a mask: note 001 sets their scores to minus infinity before the "
    "softmax, note 004 multiplies them by 1e-9. Masking columns is enough where the labels of padding are ignored. "
    "Masks must be integers (note 001).",
    run=run,
)
