"""Compare the forms of words by their letters: inflections of one word, compounds, and the form that fits another's.

>>> is_form("Dateien", "Datei"), is_form("Dateiname", "Datei"), is_compound("Dateiname", "Datei")
(True, False, True)
>>> fitting_form("Dateien", "Datei", ("Akte", "Akten"))
'Akten'
"""

from collections.abc import Sequence
from itertools import takewhile

from dragoman.text.glossary import HANGUL
from dragoman.text.particles import ENDING as ENDING_OF_NOUN
from dragoman.text.particles import swap_noun

ENDING, LOST = 2, 2  # letters that an inflection adds at most, and those that it takes off
STEM = 3  # letters that two forms of a word share, unless one of them is shorter
MEMBER = 3  # letters of the other word of a compound


def is_form(word: str, base: str) -> bool:
    """Return whether a word may be an inflection of another one: they differ in few letters at the end.

    In Korean it is the other one with particles.
    """
    if is_korean(base):
        return word.startswith(base) and bool(ENDING_OF_NOUN.fullmatch(word[len(base) :]))
    stem = shared_stem(word, base)
    return len(word) - stem <= ENDING and len(base) - stem <= LOST and stem >= min(STEM, len(base))


def is_compound(word: str, base: str) -> bool:
    """Return whether a word has another one in it, or its beginning, and letters of a further word; no form of it."""
    if is_korean(base):
        return base in word and not is_form(word, base)
    folded, stem = word.casefold(), base.casefold()[: max(STEM, len(base) - 1)]
    begins = STEM + 1 < shared_stem(word, base) <= len(word) - MEMBER
    return (begins or (stem in folded and len(word) >= len(stem) + MEMBER)) and not is_form(word, base)


def before_head(word: str, base: str) -> str:
    """Return what stands in a compound before a form of another word, its head: '' where it does not end with one."""
    for start in range(1 if is_korean(base) else MEMBER, len(word) - min(STEM, len(base)) + 1):
        if is_form(word[start:], base):
            return word[:start]
    return ""


def fitting_form(word: str, base: str, forms: Sequence[str]) -> str:
    """Return which form of a term fits in the place of a word: the first one, unless the word has another ending.

    base: the word that the first form stands for. If the word is another form of it, the form of the term that has most
    letters of its ending fits. A single letter behind the whole base says too little: "Namen" is a plural, or none.
    Korean particles stay.
    """
    if is_korean(base) and word.startswith(base):
        return swap_noun(word, base, forms[0])
    stem = shared_stem(word, base)
    ending = word[stem:].casefold()
    if not ending or (len(ending) == 1 and stem == len(base)):
        return forms[0]
    shared = [shared_stem(form[::-1], ending[::-1]) for form in forms]
    return forms[shared.index(max(shared))]


def is_korean(word: str) -> bool:
    """Return whether a word ends in Hangul."""
    return bool(HANGUL.match(word[-1:]))


def shared_stem(word: str, base: str) -> int:
    """Return how many letters two words have in common at the beginning, in any case."""
    pairs = zip(word.casefold(), base.casefold(), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
