"""Find languages by the codes that clients write, and name them."""

import re
from collections.abc import Collection
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from babel.core import get_global

# Codes that LibreTranslate's clients send, and what they mean.
ALIASES = {
    "pb": "pt-BR",
    "zt": "zh-Hant",
    "zh-cn": "zh-Hans",
    "zh-sg": "zh-Hans",
    "zh-tw": "zh-Hant",
    "zh-hk": "zh-Hant",
}
ALIASES |= {"iw": "he", "in": "id", "no": "nb", "nb": "no"}


def find_language(code: str, served: Collection[str]) -> str | None:
    """Return the language among those served that a client means by a code; None for none of them.

    The case does not matter, nor whether - or _ stands between the parts. A variety falls back to its base and back:
    pt-PT is served by pt, and pt by pt-BR.
    """
    wanted = code.strip().replace("_", "-").lower()
    known = {language.lower(): language for language in sorted(served)}
    for candidate in (wanted, ALIASES.get(wanted, "").lower()):
        if candidate in known:
            return known[candidate]
    base = ALIASES.get(wanted, wanted).lower().partition("-")[0]
    return known.get(base) or next((language for low, language in known.items() if low.partition("-")[0] == base), None)


@lru_cache(1024)
def name_of(code: str) -> str:
    """Return the name of a language in English, such as 'German'; the code where it has none."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (ValueError, UnknownLocaleError):
        return code


# A language, its script and its region, as models name them: en, deu, zho_Hant, pt_br.
TAG = re.compile(r"([A-Za-z]{2,3})(?:[_-]([A-Za-z]{4}))?(?:[_-]([A-Za-z]{2}))?")


def languages_of_tags(tags: Collection[str]) -> dict[str, str]:
    """Return the tags that name languages, by the codes of these: 'ko' for 'kor_Hang', 'zh-Hant' for 'zho_Hant'.

    A script is named only where a model has a language in several, and it is not the usual one.
    """
    parsed = [(tag, *match.groups("")) for tag in tags if (match := TAG.fullmatch(tag))]
    bases = {tag: get_global("language_aliases").get(language, language.lower()) for tag, language, _, _ in parsed}
    codes: dict[str, str] = {}
    for tag, _, script, region in parsed:
        base, script = bases[tag], script.title()
        usual = get_global("likely_subtags").get(base, "").split("_")
        several = sum(other == base for other in bases.values()) > 1
        parts = [base, script if several and script not in usual else "", region.upper()]
        codes.setdefault("-".join(part for part in parts if part), tag)
    return codes
