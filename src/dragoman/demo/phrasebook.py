"""Make a corpus: sentence templates in four languages, with slots that the Unicode CLDR fills in each language's way.

`templates/*.tsv` has the templates; Babel has the data: how a date, a price or a country is written in each locale.
Numbers up to 99 are written alike in all of them, so sentences that have no other slots can be made without Babel.
"""

import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from dragoman.data.corpus import Pair
from dragoman.text.particles import fit_particles

if TYPE_CHECKING:
    from dragoman.demo.values import Writer

LANGUAGES = {"en": "English", "ko": "Korean", "de": "German", "es": "Spanish"}

SLOT = re.compile(r"\{([a-z]+)(\d?)\}")
NUMBER = "number"  # the slot that needs no Babel


@dataclass(frozen=True)
class Phrasebook:
    """Training pairs, and held-out pairs of the same templates with other values."""

    train: list[Pair]
    dev: list[Pair]
    test: list[Pair]


def phrasebook(
    source: str, target: str, *, per_template: int, seed: int, slots: Collection[str] | None = None
) -> Phrasebook:
    """Return a phrasebook: up to `per_template` training pairs from each template, and up to two each for dev and test.

    source and target: languages, as in LANGUAGES; slots: as of `templates`. Slots with few values, such as days of the
    week, give fewer. A template without slots gives one training pair.
    """
    rng = random.Random(seed)
    book = Phrasebook([], [], [])
    for template in templates(slots):
        fills = list(dict.fromkeys(fill(template, source, target, rng) for _ in range(4 * per_template)))
        if len(fills) == 1:
            book.train.append(fills[0])
            continue
        held_out = min(4, max(2, len(fills) // 4))
        book.dev.extend(fills[: held_out // 2])
        book.test.extend(fills[held_out // 2 : held_out])
        book.train.extend(fills[held_out : held_out + per_template])
    rng.shuffle(book.train)
    return book


def templates(slots: Collection[str] | None = None) -> list[dict[str, str]]:
    """Return the templates of the phrasebook, each as a dict from language to text.

    slots: leave out templates with others than these; None: take all.
    """
    lines_by_language = []
    for file in sorted(resources.files("dragoman.demo").joinpath("templates").iterdir(), key=lambda f: f.name):
        header, *lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
        languages = header.split("\t")
        lines_by_language += [dict(zip(languages, line.split("\t"), strict=True)) for line in lines]
    if slots is None:
        return lines_by_language
    return [line for line in lines_by_language if {kind for kind, _ in SLOT.findall(line["en"])} <= set(slots)]


def draw(slot: str, rng: random.Random) -> "Writer":
    """Draw a value for a kind of slot; return it as a function of the language: '27', 'Thursday'."""
    if slot == NUMBER:
        number = str(rng.randrange(2, 100))
        return lambda language: number
    from dragoman.demo.values import SLOTS  # needs Babel

    return SLOTS[slot](rng)


def fill(template: dict[str, str], source: str, target: str, rng: random.Random) -> Pair:
    """Return a sentence and its translation, with random values; slots of one kind get different values.

    template: its text by language, English among them; source and target: languages, as in LANGUAGES.
    """
    values: dict[str, Writer] = {}
    written: set[str] = set()
    for kind, number in SLOT.findall(template["en"]):
        while True:
            value = draw(kind, rng)
            if value("en") not in written:
                break
        written.add(value("en"))
        values[kind + number] = value
    return render(template[source], values, source), render(template[target], values, target)


def render(template: str, values: dict[str, "Writer"], language: str) -> str:
    """Return a template with `values` in its slots, written in `language`, and with the Korean particles that fit."""
    text = SLOT.sub(lambda slot: values[slot[1] + slot[2]](language), template)
    text = text.replace("\u00a0", " ").replace("\u202f", " ")  # CLDR's unbreakable spaces are not what people type
    text = fit_particles(text)
    return text[:1].upper() + text[1:]
