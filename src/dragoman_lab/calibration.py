"""Calibration: is the probability that a model gives to words and outputs the share of them that are right?"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from dragoman.data.batches import source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.sampling import Sampling, sample
from dragoman.decoding.search import BeamSearch, OutputSpec, finish
from dragoman.model import Model
from dragoman_lab.drawing import draw_bars
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.label_smoothing import BATCH, CONFIG, TASK, train_on
from dragoman_lab.tasks import Pair, make_batch, reversing

REVERSING, MIDDLE = reversing(TASK.vocabulary, shortest=3, longest=12), 7.5  # the mean length
CORPUS, UNSEEN = 1000, 512  # pairs to learn from, again and again, and to test on
EARLY, PLAIN, SMOOTH = "no smoothing, a quarter of the steps", "no smoothing", "smoothing 0.1"
SETTINGS = {EARLY: (0.0, 200), PLAIN: (0.0, 800), SMOOTH: (0.1, 800)}  # smoothing, and steps at full effort
BEAM = "beam of 4"
SEARCHES = {"sampling": 0, "greedy search": 1, BEAM: 4}  # beams; 0: tokens are drawn at random
BINS = 10  # of equal width
CLEARLY = 0.01  # from which on probabilities or areas differ
Floats = NDArray[np.float64]


class Judged(NamedTuple):
    """Give the probabilities of N words or outputs, and which of them are right."""

    p: Floats  # (N,)
    right: Floats  # (N,): 1 or 0

    @property
    def excess(self) -> float:
        """Return by how much the mean probability exceeds the share that is right: above 0 for over-confidence."""
        return float(self.p.mean() - self.right.mean())

    def bins(self) -> list[tuple[float, float, float]]:
        """Return for each bin its share of all, the mean probability and the share that is right: 0 if it is empty."""
        index = np.minimum(self.p * BINS, BINS - 1).astype(int)
        count, *sums = (np.bincount(index, weights, BINS) for weights in (np.ones_like(self.p), *self))
        return [*zip(*np.array([count / len(index), *sums / np.maximum(count, 1)]).tolist(), strict=True)]

    @property
    def error(self) -> float:
        """Return the expected calibration error: how far probability and accuracy are apart in a bin, on average."""
        return sum(share * abs(p - right) for share, p, right in self.bins())


class Outputs(NamedTuple):
    """Describe the N outputs of a search, one for each unseen sentence of each seed."""

    log_p: Floats  # (N,): of all tokens together, in nats
    tokens: Floats  # (N,): how many, with EOS
    right: Floats  # (N,): 1 where all of them are, else 0
    long: Floats  # (N,): 1 where the reference has more than MIDDLE words, else 0

    def means(self) -> tuple[float, ...]:
        """Return the mean probability, the share that is right, their difference, and the log-probability per token."""
        p, right = float(np.exp(self.log_p).mean()), float(self.right.mean())
        return p, right, p - right, float(self.log_p.sum() / self.tokens.sum())

    def areas(self) -> tuple[float, ...]:
        """Return how well log_p, its mean over tokens, and tokens find wrong outputs, and log_p long sentences."""
        scores = -self.log_p, -self.log_p / self.tokens, self.tokens
        return *(area(score, self.right == 0) for score in scores), area(-self.log_p, self.long == 1)


def area(score: Floats, positive: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve: how often a positive (N,) has a higher score (N,) than a negative, equal
    scores counted half; 0.5 where there are none of a kind.
    """
    above = np.sign(score[positive][:, None] - score[~positive])
    return float(above.mean() + 1) / 2 if above.size else 0.5


@torch.no_grad()
def judge_words(model: Model, pairs: list[Pair]) -> Judged:
    """Judge the word that the model prefers at each place of the targets, given the right words before it."""
    batch = make_batch(pairs)
    p, choice = model(batch.source, batch.target, batch.real).double().softmax(-1).max(-1)
    return Judged(p.numpy(), (choice == batch.labels[batch.real]).double().numpy())


def search_outputs(model: Model, pairs: list[Pair], search: str) -> Outputs:
    """Search for the targets of the pairs in a way of SEARCHES, and compare them with what comes out."""
    source, lengths = source_batch([source for source, _ in pairs]), [len(target) + 5 for _, target in pairs]
    spec = OutputSpec(BOS, EOS, torch.tensor(lengths))
    if beams := SEARCHES[search]:
        outputs = BeamSearch(model, source, spec, beams, n_best=1).run()
    else:
        keys = torch.from_numpy(np.random.default_rng(0).integers(2**62, size=(len(pairs), max(lengths))))
        outputs = finish(sample(model, source, spec, Sampling(), keys))
    rows = [
        (h.score, len(h.tokens) + h.finished, h.finished and h.tokens == target, len(target) > MIDDLE)
        for (h,), (_, target) in zip(outputs, pairs, strict=True)
    ]
    return Outputs(*np.array(rows, dtype=float).T)


def claims(words: dict[str, Judged], outputs: dict[tuple[str, str], Outputs]) -> Claims:
    """Return each claim and whether it holds. words: by setting; outputs: by setting and search."""
    early, plain, smooth = (words[name] for name in SETTINGS)
    _, _, excess, _ = zip(*(outputs[PLAIN, search].means() for search in SEARCHES), strict=True)
    verdicts = {
        f"Without smoothing the preferred words have a mean probability of {plain.p.mean():.3f}, and "
        f"{plain.right.mean():.3f} are right: the model is [over-confident|not "
        "over-confident].": plain.excess > CLEARLY,
        f"The probability minus the accuracy was {early.excess:+.3f} after a quarter of the steps and is "
        f"{plain.excess:+.3f} after all: learning longer from the same sentences [makes a model more over-confident|"
        "does not make a model more over-confident].": plain.excess > early.excess + CLEARLY,
        f"With smoothing 0.1 the probability is {smooth.p.mean():.3f}, and {smooth.right.mean():.3f} are right: the "
        "model is [under-confident|not under-confident].": smooth.excess < -CLEARLY,
        f"The calibration error of probabilities is {smooth.error:.3f} with smoothing, {plain.error:.3f} without: it "
        "[brings them closer to the truth|brings them no closer to it].": smooth.error < plain.error - CLEARLY,
        f"Without smoothing, the probability of an output minus the share that is right is {excess[0]:+.3f} for "
        f"sampling, {excess[1]:+.3f} for greedy search and {excess[2]:+.3f} for the beam: [the harder a search looks, "
        "the more it finds what is overestimated|looking harder does not always find what is more "
        "overestimated].": excess[0] < excess[1] < excess[2],
    }
    for name in (PLAIN, SMOOTH):
        beam = outputs[name, BEAM]
        (p, right, too_high, _), (total, mean, length, by_length) = beam.means(), beam.areas()
        verdicts |= {
            f"Outputs of the beam ({name}) have a probability of {p:.3f} on average, and {right:.3f} are right: "
            "[fewer than their probability says|not fewer than their probability says].": too_high > CLEARLY,
            f"The log-probability of an output ({name}) tells long sentences from short ones with an area of "
            f"{by_length:.3f}, and wrong outputs from right ones with {total:.3f}: it ranks [by length more than by "
            "quality|by quality at least as much as by length].": by_length > total + CLEARLY,
            f"Wrong outputs ({name}) are told from right ones with an area of {mean:.3f} by the mean per token, "
            f"{total:.3f} by the sum and {length:.3f} by the length alone: the mean is [clearly better|not clearly "
            "better].": mean > max(total, length) + CLEARLY,
        }
    return verdicts


@experiment(
    "Calibration: probability is not truth",
    "common teaching; section 5.4",
    "A probability is no chance of being right: a model that learns for long becomes over-confident, which smoothing "
    "cures; a search finds what the model overestimates; and whole outputs are ranked by length more than by quality.",
)
def run(effort: Effort) -> Findings:
    """Train with and without smoothing; compare probabilities of words and of outputs with how often they are right."""
    words: dict[str, Judged] = {}
    outputs: dict[tuple[str, str], Outputs] = {}
    for name, (smoothing, full) in SETTINGS.items():
        tests: list[tuple[Model, list[Pair]]] = []
        for seed in effort.seeds:
            model = train_on(REVERSING.pairs(CORPUS, seed), smoothing, steps := effort.scale(full), seed)
            tests.append((model, REVERSING.pairs(UNSEEN, seed + 1_000_000)))
        words[name] = Judged(*np.hstack([judge_words(*test) for test in tests]))
        for search in SEARCHES:
            outputs[name, search] = Outputs(*np.hstack([search_outputs(*test, search) for test in tests]))

    def draw_reliability(figure: Any) -> None:
        axes = figure.subplots()
        accuracies = {name: [right for _, _, right in judged.bins()] for name, judged in words.items()}
        draw_bars(axes, [f"{n / BINS:g}–{(n + 1) / BINS:g}" for n in range(BINS)], accuracies)
        axes.plot(axes.get_xticks(), (np.arange(BINS) + 0.5) / BINS, "k:o", ms=3)
        axes.set(xlabel="probability of the preferred word", ylabel="share that is right", ylim=(0, 1))

    return Findings(
        f"Reversing 3 to 12 of 27 words, learned from {CORPUS} sentences, again and again: {steps} "
        f"steps of {BATCH} sentences, d_model {CONFIG.d_model}, one layer on each side, {effort}; tested on {UNSEEN} "
        "unseen sentences for each seed. Words follow the right words; an output is right if all its tokens are. An "
        "area is that under the ROC curve: how often the wrong one of two outputs has the worse score, 0.5 by chance.",
        claims(words, outputs),
        {
            "Words": Table(
                "setting | probability | right | difference | expected calibration error",
                [(name, *np.mean(each, 1).tolist(), each.excess, each.error) for name, each in words.items()],
            ),
            "Outputs": Table(
                "setting | search | probability | right | difference | nats per token | area: sum | area: mean | "
                "area: length | area of the sum: long sentences",
                [(*key, *each.means(), *each.areas()) for key, each in outputs.items()],
            ),
        },
        {
            "reliability": Figure(
                "Share of the preferred words that are right, by their probability. Dotted: true probabilities.",
                draw_reliability,
            )
        },
    )
