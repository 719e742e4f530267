"""Vary sentence pairs as people type: in capitals, with typos, in quotes, with a URL inside, two in one line.

A variation depends on a random number generator alone, so that it can be repeated. What it does to the source alone, a
model has to bear; what it does to both sides, it has to translate. docs/robustness.md shows the table.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import NamedTuple

import regex

from dragoman.text.casing import in_capitals, outside
from dragoman.text.segmentation import CLUSTER

Pair = tuple[str, str]

WORD = regex.compile(r"\p{L}[\p{L}\p{M}]*(?:['’]\p{L}[\p{L}\p{M}]*)*")
LETTERS = regex.compile(r"[\p{L}\p{M}]{3,}")
FINAL_MARK = re.compile(r"[.!?…。！？।]+$")
CLAUSE = re.compile(r"[,;:] ")
TYPO_EVERY = 8  # words
# Rows of keyboards: Latin, Cyrillic and Korean.
KEYS = (
    "qwertyuiop", "asdfghjkl", "zxcvbnm",
    "йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю",
    "ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔ", "ㅁㄴㅇㄹㅎㅗㅓㅏㅣ", "ㅋㅌㅊㅍㅠㅜㅡ",
)  # fmt: skip
INVISIBLE = "\u200b\u00ad\ufeff\u200e"
QUOTES = ("“”", "«»", "„“", '""')
LOOKALIKES = str.maketrans("aceopxyAEOPCTXHKM", "асеорхуАЕОРСТХНКМ")  # Cyrillic
MISREAD = {"m": "rn", "l": "1", "O": "0", "cl": "d", "h": "b", "e": "c", "i": "l", "B": "8"}
NAMES = ("Kowalczyk", "Ndiaye", "Fluxara", "Brynhild", "Quorvex", "Itzel")


class Varied(NamedTuple):
    """A varied pair, and what was put into its source: these pieces must come back, each as often as it is here."""

    source: str
    target: str
    inserted: tuple[str, ...] = ()
    parts: int = 1  # how many pairs it was made of


Vary = Callable[[Sequence[Pair], Random], Varied | None]


@dataclass(frozen=True)
class Variation:
    """A way to vary pairs: the first of some pairs that follow each other in a text, or more of them together."""

    vary: Vary
    "returns None for pairs that it would not change"
    weight: int = 0
    "how often training shows it, compared with the others (`training.robust`); 0: a model need not learn it, or cannot"
    joins: bool = False
    "whether it makes one pair of two"
    label: str = ""
    "a regular expression for what is in front of its translations and no part of the target"


def words_of(text: str, change: Callable[[str], str], pattern: regex.Pattern[str] = WORD) -> str:
    """Return a text with each word changed, outside of placeholders."""
    return "".join(
        piece if fixed else pattern.sub(lambda match: change(match[0]), piece) for piece, fixed in outside(text)
    )


# Variations of one text.


def title_case(text: str) -> str:
    """Return a text with a capital for each word."""
    return words_of(text, lambda word: word[0].upper() + word[1:])


def lower_case(text: str) -> str:
    """Return a text in small letters."""
    return words_of(text, str.lower)


def mixed_case(text: str) -> str:
    """Return a text whose letters are small and capital in turn."""
    return words_of(text, lambda word: "".join(c.upper() if n % 2 else c.lower() for n, c in enumerate(word)))


def full_width(text: str) -> str:
    """Return a text with full-width Latin letters and digits."""
    return words_of(text, lambda word: "".join(chr(ord(c) + 0xFEE0) if c.isascii() else c for c in word))


def straight_quotes(text: str) -> str:
    """Return a text with straight quotes for curly ones; with curly ones where it has straight ones."""
    straight = text.translate(str.maketrans("“”‘’„", '""\'\'"'))
    if straight != text:
        return straight
    return re.sub(r'"([^"]*)"', r"“\1”", text.replace("'", "’"))


def with_invisible(text: str, random: Random) -> str:
    """Return a text with a character that nobody sees in one of its words."""
    return _in_some_words(text, random, lambda word: _insert(word, random, random.choice(INVISIBLE)))


def with_typos(text: str, random: Random) -> str:
    """Return a text with a typo in one of TYPO_EVERY words: letters swapped, dropped, doubled or of the next key."""
    return _in_some_words(text, random, partial(_misspell, random=random))


def repeated_letters(text: str, random: Random) -> str:
    """Return a text with letters that are drawn ouuuut."""
    return _in_some_words(text, random, lambda word: word[:-1] + 4 * word[-1])


def missing_spaces(text: str, random: Random) -> str:
    """Return a text in which one of TYPO_EVERY spaces is missing."""
    pieces = re.split("( )", text)
    places = range(1, len(pieces), 2)
    for place in random.sample(places, _some(len(places))):
        pieces[place] = ""
    return "".join(pieces)


def misread_letters(text: str, random: Random) -> str:
    """Return a text as a scanner might read it."""

    def misread(word: str) -> str:
        known = [letters for letters in MISREAD if letters in word]
        return word.replace(letters := random.choice(known), MISREAD[letters], 1) if known else word

    return _in_some_words(text, random, misread)


def hyphenated(text: str, random: Random) -> str:
    """Return a text with hyphens that the end of a line left in words."""
    return _in_some_words(text, random, lambda word: _insert(word, random, "- "))


def _in_some_words(text: str, random: Random, change: Callable[[str], str]) -> str:
    """Return a text with one of TYPO_EVERY words changed, at least one of those that have three letters or more."""
    places = [number for number, _ in enumerate(_long_words(text))]
    chosen = set(random.sample(places, _some(len(places)))) if places else set()
    numbers = iter(range(len(places)))
    return words_of(text, lambda word: change(word) if next(numbers) in chosen else word, LETTERS)


def _long_words(text: str) -> list[str]:
    return [match[0] for piece, fixed in outside(text) if not fixed for match in LETTERS.finditer(piece)]


def _some(count: int) -> int:
    return min(count, max(1, round(count / TYPO_EVERY)))


def _insert(word: str, random: Random, piece: str) -> str:
    place = random.randrange(1, len(word))
    return word[:place] + piece + word[place:]


def _misspell(word: str, random: Random) -> str:
    """Return a word with one typo; letters with their marks, and whole syllables of Hangul, are one."""
    letters = CLUSTER.findall(word)
    if len(letters) < 2:
        return word
    place = random.randrange(len(letters) - 1)
    kind = random.choice(("swapped", "dropped", "doubled", "next key"))
    if kind == "swapped":
        letters[place : place + 2] = letters[place + 1], letters[place]
    elif kind == "doubled":
        letters.insert(place, letters[place])
    else:
        letters[place] = _drop(letters[place]) if kind == "dropped" else _next_key(letters[place], random)
    return unicodedata.normalize("NFC", "".join(letters))


def _drop(letter: str) -> str:
    """Return what is left where a key was not hit: nothing, or a syllable of Hangul without its last letter."""
    parts = unicodedata.normalize("NFD", letter)
    return parts[:-1] if len(parts) == 3 and "HANGUL" in unicodedata.name(letter[0], "") else ""


def _next_key(letter: str, random: Random) -> str:
    """Return a letter of a key beside its own; of a syllable of Hangul, the vowel changes."""
    parts = unicodedata.normalize("NFD", letter)
    front, last = parts[: len(parts[:2]) - 1], parts[:2][-1]
    name = unicodedata.name(last, "")
    is_vowel = name.startswith("HANGUL JUNGSEONG")
    key = unicodedata.lookup(name.replace("JUNGSEONG", "LETTER")) if is_vowel else letter
    row = next((row for row in KEYS if key.lower() in row), "")
    near = [other for other in _beside(row, key.lower()) if not is_vowel or _is_vowel(other)]
    if not near:
        return letter
    chosen = random.choice(near)
    if is_vowel:
        jamo = unicodedata.lookup(unicodedata.name(chosen).replace("LETTER", "JUNGSEONG"))
        return unicodedata.normalize("NFC", front + jamo + parts[2:])
    return chosen.upper() if key.isupper() else chosen


def _beside(row: str, key: str) -> list[str]:
    place = row.find(key)
    return [row[near] for near in (place - 1, place + 1) if row and 0 <= near < len(row)]


def _is_vowel(jamo: str) -> bool:
    return "\u314f" <= jamo <= "\u3163"


# What they make of pairs.


def of_source(change: Callable[[str], str]) -> Vary:
    """Return a variation of sources alone."""
    return lambda pairs, _: _changed(pairs[0], change(pairs[0][0]), pairs[0][1])


def of_source_by_chance(change: Callable[[str, Random], str]) -> Vary:
    """Return a variation of sources alone, which chance decides."""
    return lambda pairs, random: _changed(pairs[0], change(pairs[0][0], random), pairs[0][1])


def of_both(change: Callable[[str], str]) -> Vary:
    """Return a variation of both sides."""
    return lambda pairs, _: _changed(pairs[0], *map(change, pairs[0]))


def _changed(pair: Pair, source: str, target: str) -> Varied | None:
    return Varied(source, target) if source != pair[0] else None


def around(opening: str, closing: str) -> Vary:
    """Return a variation that puts marks around both sides."""
    return of_both(lambda text: f"{opening}{text}{closing}")


def inserted(make: Callable[[Random], str]) -> Vary:
    """Return a variation that puts something between two words of the source, which then must be in the translation."""

    def vary(pairs: Sequence[Pair], random: Random) -> Varied | None:
        (source, target), thing = pairs[0], make(random)
        spaces = [match.start() for match in re.finditer(" ", source)]
        if not spaces or thing in source:
            return None
        place = random.choice(spaces)
        return Varied(f"{source[:place]} {thing}{source[place:]}", target, (thing,))

    return vary


def enclosed(opening: str, closing: str) -> Vary:
    """Return a variation that puts marks around a word of the source, which then must be in the translation."""

    def vary(pairs: Sequence[Pair], random: Random) -> Varied | None:
        source, target = pairs[0]
        words = [match.span() for match in re.finditer(r"(?<!\S)[^\W\d_]{4,}(?!\S)", source)]
        if not words or opening in source:
            return None
        start, end = random.choice(words)
        text = f"{source[:start]}{opening}{source[start:end]}{closing}{source[end:]}"
        return Varied(text, target, (opening, closing))

    return vary


def in_front(mark: str) -> Vary:
    """Return a variation that puts a mark in front of the source, which then must be in the translation."""
    return lambda pairs, _: Varied(mark + pairs[0][0], pairs[0][1], (mark.strip(),))


def fragment(pairs: Sequence[Pair], random: Random) -> Varied | None:
    """Return the first clause of a pair whose sides have as many clauses."""
    clauses = [CLAUSE.split(side) for side in pairs[0]]
    if len(clauses[0]) != len(clauses[1]) or len(clauses[0]) == 1:
        return None
    return Varied(clauses[0][0], clauses[1][0])


def joined(count: int, *, marks: bool) -> Vary:
    """Return a variation that makes one line of so many pairs; marks: whether the sources keep those at their ends."""

    def vary(pairs: Sequence[Pair], random: Random) -> Varied | None:
        if len(pairs) < count:
            return None
        sources, targets = zip(*pairs[:count], strict=True)
        if not marks:
            sources = (*(FINAL_MARK.sub("", source) for source in sources[:-1]), sources[-1])
        return Varied(" ".join(sources), " ".join(targets), parts=count)

    return vary


def long_sentence(words: int) -> Vary:
    """Return a variation that makes one sentence of at least so many words, with semicolons on both sides."""

    def vary(pairs: Sequence[Pair], random: Random) -> Varied | None:
        count, total = 0, 0
        while count < len(pairs) and total < words:
            total += len(pairs[count][0].split())
            count += 1
        if total < words:
            return None
        sides = [[FINAL_MARK.sub("", text) for text in side] for side in zip(*pairs[:count], strict=True)]
        source, target = ("; ".join(side) + "." for side in sides)
        return Varied(source, target, parts=count)

    return vary


def _number(random: Random) -> str:
    return str(random.randint(21, 987))


VARIATIONS: dict[str, Variation] = {
    "capitals": Variation(of_both(in_capitals)),
    "title case": Variation(of_both(title_case)),
    "lower case": Variation(of_source(lower_case), weight=3),
    "no final mark": Variation(of_both(lambda text: FINAL_MARK.sub("", text)), weight=1),
    "typos": Variation(of_source_by_chance(with_typos), weight=8),
    "doubled spaces": Variation(of_source(lambda text: text.replace(" ", "  "))),
    "no-break spaces": Variation(of_source(lambda text: text.replace(" ", "\u00a0"))),
    "letters and marks apart": Variation(of_source(partial(unicodedata.normalize, "NFD"))),
    "invisible characters": Variation(of_source_by_chance(with_invisible)),
    "full-width letters": Variation(of_source(full_width)),
    **{f"in quotes {pair}": Variation(around(*pair), weight=1) for pair in QUOTES},
    "quotes straight or curly": Variation(of_source(straight_quotes), weight=1),
    "in brackets": Variation(around("(", ")"), weight=1),
    "URL": Variation(inserted(lambda random: f"https://example.org/{_number(random)}")),
    "e-mail": Variation(inserted(lambda random: f"info{_number(random)}@example.org")),
    "number": Variation(inserted(_number)),
    "date": Variation(inserted(lambda random: f"20{random.randint(10, 29)}-0{random.randint(1, 9)}-15")),
    "path": Variation(inserted(lambda random: f"/srv/data/{_number(random)}/list.txt")),
    "version": Variation(inserted(lambda random: f"{random.randint(1, 30)}.{random.randint(1, 20)}.7")),
    "hashtag": Variation(inserted(lambda random: f"#spring{_number(random)}")),
    "placeholder {name}": Variation(inserted(lambda random: "{name}")),
    "placeholder %s": Variation(inserted(lambda random: "%s")),
    "code": Variation(inserted(lambda random: "`git add`")),
    "emoji": Variation(inserted(lambda random: random.choice("😀🎉🚀"))),
    "emoji of several": Variation(inserted(lambda random: random.choice(("👩‍👩‍👧", "🧑🏽‍💻")))),
    "flag": Variation(inserted(lambda random: random.choice(("🇩🇪", "🇰🇷")))),
    "unknown name": Variation(inserted(lambda random: random.choice(NAMES))),
    "tag <b>": Variation(enclosed("<b>", "</b>")),
    "Markdown **": Variation(enclosed("**", "**")),
    "bullet": Variation(in_front("• ")),
    "list number": Variation(in_front("1. ")),
    "label NOTE": Variation(of_source(lambda text: f"NOTE: {text}"), label=r"[^:：]{1,30}[:：]\s?"),
    "fragments": Variation(fragment, weight=1),
    "two sentences": Variation(joined(2, marks=True)),
    "two without marks": Variation(joined(2, marks=False), weight=4, joins=True),
    "four sentences": Variation(joined(4, marks=True)),
    "four without marks": Variation(joined(4, marks=False)),
    "sentence of 60 words": Variation(long_sentence(60)),
    "sentence of 120 words": Variation(long_sentence(120)),
    "mIxEd CaSe": Variation(of_source(mixed_case)),
    "look-alike letters": Variation(of_source(lambda text: words_of(text, lambda w: w.translate(LOOKALIKES)))),
    "hyphens at line ends": Variation(of_source_by_chance(hyphenated)),
    "repeated letters": Variation(of_source_by_chance(repeated_letters)),
    "missing spaces": Variation(of_source_by_chance(missing_spaces)),
    "misread letters": Variation(of_source_by_chance(misread_letters)),
}

TRAINED = [name for name, variation in VARIATIONS.items() if variation.weight]


def vary(name: str, pairs: Sequence[Pair], seed: object) -> Varied | None:
    """Return how a variation changes the first of pairs that follow each other; None where it does not.

    seed: of all chance; with the same one, the result is the same.
    """
    return VARIATIONS[name].vary(pairs, Random(f"{seed} {name}"))
