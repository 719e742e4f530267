"""Texts with pieces in them that are no words: tags, code, addresses. They come back as they were, each once."""

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragoman.documents.document import Kept, has_letter

# What a piece looks like in a text: a tag, or code. Translators keep these; all others are shown as a tag.
SHOWN = re.compile(r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>|`[^`]+`")


@dataclass(frozen=True)
class Piece:
    """`opens` and `closes` name what begins or ends here, for pieces that come in pairs."""

    shown: str  # in the text
    original: str | Kept
    opens: str = ""
    closes: str = ""


Words = str | Piece


def text_of(words: Sequence[Words]) -> str:
    return "".join(word if isinstance(word, str) else word.shown for word in words)


def speaks(words: Sequence[Words]) -> bool:
    """Whether there is something to translate besides the pieces."""
    return any(isinstance(word, str) and has_letter(word) for word in words)


def core(words: Sequence[Words]) -> tuple[int, int]:
    """From where to where a text goes, without the space, lone pieces and pairs of pieces that enclose all of it."""
    partner = pairs(words)
    start, stop = 0, len(words)

    def idle(index: int) -> bool:
        word = words[index]
        return not word.strip() if isinstance(word, str) else index not in partner

    while start < stop:
        if idle(start):
            start += 1
        elif idle(stop - 1):
            stop -= 1
        elif partner.get(start) == stop - 1:
            start, stop = start + 1, stop - 1
        elif partner.get(start) == start + 1:
            start += 2
        elif partner.get(stop - 1) == stop - 2:
            stop -= 2
        else:
            break
    return start, stop


def pairs(words: Sequence[Words]) -> dict[int, int]:
    """Which piece closes which, in both directions."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for index, word in enumerate(words):
        if isinstance(word, str):
            continue
        if word.opens:
            opened.append(index)
        elif word.closes and opened:
            before = words[opened[-1]]
            if isinstance(before, Piece) and before.opens == word.closes:
                first = opened.pop()
                found[first], found[index] = index, first
    return found


def split(translation: str, pieces: Sequence[Piece]) -> tuple[list[Words], bool]:
    """A translation as words and pieces, and whether the pieces are all there and nest as they did.

    What looks like a piece but is none, or is there more than once, is words.
    """
    waiting: defaultdict[str, deque[Piece]] = defaultdict(deque)
    for piece in pieces:
        waiting[piece.shown].append(piece)
    words: list[Words] = []
    at = position = 0
    while match := SHOWN.search(translation, position):
        if waiting.get(match[0]):
            words += [translation[at : match.start()], waiting[match[0]].popleft()]
            at = position = match.end()
        else:
            position = match.start() + 1
    words.append(translation[at:])
    back = [word for word in words if isinstance(word, Piece)]
    return words, len(back) == len(pieces) and unpaired(back) == unpaired(pieces)


def unpaired(pieces: Sequence[Piece]) -> list[str]:
    """What is left when all pairs that nest are taken away."""
    left: list[str] = []
    for piece in pieces:
        if piece.closes and left and left[-1] == piece.closes:
            left.pop()
        elif piece.opens or piece.closes:
            left.append(piece.opens or f"/{piece.closes}")
    return left


def distinct(words: Sequence[Words]) -> list[Words]:
    """The same, with stand-ins for pieces that do not look like one, or that could be taken for words."""
    looks = {match for word in words if isinstance(word, str) for match in SHOWN.findall(word)}
    result: list[Words] = []
    number = 0
    for word in words:
        if isinstance(word, Piece) and (not SHOWN.fullmatch(word.shown) or word.shown in looks):
            number += not word.closes
            word = replace(word, shown=stand_in(word, number))
        result.append(word)
    return result


def stand_in(piece: Piece, number: int) -> str:
    if piece.closes:
        return f"</{piece.closes}>"
    return f'<{piece.opens} id="{number}">' if piece.opens else f'<x id="{number}"/>'
