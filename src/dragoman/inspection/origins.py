"""Name the approved pairs that speak for each word of an inspected translation."""

from dataclasses import asdict
from typing import Any, NamedTuple

from dragoman.errors import UsageError
from dragoman.inspection.inspection import Inspection
from dragoman.memory import ApprovedPair
from dragoman.memory.provenance import Share, mean_shares
from dragoman.translation.translator import Translator

SHOWN = 3  # pairs of a word


class Origin(NamedTuple):
    """A pair that speaks for a word."""

    number: int  # in the memory
    pair: ApprovedPair
    share: Share


class WordOrigins(NamedTuple):
    """A word of a translation, or EOS, and the pairs that speak for it most, the first one loudest."""

    word: str
    origins: list[Origin]


def word_origins(translator: Translator, inspection: Inspection) -> list[WordOrigins]:
    """Return the pairs of a translator's memory that speak for each word of an inspection.

    Raise UsageError where it has no memory.
    """
    memory, tag = translator.memory, inspection.target_tag
    if memory is None:
        raise UsageError("there is no memory whose pairs could speak for the words: name one with --memory")
    (of_tokens,) = memory.origins([inspection.source.ids], [[*tag, *inspection.target.ids]])
    rows = []
    for word in inspection.target.words:
        shares = mean_shares([of_tokens[len(tag) + place] for place in word.tokens])
        named = [Origin(n, pair, share) for n, share in shares.items() if (pair := memory.pairs[n])]
        rows.append(WordOrigins(word.label, named[:SHOWN]))
    return rows


def origins_as_dicts(rows: list[WordOrigins]) -> list[dict[str, Any]]:
    """Return the words and their pairs as JSON types: 'word' and 'pairs', with what `ApprovedPair` and `Share` have."""
    return [
        {"word": word, "pairs": [{"number": n, **asdict(pair), **share._asdict()} for n, pair, share in origins]}
        for word, origins in rows
    ]
