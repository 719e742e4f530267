"""dragoman split"""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from dragoman.commands import parse
from dragoman.errors import UsageError, plural

if TYPE_CHECKING:
    from dragoman.data.corpus import Pair


LARGEST_DEFAULT = 1000  # pairs of --dev and --test
WEIGHTED = ", with their weights (train with weight-column=3)"


@dataclass(frozen=True)
class Options:
    """Split sentence pairs into train.tsv, dev.tsv and test.tsv without near duplicates between them.

    The same pairs are always split in the same way, whatever their order.

    $ dragoman split pairs.tsv --out data/mine
    $ dragoman split book.en book.ko news.tmx --by document --dev 500 --test 2000 --out data/mine
    """

    corpora: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS ...")]
    "pairs (TSV, CSV, JSONL, Parquet, Arrow, TMX, PO, XLIFF, TS, XCSTRINGS), or two texts; plain, .gz, .zst or .zip"
    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    "folder for train.tsv, dev.tsv and test.tsv"
    dev: int | None = None
    "number of pairs to validate on; 0: none; default: a tenth of the pairs, at most 1,000"
    test: int | None = None
    "number of pairs to test with; 0: none; default: a tenth of the pairs, at most 1,000"
    by: Literal["pair", "document"] = "pair"
    "choose single pairs, or whole documents (separated by blank lines and ends of files)"


def main(arguments: list[str]) -> None:
    """Run `dragoman split`: write the sets, and print the name and the number of pairs of each."""
    options = parse(Options, "split", arguments)
    if not options.corpora:
        raise UsageError("give a corpus: a file of pairs, or a source file and a target file")
    sizes = {"dev": options.dev, "test": options.test}
    for name, size in sizes.items():
        if size is not None and size < 0:
            raise UsageError(f"--{name} must be a number of pairs, 0 or more, not {size:,}")
    if not any(size != 0 for size in sizes.values()):
        raise UsageError("--dev 0 and --test 0 leave nothing to split off: choose at least one of them above 0")
    from dragoman.data.spec import parse_corpora
    from dragoman.data.split import SETS, read_documents, split_by_document, split_by_pair

    specs = parse_corpora(options.corpora)
    if any(any(spec.tags) or spec.share or spec.weight != 1 for spec in specs):
        raise UsageError("weight=, share=, tag= and target-tag= are for dragoman train: TSV cannot hold them")
    files = {name: options.out / f"{name}.tsv" for name in SETS if sizes.get(name) != 0}
    for file in files.values():
        if file.exists():
            missing = " ".join(str(other) for other in files.values() if not other.exists())
            why = f" without {missing}, as after a split that was interrupted: delete it, or" if missing else ";"
            raise UsageError(f"{file}: exists already{why} choose another --out")
    pairs, documents, weights, notes = read_documents(specs)
    weighted = any(spec.weight_column for spec in specs)
    for note in notes:
        print(note, file=sys.stderr)
    if not pairs:
        raise UsageError(f"{' and '.join(file for spec in specs for file in spec.files)}: no sentence pairs")
    if len(pairs) < 2 * sum(size != 0 for size in sizes.values()):
        raise UsageError(f"{plural(len(pairs), 'pair')}: too few to split")
    default = default_size(len(pairs))
    dev, test = (default if size is None else size for size in sizes.values())
    if 2 * (held_out := dev + test) > len(pairs):
        amount = "more than half of" if held_out <= len(pairs) else "more than"
        raise UsageError(
            f"--dev {dev:,} and --test {test:,} are {amount} the {len(pairs):,} pairs: choose smaller numbers"
        )
    sets = split_by_pair(pairs, dev, test) if options.by == "pair" else split_by_document(pairs, documents, dev, test)
    if default < LARGEST_DEFAULT and (chosen := [f"--{name}" for name, size in sizes.items() if size is None]):
        print(
            f"{' and '.join(chosen)}: {default:,} (default: a tenth of {len(pairs):,} pairs, at least 1)",
            file=sys.stderr,
        )
    write_sets(pairs, sets, files, weights if weighted else None)
    counts = Counter(sets)
    if counts[""]:
        print(f"left out: {plural(counts[''], 'near duplicate')} of a pair in another set", file=sys.stderr)
    for name, file in files.items():
        print(f"{file}: {plural(counts[name], 'pair')}{WEIGHTED if weighted and name == 'train' else ''}")


def default_size(pairs: int) -> int:
    """Return how many of so many pairs dev and test each get by default: a tenth, from 1 to LARGEST_DEFAULT."""
    return min(max(pairs // 10, 1), LARGEST_DEFAULT)


def write_sets(
    pairs: Sequence["Pair"], sets: Sequence[str], files: Mapping[str, Path], weights: Sequence[float] | None = None
) -> None:
    """Write each pair to the file of its set as TSV, all files or none; leave out the pairs of no set, ''.

    A tab inside a text becomes a space. weights: of the pairs, for a third column of the training pairs.
    """
    from dragoman.runtime.signals import exit_on_signals
    from dragoman.storage.writing import atomic_file, name_errors

    with exit_on_signals(), ExitStack() as stack:
        for part, file in files.items():
            draft = stack.enter_context(atomic_file(file, new=True))
            with name_errors(file, draft), draft.open("w", encoding="utf-8", newline="") as opened:
                for row, (pair, name) in enumerate(zip(pairs, sets, strict=True)):
                    if name == part:  # only texts of other formats than TSV can have a tab
                        weight = [f"{weights[row]:.6g}"] if weights and part == "train" else []
                        opened.write("\t".join([*(text.replace("\t", " ") for text in pair), *weight]) + "\n")
