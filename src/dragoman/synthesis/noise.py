"""Add noise to the source side of back-translated pairs (Edunov et al. 2018, section 3.2).

A model that learns from noisy sources has to find out what was meant, and does not learn the habits of the model that
wrote them.
"""

from random import Random

import regex

from dragoman.data.unspaced import UNSPACED

DROPPED = REPLACED = 0.1  # share of the words
FARTHEST = 3  # positions that a word may move
BLANK = "_"  # what replaces a word

WORD = regex.compile(rf"(\s*)([{UNSPACED}]|[^\s{UNSPACED}]+)")


def add_noise(text: str, random: Random) -> str:
    """Return the text with some words dropped, replaced or moved a little; at least one word stays, if there is one.

    In scripts without spaces each character is a word. The white space between positions stays as it is.
    """
    spaced_words = WORD.findall(text.strip())
    kept = [word for word in spaced_words if random.random() >= DROPPED] or spaced_words[:1]
    words = [BLANK if random.random() < REPLACED else word for _, word in kept]
    # No word can overtake one that is more than FARTHEST positions before it.
    keys = [position + random.uniform(0, FARTHEST + 1) for position in range(len(words))]
    order = sorted(range(len(words)), key=keys.__getitem__)
    return "".join(space + words[position] for (space, _), position in zip(kept, order, strict=True)).strip()
