"""Say in Korean what the program says in English.

A package that speaks both has a catalogue, ko.po. A message is an English text with {1}, {2} ... where numbers and
names come. The rest of the program knows nothing of this: a text that was made is matched with the messages, and what
stands in its places is put into the Korean one: said in Korean, too, but not where it stands in quotation marks. A
text that matches none stays as it is.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dragoman.text.particles import fit_particles

if TYPE_CHECKING:
    import polib

Language = Literal["en", "ko"]
Say = Callable[[str], str]  # from an English text to the same in some language

PLACE = re.compile(r"\{(\d+)\}")
QUOTED = re.compile(r"[“']\{(\d+)\}[”']")
ITEMS = re.compile(r"(; |, (?![^(]*\)))")  # of a list, with what separates them; brackets stay whole
WORDS = re.compile(r"[^,;:()\s](?:[^,;:()]*[^,;:()\s])?")  # of an item, between punctuation marks


def say_english(text: str) -> str:
    """Return the text as it is."""
    return text


def speaker(language: Language, catalogue: Path, context: str = "") -> Say:
    """Return what says texts in a language: those of a context of the catalogue, and those that have none."""
    return say_english if language == "en" else korean(catalogue, context)


@cache
def korean(catalogue: Path, context: str) -> Say:
    """Return what says the texts of a context in Korean."""
    fixed: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str, list[str]]] = []
    for entry in entries_for(catalogue, context):
        if PLACE.search(entry.msgid):
            patterns.append((pattern(entry.msgid), entry.msgstr, QUOTED.findall(entry.msgid)))
        else:
            fixed.setdefault(entry.msgid, entry.msgstr)

    def say(text: str) -> str:
        if text in fixed:
            return fixed[text]
        for english, template, quoted in patterns:
            if match := english.fullmatch(text):
                places = enumerate(match.groups(), start=1)
                values = [value if str(number) in quoted else say_value(value) for number, value in places]
                return fit_particles(fill(template, values))
        return text

    def say_value(value: str) -> str:
        return fixed[value] if value in fixed else "".join(map(say_item, ITEMS.split(value)))

    def say_item(item: str) -> str:
        whole = say(item)
        return whole if whole != item else WORDS.sub(lambda words: say(words[0]), item)

    return say


def entries_for(catalogue: Path, context: str) -> "list[polib.POEntry]":
    """Return the entries of a context, then those without one; of each kind those with most text first."""
    entries = [entry for entry in read_catalogue(catalogue) if entry.msgctxt in (context, None)]
    return sorted(entries, key=lambda entry: (entry.msgctxt is None, -len(PLACE.sub("", entry.msgid))))


@cache
def read_catalogue(catalogue: Path) -> "tuple[polib.POEntry, ...]":
    """Return the entries of a catalogue of gettext."""
    import polib  # not above: whoever is spoken to in English needs no catalogue

    return tuple(polib.pofile(str(catalogue)))


def pattern(message: str) -> re.Pattern[str]:
    """Return the pattern of the texts that a message stands for, with a group for each place, in their order."""
    return re.compile("(.*?)".join(map(re.escape, PLACE.split(message)[::2])), re.DOTALL)


def fill(message: str, values: list[str]) -> str:
    """Return a message with the values in its places."""
    return PLACE.sub(lambda place: values[int(place[1]) - 1], message)
