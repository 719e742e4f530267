"""Tasks whose trick the attention shows: sentences of letters, and what is to be made of them."""

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman.data.corpus import Pair
from dragoman.demo.phrasebook import Phrasebook

SHORTEST, LONGEST = 3, 10  # words of a source; of a recall: letters with a number each
TRAIN, HELD_OUT = 20_000, 200  # pairs to learn from; pairs each to validate and to test on
ASK = ":"  # between what is to be remembered and what is asked for
ASKED = 4  # letters that are asked for, at most


@dataclass(frozen=True)
class Task:
    """A task: which source words the words of the target are."""

    rule: str  # in a sentence
    trick: str  # what a head does that has found it, in words
    draw: Callable[[random.Random], list[str]]  # the words of a source
    places: Callable[[Sequence[str]], list[int]]  # for each target word, from 0
    minutes: float = 1.0  # of training in which it is learned, on two cores that do nothing else

    def pair(self, rng: random.Random) -> Pair:
        """Draw a source and return it with its target."""
        words = self.draw(rng)
        return " ".join(words), " ".join(words[place] for place in self.places(words))


def letters(rng: random.Random) -> list[str]:
    """Return a few different letters in any order."""
    return rng.sample(string.ascii_lowercase, rng.randint(SHORTEST, LONGEST))


def letters_with_numbers(rng: random.Random) -> list[str]:
    """Return letters, each with a number behind it, a colon, and some of these letters in another order."""
    count = rng.randint(SHORTEST, LONGEST // 2)
    names = rng.sample(string.ascii_lowercase, count)
    known = [word for name in names for word in (name, str(rng.randint(0, 9)))]
    return [*known, ASK, *rng.sample(names, rng.randint(1, min(ASKED, count)))]


def remembered(words: Sequence[str]) -> list[int]:
    """Return where each letter behind the colon is, and its number."""
    asked = range(words.index(ASK) + 1, len(words))
    return [place for letter in asked for place in (letter, words.index(words[letter]) + 1)]


TASKS: dict[str, Task] = {
    "copy": Task(
        "the same letters again",
        "looks at the letter that comes next: a diagonal",
        letters,
        lambda words: list(range(len(words))),
    ),
    "reverse": Task(
        "the letters from the last to the first",
        "goes through the letters backwards: a diagonal from top right to bottom left",
        letters,
        lambda words: list(range(len(words)))[::-1],
    ),
    "sort": Task(
        "the letters in the order of the alphabet",
        "looks for the next letter of the alphabet, wherever it is",
        letters,
        lambda words: sorted(range(len(words)), key=lambda place: words[place]),
    ),
    "recall": Task(
        "each letter after the colon, and the number that followed it before",
        "looks at what follows the letter that was written last, where it stood first",
        letters_with_numbers,
        remembered,
        minutes=2.0,
    ),
}


def draw_pairs(task: Task, seed: int) -> Phrasebook:
    """Return pairs of a task to learn from and others to validate and to test on; the same seed gives the same ones."""
    rng = random.Random(seed)
    drawn: dict[Pair, None] = {}
    while len(drawn) < TRAIN + 2 * HELD_OUT:
        drawn[task.pair(rng)] = None
    pairs = list(drawn)
    return Phrasebook(pairs[2 * HELD_OUT :], pairs[:HELD_OUT], pairs[HELD_OUT : 2 * HELD_OUT])
