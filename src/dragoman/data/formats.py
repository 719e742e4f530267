"""Choose how the rows of a corpus are read: by `data/lines.py`, the module named after its format, or `documents`."""

from collections.abc import Iterator

from dragoman.data.lines import OnProblem, Row, codec_of, display_path, read_tsv, read_two_files
from dragoman.data.spec import MAPPED, CorpusSpec
from dragoman.errors import DragomanError


def read_rows(spec: CorpusSpec, on_problem: OnProblem) -> Iterator[Row]:
    """Yield the rows of a corpus in their order, those with an empty side included, in constant memory.

    `on_problem` is called for what cannot be a row; if it does not raise, that row is missing.
    Raise DragomanError where a file as a whole cannot be read.
    """
    file = spec.files[0]
    if spec.format in MAPPED and codec_of(file):
        raise DragomanError(f"{display_path(file)}: tables of {spec.format} are read from the disk; decompress it")
    # Imported only here: the libraries of some formats take a while to load.
    match spec.format:
        case ".ts" | ".xcstrings" | "keys":
            from dragoman.documents.pairs import read_pairs

            return read_pairs(spec, on_problem)
        case ".tsv":
            return read_tsv(file, on_problem, spec.weight_column)
        case ".csv":
            from dragoman.data.csv import read_csv

            return read_csv(file, spec.columns, on_problem, spec.weight_column)
        case ".jsonl":
            from dragoman.data.jsonl import read_jsonl

            return read_jsonl(file, spec.columns, on_problem, spec.weight_column)
        case ".parquet":
            from dragoman.data.parquet import read_parquet

            return read_parquet(file, spec.columns, on_problem, spec.weight_column)
        case ".arrow":
            from dragoman.data.arrow import read_arrow

            return read_arrow(file, spec.columns, on_problem, spec.weight_column)
        case ".tmx":
            from dragoman.data.tmx import read_tmx

            return read_tmx(file, spec.columns, on_problem)
        case ".po":
            from dragoman.data.po import read_po

            return read_po(file, on_problem)
        case ".xlf" | ".xliff":
            from dragoman.data.xliff import read_xliff

            return read_xliff(file, on_problem)
        case "":
            return read_two_files(file, spec.files[1], on_problem)
    raise ValueError(f"read_rows has no case for '{spec.format}'")
