"""Noise on the source side of back-translated pairs (Edunov et al. 2018, section 3.2).

A model that learns from disturbed sources has to find out what was meant, and does not learn the habits of the model
that wrote them.
"""

import re
from random import Random

DROPPED = REPLACED = 0.1  # share of the words
FARTHEST = 3  # places that a word may move
BLANK = "_"  # what stands for a word that was replaced

# Scripts without spaces between words: there, each character counts as a word.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
WORD = re.compile(rf"(\s*)([{UNSPACED}]|[^\s{UNSPACED}]+)")


def disturbed(text: str, random: Random) -> str:
    """`text` with words dropped, replaced and moved a little; where there are words, at least one is left.

    Spaces belong to places, not to words: they stay.
    """
    found = WORD.findall(text.strip())
    kept = [word for word in found if random.random() >= DROPPED] or found[:1]
    words = [BLANK if random.random() < REPLACED else word for _, word in kept]
    # Nothing that is more than FARTHEST places behind can come before.
    keys = [place + random.uniform(0, FARTHEST + 1) for place in range(len(words))]
    order = sorted(range(len(words)), key=keys.__getitem__)
    return "".join(space + words[place] for (space, _), place in zip(kept, order, strict=True)).strip()
