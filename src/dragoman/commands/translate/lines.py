"""Lines in, lines out: what `translate` reads and writes, one record for each input line, in the same order."""

import json
import math
import queue
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from os import fstat
from types import MappingProxyType
from typing import Any, BinaryIO, Literal

from dragoman.data.tokenizer import SURROGATE
from dragoman.translation.result import Translation

InputFormat = Literal["text", "tsv", "jsonl"]
OutputFormat = Literal["text", "tsv", "jsonl", "nbest"]
WAITING = 2048  # lines that are read ahead of a slow translation
DEEPEST = 100  # objects and arrays inside each other in a line of JSONL; Python writes fewer than it reads
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Line:
    """One input line. What is not its text, other columns or fields, goes to the output as it is."""

    number: int
    text: str
    columns: tuple[str, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    fault: str = ""  # why there is no text


def texts_of(source: BinaryIO, tell: Tell) -> Iterator[tuple[int, str]]:
    """Lines of UTF-8, ended by a line feed only. What is not UTF-8 becomes U+FFFD, and is told by line number."""
    for number, line in enumerate(source, start=1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        text = line.decode("utf-8", "replace")
        if "\ufffd" in text and text.encode() != line:
            tell(f"line {number}: not UTF-8; what cannot be read is replaced")
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def read(source: BinaryIO, kind: InputFormat, key: str, tell: Tell) -> Iterator[Line]:
    """The lines of an input. Of TSV the first column is translated, of JSONL the text under `key`."""
    for number, text in texts_of(source, tell):
        if kind == "text":
            yield Line(number, text)
        elif kind == "tsv":
            first, *others = text.split("\t")
            yield Line(number, first, tuple(others))
        else:
            yield from_json(number, text, key)


def from_json(number: int, text: str, key: str) -> Line:
    try:
        fields = json.loads(text, parse_float=number_of, parse_constant=number_of)
    except (ValueError, RecursionError):
        return Line(number, "", fault="not JSON")
    if text.count("[") + text.count("{") > DEEPEST and depth(fields) > DEEPEST:
        return Line(number, "", fault=f"more than {DEEPEST} objects and arrays inside each other")
    if not isinstance(fields, dict) or not isinstance(fields.get(key), str):
        there = isinstance(fields, dict) and key in fields
        return Line(number, "", fault=f"what is under '{key}' is no text" if there else f"no text under '{key}'")
    return Line(number, fields[key], fields={name: fields[name] for name in fields if name == key or name not in OURS})


def number_of(text: str) -> float:
    """Raises ValueError for what could not be written as JSON again: NaN, infinities and numbers as large as these."""
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def depth(value: Any) -> int:
    """How many objects and arrays are inside each other."""
    found, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, dict | list)]:
        level = [one for outer in level for one in (outer.values() if isinstance(outer, dict) else outer)]
        found += 1
    return found


def blocks(lines: Iterator[Line], source: BinaryIO, interactive: bool, most: int) -> Iterator[list[Line]]:
    """Lines that are translated together: one by one for a person, `most` of a file, and of a pipe what is there.

    A pipe is read beside the translation, so that whoever writes slowly gets each line back at once.
    """
    if interactive or stat.S_ISREG(fstat(source.fileno()).st_mode):
        while block := list(islice(lines, 1 if interactive else most)):
            yield block
        return
    waiting: queue.Queue[Line | BaseException | None] = queue.Queue(WAITING)

    def reading() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except BaseException as error:  # told where the lines are used
            waiting.put(error)

    threading.Thread(target=reading, daemon=True).start()
    while True:
        block, last = [], waiting.get()
        while isinstance(last, Line):
            block.append(last)
            if len(block) == most or waiting.empty():
                break
            last = waiting.get()
        if block:
            yield block
        if isinstance(last, BaseException):
            raise last
        if last is None:
            return


def written(
    line: Line, found: Translation, kind: OutputFormat, key: str, more: Mapping[str, Any] = MappingProxyType({})
) -> Iterator[str]:
    """The output lines of one input line: one, or for `nbest` one for each translation, in the form that Moses gave it.

    number ||| translation ||| F0= score ||| score

    `more` goes into an object.
    """
    if kind == "text":
        yield found.text
    elif kind == "tsv":
        yield "\t".join([column(line.text), column(found.text), f"{found.score:.4f}", *line.columns])
    elif kind == "nbest":
        for one in (found, *found.alternatives):
            yield f"{line.number - 1} ||| {one.text} ||| F0= {one.score:.4f} ||| {one.score:.4f}"
    elif line.fault:
        yield as_json({"line": line.number, "error": line.fault})
    else:
        yield as_json({**(line.fields or {key: line.text}), **as_dict(found), **more})


OURS = frozenset(
    {
        "translation",
        "score",
        "finished",
        "flags",
        "retried",
        "terms_met",
        "segments",
        "alternatives",
        "words",
        "alignment",
    }
)


def as_dict(found: Translation) -> dict[str, Any]:
    """What JSONL says of a translation beside its source."""
    record: dict[str, Any] = {"translation": found.text, "score": round(found.score, 4), "finished": found.finished}
    for name in ("flags", "retried", "terms_met"):
        if value := getattr(found, name):
            record[name] = value
    if found.segments > 1:
        record["segments"] = found.segments
    if found.alternatives:
        record["alternatives"] = [{"translation": one.text, "score": round(one.score, 4)} for one in found.alternatives]
    return record


def as_json(record: dict[str, Any]) -> str:
    text = json.dumps(record, ensure_ascii=False)
    return json.dumps(record) if SURROGATE.search(text) else text  # half a character is no UTF-8


def column(text: str) -> str:
    return text.replace("\t", " ").replace("\n", " ")
