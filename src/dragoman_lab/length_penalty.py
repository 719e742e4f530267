"""Beam search and the length penalty: how long translations get, and whether a wide beam finds the best there is."""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from dragoman.data.batches import Ids, source_batch
from dragoman.data.tokenizer import BOS, EOS
from dragoman.decoding.search import BeamSearch, OutputSpec, length_penalty
from dragoman.model import Model, build
from dragoman_lab.drawing import Panel, lines
from dragoman_lab.experiment import Claims, Effort, Figure, Findings, Table, experiment
from dragoman_lab.tasks import Pair, Task, copying, learn, random_words, small

PAPER = 0.6
ALPHAS = (0.0, 0.3, 0.6, 1.0, 1.5)
BEAMS = (1, 2, 4, 8)
LENGTHS = (5, 10, 20)
FILLERS, OFTEN, VOCABULARY = (3, 4), 0.6, 15  # words that may follow any other, how often one does
CONFIG = small(64)
MAX_OUTPUT = 3 * 6  # tokens: three for each of up to 6 words, of which a target has two at most
TRIED, MAX_LENGTH = 5, 4  # a vocabulary so small that every output of so many tokens can be tried
OUTPUTS = sum((TRIED - 1) ** n for n in range(MAX_LENGTH)) + (TRIED - 1) ** MAX_LENGTH  # that end, that are cut off


def copying_with_fillers() -> Task:
    """Return the task of copying 3 to 6 words, each followed with probability OFTEN by a random filler: a long target
    is likely, and no single long one is.
    """

    def draw(random: np.random.Generator) -> Pair:
        ids = random_words(random, VOCABULARY - len(FILLERS), int(random.integers(3, 7)))
        source = [word + len(FILLERS) for word in ids]
        target: Ids = []
        for word in source:
            target.append(word)
            if random.random() < OFTEN:
                target.append(int(random.choice(FILLERS)))
        return source, target

    return Task("copy, with fillers", VOCABULARY, draw)


def score_every_output(model: Model, source: Ids, alpha: float) -> dict[tuple[int, ...], float]:
    """Return the score of every possible output of at most MAX_LENGTH tokens, EOS included, by its tokens without EOS:
    an exhaustive search. alpha: of the length penalty. The vocabulary is of TRIED words.
    """
    others = [word for word in range(TRIED) if word != EOS]
    scores: dict[tuple[int, ...], float] = {}
    for length in range(MAX_LENGTH + 1):
        outputs = list(itertools.product(others, repeat=length))
        labels = torch.tensor([[*output, EOS][:MAX_LENGTH] for output in outputs])
        target = torch.cat([torch.full((len(outputs), 1), BOS), labels[:, :-1]], 1)
        with torch.inference_mode():
            log_p = model(source_batch([source] * len(outputs)), target).log_softmax(-1)
        totals = log_p.gather(2, labels[:, :, None]).sum((1, 2)) / length_penalty(labels.size(1), alpha)
        scores |= dict(zip(outputs, totals.tolist(), strict=True))
    return scores


def compare_with_exhaustive_search(steps: int, seed: int) -> tuple[int, int, float]:
    """Train a small model, then compare a beam as wide as there are outputs with an exhaustive search; return in how
    many searches both find the same best output, how many there were, and the largest difference of the best scores.
    """
    task = copying(vocabulary=TRIED, shortest=1, longest=3)
    torch.manual_seed(seed)
    model = build(replace(CONFIG, d_model=16, share="none"), task.vocabulary)
    learn(model, task, steps=steps, seed=seed, batch=16)
    model.eval()
    agreed, tried, gap = 0, 0, 0.0
    for source, _ in task.pairs(4, seed):
        for alpha in (0.0, PAPER, 1.5):
            everything = score_every_output(model, source, alpha)
            best = max(everything, key=lambda output: everything[output])
            widest = best_hypotheses(model, [source], OUTPUTS, alpha, MAX_LENGTH)[0]
            agreed, tried = agreed + (tuple(widest.tokens) == best), tried + 1
            gap = max(gap, abs(widest.score - everything[best]))
    return agreed, tried, gap


def best_hypotheses(model: Model, sources: list[Ids], beams: int, alpha: float, max_length: int) -> list[Any]:
    """Return the best hypothesis of beam search for each source, of at most `max_length` tokens. beams: width; alpha:
    of the length penalty.
    """
    output = OutputSpec(BOS, EOS, torch.full((len(sources),), max_length), alpha)
    hypotheses = BeamSearch(model, source_batch(sources), output, beams, n_best=1).run()
    return [n_best[0] for n_best in hypotheses]


@dataclass(frozen=True)
class Searched:
    """Describe what a beam of some width finds with some penalty; means over sentences and seeds."""

    beams: int
    alpha: float
    length: float  # words
    log_p: float  # nats, of a whole output
    lengths: tuple[float, ...]  # by seed


def measure_search(models: dict[int, Model], sources: list[Ids], beams: int, alpha: float) -> Searched:
    """Search for all sources with the model of each seed (the keys), for outputs of at most MAX_OUTPUT tokens; return
    the mean length and log-probability of the best hypotheses, and the mean length by seed.
    """
    hypotheses = [best_hypotheses(model, sources, beams, alpha, MAX_OUTPUT) for model in models.values()]
    lengths = tuple(float(np.mean([len(hypothesis.tokens) for hypothesis in some])) for some in hypotheses)
    penalties = [
        [length_penalty(len(hypothesis.tokens) + hypothesis.finished, alpha) for hypothesis in some]
        for some in hypotheses
    ]
    totals = [
        hypothesis.score * penalty  # the penalty taken off again
        for some, each in zip(hypotheses, penalties, strict=True)
        for hypothesis, penalty in zip(some, each, strict=True)
    ]
    return Searched(beams, alpha, float(np.mean(lengths)), float(np.mean(totals)), lengths)


def claims(
    penalty: list[float],  # by LENGTHS
    by_alpha: list[Searched],
    by_beams: list[Searched],
    reference: float,  # mean length
    exhaustive: tuple[int, int, float],  # of `compare_with_exhaustive_search`
) -> Claims:
    """Return each claim and whether it holds."""
    agreed, tried, gap = exhaustive
    lengths = [row.length for row in by_alpha]
    mean_lengths = ", ".join(f"{row.length:.2f} at alpha {row.alpha:g}" for row in by_alpha[1:])
    grows = all(a <= b for a, b in itertools.pairwise(lengths)) and lengths[0] < lengths[-1]
    greedy, widest = by_beams[0], by_beams[-1]
    nearest = min(by_alpha, key=lambda row: abs(row.length - reference)).alpha
    return {
        "The scores of longer outputs are [divided by more|not divided by more]: ((5 + n) / 6)^0.6 is "
        f"{penalty[0]:.4f} at 5 tokens, {penalty[1]:.4f} at 10 and {penalty[2]:.4f} at "
        "20.": penalty[0] < penalty[1] < penalty[2],
        f"References have {reference:.2f} words on average; a beam of 4 gives {lengths[0]:.2f} without a penalty and "
        f"{mean_lengths}: [without it outputs are too short, with it they are longer|alpha does not lengthen outputs "
        f"that are too short]; alpha {nearest:g} comes closest.": grows and lengths[0] < reference,
        f"Without a penalty, a beam of {widest.beams} finds outputs with a mean log-probability of {widest.log_p:.3f} "
        f"and {widest.length:.2f} words, greedy search {greedy.log_p:.3f} and {greedy.length:.2f}: more probable "
        "outputs are [shorter|not shorter here].": widest.log_p > greedy.log_p and widest.length < greedy.length,
        "A beam as wide as the number of possible outputs [always finds|does not always find] the best one: in "
        f"{agreed} of {tried} searches; scores differ by at most {gap:.1g}.": agreed == tried and gap < 1e-4,
    }


@experiment(
    "Beam search and the length penalty",
    "section 6.1; Wu et al. 2016, equation 14",
    "Log-probabilities fall with every token, so a search for the most probable output prefers short ones; dividing by "
    "((5 + n) / 6)^0.6 makes up for this. The paper uses a beam of 4; a beam that keeps everything is an exhaustive "
    "search.",
)
def run(effort: Effort) -> Findings:
    """Train models, and search with them at several widths of the beam and alphas of the penalty."""
    steps, task = effort.scale(800), copying_with_fillers()
    models: dict[int, Model] = {}
    for seed in effort.seeds:
        torch.manual_seed(seed)
        models[seed] = build(CONFIG, task.vocabulary)
        learn(models[seed], task, steps=steps, seed=seed)
        models[seed].eval()
    pairs = task.pairs(effort.scale(400), effort.seeds[0] + 2_000_000)
    sources = [source for source, _ in pairs]
    reference = float(np.mean([len(target) for _, target in pairs]))
    by_alpha = [measure_search(models, sources, 4, alpha) for alpha in ALPHAS]
    by_beams = [measure_search(models, sources, beams, 0.0) for beams in BEAMS]
    exhaustive = agreed, tried, gap = compare_with_exhaustive_search(effort.scale(200), effort.seeds[0])
    columns = "words per output | standard deviation | log-probability (nats)"
    lengths = range(1, 51)
    penalties = {f"alpha {alpha:g}": (lengths, [length_penalty(n, alpha) for n in lengths]) for alpha in ALPHAS}
    return Findings(
        f"Copying 3 to 6 words, each followed by one of {len(FILLERS)} fillers in {OFTEN:.0%} of the cases, so that "
        f"long targets are likely but no single long target is; {steps} steps of 64 sentences, d_model "
        f"{CONFIG.d_model}, one layer on each side, {effort}; tested on {len(pairs)} sentences. The exhaustive search "
        f"uses {TRIED} words and outputs of at most {MAX_LENGTH} tokens: {OUTPUTS} outputs.",
        claims([length_penalty(n, PAPER) for n in LENGTHS], by_alpha, by_beams, reference, exhaustive),
        {
            "The length penalty": Table(
                " | ".join(["tokens", *penalties]),
                [(n, *(length_penalty(n, alpha) for alpha in ALPHAS)) for n in (1, 2, *LENGTHS, 50)],
            ),
            "Beam 4, by penalty": Table(f"alpha | {columns}", [(row.alpha, *search_cells(row)) for row in by_alpha]),
            "No penalty, by beam": Table(f"beams | {columns}", [(row.beams, *search_cells(row)) for row in by_beams]),
            "The widest beam and all outputs": Table(
                "searches | same best output | largest difference of scores", [(tried, agreed, gap)]
            ),
        },
        {
            "penalty": Figure(
                "What log-probabilities are divided by, by the length of the output.",
                lines(Panel(penalties, "tokens of the output", "length penalty")),
            ),
            "length": Figure(
                "Mean length of outputs by alpha (left, beam 4) and by beam (right, no penalty). Dotted: references.",
                lines(
                    length_panel("alpha", by_alpha, reference), length_panel("beams", by_beams, reference), sharey=True
                ),
            ),
        },
    )


def search_cells(row: Searched) -> tuple[float, ...]:
    """Return the cells of a search: mean length, its standard deviation over seeds, mean log-probability."""
    return row.length, float(np.std(row.lengths)), row.log_p


def length_panel(x: str, rows: list[Searched], reference: float) -> Panel:
    """Return the panel of the mean words per output by the field `x` ("alpha" or "beams") of the searches; a dotted
    line marks the mean length of the references.
    """
    values, log = [getattr(row, x) for row in rows], "x" if x == "beams" else ""
    curves = {"": (values, [row.length for row in rows])}
    return Panel(curves, x, "words per output", log=log, ticks=values, level=reference)
