"""Measure on sentence pairs what a model can do, for the records of its folder.

Which head aligns words, how many subwords a letter takes, which words it may have read, and which names it copies: one
of these can stand in a source for a name that the model loses.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dragoman.alignment.heads import AlignmentHead, measure_heads
from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer, Tokenizers, tag_of
from dragoman.decoding.engine import Engine
from dragoman.errors import DragomanError
from dragoman.model import Model
from dragoman.model_folder import read_model, verify_files
from dragoman.model_folder.manifest import read_manifest
from dragoman.storage.writing import CARD, new_folder
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords, has_copy, known_words, often_copied
from dragoman.text.verbatim import WITH_NUMBERS, remove
from dragoman.translation.engines import torch_engine
from dragoman.translation.segments import Segment

SENTENCES, LEAST_WORDS = 10, 4  # in which the copying of a name is tried, and the words that these have at least

ALIGNED = 10_000  # pairs that the heads are measured on
SAMPLE = 2_000  # texts of a side that are read
USUAL = 99  # percent
TRAINING_STATE = ("state.json", "state.safetensors")  # of a checkpoint


class Calibration(NamedTuple):
    """What was measured: None for the alignment of a model without attention over its source."""

    words: KnownWords
    alignment: AlignmentHead | None


def calibrate(folder: Path, texts: Sequence[tuple[str, str]], ids: Sequence[tuple[Ids, Ids]], out: Path) -> Calibration:
    """Write a copy of a model folder as `out`, with the records that are measured on sentence pairs; return these.

    ids: the same pairs as `texts`, with the tags that the model reads. Raise DragomanError where the folder is damaged
    or `out` exists.
    """
    verify_files(folder)
    model, tokenizers = read_model(folder)
    sources, targets = ([side[number] for side in ids[:ALIGNED]] for number in (0, 1))
    copied = measure_copies(torch_engine([model], tokenizers.target), tokenizers, sources, often_copied(texts))
    read = [source for source, _ in texts]
    words = KnownWords(known_words(read).words, copied)
    subwords = most_subwords(read[:: max(1, len(read) // SAMPLE)], tokenizers.source)
    alignment = measure_alignment(model, sources, targets)
    with new_folder(out) as draft:
        for name in (*read_manifest(folder), CARD):
            if name not in TRAINING_STATE and (folder / name).is_file():
                shutil.copyfile(folder / name, draft / name)
        (draft / KnownWords.RECORD).write_text(words.as_text(), encoding="utf-8")
        if extent := SourceExtent.load(folder):
            (draft / extent.RECORD).write_text(replace(extent, subwords=subwords).as_json(), encoding="utf-8")
        if alignment:
            alignment.save(draft)
    return Calibration(words, alignment)


def measure_alignment(model: Model, sources: Sequence[Ids], targets: Sequence[Ids]) -> AlignmentHead | None:
    """Return which layer and head align the words of pairs best; None for a model without attention over its source."""
    try:
        return measure_heads(model, sources, targets)
    except DragomanError:
        return None


def most_subwords(texts: Sequence[str], tokenizer: SideTokenizer) -> float:
    """Return how many subwords a letter takes at most in 99 of 100 texts; 0.0 where none has enough letters."""
    bare = [remove(text, WITH_NUMBERS)[0] for text in texts]
    segments = map(Segment, bare, tokenizer.encode_all(bare))
    rates = [rate for segment in segments if (rate := segment.subwords_per_letter)]
    return round(float(np.percentile(rates, USUAL)), 4) if rates else 0.0


def measure_copies(engine: Engine, tokenizers: Tokenizers, sources: Sequence[Ids], names: Sequence[str]) -> list[str]:
    """Return those of the names that a model copies in most of the shortest sources, the surest first.

    Each stands there for a word, for a name if one has a capital. sources: with the tag that they begin with, if any.
    """
    frames: list[tuple[Ids, list[str], list[str]]] = []
    for ids in sorted(sources, key=len):
        tag = tag_of(tokenizers.source, ids)
        words = tokenizers.source.decode(ids[len(tag) :]).split(" ")
        if len(words) >= LEAST_WORDS:
            place = next((index for index, word in enumerate(words) if index and word[:1].isupper()), len(words) // 2)
            frames.append((tag, words[:place], words[place + 1 :]))
        if len(frames) == SENTENCES:
            break
    with_names = [(tag, " ".join([*before, name, *after])) for name in names for tag, before, after in frames]
    encoded = tokenizers.source.encode_sources([text for _, text in with_names])
    read = [[*tag, *ids] for (tag, _), ids in zip(with_names, encoded, strict=True)]
    hypotheses = engine.search(read, SearchConfig(beam=1)) if read else []
    outputs = iter([tokenizers.target.decode(ranked[0].tokens) for ranked in hypotheses])
    counts = {name: sum(has_copy(next(outputs), name) for _ in frames) for name in names}
    return sorted((name for name in names if counts[name] > len(frames) / 2), key=lambda name: -counts[name])
