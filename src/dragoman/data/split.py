"""Split sentence pairs into training, dev and test sets, so that no set nearly repeats what another one has.

Two texts are near duplicates if they have the same letters, or if more than half of the runs of three words in the one
of dev or test are in the other; numbers count as equal. In scripts without spaces between words, each character is a
word.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

import regex

from dragoman.data.corpus import REASONS, LeftOut, Pair, stream_rows
from dragoman.data.normal_form import normal_form
from dragoman.data.spec import CorpusSpec
from dragoman.data.unspaced import UNSPACED
from dragoman.errors import DragomanError, plural

WORD = regex.compile(rf"(?V1)[{UNSPACED}]|[[\p{{L}}\p{{M}}\p{{N}}]--[{UNSPACED}]]+")
DIGITS = regex.compile(r"\p{Nd}+")
RUN = 3  # words
SETS = ("train", "dev", "test")


class Located(NamedTuple):
    """Sentence pairs in their order, each with its document, counted from 0, and its weight; and notes for the user."""

    pairs: list[Pair]
    documents: list[int]
    weights: list[float]
    notes: list[str]


def read_documents(specs: Sequence[CorpusSpec]) -> Located:
    """Read all pairs with text on both sides; the notes count what is left out, as those of training do.

    A document ends at a blank line and at the end of a file. Raise DragomanError where a corpus cannot be read.
    """
    located, document = Located([], [], [], []), 0
    for spec in specs:
        left_out = LeftOut(spec)
        for number, source, target, weight in stream_rows(spec, left_out):
            has_text = bool(source.strip()), bool(target.strip())
            if all(has_text):
                located.pairs.append((source, target))
                located.documents.append(document)
                located.weights.append(weight)
            elif any(has_text):
                left_out.add(REASONS["empty"], number)
            else:
                document += 1
        document += 1
        located.notes.extend(left_out.notes())
    return located


def split_by_pair(pairs: Sequence[Pair], dev: int, test: int) -> list[str]:
    """Return the set of each pair: `test` and `dev` pairs without a near duplicate in the corpus; the rest is "train".

    Which ones is decided by hashes of the pairs, so that their order does not matter. Raise DragomanError where too few
    pairs have no near duplicate.
    """
    order = sorted(range(len(pairs)), key=lambda row: rank([pairs[row]]))
    tried, free = 2 * (dev + test), list[int]()
    while len(free) < dev + test:
        candidates = order[:tried]
        repeated = repeated_pairs(pairs, candidates)
        free = [row for row in candidates if row not in repeated and all(map(words_of, pairs[row]))]
        if tried >= len(pairs):
            break
        tried *= 4
    if len(free) < dev + test:
        way_out = "choose --by document, or split the corpus yourself"
        if len(free) > 1:
            fitting = test * len(free) // (dev + test)
            way_out = f"choose smaller sets, such as --dev {len(free) - fitting} --test {fitting}"
        raise DragomanError(
            f"only {len(free):,} of {len(pairs):,} pairs have no near duplicate in the corpus, and {dev + test:,} are "
            f"needed: {way_out}"
        )
    sets = ["train"] * len(pairs)
    for place, row in enumerate(free[: dev + test]):
        sets[row] = "test" if place < test else "dev"
    return sets


def split_by_document(pairs: Sequence[Pair], documents: Sequence[int], dev: int, test: int) -> list[str]:
    """Return the set of each pair: whole documents, at most `test` and `dev` pairs of them; the rest is "train".

    '' stands for a pair that is left out: a near duplicate in dev of a pair in test, or in train of either. Hashes
    decide which documents are chosen. Raise DragomanError where none is small enough.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for row, document in enumerate(documents):
        members[document].append(row)
    order = sorted(members, key=lambda document: rank([pairs[row] for row in members[document]]))
    sets, chosen = ["train"] * len(pairs), list[int]()
    for name, wanted in (("test", test), ("dev", dev)):
        left = wanted
        for document in order:
            rows = members[document]
            if len(rows) <= left and sets[rows[0]] == "train":
                left -= len(rows)
                chosen += rows
                for row in rows:
                    sets[row] = name
        if left == wanted > 0:
            raise DragomanError(
                f"no document that remains has at most {plural(wanted, 'pair')}, so {name} would be empty: choose a "
                f"larger --{name}, or --by pair. Blank lines and ends of files separate documents"
            )
    for place, name in enumerate(SETS[:-1]):
        candidates = [row for row in chosen if sets[row] in SETS[place + 1 :]]
        for side in (0, 1):
            index = CandidateIndex([pair[side] for pair in pairs], candidates)
            for row in range(len(pairs)):
                if sets[row] == name and next(index.near(row), None) is not None:
                    sets[row] = ""
    return sets


def rank(pairs: Sequence[Pair]) -> bytes:
    """Return a hash of the pairs, the same on every machine, to sort them in an order that has no meaning."""
    return blake2b("\n".join(map("\t".join, pairs)).encode("utf-8", "surrogatepass"), digest_size=8).digest()


def repeated_pairs(pairs: Sequence[Pair], candidates: Collection[int]) -> set[int]:
    """Return those of the candidates, rows of `pairs`, that another pair nearly repeats on either side."""
    repeated: set[int] = set()
    for side in (0, 1):
        index = CandidateIndex([pair[side] for pair in pairs], [row for row in candidates if row not in repeated])
        for row in range(len(pairs)):
            for candidate in list(index.near(row)):
                repeated.add(candidate)
                index.remove(candidate)  # with it, a corpus of one pattern would take quadratic time
    return repeated


class CandidateIndex:
    """Find the candidates that a text nearly repeats.

    Both have the same letters, or are the same where they have none, or more than half of the candidate's runs of three
    words are in the text too. Then any half of these runs has one that is in the text: the rarest half is looked up.
    """

    def __init__(self, texts: Sequence[str], candidates: Collection[int]):
        """Index the candidates, which are indices of `texts`."""
        self.texts = texts
        self.runs: dict[int, set[int]] = {}
        self.letters: dict[int, str] = {}
        self.same: dict[str, set[int]] = defaultdict(set)
        self.having: dict[int, set[int]] = defaultdict(set)
        for candidate in candidates:
            words = words_of(texts[candidate])
            self.runs[candidate] = runs_of(words)
            self.letters[candidate] = letters_of(words, texts[candidate])
            self.same[self.letters[candidate]].add(candidate)
        frequency = Counter(chain.from_iterable(self.runs.values()))
        for candidate, runs in self.runs.items():
            for run in sorted(runs, key=frequency.__getitem__)[: (len(runs) + 1) // 2]:
                self.having[run].add(candidate)

    def near(self, row: int) -> Iterator[int]:
        """Yield the candidates that the text at `row` nearly repeats, without itself."""
        words = words_of(self.texts[row])
        runs, compared = runs_of(words), {row}
        same = self.same.get(letters_of(words, self.texts[row]), ())
        yield from (candidate for candidate in same if candidate != row)
        compared.update(same)
        for run in runs:
            for candidate in self.having.get(run, ()):
                if candidate not in compared:
                    compared.add(candidate)
                    if 2 * len(runs & self.runs[candidate]) > len(self.runs[candidate]):
                        yield candidate

    def remove(self, candidate: int) -> None:
        """Forget a candidate."""
        self.same[self.letters.pop(candidate)].discard(candidate)
        for run in self.runs.pop(candidate):
            if run in self.having:
                self.having[run].discard(candidate)


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, with 0 for each number; in scripts without spaces, the characters."""
    return WORD.findall(DIGITS.sub("0", normal_form(text, "NFKC").casefold()))


def letters_of(words: list[str], text: str) -> str:
    """Return the letters of a text with these words; where it has none, 0 for each number, or else the text."""
    together = "".join(words)
    return together.replace("0", "") or together or text.strip()


def runs_of(words: list[str]) -> set[int]:
    """Return hashes of the runs of three words, which differ from process to process."""
    return {hash(tuple(words[start : start + RUN])) for start in range(len(words) - RUN + 1)}
