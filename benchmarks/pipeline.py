"""Measure what handling text costs beside search: our translator, its engine given ids, and CTranslate2 given subwords.

All get all sentences at once, with the same beam and the same limit on output. CTranslate2 is timed with the size of
BATCHES that is fastest for it; it ranks hypotheses in its own way.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

import torch

from dragoman.config import ComputeType, EngineName, SearchConfig
from dragoman.data.corpus import read_corpus
from dragoman.data.tokenizer import EOS
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.inference.products import supported_types
from dragoman.interop.ctranslate2.conversion import import_ctranslate2
from dragoman.interop.ctranslate2.engine import CTranslate2Engine
from dragoman.translation.safeguards import NO_SAFEGUARDS, Safeguards
from dragoman.translation.segments import one_line
from dragoman.translation.translator import Translator

SEARCHES = {"beam 1": SearchConfig(beam=1), "beam 4": SearchConfig(beam=4)}
# With a patience of 1 the search of our engine is as short as CTranslate2's own.
AS_SHORT = {"beam 4, patience 1": SearchConfig(beam=4, patience=1.0)}
BATCHES = (1024, 2048, 4096, 8192)  # source tokens
OURS, UNGUARDED, IDS, RAW = "dragoman", "without safeguards", "ids to ids", "CTranslate2"


def benchmark(model: str, test: str, engine: EngineName, threads: int, rounds: int) -> str:
    """Return a table in Markdown: sentences per second, a row for each search and compute type.

    model: model folder or run folder; test: a file of pairs; engine: of our translator. CTranslate2 itself takes part
    if it is the engine. Sets PyTorch's threads. Raise DragomanError where the model, the sentences or the engine cannot
    be used.
    """
    torch.set_num_threads(threads)
    corpus = read_corpus([test])
    texts = [source for source, _ in corpus.pairs]
    types, searches = supported_types(), SEARCHES
    if engine == "ctranslate2":
        supported = import_ctranslate2().get_supported_compute_types("cpu")
        types, searches = [name for name in get_args(ComputeType) if name in supported], SEARCHES | AS_SHORT
    rows = []
    for compute_type in types:
        translator = Translator.load(model, device="cpu", engine=engine, compute_type=compute_type, threads=threads)
        for name, search in searches.items():
            measured = measure(translator, search, texts, corpus.tags, rounds)
            rows.append({"": f"{compute_type}, {name}"} | measured)
    return "\n".join(
        [
            f"{len(texts):,} sentences of {Path(test).name}, the {engine} engine in `dragoman translate`; sentences "
            f"per second, median and spread of {rounds} interleaved rounds.",
            describe_machine() + ".",
            "",
            markdown_table([*rows[0]], [[*row.values()] for row in rows]),
            "",
            "- Without safeguards: no placeholders, no detection of faults. Ids to ids: the engine alone.",
            "- Retried: sentences decoded a second time."
            + " Same: translations without safeguards that are the same as CTranslate2's own."
            * (engine == "ctranslate2"),
        ]
    )


def measure(
    translator: Translator, search: SearchConfig, texts: Sequence[str], tags: Sequence[str], rounds: int
) -> dict[str, str]:
    """Measure a translator with one search; return the cells of its row, by column.

    texts, tags: the sources and the tag of each. All are compared with the engine given ids, or, if that is
    CTranslate2's, with CTranslate2 itself, which is then measured too.
    """
    careful, careless = (
        translator.replace(search=search, safeguards=safeguards) for safeguards in (Safeguards(), NO_SAFEGUARDS)
    )
    ids = careful.source_ids(texts, tags)
    ways: dict[str, Callable[[], Sequence]] = {
        OURS: lambda: careful.translate(texts, tags),
        UNGUARDED: lambda: careless.translate(texts, tags),
        IDS: partial(careless.search_ids, ids),
    }
    engine = translator.engine
    if isinstance(engine, CTranslate2Engine):
        subwords = [engine.spell([*of_text, EOS]) for of_text in ids]
        ways[RAW] = find_fastest([partial(search_subwords, engine, subwords, search, size) for size in BATCHES])
    contenders = {name: Contender(name, count_results(way)) for name, way in ways.items()}
    time_in_turn(list(contenders.values()), rounds)
    *others, (base, alone) = contenders.items()
    cells = {name: str(contender) for name, contender in contenders.items()}
    cells |= {f"{name} / {base}": f"{100 * contender.median / alone.median:.0f} %" for name, contender in others}
    cells["retried"] = f"{sum(translation.retried for translation in careful.translate(texts, tags)):,}"
    if isinstance(engine, CTranslate2Engine):
        outputs = [[engine.ids[word] for word in words] for words in ways[RAW]()]
        theirs = [one_line(careless.tokenizers.target.decode(tokens)) for tokens in outputs]
        same = sum(
            translation.text == other
            for translation, other in zip(careless.translate(texts, tags), theirs, strict=True)
        )
        cells["same"] = f"{same:,}"
    return cells


def search_subwords(
    engine: CTranslate2Engine, subwords: list[list[str]], search: SearchConfig, batch: int
) -> list[list[str]]:
    """Return the best output of CTranslate2 itself for each source, as subwords; sources end with EOS.

    batch: source tokens that it decodes at a time.
    """
    longest = max(map(len, subwords)) + search.extra_length
    results = engine.translator.translate_batch(
        subwords,
        beam_size=search.beam,
        max_batch_size=batch,
        batch_type="tokens",
        max_input_length=0,
        max_decoding_length=min(longest, engine.max_positions or longest),
    )
    return [result.hypotheses[0] for result in results]


def count_results(work: Callable[[], Sequence]) -> Callable[[], int]:
    """Return a function that does the work and returns how many results it gave."""
    return lambda: len(work())


def find_fastest(ways: Sequence[Callable[[], list[list[str]]]]) -> Callable[[], list[list[str]]]:
    """Run each way twice, and return the one that was the fastest the second time."""
    tried = [Contender("", count_results(way)) for way in ways]
    time_in_turn(tried, rounds=1)
    return max(zip(tried, ways, strict=True), key=lambda pair: pair[0].median)[1]
