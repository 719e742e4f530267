"""Split text into sentences, and into pieces that fit a model.

The language is not known: sentences end by the sentence-breaking classes of Unicode (UAX 29), and the abbreviations of
a few languages do not end them. In doubt two sentences stay one, which costs less than a sentence torn in two.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

import regex

from dragoman.text.verbatim.detect import find

# All patterns match greedily, never backtrack, and consume what they have looked at: time is linear for any text.
CLOSERS = r"""(?P<close>(?:[\p{M}\p{Cf}\p{Pe}\p{Pf}"']|[\p{Pi}](?=[\s\p{P}]|\Z)|[ \u00a0\u202f]»(?=[\s\p{P}]|\Z))*+)"""
OPENING_TAG = r"""<[A-Za-z](?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+>"""
LINE_BREAK = r"<br(?=[\s/>])[^<>]*+>"
# What follows a sentence and belongs to it. After these the next one needs no space in front of it ...
PARTING = rf"""(?:
    \s*+(?:</[A-Za-z][^<>\s]*+\s*+>|(?P<line>{LINE_BREAK}))[\p{{Pe}}\p{{Pf}}"']*+
    | (?:\p{{Emoji_Presentation}}|\p{{Extended_Pictographic}}\ufe0f)[\p{{M}}\p{{Cf}}\p{{Sk}}]*+ )"""
# ... and after these it does: "[1]", "[^a]", "<sup>1", an empty tag, emphasis in Markdown.
NOTE = r"""(?:
    \[(?:\^[^\[\]\s]{1,40}+|[a-z]|\d{1,3}+(?:[,–-]\d{1,3}+){0,3}+)\]
    | (?:<(?:sup|a)(?:\s[^<>]*+)?>)++\[?[\d*†a-z]{1,3}+\]?(?=</)
    | <(?!br[\s/])[A-Za-z][^<>/]*+(?:/(?!>)[^<>/]*+)*+/>
    | (?:\*\*|__|~~)[\p{Pe}\p{Pf}"']*+ )"""
SENTENCE = regex.compile(
    rf"""(?P<mark>(?:[\p{{SB=STerm}}\p{{SB=ATerm}}…‥]|(?<=\p{{Greek}})[;\u037e])++) {CLOSERS}
    (?:{NOTE}|(?P<parting>{PARTING}))*+ (?P<space>\s*+)
    | \n[^\S\n]*+\n(?P<blank>\s*+)
    | {LINE_BREAK}(?:\s*+{LINE_BREAK})*+\s*+""",
    regex.VERBOSE | regex.IGNORECASE,
)
CLAUSE = regex.compile(rf"(?P<mark>[\p{{SB=STerm}}\p{{SB=ATerm}}\p{{SB=SContinue}};；…‥]++){CLOSERS}(?P<space>\s*+)")
SEMICOLON = regex.compile(r"[;；]\s++|；")
SPACE = regex.compile(r"\s++")
CLUSTER = regex.compile(r"\p{RI}{2}\p{M}*+|\X")  # a flag is two letters; \X would take all flags in a row for one

NEEDS_SPACE = ".․…‥!?"  # ends nothing where a letter follows at once: example.com, what?x=1
WIDE = "、，；：。！？｡､．—"  # written without a space after it
LOWER = regex.compile(rf"(?:{OPENING_TAG})*+[\p{{Ps}}\p{{Pi}}\p{{Pd}}\"'¿¡]{{0,3}}\p{{Ll}}")
CASELESS = regex.compile(rf"(?:{OPENING_TAG})*+[\p{{Ps}}\p{{Pi}}\"']{{0,3}}\p{{Lo}}")
CONTINUES = regex.compile(r"[\p{SB=SContinue}\p{SB=STerm}\p{SB=ATerm};；…‥]|(?<=[」』])(?:と|って)|(?<=\d．)\d")

# A full stop after one of these ends no sentence: titles and the like, initials and dotted abbreviations ("J.", "z.B.",
# "U.S."), and numbers of one or two digits or in Roman numerals, which are as often list markers and German ordinals.
ABBREVIATION = regex.compile(
    r"""(?x) (?<![\p{L}\p{N}.]) (?:
        (?i: Mr | Mrs | Ms | Mx | Dr | Prof | Rev | Hon | St | Gen | Col | Lt | Sgt | Capt | Gov | Sen | Rep | vs | cf
           | viz | approx | bzw | ca | vgl | evtl | ggf | inkl | exkl | zzgl | Mio | Mrd | Hr | Hrn | Fr | Dipl | Ing
           | sog | Fa
           | Mme | Mlle | Sr | Sra | Srta | Dra | Dña | Ud | Uds | Vd | Vds | EE | UU | Sig | dhr | mevr | bijv )
        | (?! (?<= \d \s ) [ap]\.m \Z ) [\p{Lu}\p{Ll}] (?: \. \p{L} )*+
        | (?<= &[ ] ) Co | (?<! [=/] ) \d{1,2} | [IVX]{1,5}
    ) \Z"""
)
# But one after a number ends a sentence behind a word ("on December 16. Then"), unless that is the first ("Table 1.
# Sizes") or stands before ordinals, in German mostly ("am 3. Oktober", "ihr 18. Geburtstag").
CARDINAL = regex.compile(
    r"""(?xi) (?<= [\p{L}\p{N}] \p{Po}?+ \s ) (?! (?:
        der | dem | den | des | det | die | das | am | im | ins | vom | zum | zur | beim | auf | ab | bis | seit
        | und | oder | als | für | Anfang | Mitte | Ende | schon | bereits
        | (?: ein | kein | mein | dein | sein | ihr | unser | euer | eure | jede | diese | späte | frühe ) \p{L}*
        ) \s ) \p{L}++ \s \d{1,2} \Z"""
)
MAX_CARDINAL = 30  # characters
# Nor does one after these, where a number follows.
NUMBERED = regex.compile(
    r"""(?xi) (?<![\p{L}\p{N}.]) (?: \p{L}{0,8}str |
        No | Nos | Nr | Nrn | Núm | Num | Fig | Figs | Abb | Tab | Vol | Bd | Ch | Chap | Kap | Cap | Sec | Sect | Art
        | Abs | Eq | Gl | Pp | Pág | Págs | Pag | Ex | Lev | Deut | Ps | Matt | al
        | Jan | Feb | Mar | Apr | Jun | Jul | Aug | Sep | Sept | Oct | Nov | Dec
    ) \Z"""
)
# "2026. 11. 22." is one Korean date.
YEAR, DATE = regex.compile(r"(?<![\p{L}\p{N}.])\d{4}\Z"), regex.compile(r"\d{1,2}\.\s?\d{1,2}\.")
MAX_ABBREVIATION = 12  # characters


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text, each with the space after it, so that joined they are the text.

    A sentence also ends at a blank line and at the tag <br>, but not at a single line feed. It includes the tags, notes
    and emoji that follow its end. None ends inside a placeholder, such as a template statement or a tag.
    """
    placeholders = find(text)
    starts = [placeholder.start for placeholder in placeholders]

    def ends_sentence(match: regex.Match[str]) -> bool:
        before = bisect_left(starts, match.end())
        return not (before and match.end() < placeholders[before - 1].end) and _ends_sentence(match)

    return _split(text, SENTENCE, ends_sentence)


def split_to_fit(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return as few pieces of whole sentences as possible, each of which fits. Joined, they are the text.

    A sentence that does not fit by itself is split after clauses, then at spaces, then between characters; only a
    single character is returned whether it fits or not. `fits` should hold for every part of a text that fits. It is
    called with n log n characters in all.
    """
    if not text:
        return []
    return [text] if fits(text) else list(_pack(text, (split_sentences, *FINER), fits))


def group_sentences(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return as few groups of neighbouring sentences as possible, each of which fits. Joined, they are the text.

    A sentence that does not fit is a group by itself. For `fits`, see `split_to_fit`.
    """
    return list(_pack(text, (split_sentences,), fits))


def group_clauses(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Return a text cut at all semicolons, and each part in as few groups of neighbouring clauses as possible that fit.

    Joined, they are the text. A clause that does not fit is a group by itself. For `fits`, see `split_to_fit`.
    """
    parts = _split(text, SEMICOLON)
    return [group for part in parts for group in ([part] if fits(part) else _pack(part, (_split_clauses,), fits))]


def _split_clauses(text: str) -> list[str]:
    """Return the text in pieces that end after commas and the like; joined they are the text."""
    return _split(text, CLAUSE, lambda match: bool(match["space"]) or match["mark"][-1] in WIDE)


def _split_words(text: str) -> list[str]:
    return _split(text, SPACE)


def _split_clusters(text: str) -> list[str]:
    """Return the text in pieces that a reader takes for one character: a letter with its accents, a family of emoji."""
    return _split(text, CLUSTER)


FINER = (_split_clauses, _split_words, _split_clusters, list)


def _split(text: str, pattern: regex.Pattern[str], ends: Callable[[regex.Match[str]], bool] = bool) -> list[str]:
    """Return the text in pieces, cut after each match of `pattern` for which `ends` holds; joined they are the text."""
    cuts = [0, *(match.end() for match in pattern.finditer(text) if ends(match)), len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if start < end]


def _ends_sentence(match: regex.Match[str]) -> bool:
    """Return whether a sentence ends at this match of SENTENCE: at a line break or a blank line it always does.

    Elsewhere it does not before a small letter, where a space is missing after a mark that needs one, or after an
    abbreviation, an initial or the number of a list.
    """
    text, mark, end = match.string, match["mark"], match.end()
    if mark is None or match["line"] or match["space"].count("\n") > 1:  # a line break or a blank line
        return True
    if not match["space"] and (CONTINUES.match(text, end) or not match["parting"]):
        return mark[-1] not in NEEDS_SPACE and not CONTINUES.match(text, end)
    cased = not CASELESS.match(text, max(0, match.start() - 1))  # no small letter could follow
    if (cased and LOWER.match(text, end)) or (mark[-1] in "…‥" and CASELESS.match(text, end)):
        return False
    if mark != "." or match["close"]:
        return True
    before = max(0, match.start() - MAX_ABBREVIATION), match.start()
    if ABBREVIATION.search(text, *before):
        number = CARDINAL.search(text[max(0, match.start() - MAX_CARDINAL) : match.start()])
        return bool(number) and not text[end : end + 1].isdecimal()
    if DATE.match(text, end) and YEAR.search(text, *before):
        return False
    return not (text[end : end + 1].isdecimal() and NUMBERED.search(text, *before))


def _pack(text: str, splitters: tuple[Callable[[str], list[str]], ...], fits: Callable[[str], bool]) -> Iterator[str]:
    """Yield pieces of the text, as many units of the first splitter in each as fit together.

    A unit that does not fit by itself is packed by the next splitter; by the last one it is yielded as it is.
    """
    split, *finer = splitters
    ends = [0, *accumulate(map(len, split(text)))]
    first = 0
    while first < len(ends) - 1:
        last = _last_that_fits(text, ends, first, fits)
        if last > first or not finer:
            last = max(last, first + 1)
            yield text[ends[first] : ends[last]]
        else:
            last = first + 1
            yield from _pack(text[ends[first] : ends[last]], tuple(finer), fits)
        first = last


def _last_that_fits(text: str, ends: list[int], first: int, fits: Callable[[str], bool]) -> int:
    """Return the largest index such that text[ends[first] : ends[index]] fits; `first` where not even one unit does.

    The range doubles before it is halved, so that `fits` is not called with texts much longer than the answer.
    """
    low, high = first, first + 1
    while high < len(ends) and fits(text[ends[first] : ends[high]]):
        low, high = high, first + 2 * (high - first)
    high = min(high, len(ends))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(text[ends[first] : ends[middle]]) else (low, middle)
    return low
