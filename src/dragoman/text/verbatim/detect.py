"""Find what must come through a translation letter by letter: addresses, code, tags, variables, numbers with units."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from typing import cast

from dragoman.text.verbatim.kinds import EXACT, KEYS, NAMED_KEYS, ORDER, PATTERNS, SIGNS, Finder, Kind, Kinds


@lru_cache
def _pattern(kinds: Kinds) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{kind}>{PATTERNS[kind]})" for kind in ORDER if kind in kinds), re.VERBOSE)


WITH_NUMBERS: Kinds = frozenset(ORDER)
KINDS = WITH_NUMBERS - {"number"}
TAGS: Kinds = frozenset(["tag"])
KINDS_BY_SIGN = {re.compile(sign): kinds for sign, kinds in SIGNS.items()}
TEMPLATE = _pattern(frozenset(["template"]))
FILLED_IN: tuple[Kind, ...] = ("template", "brace", "variable", "printf")  # what a program replaces
REPLACED = _pattern(frozenset(FILLED_IN))
TAG_SIGN = re.compile(r"[<*]|~~|\]\(|\{\\")  # what most tags have
REPLACED_SIGN = re.compile(r"[%{$]|<\?")  # as SIGN, for these
LATIN = re.compile("[A-Za-z]")
JOINT = re.compile(r"(?<=[\w\s])[+-](?=.)")  # of the keys of a shortcut
ENCODED = re.compile("%[0-9A-Fa-f]{2}")  # a byte of a URL
POSITIONAL = re.compile(r"%(?!%|\(|\d+\$|L?\d+$).+ | \{(?:![rsa])?(?::.*)?\}", re.VERBOSE)
MARKS: dict[Kind, str] = {"brace": "{}", "printf": "%"}
LIKE = 0.93  # of the letters of a name and of what another language makes of it
SOUNDS = str.maketrans("ckqzxwyj", "cccssvii", "h")  # "Zibeon" is Sibeón, and Kovalczik may be Kowalczyk
EMPHASES = ("*", "**", "***", "~~")  # of Markdown, which open and close with the same mark
URL_END = ".,;:!?'*"  # belong to the sentence around an address
BRACKETS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True)
class Placeholder:
    """A placeholder that was found in a text: text[start:end]."""

    start: int
    end: int
    text: str
    kind: Kind


def find_matches(pattern: str) -> Finder:
    """Return a finder of what a regular expression matches. Raise ValueError where it is none, or matches no text."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{error} in the regular expression '{pattern}'") from None
    if compiled.match(""):
        raise ValueError(f"the regular expression '{pattern}' matches an empty text")

    def find_spans(text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in compiled.finditer(text) if match[0].strip())

    return Finder("own", find_spans)


def is_positional(placeholder: str) -> bool:
    """Return whether a placeholder gets its argument by its place among the others: %s and {}, but not %2$s or {0}."""
    return POSITIONAL.fullmatch(placeholder) is not None


def find(text: str, kinds: Kinds = KINDS) -> list[Placeholder]:
    """Return the placeholders of these kinds in order, without overlaps.

    kinds: WITH_NUMBERS has amounts with a unit and times of day, too; TAGS has tags alone, save those in code or a URL.
    What a finder of the user's own finds goes before all others, and names come last.
    """
    chosen = {kind.kind if isinstance(kind, Finder) else kind for kind in kinds}
    return [placeholder for placeholder in _find(text, kinds | KINDS) if placeholder.kind in chosen]


def _find(text: str, wanted: Kinds) -> list[Placeholder]:
    finders = [kind for kind in wanted if isinstance(kind, Finder)]
    if not finders:
        return _find_in_table(text, wanted)
    placeholders: list[Placeholder] = []
    spans = [(start, end, finder.kind) for finder in finders for start, end in finder.find(text)]
    of_finders = [
        Placeholder(start, end, text[start:end], kind)
        for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1]))
    ]
    of_user, names = ([each for each in of_finders if (each.kind == "name") is name] for name in (False, True))
    for each in (*of_user, *_find_in_table(text, wanted), *names):
        if all(each.end <= taken.start or taken.end <= each.start for taken in placeholders):
            placeholders.append(each)
    return sorted(placeholders, key=lambda placeholder: placeholder.start)


def _find_in_table(text: str, wanted: Kinds) -> list[Placeholder]:
    kinds: Kinds = wanted & {"number"}
    for sign, kinds_with_sign in KINDS_BY_SIGN.items():
        if sign.search(text):
            kinds |= wanted & kinds_with_sign
    placeholders: list[Placeholder] = []
    if not kinds:
        return placeholders
    for match in _pattern(kinds).finditer(text):
        kind = cast(Kind, match.lastgroup)
        end = match.end() if kind != "url" else match.start() + _url_length(match[0])
        placeholders.append(Placeholder(match.start(), end, text[match.start() : end], kind))
    return _paired(text, placeholders) if any(each.text in EMPHASES for each in placeholders) else placeholders


def _paired(text: str, placeholders: Sequence[Placeholder]) -> list[Placeholder]:
    """Return placeholders without the marks of Markdown that enclose nothing, such as a star that multiplies."""
    opening: dict[str, Placeholder] = {}
    paired = set[Placeholder]()
    for each in placeholders:
        if each.text not in EMPHASES:
            paired.add(each)
        elif each.text in opening and not text[each.start - 1].isspace():
            paired |= {opening.pop(each.text), each}
        else:
            opening[each.text] = each
    return [each for each in placeholders if each in paired]


def find_filled_in(text: str) -> list[str]:
    """Return the placeholders that a program fills in, such as "%s" and "{name}", also those in tags, URLs and code.

    "%%", which may follow another one, is one of its own.
    """
    marks: list[str] = []
    if not REPLACED_SIGN.search(text):
        return marks
    for placeholder in find(text.replace("`", "'")):  # so that none is part of code, which may be quoted differently
        if placeholder.kind in FILLED_IN:
            marks.append(placeholder.text)
        elif placeholder.kind in ("tag", "url", "email"):
            marks += [match[0] for match in REPLACED.finditer(ENCODED.sub("", placeholder.text))]
    parts = ((mark.removesuffix("%%"), "%%") if mark.endswith("%%") else (mark,) for mark in marks)
    return [part for each in parts for part in each if part]


def _url_length(url: str) -> int:
    """Return the length of a URL without the punctuation after it or closing brackets that it does not open."""
    counts, end = Counter(url), len(url)
    while url[end - 1] in URL_END or counts[url[end - 1]] > counts[BRACKETS.get(url[end - 1], url[end - 1])]:
        end -= 1
        counts[url[end]] -= 1
    return end


def compare(source: str, output: str, kinds: Kinds = KINDS, prefix: str = "") -> tuple[list[str], list[str]]:
    """Return what the output lost of what must not change, and what it invented, as often as each is missing or extra.

    Names and codes are never invented, and those of more words ("X11-Pixmap") are none that are lost. Nor is invented
    what the prefix of the output was asked to have. Where nothing is, but positional placeholders have changed places
    and so would get each other's arguments, all of these are lost. Beside placeholders of a kind, marks of that kind
    that belong to none are invented, too: a program fails at "{name}}" and "% of %s".
    """
    counted = kinds.intersection((*EXACT, "number"))
    in_source, in_output, in_prefix = find(source, kinds), find(output, counted), find(prefix, counted)
    exact = [placeholder for placeholder in in_source if placeholder.kind in counted]
    copied = [placeholder for placeholder in in_source if placeholder.kind not in counted]
    expected, present, asked = (Counter(each.text for each in spans) for spans in (exact, in_output, in_prefix))
    present -= Counter(_touching(output, in_output)) - Counter(_touching(source, exact))
    lost = list((expected - present).elements())
    invented = list((present - (expected | asked)).elements())
    if marks := "".join(MARKS.get(kind, "") for kind in {placeholder.kind for placeholder in exact}):
        of_source, of_output, of_prefix = (
            _stray_marks(text, placeholders, marks)
            for text, placeholders in ((source, in_source), (output, in_output), (prefix, in_prefix))
        )
        invented += (of_output - (of_source | of_prefix)).elements()
    if not lost and not invented:
        before, after = ([each.text for each in spans if is_positional(each.text)] for spans in (exact, in_output))
        lost = before if before != after[: len(before)] else []
    return lost + _lost_copies(copied, output), invented


def _touching(text: str, placeholders: Sequence[Placeholder]) -> list[str]:
    """Return the conversions of printf that Latin letters follow without a space, as in "%prechung"."""
    return [each.text for each in placeholders if each.kind == "printf" and LATIN.match(text, each.end)]


def _lost_copies(copied: Sequence[Placeholder], output: str) -> list[str]:
    """Return the names and codes that an output has less often than it should."""
    lost: list[str] = []
    for (text, kind), times in Counter((each.text, each.kind) for each in copied).items():
        if (
            kind == "name"
            and not any(map(str.isdigit, text))
            and all(any(_is_like(word, part) for word in output.split()) for part in text.split())
        ):
            continue
        pattern = _localised_shortcut(text) if kind == "shortcut" else re.escape(text)
        if kind == "name":  # "ISO 9001" is ISO-9001 in a compound
            pattern = pattern.replace(r"\ ", r"[\s-]")
        before = r"(?<![A-Za-z0-9])(?<!\d[.,:])" if text[0].isalnum() else ""
        after = r"(?![A-Za-z0-9]|[.,:]\d)" if text[-1].isalnum() else ""
        if kind == "symbol":
            before = after = ""
        copies = re.findall(f"{before}{pattern}{after}", output)
        lost += [text] * (times - len(copies))
    return lost


def _is_like(word: str, name: str) -> bool:
    """Return whether a word may be a name as another language writes it: "Sibeón" for "Zibeon", "Annas" for "Anna"."""
    if any(map(str.isupper, name[1:])):  # a product, or "O'Hara": nobody writes these otherwise
        return re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9]{{3}}|[A-Z0-9])", word) is not None
    if not word[:1].isupper():
        return name in word and name.lower() == name.upper()  # of a script without capitals
    plain, like = (_sound(text) for text in (word, name))
    is_cut = len(plain) < len(like) and like.startswith(plain)
    is_longer = plain.startswith(like) and len(plain) - len(like) <= 2
    return is_longer or (not is_cut and SequenceMatcher(None, plain, like, autojunk=False).ratio() >= LIKE)


def _sound(word: str) -> str:
    """Return a word without accents, and with one letter for those that stand for the same in other languages."""
    return "".join(filter(str.isalpha, unicodedata.normalize("NFD", word))).casefold().translate(SOUNDS)


def _localised_shortcut(text: str) -> str:
    """Return a pattern for a shortcut in any language: as many keys; the last one is the same, if it is no word."""
    keys = [key.strip() for key in JOINT.split(text)]
    last = re.escape(keys[-1])
    if len(keys) > 1 and len(keys[-1]) > 3:
        last = rf"(?:{last}|{NAMED_KEYS}|[^\x00-\x7f]+)"
    modifiers = (rf"(?:{re.escape(key)}|{KEYS}|[^\x00-\x7f]+)\s?[+-]\s?" for key in keys[:-1])
    return "".join(modifiers) + rf"(?i:{last})"


def _stray_marks(text: str, placeholders: Sequence[Placeholder], marks: str) -> Counter[str]:
    """Return how often each of the marks stands outside of the placeholders of a text."""
    stray = Counter(text) - Counter("".join(placeholder.text for placeholder in placeholders))
    return Counter({mark: stray[mark] for mark in marks})
