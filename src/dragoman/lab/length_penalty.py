"""Beam search and the length penalty: how long translations get, and whether a wide beam finds the best there is."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dragoman.config import AttentionConfig, FeedForwardConfig, TransformerConfig
from dragoman.data.batches import Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.search import OutputSpec, beam_search, length_penalty
from dragoman.inspection.plots.training import style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Table, Verdict
from dragoman.lab.tasks import Pair, Task, copying, learn, words
from dragoman.model import Model, build

PAPER = 0.6
ALPHAS = (0.0, 0.3, 0.6, 1.0, 1.5)
BEAMS = (1, 2, 4, 8)
LENGTHS = (5, 10, 20)
FILLERS, OFTEN, VOCABULARY = (3, 4), 0.6, 15  # words that may follow any other, how often one does
CONFIG = TransformerConfig(
    d_model=64,
    encoder_layers=1,
    decoder_layers=1,
    attention=AttentionConfig(heads=4),
    feed_forward=FeedForwardConfig(d_ff=128),
    dropout=0.0,
)
TRIED, LONGEST = 5, 4  # a vocabulary so small that every output of so many tokens can be tried
OUTPUTS = sum((TRIED - 1) ** n for n in range(LONGEST)) + (TRIED - 1) ** LONGEST  # those that end, those cut off


def chatting() -> Task:
    """The target is the source with a filler after most words, each time another one: no one target is probable."""

    def draw(random: np.random.Generator) -> Pair:
        ids = words(random, VOCABULARY - len(FILLERS), int(random.integers(3, 7)))
        source = [word + len(FILLERS) for word in ids]
        target: Ids = []
        for word in source:
            target.append(word)
            if random.random() < OFTEN:
                target.append(int(random.choice(FILLERS)))
        return source, target

    return Task("copy, with fillers", VOCABULARY, draw)


def every_output(model: Model, source: Ids, alpha: float) -> dict[tuple[int, ...], float]:
    """All outputs of at most LONGEST tokens, the end included, with their scores: an exhaustive search."""
    others = [word for word in range(TRIED) if word != EOS]
    found: dict[tuple[int, ...], float] = {}
    for length in range(LONGEST + 1):
        outputs = list(itertools.product(others, repeat=length))
        labels = torch.tensor([[*output, EOS][:LONGEST] for output in outputs])
        target = torch.cat([torch.full((len(outputs), 1), BOS), labels[:, :-1]], 1)
        with torch.inference_mode():
            log_p = model(source_batch([source] * len(outputs)), target).log_softmax(-1)
        totals = log_p.gather(2, labels[:, :, None]).sum((1, 2)) / length_penalty(labels.size(1), alpha)
        found |= dict(zip(outputs, totals.tolist(), strict=True))
    return found


def exhaustive_gap(steps: int, seed: int) -> tuple[int, int, float]:
    """How often the widest beam finds the best of all outputs, of how many, and by how much scores differ at most."""
    task = copying(vocabulary=TRIED, shortest=1, longest=3)
    torch.manual_seed(seed)
    model = build(replace(CONFIG, d_model=16, share="none"), task.vocabulary)
    learn(model, task, steps=steps, seed=seed, batch=16)
    model.eval()
    agreed, tried, gap = 0, 0, 0.0
    for source, _ in task.pairs(4, seed):
        for alpha in (0.0, PAPER, 1.5):
            everything = every_output(model, source, alpha)
            best = max(everything, key=lambda output: everything[output])
            found = beams_of(model, [source], OUTPUTS, alpha, LONGEST)[0]
            agreed, tried = agreed + (tuple(found.tokens) == best), tried + 1
            gap = max(gap, abs(found.score - everything[best]))
    return agreed, tried, gap


def beams_of(model: Model, sources: list[Ids], beams: int, alpha: float, longest: int) -> list[Any]:
    """The best hypothesis of each source."""
    output = OutputSpec(BOS, EOS, torch.full((len(sources),), longest), alpha)
    found = beam_search(model, source_batch(sources), output, beams=beams, n_best=1)
    return [hypotheses[0] for hypotheses in found]


@dataclass(frozen=True)
class Searched:
    """What a beam of some width finds with some penalty; means over sentences and seeds."""

    beams: int
    alpha: float
    length: float  # words
    log_p: float  # nats, of a whole output
    lengths: tuple[float, ...]  # by seed


def searched(models: dict[int, Model], sources: list[Ids], beams: int, alpha: float) -> Searched:
    found = [beams_of(model, sources, beams, alpha, 3 * 6) for model in models.values()]
    lengths = tuple(float(np.mean([len(one.tokens) for one in some])) for some in found)
    totals = [
        one.score * length_penalty(len(one.tokens) + one.finished, alpha) for some in found for one in some
    ]  # the penalty taken off again
    return Searched(beams, alpha, float(np.mean(lengths)), float(np.mean(totals)), lengths)


def judge_length(by_alpha: list[Searched], reference: float) -> Verdict:
    """Without a penalty outputs are too short, and they grow with alpha."""
    lengths = [row.length for row in by_alpha]
    grows = all(a <= b for a, b in itertools.pairwise(lengths)) and lengths[0] < lengths[-1]
    seen = grows and lengths[0] < reference
    nearest = min(by_alpha, key=lambda row: abs(row.length - reference))
    return Verdict(
        seen,
        f"References have {reference:.2f} words on average; a beam of {by_alpha[0].beams} gives {lengths[0]:.2f} "
        f"without a penalty and {', '.join(f'{row.length:.2f} at alpha {row.alpha:g}' for row in by_alpha[1:])}: "
        + ("too short without, longer with it" if seen else "alpha does not lengthen what is too short")
        + f"; alpha {nearest.alpha:g} comes nearest.",
    )


def judge_width(by_beams: list[Searched]) -> Verdict:
    """Without a penalty wider beams find what is more probable, and that is shorter."""
    first, last = by_beams[0], by_beams[-1]
    seen = last.log_p > first.log_p and last.length < first.length
    return Verdict(
        seen,
        f"Without a penalty a beam of {last.beams} finds outputs of log-probability {last.log_p:.3f} and "
        f"{last.length:.2f} words, greedy search {first.log_p:.3f} and {first.length:.2f}: "
        + ("more probable is shorter." if seen else "what is more probable is not shorter here."),
    )


def judge_exhaustive(agreed: int, tried: int, gap: float) -> Verdict:
    seen = agreed == tried and gap < 1e-4
    return Verdict(
        seen,
        f"A beam of {OUTPUTS}, as wide as there are outputs, finds the best of them in {agreed} of {tried} searches; "
        f"scores differ by at most {gap:.1g}.",
    )


def run(effort: Effort) -> Findings:
    steps, task = effort.of(800), chatting()
    models: dict[int, Model] = {}
    for seed in effort.seeds:
        torch.manual_seed(seed)
        models[seed] = build(CONFIG, task.vocabulary)
        learn(models[seed], task, steps=steps, seed=seed)
        models[seed].eval()
    pairs = task.pairs(effort.of(400), effort.seeds[0] + 2_000_000)
    sources = [source for source, _ in pairs]
    reference = float(np.mean([len(target) for _, target in pairs]))
    by_alpha = [searched(models, sources, 4, alpha) for alpha in ALPHAS]
    by_beams = [searched(models, sources, beams, 0.0) for beams in BEAMS]
    outcome = exhaustive_gap(effort.of(200), effort.seeds[0])
    five, ten, twenty = (length_penalty(length, PAPER) for length in LENGTHS)
    return Findings(
        setting=f"Copying 3 to 6 words, each followed by one of {len(FILLERS)} fillers in {OFTEN:.0%} of the cases, so "
        f"that a long target is likely and no single long one is; {steps} steps of 64 sentences, d_model "
        f"{CONFIG.d_model}, one layer on each side, seeds {', '.join(map(str, effort.seeds))}; {len(pairs)} sentences "
        f"are searched. For the exhaustive search {TRIED} words and outputs of at most {LONGEST} tokens: {OUTPUTS}.",
        verdicts=(
            Verdict(
                five < ten < twenty,
                f"Dividing by ((5 + n) / 6)^{PAPER:g} means by {five:.4f} at 5 tokens, {ten:.4f} at 10 and "
                f"{twenty:.4f} at 20.",
            ),
            judge_length(by_alpha, reference),
            judge_width(by_beams),
            judge_exhaustive(*outcome),
        ),
        tables=(
            Table(
                "The length penalty",
                ("tokens", *(f"alpha {alpha:g}" for alpha in ALPHAS)),
                tuple((n, *(length_penalty(n, alpha) for alpha in ALPHAS)) for n in (1, 2, *LENGTHS, 50)),
            ),
            Table("Beam 4, by penalty", ("alpha", *COLUMNS), tuple((row.alpha, *cells(row)) for row in by_alpha)),
            Table("No penalty, by beam", ("beams", *COLUMNS), tuple((row.beams, *cells(row)) for row in by_beams)),
            Table(
                "The widest beam and all outputs",
                ("searches", "same best output", "largest difference of scores"),
                ((outcome[1], outcome[0], outcome[2]),),
            ),
        ),
        figures=(
            Figure("penalty", "What log-probabilities are divided by, by the length of the output.", draw_penalty),
            Figure(
                "length",
                "The mean length of outputs: on the left by alpha with a beam of 4, on the right by the width of the "
                "beam without a penalty. The dotted line is the mean length of the references.",
                lambda figure: draw_lengths(figure, by_alpha, by_beams, reference),
            ),
        ),
    )


COLUMNS = ("words per output", "standard deviation", "log-probability (nats)")


def cells(row: Searched) -> tuple[float, ...]:
    return row.length, float(np.std(row.lengths)), row.log_p


def draw_penalty(figure: Any) -> None:
    axes = figure.subplots()
    lengths = range(1, 51)
    for index, alpha in enumerate(ALPHAS):
        penalties = [length_penalty(length, alpha) for length in lengths]
        axes.plot(lengths, penalties, label=f"alpha {alpha:g}", markevery=(index, 7), **style(index))
    axes.set_xlabel("tokens of the output")
    axes.set_ylabel("length penalty")
    axes.grid(color="0.9", linewidth=0.6)
    axes.legend(frameon=False)


def draw_lengths(figure: Any, by_alpha: list[Searched], by_beams: list[Searched], reference: float) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
    left.plot([row.alpha for row in by_alpha], [row.length for row in by_alpha], **style(0))
    left.set_xlabel("alpha")
    left.set_ylabel("words per output")
    right.plot([row.beams for row in by_beams], [row.length for row in by_beams], **style(1))
    right.set_xscale("log", base=2)
    right.set_xticks(BEAMS, [str(beams) for beams in BEAMS])
    right.set_xlabel("beams")
    for axes in (left, right):
        axes.axhline(reference, color="0.4", linestyle=":", linewidth=1)
        axes.grid(color="0.9", linewidth=0.6)


EXPERIMENT = Experiment(
    title="Beam search and the length penalty",
    source="the paper, section 6.1; Wu et al. 2016, equation 14",
    claim="Log-probabilities fall with every token, so that a search for the most probable output prefers short ones; "
    "dividing by ((5 + n) / 6)^0.6 makes up for it. A beam of 4 is used; a beam that keeps everything is an exhaustive "
    "search.",
    run=run,
)
