"""Tasks whose trick the attention shows: sentences of letters or words, and what is to be made of them."""

import random
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dragoman.config import SearchConfig
from dragoman.data.corpus import Pair
from dragoman.demo.grammar import draw_sentence, places_in, words_of
from dragoman.demo.phrasebook import Phrasebook

SHORTEST, LONGEST = 3, 10  # words of a source; of a recall: letters with a number each
TRAIN, HELD_OUT = 20_000, 200  # pairs to learn from; pairs each to validate and to test on
ASK = ":"  # between what is to be remembered and what is asked for
ASKED = 4  # letters that are asked for, at most
LONGEST_SENTENCE = 10  # words, so that the tree is not too long for the film


Words = list[str]
Draw = Callable[[random.Random], tuple[Words, Words]]  # the words of a source, and of its target
Places = Callable[[Words, Words], list[int]]  # of the target words of such a pair in the source, from 0


@dataclass(frozen=True)
class Task:
    """A task: which source words the words of the target come from."""

    rule: str  # in a sentence
    trick: str  # what a head does that has found it, in words
    draw: Draw
    places: Places
    minutes: float = 1.0  # of training in which it is learned, on two cores that do nothing else
    search: SearchConfig = SearchConfig()

    def pair(self, rng: random.Random) -> Pair:
        """Draw a source and return it with its target."""
        source, target = self.draw(rng)
        return " ".join(source), " ".join(target)


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


def chosen(draw: Callable[[random.Random], Words], places: Callable[[Words], list[int]]) -> tuple[Draw, Places]:
    """Return how the pairs of a task are drawn, and its places, where targets consist of the source words at places."""

    def pair(rng: random.Random) -> tuple[Words, Words]:
        words = draw(rng)
        return words, [words[place] for place in places(words)]

    return pair, lambda source, target: places(source)


def sentence_and_tree(rng: random.Random) -> tuple[Words, Words]:
    """Return the words of a sentence of up to LONGEST_SENTENCE words, and its tree with brackets."""
    while len(words_of(tree := draw_sentence(rng))) > LONGEST_SENTENCE:
        pass
    return words_of(tree), tree


TASKS: dict[str, Task] = {
    "copy": Task(
        "the same letters again",
        "looks at the letter that comes next: a diagonal",
        *chosen(letters, lambda words: list(range(len(words)))),
    ),
    "reverse": Task(
        "the letters from the last to the first",
        "goes through the letters backwards: a diagonal from top right to bottom left",
        *chosen(letters, lambda words: list(range(len(words)))[::-1]),
    ),
    "sort": Task(
        "the letters in the order of the alphabet",
        "looks for the next letter of the alphabet, wherever it is",
        *chosen(letters, lambda words: sorted(range(len(words)), key=lambda place: words[place])),
    ),
    "recall": Task(
        "each letter after the colon, and the number that followed it before",
        "looks at what follows the letter that was written last, where it stood first",
        *chosen(letters_with_numbers, remembered),
        minutes=2.0,
    ),
    "parse": Task(
        "the same sentence with a bracket around each of its phrases: its tree",
        "goes along the sentence with a part of its attention; here several heads share the work",
        sentence_and_tree,
        lambda source, target: places_in(target),
        minutes=3.0,
        search=SearchConfig(beam=21, length_penalty=0.3, extra_length=300),  # section 6.3
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
