"""Describe a job of synthesis, and record on disk what its file of pairs was made from.

The same job makes the same bytes. A job that was begun or finished is recognised by its provenance: everything that
decides the bytes. Blocks of different provenance are never joined.
"""

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dragoman.config import SearchConfig, as_dict
from dragoman.data.corpus import LeftOut, stream_rows
from dragoman.data.lines import checksum_of, display_path, read_lines
from dragoman.data.spec import CorpusSpec, check_present
from dragoman.errors import DragomanError
from dragoman.model_folder import fetch_model, verify_files
from dragoman.storage.records import MAX_TABLE_SIZE, read_json
from dragoman.storage.writing import MANIFEST, atomic_file, delete_folder, fingerprint

RECORD = "record.json"  # of a job in progress, beside its blocks
Record = dict[str, Any]  # JSON: what a job makes, and from what


class LocatedText(NamedTuple):
    """A text to translate, and where it was read: 'news.tsv:12'."""

    location: str
    text: str


@dataclass(frozen=True)
class Job:
    """Describe which texts are translated by which model, with which settings, into which file."""

    model: Path
    "model folder or run folder"
    text: CorpusSpec | tuple[str, ...]
    "a corpus, whose sources are translated; or files of text that becomes the target of its own translation"
    out: Path
    "TSV, source TAB target"
    search: SearchConfig = SearchConfig()
    tag: str = ""
    "put in front of every text, for models that were trained with tags"
    target_tag: str = ""
    "what every translation begins with, for models that were trained with such tags; no part of it"
    max_tokens: int = 256
    "longer texts are left out; in tokens, EOS included"
    reverse: bool = False
    "write files of text as the source of their translation"
    noise: int | None = None
    "seed of the noise on the translations; None: no noise"
    block: int = 1000
    "texts that are translated and saved together"
    engine: Literal["native", "ctranslate2"] = "native"
    compute_type: Literal["float32", "bfloat16", "int8"] = "float32"  # no 'auto': machines that share it must agree
    "what the engine multiplies in on a CPU"

    @property
    def blocks_folder(self) -> Path:
        return self.out.with_name(f"{self.out.name}.parts")

    @property
    def record_file(self) -> Path:
        return self.out.with_name(f"{self.out.name}.json")

    @property
    def files(self) -> tuple[str, ...]:
        return self.text.files if isinstance(self.text, CorpusSpec) else self.text

    def block_file(self, number: int) -> Path:
        return self.blocks_folder / f"{number:08d}"

    @property
    def text_is_source(self) -> bool:
        """Return whether a pair is text TAB translation, not translation TAB text."""
        return self.reverse or isinstance(self.text, CorpusSpec)

    def provenance(self) -> Record:
        """Return all that the translations depend on: settings, and checksums of model and texts.

        Raise DragomanError where the model or a file is missing or damaged.
        """
        folder = fetch_model(self.model)
        verify_files(folder)
        check_present(self.files)
        corpus = self.text if isinstance(self.text, CorpusSpec) else None
        made_of = {
            "model": fingerprint(folder / MANIFEST)["sha256"],
            "text": [*map(checksum_of, self.files)],
            "direction": "forward" if self.text_is_source else "back",
            "columns": corpus.columns if corpus else None,
            "tag": self.tag,
            **({"target_tag": self.target_tag} if self.target_tag else {}),
            "longest": self.max_tokens,
            "noise": self.noise,
            "block": self.block,
            "engine": "native"
            if (self.engine, self.compute_type) == ("native", "float32")
            else f"{self.engine} {self.compute_type}",
            **as_dict(self.search),
        }
        return json.loads(json.dumps(made_of))

    def texts(self, notes: list[str] | None = None) -> Iterator[LocatedText]:
        """Yield every text in order, blank ones included, with its location.

        Where they are the sources of a corpus, `notes` gets a sentence for each reason why something in it was left
        out. Raise DragomanError for a file that cannot be read.
        """
        if isinstance(self.text, CorpusSpec):
            left_out = LeftOut(self.text)
            for row in stream_rows(self.text, left_out):
                yield LocatedText(f"{self.text.name}:{row.number}", row.source)
            if notes is not None:
                notes += left_out.notes()
            return
        for file in self.text:
            for number, line in enumerate(read_lines(file), start=1):
                yield LocatedText(f"{display_path(file)}:{number}", line or "")


def finished_record(job: Job, provenance: Record) -> Record | None:
    """Return the record of the finished file; None where the job is not finished.

    It is that of `start_record` with 'pairs', 'left_out', 'bytes' and 'sha256'. Where there is one, delete blocks that
    were left behind. Raise DragomanError where the file was not made by this command, was made by another job, or was
    changed afterwards.
    """
    if not job.out.exists():
        return None
    blocks_exist = job.blocks_folder.exists()  # asked first: they are deleted once the record is there
    if not job.record_file.exists():
        if blocks_exist:  # killed while joining, or another process is joining now
            return None
        raise DragomanError(f"{job.out}: exists already and was not made by this command; choose another name")
    record = read_record(job.record_file, "pairs", "sha256")
    check_same_job(job, record, provenance, f"{job.out} and {job.record_file}")
    if fingerprint(job.out)["sha256"] != record["sha256"]:
        raise DragomanError(f"{job.out}: changed since it was made; delete it and rerun the same command")
    delete_folder(job.blocks_folder)
    return record


def start_record(job: Job, provenance: Record) -> Record:
    """Return the record of a job in progress: 'made_of' (its provenance), 'model', 'files', 'texts' and 'notes'.

    'texts' is their number. The first process writes the record. All texts are read once before anything is translated:
    what cannot be read is reported now, not after hours. Raise DragomanError where there is the record of another job,
    and where there is no text.
    """
    file = job.blocks_folder / RECORD
    if file.exists():
        record = read_record(file)
        check_same_job(job, record, provenance, str(job.blocks_folder))
        return record
    notes: list[str] = []
    count = sum(1 for _ in job.texts(notes))
    if not count:
        raise DragomanError(f"{' and '.join(map(display_path, job.files))}: no text in it")
    record = {
        "made_of": provenance,
        "model": display_path(str(job.model)),
        "files": [display_path(file) for file in job.files],
        "texts": count,
        "notes": notes,
    }
    try:
        with atomic_file(file, new=True) as draft:
            draft.write_bytes(as_json(record))
    except FileExistsError:  # another process was faster
        return start_record(job, provenance)
    return record


def forget_start(job: Job) -> None:
    """Delete the record of a job that has made nothing yet, so that it may be started with other settings."""
    if not any(job.blocks_folder.glob("[0-9]*")):
        with contextlib.suppress(OSError):
            (job.blocks_folder / RECORD).unlink()


def block_count(job: Job, record: Record) -> int:
    """Return how many blocks the texts of a job make. record: what `start_record` returned."""
    return -(-record["texts"] // job.block)


def count_texts(job: Job, record: Record, numbers: Iterable[int]) -> int:
    """Return how many texts the blocks with these numbers have, from 0. record: what `start_record` returned."""
    return sum(min(job.block, record["texts"] - number * job.block) for number in numbers)


def read_record(file: Path, *keys: str) -> Record:
    """Return the record in a file. Raise DragomanError where it is damaged or lacks a key.

    Besides `keys` it must have those of every record: 'made_of', 'texts' and 'notes'.
    """
    with contextlib.suppress(ValueError):
        record = read_json(file, MAX_TABLE_SIZE)
        if isinstance(record, dict) and record.keys() >= {"made_of", "texts", "notes", *keys}:
            return record
    raise DragomanError(f"{file}: damaged; delete it and rerun the same command")


def check_same_job(job: Job, record: Record, provenance: Record, to_delete: str) -> None:
    """Raise DragomanError, naming the differences, where the provenance in a record is not that of this job.

    to_delete: the files that the message tells the user to delete in order to start over.
    """
    before = record["made_of"]
    names = [name for name in {**provenance, **before} if provenance.get(name) != before.get(name)]
    if names:
        raise DragomanError(
            f"{job.out} was made with another {' and another '.join(names)}: choose another name, "
            f"or delete {to_delete} and start over"
        )


def inputs_changed_error(job: Job) -> DragomanError:
    """Return the error for inputs that changed during the translation."""
    return DragomanError(
        f"{' and '.join(map(display_path, job.files))}, or the model: changed during the translation; "
        f"delete {job.blocks_folder} and start over"
    )


def as_json(record: Record) -> bytes:
    """Return a record as the bytes of its file."""
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()
