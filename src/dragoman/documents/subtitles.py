"""Subtitles, SubRip (SRT) and WebVTT: the lines of a cue are one text. Times, numbers, settings and notes stay."""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from html import escape, unescape
from itertools import groupby

from dragoman.documents.document import Document, Found, Parts, Slot
from dragoman.documents.encoding import decoded
from dragoman.documents.pieces import Piece, Words, core, distinct, speaks, split, text_of

LINE = re.compile(r"([^\r\n]*)(\r\n?|\n|\Z)")
TIME = r"(?:\d+:)?\d+:\d+(?:[.,]\d+)?"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s|\Z)")
NUMBER = re.compile(r"\s*\d+\s*")
DIALOGUE = re.compile(r"\s*(?:<[^<>]*>\s*)*[-–—]")  # each line is spoken by somebody else
TAG = re.compile(r"<(/?)([a-zA-Z]\w*)?[^<>]*>|\{\\[^{}]*\}")
LINE_END = re.compile(r"\s*[\r\n]\s*")
CLOSING = {"Pe", "Pf", "Po"}  # punctuation that begins no line


def srt(data: bytes) -> Document:
    return subtitles(data, vtt=False)


def vtt(data: bytes) -> Document:
    return subtitles(data, vtt=True)


def subtitles(data: bytes, vtt: bool) -> Document:
    original, encoding = decoded(data)
    lines = [match for match in LINE.finditer(original) if match[0]]
    found = [slot for cue in cues(lines, vtt) for slot in texts(original, cue, vtt)]
    return Document(original, encoding, Found(found))


def cues(lines: Sequence[re.Match[str]], vtt: bool) -> Iterator[list[re.Match[str]]]:
    """The lines of text of each cue.

    In SubRip, what follows an empty line inside a cue is its text as well; in WebVTT it is a note or the like.
    """
    begun = False
    for blank, group in groupby(lines, key=lambda line: not line[1].strip()):
        if blank:
            continue
        block = list(group)
        times = [index for index, line in enumerate(block) if TIMES.match(line[1])]
        if vtt and (not times or times[0] > 1):
            continue
        # Before the times of a cue is its number; in SubRip, an empty line may be missing between two cues.
        ends = [at - bool(at and NUMBER.fullmatch(block[at - 1][1])) for at in times]
        if begun and not vtt:
            yield block[: ends[0] if ends else None]
        for at, end in zip(times, [*ends, len(block)][1:], strict=True):
            begun = True
            yield block[at + 1 : end]


def texts(original: str, cue: Sequence[re.Match[str]], vtt: bool) -> Iterator[Slot]:
    """One text, or one for each line where each is spoken by somebody else."""
    if len(cue) > 1 and all(DIALOGUE.match(line[1]) for line in cue):
        yield from (slot for line in cue for slot in texts(original, [line], vtt))
    elif cue:
        flow = list(flow_of(original, cue[0].start(), cue[-1].end(1), vtt))
        first, stop = core([word for word, _, _ in flow])
        words = distinct([word for word, _, _ in flow[first:stop]])
        if speaks(words):
            start, end = flow[first][1], flow[stop - 1][2]
            source = original[start:end].strip()
            start = original.index(source, start)
            pieces = [word for word in words if isinstance(word, Piece)]
            yield Slot(start, start + len(source), (text_of(words).strip(),), writer(source, pieces, vtt))


def flow_of(original: str, start: int, end: int, vtt: bool) -> Iterator[tuple[Words, int, int]]:
    at = start
    for tag in TAG.finditer(original, start, end):
        if at < tag.start():
            yield said(original[at : tag.start()], vtt), at, tag.start()
        name = (tag[2] or "").lower()
        source = LINE_END.sub(" ", tag[0])
        yield (
            Piece(source if name else "", source, "" if tag[1] else name, name if tag[1] else ""),
            tag.start(),
            tag.end(),
        )
        at = tag.end()
    if at < end:
        yield said(original[at:end], vtt), at, end


def said(source: str, vtt: bool) -> str:
    line = LINE_END.sub(" ", source)
    return unescape(line) if vtt else line


def writer(source: str, pieces: Sequence[Piece], vtt: bool) -> Callable[[Sequence[str]], Parts]:
    """Writes a translation in as many lines as before. Tags follow its words where some lack or do not nest."""
    ends = [line[2] for line in LINE.finditer(source) if line[2]]

    def written(translations: Sequence[str]) -> Parts:
        words, whole = split(translations[0].replace("-->", "→"), pieces)
        if not whole:
            words = [" ".join(word.strip() for word in words if isinstance(word, str)), *pieces]
        parts = [
            str(word.original) if isinstance(word, Piece) else escape(word, quote=False) if vtt else word
            for word in words
        ]
        lines = wrapped("".join(parts), len(ends) + 1)
        return [(ends[0] if ends else "").join(lines)]

    return written


def wrapped(text: str, count: int) -> list[str]:
    """The text in so many lines of similar length, tags not counted; in fewer where there are not enough words."""
    spaces: list[tuple[int, int]] = []  # where a line may end, and how many characters are seen before
    between: list[tuple[int, int]] = []  # the same for scripts without spaces
    seen = at = 0
    for tag in [*TAG.finditer(text), None]:
        for index in range(at, tag.start() if tag else len(text)):
            if text[index] == " ":
                spaces.append((index, seen))
            elif index and is_wide(text[index - 1]) and is_wide(text[index]) and not closes(text[index]):
                between.append((index, seen))
            seen += 1
        at = tag.end() if tag else at
    places = spaces if len(spaces) >= count - 1 else between or spaces
    lines: list[str] = []
    begin = place = 0
    for number in range(1, count):
        goal = seen * number / count
        last = len(places) - (count - number)  # those after it are for the lines that follow
        if place >= len(places):
            break
        while place < last and abs(places[place + 1][1] - goal) <= abs(places[place][1] - goal):
            place += 1
        lines.append(text[begin : places[place][0]].strip())
        begin = places[place][0]
        place += 1
    return [line for line in [*lines, text[begin:].strip()] if line]


def is_wide(character: str) -> bool:
    return unicodedata.east_asian_width(character) in "WF"


def closes(character: str) -> bool:
    return unicodedata.category(character) in CLOSING
