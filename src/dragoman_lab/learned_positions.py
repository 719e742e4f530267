"""Sinusoidal, learned, rotary and relative positions, and none: learning, and longer input than in training."""

from dataclasses import replace
from statistics import mean

import torch
from torch import Tensor

from dragoman.config import AttentionConfig, TransformerConfig
from dragoman.model.positions import POSITIONS, Learned, Positions
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import Panel, lines, losses_figure
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Learned as Trained
from dragoman_lab.tasks import accuracy, copying, learn, mean_and_extremes, small

SCHEMES = ("sinusoidal", "learned", "rotary", "relative", "none")
MAX_WORDS = 8  # in a training sentence
LENGTHS = (4, 8, 10, 12, 16)
WORDS = 20
STEPS, PAIRS = 640, 48
CONFIG = replace(small(48, layers=2), norm_first=True, max_length=64)


def train_to_copy(scheme: str, effort: Effort, seed: int) -> tuple[Trained, list[float]]:
    """Train a model with this position scheme to copy up to MAX_WORDS words; return how it learned, and its accuracy on
    unseen sentences of each of LENGTHS.
    """
    task = copying(WORDS, 1, MAX_WORDS)
    torch.manual_seed(seed)
    model = Transformer(replace(CONFIG, positions=scheme), task.vocabulary)  # type: ignore[arg-type]
    learned = learn(model, task, steps=effort.scale(STEPS), seed=seed, batch=PAIRS)
    longer = [copying(WORDS, length, length).pairs(effort.scale(400), seed + 1) for length in LENGTHS]
    return learned, [accuracy(model, pairs) for pairs in longer]


def one_head(d_model: int, max_length: int) -> TransformerConfig:
    """Return the settings that a position scheme of these sizes is built with."""
    return TransformerConfig(d_model, attention=AttentionConfig(heads=1), max_length=max_length)


def added_vectors(scheme: str, words: Tensor) -> Tensor:
    """Return what a position scheme adds to word vectors (T, M): (T, M), zeros for a scheme that acts elsewhere. A
    learned table is drawn with seed 0.
    """
    torch.manual_seed(0)
    positions: Positions = POSITIONS[scheme](one_head(words.size(1), len(words))).double()
    return (positions.embed(words[None], 0)[0] - words).detach()


def added_differences(scheme: str, length: int, d_model: int, seed: int) -> tuple[float, float]:
    """Return two largest differences, over components, of what a position scheme adds to word vectors: between two
    random sequences of `length`, and between the first and the last position of one of them.
    """
    random = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(length, d_model, generator=random, dtype=torch.float64) for _ in range(2))
    early, late = added_vectors(scheme, first), added_vectors(scheme, second)
    return float((early - late).abs().max()), float((early[0] - early[-1]).abs().max())


def rows_that_learn(length: int, positions: int) -> list[int]:
    """Return the rows of a learned table of `positions` rows that get a gradient from a sentence of `length` words."""
    learned = Learned(one_head(8, positions))
    learned.embed(torch.zeros(1, length, 8), 0).sum().backward()
    assert learned.table.weight.grad is not None
    return learned.table.weight.grad.abs().sum(1).nonzero().flatten().tolist()


def refusal_message(scheme: str, length: int, positions: int) -> str:
    """Return the error message of a position scheme, built for `positions` positions, at a sentence of `length` words;
    empty if it accepts the sentence.
    """
    try:
        POSITIONS[scheme](one_head(8, positions)).embed(torch.zeros(1, length, 8), 0)
    except ValueError as refused:
        return str(refused)
    return ""


def claims(
    reached: dict[str, float],  # accuracy at the lengths of training, by scheme, as all of these
    longer: dict[str, dict[int, float]],
    added: dict[str, tuple[float, float]],  # differences of two sequences, and of two positions
    refused: dict[str, str],  # errors at a sentence longer than the table
) -> Claims:
    """Return each claim and whether it holds. longer: accuracy by scheme and length."""
    best = max(longer, key=lambda name: longer[name][LENGTHS[-1]])
    least = min(share for name, share in reached.items() if name != "none")
    only_learned = [name for name, error in refused.items() if error] == ["learned"]
    errors = "; ".join(f"{name}: {error}" for name, error in refused.items() if error) or "none refuses"
    return {
        f"Without positions the model copies {reached['none']:.1%} of the tokens correctly, with them {least:.1%} or "
        "more: [it needs them to know the order|positions make no difference here].": reached["none"] < least - 0.05,
        f"At the lengths seen in training, sinusoidal positions reach {reached['sinusoidal']:.1%} and learned ones "
        f"{reached['learned']:.1%}: the two [learn nearly the same|do not learn the "
        "same].": abs(reached["sinusoidal"] - reached["learned"]) <= 0.02,
        "Sinusoidal positions accept input twice as long as in training, and accuracy [is kept|is not kept]: "
        f"{longer['sinusoidal'][8]:.1%} at 8 words, {longer['sinusoidal'][16]:.1%} at "
        "16.": longer["sinusoidal"][16] >= 0.9 * longer["sinusoidal"][8],
        f"At 16 words, sinusoidal positions reach {longer['sinusoidal'][16]:.1%} and learned ones, whose later rows "
        f"were never trained, {longer['learned'][16]:.1%}: the formula is [ahead|not ahead] by more than 5 points. The "
        f"best at this length are {best} positions: "
        f"{longer[best][LENGTHS[-1]]:.1%}.": longer["sinusoidal"][16] >= longer["learned"][16] + 0.05,
        f"What is added at a position [differs|does not differ] between two sequences: by {added['sinusoidal'][0]:.1g} "
        f"with the formula, {added['learned'][0]:.1g} with learned positions. Between two positions of one sequence it "
        f"always differs, by up to {added['learned'][1]:.2g} for learned ones.": added["learned"][0] > 1e-9,
        "[Learned positions, and no others, refuse|It is not true that only learned positions refuse] a sentence "
        f"longer than their table ({errors}).": only_learned,
    }


@experiment(
    "Sinusoidal or learned positions",
    "section 3.5 and Table 3, row E",
    "Learned positions do as well as sinusoids, which may also work for input longer than any in training; without "
    "positions, order is lost. The formula is sometimes called static, that is, the same for all sequences, in "
    "contrast to a learned table.",
)
def run(effort: Effort) -> Findings:
    """Train a model with each position scheme, and test it on longer sentences than it was trained on."""
    trained = {scheme: [train_to_copy(scheme, effort, seed) for seed in effort.seeds] for scheme in SCHEMES}
    runs = {scheme: [learned for learned, _ in each] for scheme, each in trained.items()}
    rows = {scheme: mean_and_extremes([learned.accuracy for learned in each]) for scheme, each in runs.items()}
    longer = {
        scheme: {length: mean_and_extremes([values[i] for _, values in each]) for i, length in enumerate(LENGTHS)}
        for scheme, each in trained.items()
    }
    by_length = {scheme: {length: row[0] for length, row in each.items()} for scheme, each in longer.items()}
    static = {scheme: added_differences(scheme, 512, 64, effort.seeds[0]) for scheme in ("sinusoidal", "learned")}
    positions, trained_on = 2 * MAX_WORDS, (min(LENGTHS), MAX_WORDS)
    learning = {n: len(rows_that_learn(n, positions)) for n in (3, positions)} | {positions + 1: 0}
    refused = {scheme: refusal_message(scheme, positions + 1, positions) for scheme in SCHEMES}
    curves = {scheme: (LENGTHS, [100 * share for share in each.values()]) for scheme, each in by_length.items()}
    return Findings(
        f"Copying 1 to {MAX_WORDS} words out of {WORDS - 3}, {CONFIG.encoder_layers} + {CONFIG.decoder_layers} layers "
        f"of d_model {CONFIG.d_model}, pre-norm, {effort.scale(STEPS)} steps of {PAIRS} pairs, {effort}. Accuracy: the "
        "share of tokens that are right, given the correct tokens before them. The learned table has "
        f"{CONFIG.max_length} rows, of which training uses the first {MAX_WORDS + 1}.",
        claims({scheme: row[0] for scheme, row in rows.items()}, by_length, static, refused),
        {
            "At the lengths of training": Table(
                "positions | accuracy | lowest seed | highest seed | last loss (nats)",
                [(name, *row, mean(mean(run.losses[-20:]) for run in runs[name])) for name, row in rows.items()],
            ),
            "Accuracy by the length of the input": Table(
                "positions | words | accuracy | lowest seed | highest seed",
                [(name, length, *row) for name, each in longer.items() for length, row in each.items()],
            ),
            "Two sequences of 512 random words: what is added at the same place": Table(
                "positions | largest difference between the sequences | between the first and the last place",
                [(name, *both) for name, both in static.items()],
            ),
            f"A table of {positions} places, and what a sentence does with it": Table(
                "words | places that learn | is refused",
                [(n, count, bool(refusal_message("learned", n, positions))) for n, count in learning.items()],
            ),
        },
        {
            "longer-input": Figure(
                f"Accuracy on input of a given length after training on 1 to {MAX_WORDS} words (grey).",
                lines(Panel(curves, "words of the source", "target tokens right (%)", ylim=(0, 103), grey=trained_on)),
            ),
            "losses": losses_figure(runs),
        },
    )
