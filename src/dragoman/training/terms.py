"""Find terms in the training pairs, and write them into sources, so that a model learns to use the terms it is given.

After Dinu et al. 2019, "Training Neural Machine Translation to Apply Terminology Constraints": the target term stands
behind the source term, between two marks of the vocabulary.
"""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from dragoman.alignment.ibm1 import NULL, mutual_links
from dragoman.data.dataset import SOURCE, TARGET, Pairs, Sentence
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.files import fingerprint, replace_file
from dragoman.text.glossary import ATOM, HANGUL, MAX_TARGETS, MAX_TERM_LENGTH, Glossary, fold, normalise_term
from dragoman.translation.terms import insert_terms

FILE = "terms.tsv"  # in the folder of the data
SAMPLE = 200_000  # pairs that terms are looked for in
MAX_CELLS = 8_000_000  # pairs of a source word and a target word: bounds memory
MAX_SHARE = 0.1  # of the pairs; words that are in more of them are not terms but function words
LEAST = 2  # how often a term must be found
MAX_WORDS = 3  # of a term
MAX_TERMS = 3  # written into one source


class Word(NamedTuple):
    """A word of a text, text[start:end]; its case is folded."""

    start: int
    end: int
    folded: str


@dataclass(frozen=True)
class SourceTerms:
    """Write terms into the sources of training pairs: into a `share` of them, drawn anew each time."""

    glossary: Glossary
    tokenizers: Tokenizers
    share: float

    @classmethod
    def load(cls, folder: Path, tokenizers: Tokenizers, share: float) -> "SourceTerms | None":
        """Return what writes the terms in a folder, which `mine_terms` left there; None for a share of 0."""
        return cls(Glossary.read(folder / FILE), tokenizers, share) if share else None

    def annotate(self, seeds: tuple[int, ...], index: int, source: Sentence, target: Sentence) -> Sentence:
        """Return the source of the pair at `index` with one to MAX_TERMS terms, or as it is.

        A term is written into it if the target has its translation. seeds and index decide what is drawn.
        """
        random = Random(f"terms {seeds} {index}")
        if random.random() >= self.share:
            return source
        ids = list(map(int, source))
        known = phrases(self.tokenizers.target.decode(list(map(int, target))))
        terms = []
        for match in self.glossary.find(self.tokenizers.source.decode(ids)):
            there = [term for term in match.targets if fold(term) in known]
            terms += [(match.end, term) for term in there[:1]]
        chosen = random.sample(terms, min(random.randint(1, MAX_TERMS), len(terms)))
        return insert_terms(ids, chosen, self.tokenizers.source)


def mine_terms(pairs: Pairs, tokenizers: Tokenizers, folder: Path) -> int:
    """Write the terms of the training pairs into a folder, as a glossary; return how many there are.

    They stay as they are where they were mined from the same pairs. Raise DragomanError where there are none.
    """
    file, record = folder / FILE, (folder / FILE).with_suffix(".json")
    with contextlib.suppress(OSError, ValueError):  # missing or damaged: they are mined anew
        if json.loads(record.read_text(encoding="utf-8")) == {"pairs": pairs.fingerprint, **fingerprint(file)}:
            return len(Glossary.read(file).entries)
    lines = [f"{source}\t{'|'.join(targets)}\tany\n" for source, targets in find_terms(pairs, tokenizers)]
    if not lines:
        raise DragomanError(
            f"training.terms: the training pairs have no terms, which are words that occur in {LEAST} pairs or more, "
            f"but not in more than {MAX_SHARE:.0%} of them; leave it out"
        )
    replace_file(file, "".join(lines))
    replace_file(record, json.dumps({"pairs": pairs.fingerprint, **fingerprint(file)}) + "\n")
    return len(lines)


def find_terms(pairs: Pairs, tokenizers: Tokenizers) -> Iterator[tuple[str, list[str]]]:
    """Yield the terms of training pairs, in folded case, and the translations of each, the most frequent first.

    They are words, and runs of up to MAX_WORDS words, that a word model links with each other in LEAST pairs.
    """
    order = np.sort(np.random.default_rng(0).permutation(len(pairs))[:SAMPLE])
    texts = [[tokenizers[side].decode(ids.tolist()) for ids in pairs.rows(order, side)] for side in (SOURCE, TARGET)]
    words = [content_words([words_of(text) for text in of_side]) for of_side in texts]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    for source, target in linked_phrases(texts, words):
        counts[fold(source)][fold(target)] += 1
        spellings[fold(target)][normalise_term(target)] += 1
    for source in sorted(counts):
        often = [target for target, count in counts[source].most_common(MAX_TARGETS) if count >= LEAST]
        if often and len(source) <= MAX_TERM_LENGTH:
            yield source, [max(spellings[target], key=spellings[target].__getitem__) for target in often]


def words_of(text: str) -> list[Word]:
    """Return the words of a text that have letters; in scripts without spaces each character is one."""
    return [
        Word(match.start(), match.end(), fold(match[0]))
        for match in ATOM.finditer(text)
        if any(map(str.isalpha, match[0]))
    ]


def content_words(texts: Sequence[list[Word]]) -> list[list[Word]]:
    """Return the words of each text without those that are in too many or too few texts to be terms."""
    counts = Counter(word for words in texts for word in {word.folded for word in words})
    rare_enough = {word for word, count in counts.items() if LEAST <= count <= MAX_SHARE * len(texts)}
    return [[word for word in words if word.folded in rare_enough] for words in texts]


def linked_phrases(texts: Sequence[Sequence[str]], words: Sequence[Sequence[list[Word]]]) -> Iterator[tuple[str, str]]:
    """Yield each phrase of a source and the phrase of its target whose words are linked with each other and no others.

    texts, words: of all sources and of all targets. Pairs are read until MAX_CELLS are, in random order.
    """
    numbers: dict[str, int] = {}
    ids = [[[numbers.setdefault(word.folded, len(numbers)) for word in own] for own in side] for side in words]
    order = np.random.default_rng(0).permutation(len(ids[SOURCE])).tolist()
    cells = np.cumsum([(len(ids[SOURCE][row]) + 1) * len(ids[TARGET][row]) for row in order])
    rows = sorted(order[: int(np.searchsorted(cells, MAX_CELLS, side="right"))])
    rows = [row for row in rows if ids[SOURCE][row] and ids[TARGET][row]]
    links = mutual_links(*([side[row] for row in rows] for side in ids))
    for row, origins in zip(rows, links, strict=True):
        once = {id: index for index, id in enumerate(ids[SOURCE][row]) if ids[SOURCE][row].count(id) == 1}
        linked = {once[id]: index for index, id in enumerate(origins.tolist()) if id != NULL and id in once}
        source, target = (side[row] for side in texts)
        target_runs = set(runs(target, words[TARGET][row]))
        for run in runs(source, words[SOURCE][row]):
            there = sorted(linked[index] for index in run if index in linked)
            if len(there) == len(run) and range(there[0], there[-1] + 1) in target_runs:
                yield extract(source, words[SOURCE][row], run), extract(target, words[TARGET][row], there)


def runs(text: str, words: Sequence[Word]) -> Iterator[range]:
    """Yield the indices of each run of 1 to MAX_WORDS words with only white space between them.

    In Hangul, none that begins inside a word.
    """
    for start, first in enumerate(words):
        if HANGUL.match(text[first.start]) and HANGUL.match(text[max(first.start - 1, 0)]) and first.start:
            continue
        for end, word in enumerate(islice(words, start, start + MAX_WORDS), start):
            if end > start and text[words[end - 1].end : word.start].strip():
                break
            yield range(start, end + 1)


def extract(text: str, words: Sequence[Word], run: Sequence[int]) -> str:
    """Return the text from the first to the last word of a run."""
    return text[words[run[0]].start : words[run[-1]].end]


def phrases(text: str) -> set[str]:
    """Return every run of words of a text, in folded case."""
    words = words_of(text)
    return {fold(normalise_term(extract(text, words, run))) for run in runs(text, words)}
