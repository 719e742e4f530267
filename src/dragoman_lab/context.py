"""One word, several meanings: does the encoder's vector of 쓰다 or of apple say which of them is meant?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from dragoman.config import ModelConfig, RecurrentConfig
from dragoman.data.tokenizer import SPECIAL
from dragoman.inspection.embeddings import principal_components
from dragoman.inspection.plots.training import style
from dragoman.model import Model, build
from dragoman.model.transformer import Transformer
from dragoman_lab.drawing import Panel, lines, mean_and_range
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import minimise, small

# For each ambiguous word its meanings, and the words that decide for one.
MEANINGS = {
    "쓰다": {
        "to wear": ("모자를", "안경을"),
        "to write": ("글을", "편지를"),
        "bitter": ("맛이", "약이"),
        "to spend": ("돈을", "시간을"),
    },
    "apple": {"the fruit": ("juicy", "ripe"), "the company": ("shares", "phone")},
}
MEANING_OF = {
    clue: meaning
    for clues_by_meaning in MEANINGS.values()
    for meaning, clues in clues_by_meaning.items()
    for clue in clues
}
NOISE = 20  # other words, which decide nothing
WORDS = [*MEANINGS, *MEANING_OF, *(meaning for meanings in MEANINGS.values() for meaning in meanings)]
ID = {word: len(SPECIAL) + index for index, word in enumerate(WORDS)}
VOCABULARY = len(SPECIAL) + len(WORDS) + NOISE
REACH = 24  # words between the ambiguous word and the clue, at most, on either side
CHANCE = fmean(1 / len(MEANINGS[word]) for word in MEANINGS)
RATE, BATCH = 5e-3, 64
STEPS, SENTENCES = 1200, 400  # at full effort: training steps; sentences to judge by at each distance
DISTANCES = (-24, -16, -8, -4, -1, 1, 4, 8, 16, 24)  # of the clue from the word: negative if it comes before

RECURRENT = RecurrentConfig(cell="rnn", d_model=32, bidirectional=False, attention="none", dropout=0.0)
FORWARD, BOTH, GATED, TRANSFORMER = "RNN, left to right", "RNN, both directions", "LSTM, both directions", "Transformer"
KINDS: dict[str, ModelConfig] = {
    FORWARD: RECURRENT,
    BOTH: replace(RECURRENT, bidirectional=True),
    GATED: replace(RECURRENT, cell="lstm", bidirectional=True),
    TRANSFORMER: replace(small(32, layers=2), norm_first=True),
}


@dataclass(frozen=True)
class Sentences:
    """Give sentences of noise words with an ambiguous word in the middle and one clue."""

    ids: Tensor  # B S
    meaning: Tensor  # (B,): the id of what is meant

    @classmethod
    def draw(cls, count: int, random: np.random.Generator, distance: int = 0, word: str = "") -> "Sentences":
        """Draw `count` sentences. distance: of the clue from the ambiguous word, negative if it comes before, 0: a
        random one for each, mostly short; word: the ambiguous word, "": any of them.
        """
        ids = random.integers(VOCABULARY - NOISE, VOCABULARY, (count, 2 * REACH + 1))
        clues = [
            clue
            for ambiguous in ([word] if word else MEANINGS)
            for clues in MEANINGS[ambiguous].values()
            for clue in clues
        ]
        words = {
            clue: ambiguous for ambiguous, meanings in MEANINGS.items() for clues in meanings.values() for clue in clues
        }
        # Each ambiguous word is as frequent as any other, although they have different numbers of clues.
        chances = np.array([1 / sum(words[other] == words[clue] for other in clues) for clue in clues])
        chosen = random.choice(len(clues), count, p=chances / chances.sum())
        for row, index in enumerate(chosen):
            away = distance or int((REACH + 1) ** random.random()) * int(random.choice([-1, 1]))
            ids[row, REACH], ids[row, REACH + away] = ID[words[clues[index]]], ID[clues[index]]
        meaning = [ID[MEANING_OF[clues[index]]] for index in chosen]
        return cls(torch.from_numpy(ids), torch.tensor(meaning))


def vectors(model: Model, ids: Tensor) -> Tensor:
    """Return the encoder's vectors (B, M) of the ambiguous words, which stand in the middle of the sentences (B, S)."""
    memory: Any = model.start(ids).memory
    return memory.view(*ids.shape, -1)[:, REACH]


def train_reader(config: ModelConfig, steps: int, seed: int) -> Model:
    """Train a fresh encoder to name what the ambiguous word means from its vector; return the model in eval mode."""
    torch.manual_seed(seed)
    model, random = build(config, VOCABULARY), np.random.default_rng(seed)

    def loss() -> Tensor:
        sentences = Sentences.draw(BATCH, random)
        return F.cross_entropy(model.output(vectors(model, sentences.ids)), sentences.meaning)

    minimise(model.train(), loss, steps, lambda step: RATE * min(1.0, step / 50), clip=1.0)
    return model.eval()


@torch.no_grad()
def share_understood(model: Model, distance: int, sentences: int, seed: int) -> float:
    """Return the share, 0 to 1, of new sentences with the clue at `distance` in which the meaning is named."""
    drawn = Sentences.draw(sentences, np.random.default_rng([seed, REACH + distance]), distance)
    return float((model.output(vectors(model, drawn.ids)).argmax(-1) == drawn.meaning).double().mean())


def nearest_alike(x: Tensor, meaning: Tensor) -> float:
    """Return the share, 0 to 1, of the vectors x (B, M) whose nearest other one has the same meaning (B,).

    Where several are equally near, their mean counts.
    """
    distance = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    distance.fill_diagonal_(float("inf"))
    nearest = distance <= distance.amin(1, keepdim=True)
    alike = meaning[:, None] == meaning
    return float(((nearest & alike).sum(1) / nearest.sum(1)).mean())


def claims(understood: dict[str, list[float]], before: float, spread: float, after: float) -> Claims:
    """Return each claim and whether it holds. understood: by kind of model, the share at each distance; before, after:
    the share of nearest neighbours with the same meaning, of embeddings and of the encoder's vectors; spread: the
    largest distance between two embeddings.
    """

    def mean(name: str, chosen: Sequence[int]) -> float:
        return fmean(understood[name][DISTANCES.index(distance)] for distance in chosen)

    later = [distance for distance in DISTANCES if distance > 0]
    ends, near = (min(DISTANCES), max(DISTANCES)), (-1, 1)
    return {
        f"Before the encoder, the vectors of 쓰다 differ by {spread:.2g} at most between sentences: [it has one "
        "vector, whatever it means|they differ already].": spread == 0,
        f"After the encoder, the nearest vector of another sentence has the same meaning in {after:.0%} of cases "
        f"({before:.0%} before): [the meanings have separated|the meanings have not separated].": after >= 0.95
        and before < 0.5,
        f"An RNN that reads from left to right names the meaning in {mean(FORWARD, later):.0%} of sentences whose clue "
        f"comes after the word (chance: {CHANCE:.0%}), and in {mean(FORWARD, [-1]):.0%} where it is the word before: "
        "[it needs the second direction|one direction is enough].": mean(FORWARD, later) < CHANCE + 0.1
        and mean(FORWARD, [-1]) > CHANCE + 0.3,
        f"With both directions an RNN names it in {mean(BOTH, near):.0%} of sentences with the clue next to the word, "
        f"and in {mean(BOTH, ends):.0%} at a distance of {REACH} words: [distance is its problem|distance is not its "
        "problem].": mean(BOTH, near) - mean(BOTH, ends) >= 0.2,
        f"With gates (LSTM) it is {mean(GATED, near):.0%} and {mean(GATED, ends):.0%}: [most of the distance "
        "is bridged|most of the distance is not bridged].": mean(GATED, ends)
        >= (mean(BOTH, ends) + mean(BOTH, near)) / 2,
        f"The Transformer names it in {mean(TRANSFORMER, near):.0%} and {mean(TRANSFORMER, ends):.0%}, and in at least "
        f"{min(understood[TRANSFORMER]):.0%} at any distance: [distance does not matter|distance matters to it, "
        "too].": min(understood[TRANSFORMER]) >= 0.95,
    }


@experiment(
    "One word, several meanings",
    "common teaching",
    "A word such as 쓰다 (to wear, to write, to spend; bitter) or apple has one embedding. Which meaning is meant is "
    "decided by another word, perhaps a distant one. The encoder's vectors tell the meanings apart; those of recurrent "
    "networks only if the deciding word is near.",
)
def run(effort: Effort) -> Findings:
    """Train encoders of each kind to tell meanings apart; measure by distance, and look at the vectors of 쓰다."""
    steps, sentences = effort.scale(STEPS), effort.scale(SENTENCES)
    models = {name: [train_reader(config, steps, seed) for seed in effort.seeds] for name, config in KINDS.items()}
    understood = {
        name: np.array(
            [
                [share_understood(model, distance, sentences, seed) for distance in DISTANCES]
                for model, seed in zip(trained, effort.seeds, strict=True)
            ]
        )
        for name, trained in models.items()
    }
    drawn = Sentences.draw(300, np.random.default_rng(effort.seeds[0] + 1), word="쓰다")
    model = models[TRANSFORMER][0]
    assert isinstance(model, Transformer)
    with torch.no_grad():
        before, after = model.source_embedding(drawn.ids)[:, REACH], vectors(model, drawn.ids)
    spread = float(torch.cdist(before, before, compute_mode="donot_use_mm_for_euclid_dist").max())
    alike = [nearest_alike(x, drawn.meaning) for x in (before, after)]

    def draw_vectors(figure: Any) -> None:
        titles = "Before the encoder: one point", "After the encoder: a group for each meaning"
        both = figure.subplots(1, 2, sharex=True, sharey=True)
        for axes, x, title in zip(both, (before, after), titles, strict=True):
            points = principal_components(x)
            for index, name in enumerate(MEANINGS["쓰다"]):
                group = points[drawn.meaning == ID[name]]
                axes.plot(*group.T.tolist(), label=name, **{**style(index), "linestyle": "none"})
            axes.set_title(title, fontsize=10)
            axes.set(xlabel="first component", ylabel="second component")
        axes.legend(frameon=False, fontsize=8)

    curves = {name: mean_and_range(DISTANCES, accuracies) for name, accuracies in understood.items()}
    shown = Panel(
        curves, "distance of the clue (words; negative: before)", "share understood", ylim=(0, 1.05), level=CHANCE, at=0
    )
    return Findings(
        f"Sentences of {2 * REACH + 1} words: 쓰다 (four meanings) or apple (two) in the middle, one clue at most "
        f"{REACH} words before or after it, mostly near, and noise. Encoders, d_model 32 (the Transformer has two "
        f"layers, the others one), learn to name the meaning from the word's vector alone: {steps} steps of {BATCH} "
        f"sentences, Adam at {RATE:g}; tested on {sentences} new sentences per distance; {effort}.",
        claims(
            {name: accuracies.mean(0).tolist() for name, accuracies in understood.items()}, alike[0], spread, alike[1]
        ),
        {
            "Share of meanings named, by distance of the clue": Table(
                "model | distance | mean | lowest seed | highest seed",
                [
                    (name, distance, float(values.mean()), float(values.min()), float(values.max()))
                    for name, accuracies in understood.items()
                    for distance, values in zip(DISTANCES, accuracies.T, strict=True)
                ],
            ),
            "Nearest neighbours of 쓰다": Table(
                "vectors | share with the same meaning | largest distance",
                [
                    ("before the encoder", alike[0], spread),
                    ("after the encoder", alike[1], float(torch.cdist(after, after).max())),
                ],
            ),
        },
        {
            "meanings": Figure(
                "The vectors of 쓰다 in 300 sentences, on the two axes along which they vary most; colours and marks "
                "show what it means there.",
                draw_vectors,
            ),
            "by-distance": Figure(
                "How often the meaning is named, by the distance of the clue; bars span all seeds. Dotted: chance.",
                lines(shown),
            ),
        },
    )
