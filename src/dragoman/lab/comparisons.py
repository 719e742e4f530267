"""Models that differ in one thing, trained on the same sentence pairs of yours for the same steps.

Each training is a run folder of `dragoman train`, kept under the folder of the report: what was stopped goes on, what
is finished is not trained again, comparisons share their runs, and more seeds join those that are there.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console

from dragoman.config import AttentionConfig, ModelConfig, RecurrentConfig, RunConfig, TrainingConfig
from dragoman.config.presets import TINY
from dragoman.data.corpus import read_corpus
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import LengthGroup, by_length, evaluate
from dragoman.inspection.plots.training import COLOURS, MARKS, read_metrics, style
from dragoman.lab.experiment import Effort, Experiment, Figure, Findings, Sentences, Table, Verdict
from dragoman.training.journal import Journal
from dragoman.training.loop import train
from dragoman.translation.translator import Translator

STEPS = 1500  # of full effort
CLEARLY = 1.0  # BLEU by which one is better than another
LEARNED = 5.0  # BLEU; of models that reach less, it says nothing that they are alike
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
    """What came of one variant with one seed."""

    parameters: int
    minutes: float  # of training, validation left out
    dev_loss: float  # nats per token
    bleu: float
    chrf: float
    groups: tuple[LengthGroup, ...]  # of test sentences, from the shortest to the longest
    losses: tuple[tuple[float, float], ...]  # (step, training loss)


@cache
def trained(variant: Variant, seed: int, steps: int, sentences: Sentences) -> Trained:
    folder = sentences.runs / f"{steps}-steps" / f"{variant.name}-{seed}"
    settings = replace(variant.training, seed=seed, max_steps=steps, validate_every=steps)
    config = RunConfig("tiny", sentences.train, sentences.dev, out=str(folder), model=variant.model, training=settings)
    with Journal(folder, Console(stderr=True)) as journal:
        journal.log(f"{variant.name}, seed {seed}")
        progress = train(config, journal)
    translator, corpus = Translator.load(folder / "best"), read_corpus(sentences.test)
    sources, references = zip(*corpus.pairs, strict=True)
    translations = [translation.text for translation in translator.translate(sources, corpus.tags)]
    scores = evaluate(translations, references)
    seconds, losses = progress.seconds, tuple[tuple[float, float], ...]()
    with contextlib.suppress(DragomanError):  # what the run has recorded may be lost: its model is there
        metrics = read_metrics(folder)
        losses = tuple(metrics.points("step", "step", "loss"))
        seconds = max((second for _, second in metrics.points("step", "step", "seconds")), default=seconds)
    return Trained(
        sum(parameter.numel() for parameter in translator.model.parameters()),
        seconds / 60,
        progress.best_loss,
        scores.bleu.value,
        scores.chrf.value,
        tuple(by_length(sources, translations, references, groups=GROUPS)),
        losses,
    )


Runs = Mapping[str, Sequence[Trained]]  # by the label of the variant, one for each seed


def bleu(runs: Sequence[Trained]) -> float:
    return fmean(run.bleu for run in runs)


def alike(one: float, other: float) -> bool:
    """Whether two BLEU are hardly different, and of models that have learned something."""
    return abs(one - other) < CLEARLY and max(one, other) >= LEARNED


@dataclass(frozen=True)
class Comparison:
    """Variants, and what the source says of them."""

    title: str
    source: str
    claim: str
    variants: Mapping[str, Variant]  # by their label in tables and figures
    judge: Callable[[Runs], tuple[Verdict, ...]]
    besides: str = ""  # what all variants have that is not of the preset, in words

    def on(self, sentences: Sentences) -> Experiment:
        return Experiment(self.title, self.source, self.claim, partial(self.run, sentences))

    def run(self, sentences: Sentences, effort: Effort) -> Findings:
        steps = effort.of(STEPS)
        runs = {
            label: [trained(variant, seed, steps, sentences) for seed in effort.seeds]
            for label, variant in self.variants.items()
        }
        return Findings(
            f"{names(sentences.train)}, scored on {names(sentences.test)}, beam 4. The preset tiny with a moving "
            f"average of the weights ({TRAINING.ema:g}), changed in one thing at a time{self.besides}; {steps:,} steps "
            f"of at most {TRAINING.batch_tokens:,} tokens; seeds {', '.join(map(str, effort.seeds))}. One is clearly "
            f"better than another from {CLEARLY:g} BLEU on.",
            self.judge(runs),
            (runs_table(runs, effort.seeds), lengths_table(runs)),
            (
                Figure("bleu", "BLEU on the test sentences: a mark for each seed, a bar at their mean.",
                       partial(draw_scores, runs=runs), (8.0, 0.8 + 0.4 * len(runs))),
                Figure("by-length", "BLEU by the length of the source, mean over seeds: the test sentences in groups "
                       "of about equal size, from the shortest to the longest.", partial(draw_lengths, runs=runs)),
                Figure("losses", "Training loss by step, with label smoothing where there is some; the first seed.",
                       partial(draw_losses, runs=runs)),
            ),
        )  # fmt: skip


def names(paths: Sequence[str]) -> str:
    return ", ".join(Path(path).name for path in paths)


# Tables and figures.


def runs_table(runs: Runs, seeds: Sequence[int]) -> Table:
    return Table(
        "Each run: dev loss in nats per token, scores on the test sentences, minutes of training",
        ("variant", "seed", "parameters", "dev loss", "BLEU", "chrF2", "minutes"),
        tuple(
            (label, seed, run.parameters, run.dev_loss, run.bleu, run.chrf, run.minutes)
            for label, of_label in runs.items()
            for seed, run in zip(seeds, of_label, strict=True)
        ),
    )


def lengths_table(runs: Runs) -> Table:
    groups = next(iter(runs.values()))[0].groups
    return Table(
        "BLEU by the length of the source in characters, mean over seeds",
        ("variant", *(f"{group.shortest} to {group.longest}" for group in groups)),
        tuple((label, *bleu_by_length(of_label)) for label, of_label in runs.items()),
    )


def bleu_by_length(runs: Sequence[Trained]) -> list[float]:
    return [fmean(group.bleu for group in same) for same in zip(*(run.groups for run in runs), strict=True)]


def draw_scores(figure: Any, runs: Runs) -> None:
    axes = figure.subplots()
    places = range(len(runs))
    axes.barh(places, [bleu(of_label) for of_label in runs.values()], color="0.85", edgecolor="0.5")
    for place, of_label in zip(places, runs.values(), strict=True):
        for number, run in enumerate(of_label):
            axes.plot(run.bleu, place, MARKS[number % len(MARKS)], color=COLOURS[0], markersize=6)
        spread = f" ± {stdev(run.bleu for run in of_label):.1f}" if len(of_label) > 1 else ""
        axes.annotate(f"{bleu(of_label):.1f}{spread}", (max(run.bleu for run in of_label), place), (8, 0),
                      textcoords="offset points", va="center", fontsize=9)  # fmt: skip
    axes.set_yticks(places, runs)
    axes.invert_yaxis()
    axes.margins(x=0.15)
    axes.set_xlabel("BLEU")
    axes.spines[["top", "right"]].set_visible(False)


def draw_lengths(figure: Any, runs: Runs) -> None:
    axes = figure.subplots()
    groups = next(iter(runs.values()))[0].groups
    for number, (label, of_label) in enumerate(runs.items()):
        axes.plot(range(len(groups)), bleu_by_length(of_label), label=label, **style(number))
    axes.set_xticks(range(len(groups)), [f"{group.shortest} to {group.longest}" for group in groups])
    axes.set(xlabel="length of the source (characters)", ylabel="BLEU", ylim=(0, None))
    axes.grid(color="0.9", linewidth=0.6)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)  # inside, it would hide some line


def draw_losses(figure: Any, runs: Runs) -> None:
    axes = figure.subplots()
    for number, (label, of_label) in enumerate(runs.items()):
        losses = of_label[0].losses
        steps, values = [step for step, _ in losses], [loss for _, loss in losses]
        axes.plot(steps, values, markevery=max(1, len(losses) // 8), label=label, **style(number))
    axes.set(xlabel="step", ylabel="training loss (nats per token)")
    axes.grid(color="0.9", linewidth=0.6)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, fontsize=9)


# What follows from the numbers.


def verb(seen: bool) -> str:
    return "are" if seen else "were not seen to be"


def judge_recurrence(runs: Runs) -> tuple[Verdict, ...]:
    gains = {cell: bleu(runs[f"{cell} with attention"]) - bleu(runs[cell]) for cell in CELLS}
    helps = min(gains.values()) > CLEARLY
    lengths = {label: bleu_by_length(of_label) for label, of_label in runs.items()}
    kept = {label: found[-1] / max(found[0], CLEARLY) for label, found in lengths.items()}
    shorter = all(kept[cell] < kept[f"{cell} with attention"] for cell in CELLS)
    shorter = shorter and max(map(bleu, runs.values())) >= LEARNED
    best = max((f"{cell} with attention" for cell in CELLS), key=lambda label: bleu(runs[label]))
    ahead = bleu(runs[TRANSFORMER]) - bleu(runs[best])
    return (
        Verdict(helps, "Attention over the source " + ("makes" if helps else "does not make")
                + " every recurrent model clearly better: "
                + ", ".join(f"{cell} {gain:+.1f} BLEU" for cell, gain in gains.items()) + "."),
        Verdict(shorter, "From the shortest to the longest quarter of the sentences "
                + ("every" if shorter else "not every")
                + " recurrent model loses more without attention than with it: what is left of its BLEU is "
                + ", ".join(f"{kept[cell]:.0%} against {kept[f'{cell} with attention']:.0%} ({cell})" for cell in CELLS)
                + f"; {kept[TRANSFORMER]:.0%} for the Transformer."),
        Verdict(ahead > CLEARLY, f"The Transformer is {'' if ahead > CLEARLY else 'not '}clearly ahead of the best "
                f"recurrent model ({best}) after the same steps: {bleu(runs[TRANSFORMER]):.1f} BLEU against "
                f"{bleu(runs[best]):.1f}."),
    )  # fmt: skip


def judge_positions(runs: Runs) -> tuple[Verdict, ...]:
    score = {label: bleu(of_label) for label, of_label in runs.items()}
    needed = score["sinusoidal"] - score["none"] > CLEARLY
    same = alike(score["sinusoidal"], score["learned"])
    across = score["rotary-across"] - max(value for label, value in score.items() if label != "rotary-across")
    return (
        Verdict(needed, f"Sinusoids {'are' if needed else 'are not'} clearly better than no positions: "
                f"{score['sinusoidal']:.1f} against {score['none']:.1f} BLEU."),
        Verdict(same, f"Learned and sinusoidal positions {verb(same)} nearly equal: "
                f"{score['learned']:.1f} and {score['sinusoidal']:.1f} BLEU."),
        Verdict(across > CLEARLY, "Distances in attention over the source, too (rotary-across), are "
                f"{'' if across > CLEARLY else 'not '}clearly ahead of every other scheme after these steps: "
                f"{score['rotary-across']:.1f} BLEU, {across:+.1f} from the next."),
    )  # fmt: skip


def judge_norms(runs: Runs) -> tuple[Verdict, ...]:
    score = {label: bleu(of_label) for label, of_label in runs.items()}
    lost = {place: score[f"{place}-norm, warm-up"] - score[f"{place}-norm, none"] for place in ("pre", "post")}
    needs, spared = lost["post"] > CLEARLY, lost["pre"] < CLEARLY and score["pre-norm, none"] >= LEARNED
    return (
        Verdict(needs, f"Post-norm {'needs' if needs else 'does not need'} the warm-up: without it "
                f"{-lost['post']:+.1f} BLEU."),
        Verdict(spared, f"Pre-norm {'does' if spared else 'does not do'} without it: {-lost['pre']:+.1f} BLEU."),
    )  # fmt: skip


def judge_heads(runs: Runs) -> tuple[Verdict, ...]:
    score = {label: bleu(of_label) for label, of_label in runs.items()}
    best = max(score, key=score.__getitem__)
    one, most = score[best] - score["1"], score[best] - score["16"]
    return (
        Verdict(one > CLEARLY, f"One head is {'' if one > CLEARLY else 'not '}clearly worse than the best number, "
                f"{best}: {score['1']:.1f} against {score[best]:.1f} BLEU."),
        Verdict(most > CLEARLY, f"With 16 heads quality {'drops' if most > CLEARLY else 'does not clearly drop'}: "
                f"{score['16']:.1f} BLEU."),
    )  # fmt: skip


def judge_scores(runs: Runs) -> tuple[Verdict, ...]:
    score = {label: bleu(of_label) for label, of_label in runs.items()}
    small, large = score[DOT] - score[UNSCALED], score[DOT_LARGE] - score[UNSCALED_LARGE]
    same = alike(score[DOT], score[ADDITIVE])
    return (
        Verdict(large > CLEARLY, f"Without the division by the root of d_k, learning is "
                f"{'' if large > CLEARLY else 'not '}clearly worse at d_k = {LARGE}: {score[UNSCALED_LARGE]:.1f} "
                f"against {score[DOT_LARGE]:.1f} BLEU; at d_k = {SMALL} it costs {small:.1f}."),
        Verdict(same, f"Additive and scaled dot-product attention {verb(same)} alike in quality: "
                f"{score[ADDITIVE]:.1f} and {score[DOT]:.1f} BLEU."),
    )  # fmt: skip


def judge_smoothing(runs: Runs) -> tuple[Verdict, ...]:
    smooth, plain = runs["0.1"], runs["0"]
    gain = bleu(smooth) - bleu(plain)
    loss, other = (fmean(run.dev_loss for run in same) for same in (smooth, plain))
    return (
        Verdict(gain > CLEARLY, f"Label smoothing {'improves' if gain > CLEARLY else 'does not clearly improve'} BLEU: "
                f"{bleu(smooth):.1f} against {bleu(plain):.1f}."),
        Verdict(loss > other, f"It {'hurts' if loss > other else 'does not hurt'} the loss on dev sentences: "
                f"{loss:.3f} against {other:.3f} nats per token."),
    )  # fmt: skip


def judge_tying(runs: Runs) -> tuple[Verdict, ...]:
    one, three = bleu(runs["all"]), bleu(runs["none"])
    free = alike(one, three) or one > max(three, LEARNED)
    fewer = runs["none"][0].parameters - runs["all"][0].parameters
    return (
        Verdict(free, f"One matrix for both embeddings and the output saves {fewer:,} parameters and "
                f"{'costs no quality' if free else 'was not seen to cost nothing'}: {bleu(runs['all']):.1f} against "
                f"{bleu(runs['none']):.1f} BLEU with three."),
    )  # fmt: skip


# What is compared.

BASE = Variant("transformer")
TRANSFORMER = "Transformer"
CELLS = {  # of nearly as many parameters as BASE
    "RNN": RecurrentConfig("rnn", 268, layers=2),
    "GRU": RecurrentConfig("gru", 184, layers=2),
    "LSTM": RecurrentConfig("lstm", 168, layers=2),
}
SMALL, LARGE = 32, 128  # d_k with 4 heads and with one
DOT, UNSCALED, ADDITIVE = (f"{score}, d_k {SMALL}" for score in ("scaled", "unscaled", "additive"))
DOT_LARGE, UNSCALED_LARGE = (f"{score}, d_k {LARGE}" for score in ("scaled", "unscaled"))
ONE_HEAD = Variant("heads-1", replace(MODEL, attention=AttentionConfig(heads=1)))
STEADY = replace(TRAINING, schedule="constant", learning_rate=0.002, warmup=200)

COMPARISONS = {
    "compare-recurrence": Comparison(
        "Recurrent models and the Transformer",
        "notes 000, 001; section 1",
        "A recurrent model forgets long sentences; attention over the source helps it, and attention alone is better.",
        {
            TRANSFORMER: BASE,
            **{f"{label} with attention": Variant(f"{model.cell}-dot", model) for label, model in CELLS.items()},
            **{
                label: Variant(f"{model.cell}-none", replace(model, attention="none")) for label, model in CELLS.items()
            },
        },
        judge_recurrence,
    ),
    "compare-positions": Comparison(
        "Positions",
        "notes 001, 004; section 3.5, Table 3 E",
        "Without positions a model does not know word order; learned ones are nearly equal to sinusoids. (Ours: "
        "distances in attention over the source, too, are better than both.)",
        {
            "rotary-across": BASE,
            **{
                name: Variant(f"positions-{name}", replace(MODEL, positions=name))
                for name in ("rotary", "relative", "sinusoidal", "learned", "none")
            },
        },
        judge_positions,
    ),
    "compare-norms": Comparison(
        "The norm before or after a layer, with and without warm-up",
        "note 001 (pre- and post-LN); sections 3.1, 5.3; Xiong et al. 2020",
        "The Transformer needs a warm-up. (With the norm after each layer, as the paper has it.)",
        {
            f"{place}-norm, {'warm-up' if warmup > 1 else 'none'}": Variant(
                f"{place}-norm-{warmup}", replace(MODEL, norm_first=place == "pre"), replace(STEADY, warmup=warmup)
            )
            for place in ("pre", "post")
            for warmup in (STEADY.warmup, 1)
        },
        judge_norms,
        f", all with a constant learning rate of {STEADY.learning_rate:g} (after the warm-up)",
    ),
    "compare-heads": Comparison(
        "One head or many of the same total size",
        "notes 001, 004; section 3.2.2, Table 3 A",
        "One head is worse than the best setting, and with too many heads quality drops off.",
        {
            "1": ONE_HEAD,
            "2": Variant("heads-2", replace(MODEL, attention=AttentionConfig(heads=2))),
            "4": BASE,
            "8": Variant("heads-8", replace(MODEL, attention=AttentionConfig(heads=8))),
            "16": Variant("heads-16", replace(MODEL, attention=AttentionConfig(heads=16))),
        },
        judge_heads,
    ),
    "compare-scores": Comparison(
        "Scaled, unscaled and additive attention",
        "notes 000, 003; section 3.2.1",
        "Dot products of large vectors must be scaled down; additive attention is as good, but slower.",
        {
            DOT: BASE,
            UNSCALED: Variant("unscaled", replace(MODEL, attention=AttentionConfig(heads=4, score="unscaled"))),
            ADDITIVE: Variant("additive", replace(MODEL, attention=AttentionConfig(heads=4, score="additive"))),
            DOT_LARGE: ONE_HEAD,
            UNSCALED_LARGE: Variant("unscaled-1", replace(MODEL, attention=AttentionConfig(heads=1, score="unscaled"))),
        },
        judge_scores,
    ),
    "compare-smoothing": Comparison(
        "Label smoothing",
        "the paper, section 5.4",
        "Label smoothing hurts perplexity but improves accuracy and BLEU.",
        {"0.1": BASE, "0": Variant("smoothing-0", training=replace(TRAINING, label_smoothing=0.0))},
        judge_smoothing,
    ),
    "compare-tying": Comparison(
        "One matrix for embeddings and output",
        "the paper, section 3.4",
        "Both embeddings and the output can share one matrix.",
        {
            "all": BASE,
            "output": Variant("share-output", replace(MODEL, share="output")),
            "none": Variant("share-none", replace(MODEL, share="none")),
        },
        judge_tying,
    ),
}
