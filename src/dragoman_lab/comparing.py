"""Train models that differ in one thing on the same sentence pairs for the same number of steps, and compare them.

Each training is a run folder of `dragoman train`, kept under the folder of the report: an interrupted run is resumed, a
finished one is not trained again, comparisons share runs, and further seeds add to those that are there.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dragoman.config import ModelConfig, RunConfig, TrainingConfig
from dragoman.config.presets import TINY
from dragoman.data.corpus import read_corpus
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import LengthGroup, evaluate, scores_by_length
from dragoman.inspection.plots.training import COLOURS, MARKS, read_metrics
from dragoman.model import parameter_count
from dragoman.training.loop import open_journal, train
from dragoman.translation.translator import Translator
from dragoman_lab.drawing import LOSS, Panel, lines
from dragoman_lab.experiment import Claims, Effort, Experiment, Figure, Findings, Sentences, Table

STEPS = 1500  # at full effort
CLEARLY = 1.0  # BLEU from which on one is clearly better than another
LEARNED = 5.0  # BLEU; that two models below it are alike says nothing
GROUPS = 4  # of test sentences, by length

MODEL = TINY.model
TRAINING = replace(TINY.training, ema=0.998, epochs=10_000, patience=0, save_every=500, samples=0)


@dataclass(frozen=True)
class Variant:
    """One model and how it is trained."""

    name: str  # of its run folder
    model: ModelConfig = MODEL
    training: TrainingConfig = TRAINING


@dataclass(frozen=True)
class Trained:
    """Describe the result of one variant with one seed."""

    parameters: int
    minutes: float  # of training, without validation
    dev_loss: float  # nats per token
    bleu: float
    chrf: float
    groups: tuple[LengthGroup, ...]  # of test sentences, from the shortest to the longest
    losses: tuple[tuple[float, float], ...]  # (step, training loss)


@cache
def train_variant(variant: Variant, seed: int, steps: int, sentences: Sentences) -> Trained:
    """Train a variant for so many steps, or resume its run, or find it finished in `sentences.runs`; return its scores
    on the test sentences. A second call with the same arguments returns the same result at once.
    """
    folder = sentences.runs / f"{steps}-steps" / f"{variant.name}-{seed}"
    settings = replace(variant.training, seed=seed, max_steps=steps, validate_every=steps)
    config = RunConfig("tiny", sentences.train, sentences.dev, out=str(folder), model=variant.model, training=settings)
    with open_journal(config) as journal:
        journal.log(f"{variant.name}, seed {seed}")
        progress = train(config, journal)
    translator, corpus = Translator.load(folder / "best"), read_corpus(sentences.test)
    sources, references = zip(*corpus.pairs, strict=True)
    translations = [
        translation.text for translation in translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
    ]
    scores = evaluate(translations, references)
    seconds, losses = progress.seconds, tuple[tuple[float, float], ...]()
    with contextlib.suppress(DragomanError):  # the model counts even if the run's metrics are lost
        metrics = read_metrics(folder)
        losses = tuple(metrics.points("step", "step", "loss"))
        seconds = max((second for _, second in metrics.points("step", "step", "seconds")), default=seconds)
    return Trained(
        parameter_count(translator.model),
        seconds / 60,
        progress.best_loss,
        scores.bleu.value,
        scores.chrf.value,
        tuple(scores_by_length(sources, translations, references, groups=GROUPS)),
        losses,
    )


Runs = Mapping[str, Sequence[Trained]]  # by the label of the variant, one for each seed


def mean_bleu(runs: Sequence[Trained]) -> float:
    """Return the mean BLEU of the runs of a variant."""
    return fmean(run.bleu for run in runs)


def mean_bleu_by_length(runs: Sequence[Trained]) -> list[float]:
    """Return the mean BLEU of the runs of a variant for each group of test sentences, from the shortest to
    the longest.
    """
    return [fmean(group.bleu for group in same) for same in zip(*(run.groups for run in runs), strict=True)]


def are_alike(first: float, second: float) -> bool:
    """Return whether two BLEU scores differ by less than CLEARLY and the higher one is at least LEARNED: two models
    that learned nothing are not alike.
    """
    return abs(first - second) < CLEARLY and max(first, second) >= LEARNED


@dataclass(frozen=True)
class Scores:
    """Give the figures that claims are decided by, by the label of the variant: means over seeds."""

    bleu: Mapping[str, float]
    loss: Mapping[str, float]  # on the dev sentences
    size: Mapping[str, int]  # parameters
    kept: Mapping[str, float]  # share of the BLEU of the shortest sentences that the longest ones have

    @classmethod
    def from_runs(cls, runs: Runs) -> "Scores":
        """Return the means over the runs of each variant; the number of parameters is that of its first run."""
        lengths = {label: mean_bleu_by_length(same) for label, same in runs.items()}
        return cls(
            bleu={label: mean_bleu(same) for label, same in runs.items()},
            loss={label: fmean(run.dev_loss for run in same) for label, same in runs.items()},
            size={label: same[0].parameters for label, same in runs.items()},
            kept={label: by_group[-1] / max(by_group[0], CLEARLY) for label, by_group in lengths.items()},
        )

    @property
    def highest(self) -> float:
        """Return the highest mean BLEU of any variant."""
        return max(self.bleu.values())


@dataclass(frozen=True)
class Comparison:
    """Variants, and what is claimed of them."""

    title: str
    source: str
    thesis: str
    variants: Mapping[str, Variant]  # by their label in tables and figures
    claims: Callable[[Scores], Claims]
    besides: str = ""  # how all variants differ from the preset, in words

    def on(self, sentences: Sentences) -> Experiment:
        """Return the comparison as an experiment that trains and tests on these sentences."""
        return Experiment(self.title, self.source, self.thesis, partial(self.run, sentences))

    def run(self, sentences: Sentences, effort: Effort) -> Findings:
        """Train every variant with every seed of `effort`, or find the runs finished; return the scores, claims, tables
        and figures.
        """
        steps = effort.scale(STEPS)
        runs = {
            label: [train_variant(variant, seed, steps, sentences) for seed in effort.seeds]
            for label, variant in self.variants.items()
        }
        return Findings(
            f"{file_names(sentences.train)}, scored on {file_names(sentences.test)}, beam 4. The preset tiny with a "
            f"moving average of the weights ({TRAINING.ema:g}), with one thing changed at a time{self.besides}; "
            f"{steps:,} steps of at most {TRAINING.batch_tokens:,} tokens; {effort}. A variant is called clearly "
            f"better from a difference of {CLEARLY:g} BLEU on.",
            self.claims(Scores.from_runs(runs)),
            tables(runs, effort.seeds),
            figures(runs),
        )


def file_names(paths: Sequence[str]) -> str:
    """Return the names of the files, without their folders, with commas between them."""
    return ", ".join(Path(path).name for path in paths)


def length_ranges(runs: Runs) -> list[str]:
    """Return the shortest and the longest source of each group of test sentences, in characters: "3 to 21"."""
    return [f"{group.shortest} to {group.longest}" for group in next(iter(runs.values()))[0].groups]


def tables(runs: Runs, seeds: Sequence[int]) -> dict[str, Table]:
    """Return two tables by title: the scores of each run, and mean BLEU by the length of the source. seeds: those of
    the runs of every variant, in their order.
    """
    return {
        "Each run: dev loss in nats per token, scores on the test sentences, minutes of training": Table(
            "variant | seed | parameters | dev loss | BLEU | chrF2 | minutes",
            [
                (label, seed, run.parameters, run.dev_loss, run.bleu, run.chrf, run.minutes)
                for label, same in runs.items()
                for seed, run in zip(seeds, same, strict=True)
            ],
        ),
        "BLEU by the length of the source in characters, mean over seeds": Table(
            " | ".join(["variant", *length_ranges(runs)]),
            [(label, *mean_bleu_by_length(same)) for label, same in runs.items()],
        ),
    }


def figures(runs: Runs) -> dict[str, Figure]:
    """Return three figures by file name: BLEU, BLEU by the length of the source, and the training loss of the first
    seed.
    """
    groups = dict(enumerate(length_ranges(runs)))
    lengths = {label: (list(groups), mean_bleu_by_length(same)) for label, same in runs.items()}
    losses = {label: tuple(zip(*same[0].losses, strict=True)) or ((), ()) for label, same in runs.items()}
    return {
        "bleu": Figure(
            "BLEU on the test sentences: a mark for each seed, a bar at their mean.",
            partial(draw_scores, runs=runs),
            (8.0, 0.8 + 0.4 * len(runs)),
        ),
        "by-length": Figure(
            "BLEU by the length of the source: means over seeds, in groups with about the same number of test "
            "sentences.",
            lines(
                Panel(lengths, "length of the source (characters)", "BLEU", ticks=groups, ylim=(0, None)),
                legend="above",  # inside, it would hide some line
            ),
        ),
        "losses": Figure(
            "Training loss by step, with label smoothing where there is some; the first seed.",
            lines(Panel(losses, "step", f"training {LOSS}"), legend="above"),
        ),
    }


def draw_scores(figure: Any, runs: Runs) -> None:
    """Draw the BLEU of each variant as a bar at the mean and a mark for each seed; the label gives the mean and, with
    several seeds, the standard deviation.
    """
    axes = figure.subplots()
    rows = range(len(runs))
    axes.barh(rows, [mean_bleu(same) for same in runs.values()], color="0.85", edgecolor="0.5")
    for row, same in zip(rows, runs.values(), strict=True):
        for number, run in enumerate(same):
            axes.plot(run.bleu, row, MARKS[number % len(MARKS)], color=COLOURS[0], markersize=6)
        deviation = f" ± {stdev(run.bleu for run in same):.1f}" if len(same) > 1 else ""
        right = (max(run.bleu for run in same), row)
        label = f"{mean_bleu(same):.1f}{deviation}"
        axes.annotate(label, right, (8, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(rows, runs)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("BLEU")
    axes.spines[["top", "right"]].set_visible(False)
