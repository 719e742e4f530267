"""Measure on sentence pairs what a model can do, for the records of its folder.

Which head aligns words, how many subwords a letter takes, which words it may have read, and which names it copies: one
of these can stand in a source for a name that the model loses.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from dragoman.alignment.heads import AlignmentHead, measure_heads
from dragoman.confidence.estimate import Confidence
from dragoman.confidence.features import Features
from dragoman.confidence.fit import fit_confidence, fit_words, unfitted
from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer, Tokenizers, tag_of
from dragoman.decoding.engine import Engine
from dragoman.errors import DragomanError
from dragoman.model import Model
from dragoman.model_folder import read_model, verify_files
from dragoman.model_folder.manifest import OF_TRAINING, read_manifest
from dragoman.storage.writing import CARD, new_folder
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords, has_copy, known_words, often_copied
from dragoman.text.verbatim import WITH_NUMBERS, remove
from dragoman.translation.engines import torch_engine
from dragoman.translation.segments import Segment, SegmentResult, join_segments
from dragoman.translation.translator import Translator

SENTENCES, LEAST_WORDS = 10, 4  # in which the copying of a name is tried, and the words that these have at least

ALIGNED = 10_000  # pairs that the heads are measured on
SAMPLE = 2_000  # texts of a side that are read
USUAL = 99  # percent
WORDS_JUDGED = 200  # translations whose words are judged
JUDGED_CHARACTERS = 50_000  # of the sources of all pairs, for time
JUDGED, FEWEST_JUDGED, DISTORTED = 600, 50, 50  # pairs that a confidence is fitted to; of these, with each distortion
THRESHOLD = 50.0  # chrF that a translation is good enough with
LONG_WORD = re.compile(r"[^\W\d_]{4,}")


class Calibration(NamedTuple):
    """What was measured: None for the alignment of a model without attention over its source."""

    words: KnownWords
    alignment: AlignmentHead | None


def calibrate(
    folder: Path, texts: Sequence[tuple[str, str]], ids: Sequence[tuple[Ids, Ids]], out: Path
) -> Calibration | None:
    """Write a copy of a model folder as `out`, with the records that are measured on sentence pairs; return these.

    ids: the same pairs as `texts`, with the tags that the model reads; without any, the records stay as they are. Raise
    DragomanError where the folder is damaged or `out` exists.
    """
    verify_files(folder)
    with new_folder(out) as draft:
        for name in (*read_manifest(folder), CARD):
            if name not in (*OF_TRAINING, Confidence.RECORD) and (folder / name).is_file():
                shutil.copyfile(folder / name, draft / name)
        if not texts:
            return None
        model, tokenizers = read_model(folder)
        sources, targets = ([side[number] for side in ids[:ALIGNED]] for number in (0, 1))
        copied = measure_copies(torch_engine([model], tokenizers.target), tokenizers, sources, often_copied(texts))
        read = [source for source, _ in texts]
        words = KnownWords(known_words(read).words, copied)
        subwords = most_subwords(read[:: max(1, len(read) // SAMPLE)], tokenizers.source)
        alignment = measure_alignment(model, sources, targets)
        (draft / KnownWords.RECORD).write_text(words.as_text(), encoding="utf-8")
        if extent := SourceExtent.load(folder):
            (draft / extent.RECORD).write_text(replace(extent, subwords=subwords).as_json(), encoding="utf-8")
        if alignment:
            alignment.save(draft)
        return Calibration(words, alignment)


def measure_confidence(
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    tags: Sequence[tuple[str, str]],
    words: str = "",
    threshold: float = THRESHOLD,
) -> Confidence | None:
    """Return how sure a model may be of its translations, from sentence pairs that took no part in training.

    The sources of some are also distorted, so that there is something to be unsure of. tags: of both sides of each
    pair; words: those of the training targets, see `Confidence`. None where too few pairs can be judged.
    """
    characters = sum(len(source) for source, _ in pairs) or 1
    most = min(len(pairs), JUDGED, int(len(pairs) * JUDGED_CHARACTERS / characters))
    numbers = sorted({*np.linspace(0, len(pairs) - 1, most).astype(int).tolist()})
    few = numbers[:: -(-len(numbers) // DISTORTED)] if numbers else ()
    learning = translator.replace(confidence=unfitted(words))
    # Once: what is lost stays lost in a second search, which takes as long as ten others.
    as_written = learning.replace(safeguards=replace(translator.safeguards, sentence_case=False, faults=False))
    plain = _judge_pairs(learning, [(number, *pairs[number]) for number in numbers], tags)
    if len(plain) < FEWEST_JUDGED:
        return None
    distorted: list[Judged] = []
    for distort in DISTORTIONS:
        cases = [(number, distort(*pairs[number]), pairs[number][1]) for number in few]
        distorted += _judge_pairs(as_written, cases, tags)
    features, chrf, pair = zip(*(each[:3] for each in plain + distorted), strict=True)
    pair = (*pair[: len(plain)], *(-1 - number for number in pair[len(plain) :]))
    confidence = fit_confidence(features, chrf, pair, threshold, words)
    return replace(confidence, word=_judge_words(learning, confidence, plain, pairs, tags))


class Judged(NamedTuple):
    """A translation whose chrF is known."""

    features: Features
    chrf: float
    pair: int
    result: SegmentResult


def _judge_pairs(
    translator: Translator, cases: Sequence[tuple[int, str, str]], tags: Sequence[tuple[str, str]]
) -> list[Judged]:
    """Return the translations of sources, but for those of several segments, and those that are copied.

    cases: the number of a pair, a source and the reference.
    """
    judged: list[Judged] = []
    numbers, sources, references = zip(*cases, strict=True) if cases else ((), (), ())
    source_tags, target_tags = zip(*(tags[number] for number in numbers), strict=True) if cases else ((), ())
    results = translator.segment_results(sources, source_tags, [""] * len(sources), target_tags, translator.search)
    for number, reference, of_text in zip(numbers, references, results, strict=True):
        if len(of_text) == 1 and (features := of_text[0].candidates[0].features):
            chrf = CHRF().sentence_score(of_text[0].candidates[0].text, [reference]).score
            judged.append(Judged(features, chrf, number, of_text[0]))
    return judged


def _judge_words(
    translator: Translator,
    confidence: Confidence,
    judged: Sequence[Judged],
    pairs: Sequence[tuple[str, str]],
    tags: Sequence[tuple[str, str]],
) -> tuple[float, float, float]:
    """Return what tells good words from bad ones: a good one is where the reference has it, too. See `fit_words`."""
    chosen = judged[:: -(-len(judged) // WORDS_JUDGED)]
    translations = [join_segments([each.result]) for each in chosen]
    scores = translator.annotator.word_scores(
        [each.segments for each in translations],
        [tags[each.pair][0] for each in chosen],
        [each.tokens for each in translations],
        [tags[each.pair][1] for each in chosen],
    )
    log_p: list[float] = []
    sure: list[float] = []
    good: list[bool] = []
    for each, words in zip(chosen, scores, strict=True):
        labels = [word for word, _ in words if word]
        matcher = SequenceMatcher(None, labels, pairs[each.pair][1].split(), autojunk=False)
        matched = {place for block in matcher.get_matching_blocks() for place in range(block.a, block.a + block.size)}
        log_p += [value for word, value in words if word]
        sure += [confidence.judge(confidence.expect(each.features))] * len(labels)
        good += [place in matched for place in range(len(labels))]
    return fit_words(log_p, sure, good)


def other_language(source: str, target: str) -> str:
    """Return the target of a pair as its source."""
    return target


def unknown_words(source: str, target: str) -> str:
    """Return a source whose longer words have their letters in another order."""
    return LONG_WORD.sub(lambda match: match[0][:1] + match[0][:0:-1], source)


def some_unknown_words(source: str, target: str) -> str:
    """Return a source of whose longer words every second one has its letters in another order."""
    turns = count()
    return LONG_WORD.sub(lambda match: unknown_words(match[0], "") if next(turns) % 2 else match[0], source)


def capitals(source: str, target: str) -> str:
    """Return a source in capitals, which a model is not shown by default."""
    return source.upper()


DISTORTIONS: Sequence[Callable[[str, str], str]] = (other_language, unknown_words, some_unknown_words, capitals)


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
