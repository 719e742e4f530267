"""Compare ways to run CTranslate2: what its threads share, and how int8 is computed where sums can overflow.

    python -m benchmarks compare-ctranslate2 MODEL PAIRS [--rounds 2] [--threads 2]

Each row has a process of its own in each round, which translates the sources of PAIRS all at once, with greedy search
and with 4 beams, and then the first ones alone. Prints Markdown, for each search: BLEU, lines that are those of the
first row, sentences per second of all rounds, and milliseconds for a sentence alone, the median of each round.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman.config import SearchConfig
from dragoman.data.corpus import read_corpus
from dragoman.evaluation.metrics import evaluate
from dragoman.evaluation.timing import describe_machine, markdown_table
from dragoman.interop.ctranslate2.conversion import LARGEST, LARGEST_WITHOUT_VNNI, convert, import_ctranslate2
from dragoman.interop.ctranslate2.engine import CTranslate2Engine
from dragoman.model_folder import fetch_model, read_model
from dragoman.runtime.waiting import use_threads

ALONE = 40  # sentences
BEAMS = (1, 4)


@dataclass(frozen=True)
class Way:
    """One way to compute. shared: what the threads share, 'matmuls' or 'sentences'; mkl: instead of oneDNN."""

    compute_type: str = "float32"
    threads: int = 1
    shared: str = "sentences"
    largest: int = LARGEST_WITHOUT_VNNI
    mkl: bool = False

    def __str__(self) -> str:
        int8 = f", weights to {self.largest}, {'MKL' if self.mkl else 'oneDNN'}" * (self.compute_type == "int8")
        threads = f"{self.threads} threads share {self.shared}" if self.threads > 1 else "one thread"
        return f"{self.compute_type}{int8}, {threads}"


def ways(threads: int) -> list[Way]:
    """Return the rows of the table."""
    several = [Way(kind, threads, what) for kind in ("float32", "int8") for what in ("matmuls", "sentences")]
    rounding = [Way("int8", largest=n, mkl=mkl) for n in (LARGEST_WITHOUT_VNNI, LARGEST) for mkl in (False, True)]
    return [Way(), *rounding, *several]


def measure(way: Way, model: str, pairs: str) -> dict[str, Any]:
    """Return what a way does, by beam: the outputs, sentences per second, and milliseconds for a sentence alone."""
    use_threads(way.threads)
    weights, tokenizers = read_model(fetch_model(Path(model)))
    sources = [tokenizers.source.encode(source) for source, _ in read_corpus([pairs]).pairs]
    by_beam = {}
    with tempfile.TemporaryDirectory() as opened:
        pieces = (tokenizers.source.pieces, tokenizers.target.pieces)
        convert(weights, pieces, Path(opened) / "model", way.compute_type, largest=way.largest)
        engine = CTranslate2Engine(Path(opened) / "model", way.compute_type, way.threads)
        if way.shared == "matmuls":
            engine.threads = 1
            engine.translator = import_ctranslate2().Translator(
                str(engine.folder), compute_type=way.compute_type, inter_threads=1, intra_threads=way.threads
            )
        for beam in BEAMS:
            config = SearchConfig(beam=beam)
            engine.search(sources[:ALONE], config)
            began = time.perf_counter()
            hypotheses = engine.search(sources, config)
            rate = len(sources) / (time.perf_counter() - began)
            alone = []
            for ids in sources[:ALONE]:
                began = time.perf_counter()
                engine.search([ids], config)
                alone.append(1000 * (time.perf_counter() - began))
            texts = [tokenizers.target.decode(ranked[0].tokens) for ranked in hypotheses]
            by_beam[str(beam)] = {"texts": texts, "rate": rate, "alone": statistics.median(alone)}
    return by_beam


def main() -> None:
    parser = ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("pairs")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--way", type=json.loads)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measure(Way(**options.way), options.model, options.pairs)))
        return
    measured: dict[Way, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for way in ways(options.threads):
            command = [sys.executable, __file__, options.model, options.pairs, "--way", json.dumps(asdict(way))]
            environment = os.environ | {"CT2_USE_MKL": str(int(way.mkl))}
            ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
            measured.setdefault(way, []).append(json.loads(ran.stdout))
    references = [target for _, target in read_corpus([options.pairs]).pairs]
    first = measured[Way()][0]
    rows = []
    for way, rounds in measured.items():
        row = [str(way)]
        for beam in map(str, BEAMS):
            texts = rounds[0][beam]["texts"]
            same = sum(map(str.__eq__, texts, first[beam]["texts"]))
            row += [f"{evaluate(texts, references).bleu.value:.2f}", f"{same}"]
            row += [
                " and ".join(f"{measured_once[beam][what]:.0f}" for measured_once in rounds)
                for what in ("rate", "alone")
            ]
        rows.append(row)
    columns = [f"{what}, beam {beam}" for beam in BEAMS for what in ("BLEU", "same", "sentences/s", "ms alone")]
    print(f"{options.pairs}, {len(references)} sentences, {describe_machine()}.\n")
    print(markdown_table(["", *columns], rows))


if __name__ == "__main__":
    main()
