"""Name a pair of languages by their codes: 'en-de', 'en-pt-BR'."""

import re
from typing import NamedTuple

from dragoman.config.fields import quote_value
from dragoman.errors import UsageError

# A language, its script, its region, as BCP 47 has them: de, zh-Hant, pt-BR, sr-Latn-RS.
CODE = r"[a-z]{2,3}(?:-[A-Z][a-z]{3})?(?:-(?:[A-Z]{2}|\d{3}))?"
PAIR = re.compile(rf"({CODE})-({CODE})")
CODES = re.compile(rf"{CODE}(?:,{CODE})*")  # several languages: en,de,zh-Hant


class LanguagePair(NamedTuple):
    """The language that is translated, and the one that it is translated into."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def base_language(code: str) -> str:
    """Return the language of a code such as 'pt-BR' or 'zh_Hant', without region and script, in lower case."""
    return re.split("[-_]", code)[0].lower()


def parse_pair(text: str) -> LanguagePair:
    """Return the pair that a string such as 'en-de' names. Raise UsageError where it names none."""
    match = PAIR.fullmatch(text)
    if not match:
        raise UsageError(f"{quote_value(text)} is not a language pair, such as en-de, en-pt-BR or zh-Hant-en")
    return LanguagePair(match[1], match[2])
