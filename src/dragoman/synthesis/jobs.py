"""Making pairs in blocks of texts: each block is a file that is there whole or not at all.

So work that was killed goes on with the next block, several processes or machines share the blocks, and the finished
file has the same bytes either way. Every block and the finished file know what they were made from.
"""

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal
from uuid import uuid4

import torch

from dragoman.config import SearchConfig, as_dict
from dragoman.data.corpus import SHOWN, LeftOut, read_lines, stream
from dragoman.data.spec import OF_PAIRS, CorpusSpec, check_present, display_path, suffix_of
from dragoman.errors import DragomanError
from dragoman.files import MANIFEST, fingerprint, replace_file, sync
from dragoman.model_folder import find_model, verify
from dragoman.synthesis.noise import disturbed
from dragoman.synthesis.progress import TextProgress
from dragoman.synthesis.shard import Shard
from dragoman.text.faults import find_faults
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

FAULTY = "translations with a fault"  # a reason to leave out, with the fault behind it

Place = tuple[str, str]  # 'news.tsv:12', and the text there


@dataclass(frozen=True)
class Job:
    """What is translated by which model, and how. The same task makes the same bytes."""

    model: Path
    "model folder or run folder"
    text: CorpusSpec | tuple[str, ...]
    "a corpus, whose sources are translated; or files of text that becomes the target of its own translation"
    out: Path
    "TSV, source TAB target"
    search: SearchConfig = SearchConfig()
    tag: str = ""
    "what goes in front of every text, for models that were trained with tags"
    max_tokens: int = 256
    "longer texts are left out; in tokens, the end included"
    noise: int | None = None
    "seed of the noise on the translations; None: no noise"
    block: int = 1000
    "texts that are translated and saved together"
    engine: Literal["native", "ctranslate2"] = "native"
    compute_type: str = "float32"
    "what CTranslate2 computes in"

    @property
    def parts(self) -> Path:
        return self.out.with_name(f"{self.out.name}.parts")

    @property
    def record(self) -> Path:
        return self.out.with_name(f"{self.out.name}.json")

    @property
    def files(self) -> tuple[str, ...]:
        return self.text.files if isinstance(self.text, CorpusSpec) else self.text

    def part(self, number: int) -> Path:
        return self.parts / f"{number:08d}"

    def made_of(self) -> dict[str, Any]:
        """All that decides the bytes. Raises DragomanError where the model or a file is missing or damaged."""
        folder = find_model(self.model)
        verify(folder)
        check_present(self.files)
        corpus = self.text if isinstance(self.text, CorpusSpec) else None
        found = {
            "model": fingerprint(folder / MANIFEST)["sha256"],
            "text": [fingerprint(Path(file))["sha256"] for file in self.files],
            "direction": "forward" if corpus else "back",
            "columns": corpus.columns if corpus else None,
            "tag": self.tag,
            "longest": self.max_tokens,
            "noise": self.noise,
            "block": self.block,
            "engine": self.engine if self.engine == "native" else f"{self.engine} {self.compute_type}",
            **as_dict(self.search),
        }
        return json.loads(json.dumps(found))


def synthesise(task: Job, shard: Shard, device: torch.device, progress: TextProgress) -> dict[str, Any] | None:
    """Do a share of the task, and join the blocks when all are there. Returns the record of the finished file; None
    where blocks of other shards are missing.

    Raises DragomanError where `out` was begun or made by another task, and where a text cannot be read.
    """
    made_of = task.made_of()
    if record := finished(task, made_of):
        tell(task, record, progress)
        return record
    try:
        begun = begin(task, made_of)
        blocks = blocks_of(task, begun)
        own = [number for number in range(shard.number - 1, blocks, shard.count) if not task.part(number).exists()]
        if own:
            translate(task, own, made_of, device, progress)
        missing = sum(not task.part(number).exists() for number in range(blocks))
        if missing:
            progress.log(f"{task.out}: {missing:,} of {blocks:,} blocks are left for other shards")
            return None
        if task.made_of() != made_of:
            raise changed(task)
        record = join(task, begun, blocks)
    except FileNotFoundError:  # another process has joined the blocks meanwhile, and swept up
        record = finished(task, made_of)
        if not record:
            raise
    tell(task, record, progress)
    return record


def tell(task: Job, record: dict[str, Any], progress: TextProgress) -> None:
    for note in record["notes"]:
        progress.log(note)
    progress.log(f"{task.out}: {record['pairs']:,} pairs from {record['texts']:,} texts")


def finished(task: Job, made_of: dict[str, Any]) -> dict[str, Any] | None:
    """The record of the finished file. Raises DragomanError where that is another file than this task makes."""
    if not task.out.exists():
        return None
    if not task.record.exists():
        if task.parts.exists():  # killed while joining
            return None
        raise DragomanError(f"{task.out}: there already, and not made by this command; choose another name")
    record = read_record(task.record, "pairs", "sha256")
    refuse_other(task, record, made_of, f"{task.out} and {task.record}")
    if fingerprint(task.out)["sha256"] != record["sha256"]:
        raise DragomanError(f"{task.out}: changed since it was made; delete it, and the same command makes it anew")
    shutil.rmtree(task.parts, ignore_errors=True)
    return record


def begin(task: Job, made_of: dict[str, Any]) -> dict[str, Any]:
    """What the folder of parts is for, and how many texts there are; written by whoever comes first.

    Everything is read once before anything is translated: what cannot be read is told now, not after hours.
    """
    record = task.parts / "record.json"
    if record.exists():
        begun = read_record(record)
        if any(task.parts.glob("[0-9]*")):
            refuse_other(task, begun, made_of, str(task.parts))
        if begun["made_of"] == made_of:
            return begun
    notes: list[str] = []
    count = sum(1 for _ in texts(task, notes))
    if not count:
        raise DragomanError(f"{' and '.join(map(display_path, task.files))}: no text in it")
    begun = {
        "made_of": made_of,
        "model": display_path(str(task.model)),
        "files": [display_path(file) for file in task.files],
        "texts": count,
        "notes": notes,
    }
    task.parts.mkdir(parents=True, exist_ok=True)
    put(record, as_json(begun))
    return begun


def blocks_of(task: Job, begun: dict[str, Any]) -> int:
    return -(-begun["texts"] // task.block)


def read_record(file: Path, *keys: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        record = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(record, dict) and record.keys() >= {"made_of", "texts", "notes", *keys}:
            return record
    raise DragomanError(f"{file}: damaged; delete it, and the same command starts over")


def refuse_other(task: Job, record: dict[str, Any], made_of: dict[str, Any], where: str) -> None:
    before = record["made_of"]
    names = [name for name in {**made_of, **before} if made_of.get(name) != before.get(name)]
    if names:
        raise DragomanError(
            f"{task.out} was made with another {' and another '.join(names)}: choose another name, "
            f"or delete {where} and start over"
        )


def changed(task: Job) -> DragomanError:
    return DragomanError(
        f"{' and '.join(map(display_path, task.files))}, or the model: changed during the translation; "
        f"delete {task.parts} and start over"
    )


def texts(task: Job, notes: list[str] | None = None) -> Iterator[Place]:
    """Every text in order, blank ones too. What has no text is added to `notes`."""

    if isinstance(task.text, CorpusSpec):
        left_out = LeftOut(task.text)
        for row in stream(task.text, left_out):
            yield f"{task.text.name}:{row.number}", row.source
        if notes is not None:
            notes += left_out.notes()
        return
    for file in task.text:
        for number, line in enumerate(read_lines(file), start=1):
            yield f"{display_path(file)}:{number}", line or ""


def translate(task: Job, own: list[int], made_of: dict[str, Any], device: torch.device, progress: TextProgress) -> None:
    """Make the blocks of these numbers."""
    translator = Translator.load(
        task.model, task.search, NO_SAFEGUARDS, device=device, engine=task.engine, compute_type=task.compute_type
    )
    wanted, source, done = set(own), texts(task), 0
    progress.begin(task.out.name, len(own) * task.block)
    try:
        for number in range(max(own) + 1):
            block = list(islice(source, task.block))
            if number in wanted:
                put(task.part(number), as_block(task, made_of, number, block, translator))
                done += len(block)
                progress.reached(done)
    finally:
        progress.stop()


def as_block(task: Job, made_of: dict[str, Any], number: int, block: list[Place], translator: Translator) -> bytes:
    """A line of JSON that says what the block is, and then its pairs."""
    left_out: dict[str, list[str]] = {}
    pairs = []
    for index, text, translation in translated(task, block, translator, left_out):
        if task.noise is not None:
            translation = disturbed(translation, Random(f"{task.noise} {number * task.block + index}"))
        pairs.append((text, translation) if isinstance(task.text, CorpusSpec) else (translation, text))
    body = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    head = {
        "made_of": digest(as_json(made_of)),
        "texts": len(block),
        "pairs": len(pairs),
        "left_out": {reason: [len(places), places[: SHOWN + 1]] for reason, places in left_out.items()},
        "sha256": digest(body),
    }
    return json.dumps(head, ensure_ascii=False).encode() + b"\n" + body


def translated(
    task: Job, block: list[Place], translator: Translator, left_out: dict[str, list[str]]
) -> Iterator[tuple[int, str, str]]:
    """(place in the block, text, translation) of what can be learned from; the rest goes to `left_out`."""
    tokenizer = translator.tokenizer
    longest = min(task.max_tokens, translator.max_source_tokens + 1)
    # Of a text too long in any case only this much is tokenised.
    most = 4 * longest * max(map(len, tokenizer.pieces))
    clean = [one_column(text) for _, text in block]
    lengths = [len(ids) + 1 for ids in tokenizer.encode_all([text[:most] for text in clean], task.tag)]
    fit = []
    for index, (text, length) in enumerate(zip(clean, lengths, strict=True)):
        if not text:
            left_out.setdefault("blank lines", []).append(block[index][0])
        elif length > longest:
            left_out.setdefault(f"texts longer than {longest} tokens", []).append(block[index][0])
        else:
            fit.append(index)
    found = translator.translate([clean[index] for index in fit], [task.tag] * len(fit))
    for index, translation in zip(fit, found, strict=True):
        text = one_column(translation.text)
        if wrong := find_faults(clean[index], text, finished=translation.finished):
            left_out.setdefault(f"{FAULTY} ({wrong[0]})", []).append(block[index][0])
        else:
            yield index, clean[index], text


def one_column(text: str) -> str:
    """As TSV can hold it, with no white space around that a reader might take for the end of a line."""
    return text.replace("\t", " ").replace("\n", " ").strip()


def join(task: Job, begun: dict[str, Any], blocks: int) -> dict[str, Any]:
    """The finished file from its blocks, and its record beside it. Raises DragomanError where a block is damaged."""
    made_of = digest(as_json(begun["made_of"]))
    counted, pairs = 0, 0
    left_out: dict[str, tuple[int, list[str]]] = {}
    draft = unique(task.parts / "joined")
    with draft.open("wb") as opened:
        for number in range(blocks):
            head, body = read_block(task.part(number), made_of)
            counted, pairs = counted + head["texts"], pairs + head["pairs"]
            for reason, (count, places) in head["left_out"].items():
                before, first = left_out.get(reason, (0, []))
                left_out[reason] = (before + count, [*first, *places][: SHOWN + 1])
            opened.write(body)
    names = " and ".join(begun["files"])
    notes = [f"{names}: left out {count:,} {reason} ({some(places)})" for reason, (count, places) in left_out.items()]
    faulty = sum(count for reason, (count, _) in left_out.items() if reason.startswith(FAULTY))
    if faulty > pairs:
        notes.append(f"{names}: {faulty:,} translations with a fault are many: is {task.model} trained well enough?")
    if counted != begun["texts"] or counted != pairs + sum(count for count, _ in left_out.values()):
        raise changed(task)
    if not pairs:
        raise DragomanError(f"{task.out}: there is no pair to write: {'; '.join(notes)}")
    counts = {reason: count for reason, (count, _) in left_out.items()}
    record = {**begun, "pairs": pairs, "left_out": counts, "notes": begun["notes"] + notes, **fingerprint(draft)}
    sync(draft)
    draft.replace(task.out)
    sync(task.out.parent)
    replace_file(task.record, as_json(record).decode())
    shutil.rmtree(task.parts, ignore_errors=True)
    return record


def read_block(file: Path, made_of: str) -> tuple[dict[str, Any], bytes]:
    first, _, body = file.read_bytes().partition(b"\n")
    try:
        head = json.loads(first)
        if (head["made_of"], head["sha256"]) == (made_of, digest(body)):
            return head, body
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    file.unlink()
    raise DragomanError(f"{file}: damaged, and deleted; the same command makes it anew")


def some(places: list[str]) -> str:
    return ", ".join(places[:SHOWN]) + (", ..." if len(places) > SHOWN else "")


def put(file: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, also where several processes write it at once."""
    draft = unique(file)
    try:
        draft.write_bytes(data)
        sync(draft)
        draft.replace(file)
        sync(file.parent)
    finally:
        draft.unlink(missing_ok=True)


def unique(file: Path) -> Path:
    return file.with_name(f".{file.name}.{uuid4().hex}")


def as_json(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def words(origin: CorpusSpec) -> tuple[str, ...]:
    """How a corpus is named to `--train`. A single file whose name does not say that it has both sides would become one
    corpus with the next: a weight ends it.
    """
    alone = len(origin.files) == 1 and suffix_of(origin.files[0]) not in OF_PAIRS
    options = {
        "weight": f"{origin.weight:.15g}" if alone or origin.weight != 1 else "",
        "tag": origin.tag,
        "columns": ",".join(origin.columns or ()),
    }
    return (*origin.files, *(f"{name}={value}" for name, value in options.items() if value))
