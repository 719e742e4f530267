"""The first word of the source is the whole answer: who still knows it when the last word has been read?"""

from dataclasses import replace
from functools import partial
from statistics import mean
from typing import Any

import numpy as np
import torch

from dragoman.config import AttentionConfig, FeedForwardConfig, ModelConfig, RecurrentConfig, TransformerConfig
from dragoman.data.tokenizer import SPECIAL
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Task, exact, learn, recalling
from dragoman.model import build

DISTANCES = (2, 10, 30)
WORDS = 10
CHANCE = 1 / WORDS
RATE, BATCH = 1e-2, 32
STEPS, SENTENCES = 720, 500  # at full effort: of learning; judged at each distance

LITTLE = RecurrentConfig(d_model=32, bidirectional=False, attention="none", dropout=0.0)
PLAIN, LSTM, GRU, BOTH, TRANSFORMER = "plain RNN", "LSTM", "GRU", "LSTM, both directions", "Transformer"
CELLS: dict[str, RecurrentConfig] = {
    PLAIN: replace(LITTLE, cell="rnn"),
    LSTM: LITTLE,
    GRU: replace(LITTLE, cell="gru"),
    BOTH: replace(LITTLE, bidirectional=True),
}


def attending(name: str) -> str:
    return f"{name}, attention"


KINDS: dict[str, ModelConfig] = {
    **CELLS,
    **{attending(name): replace(config, attention="dot") for name, config in CELLS.items()},
    TRANSFORMER: TransformerConfig(
        d_model=32,
        encoder_layers=1,
        decoder_layers=1,
        attention=AttentionConfig(heads=4),
        feed_forward=FeedForwardConfig(d_ff=64),
        dropout=0.0,
        norm_first=True,
    ),
}


def at(distance: int) -> Task:
    return recalling(distance, len(SPECIAL) + WORDS)


def measure(config: ModelConfig, distance: int, seed: int, effort: Effort) -> float:
    """Train a model at one distance; the share of unseen sentences whose first word it recalls."""
    task = at(distance)
    torch.manual_seed(seed)
    model = build(config, task.vocabulary)
    learn(model, task, steps=effort.of(STEPS), seed=seed, rate=lambda step: RATE, batch=BATCH)
    return exact(model, task.pairs(effort.of(SENTENCES), seed=seed + 1_000))


def judge(shares: dict[str, list[float]]) -> tuple[Verdict, ...]:
    """shares: recalled at each distance, by kind of model."""
    shortest, longest = DISTANCES[0], DISTANCES[-1]
    near, far = ({name: of[place] for name, of in shares.items()} for place in (0, -1))
    stays, falls = far[TRANSFORMER] >= 0.95, far[PLAIN] <= CHANCE + 0.1
    knew = near[PLAIN] - far[PLAIN] >= 0.2
    overall = {name: mean(of) for name, of in shares.items()}
    best = max((LSTM, GRU), key=overall.__getitem__)
    relieved = overall[PLAIN] + 0.05 <= overall[best] <= overall[TRANSFORMER] - 0.05
    gains = {name: far[attending(name)] - far[name] for name in (PLAIN, LSTM, GRU)}
    helps = min(gains.values()) >= 0.2
    suffers = near[BOTH] - far[BOTH] >= 0.1
    return (
        Verdict(
            stays and falls,
            f"Over {longest} words the Transformer recalls {far[TRANSFORMER]:.0%} and a plain RNN {far[PLAIN]:.0%} "
            f"(chance: {CHANCE:.0%}): "
            + ("the one stays, the other falls to chance." if stays and falls else "the gap of the claim is not seen."),
        ),
        Verdict(
            knew,
            f"Over {shortest} words the same kind of RNN recalls {near[PLAIN]:.0%}: "
            + ("distance is what it fails at." if knew else "distance is not what decides."),
        ),
        Verdict(
            relieved,
            f"Over all distances, without attention, the better of the gated cells, the {best}, recalls "
            f"{overall[best]:.0%}, the plain RNN {overall[PLAIN]:.0%}, the Transformer {overall[TRANSFORMER]:.0%}: "
            + ("gates relieve, no more." if relieved else "gates are not between the two."),
        ),
        Verdict(
            helps,
            "Attention over the encoder's states adds "
            + ", ".join(f"{gain:+.0%} ({name})" for name, gain in gains.items())
            + f" over {longest} words: "
            + ("a direct way to the far word is what was missing." if helps else "not for all of them."),
        ),
        Verdict(
            suffers,
            f"An LSTM that reads in both directions recalls {near[BOTH]:.0%} over {shortest} words and "
            f"{far[BOTH]:.0%} over {longest}: "
            + (
                "it suffers from distance, too."
                if suffers
                else "it does not suffer here, since for the direction that reads backwards the first word is the last."
            ),
        ),
    )


def run(effort: Effort) -> Findings:
    found = {
        name: [[measure(config, distance, seed, effort) for distance in DISTANCES] for seed in effort.seeds]
        for name, config in KINDS.items()
    }
    means = {name: [mean(of) for of in zip(*runs, strict=True)] for name, runs in found.items()}
    return Findings(
        f"The target is the first word of the source, one of {WORDS}; so many other words of noise follow. "
        "Models of d_model 32 with one layer on each side, a fresh one for each distance: "
        f"{effort.of(STEPS)} steps of {BATCH} fresh sentences, Adam at {RATE:g}; judged on {effort.of(SENTENCES)} "
        f"unseen sentences per distance; seeds: {', '.join(map(str, effort.seeds))}.",
        judge(means),
        (
            Table(
                "Share of first words recalled, by distance",
                ("model", "distance", "mean", "lowest seed", "highest seed"),
                tuple(
                    (name, distance, mean(shares), min(shares), max(shares))
                    for name, runs in found.items()
                    for distance, shares in zip(DISTANCES, zip(*runs, strict=True), strict=True)
                ),
            ),
        ),
        (
            Figure(
                "recall-by-distance",
                "How often the first word of the source is recalled, by how many words follow it. Marks are means, "
                "bars reach from the lowest to the highest seed.",
                partial(draw, found=found),
                (10.0, 4.0),
            ),
        ),
    )


def draw(figure: Any, found: dict[str, list[list[float]]]) -> None:
    panels = {"without attention": list(CELLS), "with attention": [*map(attending, CELLS), TRANSFORMER]}
    for axes, (title, names) in zip(figure.subplots(1, 2, sharey=True), panels.items(), strict=True):
        for index, name in enumerate(names):
            runs = np.array(found[name])
            middle = runs.mean(0)
            spread = [middle - runs.min(0), runs.max(0) - middle]
            places = np.arange(len(DISTANCES)) + 0.07 * index  # beside each other, since many are equal
            axes.errorbar(places, middle, spread, label=name.removesuffix(", attention"), **style(index))
        axes.axhline(CHANCE, color="0.5", linewidth=0.8)
        axes.annotate("chance", (0, CHANCE), va="bottom", fontsize=8, color="0.3")
        axes.set_xticks(range(len(DISTANCES)), [str(distance) for distance in DISTANCES])
        axes.set_ylim(0, 1.05)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel("distance of the word (words)")
        axes.legend(fontsize=8)
    figure.axes[0].set_ylabel("share recalled")


EXPERIMENT = Experiment(
    title="Recalling a far word",
    source="notes 000, 001, 002 and 004",
    claim="Recurrent encoders lose the words that are far from the end, also with gates or in both directions; "
    "attention has direct access to every word, so that distance does not matter.",
    run=run,
)
