"""Measure `dragoman serve`: a real server, asked by clients in processes of their own."""

import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.serving_load import beside_document, overload, pool_settings, soak, steady_load, stop
from benchmarks.serving_tasks import LENGTH, Setting, texts_of_length
from benchmarks.serving_throughput import http_layer, throughput
from dragoman.data.corpus import read_corpus
from dragoman.evaluation.timing import describe_machine
from dragoman.model_folder import fetch_model, read_parts
from dragoman.runtime.signals import exit_on_signals
from dragoman.text.segmentation import split_sentences

PARTS: dict[str, Callable[[Setting], str]] = {
    "throughput": throughput,
    "http": http_layer,
    "load": steady_load,
    "overload": overload,
    "stop": stop,
    "soak": soak,
    "beside": beside_document,
    "pool": pool_settings,
}


def benchmark(
    model: str,
    test: str,
    parts: Sequence[str],
    threads: int,
    rounds: int,
    seconds: float,
    minutes: float,
    requests: int,
) -> str:
    """Return a report in Markdown, with a section for each part (see PARTS).

    model: model folder or run folder; test: a file of pairs, whose sources are translated; threads: of the native
    engine. rounds, seconds: turns of each contender, and how long one takes; minutes: of steady load; requests: of the
    soak. Raise DragomanError where a server does not start or gives wrong answers.
    """
    folder = fetch_model(Path(model))
    tokenizer = read_parts(folder)[1].source
    split = [text.strip() for source, _ in read_corpus([test]).pairs for text in split_sentences(source)]
    sentences = [text for text in dict.fromkeys(split) if any(map(str.isalpha, text))]
    alike = texts_of_length(LENGTH, sentences, tokenizer)
    with TemporaryDirectory() as temporary, exit_on_signals():
        setting = Setting(folder, alike, sentences, Path(temporary), threads, rounds, seconds, minutes, requests)
        sections = []
        for part in parts:
            print(f"{part} ...", file=sys.stderr, flush=True)
            sections.append(PARTS[part](setting))
    head = (
        f"`dragoman serve` with {model}, beam 4: {len(alike):,} texts of {LENGTH} tokens, and the {len(sentences):,} "
        f"sentences of {Path(test).name}. The clients are in processes of their own on the same machine. "
        f"{datetime.now():%Y-%m-%d}, {describe_machine()}."
    )
    return "\n\n".join([head, *sections])
