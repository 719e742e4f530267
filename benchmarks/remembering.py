"""Measure what a memory of approved pairs gains in a new domain, what it leaves alone, and what it costs."""

import random
import tempfile
import time
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman import Translator
from dragoman.config import SearchConfig
from dragoman.data.corpus import read_corpus
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.memory import ApprovedPair, create_memory
from dragoman.model_folder import fetch_model

DOCUMENT, LAST = 300, 100  # sentences of a document, and of these, those that count
BATCH = 32

Pairs = Sequence[tuple[str, str]]


def benchmark(
    model: str,
    pairs: str,
    test: str,
    other: str,
    sizes: Sequence[int],
    sentences: int,
    documents: int,
    threads: int,
    rounds: int,
) -> str:
    """Return tables in Markdown: quality with memories of several sizes, documents corrected as they go, and time."""
    folder = fetch_model(Path(model))
    new = read_corpus([pairs]).pairs
    tests = [read_corpus([name]).pairs[:sentences] for name in (test, other)]
    plain = Translator.load(folder, threads=threads)
    with tempfile.TemporaryDirectory() as place:
        rows = [["none", "", "", *quality(plain, tests), "", ""]]
        for size in (*(size for size in sizes if size < len(new)), len(new)):
            chosen = random.Random(1).sample(new, size)
            out, began = Path(place, str(size)), time.perf_counter()
            create_memory(out, folder)
            translator = Translator.load(folder, threads=threads, memory=out)
            memory = translator.memory
            assert memory
            memory.add(ApprovedPair(*pair) for pair in chosen)
            memory.tidy()
            seconds = time.perf_counter() - began
            bytes_used = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
            made = [f"{seconds:.0f} s, {bytes_used / 1e6:.1f} MB", f"{memory.state_count:,}"]
            rows.append(
                [f"{size:,}", *made, *quality(translator, tests), *slowdown(plain, translator, tests[0], rounds)]
            )
        worked = [corrected(folder, new, number, threads) for number in range(documents)]
    columns = [
        "pairs",
        "made in",
        "states",
        "BLEU, new",
        "chrF, new",
        "BLEU, other",
        "chrF, other",
        "time alone",
        "in batches",
    ]
    corrected_columns = ["document", "chrF, no memory", "with it", "letters to change, no memory", "with it", "exact"]
    return "\n".join(
        [
            markdown_table(columns, rows),
            "",
            f"Of {DOCUMENT} sentences, each corrected after it was translated, the last {LAST}:",
            "",
            markdown_table(corrected_columns, worked),
            "",
            f"Beam {plain.search.beam}, {threads} thread(s). {describe_machine()}.",
        ]
    )


def quality(translator: Translator, tests: Sequence[Pairs]) -> list[str]:
    """Return BLEU and chrF of each test."""
    columns = []
    for pairs in tests:
        outputs = [each.text for each in translator.translate([source for source, _ in pairs])]
        references = [[reference for _, reference in pairs]]
        columns += [f"{metric.corpus_score(outputs, references).score:.1f}" for metric in (BLEU(), CHRF())]
    return columns


def slowdown(plain: Translator, translator: Translator, pairs: Pairs, rounds: int) -> list[str]:
    """Return how many times as long a memory takes, greedy, for single sentences and in batches of BATCH."""
    sources = [source for source, _ in pairs][:BATCH]
    greedy = SearchConfig(beam=1)
    ids = plain.tokenizers.source.encode_sources(sources)
    columns = []
    for size in (1, BATCH):
        blocks = [ids[start : start + size] for start in range(0, len(ids), size)]

        def search(translator: Translator, blocks: Sequence[list[list[int]]] = blocks) -> int:
            return sum(len(each[0].tokens) for block in blocks for each in translator.engine.search(block, greedy))

        contenders = [Contender("without", lambda: search(plain)), Contender("with", lambda: search(translator))]
        time_in_turn(contenders, rounds)
        columns.append(f"{contenders[0].median / contenders[1].median:.2f}")
    return columns


def corrected(folder: Path, new: Pairs, number: int, threads: int) -> list[str]:
    """Return a row for a document whose translations are corrected one by one: the last ones, without and with it."""
    start = number * len(new) // 3
    document = new[start : start + DOCUMENT]
    plain = Translator.load(folder, threads=threads)
    static = [each.text for each in plain.translate([source for source, _ in document[-LAST:]])]
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "memory")
        create_memory(out, folder)
        translator = Translator.load(folder, threads=threads, memory=out)
        assert translator.memory
        outputs = []
        for source, target in document:
            outputs.append(translator.translate(source))
            translator.memory.add([ApprovedPair(source, target)])
    references = [target for _, target in document[-LAST:]]
    learnt = [each.text for each in outputs[-LAST:]]
    exact = sum(bool(each.memory and each.memory.similarity == 1) for each in outputs[-LAST:])
    scores = [f"{CHRF().corpus_score(texts, [references]).score:.1f}" for texts in (static, learnt)]
    changes = [
        f"{100 * sum(map(unlike, texts, references)) / sum(map(len, references)):.0f} %" for texts in (static, learnt)
    ]
    return [f"{number + 1}", *scores, *changes, str(exact)]


def unlike(text: str, reference: str) -> int:
    """Return how many letters of a reference a text lacks, in order."""
    matcher = SequenceMatcher(None, text, reference, autojunk=False)
    return len(reference) - sum(block.size for block in matcher.get_matching_blocks())
