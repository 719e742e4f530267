"""Layer norm and batch norm: padding, the size of the batch, and a Transformer that is trained with either."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import HeatMap, Panel, heat_maps, lines, losses_figure
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Learned, Pair, copying, learn, loss_and_hits, mean_and_extremes, small, warm_up

LAYER, BATCH = "layer norm", "batch norm"
SENTENCES, TOKENS, SIZE = 4, 7, 512
PADDING = (0, 1, 2, 5, 10, 20, 50)
BATCHES = (64, 4, 1)
STEPS = 800
PEAK, WARMUP = 5e-3, 20  # the learning rate, and the steps in which it is reached
TASK = copying(vocabulary=12, shortest=1, longest=6)
CONFIG = small(32)


def make_norm(kind: str, size: int) -> nn.Module:
    """Return a fresh norm of this kind (LAYER or BATCH) for vectors of `size` numbers."""
    return nn.LayerNorm(size) if kind == LAYER else nn.BatchNorm1d(size)


def with_batch_norm(model: Transformer) -> Transformer:
    """Replace each layer norm by a batch norm, in place; return the model.

    Our layers see the real tokens only (packing.py), so that padding cannot disturb its statistics here.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.LayerNorm):
                module.add_module(name, nn.BatchNorm1d(model.config.d_model))
    return model


def make_model(kind: str, seed: int) -> Transformer:
    """Return a fresh Transformer with norms of this kind (LAYER or BATCH); the same seed draws the same weights."""
    torch.manual_seed(seed)
    model = Transformer(CONFIG, TASK.vocabulary)
    return with_batch_norm(model) if kind == BATCH else model


def random_vectors(sentences: int, tokens: int, seed: int) -> Tensor:
    """Return random vectors (sentences, tokens, SIZE) whose features have means of their own, as those of a network
    have.
    """
    random = torch.Generator().manual_seed(seed)
    return torch.randn(sentences, tokens, SIZE, generator=random) + torch.randn(SIZE, generator=random)


def normalise(x: Tensor, over: tuple[int, ...]) -> tuple[Tensor, int]:
    """Return x (B, L, M) with mean 0 and standard deviation 1 over the dimensions `over`, and how many means that
    takes.
    """
    center = x.mean(over, keepdim=True)
    return (x - center) / (x.var(over, correction=0, keepdim=True) + nn.LayerNorm(1).eps).sqrt(), center.numel()


def compare_normalisations(x: Tensor) -> dict[str, tuple[int, float]]:
    """Normalise x (B, L, M) per token and per sentence; return for each how many means that takes, and the largest
    absolute difference from PyTorch's layer norm.
    """
    expected = nn.LayerNorm(x.size(-1))(x).detach()
    ways = {"token": normalise(x, (2,)), "sentence": normalise(x, (1, 2))}
    return {name: (count, float((y - expected).abs().max())) for name, (y, count) in ways.items()}


@torch.no_grad()
def change_by_padding(kind: str, tokens: Tensor, padding: int) -> float:
    """Return the largest change of a norm's outputs of the tokens (N, M) when so many rows of zeros join the batch. The
    norm is in training mode, so that a batch norm uses the batch's statistics.
    """
    norm, size = make_norm(kind, tokens.size(1)), len(tokens)
    padded = torch.cat([tokens, torch.zeros(padding, tokens.size(1))])
    return float((norm(padded)[:size] - norm(tokens)).abs().max())


@torch.no_grad()
def change_by_batch(kind: str, sentences: Tensor) -> float:
    """Return the largest difference of a norm's outputs of the first sentence between a batch of its own and all of
    `sentences` (B, L, M). The norm is in training mode.
    """
    norm = make_norm(kind, sentences.size(-1))
    alone, together = (norm(x.flatten(0, 1))[: sentences.size(1)] for x in (sentences[:1], sentences))
    return float((alone - together).abs().max())


@torch.no_grad()
def measure_losses(model: Transformer, pairs: Sequence[Pair]) -> tuple[float, float, float]:
    """Return the loss of the same pairs in nats per token in three ways: in eval mode; in training mode, all at once;
    in training mode, one pair at a time. Leaves the model in training mode, and updates the statistics of its batch
    norms.
    """

    def loss(batch: Sequence[Pair]) -> float:
        return float(loss_and_hits(model, batch)[0])

    model.eval()
    in_use = loss(pairs)
    model.train()
    one_by_one = np.average([loss([pair]) for pair in pairs], weights=[len(target) + 1 for _, target in pairs])
    return in_use, loss(pairs), float(one_by_one)


def claims(
    by_padding: dict[str, float],  # largest changes
    by_batch: dict[str, float],
    counted: dict[str, tuple[int, float]],  # of `compare_normalisations`
    company: dict[str, tuple[float, float, float]],  # of `measure_losses`
    reached: dict[tuple[str, int], float],  # accuracy
) -> Claims:
    """Return each claim and whether it holds."""
    many, few, single = BATCHES
    spread = {kind: max(three) - min(three) for kind, three in company.items()}
    changes = {kind: "{:.4f}, {:.4f} and {:.4f}".format(*three) for kind, three in company.items()}
    return {
        "[Padding affects batch norm but not layer norm|Under padding, batch norm and layer norm do not differ as "
        f"claimed]: with 10 rows of padding, the outputs of real tokens change by up to {by_padding[BATCH]:.2f} with "
        f"batch norm and by {by_padding[LAYER]:.2g} with layer norm.": by_padding[LAYER] == 0 < by_padding[BATCH],
        "[Layer norm gives a sentence the same outputs alone and in a batch of eight, batch norm does not|For a "
        "sentence alone and in a batch of eight, the two norms do not differ as claimed]: the outputs differ by up to "
        f"{by_batch[BATCH]:.2f} with batch norm and by {by_batch[LAYER]:.2g} with layer "
        "norm.": by_batch[LAYER] == 0 < by_batch[BATCH],
        "For 4 sentences of 7 tokens, layer norm uses one mean and one standard deviation per [sentence|token], "
        f"[{counted['sentence'][0]}|{counted['token'][0]}] of each: computed per token, its output is reproduced to "
        f"within {counted['token'][1]:.1g}, computed per sentence to within "
        f"{counted['sentence'][1]:.1g}.": counted["sentence"][1] < 1e-4 < counted["token"][1],
        "[With batch norm, but not with layer norm, the loss of the same pairs depends on what else is in the batch|In "
        "the loss of the same pairs, the two norms do not differ as claimed]: in use, in training all at once, and in "
        f"training one by one, it is {changes[LAYER]} with layer norm and {changes[BATCH]} with batch "
        "norm.": spread[LAYER] < 1e-4 < 1e-2 < spread[BATCH],
        "With a single pair in each batch, batch norm [falls|does not fall] behind: layer norm reaches "
        f"{reached[LAYER, single]:.1%} and batch norm {reached[BATCH, single]:.1%}. With 4 pairs they reach "
        f"{reached[LAYER, few]:.1%} and {reached[BATCH, few]:.1%}; with 64 pairs, {reached[LAYER, many]:.1%} and "
        f"{reached[BATCH, many]:.1%}.": reached[LAYER, single] > reached[BATCH, single] + 0.02,
    }


@experiment(
    "Layer norm and batch norm",
    "section 3.1",
    "Padding distorts the statistics of a batch norm, which also depends on the size of the batch and differs between "
    "training and use. A layer norm has none of these problems; it is sometimes taught that it has one mean and one "
    "standard deviation per sentence.",
)
def run(effort: Effort) -> Findings:
    """Measure what padding and the batch do to each norm, and train models with each at three sizes of the batch."""
    first, kinds = effort.seeds[0], (LAYER, BATCH)
    x = random_vectors(SENTENCES, TOKENS, first)
    by_padding = {kind: [change_by_padding(kind, x.flatten(0, 1), rows) for rows in PADDING] for kind in kinds}
    by_batch = {kind: change_by_batch(kind, random_vectors(8, TOKENS, first)) for kind in kinds}
    counted = compare_normalisations(x)
    runs: dict[tuple[str, int], list[Learned]] = {(kind, size): [] for size in BATCHES for kind in kinds}
    company: dict[str, tuple[float, float, float]] = {}
    for (kind, size), each in runs.items():
        for seed in effort.seeds:
            model = make_model(kind, seed)
            each.append(
                learn(model, TASK, steps=effort.scale(STEPS), seed=seed, rate=warm_up(PEAK, WARMUP), batch=size)
            )
            if size == BATCHES[0] and seed == first:
                company[kind] = measure_losses(model, TASK.pairs(64, seed + 1))
    rows = {key: mean_and_extremes([learned.accuracy for learned in each]) for key, each in runs.items()}
    ten, label = PADDING.index(10), f"rows of padding added to {SENTENCES * TOKENS} real tokens"
    changes = {kind: (PADDING, by_padding[kind]) for kind in kinds}
    return Findings(
        f"Norms of random vectors of {SIZE} numbers; and a Transformer ({CONFIG.encoder_layers} + "
        f"{CONFIG.decoder_layers} layers of d_model {CONFIG.d_model}, post-norm) that learns to copy 1 to 6 words in "
        f"{effort.scale(STEPS)} steps, {effort}. The layers of this Transformer never see padding, so it does no harm "
        "to batch norm there.",
        claims(
            {kind: changes[ten] for kind, changes in by_padding.items()},
            by_batch,
            counted,
            company,
            {key: row[0] for key, row in rows.items()},
        ),
        {
            f"Largest change of {SENTENCES * TOKENS} real tokens when padding joins the batch": Table(
                f"rows of padding | {LAYER} | {BATCH}",
                [*zip(PADDING, by_padding[LAYER], by_padding[BATCH], strict=True)],
            ),
            "A sentence alone and among eight": Table("norm | largest difference", [*by_batch.items()]),
            f"{SENTENCES} sentences of {TOKENS} tokens: what a mean is taken of": Table(
                "of each | means | standard deviations | largest difference from layer norm",
                [(name, count, count, gap) for name, (count, gap) in counted.items()],
            ),
            "The same 64 pairs and weights: loss (nats)": Table(
                "norm | in use | in training, all at once | in training, one by one",
                [(kind, *three) for kind, three in company.items()],
            ),
            "Learning to copy": Table(
                "norm | pairs in a batch | accuracy | lowest seed | highest seed",
                [(*key, *row) for key, row in rows.items()],
            ),
        },
        {
            "means": Figure(
                "Numbers that share a mean and a standard deviation: rows of a layer norm, columns of a batch norm.",
                heat_maps(
                    stripes("layer norm: one mean per token", False), stripes("batch norm: one per feature", True)
                ),
            ),
            "padding": Figure(
                "How much the outputs of real tokens change when rows of zeros are added to the batch.",
                lines(Panel(changes, label, "largest change of a real token's numbers")),
            ),
            "losses": losses_figure({f"{kind}, batches of {size}": each for (kind, size), each in runs.items()}),
        },
    )


def stripes(title: str, columns: bool) -> HeatMap:
    """Return a heat map of which cells of a batch (6 tokens by 8 features) share a mean: the columns, or the rows."""
    shares = torch.arange(8.0).expand(6, 8) if columns else torch.arange(6.0)[:, None].expand(6, 8)
    return HeatMap(shares % 2, title, x="feature", y="token of the batch", most=2)
