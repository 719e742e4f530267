"""Draw sentences of a small grammar with their trees, written as a sequence: what section 6.3 of the paper parses.

Whether a phrase such as "with the hat" belongs to the noun before it or to the verb depends on its preposition, so a
parser has to learn more than which words make a phrase.
"""

from random import Random

DETERMINERS, ADJECTIVES = ("the", "a"), ("old", "small", "red", "quiet")
NOUNS = ("dog", "teacher", "garden", "letter", "child", "river", "house", "song")
VERBS, SAYING = ("sees", "finds", "likes", "draws"), ("says", "thinks")
OF_NOUNS, OF_VERBS = ("of", "near"), ("with", "for")  # prepositions
DEEPEST = 3  # phrases of a kind within each other
OPEN, CLOSE = "(", ")"
NAMES = ("S", "NP", "VP", "PP")  # of phrases: sentence, with a noun, with a verb, with a preposition

Words = list[str]


def draw_sentence(rng: Random, depth: int = 0) -> Words:
    """Return a tree as a sequence of words, brackets, and the name of a phrase behind each bracket that opens.

    '( S ( NP the dog ) ( VP sees ( NP a house ) ) )', with spaces between them.
    """
    return phrase("S", noun_phrase(rng, depth), verb_phrase(rng, depth))


def phrase(name: str, *parts: Words) -> Words:
    """Return the tree of a phrase, from the trees and the words that it consists of."""
    return [OPEN, name, *(word for part in parts for word in part), CLOSE]


def noun_phrase(rng: Random, depth: int) -> Words:
    """Draw a noun, which may have an adjective and a phrase with a preposition behind it."""
    adjective = [rng.choice(ADJECTIVES)] if rng.random() < 0.4 else []
    simple = phrase("NP", [rng.choice(DETERMINERS)], adjective, [rng.choice(NOUNS)])
    if depth < DEEPEST and rng.random() < 0.3:
        return phrase("NP", simple, prepositional_phrase(rng, OF_NOUNS, depth + 1))
    return simple


def prepositional_phrase(rng: Random, prepositions: tuple[str, ...], depth: int) -> Words:
    """Draw a preposition with a noun."""
    return phrase("PP", [rng.choice(prepositions)], noun_phrase(rng, depth))


def verb_phrase(rng: Random, depth: int) -> Words:
    """Draw a verb with an object, behind which there may be a preposition, or with a sentence."""
    if depth < DEEPEST and rng.random() < 0.25:
        return phrase("VP", [rng.choice(SAYING), "that"], draw_sentence(rng, depth + 1))
    whole = [[rng.choice(VERBS)], noun_phrase(rng, depth)]
    if rng.random() < 0.5:
        whole.append(prepositional_phrase(rng, OF_VERBS, depth + 1))
    return phrase("VP", *whole)


def words_of(tree: Words) -> Words:
    """Return the sentence of a tree."""
    return [word for word in tree if word not in (OPEN, CLOSE, *NAMES)]


def places_in(tree: Words) -> list[int]:
    """Return where each word and bracket of a tree stands in its sentence: a bracket at the word that it is next to."""
    places, following = [], 0
    for word in tree:
        places.append(following - (word == CLOSE))
        following += word not in (OPEN, CLOSE, *NAMES)
    return places
