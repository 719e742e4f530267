"""Measure what tells good translations from bad ones and costs next to nothing: no second model, no second search."""

import math
from typing import NamedTuple

from dragoman.text.known_words import WORD, KnownWords
from dragoman.text.word_forms import WordForms

SHORT = 5  # characters added to both lengths, for short texts differ most


class Features(NamedTuple):
    """What is measured of a translation. SIGNS says what is better; without a record of words, its shares are 0."""

    log_p_per_character: float
    "log-probability of the translation, EOS included, in nats for each of its characters"
    log_p_per_token: float
    length: float
    "logarithm of the ratio of its characters to those of the source: what leaves out much is short"
    tokens_per_character: float
    "of the source: words that the training seldom had take more of them"
    unknown: float
    "share of the words of the source that the training never had"
    rarity: float
    "mean logarithm of the rank of its words by frequency, unknown ones last"
    new: float
    "share of the words of the translation that no training target explains"
    faults: float
    "number of them: 'loop', 'lost {name}'"


SIGNS = Features(1, 1, 1, -1, -1, -1, -1, -1)  # 1: more is better, -1: worse


def measure(
    source: str,
    source_tokens: int,
    output: str,
    output_tokens: int,
    log_p: float,
    faults: int,
    known: KnownWords | None,
    forms: WordForms | None,
) -> Features:
    """Return the features of a translation.

    source_tokens, output_tokens: EOS not included; log_p: of all tokens and EOS, in nats; known: the words of the
    training sources; forms: those of its targets.
    """
    words = WORD.findall(source) if known else []
    ranks = [known.rank(word) for word in words] if known else []
    outputs = WORD.findall(output) if forms else []
    return Features(
        log_p / (len(output) + 1),
        log_p / (output_tokens + 1),
        math.log((len(output) + SHORT) / (len(source) + SHORT)),
        source_tokens / (len(source) + 1),
        sum(rank > len(known.words) for rank in ranks) / max(1, len(ranks)) if known else 0.0,
        sum(map(math.log, ranks)) / max(1, len(ranks)),
        sum(not forms.explains(word) for word in outputs) / max(1, len(outputs)) if forms else 0.0,
        float(faults),
    )
