"""Choose the sentences that would teach a model most if someone translated them.

They have what is frequent in the texts to be translated and rare in the training pairs: words and runs of two and three
words. Each one that a chosen sentence has counts half from then on, as with every training source that has it, so that
sentences differ (feature decay, Biçici and Yuret 2011). It is divided by the length, since translators are paid for it.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log2

from dragoman.data.split import words_of

Phrase = tuple[str, ...]
LONGEST = 3  # words of a phrase


def phrases_of(words: Sequence[str]) -> set[Phrase]:
    """Return the words, and the runs of up to LONGEST words."""
    return {
        tuple(words[start : start + length])
        for length in range(1, LONGEST + 1)
        for start in range(len(words) - length + 1)
    }


@dataclass(frozen=True)
class Coverage:
    """Count how many of the phrases that texts have several times and the training lacks some sentences would teach."""

    words: int
    phrases: int  # of two and three words
    lacking: tuple[int, int]  # words and phrases that the training lacks

    def __str__(self) -> str:
        taught = zip((self.words, self.phrases), self.lacking, ("words", "phrases"), strict=True)
        return " and ".join(f"{count / max(1, lacking):.0%} of the {name}" for count, lacking, name in taught)


class Wish:
    """Know which phrases the texts to be translated have, and how often the training has seen each."""

    def __init__(self, texts: Sequence[str], known: Iterable[str]):
        """Take the texts to choose from, and the sources of the training."""
        self.words = [words_of(text) for text in texts]
        self.frequent = Counter(phrase for words in self.words for phrase in phrases_of(words))
        self.known: Counter[Phrase] = Counter()
        learned = set()
        for source in known:
            words = words_of(source)
            learned.add(tuple(words))
            self.known.update(phrases_of(words) & self.frequent.keys())
        first = {tuple(words): row for row, words in reversed([*enumerate(self.words)])}
        self.rows = sorted(row for words, row in first.items() if words and words not in learned)
        "of the texts that differ from each other and from all sources"

    def choose(self, count: int) -> list[int]:
        """Return the rows of so many texts, or of all that there are, the one that teaches most first."""
        seen = self.known.copy()

        def value(row: int) -> float:
            phrases = phrases_of(self.words[row])
            return sum(log2(1 + self.frequent[each]) * 0.5 ** seen[each] for each in phrases) / len(self.words[row])

        # What a text is worth only falls, so the first one whose value is still that of the heap is the best.
        heap = [(-value(row), row) for row in self.rows]
        heapq.heapify(heap)
        chosen: list[int] = []
        while heap and len(chosen) < count:
            row = heap[0][1]
            worth = value(row)
            if worth < -heap[0][0]:
                heapq.heapreplace(heap, (-worth, row))
                continue
            heapq.heappop(heap)
            chosen.append(row)
            seen.update(phrases_of(self.words[row]))
        return chosen

    def coverage(self, rows: Iterable[int]) -> Coverage:
        """Return what the texts in these rows would teach."""
        lacking = {each for each, times in self.frequent.items() if times > 1 and not self.known[each]}
        taught = {each for row in rows for each in phrases_of(self.words[row])} & lacking
        words, all_words = (sum(len(each) == 1 for each in some) for some in (taught, lacking))
        return Coverage(words, len(taught) - words, (all_words, len(lacking) - all_words))
