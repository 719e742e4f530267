"""Label smoothing: the smoothed targets, the best loss that can be reached, and what a model learns from it.

V is the number of words.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.inspection.plots.training import style
from dragoman.model.transformer import Transformer
from dragoman.training.loss import output_loss
from dragoman.training.optimizer import paper_rate
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Pair, copying, make_batch, minimise, random_words, small

SMOOTHINGS = (0.0, 0.1, 0.2)  # rows D of Table 3 and the base model
PAPER = 0.1
WORDS = 5  # of the worked example
TASK = copying(vocabulary=30, shortest=3, longest=10)
CORPUS, NOISE, UNSEEN, BATCH = 400, 0.1, 512, 50  # pairs to learn from, wrong words among them, pairs to test on
CONFIG = small(64)
WARMUP = 50


def smoothed_probabilities(count: int, smoothing: float) -> tuple[float, float]:
    """Return the smoothed target probabilities of the right word and of each other one, among `count` words."""
    return 1 - smoothing + smoothing / count, smoothing / count


def lowest_loss(count: int, smoothing: float) -> float:
    """Return the lowest cross-entropy in nats that any model can reach with smoothed labels among `count` words: their
    entropy.
    """
    right, other = smoothed_probabilities(count, smoothing)
    return -sum(times * p * math.log(p) for times, p in ((1, right), (count - 1, other)) if p)


def loss_at(probability: float, count: int, smoothing: float) -> float:
    """Return the cross-entropy in nats with smoothed labels among `count` words if the right word gets `probability`,
    which is below 1, and the others share the rest evenly.
    """
    right, other = smoothed_probabilities(count, smoothing)
    return -right * math.log(probability) - (count - 1) * other * math.log((1 - probability) / (count - 1))


def descend_to_best_loss(count: int, smoothing: float, steps: int = 500) -> tuple[float, list[float]]:
    """Adjust the logits of `count` words by gradient descent on the training loss; return the last loss in nats and the
    probabilities, that of the right word first.
    """
    identity, label = torch.eye(count, dtype=torch.float64), torch.tensor([0])
    logits = torch.zeros(1, count, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        loss = output_loss(logits, identity, None, label, smoothing)
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - 5 * gradient).detach().requires_grad_()
    return float(loss.detach()), logits.softmax(-1)[0].tolist()


def with_noise(pairs: list[Pair], seed: int) -> list[Pair]:
    """Return the pairs with each target word replaced, with probability NOISE, by a random word, which may
    be the same.
    """
    random, replaced = np.random.default_rng(seed), []
    for source, target in pairs:
        others, wrong = random_words(random, TASK.vocabulary, len(target)), random.random(len(target)) < NOISE
        replaced.append((source, np.where(wrong, others, target).tolist()))
    return replaced


def train_on(pairs: list[Pair], smoothing: float, steps: int, seed: int) -> Transformer:
    """Train a fresh model for so many steps on the same pairs, again and again; return it in eval mode. pairs: of words
    from the vocabulary of TASK, a multiple of BATCH.
    """
    torch.manual_seed(seed)
    model, random = Transformer(CONFIG, TASK.vocabulary), np.random.default_rng(seed)
    order = (chosen for _ in itertools.count() for chosen in random.permutation(len(pairs)).reshape(-1, BATCH))

    def loss() -> Tensor:
        batch = make_batch([pairs[i] for i in next(order)])
        vectors = model.vectors(batch.target, model.start(batch.source), batch.real)
        return output_loss(vectors, model.output.weight, None, batch.labels[batch.real], smoothing) / batch.tokens

    minimise(model, loss, steps, lambda step: paper_rate(step, CONFIG.d_model, WARMUP) / 4)
    return model.eval()


def train_on_noise(smoothing: float, steps: int, seed: int) -> Transformer:
    """Train a fresh model as `train_on` does, on CORPUS noisy pairs."""
    return train_on(with_noise(TASK.pairs(CORPUS, seed), seed), smoothing, steps, seed)


@dataclass(frozen=True)
class Test:
    """Average what a model gives to each word of unseen pairs without noise."""

    right: Tensor  # probability of the right word
    highest: Tensor  # probability of the word that the model would choose
    accuracy: float

    @property
    def perplexity(self) -> float:
        """Return the perplexity of the right words."""
        return float((-self.right.log().mean()).exp())


@torch.no_grad()
def test_model(model: Transformer, seed: int) -> Test:
    """Test a model on UNSEEN pairs without noise, given the right words before each word. The model's mode, train or
    eval, stays.
    """
    batch = make_batch(TASK.pairs(UNSEEN, seed + 1_000_000))
    p = model(batch.source, batch.target, batch.real).double().softmax(-1)
    labels = batch.labels[batch.real]
    highest, choice = p.max(-1)
    return Test(p.gather(1, labels[:, None])[:, 0], highest, float((choice == labels).double().mean()))


@dataclass(frozen=True)
class Trial:
    """Average the results with one smoothing: means over words and seeds."""

    smoothing: float
    highest: float
    right: float
    perplexity: float
    accuracy: float
    deviation: float  # of the accuracy

    @classmethod
    def from_tests(cls, smoothing: float, tests: list[Test]) -> "Trial":
        """Return the means over the tests of all seeds."""
        rows = [(float(t.highest.mean()), float(t.right.mean()), t.perplexity, t.accuracy) for t in tests]
        means = [float(np.mean(column)) for column in zip(*rows, strict=True)]
        return cls(smoothing, *means, float(np.std([t.accuracy for t in tests])))  # type: ignore[call-arg]


def claims(loss: float, right: float, other: float, plain: Trial, smooth: Trial) -> Claims:
    """Return each claim and whether it holds. loss, right, other: after descent, with the probabilities of the right
    word and of each other one; plain, smooth: without smoothing and with 0.1.
    """
    least, (wanted, for_others) = lowest_loss(WORDS, PAPER), smoothed_probabilities(WORDS, PAPER)
    off = max(abs(loss - least) * 100, abs(right - wanted), abs(other - for_others))
    return {
        f"With 5 words the smoothed labels are {wanted:.2f} for the right word and {for_others:.2f} for the others. "
        f"Gradient descent ends at {right:.4f} and {other:.4f} with a loss of {loss:.4f}, [the entropy of the labels: "
        f"no model gets below {least:.4f}|not at their entropy of {least:.4f}].": off < 1e-4,
        f"On average the model gives its preferred word a probability of {smooth.highest:.3f} with smoothing 0.1 and "
        f"{plain.highest:.3f} without: with smoothing it learned to be [less|no less] "
        "sure.": smooth.highest < plain.highest,
        f"Perplexity on unseen words is {smooth.perplexity:.3f} with smoothing and {plain.perplexity:.3f} without: "
        "smoothing [hurts it|does not hurt it when the training labels are "
        "noisy].": smooth.perplexity > plain.perplexity,
        f"Of the unseen words {smooth.accuracy:.2%} are right with smoothing and {plain.accuracy:.2%} without: "
        "smoothing [helps|does not help by more than 0.2 percentage points].": smooth.accuracy > plain.accuracy + 0.002,
    }


@experiment(
    "Label smoothing",
    "section 5.4 and Table 3, rows D",
    "Label smoothing of 0.1 hurts perplexity, because the model learns to be less sure, but improves accuracy and "
    "BLEU.",
)
def run(effort: Effort) -> Findings:
    """Find the best loss for each smoothing, and train models on noisy words with each."""
    steps = effort.scale(800)
    loss, (right, other, *_) = descend_to_best_loss(WORDS, PAPER)
    tests = {s: [test_model(train_on_noise(s, steps, seed), seed) for seed in effort.seeds] for s in SMOOTHINGS}
    trials = [Trial.from_tests(smoothing, each) for smoothing, each in tests.items()]
    return Findings(
        f"The worked example: {WORDS} words, smoothing {PAPER}. Then copying 3 to 10 of 27 words: {CORPUS} sentences "
        f"in which {NOISE:.0%} of the target words are wrong, {steps} steps of {BATCH} sentences, d_model "
        f"{CONFIG.d_model}, one layer on each side, {effort}; tested on {UNSEEN} unseen sentences without errors.",
        claims(loss, right, other, *trials[:2]),
        {
            "The best loss that can be reached": Table(
                "words | smoothing | right word | each other word | lowest loss (nats) | loss by descent",
                [
                    (
                        count,
                        part,
                        *smoothed_probabilities(count, part),
                        lowest_loss(count, part),
                        descend_to_best_loss(count, part)[0],
                    )
                    for count in (WORDS, TASK.vocabulary)
                    for part in SMOOTHINGS[1:]
                ],
            ),
            "Learned with and without smoothing": Table(
                "smoothing | probability of the preferred word | probability of the right word | perplexity | accuracy "
                "| standard deviation of the accuracy",
                [tuple(vars(trial).values()) for trial in trials],
            ),
        },
        {
            "floor": Figure(
                f"The loss by the probability of the right one of {WORDS} words; the others share the rest equally. "
                "Dots: the minima.",
                lines(floor_panel()),
            ),
            "sureness": Figure(
                "Share of unseen words whose preferred word has at most this probability. Dotted: the smoothed labels.",
                lines(sureness_panel(tests)),
            ),
        },
    )


def floor_panel() -> Panel:
    """Return the panel of the loss by the probability of the right word, a curve for each smoothing with a dot at its
    minimum.
    """
    probabilities = np.linspace(0.05, 0.999, 400)
    curves = {
        f"smoothing {s:g}": (probabilities, [loss_at(float(p), WORDS, s) for p in probabilities]) for s in SMOOTHINGS
    }

    def dots(axes: Any) -> None:
        for index, smoothing in enumerate(SMOOTHINGS[1:], start=1):
            axes.plot(
                smoothed_probabilities(WORDS, smoothing)[0],
                lowest_loss(WORDS, smoothing),
                "o",
                color=style(index)["color"],
                ms=9,
            )

    return Panel(curves, "probability of the right word", "loss (nats)", also=dots)


def sureness_panel(tests: dict[float, list[Test]]) -> Panel:
    """Return the panel of the share of words whose preferred word has at most a probability; dotted lines mark the
    smoothed labels. tests: by smoothing, one for each seed.
    """
    values = {s: np.sort(torch.cat([t.highest for t in each]).numpy()) for s, each in tests.items()}
    curves = {f"smoothing {s:g}": (v, np.arange(1, len(v) + 1) / len(v)) for s, v in values.items()}

    def labels(axes: Any) -> None:
        for index, smoothing in enumerate(SMOOTHINGS[1:], start=1):
            wanted, _ = smoothed_probabilities(TASK.vocabulary, smoothing)
            axes.axvline(wanted, color=style(index)["color"], linestyle=":", linewidth=1)
        axes.set_xlim(0, 1.01)

    return Panel(curves, "probability of the preferred word", "share of words", also=labels)
