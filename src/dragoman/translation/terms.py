"""Turn glossary terms into token sequences, and say where words begin and end among tokens."""

from collections.abc import Sequence

from dragoman.data.tokenizer import BYTES, Tokenizer
from dragoman.decoding.engine import Term
from dragoman.decoding.terms import OPEN, STEM, WORD
from dragoman.text.glossary import HANGUL, LETTER, TermMatch

BYTE = {piece: byte for byte, piece in enumerate(BYTES)}


def token_sequences(found: Sequence[TermMatch], tokenizer: Tokenizer) -> tuple[Term, ...]:
    """What a search has to put into the output: each target as it is after a space, and as it is after a bracket."""
    if not found:
        return ()
    front = "\n"  # a word of its own for the tokenizer, so that what follows is a word without a space
    skipped = len(tokenizer.encode(front))
    distinct = dict.fromkeys(target for one in found for target in one.targets)
    sequences = {
        target: (tuple(tokenizer.encode(target)), tuple(tokenizer.encode(front + target)[skipped:]))
        for target in distinct
    }
    return tuple(
        tuple(dict.fromkeys(sequence for target in one.targets for sequence in sequences[target])) for one in found
    )


def token_boundaries(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """What each token begins and ends with, for `constrained_search`."""
    return [edge(piece) for piece in tokenizer.pieces]


def edge(piece: str) -> tuple[int, int]:
    if piece in BYTE:  # beyond ASCII it is most likely part of a letter
        piece = chr(BYTE[piece]) if BYTE[piece] < 0x80 else "x"
    return kind(piece[:1]), kind(piece[-1:])


def kind(character: str) -> int:
    if HANGUL.match(character):
        return STEM
    return WORD if LETTER.match(character) else OPEN
