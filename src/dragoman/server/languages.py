"""Find languages by the codes that clients write, and name them."""

from collections.abc import Collection
from functools import lru_cache

from babel import Locale, UnknownLocaleError

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
    known = {one.lower(): one for one in sorted(served)}
    for candidate in (wanted, ALIASES.get(wanted, "").lower()):
        if candidate in known:
            return known[candidate]
    base = ALIASES.get(wanted, wanted).lower().partition("-")[0]
    return known.get(base) or next((one for low, one in known.items() if low.partition("-")[0] == base), None)


@lru_cache(1024)
def name_of(code: str) -> str:
    """Return the name of a language in English, such as 'German'; the code where it has none."""
    try:
        return Locale.parse(code, sep="-").get_display_name("en") or code
    except (ValueError, UnknownLocaleError):
        return code
