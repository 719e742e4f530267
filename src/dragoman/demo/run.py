"""Run the demonstration: corpus, training, scores, translations, pictures."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from dragoman.config import RunConfig, TransformerConfig
from dragoman.config.presets import DEMO, Preset
from dragoman.data.corpus import Pair
from dragoman.demo import CATALOGUE
from dragoman.demo.phrasebook import LANGUAGES, NUMBER, Phrasebook, phrasebook, templates
from dragoman.evaluation.metrics import evaluate
from dragoman.inspection.views import draw_cross_attention
from dragoman.text.speech import Language, Say, speaker
from dragoman.training.checkpoint import lock_folder
from dragoman.training.loop import train
from dragoman.translation.translator import Translator

PER_TEMPLATE, SEED = 32, 1
NO_PICTURE = "No picture, since matplotlib is not installed: pip install 'dragoman[plot]'"
ENOUGH = 0.95  # of the held-out sentences exactly right; less if the machine is slow or busy


@dataclass(frozen=True)
class Show:
    """What a demonstration learns and shows."""

    command: str  # that shows it
    slots: Collection[str] | None  # of the templates that it learns; None: all
    values: str  # that these are filled with
    preset: Preset[TransformerConfig]
    minutes: float  # of training
    typed: tuple[str, ...]  # sentences as a visitor might type them; their values are not in the corpus in these places
    drawn: str
    limits: str  # of what the model has learned


FULL = Show(
    command="dragoman demo",
    slots=None,
    values="dates, prices, countries ...",
    preset=DEMO,
    minutes=DEMO.training.minutes or 2.0,
    typed=(
        "I would like to make an appointment for Thursday at 4:20 PM.",
        "My cousin is arriving from Vietnam on Saturday at 8:35 AM.",
        "There is an error of €64.50 on this invoice.",
        "We need 27 seats next to each other, if possible.",
    ),
    # The verb is second in English and elsewhere in the other languages, so the figure shows a change of order.
    drawn="My cousin is arriving from Vietnam on Saturday at 8:35 AM.",
    limits="It knows these sentence patterns and no others",
)
QUICK = Show(
    command="dragoman demo --quick",
    slots=(NUMBER,),
    values="numbers",
    preset=replace(DEMO, vocabulary=1000, training=replace(DEMO.training, warmup=100, validate_every=100)),
    minutes=0.6,
    typed=("We need 26 seats next to each other, if possible.", "Please send me 14 copies of this book by mail."),
    drawn="We need 26 seats next to each other, if possible.",
    limits="A minute makes a poor translator: it knows these few sentence patterns, more or less, and no others",
)


def run_demo(to: str, out: Path, minutes: float | None, show: Show = FULL, language: Language = "en") -> None:
    """Run the demonstration, English to the language `to`, in the folder `out`.

    minutes: of training; None: those of the show; language: of what is printed and drawn. Results go to standard
    output, progress to standard error.
    """
    say, minutes = speaker(language, CATALOGUE), minutes or show.minutes
    book = phrasebook("en", to, per_template=PER_TEMPLATE, seed=SEED, slots=show.slots)
    corpus = write_corpus(out, book)
    made = (
        f"1. Corpus: {len(templates(show.slots))} sentence templates, English to {LANGUAGES[to]}, filled with "
        f"{show.values}: {len(book.train):,} pairs to learn from, {len(book.test):,} held out."
    )
    print(say(made), flush=True)

    print(say(f"2. Training for {minutes:g} minutes."), flush=True)
    steps = learn(out, corpus, f"en-{to}", show.preset, minutes)

    translator = Translator.load(out)
    sources, references = zip(*book.test, strict=True)
    scores = evaluate([translation.text for translation in translator.translate(sources)], references)
    print(say("3. Held-out sentences: familiar templates with values that were not in the training pairs."))
    print("\n".join(map(say, str(scores).split("\n"))), flush=True)
    if advice := slow_machine(scores.exact, steps, minutes, show.command):
        print(say(advice), flush=True)

    print(say("4. Translations:"))
    for source, translation in zip(show.typed, translator.translate(show.typed), strict=True):
        print(f"   {source}\n   {translation.text}")

    print(say("5. What the model attended to, word by word:"))
    draw_pictures(out, say, lambda path: draw_cross_attention(translator, show.drawn, path, language=language))
    print()
    print(say(f"{show.limits}; {corpus / 'test.tsv'} has examples."))
    print(say(f'Now yours: {command()} translate -m {out} "{show.typed[0]}"'))
    print(say(f"Your own sentence pairs: {command()} check pairs.tsv --write-clean clean.tsv"))


def draw_pictures(out: Path, say: Say, draw: Callable[[Path], object]) -> None:
    """Draw the attention as SVG and as PNG, and print the files; without matplotlib, print what is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"   {say(NO_PICTURE)}")
        return
    for suffix in (".svg", ".png"):
        picture = out / f"attention{suffix}"
        draw(picture)
        print(f"   {picture}")


def write_corpus(out: Path, book: Phrasebook) -> Path:
    """Write the pairs into a folder of `out`; return it. Raise DragomanError while another process uses `out`."""
    corpus = out / "corpus"
    with lock_folder(out):  # a demo that is running reads its own corpora
        corpus.mkdir(exist_ok=True)
        for name, pairs in (("train", book.train), ("dev", book.dev), ("test", book.test)):
            write_pairs(corpus / f"{name}.tsv", pairs)
    return corpus


def learn(out: Path, corpus: Path, languages: str | None, preset: Preset[TransformerConfig], minutes: float) -> int:
    """Train into `out` on what `write_corpus` wrote, for so many minutes; return the number of steps."""
    config = RunConfig(
        train=(str(corpus / "train.tsv"),),
        dev=(str(corpus / "dev.tsv"),),
        languages=languages,
        out=str(out),
        vocabulary=preset.vocabulary,
        model=preset.model,
        training=replace(preset.training, minutes=minutes),
    )
    return train(config).step


def slow_machine(exact: float, steps: int, minutes: float, demo: str) -> str:
    """Return what to do where too few steps were done for a good model.

    exact: share of exact matches, 0 to 1; demo: the command of the demonstration.
    """
    if exact >= ENOUGH:
        return ""
    return (
        f"Only {steps:,} steps in {minutes:g} minutes. More time gives better translations, such as "
        f"{demo} --minutes {2 * minutes:g}"
    )


def command() -> str:
    """Return how to call this program from the shell: 'dragoman' if it is on the path, else its file."""
    return "dragoman" if shutil.which("dragoman") else os.path.relpath(sys.argv[0])


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs to `path` as TSV, source first, without checking them for tabs."""
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
