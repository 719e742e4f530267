"""Sinusoidal, learned, rotary and relative positions, and none: learning, and longer input than in training.

Shapes: T places, M d_model.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.inspection.plots.training import style
from dragoman.lab.drawing import losses_figure
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Learned as Trained
from dragoman.lab.tasks import accuracy, copying, learn, summary
from dragoman.model.positions import POSITIONS, Learned, Positions
from dragoman.model.transformer import Transformer

SCHEMES = ("sinusoidal", "learned", "rotary", "relative", "none")
LONGEST = 8  # words of a training sentence
LENGTHS = (4, 8, 10, 12, 16)
WORDS = 20
STEPS, PAIRS = 640, 48
CONFIG = TransformerConfig(
    d_model=48,
    encoder_layers=2,
    decoder_layers=2,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=96),
    dropout=0.0,
    norm_first=True,
    max_length=64,
)


def train(scheme: str, effort: Effort, seed: int) -> tuple[Trained, list[float]]:
    """How a model with those positions learns to copy, and its accuracy on sentences of each of LENGTHS."""
    task = copying(WORDS, 1, LONGEST)
    torch.manual_seed(seed)
    model = Transformer(replace(CONFIG, positions=scheme), task.vocabulary)  # type: ignore[arg-type]
    learned = learn(model, task, steps=effort.of(STEPS), seed=seed, batch=PAIRS)
    longer = [copying(WORDS, length, length).pairs(effort.of(400), seed + 1) for length in LENGTHS]
    return learned, [accuracy(model, pairs) for pairs in longer]


def added(scheme: str, words: Tensor) -> Tensor:
    """What positions add to the vectors (T, M) of a sequence."""
    torch.manual_seed(0)
    positions: Positions = POSITIONS[scheme](words.size(1), 1, words.size(1), len(words)).double()
    return (positions.embed(words[None], 0)[0] - words).detach()


def between_sequences(scheme: str, length: int, d_model: int, seed: int) -> tuple[float, float]:
    """The largest difference between what is added to two different sequences; and between two places of one."""
    random = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(length, d_model, generator=random, dtype=torch.float64) for _ in range(2))
    one, other = added(scheme, first), added(scheme, second)
    return float((one - other).abs().max()), float((one[0] - one[-1]).abs().max())


def rows_that_learn(length: int, places: int) -> list[int]:
    """The places of a learned table that get a gradient from a sentence of that length."""
    positions = Learned(8, 1, 8, places)
    positions.embed(torch.zeros(1, length, 8), 0).sum().backward()
    assert positions.table.weight.grad is not None
    return positions.table.weight.grad.abs().sum(1).nonzero().flatten().tolist()


def refusal(scheme: str, length: int, places: int) -> str:
    """What a scheme with a table of so many places says to a sentence of that length; empty where it takes it."""
    try:
        POSITIONS[scheme](8, 1, 8, places).embed(torch.zeros(1, length, 8), 0)
    except ValueError as refused:
        return str(refused)
    return ""


def judge_order(reached: dict[str, float]) -> Verdict:
    """reached: accuracy on unseen sentences of the lengths of training, by scheme."""
    without, least = reached["none"], min(value for name, value in reached.items() if name != "none")
    seen = without < least - 0.05
    return Verdict(
        seen,
        f"Without positions {without:.1%} of the tokens are copied right, with them {least:.1%} or more: "
        f"{'order has to be told' if seen else 'positions make no difference here'}.",
    )


def judge_alike(reached: dict[str, float]) -> Verdict:
    first, second = reached["sinusoidal"], reached["learned"]
    seen = abs(first - second) <= 0.02
    return Verdict(
        seen,
        f"At the lengths of training, sinusoidal positions reach {first:.1%} and learned ones {second:.1%}: "
        f"{'nearly the same' if seen else 'not the same'}.",
    )


def judge_longer(by_length: dict[str, dict[int, float]]) -> tuple[Verdict, Verdict]:
    """by_length: accuracy by scheme and length of the input."""
    last = LENGTHS[-1]
    sinusoidal, learned = (by_length[name] for name in ("sinusoidal", "learned"))
    keeps = sinusoidal[last] >= 0.9 * sinusoidal[LONGEST]
    ahead = sinusoidal[last] >= learned[last] + 0.05
    best = max(by_length, key=lambda name: by_length[name][last])
    return (
        Verdict(
            keeps,
            f"Sinusoidal positions take input twice as long as in training, and accuracy "
            f"{'stays' if keeps else 'does not stay'}: {sinusoidal[LONGEST]:.1%} at {LONGEST} words, "
            f"{sinusoidal[last]:.1%} at {last}.",
        ),
        Verdict(
            ahead,
            f"At {last} words, sinusoidal positions reach {sinusoidal[last]:.1%} and learned ones, whose later places "
            f"were never trained, {learned[last]:.1%}: the formula is {'' if ahead else 'not '}ahead by more than "
            f"5 points. Most is left with {best} positions: {by_length[best][last]:.1%}.",
        ),
    )


def judge_static(differences: dict[str, tuple[float, float]]) -> Verdict:
    """differences: by scheme, between two sequences at the same place, and between two places."""
    learned, places = differences["learned"]
    seen = learned > 1e-9
    told = ", ".join(f"{name} {between:.1g}" for name, (between, _) in differences.items())
    return Verdict(
        seen,
        f"What is added at a place {'differs' if seen else 'does not differ'} between two sequences, for learned "
        f"positions no {'less' if seen else 'more'} than for the formula ({told}); between two places of one sequence "
        f"it does, by up to {places:.2g} for learned ones.",
    )


def judge_end(refused: dict[str, str]) -> Verdict:
    """refused: by scheme, what it says to a sentence that is longer than its table."""
    seen = [name for name, text in refused.items() if text] == ["learned"]
    told = "; ".join(f"{name}: {text}" for name, text in refused.items() if text) or "none refuses"
    return Verdict(
        seen, f"{'Only learned positions refuse' if seen else 'Not learned positions alone refuse'} it ({told})."
    )


def draw_lengths(figure: Any, by_length: dict[str, dict[int, float]]) -> None:
    axes = figure.subplots()
    for index, (name, reached) in enumerate(by_length.items()):
        axes.plot(list(reached), [100 * value for value in reached.values()], label=name, **style(index))
    axes.axvspan(min(LENGTHS), LONGEST, color="0.93", label="lengths of training")
    axes.set_xlabel("words of the source")
    axes.set_ylabel("target tokens right (%)")
    axes.set_ylim(0, 103)
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False, fontsize=8)


def run(effort: Effort) -> Findings:
    found = {scheme: [train(scheme, effort, seed) for seed in effort.seeds] for scheme in SCHEMES}
    runs = {scheme: [learned for learned, _ in each] for scheme, each in found.items()}
    rows = {scheme: summary([learned.accuracy for learned in each]) for scheme, each in runs.items()}
    reached = {scheme: row[0] for scheme, row in rows.items()}
    longer = {
        scheme: {length: summary([values[i] for _, values in each]) for i, length in enumerate(LENGTHS)}
        for scheme, each in found.items()
    }
    by_length = {scheme: {length: row[0] for length, row in each.items()} for scheme, each in longer.items()}
    static = {scheme: between_sequences(scheme, 512, 64, effort.seeds[0]) for scheme in ("sinusoidal", "learned")}
    places = 2 * LONGEST
    refused = {scheme: refusal(scheme, places + 1, places) for scheme in SCHEMES}
    return Findings(
        setting=f"Copying 1 to {LONGEST} words out of {WORDS - 3}, {CONFIG.encoder_layers} and {CONFIG.decoder_layers} "
        f"layers of d_model {CONFIG.d_model}, pre-norm, {effort.of(STEPS)} steps of {PAIRS} pairs, seeds "
        f"{', '.join(map(str, effort.seeds))}. Accuracy: tokens that are right when the ones before them are given. "
        f"The learned table has {CONFIG.max_length} places, of which training uses the first {LONGEST + 1}.",
        verdicts=(
            judge_order(reached),
            judge_alike(reached),
            *judge_longer(by_length),
            judge_static(static),
            judge_end(refused),
        ),
        tables=(
            Table(
                "At the lengths of training",
                ("positions", "accuracy", "lowest seed", "highest seed", "last loss (nats)"),
                tuple(
                    (name, *row, summary([sum(r.losses[-20:]) / len(r.losses[-20:]) for r in runs[name]])[0])
                    for name, row in rows.items()
                ),
            ),
            Table(
                "Accuracy by the length of the input",
                ("positions", "words", "accuracy", "lowest seed", "highest seed"),
                tuple((name, length, *row) for name, each in longer.items() for length, row in each.items()),
            ),
            Table(
                "Two sequences of 512 random words: what is added at the same place",
                ("positions", "largest difference between the sequences", "between the first and the last place"),
                tuple((name, *both) for name, both in static.items()),
            ),
            Table(
                f"A table of {places} places, and what a sentence does with it",
                ("words", "places that learn", "is refused"),
                tuple(
                    (length, len(rows_that_learn(length, places)) if length <= places else 0, bool(text))
                    for length in (3, places, places + 1)
                    for text in [refusal("learned", length, places)]
                ),
            ),
        ),
        figures=(
            Figure(
                "longer-input",
                f"Accuracy on input of a given length after training on 1 to {LONGEST} words (grey).",
                lambda figure: draw_lengths(figure, by_length),
                (7.0, 4.0),
            ),
            losses_figure(runs),
        ),
    )


EXPERIMENT = Experiment(
    title="Sinusoidal or learned positions",
    source="note 001 (absolute position encoding, learned position embedding); section 3.5 and Table 3, row E",
    claim="Learned positions do as well as sinusoids, which may work for longer input than any in training; without "
    "positions order is lost. (Note 001 calls the formula static, the same for all sequences, and a learned table "
    "not.)",
    run=run,
)
