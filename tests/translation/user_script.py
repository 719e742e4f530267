"""A program of a user, with types: `mypy --strict` reads it, and `test_python.py` runs it."""

import sys
from pathlib import Path

import dragoman
from dragoman import (
    DragomanError,
    Glossary,
    Inspection,
    Safeguards,
    SearchConfig,
    TransformerConfig,
    Translation,
    Translator,
    UsageError,
    evaluate,
    inspect,
)


def open_translator(folder: Path, terms: Path) -> Translator:
    safeguards = Safeguards(numbers=True, glossary=Glossary.read(terms), forbidden=("red",))
    return Translator.load(folder, SearchConfig(beam=5), safeguards, engine="native", device="cpu", threads=1)


def describe(translation: Translation) -> str:
    flags: tuple[str, ...] = translation.flags
    segments: tuple[tuple[str, str], ...] = translation.segments
    words: list[int] = [target for _, target in translation.alignment]
    others: list[float] = [other.score for other in translation.alternatives]
    return f"{translation.text} {translation.score:.2f} {len(segments)} {flags} {words} {others} {translation.finished}"


def main(folder: Path, terms: Path, sources: list[str], references: list[str]) -> list[str]:
    translator = open_translator(folder, terms)
    one: Translation = translator.translate(sources[0], n_best=2, alignments=True)
    several: list[Translation] = translator.translate(sources, tags="", prefixes=[""] * len(sources), beam=2)
    plain = translator.replace(search=SearchConfig(beam=1, split="none"), safeguards=Safeguards(faults=False))
    streamed: list[str] = [translation.text for translation in plain.stream(iter(sources), chunk=2)]
    scores = evaluate([translation.text for translation in several], references)
    inspection: Inspection = inspect(plain, sources[0])
    layers, heads, *_ = inspection.cross.shape
    ids: list[int] = translator.tokenizers.source.encode(sources[0])
    heads_wanted: int = TransformerConfig(d_model=64).attention.heads
    report = [describe(one), *map(describe, several), *streamed, f"{scores.bleu} {len(ids)} {layers} {heads}"]
    try:
        translator.translate(sources, n_best=50)
    except UsageError as error:
        report.append(str(error))
    return [*report, f"{heads_wanted} {dragoman.__version__}"]


if __name__ == "__main__":
    try:
        print("\n".join(main(Path(sys.argv[1]), Path(sys.argv[2]), ["A sentence."], ["Satz."])))
    except DragomanError as error:
        sys.exit(str(error))
