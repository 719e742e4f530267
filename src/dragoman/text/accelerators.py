"""Keep the accelerators of menus and dialogs: find the letter that "&File" underlines, and choose new ones for a menu.

Programs mark the letter with the character before it: & in Qt and Windows, _ in GTK, ~ in LibreOffice. A doubled marker
stands for the character.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dragoman.text.assignment import assign
from dragoman.text.casing import IDENTIFIER, outside
from dragoman.text.verbatim.detect import KINDS
from dragoman.text.verbatim.detect import find as find_placeholders
from dragoman.text.verbatim.kinds import EXACT, KEYS, NAMED_KEYS, Kinds

MARKERS = "&_~"
MAX_LENGTH = 500  # characters of a text with an accelerator
MENU = 64  # entries among which letters differ: more than an alphabet has
CANDIDATES = 40  # letters of a text to choose from, at most
SHORTCUT = re.compile(
    rf"(?:\t|\\t)(?:(?:{KEYS})\s?[+-]\s?){{0,4}}(?:F\d\d?|{NAMED_KEYS}|Backspace|Escape|Insert|Delete|Space|Home|End|Up"
    r"|Down|Left|Right|PgUp|PgDown|Page\s?Up|Page\s?Down|(?<=[+ -])\S)\Z"
)
# Letters that no single key types: after a text that has any, a Latin letter stands in brackets.
WIDE = re.compile("[\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
MASK = "\u3007"  # such a letter, for placeholders; a space masks those that separate words
SEPARATORS = ("tag", "escape", "emoji", "symbol")
BRACKETED = {each: re.compile(rf"\s?[(（]{each}([^\W_])[)）](?=\W*\Z)") for each in MARKERS}
TAIL = ".…。:： \u00a0\n"  # comes after a letter in brackets
WORD = {each: re.compile(rf"(?<![^\W_])[^\W_]*+(?P<mark>{each})[\w{each}]*+") for each in MARKERS}
# Words in which a marker is a character: "R&D", "Drag&Drop", "utf_8", "My_File", "MAX_SIZE", "~5", "A~Z".
LITERAL = {
    "&": re.compile(r".*[^\W_]&\d|[A-Z]+&[A-Z]s?(?![A-Za-z])|.*[^\WA-Z]&[A-Z]"),
    "_": re.compile(r".*\d_|.*[^\W_]_[\dA-Z]|[A-Z]{2,}_"),
    "~": re.compile(r".*~\d|[A-Z]~[A-Z](?![A-Za-z])"),
}
LITERAL_TEXT = {
    "&": re.compile(r"[a-z]&[a-z]"),
    "_": re.compile(r"[a-z\d]*_[a-z\d_]*"),
    "~": re.compile(r"[a-z]+~[a-z]+"),
}
# "_File" and "Save _as" show by themselves that a letter is marked, "ne_xt" does not.
EVIDENT = {each: re.compile(each if each == "&" else rf"(?:\A|\w\s|[(（]){each}") for each in MARKERS}
SENTENCE_END = re.compile(r"[^.][.!?]\Z")
VOWELS = frozenset("aeiouαεηιουωаеёиоуыэюяіїє")
POOR = frozenset("ijlgpqyI")  # narrow, or the line below a letter crosses it
LATIN = "abcdefhkmnorstuvwxzgjlpqyi123456789"  # for texts without a letter to choose


@dataclass(frozen=True)
class Accelerator:
    """What a text has besides its words: the letter that its marker precedes, and a shortcut with the tab before it.

    text: the words, as a program shows them; marker: '' for a text that has only a shortcut; letter: '' for a text in
    which markers are only doubled.
    """

    text: str
    marker: str = ""
    letter: str = ""
    shortcut: str = ""


def convention(texts: Iterable[str]) -> str:
    """Return the marker of the accelerators of a file, given all of its texts; '' for a file that has none.

    It marks a letter in more texts than have the character for something else, such as "snake_case" and "R&D".
    """
    votes = Counter[str]()
    for text in texts:
        for marker in filter(text.__contains__, MARKERS):
            accelerator = find(text, marker)
            if not accelerator or not accelerator.marker:
                votes[marker] -= len(text) <= MAX_LENGTH
            elif accelerator.letter:
                votes[marker] += EVIDENT[marker].search(text) is not None
    return max((marker for marker in MARKERS if votes[marker] > 0), key=votes.__getitem__, default="")


def find(text: str, marker: str) -> Accelerator | None:
    """Return the accelerator and the shortcut of a text in a file with this `convention`; None if it has neither.

    A text with several markers may have none: it is left as it is.
    """
    shortcut = match[0] if (match := SHORTCUT.search(text)) else ""
    shown, letter = text.removesuffix(shortcut), ""
    cuts = list[tuple[int, int]]()
    if marker and marker in shown and len(shown) <= MAX_LENGTH:
        masked = _mask(shown, KINDS - IDENTIFIER if marker == "_" else KINDS)
        cuts = [(match.start(), match.start() + 1) for match in re.finditer(2 * marker, masked)]
        masked = masked.replace(2 * marker, "  ")
        marks = [word.start("mark") for word in WORD[marker].finditer(masked) if _is_mark(masked, word, marker)]
        if bracketed := BRACKETED[marker].search(masked):
            cuts.append(bracketed.span())
            letter = bracketed[1]
        elif len(marks) == 1:
            cuts.append((marks[0], marks[0] + 1))
            letter = shown[marks[0] + 1]
    if not cuts:
        return Accelerator(shown, shortcut=shortcut) if shortcut else None
    edges = [0, *(edge for cut in sorted(cuts) for edge in cut), len(shown)]
    words = "".join(shown[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))
    return Accelerator(words, marker, letter, shortcut)


def _mask(text: str, kinds: Kinds = KINDS) -> str:
    """Return a text of the same length without its placeholders, but for the first letter of names and the like."""
    pieces, end = list[str](), 0
    for each in find_placeholders(text, kinds):
        start = each.start + (each.kind not in EXACT)
        pieces += [text[end:start], (" " if each.kind in SEPARATORS else MASK) * (each.end - start)]
        end = each.end
    return "".join([*pieces, text[end:]])


def _is_mark(text: str, word: re.Match[str], marker: str) -> bool:
    """Return whether the marker in a word marks the letter after it; a word with several ones has no mark."""
    at, end = word.span("mark")
    if word[0].count(marker) > 1 or end == word.end() or WIDE.search(text[max(at - 1, 0) : end + 1]):
        return False
    if LITERAL_TEXT[marker].fullmatch(text.strip()) or LITERAL[marker].match(word[0]):
        return False
    after = text[word.end() :][:1]
    is_name = marker == "_" and at > word.start() and word[0].islower()
    if is_name and (not text[0].isupper() or SENTENCE_END.search(text) or after == "("):
        return False
    return after not in (*"=;",)


def place(translations: Sequence[str], accelerators: Sequence[Accelerator | None], taken: str = "") -> list[str]:
    """Return the translations of the texts of a menu with accelerators, each on another letter where that is possible.

    accelerators: what `find` returned for the source of each, None for a text that stays as it is; taken: the letters
    of entries that were translated before.
    """
    options = {
        row: _options(translations[row], accelerator)
        for row, accelerator in enumerate(accelerators)
        if accelerator and accelerator.letter
    }
    chosen = dict[int, tuple[int, int, str]]()
    rows = list(options)
    for block in (rows[start : start + MENU] for start in range(0, len(rows), MENU)):
        costs = [{letter: cost for letter, (cost, *_) in options[row].items()} for row in block]
        letters = assign(costs, taken.lower())
        chosen |= {row: options[row][letter] for row, letter in zip(block, letters, strict=True)}
    results = list(translations)
    for row, accelerator in enumerate(accelerators):
        if accelerator:
            _, at, mark = chosen.get(row, (0, 0, ""))
            halves = (_escape(half, accelerator.marker) for half in (results[row][:at], results[row][at:]))
            results[row] = mark.join(halves) + accelerator.shortcut
    return results


def place_in_menus(accelerators: Sequence[Accelerator], translations: Sequence[str]) -> list[str]:
    """Return the translations of a file's texts with accelerators; those that are not translated stay without.

    A menu is a run of texts, until one has a letter that another one had.
    """
    menus: list[list[int]] = [[]]
    letters: set[str] = set()
    for index, accelerator in enumerate(accelerators):
        letter = accelerator.letter.lower()
        if letter in letters or len(menus[-1]) == MENU:
            menus.append([])
            letters = set()
        menus[-1].append(index)
        letters.update(filter(None, [letter]))
    placed = list(translations)
    for menu in menus:
        changed = [index for index in menu if translations[index] != accelerators[index].text]
        taken = "".join(accelerators[index].letter.lower() for index in menu if index not in changed)
        texts = place([translations[index] for index in changed], [accelerators[index] for index in changed], taken)
        for index, text in zip(changed, texts, strict=True):
            placed[index] = text
    return placed


def _escape(text: str, marker: str) -> str:
    """Return a text with its markers doubled outside of placeholders."""
    if not marker or marker not in text:
        return text
    pieces = outside(text, frozenset(EXACT))
    return "".join(piece if fixed else piece.replace(marker, 2 * marker) for piece, fixed in pieces)


def _options(text: str, accelerator: Accelerator) -> dict[str, tuple[int, int, str]]:
    """Return for each letter that a translation can have marked its cost, its place, and what is inserted there."""
    options: dict[str, tuple[int, int, str]] = {}
    masked = "" if WIDE.search(text) else _mask(text)[:MAX_LENGTH]
    categories = [unicodedata.category(character) for character in masked]
    for at, (character, category) in enumerate(zip(masked, categories, strict=True)):
        letter = character.lower()
        is_digit = character.isascii() and character.isdigit()
        if (category not in ("Lu", "Ll", "Lo") and not is_digit) or len(letter) > 1:
            continue
        plain = unicodedata.normalize("NFD", letter)[0]
        is_same = letter == accelerator.letter.lower()
        if at == 0 or categories[at - 1][0] not in "LMN":
            cost = 0 if is_same else 1 if category == "Lu" else 2
        else:
            cost = (3 if is_same else 5 if plain in VOWELS else 4) + 10 * (category == "Lu")  # "R&D" would be no mark
        is_latin, is_cyrillic = letter < "\u0250", "\u0400" <= letter < "\u0500"
        if (
            (plain != letter and not is_cyrillic)
            or (is_latin and not letter.isascii())
            or categories[at + 1 : at + 2] == ["Mn"]
        ):
            cost += 4
        cost += 10 * (character in POOR) + 30 * is_digit
        options[letter] = min(
            options.get(letter, (MAX_LENGTH * 99, 0, "")), (MAX_LENGTH * cost + at, at, accelerator.marker)
        )
    if options:
        return dict(sorted(options.items(), key=lambda option: option[1])[:CANDIDATES])
    at = len(text.rstrip(TAIL))
    space = "" if WIDE.match(text[at - 1 : at]) else " "
    letters = [accelerator.letter, *(word[0] for word in accelerator.text.split()), *LATIN]
    latin = filter(LATIN.__contains__, dict.fromkeys(map(str.lower, letters)))
    return {each: (cost, at, f"{space}({accelerator.marker}{each.upper()})") for cost, each in enumerate(latin)}
