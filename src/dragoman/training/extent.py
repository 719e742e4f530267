"""Measure what a training reads, for the records of its model: how much text, which words, scripts and names."""

from collections.abc import Sequence

import numpy as np

from dragoman.config.languages import base_language, parse_pair
from dragoman.data.dataset import SOURCE, TARGET, Pairs
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.text.extent import SourceExtent
from dragoman.text.identification import most_probable
from dragoman.text.known_words import KnownWords, known_words, often_copied
from dragoman.text.scripts import usual_scripts
from dragoman.text.segmentation import split_sentences
from dragoman.text.verbatim import TAGS, find
from dragoman.translation.calibration import SAMPLE, most_subwords

PERCENTILE = 95
WORDS = 200_000  # texts whose words are noted
SAMPLE_OF_NAMES = 20_000  # pairs whose names are compared
LOOKED_AT = 100  # texts by which the language of a side is told


def measure_extent(pairs: Pairs, tokenizer: SideTokenizer) -> SourceExtent:
    """Return the extent of the sources, which `tokenizer` reads; their text is read in a sample, spread evenly."""
    rows, tags = sample_rows(pairs, SOURCE), set(tokenizer.tags.values())
    texts = [tokenizer.decode(ids.tolist()) for ids in rows]
    sentences = [len(split_sentences(text)) for text in texts]
    tokens = pairs.lengths[:, SOURCE] - 1
    without_letters = sum(not any(map(str.isalpha, text)) for text in texts)
    return SourceExtent(
        sentences=max(1, percentile(sentences)),
        tokens=max(1, percentile(tokens)),
        wordless=without_letters > len(texts) / 2,
        scripts=tuple(usual_scripts(texts)),
        markup=sum(bool(find(text, TAGS)) for text in texts) >= len(texts) / 100,
        pairs=len(pairs),
        subwords=most_subwords(texts, tokenizer),
        tagged=all(tags.intersection(ids[:1].tolist()) for ids in rows),
    )


def measure_words(pairs: Pairs, tokenizers: Tokenizers) -> KnownWords:
    """Return the words of up to WORDS sources, spread evenly, and the names that many pairs have on both sides."""
    sources = read_texts(pairs, tokenizers.source, SOURCE)
    step = max(1, len(sources) // SAMPLE_OF_NAMES)
    targets = read_texts(pairs, tokenizers.target, TARGET, step)
    return KnownWords(known_words(sources).words, often_copied(zip(sources[::step], targets, strict=True)))


def read_texts(pairs: Pairs, tokenizer: SideTokenizer, side: int, step: int = 1) -> list[str]:
    """Return every `step`-th of up to WORDS texts of one side of the pairs, spread evenly."""
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(WORDS, len(pairs)), dtype=np.int64))
    return [tokenizer.decode(ids.tolist()) for ids in pairs.rows(chosen[::step], side)]


def language_notes(languages: str | None, pairs: Pairs, tokenizers: Tokenizers) -> list[str]:
    """Return a warning for the user where the languages of a run, such as 'en-de', are those of the other sides.

    py3langid says which language a side has; without it, there is no warning.
    """
    wanted = [base_language(code) for code in parse_pair(languages)] if languages else []
    if len(set(wanted)) < 2:
        return []
    sides, step = ((tokenizers.source, SOURCE), (tokenizers.target, TARGET)), 1 + len(pairs) // LOOKED_AT
    seen = [most_probable(" ".join(read_texts(pairs, *side, step))) for side in sides]
    if seen != wanted[::-1]:
        return []
    return [
        f"--languages says {languages}, but the sources look like {seen[0]} and the targets like {seen[1]}: a model "
        "learns from sources to targets; exchange the columns, or the languages"
    ]


def target_scripts(pairs: Pairs, tokenizer: SideTokenizer, others: Sequence[str]) -> list[str]:
    """Return the scripts of the targets of a training, and of other targets, such as those it validates on.

    Some languages of a model may be among the training targets alone, others too rare for a sample. tokenizer: that of
    the targets.
    """
    texts = [tokenizer.decode(ids.tolist()) for ids in sample_rows(pairs, TARGET)]
    return sorted({*usual_scripts(texts), *usual_scripts(others)})


def sample_rows(pairs: Pairs, side: int) -> list[np.ndarray]:
    """Return the ids of up to SAMPLE texts of one side of the pairs, spread evenly."""
    sample = np.unique(np.linspace(0, len(pairs) - 1, min(SAMPLE, len(pairs)), dtype=np.int64))
    return pairs.rows(sample, side)


def percentile(values: list[int] | np.ndarray) -> int:
    """Return the smallest value that PERCENTILE percent of the values, at least one, do not exceed."""
    return int(np.percentile(values, PERCENTILE, method="inverted_cdf"))
