"""Sentence pairs: TSV, two files, JSON lines, Parquet, TMX, PO; plain or compressed; and what is wrong with them."""

from dragoman.corpus.lines import Row
from dragoman.corpus.origin import Origin, check_present, corpora
from dragoman.corpus.reading import SHOWN, Corpus, LeftOut, Pair, filled, read_corpus, some_lines, stream

__all__ = [
    "SHOWN", "Corpus", "LeftOut", "Origin", "Pair", "Row", "check_present", "corpora", "filled", "read_corpus",
    "some_lines", "stream",
]  # fmt: skip
