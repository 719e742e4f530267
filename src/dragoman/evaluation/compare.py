"""Compare models, as a teacher and its student: how good, how fast, how large. One machine, one number of threads."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.corpus import read_corpus
from dragoman.decoding.engine import Engine
from dragoman.errors import DragomanError
from dragoman.evaluation.metrics import Scores, evaluate
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.model import parameter_count
from dragoman.model_folder import fetch_model
from dragoman.model_folder.manifest import FILES
from dragoman.translation.translator import Translator

TIMED = 200  # sentences, evenly drawn from the test set; all of it is scored
ROUNDS = 3
SMALLER_BEAMS = (2, 1)
NATIVE = "native"
BASE = "CTranslate2 float32"  # speed 1.0 is that of the teacher with this engine, its best without a loss


@dataclass(frozen=True)
class Measurement:
    """Report what was measured of one model with one engine and one beam."""

    model: str
    engine: str
    beam: int
    scores: Scores
    tokens_per_second: float  # target tokens, EOS included
    spread: float  # half the distance from the slowest to the fastest round, as a share
    parameters: int
    bytes: int  # on disk: what translating needs


@dataclass(frozen=True)
class Comparison:
    """The measurements of all models, engines and beams on one test set."""

    test: tuple[str, ...]
    sentences: int
    search: SearchConfig
    machine: str
    rows: tuple[Measurement, ...]  # the teacher first
    notes: tuple[str, ...]  # what was left out

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def beam_suffix(self, beam: int) -> str:
        """Return ', beam 2' or ', greedy' for a beam other than that of the comparison; '' for that one."""
        if beam == self.search.beam:
            return ""
        return f", beam {beam}" if beam > 1 else ", greedy"

    def __str__(self) -> str:
        first = self.rows[0]
        base = next((row for row in self.rows if (row.model, row.engine) == (first.model, BASE)), first)
        table = [
            [
                f"{row.model}, {row.engine}{self.beam_suffix(row.beam)}",
                f"{row.scores.bleu.value:.1f}",
                f"{row.scores.chrf.value:.1f}",
                f"{row.tokens_per_second:,.0f} ± {100 * row.spread:.0f} %",
                f"{row.tokens_per_second / base.tokens_per_second:.1f}",
                f"{row.parameters:,}",
                f"{row.bytes / 1e6:,.1f} MB",
            ]
            for row in self.rows
        ]
        columns = ["", "BLEU", "chrF2", "target tokens/s", "speed", "parameters", "on disk"]
        about = (
            f"{' '.join(self.test)}, {self.sentences:,} sentences, beam {self.search.beam}; speed 1.0: {base.model}, "
            f"{base.engine}; {first.scores.bleu.signature} and {first.scores.chrf.signature}."
        )
        return "\n".join([about, f"{self.machine}.", "", markdown_table(columns, table), *self.notes])


def compare_models(models: dict[str, Path], test: Sequence[str], search: SearchConfig) -> Comparison:
    """Translate, score and time a test set with each model; with CTranslate2, too, where it is installed.

    Beam 2 and greedy search are measured as well: a model that learned from a teacher's translations hardly needs more
    (Kim and Rush 2016). Raise DragomanError where a model or a test set cannot be used.
    """
    corpus = read_corpus(test)
    sources, references = zip(*corpus.pairs, strict=True)
    notes = corpus.notes()
    alike = SearchConfig(
        length_penalty=search.length_penalty,
        extra_length=search.extra_length,
        min_length=search.min_length,
        no_repeat_ngram=search.no_repeat_ngram,
        split=search.split,
    )
    fewer = [replace(alike, beam=beam) for beam in SMALLER_BEAMS if beam < search.beam]
    variants: list[tuple[str, str, Translator, int]] = []
    for name, folder in models.items():
        folder = fetch_model(folder)
        translator = Translator.load(folder, search)
        on_disk = sum((folder / file).stat().st_size for file in (*FILES, *translator.tokenizers.as_files()))
        engines = [(NATIVE, translator.engine, on_disk)]
        if find_spec("ctranslate2"):
            try:
                engines += ctranslate2_engines(folder, translator, sources)
            except DragomanError as error:
                notes.append(f"{name}: {error}")
        for variant in (search, *fewer):
            for engine, opened, on_disk in engines:
                variants.append((name, engine, translator.replace(search=variant, engine=opened), on_disk))
    contenders, scores = [], []
    for name, engine, translator, _ in variants:
        translations = [
            translation.text
            for translation in translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
        ]
        scores.append(evaluate(translations, references))
        ids = translator.source_ids(sources, corpus.tags)
        sample = ids[:: -(-len(ids) // TIMED)]
        contenders.append(Contender(f"{name}, {engine}", partial(count_tokens, translator, sample)))
    time_in_turn(contenders, ROUNDS)
    rows = tuple(
        Measurement(
            name, engine, same.search.beam, score, timed.median, timed.spread, parameter_count(same.model), on_disk
        )
        for (name, engine, same, on_disk), score, timed in zip(variants, scores, contenders, strict=True)
    )
    return Comparison(tuple(test), len(sources), search, describe_machine(), rows, tuple(notes))


def count_tokens(translator: Translator, ids: Sequence[Ids]) -> int:
    """Translate sources, given as ids, without safeguards; return the number of target tokens, EOS included."""
    return sum(len(hypothesis.tokens) + 1 for hypothesis in translator.search_ids(ids))


def ctranslate2_engines(folder: Path, translator: Translator, sources: Sequence[str]) -> list[tuple[str, Engine, int]]:
    """Return name, engine and bytes on disk of the model in CTranslate2, in float32 and in int8.

    folder: the model's; sources: the first one is searched for, so that settings which the engine refuses are reported
    before anything is timed. The first time, the model is converted. Raise UsageError for such settings, and what
    `open_ctranslate2` raises.
    """
    from dragoman.interop.ctranslate2.cache import open_ctranslate2

    rows: list[tuple[str, Engine, int]] = []
    for compute_type in ("float32", "int8"):
        engine = open_ctranslate2(
            folder, compute_type, torch.get_num_threads(), suppressed=translator.tokenizers.target.suppressed
        )
        engine.search(
            [translator.tokenizers.source.encode(sources[0])[: translator.max_source_tokens]], translator.search
        )
        on_disk = sum(file.stat().st_size for file in engine.folder.iterdir())
        rows.append((f"CTranslate2 {compute_type}", engine, on_disk))
    return rows
