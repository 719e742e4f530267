"""Find what must come through a translation letter by letter: addresses, code, tags, variables, numbers with units."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

Kind = Literal["template", "url", "email", "code", "tag", "brace", "printf", "variable", "entity", "number"]

LETTER = r"[A-Za-z\u00c0-\u024f]"
CONVERSION = (
    r"(?:\d{1,2}\$)?[-+\#0]{0,4}(?:\d{1,4}|\*)?(?:\.(?:\d{1,4}|\*))?(?:hh?|ll?|[qjztL])?(?:[@a-z]|[A-Z](?![a-z]{2}))"
)
AMOUNT = r"\d++(?:[.,'’\u00a0\u202f]\d++)*+"
DOLLARS = "US|CAN?|AU|NZ|HK|SG"  # "5 $US" is an amount and no variable
UNIT = rf"""(?:
    \$(?:{DOLLARS})?(?!\{{) | [€£¥₩₹%‰] | °[CF]? | [℃℉] | EUR | USD | GBP | CHF | JPY | KRW | CNY
    | (?:k?m|mi)/[hs] | mph | rpm | fps | [kKMGT]?bits?(?:/s)? | [kMGT]B/s | [kKMGTP]i?B | B
    | (?:[kcdmµμn]m|m|mi|ft|yd)[²³]? | ha | [kmµμ]?g | lbs? | oz | t | [mcdh]?[lL] | h | min | [mµμn]?s
    | [kMGT]?Hz | [kMG]?Wh? | m?Ah? | [mk]?V | k?J | k?cal | [kh]?Pa | bar | psi | dB | px | pt | em | dpi | ppi
)(?!{LETTER}|\d)"""
# Before and after a placeholder only Latin letters count as letters: a Korean particle follows it without a space.
# No pattern backtracks, and none reads on past a position where it could begin itself: time is linear for any text.
PATTERNS: dict[Kind, str] = {
    # Statements and comments of template languages: Jinja, Liquid and Twig; ERB, JSP and EJS; PHP.
    "template": r"""\{%(?:[^%{]|%(?!\})|\{(?!%))*+%\} | \{\#(?:[^\#{]|\#(?!\})|\{(?!\#))*+\#\}
        | <%(?:[^%<]|%(?!>)|<(?!%))*+%> | <\?(?:php|=)(?:[^?<]|\?(?!>)|<(?!\?))*+\?>""",
    # Beyond ASCII, only the letters of alphabets belong to an address.
    "url": r"""(?i: (?:https?|ftps?|sftp|ssh|git|file|wss?):// | (?:mailto:|www\.)[A-Za-z0-9] )
        [A-Za-z0-9_\-.~:/?\#\[\]@!$&'()*+,;=%{}\u00c0-\u058f]*+""",
    "email": r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]++@[A-Za-z0-9-]++(?:\.[A-Za-z0-9-]++)++",
    "code": r"(?<!`)(?: `(?![\s`])[^`\n]++(?<!\s)` | ``(?!`)[^`\n]++(?:`[^`\n]++)*+`` )(?![`A-Za-z0-9])",
    "tag": r"""< (?: /?[A-Za-z][\w:.-]*+ (?:\s(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+)?+ /?
        | !--(?:[^<>-]|-(?!->))*+-- ) >""",
    "brace": r"""\{\{\{?\s?[^{}\s]++(?:\s[^{}\s]++){0,7}+\s?\}\}\}?
        | [$\#%]\{[^{}\s]++\}
        | \{\s?(?:[^\W\d][\w.\[\]-]*+|\d*+)(?:![rsa])?
          (?:[:,][^{}\s]*+|,\s?(?:number|date|time|spellout|ordinal|duration)(?:,\s?[^{}]{0,64}+)?)?\s?\}""",
    # After a number and a space, a percent sign before a word means per cent: "100 %ig".
    "printf": rf"""%\([\w.]{{1,64}}\)[-+\#0]{{0,4}}(?:\d{{1,4}})?(?:\.\d{{1,4}})?[A-Za-z]
        | (?:(?<![\d%])|(?<=%\d))%L?\d{{1,2}}(?!\d|\$|\.\d|[A-Za-z](?![A-Za-z])|[hlqjzt]{{1,2}}[diouxX])
        | (?:(?<!\d)|(?<=%\d))
          (?: (?:(?<!\d[\ \u00a0\u202f])|(?<=%\d\ ))%{CONVERSION} | %{CONVERSION}(?!{LETTER}) )(?:%%)?
        | %%""",
    "variable": rf"""(?!(?:(?<=\d)|(?<=\d[\ \u00a0\u202f]))\$(?:{DOLLARS})(?![A-Za-z0-9_]))
          \$[A-Za-z_][A-Za-z0-9_]*+(?:\$(?![A-Za-z0-9_]))? | \$\([A-Za-z0-9_]{{1,64}}\)
        | %[A-Z_][A-Z0-9_]{{2,64}}(?:%|(?![A-Za-z0-9_]))""",
    "entity": r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#\d{1,7}|\#[xX][0-9A-Fa-f]{1,6});",
    "number": rf"""(?:(?<!\S)[-−+±])?(?<!{LETTER})(?<![\d_])(?<!\d[.,:'’\u00a0\u202f])(?:
        [€$£¥₩₹]\ ?{AMOUNT}
        | \d{{1,2}}:\d{{2}}(?::\d{{2}})?+(?![\d:])
        | {AMOUNT}(?:[-–]{AMOUNT})?+[\ \u00a0\u202f\u2009]?{UNIT}
    )""",
}
ORDER: tuple[Kind, ...] = ("template", "url", "email", "code", "tag", "brace", "variable", "printf", "entity")


def _pattern(kinds: Sequence[Kind]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?P<{kind}>{PATTERNS[kind]})" for kind in kinds), re.VERBOSE)


PLACEHOLDER, PLACEHOLDER_OR_NUMBER = _pattern(ORDER), _pattern((*ORDER, "number"))
TEMPLATE = _pattern(["template"])
FILLED_IN: tuple[Kind, ...] = ("template", "brace", "variable", "printf")  # what a program replaces
REPLACED = _pattern(FILLED_IN)
REPLACED_SIGN = re.compile(r"[%{$]|<\?")  # as SIGN, for these
ENCODED = re.compile("%[0-9A-Fa-f]{2}")  # a byte of a URL
SIGN = re.compile(r"[@`<{$%&:]|[wW]{3}\.")  # every placeholder has one, most texts have none
POSITIONAL = re.compile(r"%(?!%|\(|\d+\$|L?\d+$).+ | \{(?:![rsa])?(?::.*)?\}", re.VERBOSE)
MARKS: dict[Kind, str] = {"brace": "{}", "printf": "%"}
URL_END = ".,;:!?'*"  # belong to the sentence around an address
BRACKETS = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True)
class Placeholder:
    """A placeholder that was found in a text: text[start:end]."""

    start: int
    end: int
    text: str
    kind: Kind


def is_positional(placeholder: str) -> bool:
    """Return whether a placeholder gets its argument by its place among the others: %s and {}, but not %2$s or {0}."""
    return POSITIONAL.fullmatch(placeholder) is not None


def find(text: str, numbers: bool = False) -> list[Placeholder]:
    """Return the placeholders in order, without overlaps; numbers: also amounts with a unit and times of day."""
    placeholders: list[Placeholder] = []
    if not numbers and not SIGN.search(text):
        return placeholders
    for match in (PLACEHOLDER_OR_NUMBER if numbers else PLACEHOLDER).finditer(text):
        kind = cast(Kind, match.lastgroup)
        end = match.end() if kind != "url" else match.start() + _url_length(match[0])
        placeholders.append(Placeholder(match.start(), end, text[match.start() : end], kind))
    return placeholders


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


def compare(source: str, output: str, numbers: bool = False, prefix: str = "") -> tuple[list[str], list[str]]:
    """Return the placeholders that the output lost and those that it invented, as often as each is missing or extra.

    Those that the prefix of the output was asked to have are not invented. Where none is, but positional ones have
    changed places and so would get each other's arguments, all of these are lost. Beside placeholders of a kind, marks
    of that kind that belong to none are invented, too: a program fails at "{name}}" and "% of %s". numbers: as in
    `find`.
    """
    detected = [find(text, numbers) for text in (source, output, prefix)]
    in_source, in_output, in_prefix = ([placeholder.text for placeholder in placeholders] for placeholders in detected)
    lost = list((Counter(in_source) - Counter(in_output)).elements())
    invented = list((Counter(in_output) - (Counter(in_source) | Counter(in_prefix))).elements())
    if marks := "".join(MARKS.get(kind, "") for kind in {placeholder.kind for placeholder in detected[0]}):
        of_source, of_output, of_prefix = (
            _stray_marks(text, placeholders, marks)
            for text, placeholders in zip((source, output, prefix), detected, strict=True)
        )
        invented += (of_output - (of_source | of_prefix)).elements()
    if not lost and not invented:
        before, after = (list(filter(is_positional, texts)) for texts in (in_source, in_output))
        lost = before if before != after[: len(before)] else []
    return lost, invented


def _stray_marks(text: str, placeholders: Sequence[Placeholder], marks: str) -> Counter[str]:
    """Return how often each of the marks stands outside of the placeholders of a text."""
    stray = Counter(text) - Counter("".join(placeholder.text for placeholder in placeholders))
    return Counter({mark: stray[mark] for mark in marks})
