"""Measure how often the language of the first words of a sentence is detected, for docs/serving.md.

    python -m benchmarks detection-accuracy en=en-de.test.tsv:0 de=en-de.test.tsv:1 --also fr it pt

Each argument is a language and a column of a TSV file. `--also`: languages that are served, too. With lingua installed
(pip install lingua-language-detector), it is measured as well.
"""

import argparse
import importlib.util
import random
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from dragoman.server.detection import Detector

SENTENCES = 400  # of each language
WORDS = (1, 2, 5, 10)


def read_sentences(file: str) -> list[str]:
    """Return the texts in a column, such as 'test.tsv:1', of a TSV file."""
    name, _, column = file.rpartition(":")
    lines = Path(name).read_text(encoding="utf-8").split("\n")
    return [line.split("\t")[int(column)] for line in lines if any(map(str.isalpha, line))]


def lingua_detector(languages: Sequence[str]) -> Callable[[str], str]:
    """Return a function that detects with lingua."""
    from lingua import IsoCode639_1, LanguageDetectorBuilder

    codes = [getattr(IsoCode639_1, language.upper()) for language in languages]
    detector = LanguageDetectorBuilder.from_iso_codes_639_1(*codes).build()

    def detect(text: str) -> str:
        language = detector.detect_language_of(text)
        return language.iso_code_639_1.name.lower() if language else ""

    return detect


def own_detector(languages: Sequence[str]) -> Callable[[str], str]:
    """Return a function that detects as the server does."""
    detector = Detector(languages)
    return lambda text: detector.rank(text)[0].language


def memory() -> float:
    """Return the most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print a line for each detector and number of words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="LANGUAGE=FILE:COLUMN")
    parser.add_argument("--also", nargs="*", default=[], metavar="LANGUAGE")
    options = parser.parse_args()
    sentences = {named.partition("=")[0]: read_sentences(named.partition("=")[2]) for named in options.files}
    languages = sorted({*sentences, *options.also})
    detectors = {"py3langid": own_detector}
    if importlib.util.find_spec("lingua"):
        detectors["lingua"] = lingua_detector
    for name, make in detectors.items():
        before = memory()
        detect = make(languages)
        for words in WORDS:
            shares, began, count = [], time.perf_counter(), 0
            for language, texts in sentences.items():
                starts = [" ".join(text.split()[:words]) for text in texts if len(text.split()) >= words]
                starts = random.Random(1).sample(starts, min(SENTENCES, len(starts)))
                shares.append(sum(detect(start) == language for start in starts) / len(starts))
                count += len(starts)
            spent = 1e6 * (time.perf_counter() - began) / count
            print(f"{name}, {words} words: {100 * sum(shares) / len(shares):.1f} %, {spent:.0f} microseconds a text")
        print(f"{name}: {memory() - before:.0f} MiB")


if __name__ == "__main__":
    main()
