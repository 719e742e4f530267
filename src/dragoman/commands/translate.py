"""dragoman translate"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import tyro

from dragoman.commands import Model, Search, parse
from dragoman.config import SearchConfig
from dragoman.errors import UsageError


@dataclass(frozen=True)
class Options:
    """Translate lines of text: one line out for each line in, in the same order, whatever is in them.

    $ dragoman translate -m runs/en-ko "See you on Monday."
    $ dragoman translate -m runs/en-ko < source.txt > translation.txt
    """

    model: Model
    "model folder or run folder"
    text: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[TEXT ...]")] = ()
    "text to translate; without it, lines of the input"
    input: Annotated[Path | None, tyro.conf.arg(aliases=["-i"], metavar="FILE")] = None
    "file to read; default: standard input"
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = None
    "file to write; default: standard output"
    tag: str = ""
    "the tag that goes in front of every text, for models that were trained with tags"
    search: Search = SearchConfig()


def main(arguments: list[str]) -> None:
    options = parse(Options, "translate", arguments)
    from dragoman.translator import LONGEST, Translator

    if options.text and options.input:
        raise UsageError("give text or --input, not both")
    if options.input and options.output and options.output.exists() and options.output.samefile(options.input):
        raise UsageError(f"{options.output}: input and output are the same file")
    translator = Translator.load(options.model, options.search)
    interactive = not options.text and options.input is None and sys.stdin.isatty()
    if interactive:
        print("reading from standard input, one line at a time; Ctrl-D ends", file=sys.stderr)
    with (
        options.input.open("rb") if options.input else nullcontext(sys.stdin.buffer) as source,
        options.output.open("wb") if options.output else nullcontext(sys.stdout.buffer) as target,
    ):
        texts = iter(options.text) if options.text else lines(source)
        for number, translation in enumerate(
            translator.stream(texts, 1 if interactive else 1024, options.tag), start=1
        ):
            target.write(translation.text.encode() + b"\n")
            if interactive:
                target.flush()
            if translation.parts > 1:
                print(
                    f"line {number}: longer than {LONGEST} tokens, translated in {translation.parts} parts",
                    file=sys.stderr,
                )
        target.flush()


def lines(source: BinaryIO) -> Iterator[str]:
    """Lines of UTF-8, ended by a line feed only. What is not UTF-8 becomes U+FFFD, and is told by line number."""
    for number, line in enumerate(source, start=1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        text = line.decode("utf-8", "replace")
        if "\ufffd" in text and text.encode() != line:
            print(f"line {number}: not UTF-8; what cannot be read is replaced", file=sys.stderr)
        yield text.removeprefix("\ufeff") if number == 1 else text
