"""Compare dragoman's splitting of text into sentences with other libraries.

    pip install sentencex pysbd syntok sentence-splitter blingfire numpy setuptools
    python -m benchmarks compare-segmenters [FILE COLUMN LANGUAGE]

The texts are those of tests/sentences.py: how many does each library split as marked? Libraries that know the language
get it. With a file of sentence pairs, two lines with a space between them make a text: how often is that end of a
sentence detected, and how many others are there for each line?
"""

import random
import re
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import blingfire
import pysbd
import sentencex
import syntok.segmenter
from sentence_splitter import SentenceSplitter

from dragoman.text.segmentation import split_sentences

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from sentences import MARKED

Splitter = Callable[[str, str], list[str]]  # from a text and its language


def split_with_syntok(text: str, language: str) -> list[str]:
    sentences = (sentence for paragraph in syntok.segmenter.analyze(text) for sentence in paragraph)
    return ["".join(token.spacing + token.value for token in sentence) for sentence in sentences]


def known(language: str, languages: str) -> str:
    """Return the language where a library knows it, else English."""
    return language if language in languages.split() else "en"


SPLITTERS: dict[str, Splitter] = {
    "dragoman": lambda text, _: split_sentences(text),
    "sentencex": lambda text, language: list(sentencex.segment(language, text)),
    "pysbd": lambda text, language: pysbd.Segmenter(known(language, "en de es fr ja zh ar ru"), clean=False).segment(
        text
    ),
    "blingfire": lambda text, _: blingfire.text_to_sentences(text).split("\n"),
    "sentence-splitter": lambda text, language: SentenceSplitter(known(language, "en de es fr ru")).split(text),
    "syntok": split_with_syntok,
    "after each . ! ?": lambda text, _: re.split(r"(?<=[.!?。？！؟]) *", text),
}


def compare_marked() -> None:
    """Print, for each library, how many of the marked texts it splits as marked, and its time for them."""
    everything = " ".join(text.replace("|", "") for _, texts in MARKED.values() for text in texts)
    print(f"{'':18}", *(f"{topic[:8]:>8}" for topic in MARKED), "     all  ms for 1,000 characters")
    for name, split in SPLITTERS.items():
        right = {
            topic: sum(stripped(split(text.replace("|", ""), language)) == stripped(text.split("|")) for text in texts)
            for topic, (language, texts) in MARKED.items()
        }
        began = time.perf_counter()
        split(everything, "en")
        milliseconds = (time.perf_counter() - began) * 1e6 / len(everything)
        cells = [f"{n}/{len(MARKED[topic][1])}" for topic, n in right.items()]
        total = f"{sum(right.values())}/{sum(len(texts) for _, texts in MARKED.values())}"
        print(f"{name:18}", *(f"{cell:>8}" for cell in cells), f"{total:>8} {milliseconds:6.2f}")


def stripped(sentences: list[str]) -> list[str]:
    return [sentence.strip() for sentence in sentences if sentence.strip()]


def compare_joined(path: str, column: int, language: str) -> None:
    """Print, for each library, how many of 200 joints it detects, and its other cuts for each of the 400 lines."""
    text = Path(path).read_text(encoding="utf-8")
    rows = (line.split("\t")[column].strip() for line in text.split("\n") if line)
    lines = [line for line in rows if len(line) > 15 and line[-1] in ".!?…。"]
    random.Random(1).shuffle(lines)
    pairs = list(zip(lines[:400:2], lines[1:400:2], strict=False))
    print(f"\n{Path(path).name}, column {column}: joints detected, other cuts for each line")
    for name, split in SPLITTERS.items():
        detected = other = 0
        for first, second in pairs:
            text, position, starts = f"{first} {second}", 0, set()
            for sentence in stripped(split(text, language)):
                position = text.find(sentence, position)
                starts.add(position)
            detected += len(first) + 1 in starts
            other += len(starts - {0, len(first) + 1})
        print(f"{name:18} {detected / len(pairs):6.1%} {other / len(pairs) / 2:6.2f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    compare_marked()
    if len(sys.argv) == 4:
        compare_joined(sys.argv[1], int(sys.argv[2]), sys.argv[3])
