"""Measure how far the confidence in translations can be trusted, also where a model is lost, and what it costs."""

from collections.abc import Sequence
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
from dragoman.translation.calibration import capitals, some_unknown_words, unknown_words
from dragoman.translation.translation import Translation

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
