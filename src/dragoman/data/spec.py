"""Name corpora on the command line and in TOML lists: files, and options such as `weight=2` after them."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dragoman.config.fields import check_texts
from dragoman.data.containers import files_in, is_container
from dragoman.data.lines import FOLDER, MAX_WEIGHT, MIN_WEIGHT, codec_of, display_path, no_such_file, place_of
from dragoman.errors import DragomanError, UsageError

# One file holds both sides.
OF_PAIRS = (".tsv", ".csv", ".jsonl", ".parquet", ".arrow", ".tmx", ".po", ".xlf", ".xliff", ".ts", ".xcstrings")
WITH_COLUMNS = (".csv", ".jsonl", ".parquet", ".arrow", ".tmx", ".xcstrings")  # columns= says which texts are read
# Messages of programs: two files have the two sides, under the same keys.
WITH_KEYS = (
    ".json",
    ".arb",
    ".yml",
    ".yaml",
    ".properties",
    ".xml",
    ".strings",
    ".stringsdict",
    ".resx",
    ".resw",
    ".ftl",
)
WITH_WEIGHTS = (
    ".tsv",
    ".csv",
    ".jsonl",
    ".parquet",
    ".arrow",
)  # weight-column= says where the weights of the pairs are
MAPPED = (".parquet", ".arrow")  # read from the disk
WITH_HEADER = ("", ".tsv", ".csv")  # the first row may be the names of the columns; "": two files of plain text
DEFAULT_COLUMNS = ("source", "target")  # of CSV, JSON lines and Parquet
# By suffix: what to do with a file that is not text, with one that is not one corpus, and with one that is not lines.
NOT_TEXT, NOT_PAIRS, STRUCTURED = (
    {suffix: advice for suffixes, advice in table.items() for suffix in suffixes.split()}
    for table in tomllib.loads(Path(__file__).with_name("suffixes.toml").read_text(encoding="utf-8")).values()
)
OPTION = re.compile(r"([a-z]+(?:-[a-z]+)?)=(.*)", re.DOTALL)
TAG = re.compile(r"[\w.-]{1,40}")
OPTIONS = ("weight", "share", "tag", "target-tag", "columns", "weight-column")


@dataclass(frozen=True)
class CorpusSpec:
    """One corpus: its file, or its source file and target file, and how training uses it."""

    files: tuple[str, ...]
    weight: float = 1.0
    "how often each pair occurs in an epoch"
    tag: str = ""
    "put in front of the source as a token of its own"
    target_tag: str = ""
    "put in front of the target: what every translation begins with, such as the token of its language"
    columns: tuple[str, str] | None = None
    """columns of CSV and Parquet, keys of JSON lines (dotted: translation.en), languages of TMX (en is also en-US) and
    of String Catalogs"""
    weight_column: str = ""
    "column, or key of JSON lines, with the weight of each pair, from 0 on, which multiplies that of the corpus"
    share: float | None = None
    "instead of a weight: how much of the target tokens of an epoch comes from this corpus"

    def __post_init__(self) -> None:
        for file in self.files:
            refuse_unreadable(file)
            if place_of(file)[1] and (codec_of(file) or suffix_of(file) in MAPPED):
                raise UsageError(f"{display_path(file)}: packed twice; unpack the archive first")
        with_keys = [file for file in self.files if suffix_of(file) in WITH_KEYS]
        if len(self.files) == 2 and len(with_keys) == 1:
            raise UsageError(
                f"{self.name}: {display_path(with_keys[0])} has texts under keys, but the other file has none"
            )
        if len(self.files) == 1 and (way_out := NOT_PAIRS.get(suffix_of(self.files[0]))):
            raise UsageError(f"{self.name}: {way_out}")
        if not MIN_WEIGHT <= self.weight <= MAX_WEIGHT:
            raise UsageError(f"{self.name}: weight must be from {MIN_WEIGHT} to {MAX_WEIGHT:,.0f}, not {self.weight}")
        if self.share is not None and not 0 < self.share < 1:
            raise UsageError(f"{self.name}: share must be a number above 0 and below 1, not {self.share}")
        if self.share is not None and self.weight != 1:
            raise UsageError(f"{self.name}: give weight= or share=, not both: a share decides the weight")
        for tag in (self.tag, self.target_tag):
            if tag and not TAG.fullmatch(tag):
                raise UsageError(f"{self.name}: a tag is 1 to 40 letters, digits, '-', '_' or '.', not {tag!r}")
        if self.weight_column and self.format not in WITH_WEIGHTS:
            raise UsageError(f"{self.name}: weight-column= is for {', '.join(WITH_WEIGHTS)}")
        if self.weight_column and self.format == ".tsv" and not re.fullmatch("[3-9]|[1-9][0-9]", self.weight_column):
            raise UsageError(
                f"{self.name}: the columns of TSV have no names: weight-column=3 is the one behind the target"
            )
        if self.columns and self.format not in WITH_COLUMNS:
            raise UsageError(
                f"{self.name}: columns= is for {', '.join(WITH_COLUMNS)}; other files have two fixed sides"
            )

    @property
    def name(self) -> str:
        """The names of its files, for messages."""
        return " and ".join(display_path(file) for file in self.files)

    @property
    def tags(self) -> tuple[str, str]:
        """The tag of its sources and that of its targets."""
        return self.tag, self.target_tag

    def words(self) -> tuple[str, ...]:
        """Return the words that name the corpus on the command line; `parse_corpora` is the inverse.

        A single file whose suffix does not say that it has both sides gets an explicit weight, if it has no share,
        because the next file would be taken for its target.
        """
        alone = len(self.files) == 1 and suffix_of(self.files[0]) not in OF_PAIRS
        options = {
            "weight": f"{self.weight:.15g}" if (alone and not self.share) or self.weight != 1 else "",
            "share": f"{self.share:.15g}" if self.share else "",
            "tag": self.tag,
            "target-tag": self.target_tag,
            "columns": ",".join(self.columns or ()),
            "weight-column": self.weight_column,
        }
        return (*self.files, *(f"{name}={value}" for name, value in options.items() if value))

    @cached_property
    def format(self) -> str:
        """The suffix whose format is read, '.tsv' for any other; of two files 'keys', or '' for plain text."""
        if len(self.files) == 2:
            return "keys" if suffix_of(self.files[0]) in WITH_KEYS else ""
        suffix = suffix_of(self.files[0])
        return suffix if suffix in OF_PAIRS else ".tsv"


def without_folders(words: Iterable[str]) -> str:
    """Return the words that name corpora as one text, files without their folders, which are nobody else's business."""
    return " ".join(word if OPTION.fullmatch(word) else Path(word).name for word in words)


def check_present(files: Iterable[str]) -> None:
    """Raise DragomanError naming the first of the files that does not exist, or is a folder."""
    for file in files:
        if not place_of(file)[0].is_file():
            raise DragomanError(f"{display_path(file)}: {FOLDER if Path(file).is_dir() else no_such_file(file)}")


def refuse_unreadable(file: str) -> None:
    """Raise UsageError for a file that is not text by its name, saying what to do with it."""
    if way_out := NOT_TEXT.get(suffix_of(file)):
        raise UsageError(f"{display_path(file)}: {way_out}")


def suffix_of(file: str) -> str:
    """Return the suffix that tells the format, without that of a compression: '.tsv' for 'a.tsv.gz' and 'A.TSV'."""
    path = Path(file)
    return (path.with_suffix("") if codec_of(path) else path).suffix.lower()


def parse_corpora(words: Sequence[str]) -> tuple[CorpusSpec, ...]:
    """Return the corpora that a list of words names.

    A word is a file, or an option of the corpus before it: `weight=2`, `share=0.25`, `tag=news`, `target-tag=de`,
    `columns=en,de`, `weight-column=score`. Two files of plain text in a row are a source file and a target file; any
    other file is a corpus by itself. Raise UsageError where a word is wrong, and where shares leave nothing for a
    corpus without one.
    """
    check_texts("a corpus", words)
    runs: list[list[str]] = []  # of plain files in a row, or one file of pairs
    options: list[dict[str, Any]] = []
    open_run = False  # whether the next plain file belongs to the same corpus as the last one
    for word in words:
        option = OPTION.fullmatch(word)
        if option:
            if not runs:
                raise UsageError(f"{word}: an option must come after its corpus")
            name, value = parse_option(word, option[1], option[2])
            if name in options[-1]:
                raise UsageError(f"{word}: {' '.join(runs[-1])} already has a {option[1]}")
            options[-1][name] = value
            open_run = False
        elif suffix_of(word) in OF_PAIRS or is_container(word):
            runs.append([word])
            options.append({})
            open_run = False
        elif open_run:
            runs[-1].append(word)
        else:
            runs.append([word])
            options.append({})
            open_run = True
    specs: list[CorpusSpec] = []
    for files, given in zip(runs, options, strict=True):
        if is_container(files[0]):
            specs += specs_in(files[0], given)
            continue
        if len(files) > 1 and len(files) % 2:
            raise UsageError(
                f"a corpus is one file of pairs, or a source file and a target file, "
                f"not {len(files)} files: {' '.join(display_path(file) for file in files)}"
            )
        sides = [tuple(files[i : i + 2]) for i in range(0, len(files), 2)]
        specs += [CorpusSpec(side) for side in sides[:-1]]
        specs.append(CorpusSpec(sides[-1], **given))
    shares = [spec.share for spec in specs if spec.share]
    if shares and (sum(shares) >= 1 or len(shares) == len(specs)):
        raise UsageError("share= is a part of an epoch: the shares must leave something for a corpus without one")
    return tuple(specs)


def specs_in(word: str, options: dict[str, Any]) -> list[CorpusSpec]:
    """Return the corpora in an archive or a folder, all with the same options. Raise as `files_in` does."""
    corpora, columns = files_in(word, options.get("columns"), OF_PAIRS)
    if "share" in options and len(corpora) > 1:
        raise UsageError(f"{display_path(word)}: share= is for one file, and this has {len(corpora)}")
    return [CorpusSpec(files, **{**options, "columns": columns}) for files in corpora]


def parse_option(word: str, name: str, value: str) -> tuple[str, Any]:
    """Return the field of CorpusSpec that the option name=value sets, and what to set it to.

    word: the option as it was given, for the message. Raise UsageError for an unknown option and for a value that is
    not of its kind.
    """
    if name in ("weight", "share"):
        try:
            return name, float(value)
        except ValueError:
            raise UsageError(f"{word}: {name} must be a number above 0, not '{value}'") from None
    if name in ("tag", "target-tag", "weight-column"):
        if not value:
            raise UsageError(f"{word}: the {'column' if name == 'weight-column' else 'tag'} is missing")
        return name.replace("-", "_"), value
    if name == "columns":
        columns = tuple(value.split(","))
        if len(columns) != 2 or not all(columns):
            raise UsageError(f"{word}: name two columns, source first: columns=en,de")
        return name, columns
    near = difflib.get_close_matches(name, OPTIONS, n=1)
    names = [f"{option}=" for option in OPTIONS]
    hint = f"did you mean {near[0]}=?" if near else f"there are {', '.join(names[:-1])} and {names[-1]}"
    raise UsageError(f"{word}: unknown option, {hint} (for a file of that name, write ./{word})")
