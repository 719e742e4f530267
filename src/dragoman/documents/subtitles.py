"""Parse subtitles in SubRip (SRT), WebVTT and SubStation Alpha: one text for each cue or speaker of a dialogue.

Times, settings, notes and cues without words stay as they are.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from dragoman.documents.document import Content, Document, Passage, Skipped, has_letter
from dragoman.documents.encoding import decode, resolve_references
from dragoman.documents.inline import (
    OUTER,
    UNSEEN,
    Fragment,
    Inline,
    as_one_line,
    core_words,
    flow_text,
    split_translation,
)

LINE = re.compile(r"([^\r\n]*)(\r\n?|\n|\Z)")
TIME = r"(?:\d+:)?\d+:\d+(?:[.,]\d+)?"
ARROW = "-->"  # between the times of a cue
TIMES = re.compile(rf"\s*{TIME}\s*{ARROW}\s*{TIME}(?:\s|\Z)")
HEADER = re.compile(r"\ufeff?WEBVTT(?:\s|\Z)")  # a file with nothing else is WebVTT, too
NUMBER = re.compile(r"\s*\d+\s*")
CHEVRONS = "(?:>|&gt;){2,}+"
TAG = re.compile(rf"<(/?)([a-zA-Z]\w*+)?[^<>]*+>|\{{\\[^{{}}]*+\}}|&(?:lrm|rlm);|{CHEVRONS}")
DIALOGUE = re.compile(rf"(?:[{UNSEEN}]|{TAG.pattern})*?(?:[-–—]|{CHEVRONS})")  # another speaker begins
WORD_TIME = re.compile(rf"<{TIME}>")  # when the words that follow it are spoken
# The end of a line with what is not seen around it.
LINE_END = re.compile(rf"(?<![{UNSEEN}])[{UNSEEN}]*[\r\n][{UNSEEN}]*")
# SubStation Alpha, whose lines end in \N or \n; in {...} is how they look, and {\p1} begins a drawing.
ASS_LINE = re.compile(r"((?:[^\\\r\n]|\\(?![Nn]))*+)(\\[Nn]|\Z)")
ASS_LINE_END = re.compile(rf"(?<![{UNSEEN}])[{UNSEEN}]*\\[Nn][{UNSEEN}]*")
ASS_TAG = re.compile(r"(?:\{[^{}]*+\}|\\h)()()")  # as TAG, without a name
ASS_DRAWING = re.compile(r"\{(?:[^{}\\]|\\(?!p[1-9]))*+\\p[1-9]")
ASS_WORDS = str.maketrans({"{": "\uff5b", "}": "\uff5d", "\\": "\\\u2060"})  # look the same and mean nothing
ASS_DRAWN = re.compile(rf"{ASS_DRAWING.pattern}[^{{}}]*+\}}[^{{}}]*+|\{{[^{{}}]*+\}}")
ASS_FIELDS = 10  # of a line, if the file does not say which
CLOSING = {"Pe", "Pf", "Po"}  # punctuation that may not begin a line


class Notation(NamedTuple):
    """How a format writes the text of a cue: its tags, the ends of its lines, and whether characters are references."""

    tag: re.Pattern[str] = TAG
    line_end: re.Pattern[str] = LINE_END
    references: bool = False
    replaced: Mapping[int, str] = {}  # characters that would be markup in a translation

    def as_words(self, source: str) -> str:
        """Return a piece of a cue's text with line feeds for line ends, and characters for references."""
        lines = self.line_end.sub("\n", source)
        return resolve_references(lines) if self.references else lines

    def as_source(self, words: str) -> str:
        """Return words of a translation as they are written."""
        return escape(words, quote=False) if self.references else words.translate(self.replaced)


SRT, VTT, ASS = Notation(), Notation(references=True), Notation(ASS_TAG, ASS_LINE_END, replaced=ASS_WORDS)


def parse_srt(data: bytes) -> Document:
    """Return the document of a SubRip file: one text for each cue with words, one for each speaker of a dialogue."""
    return parse_subtitles(data, vtt=False)


def parse_vtt(data: bytes) -> Document:
    """Return the document of a WebVTT file, as `parse_srt` does; notes, styles and headers stay as they are."""
    return parse_subtitles(data, vtt=True)


def parse_subtitles(data: bytes, vtt: bool) -> Document:
    """Return the document of a WebVTT file, or with vtt=False of a SubRip file: see `parse_vtt` and `parse_srt`."""
    original, encoding = decode(data)
    lines = [match for match in LINE.finditer(original) if match[0]]
    skipped = [] if vtt else list(without_times(lines))
    if not any(TIMES.match(line[1]) for line in lines):
        is_empty = vtt and HEADER.match(original) is not None
        reason = "there is no cue in it" if is_empty else f"not {'WebVTT' if vtt else 'SubRip'} (there is no cue in it)"
        skipped = [Skipped(skipped[0].line if skipped else 0, reason)]
        return Document(original, encoding, [], skipped, readable=is_empty)
    notation = VTT if vtt else SRT
    texts = [passage for cue in cues(lines, vtt) for passage in passages(original, cue, notation)]
    return Document(original, encoding, texts, skipped)


def parse_ass(data: bytes) -> Document:
    """Return the document of SubStation Alpha: a text for the last field of each Dialogue, as `parse_srt` says."""
    original, encoding = decode(data)
    section, count = "", ASS_FIELDS
    texts: list[Passage] = []
    skipped: list[Skipped] = []
    readable = False
    for number, line in enumerate(LINE.finditer(original), start=1):
        name, _, value = line[1].strip().partition(":")
        *_, words = value.split(",", count - 1)
        if name.startswith("["):
            section = name.lower()
            readable = readable or section == "[events]"
        elif section != "[events]":
            continue
        elif name == "Format":
            count = value.count(",") + 1
        elif name == "Dialogue" and (value.count(",") < count - 1 or ASS_DRAWING.search(words)):
            if has_letter(ASS_DRAWN.sub("", words)):
                skipped.append(Skipped(number, "a drawing, or no line of a dialogue: left as it is"))
        elif name == "Dialogue":
            end = line.start() + len(line[1].rstrip())
            cue = [part for part in ASS_LINE.finditer(original, end - len(words), end) if part[0]]
            texts += passages(original, cue, ASS)
    if not texts and not skipped:
        reason = "there is no dialogue in it" if readable else "not SubStation Alpha (it has no [Events])"
        skipped = [Skipped(0, reason)]
    return Document(original, encoding, texts, skipped, readable=readable)


def without_times(lines: Sequence[re.Match[str]]) -> Iterator[Skipped]:
    """Yield the lines of SubRip that should be the times of a cue, after its number, and are not."""
    left = True  # until the first cue; what follows one is read as its text
    for number, (before, line, following) in enumerate(zip([None, *lines], lines, lines[1:], strict=False), start=1):
        left = left and not TIMES.match(line[1])
        begins = before is None or not before[1].strip()
        text = following[1].strip()
        if begins and text and NUMBER.fullmatch(line[1]) and not TIMES.match(text):
            kept = left or ARROW in text
            yield Skipped(number + 1, f"not a time: {text[:40]!r}; {'left as it is' if kept else 'read as text'}")


def cues(lines: Sequence[re.Match[str]], vtt: bool) -> Iterator[list[re.Match[str]]]:
    """Yield the lines of text of each cue, as matches of LINE; a cue without text gives an empty list.

    In SubRip, what follows an empty line inside a cue is yielded as well, as a list of its own; in WebVTT it is a note
    or the like.
    """
    after_cue = False
    for blank, group in groupby(lines, key=lambda line: not (line[1] if vtt else line[1].strip())):
        if blank:
            continue
        block = list(group)
        times = [index for index, line in enumerate(block) if TIMES.match(line[1])]
        if vtt and not times:
            continue
        # Before the times of a cue is its name; the empty line between two cues may be missing, or be one of spaces.
        ends = [at - has_name(block, at) for at in times]
        if after_cue and not vtt:
            yield block[2 * begins_cue(block) : ends[0] if ends else None]
        for at, end in zip(times, [*ends, len(block)][1:], strict=True):
            after_cue = True
            yield block[at + 1 : end]


def has_name(block: Sequence[re.Match[str]], times: int) -> bool:
    """Return whether the line before the times of a cue is its number, or stands alone before them."""
    alone = times > 1 and not block[times - 2][1].strip()
    return times > 0 and (alone or NUMBER.fullmatch(block[times - 1][1]) is not None)


def begins_cue(block: Sequence[re.Match[str]]) -> bool:
    """Return whether lines begin with the number of a cue and what were to be its times; these may be damaged."""
    return len(block) > 1 and NUMBER.fullmatch(block[0][1]) is not None and ARROW in block[1][1]


def passages(original: str, cue: Sequence[re.Match[str]], notation: Notation) -> Iterator[Passage]:
    """Yield one passage for a cue, or one for each speaker: a dash at the beginning of a line is where one begins.

    None where it has no words. original: the whole file; cue: the lines of the cue's text, as matches in it.
    """
    speakers = [index for index, line in enumerate(cue) if index and DIALOGUE.match(line[1])]
    if speakers:
        for start, end in pairwise([0, *speakers, len(cue)]):
            yield from passages(original, cue[start:end], notation)
    elif cue:
        flow = list(fragments(original, cue[0].start(), cue[-1].end(1), notation))
        first, stop, words = core_words(as_one_line([word for word, _, _ in flow]))
        if words:
            start, end = flow[first][1], flow[stop - 1][2]
            source = OUTER.sub("", original[start:end])
            start = original.index(source, start)
            inlines = [word for word in words if isinstance(word, Inline)]
            text = OUTER.sub("", flow_text(words))
            yield Passage(start, start + len(source), (text,), renderer(source, inlines, notation))


def fragments(original: str, start: int, end: int, notation: Notation) -> Iterator[tuple[Fragment, int, int]]:
    """Yield the words and tags of a cue, each with its start and end in `original`; the words as `as_words` gives them.

    original: the whole file; start and end: of the cue's text in it.
    """
    at = start
    for tag in notation.tag.finditer(original, start, end):
        if at < tag.start():
            yield notation.as_words(original[at : tag.start()]), at, tag.start()
        name = (tag[2] or "").lower()
        source = LINE_END.sub(" ", tag[0])
        yield (
            Inline(source if name else "", source, "" if tag[1] else name, name if tag[1] else ""),
            tag.start(),
            tag.end(),
        )
        at = tag.end()
    if at < end:
        yield notation.as_words(original[at:end]), at, end


def renderer(source: str, inlines: Sequence[Inline], notation: Notation) -> Callable[[Sequence[str]], Content]:
    """Return a function that writes a translation in as many lines as `source` has, or fewer if it has too few words.

    source: the text of the cue as it is in the file; inlines: its tags. Where the translation lacks a tag, or they do
    not nest as before, all of them follow its words. The times of words stay in their order.
    """
    ends = notation.line_end.findall(source)
    times = {inline: None for inline in inlines if WORD_TIME.fullmatch(str(inline.original))}

    def render(translations: Sequence[str]) -> Content:
        words, is_complete = split_translation(translations[0].replace(ARROW, "→"), inlines)
        if not is_complete:
            words = [" ".join(word.strip() for word in words if isinstance(word, str)), *inlines]
        in_order = iter(times)
        words = [next(in_order) if isinstance(word, Inline) and word in times else word for word in words]
        parts = [str(word.original) if isinstance(word, Inline) else notation.as_source(word) for word in words]
        lines = wrap("".join(parts), len(ends) + 1, notation.tag)
        return [*chain.from_iterable(zip(["", *ends], lines, strict=False))]

    return render


def wrap(text: str, count: int, tag_pattern: re.Pattern[str] = TAG) -> list[str]:
    """Return the text in `count` lines of similar length, tags not counted; in fewer if it has too few words."""
    spaces: list[tuple[int, int]] = []  # where a line may end, and how many characters are visible before it
    between: list[tuple[int, int]] = []  # the same for scripts without spaces
    seen = at = 0
    for tag in [*tag_pattern.finditer(text), None]:
        for index in range(at, tag.start() if tag else len(text)):
            if text[index] == " ":
                spaces.append((index, seen))
            elif index and is_wide(text[index - 1]) and is_wide(text[index]) and not may_not_begin_line(text[index]):
                between.append((index, seen))
            seen += 1
        at = tag.end() if tag else at
    breaks = spaces if len(spaces) >= count - 1 else between or spaces
    lines: list[str] = []
    begin = chosen = 0
    for number in range(1, count):
        goal = seen * number / count
        last = len(breaks) - (count - number)  # those after it are for the lines that follow
        if chosen >= len(breaks):
            break
        while chosen < last and abs(breaks[chosen + 1][1] - goal) <= abs(breaks[chosen][1] - goal):
            chosen += 1
        lines.append(text[begin : breaks[chosen][0]].strip())
        begin = breaks[chosen][0]
        chosen += 1
    return [line for line in [*lines, text[begin:].strip()] if line]


def is_wide(character: str) -> bool:
    """Return whether a character is as wide as two Latin letters, as those of Chinese, Japanese and Korean."""
    return unicodedata.east_asian_width(character) in "WF"


def may_not_begin_line(character: str) -> bool:
    """Return whether a character is punctuation that no line may begin with."""
    return unicodedata.category(character) in CLOSING
