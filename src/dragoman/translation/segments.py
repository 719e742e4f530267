"""Cut a text into segments that the model can take: the text itself, or groups of its sentences."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from dragoman.data.batches import Ids
from dragoman.data.tokenizer import Tokenizer
from dragoman.text.glossary import TermMatch
from dragoman.text.segmentation import split_to_fit

WIDE_SPACE = re.compile(r"\s{3,}")  # no model has learned to read that


@dataclass(frozen=True)
class Segment:
    """As much of a text as is searched for at once, and what its translation has to bring."""

    text: str
    ids: Ids  # the tokens of the text
    tag_ids: Ids = field(default_factory=list)  # those of the tag in front of it
    prefix: str = ""  # how its translation has to begin
    prefix_ids: Ids = field(default_factory=list)
    terms: tuple[TermMatch, ...] = ()  # what the glossary demands


def cut(text: str, ids: Ids, max_tokens: int, tokenizer: Tokenizer) -> list[tuple[str, Ids]]:
    """Return the text with its token ids, or pieces of at most `max_tokens` tokens with theirs where it has more."""
    if len(ids) <= max_tokens:
        return [(text, ids)]
    text = WIDE_SPACE.sub(lambda match: "\n\n" if "\n" in match[0] else " ", text)
    pieces = split_to_fit(text, lambda piece: len(tokenizer.encode(piece)) <= max_tokens)
    return attach_blanks(zip(pieces, tokenizer.encode_all(pieces), strict=True))


def attach_blanks(pieces: Iterable[tuple[str, Ids]]) -> list[tuple[str, Ids]]:
    """Append pieces of white space to the piece before, so that nothing is searched for them; drop leading ones."""
    attached: list[tuple[str, Ids]] = []
    for text, ids in pieces:
        if text.strip():
            attached.append((text, ids))
        elif attached:
            before, ids_before = attached[-1]
            attached[-1] = before + text, ids_before
    return attached
