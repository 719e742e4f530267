"""Make a corpus of real sentences from what is on this machine: the messages of its programs in two languages."""

import re
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import polib

from dragoman.config import RunConfig
from dragoman.config.presets import preset_run
from dragoman.config.recipes import settings_file
from dragoman.config.toml import read_settings
from dragoman.data.corpus import Pair
from dragoman.data.split import SETS, split_by_pair
from dragoman.demo import CATALOGUE
from dragoman.demo.phrasebook import LANGUAGES, Phrasebook
from dragoman.demo.run import command, draw_pictures, write_corpus
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import evaluate
from dragoman.inspection.views import draw_cross_attention
from dragoman.text.speech import Language, speaker
from dragoman.training.loop import train
from dragoman.translation.translator import Translator

RECIPE, MINUTES = "low-resource-30k", 10.0
FOLDERS = ("/usr/share", "/usr/local/share", "/opt/homebrew/share", sys.prefix)
FEWEST = 3_000  # pairs from which a model learns anything
HELD_OUT = 300  # pairs to validate on, and as many to test on
LONGEST = 300  # characters of a side
SHORTCUT = re.compile(r" ?\([_&]\w\)|(?<!\w)[_&](?=\w)")  # the letter that opens an entry of a menu: _File, 파일(_F)
TYPED = (
    "The file could not be opened.",
    "Do you want to save the changes before closing?",
    "Click the button to continue.",
    "My grandmother baked an apple pie for us on Sunday.",
)


def catalogues(language: str, folders: Sequence[str] = FOLDERS) -> list[Path]:
    """Return the compiled catalogues of a language on this machine, sorted by name."""
    files = {path for folder in folders for path in Path(folder).glob(f"**/{language}/LC_MESSAGES/*.mo")}
    return sorted(files, key=lambda path: (path.name, path))


def messages(paths: Sequence[Path]) -> Iterator[Pair]:
    """Yield the messages of catalogues and their translations, each source once: those of one line, with two words."""
    seen = set()
    for path in paths:
        try:
            entries = polib.mofile(str(path))
        except (OSError, ValueError, UnicodeError, struct.error):  # another program's fault
            continue
        for entry in entries:
            source, target = (SHORTCUT.sub("", text.strip()) for text in (entry.msgid, entry.msgstr))
            is_short = max(len(source), len(target)) <= LONGEST and not re.search(r"[\n\t\r]", source + target)
            if is_short and source != target and target and source not in seen and len(source.split()) > 1:
                seen.add(source)
                yield source, target


def run_messages(to: str, out: Path, minutes: float | None, language: Language = "en") -> None:
    """Train on the messages of this machine's programs, in the folder `out`; score, translate and draw.

    minutes: of training; None: MINUTES. Raise DragomanError where there are too few messages.
    """
    say, minutes = speaker(language, CATALOGUE), minutes or MINUTES
    paths = catalogues(to)
    pairs = list(messages(paths))
    if len(pairs) < FEWEST:
        raise DragomanError(
            f"{len(pairs):,} messages in {LANGUAGES[to]} are on this machine, too few to learn from; install the "
            "translations of some programs, or run the demo without --corpus messages"
        )
    sets = split_by_pair(pairs, HELD_OUT, HELD_OUT)
    parts = {name: [pair for pair, part in zip(pairs, sets, strict=True) if part == name] for name in SETS}
    corpus = write_corpus(out, Phrasebook(**parts))
    made = (
        f"1. Corpus: the messages of the programs on this machine, {len(paths):,} catalogues, English to "
        f"{LANGUAGES[to]}: {len(parts['train']):,} pairs to learn from, {len(parts['test']):,} held out."
    )
    print(say(made))
    print(say("They belong to these programs, under their licences: keep the corpus and the model to yourself."))

    print(say(f"2. Training for {minutes:g} minutes."), flush=True)
    train(settings(corpus, out, f"en-{to}", minutes))

    translator = Translator.load(out)
    sources, references = zip(*parts["test"], strict=True)
    scores = evaluate([translation.text for translation in translator.translate(sources)], references)
    print(say("3. Held-out messages, none of them like one that was learned:"))
    print("\n".join(map(say, str(scores).split("\n"))), flush=True)

    print(say("4. Translations; the last sentence is none of a program:"))
    for source, translation in zip(TYPED, translator.translate(TYPED), strict=True):
        flags = f"   ({', '.join(translation.flags)})" if translation.flags else ""
        print(f"   {source}\n   {translation.text}{flags}")

    print(say("5. What the model attended to, word by word:"))
    draw_pictures(out, say, lambda path: draw_cross_attention(translator, TYPED[0], path, language=language))
    print()
    more = f"{command()} demo --corpus messages --to {to} --minutes {3 * minutes:g}"
    print(say(f"More time gives better translations: {more}"))
    print(say(f'Now yours: {command()} translate -m {out} "{TYPED[0]}"'))


def settings(corpus: Path, out: Path, languages: str, minutes: float) -> RunConfig:
    """Return the settings of RECIPE for the corpora in a folder."""
    recipe = read_settings(settings_file(RECIPE))
    recipe["training"]["minutes"] = minutes
    files = {
        "train": [str(corpus / "train.tsv")],
        "dev": [str(corpus / "dev.tsv")],
        "languages": languages,
        "out": str(out),
    }
    return preset_run(recipe["preset"], {**recipe, **files}, RECIPE)
