"""Read corpora for the first time: learn what is usual in them, and find the rows that repeat others."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dragoman.check.characters import Alphabet
from dragoman.check.columns import row_blocks
from dragoman.check.detectors import Hits
from dragoman.check.lexicon import Words
from dragoman.check.pairing import Judgement, PairJudge, all_words
from dragoman.check.profile import Profile
from dragoman.data.formats import read_rows
from dragoman.data.lines import quote_line
from dragoman.data.spec import CorpusSpec
from dragoman.errors import DragomanError

LONGEST = np.iinfo(np.uint16).max
NO_LETTERS = re.compile(r"[\W_]+")


@dataclass
class FirstReading:
    """Keep what the first reading tells the second: what is usual, and 100 bytes of each of its n rows."""

    spec: CorpusSpec
    profile: Profile
    begins: str  # its first source that has letters
    words: tuple[Words, Words]
    pairs: np.ndarray  # (n,) of both sides
    sources: np.ndarray  # (n,)
    has_text: np.ndarray  # (n,)
    lengths: np.ndarray  # (n, 2) in characters, of source and target, at most LONGEST
    keys: np.ndarray  # (n,) of the letters and digits of the source, 0 for none; or all 0
    loose: np.ndarray  # (n,) of those of both sides
    numbers: np.ndarray  # (n,) of the rows in their file


def read_first(spec: CorpusSpec, alphabet: Alphabet, compare: bool) -> FirstReading:
    """Read a corpus for the first time.

    The keys, by which sets are compared, are computed only with `compare`, else 0. Of a corpus that cannot be read
    to its end, the rows before the error are kept; nothing is raised, because the second reading reports it.
    """
    profile, begins = Profile(alphabet), ""
    none = np.zeros(0, np.int64)
    blocks: list[tuple[np.ndarray, ...]] = [
        (none, none, none.astype(bool), np.zeros((0, 2), np.uint16), none, none, none)
    ]
    words: list[tuple[Words, Words]] = []
    try:
        for block in row_blocks(read_rows(spec, lambda problem: None)):
            profile.learn(block)
            sources = block.columns[0]
            begins = begins or next((text for text in sources.texts if any(map(str.isalpha, text))), "")
            keys = np.array([letters_hash(text) for text in sources.texts] if compare else [0] * len(block), np.int64)
            both = [column.letter_sums(alphabet.small, alphabet.word_letters) for column in block.columns]
            loose = both[0] * np.int64(0x5851F42D4C957F2D) ^ both[1]
            words.append(tuple(Words.from_column(column, alphabet) for column in block.columns))  # type: ignore[arg-type]
            lengths = np.stack([np.minimum(column.lengths, LONGEST) for column in block.columns], axis=1)
            blocks.append(
                (
                    block.pair_hashes,
                    sources.hashes,
                    block.has_text,
                    lengths.astype(np.uint16),
                    keys,
                    loose,
                    np.array(block.numbers),
                )
            )
    except DragomanError:
        pass  # the second reading meets it again and reports it
    arrays = (np.concatenate(column) for column in zip(*blocks, strict=True))
    return FirstReading(spec, profile, begins, all_words(words), *arrays)


def reading_of_kept(readings: Sequence[FirstReading], rows: np.ndarray, lost: Profile) -> FirstReading:
    """Return what `read_first` would of a file with some rows (n,) of all those that were read; -1 is a blank line.

    lost: what is counted of the other rows, and of those without text.
    """
    has_text = np.concatenate([reading.has_text for reading in readings])[rows] & (rows >= 0)
    profile = Profile(lost.alphabet)
    for reading in readings:
        profile.add(reading.profile)
    profile.add(lost, -1)
    words = all_words([reading.words for reading in readings])
    arrays = {}
    for name in ("pairs", "sources", "lengths", "keys", "loose"):
        values = np.concatenate([getattr(reading, name) for reading in readings])[rows]
        values[~has_text] = 0
        arrays[name] = values
    return replace(
        readings[0],
        profile=profile,
        words=(words[0].of_rows(rows, has_text), words[1].of_rows(rows, has_text)),
        has_text=has_text,
        numbers=np.arange(1, len(rows) + 1),
        **arrays,
    )


class UsualPairs:
    """Know what is usual in the training corpora: those with the same tags are of one kind."""

    def __init__(self, training: Sequence[FirstReading]):
        """Merge the profiles of corpora of the same tags, sides swapped where they are the reverse of the largest."""
        self.profiles: dict[tuple[str, str], Profile] = {}
        self.largest: dict[tuple[str, str], FirstReading] = {}
        for reading in sorted(training, key=lambda reading: len(reading.pairs), reverse=True):
            tags, profile = reading.spec.tags, reading.profile
            largest = self.largest.setdefault(tags, reading)
            merged = self.profiles.setdefault(tags, Profile(profile.alphabet))
            merged.add(profile.reversed() if profile.is_reverse_of(largest.profile) else profile)
        self.first_tags = training[0].spec.tags
        self.judges: dict[tuple[str, str], PairJudge] = {}
        self.places: dict[int, int] = {}  # of the first row of each corpus in those of its judge
        for tags in self.profiles:
            same = [each for each in training if each.spec.tags == tags and not self.is_reversed(each)]
            for reading, place in zip(same, np.cumsum([0, *(len(each.pairs) for each in same)]).tolist(), strict=False):
                self.places[id(reading)] = place
            has_text, hashes = (
                np.concatenate(arrays) for arrays in zip(*((each.has_text, each.loose) for each in same), strict=True)
            )
            self.judges[tags] = PairJudge(all_words([each.words for each in same]), has_text, hashes)

    def for_corpus(self, reading: FirstReading) -> tuple[Profile, str]:
        """Return what is usual in corpora such as this one, and '', or a sentence if its sides are swapped.

        A corpus whose tags no training corpus has is compared with those of the first tags.
        """
        tags = self.tags_for(reading)
        largest = self.largest[tags]
        if not self.is_reversed(reading):
            return self.profiles[tags], ""
        return self.profiles[tags].reversed(), (
            f"{largest.spec.name} has sources such as {quote_line(largest.begins)}, {reading.spec.name} such as "
            f"{quote_line(reading.begins)}"
        )

    def is_reversed(self, reading: FirstReading) -> bool:
        """Return whether the languages of a corpus are in the opposite order than in the largest of its kind."""
        return reading.profile.is_reverse_of(self.largest[self.tags_for(reading)].profile)

    def tags_for(self, reading: FirstReading) -> tuple[str, str]:
        """Return the tags of the training corpora that a corpus is compared with."""
        return reading.spec.tags if reading.spec.tags in self.profiles else self.first_tags

    def judge(self, reading: FirstReading) -> Judgement:
        """Return what the words of a corpus tell of its pairs."""
        judge = self.judges[self.tags_for(reading)]
        return judge.judge(
            reading.words, reading.has_text & (not self.is_reversed(reading)), self.places.get(id(reading))
        )


def letters_hash(text: str) -> int:
    """Return a hash of the letters and digits of a text, whatever their case, or of all of it where it has none.

    0 for a blank text. Like all of Python's hashes of text, it differs from process to process.
    """
    letters = NO_LETTERS.sub("", text.casefold()) or text.strip()
    return hash(letters) if letters else 0


def find_repeats(readings: list[FirstReading], later: list[np.ndarray]) -> list[list[Hits]]:
    """Return, for each corpus of a set, the hits of 'duplicate', 'near-duplicate', 'several-targets' and 'overlap'.

    A pair is a duplicate, or its source has several targets, if a row above it in the set has the same pair or source.
    A near duplicate has the same letters and digits as a row above.
    It overlaps if its key is in `later`, the keys of the sets that come after this one.
    """
    if not readings:
        return []
    has_text = np.concatenate([rows.has_text for rows in readings])
    keys = np.concatenate([rows.keys for rows in readings])
    copied = repeated_rows(np.concatenate([rows.pairs for rows in readings]), has_text)
    duplicate = copied >= 0
    near = repeated_rows(np.concatenate([rows.loose for rows in readings]), has_text & ~duplicate)
    several = repeated_rows(np.concatenate([rows.sources for rows in readings]), has_text & ~duplicate)
    overlap = np.isin(keys, np.concatenate(later)) & (keys != 0) if later else np.zeros(len(keys), bool)
    ends = np.cumsum([len(rows.pairs) for rows in readings])[:-1]
    by_rule = {"duplicate": copied, "near-duplicate": near, "several-targets": several}
    splits = [
        [Hits(rule, rows >= 0, repeats=rows) for rows in np.split(all_rows, ends)] for rule, all_rows in by_rule.items()
    ]
    splits.append([Hits("overlap", rows) for rows in np.split(overlap, ends)])
    return [list(of_corpus) for of_corpus in zip(*splits, strict=True)]


def repeated_rows(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Return (n,): the first row above each that has the same of the values (n,), -1 where there is none.

    Both rows are `among` (n,), bool.
    """
    rows = np.flatnonzero(among)
    order = rows[np.argsort(values[rows], kind="stable")]
    first = np.ones(len(order), bool)
    first[1:] = values[order[1:]] != values[order[:-1]]
    repeated = np.full(len(values), -1)
    repeated[order] = np.where(first, -1, order[np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))])
    return repeated
