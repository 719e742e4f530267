"""Make pairs in blocks of texts: each block is a file that is there whole or not at all, and knows its provenance.

So killed work resumes with the next block, and several processes or machines share the blocks.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from uuid import uuid4

import torch

from dragoman.data.corpus import SHOWN, first_few
from dragoman.errors import DragomanError, plural
from dragoman.storage.writing import atomic_file, delete_folder, fingerprint, name_errors, replace_file, sync
from dragoman.synthesis.job import Job, LocatedText, Record, as_json, inputs_changed_error
from dragoman.synthesis.noise import add_noise
from dragoman.synthesis.progress import TextProgress
from dragoman.translation.translator import Translator

FAULTY = "translations with a fault"  # a reason to leave out, followed by the fault
# Flags that say what is lost, by their first word.
KINDS_OF_FLAGS = {"number": "another number", "lost": "lost", "invented": "invented", "unknown": "unknown word"}


def make_blocks(
    job: Job, numbers: Sequence[int], count: int, provenance: Record, device: torch.device, progress: TextProgress
) -> None:
    """Translate the blocks with these numbers, from 0, and write each to its file as soon as it is done.

    count: of their texts, to show how far it is; provenance: what the job is made of; its hash is written into each
    block.
    """
    translator = Translator.load(
        job.model,
        job.search,
        device=device,
        engine=job.engine,
        compute_type=job.compute_type,
        target_tag=job.target_tag,
    )
    # Of a text that is too long in any case, the rest takes no memory.
    limit = 4 * max_tokens(job, translator) * max(map(len, translator.tokenizers.source.pieces))
    texts = (LocatedText(location, one_column(text)[:limit]) for location, text in job.texts())
    wanted, done = set(numbers), 0
    progress.begin(job.out.name, count)
    try:
        for number in range(max(numbers) + 1):
            block = list(islice(texts, job.block))
            if number in wanted:
                data = build_block(job, provenance, number, block, translator)
                replace_file(job.block_file(number), data, shared=True)
                done += len(block)
                progress.show_done(done)
    finally:
        progress.stop()


def build_block(job: Job, provenance: Record, number: int, block: list[LocatedText], translator: Translator) -> bytes:
    """Translate block `number`, and add the job's noise; return the bytes of its file.

    They are a line of JSON about the block, and its pairs as TSV.
    """
    left_out: dict[str, list[str]] = {}
    pairs = []
    for index, text, translation in translate_block(job, block, translator, left_out):
        if job.noise is not None:
            translation = add_noise(translation, Random(f"{job.noise} {number * job.block + index}"))
        pairs.append((text, translation) if job.text_is_source else (translation, text))
    body = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
    head = {
        "made_of": sha256(as_json(provenance)),
        "texts": len(block),
        "pairs": len(pairs),
        "left_out": {reason: [len(locations), locations[: SHOWN + 1]] for reason, locations in left_out.items()},
        "sha256": sha256(body),
    }
    return json.dumps(head, ensure_ascii=False).encode() + b"\n" + body


def translate_block(
    job: Job, block: list[LocatedText], translator: Translator, left_out: dict[str, list[str]]
) -> Iterator[tuple[int, str, str]]:
    """Yield index in the block, text and translation of each pair to learn from.

    The locations of texts that are left out are added to `left_out`, by reason.
    """
    most = max_tokens(job, translator)
    texts = [text for _, text in block]
    lengths = [len(ids) + 1 for ids in translator.tokenizers.source.encode_all(texts, job.tag)]
    usable = []
    for index, (text, length) in enumerate(zip(texts, lengths, strict=True)):
        if not text:
            left_out.setdefault("blank lines", []).append(block[index].location)
        elif length > most:
            left_out.setdefault(f"texts longer than {plural(most, 'token')}", []).append(block[index].location)
        else:
            usable.append(index)
    translations = translator.translate([texts[index] for index in usable], [job.tag] * len(usable))
    for index, translation in zip(usable, translations, strict=True):
        text = one_column(translation.text)
        if translation.flags:
            reason = KINDS_OF_FLAGS.get(translation.flags[0].split()[0], translation.flags[0])
            left_out.setdefault(f"{FAULTY} ({reason})", []).append(block[index].location)
        else:
            yield index, texts[index], text


def max_tokens(job: Job, translator: Translator) -> int:
    """Return the most tokens of a text, EOS included; longer ones are left out."""
    return min(job.max_tokens, translator.max_source_tokens + 1)


def one_column(text: str) -> str:
    """Return the text as one column of TSV: tabs and line ends become spaces, and none are around it."""
    return text.replace("\t", " ").replace("\n", " ").strip()


def join_blocks(job: Job, started: Record, count: int) -> Record:
    """Join the `count` blocks into the finished file, and delete them; write and return its record.

    started: the record that `start_record` returned. Raise DragomanError for a damaged block, for texts that changed
    since the start, and where no pair is left.
    """
    provenance = sha256(as_json(started["made_of"]))
    texts, pairs = 0, 0
    left_out: dict[str, tuple[int, list[str]]] = {}
    joined = job.blocks_folder / f"joined.{uuid4().hex}"  # several processes may join at the same time
    with atomic_file(joined) as draft:
        with draft.open("wb") as opened:
            for number in range(count):
                head, body = read_block(job.block_file(number), provenance)
                texts, pairs = texts + head["texts"], pairs + head["pairs"]
                for reason, (more, locations) in head["left_out"].items():
                    before, first = left_out.get(reason, (0, []))
                    left_out[reason] = (before + more, [*first, *locations][: SHOWN + 1])
                opened.write(body)
        counts = {reason: number for reason, (number, _) in left_out.items()}
        if texts != started["texts"] or texts != pairs + sum(counts.values()):
            raise inputs_changed_error(job)
        notes = left_out_notes(job, started, left_out, pairs)
        if not pairs:
            raise DragomanError(f"{job.out}: there are no pairs to write: {'; '.join(notes)}")
        notes = started["notes"] + notes
        record = {**started, "pairs": pairs, "left_out": counts, "notes": notes, **fingerprint(draft)}
    with name_errors(job.out):
        joined.replace(job.out)
        sync(job.out.parent)
    replace_file(job.record_file, as_json(record), shared=True)
    delete_folder(job.blocks_folder)
    return record


def left_out_notes(job: Job, started: Record, left_out: dict[str, tuple[int, list[str]]], pairs: int) -> list[str]:
    """Return a sentence for each reason why texts were left out, and a warning of a teacher that mostly fails.

    left_out: by reason, how many texts, and the locations of the first; pairs: how many are left.
    """
    names = " and ".join(started["files"])
    notes = [
        f"{names}: skipped {reason}: {count:,} ({first_few(locations)})"
        for reason, (count, locations) in left_out.items()
    ]
    faulty = sum(count for reason, (count, _) in left_out.items() if reason.startswith(FAULTY))
    if faulty > pairs:
        notes.append(f"{names}: more faulty translations ({faulty:,}) than pairs: is {job.model} trained well enough?")
    return notes


def read_block(file: Path, provenance: str) -> tuple[Record, bytes]:
    """Return the line of JSON at the head of a block, parsed, and the TSV after it.

    provenance: the hash of the job's provenance. Delete the block and raise DragomanError where it is damaged or from
    another job.
    """
    first, _, body = file.read_bytes().partition(b"\n")
    try:
        head = json.loads(first)
        if (head["made_of"], head["sha256"]) == (provenance, sha256(body)):
            return head, body
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    file.unlink()
    raise DragomanError(f"{file}: damaged and deleted; rerun the same command to make it again")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
