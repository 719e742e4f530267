"""Masks: what they look like, why they act before the softmax, and which rows and columns they need."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dragoman.model.attention import causal_mask, decoder_mask, fused_attention, masked_softmax, padding_mask
from dragoman.model.packing import Packing
from dragoman.model.transformer import EncoderLayer, TokenContext
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import small

PAD = 0
SOURCE = torch.tensor([[5, 6, 7, 8, 9, 0, 0, 0]])
TARGET = torch.tensor([[1, 2, 3, 4, 0, 0, 0, 0]])
SCORES = ((2.0, 1.0, 0.0), (-2.0, -1.0, 0.0))  # the last key is padding, whatever its score
TINY_FACTOR = 1e-9

PLAIN, OURS = "plain softmax", "the model's kernel"
INTEGERS, INVERTED = "integers, 1 = may attend", "the keep-mask where True means blocked (wrong)"


def multiplied_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax of scores (..., S) after those of masked keys (False in `mask`) were multiplied by 1e-9, as is
    sometimes taught.
    """
    return torch.where(mask, scores, scores * TINY_FACTOR).softmax(-1)


def example_masks() -> dict[str, Tensor]:
    """Return four masks (T, S) by name, True = may attend, for a source of five words and a target of four, padded to
    eight; "cross" has three queries.
    """
    padding = padding_mask(SOURCE, PAD)[0, 0]
    return {
        "padding (encoder)": padding.expand(8, 8),
        "look-ahead": causal_mask(8),
        "decoder: both": decoder_mask(TARGET, PAD)[0, 0],
        "cross: source padding": padding.expand(3, 8),
    }


def influence_norms(mask: Tensor, size: int = 8) -> Tensor:
    """Return (T, S): the norm of the derivative of output i by input j, which is key and value at once, under the mask
    (T, S), True = may attend. size: of the random vectors.
    """
    random = torch.Generator().manual_seed(0)
    query, keys = (torch.randn(rows, size, generator=random, dtype=torch.float64) for rows in mask.shape)

    derivative = torch.autograd.functional.jacobian(
        lambda seen: fused_attention(query, seen, seen, mask), keys
    )  # T M S M
    assert isinstance(derivative, Tensor)
    return derivative.square().sum((1, 3)).sqrt()


def change_by_padding(masked: bool) -> float:
    """Return the largest change of the attention outputs of real words when the random vectors in the padding are
    replaced by others, with the padding mask or without it.
    """
    random = torch.Generator().manual_seed(0)
    x, other = torch.randn(2, SOURCE.size(1), 8, generator=random, dtype=torch.float64)
    real = (SOURCE != PAD)[0]
    mask = padding_mask(SOURCE, PAD)[0, 0] if masked else None
    replaced = torch.where(real[:, None], x, other)
    return float(
        (fused_attention(x, x, x, mask) - fused_attention(replaced, replaced, replaced, mask))[real].abs().max()
    )


@dataclass(frozen=True)
class Training:
    """Measure one forward and backward pass of a small encoder that predicts a label for each word."""

    vectors: Tensor  # of the real words, N M
    loss: float
    gradients: list[Tensor]

    def gap(self, other: "Training") -> tuple[float, float, float]:
        """Return the largest absolute differences of two passes: of vectors, loss and gradients."""
        pairs = zip(self.gradients, other.gradients, strict=True)
        return (
            float((self.vectors - other.vectors).abs().max()),
            abs(self.loss - other.loss),
            max(float((a - b).abs().max()) for a, b in pairs),
        )


def train_padded(rows_too: bool, seed: int, ignore: bool = True) -> Training:
    """Run a forward and backward pass of two fresh encoder layers on sentences with padding; nothing is packed, and no
    weight is updated. rows_too: mask the queries of padding, too; ignore: leave the labels of padding out of the loss.
    """
    torch.manual_seed(seed)
    config = small(16, heads=2)
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
        x = layer(x, TokenContext(rectangle, mask))
    labels = torch.where(real, (ids * 5) % 12, PAD).flatten()
    loss = F.cross_entropy(model["output"](x), labels, ignore_index=PAD if ignore else -100)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return Training(x.detach()[real.flatten()], float(loss.detach()), gradients)


def finite_without_keys() -> dict[str, bool]:
    """Return, by the name of the softmax, whether outputs and gradients are all finite when two of four queries may
    attend to no key.
    """
    mask = decoder_mask(torch.tensor([[0, 0, 5, 6]]), PAD)[0, 0]  # padding on the left

    def plain(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        scores = query @ key.T / math.sqrt(query.size(-1))
        return scores.masked_fill(~mask, -math.inf).softmax(-1) @ value

    finite = {}
    for name, kernel in ((PLAIN, plain), (OURS, fused_attention)):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
        output = kernel(x, x, x, mask)
        output.sum().backward()
        assert x.grad is not None
        finite[name] = bool(output.isfinite().all() and x.grad.isfinite().all())
    return finite


def compare_mask_forms() -> dict[str, float]:
    """Return, by the form of the padding mask, the largest absolute difference of the outputs from those with a bool
    mask, True = may attend.
    """
    x = torch.randn(1, 8, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask = padding_mask(SOURCE, PAD)[:, 0]  # B 1 S
    expected = fused_attention(x, x, x, mask)
    other = nn.MultiheadAttention(16, 1, bias=False, batch_first=True).double()
    with torch.no_grad():
        other.in_proj_weight.copy_(torch.eye(16).repeat(3, 1))
        other.out_proj.weight.copy_(torch.eye(16))
    with torch.no_grad():
        outputs = {
            INTEGERS: fused_attention(x, x, x, mask.int()),
            "bool, True = may attend, PyTorch's scaled_dot_product_attention": F.scaled_dot_product_attention(
                x, x, x, mask
            ),
            "bool, True = may NOT attend, nn.MultiheadAttention": other(x, x, x, key_padding_mask=~mask[:, 0])[0],
            INVERTED: fused_attention(x, x, x, ~mask),
        }
    return {name: float((output - expected).abs().max()) for name, output in outputs.items()}


def masked_last(scores: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return three scores as a tensor, and a mask that hides the last one."""
    return torch.tensor(scores, dtype=torch.float64), torch.tensor([True, True, False])


def claims(
    leaks: Sequence[float],
    unmoved: tuple[float, float],
    reach: Tensor,  # (S, S): of inputs (columns) on outputs (rows) under look-ahead
    worst: Sequence[float],
    counted: float,
    finite: dict[str, bool],
    integers: float,
) -> Claims:
    """Return each claim and whether it holds. leaks: weights of padding under a factor of 1e-9; unmoved: change by
    padding with and without the mask; worst: largest differences of vectors, loss and gradients with and without masked
    rows; counted: smallest difference of losses that count padding; integers: difference with an integer mask.
    """
    ahead, behind = float(reach.triu(1).max()), float(reach[reach.tril() > 0].min())
    masked, unmasked = unmoved
    return {
        f"If its scores are multiplied by 1e-9, padding [gets no weight|still gets weight], {leaks[0]:.4f} and "
        f"{leaks[1]:.4f} in the two examples; if minus infinity is added before the softmax, it gets "
        "none.": max(leaks) < 0.001,
        f"Changing the vectors of the padding changes the outputs of real words by {masked:g} with the mask and by "
        f"{unmasked:.2g} without it: [only the mask keeps it out|the mask is not what keeps it "
        "out].": masked == 0 < unmasked,
        "Under the look-ahead mask, the derivative of an output with respect to a later word is [exactly|up to] "
        f"{ahead:g}, and with respect to its own or an earlier word at least {behind:.2g}.": ahead == 0,
        "Masking columns alone and ignoring the labels of padding [gives|does not give] the same vectors of real "
        f"words, loss and gradients as masking rows as well (they differ by at most {max(worst):.1e}); if those labels "
        f"counted, the losses would differ by at least {counted:.2g}.": max(worst) < 1e-10 < counted,
        "For a query that may attend to nothing (padding on the left, or masked rows) [the plain softmax gives NaN, "
        "the model's kernel finite outputs and gradients|the plain softmax and the model's kernel do not differ as "
        "claimed].": finite[OURS] and not finite[PLAIN],
        "Integer and bool masks [do not give|give] exactly the same result: masks [must|need not] be integers. What "
        'matters is whether True means "may attend" or "may not attend": PyTorch uses both.': integers != 0,
    }


@experiment(
    "Masks, and why 1e-9 leaks",
    "section 3.2.3",
    "Padding and later words are hidden by a mask that sets their scores to minus infinity before the softmax; some "
    "multiply the scores by 1e-9 instead. Masking columns is enough if the labels of padding are ignored. It is "
    "sometimes said that masks must be integers.",
)
def run(effort: Effort) -> Findings:
    """Compare ways to mask on small examples, and draw what each mask lets through."""
    shown = example_masks()
    seeds = [1000 * seed + draw for seed in effort.seeds for draw in range(1 + effort.scale(20))]
    gaps = [train_padded(False, seed).gap(train_padded(True, seed)) for seed in seeds]
    worst = [max(values) for values in zip(*gaps, strict=True)]
    counted = min(train_padded(False, s, ignore=False).gap(train_padded(True, s, ignore=False))[1] for s in seeds)
    by_rule, finite = compare_mask_forms(), finite_without_keys()
    leaks = [
        (scores, multiplied_softmax(*masked_last(scores)), masked_softmax(*masked_last(scores))) for scores in SCORES
    ]
    padding = [float(wrong[-1]) for _, wrong, _ in leaks]
    unmoved_by = change_by_padding(masked=True), change_by_padding(masked=False)
    reached = {name: influence_norms(mask) for name, mask in shown.items()}
    most = max(float(reach.max()) for reach in reached.values())
    return Findings(
        "A source of 5 words and a target of 4, both padded to 8; True = may attend. The comparison of rows and "
        f"columns uses two encoder layers with a label for each word, {len(seeds)} draws of weights, 64-bit numbers.",
        claims(padding, unmoved_by, influence_norms(causal_mask(8)), worst, counted, finite, by_rule[INTEGERS]),
        {
            "Weights of three keys, the last one padding": Table(
                "scores | form | 1 | 2 | padding",
                [
                    (str(scores), form, *weights.tolist())
                    for scores, wrong, right in leaks
                    for form, weights in (("padding times 1e-9", wrong), ("padding minus infinity", right))
                ],
            ),
            "Masking columns, or rows and columns: largest difference over the draws": Table(
                "vectors of real words | loss | gradients | loss where labels of padding count (at least)",
                [(*worst, counted)],
            ),
            "A query that may look nowhere": Table("softmax | finite", [*finite.items()]),
            "Forms of one mask": Table("form | largest difference", [*by_rule.items()]),
        },
        {
            "masks": Figure(
                "The four masks; rows are queries, columns are keys; 1 = may attend. Decoder: 1 2 3 4 0 0 0 0.",
                heat_maps(*(heat_map(name, mask.int(), "d", 1.3) for name, mask in shown.items())),
                (10.0, 3.2),
            ),
            "who-reaches-whom": Figure(
                "Derivative of each query's output with respect to each key and its value, under the masks. Grey: "
                "exactly zero.",
                heat_maps(
                    *(heat_map(name, reach.where(reach > 0, math.nan), "", most) for name, reach in reached.items()),
                    colorbar="norm of the derivative",
                ),
                (11.0, 3.2),
            ),
            "leak-of-1e-9": Figure(
                "The weight of a padded key next to two real ones whose scores differ by 1, by the larger of these "
                "scores.",
                lines(leak_panel()),
            ),
        },
    )


def heat_map(name: str, values: Tensor, numbers: str, most: float) -> HeatMap:
    """Return the heat map of a value for each query (row) and key (column), both counted from 1. numbers: their format
    in the cells; most: the darkest value.
    """
    queries, keys = (range(1, size + 1) for size in values.shape)
    return HeatMap(values, name, queries, keys, numbers, "key", "query", most)


def leak_panel() -> Panel:
    """Return the panel of the weight of a padded key of score 0 beside two real ones, by the larger score of these.

    The masked score is multiplied by 1e-9 in one curve, and minus infinity is added to it in the other.
    """
    larger = torch.linspace(-6, 6, 25)
    scores, mask = torch.stack([larger, larger - 1, torch.zeros(25)], dim=-1), torch.tensor([True, True, False])
    ways = {"score times 1e-9": multiplied_softmax, "minus infinity": masked_softmax}
    curves = {name: (larger, weigh(scores, mask)[:, -1]) for name, weigh in ways.items()}
    return Panel(curves, "larger score of the two real keys", "weight of the padding", ylim=(-0.05, 1.05))
