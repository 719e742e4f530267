"""Measure how far the confidence in translations can be trusted, also where a model is lost, and what it costs."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from dragoman import Translator
from dragoman.confidence.fit import area_under_curve
from dragoman.data.corpus import read_corpus
from dragoman.decoding.search import length_penalty
from dragoman.errors import UsageError
from dragoman.evaluation.confidence import judge_confidence
from dragoman.evaluation.timing import Contender, describe_machine, markdown_table, time_in_turn
from dragoman.text.known_words import without_marks
from dragoman.text.word_forms import WordForms, forms_of, invented_words, unseen_words
from dragoman.translation.calibration import capitals, some_unknown_words, unknown_words
from dragoman.translation.translation import Translation

PLANTED, COMMON, LONG = 100, 5000, 6  # texts of each kind, words that are looked at, and letters of one
LETTERS = re.compile(r"[^\W\d_]{3,}(?!\w)")
Plant = Callable[[random.Random, str, str, WordForms], str | None]
# How a word is made of two known ones; None stands for no new word.
PLANTS: dict[str, Plant] = {
    "half a word, half another": lambda chance, word, other, forms: word[: len(word) // 2] + other[len(other) // 2 :],
    "its letters in another order": lambda chance, word, other, forms: word[:1] + word[:0:-1],
    "two of its letters changed": lambda chance, word, other, forms: changed(chance, changed(chance, word)),
    "control: two words joined": lambda chance, word, other, forms: word + other,
    "control: another ending": lambda chance, word, other, forms: word + chance.choice(sorted(forms.endings)),
    "control: no new word": lambda chance, word, other, forms: None,
}
BAD, GOOD, WORST = 20.0, 60.0, 0.25  # chrF; the share of the worst translations


def benchmark(model: str, test: str, other: str, threads: int, rounds: int) -> str:
    """Return tables in Markdown: what references say of the confidence, where the model is lost, and the time.

    model: a folder with a record of confidence; test: sentence pairs; other: pairs of another domain, whose sources
    are translated; rounds: turns of each contender where time is measured.
    """
    translator = Translator.load(model, threads=threads)
    if translator.confidence is None:
        raise UsageError(f"{model} has no record of confidence")
    pairs = read_corpus([test]).pairs
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    translations = translator.translate(sources)
    lines = [str(judge_confidence(translations, references, translator.confidence)), ""]
    searched = [(each, reference) for each, reference in zip(translations, references, strict=True) if each.tokens[0]]
    chrf = score(*zip(*searched, strict=True))
    sure = np.array([each.confidence for each, _ in searched])
    good = chrf > np.quantile(chrf, WORST)
    lengths = np.array([len(each.tokens[0]) + each.finished for each, _ in searched])
    scores = np.array([each.score for each, _ in searched])
    mean = scores * length_penalty(lengths, translator.search.length_penalty) / lengths
    lines += [
        f"AUC for the worst quarter: {area_under_curve(sure, good):.3f}; of the mean log-probability of tokens: "
        f"{area_under_curve(mean, good):.3f}.",
        f"Of {(chrf > GOOD).sum()} translations with a chrF over {GOOD:g}, "
        f"{100 * (sure[chrf > GOOD] < 0.5).mean():.1f} % have a confidence below 0.5.",
        "",
        markdown_table(["", "translations", "below 0.5", "unsure"], lost(translator, pairs, other)),
        "",
        markdown_table(
            ["planted word", "of the source: unseen", "of the translation: invented"], planted(translator, pairs)
        ),
        "",
    ]
    bare = Translator(
        translator.model,
        translator.tokenizers,
        translator.search,
        engine=translator.engine,
        alignment=translator.segment_search.measured_alignment,
        scripts=translator.scripts,
        extent=translator.extent,
        known_words=translator.known_words,
    )
    contenders = [
        Contender("without", lambda: len(bare.translate(sources))),
        Contender("with", lambda: len(translator.translate(sources))),
    ]
    time_in_turn(contenders, rounds)
    without, measured = contenders
    lines += [
        f"Sentences per second without the record: {without}, with it: {measured}, "
        f"{without.median / measured.median:.3f} times as long.",
        f"{describe_machine()}.",
    ]
    return "\n".join(lines)


def lost(translator: Translator, pairs: Sequence[tuple[str, str]], other: str) -> list[list[str]]:
    """Return a row for each way to be lost: how many bad translations there are, and which of them are noticed.

    Without references, all translations count as bad.
    """
    as_written = translator.replace(safeguards=replace(translator.safeguards, sentence_case=False))
    ways = {
        "capitals, read as they are": (as_written, [(capitals(*pair), pair[1]) for pair in pairs]),
        "sources in the target language": (translator, [(target, target) for _, target in pairs]),
        "half of the long words unknown": (translator, [(some_unknown_words(*pair), pair[1]) for pair in pairs]),
        "all long words unknown": (translator, [(unknown_words(*pair), pair[1]) for pair in pairs]),
    }
    rows = []
    for name, (each, cases) in ways.items():
        translations = each.translate([source for source, _ in cases])
        bad = score(translations, [reference for _, reference in cases]) < BAD
        rows.append([f"{name}, chrF under {BAD:g}", *noticed([translations[index] for index in bad.nonzero()[0]])])
    sources = [source for source, _ in read_corpus([other]).pairs]
    return [*rows, ["another domain, all", *noticed(translator.translate(sources))]]


def planted(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return a row for each kind of planted word: in how many of PLANTED texts it is noticed, and its text flagged.

    The last rows are controls: words that the training lacks, but that its words explain, and none. Translations are
    references. A word takes the place of a long one that the training had.
    """
    assert translator.confidence
    assert translator.confidence.forms
    assert translator.known_words
    usual = translator.known_words
    sides = [
        (0, forms_of(usual), lambda text, pair, forms: unseen_words(text, forms, usual)),
        (1, translator.confidence.forms, lambda text, pair, forms: invented_words(pair[0], text, forms)),
    ]
    columns = []
    for side, forms, flagged in sides:
        chance = random.Random(side)
        words = list(filter(is_long, forms.by_frequency[:COMMON]))
        column = []
        for plant in PLANTS.values():
            count = noticed_count = 0
            for pair in chance.sample(pairs, len(pairs)):
                places = [each for each in LETTERS.finditer(pair[side]) if is_long(each[0]) and each[0] in forms.words]
                new = plant(chance, chance.choice(words), chance.choice(words), forms)
                if count < PLANTED and places and (new is None or (new not in forms.words and is_long(new))):
                    place = chance.choice(places)
                    text = pair[side][: place.start()] + (new or place[0]) + pair[side][place.end() :]
                    count += 1
                    noticed_count += bool(flagged(text, pair, forms))
            column.append(f"{noticed_count} of {count}")
        columns.append(column)
    return [list(row) for row in zip(PLANTS, *columns, strict=True)]


def is_long(word: str) -> bool:
    """Return whether a word has LONG letters; a syllable of Korean has two or three."""
    return len(without_marks(word)) >= LONG


def changed(chance: random.Random, word: str) -> str:
    """Return a word with one of its letters replaced by another one of them."""
    place = chance.randrange(len(word))
    return word[:place] + chance.choice(word) + word[place + 1 :]


def noticed(translations: Sequence[Translation]) -> list[str]:
    """Return how many translations there are, and what shares have a confidence below 0.5 and the flag 'unsure'."""
    judged = [each for each in translations if each.confidence is not None]
    low = sum(each.confidence < 0.5 for each in judged if each.confidence is not None)
    unsure = sum("unsure" in each.flags for each in judged)
    shares = [f"{100 * count / len(judged):.1f} %" if judged else "" for count in (low, unsure)]
    return [f"{len(judged):,}", *shares]


def score(translations: Sequence[Translation], references: Sequence[str]) -> np.ndarray:
    """Return the chrF2 of each translation, from 0 to 100."""
    both = zip(translations, references, strict=True)
    return np.array([CHRF().sentence_score(each.text, [reference]).score for each, reference in both])
