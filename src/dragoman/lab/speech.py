"""Say in Korean what the lab says in English.

ko.po is the catalogue. A message is a text of the lab with {1}, {2} ... where a run puts numbers and names, and its
context is the experiment that says it; messages without a context are common to all. The experiments themselves know
nothing of this: a text that they made is matched with the messages, and what stands in its places is put into the
Korean one. A text that matches none stays as it is.
"""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal

import polib

from dragoman.text.particles import fit_particles

Language = Literal["en", "ko"]
Say = Callable[[str], str]  # from an English text to the same in some language

CATALOGUE = Path(__file__).parent / "ko.po"
PLACE = re.compile(r"\{(\d+)\}")
ITEMS = re.compile(r"(; |, (?![^(]*\)))")  # of a list, with what separates them; brackets stay whole
WORDS = re.compile(r"[^,;:()\s](?:[^,;:()]*[^,;:()\s])?")  # of an item, between punctuation marks


def speaker(language: Language, experiment: str = "") -> Say:
    """Return what says the texts of an experiment, or those of the report, in a language."""
    return (lambda text: text) if language == "en" else korean(experiment)


@cache
def korean(experiment: str) -> Say:
    """Return what says the texts of an experiment in Korean."""
    fixed: dict[str, str] = {}
    patterns: list[tuple[re.Pattern[str], str]] = []
    for entry in entries_for(experiment):
        if PLACE.search(entry.msgid):
            patterns.append((pattern(entry.msgid), entry.msgstr))
        else:
            fixed.setdefault(entry.msgid, entry.msgstr)

    def say(text: str) -> str:
        if text in fixed:
            return fixed[text]
        for english, own in patterns:
            if match := english.fullmatch(text):
                return fit_particles(fill(own, list(map(say_value, match.groups()))))
        return text

    def say_value(value: str) -> str:
        return fixed[value] if value in fixed else "".join(map(say_item, ITEMS.split(value)))

    def say_item(item: str) -> str:
        whole = say(item)
        return whole if whole != item else WORDS.sub(lambda words: say(words[0]), item)

    return say


def entries_for(experiment: str) -> list[polib.POEntry]:
    """Return the entries that an experiment may need: its own, then the common ones; those with most text first."""
    entries = [entry for entry in read_catalogue() if entry.msgctxt in (experiment, None)]
    return sorted(entries, key=lambda entry: (entry.msgctxt is None, -len(PLACE.sub("", entry.msgid))))


@cache
def read_catalogue() -> tuple[polib.POEntry, ...]:
    """Return the entries of the catalogue."""
    return tuple(polib.pofile(str(CATALOGUE)))


def fill(message: str, values: list[str]) -> str:
    """Return a message with the values in its places."""
    return PLACE.sub(lambda place: values[int(place[1]) - 1], message)


def pattern(message: str) -> re.Pattern[str]:
    """Return the pattern of the texts that a message stands for, with a group for each place, in their order."""
    return re.compile("(.*?)".join(map(re.escape, PLACE.split(message)[::2])), re.DOTALL)
