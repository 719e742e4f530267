"""dragoman forecast"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import tyro

from dragoman.commands import parse, print_json, set_threads
from dragoman.errors import UsageError

BAR = 40  # characters of the best score
LITTLE = 3.0  # BLEU of a model that has hardly learned
LATE = 0.5  # BLEU in the last eighth of the steps, of a model that was still learning


@dataclass(frozen=True)
class Options:
    """Say what twice the pairs would bring, before you pay for them.

    Four small models learn from an eighth, a quarter, a half and all of your pairs, for as many steps each, and their
    BLEU is continued to twice the pairs. A larger model scores more throughout; what counts is how steep the curve is.

    $ dragoman forecast --train data/train.tsv --dev data/dev.tsv
    """

    train: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS ...")]
    "the pairs that there are"
    dev: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS ...")]
    "pairs to translate, none of which is in training; a thousand make the range narrower than a hundred"
    steps: int = 3_000
    "updates of each model"
    seed: int = 1
    "seed for which pairs are in which part, and for training"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "print one JSON object"


def main(arguments: list[str]) -> None:
    """Run `dragoman forecast`: print the BLEU of each part of the pairs, and the range of twice the pairs."""
    options = parse(Options, "forecast", arguments)
    if not options.train or not options.dev:
        raise UsageError("give the pairs that there are (--train) and some that are not among them (--dev)")
    if options.steps < 1:
        raise UsageError(f"--steps must be at least 1, not {options.steps}")
    set_threads(options.threads)
    from dragoman.config.presets import TINY
    from dragoman.data.corpus import read_corpus
    from dragoman.data.spec import parse_corpora
    from dragoman.runtime.signals import exit_on_signals
    from dragoman.synthesis.forecast import VALIDATIONS, forecast

    train, dev = read_corpus(options.train), read_corpus(options.dev)
    if any([*train.tags, *train.target_tags, *dev.tags, *dev.target_tags]):
        raise UsageError("forecast learns without tags: give it the pairs of one kind, without tag=")
    if any(spec.weight != 1 or spec.share or spec.weight_column for spec in parse_corpora(options.train)):
        print("forecast: each pair counts once here, whatever its weight or share in training", file=sys.stderr)
    for note in [*train.notes(), *dev.notes()]:
        print(f"forecast: {note}", file=sys.stderr)
    settings = replace(
        TINY.training,
        max_steps=options.steps,
        validate_every=max(options.steps // VALIDATIONS, 1),
        seed=options.seed,
        threads=options.threads,
    )
    with exit_on_signals(), TemporaryDirectory() as place:
        curve = forecast(
            train.pairs, dev.pairs, Path(place), settings, lambda text: print(f"forecast: {text}", file=sys.stderr)
        )
    if curve.scores[-1] < LITTLE:
        print("forecast: the models have hardly learned: give more --steps before you believe this", file=sys.stderr)
    elif curve.late > LATE:
        print(
            f"forecast: the model of all pairs was still learning (BLEU +{curve.late:.1f} in its last eighth): with "
            "more --steps, twice the pairs may bring more than this",
            file=sys.stderr,
        )
    if options.json:
        known = [{"pairs": pairs, "bleu": score} for pairs, score in zip(curve.pairs, curve.scores, strict=True)]
        print_json({"curve": known, "forecast": {"pairs": curve.doubled, "low": curve.low, "high": curve.high}})
        return
    best = max(*curve.scores, curve.high, 1.0)
    for pairs, score in zip(curve.pairs, curve.scores, strict=True):
        print(f"{pairs:>11,} pairs {'█' * round(BAR * score / best):<{BAR}} BLEU {score:.1f}")
    sure, possible = round(BAR * curve.low / best), round(BAR * curve.high / best)
    bar = "░" * sure + "▒" * (possible - sure)
    print(f"{curve.doubled:>11,} pairs {bar:<{BAR}} BLEU {curve.low:.1f} to {curve.high:.1f}, expected")
