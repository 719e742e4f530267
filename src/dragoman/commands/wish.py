"""dragoman wish"""

import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import tyro

from dragoman.commands import parse
from dragoman.errors import UsageError, plural


@dataclass(frozen=True)
class Options:
    """Choose the sentences that would teach a model most if someone translated them, the best first.

    They have words and phrases that are frequent in the text and rare in the training pairs.

    $ dragoman wish manuals.txt --train data/train.tsv --count 500 --out to-translate.txt
    """

    text: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TEXT")]
    "what is to be translated: a sentence on each line; plain, .gz, .zst or in a .zip"
    train: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS ...")]
    "the pairs that there are already"
    count: int = 500
    "number of sentences"
    max_words: int = 40
    "leave out sentences of more words"
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    "write the sentences to this file, instead of standard output"


def main(arguments: list[str]) -> None:
    """Run `dragoman wish`: write the chosen sentences, and say on standard error what they would teach."""
    options = parse(Options, "wish", arguments)
    if options.count < 1 or options.max_words < 1:
        raise UsageError("--count and --max-words must be at least 1")
    from dragoman.data.corpus import stream_rows
    from dragoman.data.lines import place_of, read_lines
    from dragoman.data.spec import OF_PAIRS, parse_corpora, suffix_of
    from dragoman.data.split import words_of
    from dragoman.data.wish import Wish
    from dragoman.storage.output import require_place
    from dragoman.storage.writing import replace_file

    if suffix_of(str(options.text)) in OF_PAIRS:
        raise UsageError(f"{options.text}: looks like a file of pairs; TEXT is plain text, one sentence per line")
    specs = parse_corpora(options.train)
    if options.out:
        require_place(options.out)
        read = [options.text, *(place_of(file)[0] for spec in specs for file in spec.files)]
        if any(options.out.exists() and file.exists() and options.out.samefile(file) for file in read):
            raise UsageError(f"{options.out}: is read; write to another file")
    texts = [text for text in read_lines(str(options.text)) if text and len(words_of(text)) <= options.max_words]
    wish = Wish(texts, (row.source for spec in specs for row in stream_rows(spec)))
    if not wish.rows:
        raise UsageError(f"{options.text}: no sentence that the training pairs lack")
    chosen = wish.choose(options.count)
    lines = "".join(f"{texts[row]}\n" for row in chosen)
    if options.out:
        replace_file(options.out, lines.encode(), shared=True)
    else:
        sys.stdout.write(lines)
    by_chance = Random(1).sample(wish.rows, len(chosen))
    lengths = sum(len(wish.words[row]) for row in chosen), sum(len(wish.words[row]) for row in by_chance)
    print(
        f"{plural(len(chosen), 'sentence')} of {len(wish.rows):,}, {lengths[0]:,} words. Of what occurs several times "
        f"in {options.text} and never in the training pairs, they have {wish.coverage(chosen)}; as many by chance, "
        f"{lengths[1]:,} words: {wish.coverage(by_chance)}",
        file=sys.stderr,
    )
