"""Label smoothing: what is asked for, the best loss that can be reached, and what a model learns from it.

V is the number of words.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.batches import Batch
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Pair, copying, words
from dragoman.model.transformer import Transformer
from dragoman.training.loss import output_loss
from dragoman.training.optimizer import adam, paper_rate

SMOOTHINGS = (0.0, 0.1, 0.2)  # rows D of Table 3 and the base model
PAPER = 0.1
WORDS = 5  # of the worked example
TASK = copying(vocabulary=30, shortest=3, longest=10)
CORPUS, NOISE, UNSEEN, BATCH = 400, 0.1, 512, 50  # pairs to learn from, wrong words among them, pairs to judge by
CONFIG = TransformerConfig(
    d_model=64,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=128),
    dropout=0.0,
)
WARMUP = 50


def smoothed(count: int, smoothing: float) -> tuple[float, float]:
    """What is asked for the right word and for each other one, of `count` words."""
    return 1 - smoothing + smoothing / count, smoothing / count


def floor(count: int, smoothing: float) -> float:
    """The lowest cross-entropy with smoothed labels, in nats: their entropy."""
    right, other = smoothed(count, smoothing)
    return -sum(times * p * math.log(p) for times, p in ((1, right), (count - 1, other)) if p)


def loss_at(probability: float, count: int, smoothing: float) -> float:
    """The cross-entropy where the right word gets `probability`, below 1, and the others share the rest evenly."""
    right, other = smoothed(count, smoothing)
    return -right * math.log(probability) - (count - 1) * other * math.log((1 - probability) / (count - 1))


def descended(count: int, smoothing: float, steps: int = 500) -> tuple[float, list[float]]:
    """The loss and the probabilities, the right word first, after following the gradient of our loss to its end."""
    identity, label = torch.eye(count, dtype=torch.float64), torch.tensor([0])
    logits = torch.zeros(1, count, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        loss = output_loss(logits, identity, None, label, smoothing)
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - 5 * gradient).detach().requires_grad_()
    return float(loss.detach()), logits.softmax(-1)[0].tolist()


def noisy(pairs: list[Pair], seed: int) -> list[Pair]:
    """The pairs with some words of the targets replaced by any other."""
    random = np.random.default_rng(seed)
    return [
        (source, [any_ if wrong else word for word, any_, wrong in zip(
            target, words(random, TASK.vocabulary, len(target)), random.random(len(target)) < NOISE, strict=True
        )])
        for source, target in pairs
    ]  # fmt: skip


def trained(smoothing: float, steps: int, seed: int) -> Transformer:
    """A model that saw the same noisy sentences again and again."""
    torch.manual_seed(seed)
    model = Transformer(CONFIG, TASK.vocabulary)
    pairs, optimizer = noisy(TASK.pairs(CORPUS, seed), seed), adam(model)
    random, rounds = np.random.default_rng(seed), CORPUS // BATCH
    for step in range(steps):
        if step % rounds == 0:
            order = random.permutation(CORPUS)
        chosen = [pairs[i] for i in order[step % rounds * BATCH :][:BATCH]]
        batch = Batch.of(*map(list, zip(*chosen, strict=True)))
        vectors = model.vectors(batch.target, model.start(batch.source), batch.real)
        loss = output_loss(vectors, model.output.weight, None, batch.labels[batch.real], smoothing) / batch.tokens
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = paper_rate(step + 1, CONFIG.d_model, WARMUP) / 4
        optimizer.step()
    return model.eval()


@dataclass(frozen=True)
class Judged:
    """Of unseen words without noise."""

    right: Tensor  # probability of the right word
    highest: Tensor  # probability of the word that the model would choose
    accuracy: float

    @property
    def perplexity(self) -> float:
        return float((-self.right.log().mean()).exp())


@torch.no_grad()
def judged(model: Transformer, seed: int) -> Judged:
    pairs = TASK.pairs(UNSEEN, seed + 1_000_000)
    batch = Batch.of(*map(list, zip(*pairs, strict=True)))
    p = model(batch.source, batch.target, batch.real).double().softmax(-1)
    labels = batch.labels[batch.real]
    highest, choice = p.max(-1)
    return Judged(p.gather(1, labels[:, None])[:, 0], highest, float((choice == labels).double().mean()))


@dataclass(frozen=True)
class Trial:
    """All seeds of one smoothing."""

    smoothing: float
    judged: tuple[Judged, ...]

    @property
    def highest(self) -> float:
        return float(np.mean([float(one.highest.mean()) for one in self.judged]))

    @property
    def right(self) -> float:
        return float(np.mean([float(one.right.mean()) for one in self.judged]))

    @property
    def perplexity(self) -> float:
        return float(np.mean([one.perplexity for one in self.judged]))

    @property
    def accuracy(self) -> float:
        return float(np.mean([one.accuracy for one in self.judged]))


def judge_floor(loss: float, right: float, other: float) -> Verdict:
    """Whether following the gradient ends where the entropy of the labels says."""
    least, (wanted, rest) = floor(WORDS, PAPER), smoothed(WORDS, PAPER)
    seen = abs(loss - least) < 1e-6 and abs(right - wanted) < 1e-4 and abs(other - rest) < 1e-4
    return Verdict(
        seen,
        f"Among {WORDS} words the labels ask {wanted:.2f} and {rest:.2f}; the gradient ends at {right:.4f} and "
        f"{other:.4f} with a loss of {loss:.4f}, "
        + (f"the entropy of the labels: no model gets below {least:.4f}." if seen else f"not at {least:.4f}."),
    )


def judge_sureness(plain: Trial, smooth: Trial) -> Verdict:
    seen = smooth.highest < plain.highest
    return Verdict(
        seen,
        f"The word that the model prefers has a probability of {smooth.highest:.3f} on average with smoothing "
        f"{smooth.smoothing:g} and {plain.highest:.3f} without: it learned to be {'less' if seen else 'no less'} sure.",
    )


def judge_perplexity(plain: Trial, smooth: Trial) -> Verdict:
    seen = smooth.perplexity > plain.perplexity
    return Verdict(
        seen,
        f"Perplexity on unseen words is {smooth.perplexity:.3f} with smoothing and {plain.perplexity:.3f} without: "
        + ("smoothing hurts it." if seen else "smoothing does not hurt it when the words to learn from are noisy."),
    )


def judge_accuracy(plain: Trial, smooth: Trial) -> Verdict:
    seen = smooth.accuracy > plain.accuracy + 0.002
    return Verdict(
        seen,
        f"Of the unseen words {smooth.accuracy:.2%} are right with smoothing and {plain.accuracy:.2%} without"
        + (": smoothing helps." if seen else ": it does not help by more than a fifth of a percent."),
    )


def run(effort: Effort) -> Findings:
    steps = effort.of(800)
    loss, (right, other, *_) = descended(WORDS, PAPER)
    trials = [
        Trial(smoothing, tuple(judged(trained(smoothing, steps, seed), seed) for seed in effort.seeds))
        for smoothing in SMOOTHINGS
    ]
    plain, smooth = trials[:2]
    return Findings(
        setting=f"The worked example: {WORDS} words, smoothing {PAPER}. Then copying 3 to 10 of 27 words: {CORPUS} "
        f"sentences, of which {NOISE:.0%} of the target words are wrong, {steps} steps of {BATCH} sentences, d_model "
        f"{CONFIG.d_model}, one layer on each side, seeds {', '.join(map(str, effort.seeds))}; judged by {UNSEEN} "
        "sentences that are new and right.",
        verdicts=(
            judge_floor(loss, right, other),
            judge_sureness(plain, smooth),
            judge_perplexity(plain, smooth),
            judge_accuracy(plain, smooth),
        ),
        tables=(
            Table(
                "The best loss that can be reached",
                ("words", "smoothing", "right word", "each other word", "lowest loss (nats)", "loss by descent"),
                tuple(
                    (count, part, *smoothed(count, part), floor(count, part), descended(count, part)[0])
                    for count in (WORDS, TASK.vocabulary)
                    for part in SMOOTHINGS[1:]
                ),
            ),
            Table(
                "Learned with and without smoothing",
                (
                    "smoothing", "probability of the preferred word", "probability of the right word", "perplexity",
                    "accuracy", "standard deviation of the accuracy",
                ),
                tuple(
                    (
                        trial.smoothing, trial.highest, trial.right, trial.perplexity, trial.accuracy,
                        float(np.std([one.accuracy for one in trial.judged])),
                    )
                    for trial in trials
                ),
            ),
        ),
        figures=(
            Figure(
                "floor",
                f"The loss by the probability of the right word, the others sharing the rest, among {WORDS} words. "
                "With smoothing the lowest loss is not where the model is sure; dots mark it.",
                draw_floor,
            ),
            Figure(
                "sureness",
                "How sure the trained models are: the share of unseen words whose preferred word has at most this "
                "probability. The dotted lines are what the smoothed labels ask for.",
                lambda figure: draw_sureness(figure, trials),
            ),
        ),
    )  # fmt: skip


def draw_floor(figure: Any) -> None:
    axes = figure.subplots()
    places = np.linspace(0.05, 0.999, 400)
    for index, smoothing in enumerate(SMOOTHINGS):
        curve = [loss_at(float(p), WORDS, smoothing) for p in places]
        look = {**style(index), "marker": ""}
        axes.plot(places, curve, label=f"smoothing {smoothing:g}", **look)
        if smoothing:
            axes.plot(smoothed(WORDS, smoothing)[0], floor(WORDS, smoothing), "o", color=look["color"])
    axes.set_xlabel("probability of the right word")
    axes.set_ylabel("loss (nats)")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def draw_sureness(figure: Any, trials: list[Trial]) -> None:
    axes = figure.subplots()
    for index, trial in enumerate(trials):
        values = np.sort(torch.cat([one.highest for one in trial.judged]).numpy())
        look = style(index)
        share = np.arange(1, len(values) + 1) / len(values)
        label = f"smoothing {trial.smoothing:g}"
        axes.plot(values, share, label=label, markevery=len(values) // 8 + 1, **look)
        if trial.smoothing:
            wanted, _ = smoothed(TASK.vocabulary, trial.smoothing)
            axes.axvline(wanted, color=look["color"], linestyle=":", linewidth=1)
    axes.set_xlabel("probability of the preferred word")
    axes.set_ylabel("share of words")
    axes.set_xlim(0, 1.01)
    axes.legend(frameon=False)


EXPERIMENT = Experiment(
    title="Label smoothing",
    source="the paper, section 5.4 and Table 3, rows D",
    claim="Smoothing the labels by 0.1 hurts perplexity, as the model learns to be less sure, but improves accuracy "
    "and BLEU.",
    run=run,
)
