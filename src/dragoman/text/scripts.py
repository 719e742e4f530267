"""Tell which scripts a text or a language is written in: LATIN, HANGUL, CJK, ..., as Unicode names them."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from dragoman.storage.records import read_record

RECORD = "scripts.json"  # in a model folder
MIN_SHARE = 0.005
SAMPLE = 1000  # texts whose letters are looked at, to tell their language


@lru_cache(1 << 17)
def script_of(character: str) -> str:
    """Return 'LATIN', 'HANGUL', 'CJK', ...: the first word of a letter's name; '' for what is no letter."""
    if not character.isalpha():
        return ""
    words = unicodedata.name(character, "").replace("-", " ").split()
    return next((word for word in words if word not in ("FULLWIDTH", "HALFWIDTH", "MODIFIER", "MATHEMATICAL")), "")


def scripts_of(text: str) -> Counter[str]:
    """Return how many letters of each script the text has."""
    scripts: Counter[str] = Counter()
    for character, times in Counter(text).items():
        if name := script_of(character):
            scripts[name] += times
    return scripts


def usual_scripts(texts: Iterable[str]) -> list[str]:
    """Return the scripts of at least MIN_SHARE of a language's letters, which includes those of foreign names."""
    scripts: Counter[str] = Counter()
    for text in texts:
        scripts += scripts_of(text)
    return sorted(script for script, letters in scripts.items() if letters >= MIN_SHARE * scripts.total())


def name_scripts(scripts: Sequence[str]) -> str:
    """Return one or more scripts as a reader knows them: 'Hangul and Latin', 'CJK, Hiragana and Katakana'."""
    *others, last = (script if script == "CJK" else script.capitalize() for script in scripts)
    return f"{', '.join(others)} and {last}" if others else last


def direction_warning(name: str, texts: Iterable[str], reads: Sequence[str], writes: Sequence[str]) -> str:
    """Return a sentence where the texts are in none of the scripts that the model reads; '' else.

    Where training did not record what the model reads, it is one where they are in the scripts that it writes, unless
    that is Latin, in which most languages are written. name: of the texts.
    """
    scripts = usual_scripts(islice(texts, SAMPLE))
    if not scripts or (set(scripts) & set(reads) if reads else scripts != list(writes) or scripts == ["LATIN"]):
        return ""
    knows = f"reads {name_scripts(reads)}" if reads else f"writes {name_scripts(writes)}"
    return (
        f"{name}: written in {name_scripts(scripts)} script, but the model {knows}: use a model that "
        "translates from the language of the text"
    )


def read_scripts(folder: Path) -> tuple[str, ...]:
    """Read the scripts in a model folder, () without a record. Raise DragomanError where it is not a list of them."""

    def make(scripts: Any) -> tuple[str, ...]:
        if not isinstance(scripts, list) or not all(isinstance(script, str) for script in scripts):
            raise ValueError
        return tuple(scripts)

    return read_record(folder / RECORD, "a list of scripts", make) or ()
