"""Measure what a model keeps of its score where the sources are written as people type: in capitals, with typos, ..."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from dragoman.data.corpus import Corpus
from dragoman.errors import UsageError
from dragoman.evaluation.metrics import bleu_metric, choose_tokenization, normalise_texts
from dragoman.evaluation.significance import RESAMPLES
from dragoman.text.variations import VARIATIONS, Varied, vary
from dragoman.translation.translation import Translation
from dragoman.translation.translator import Translator

MOST_PAIRS = 40  # in one line
BAR = 20  # characters
HEADING = ("variation", "lines", "BLEU", "chrF2", "of clean", "", "p", "once", "flagged", "again")


class Lines(NamedTuple):
    """The lines that a variation makes of a test set, and where each begins in it."""

    varied: list[Varied]
    starts: list[int]


@dataclass(frozen=True)
class Robustness:
    """What a variation leaves of the score of a model. BLEU and chrF2 do not regard case."""

    variation: str
    lines: int
    bleu: float
    chrf: float
    clean_bleu: float
    "BLEU of the same sentences as they are in the test set"
    p: float | None
    "how often chance alone makes such a difference of BLEU; None: no difference, or not the same references"
    once: float | None
    "share of the lines whose inserted things came back exactly once; None: nothing was inserted"
    flagged: float
    "share of the lines with a flag"
    again: float
    "share of the lines that were searched a second time"

    @property
    def kept(self) -> float:
        """The share of the clean score that is kept."""
        return self.bleu / self.clean_bleu if self.clean_bleu else 0.0

    @property
    def cells(self) -> tuple[str, ...]:
        """What its line of the table says, under HEADING."""
        bar = "█" * min(BAR, round(BAR * self.kept))
        p = "" if self.p is None else f"{self.p:.3f}"
        once = "" if self.once is None else f"{100 * self.once:.1f} %"
        shares = (f"{100 * share:.1f} %" for share in (self.flagged, self.again))
        scores = f"{self.bleu:.1f}", f"{self.chrf:.1f}", f"{100 * self.kept:.0f} %"
        return self.variation, f"{self.lines:,}", *scores, bar, p, once, *shares


def vary_corpus(name: str, pairs: Sequence[tuple[str, str]], seed: int) -> Lines:
    """Return the lines that a variation makes of pairs, those of several pairs one after the other."""
    lines, start = Lines([], []), 0
    while start < len(pairs):
        varied = vary(name, pairs[start : start + MOST_PAIRS], (seed, start))
        if varied:
            lines.varied.append(varied)
            lines.starts.append(start)
        start += varied.parts if varied else 1
    return lines


def measure_robustness(
    translator: Translator, corpus: Corpus, names: Sequence[str] = (), seed: int = 1, tokenize: str | None = None
) -> Iterator[Robustness]:
    """Yield what each variation leaves of the score of a model, first of all what it is without any.

    names: of variations, () for all; those that change nothing in this test set are left out. Raise UsageError for an
    unknown one.
    """
    if unknown := set(names) - set(VARIATIONS):
        raise UsageError(f"unknown variation '{min(unknown)}': choose from {', '.join(VARIATIONS)}")
    sources, references = (list(side) for side in zip(*corpus.pairs, strict=True))
    tokenize = tokenize or choose_tokenization(references)
    plain = translator.translate(sources, corpus.tags, target_tags=corpus.target_tags)
    clean = [translation.text for translation in plain]
    whole = Lines([Varied(*pair) for pair in corpus.pairs], list(range(len(sources))))
    yield _score("as it is", whole, plain, clean, references, tokenize)
    for name in names or VARIATIONS:
        lines = vary_corpus(name, corpus.pairs, seed)
        if lines.varied:
            tags, target_tags = ([side[start] for start in lines.starts] for side in (corpus.tags, corpus.target_tags))
            translations = translator.translate([each.source for each in lines.varied], tags, target_tags=target_tags)
            yield _score(name, lines, translations, clean, references, tokenize)


def _score(
    name: str,
    lines: Lines,
    translations: Sequence[Translation],
    clean: Sequence[str],
    references: Sequence[str],
    tokenize: str,
) -> Robustness:
    """Return what is left of the score. clean, references: of all sentences of the test set."""
    label = VARIATIONS[name].label if name in VARIATIONS else ""
    outputs = [
        _without(re.sub(rf"\A{label}", "", translation.text) if label else translation.text, varied.inserted)
        for translation, varied in zip(translations, lines.varied, strict=True)
    ]
    spans = [slice(start, start + varied.parts) for start, varied in zip(lines.starts, lines.varied, strict=True)]
    same_lines, same_references = ([" ".join(side[span]) for span in spans] for side in (clean, references))
    targets = [varied.target for varied in lines.varied]
    outputs, targets = normalise_texts(outputs, targets)
    same_lines, same_references = normalise_texts(same_lines, same_references)
    bleu, chrf = bleu_metric(tokenize, lowercase=True), CHRF(lowercase=True)
    score, clean_score = (
        bleu.corpus_score(texts, [others]).score
        for texts, others in ((outputs, targets), (same_lines, same_references))
    )
    inserted = [
        (translation.text, varied.inserted)
        for translation, varied in zip(translations, lines.varied, strict=True)
        if varied.inserted
    ]
    once = [all(text.count(piece) == n for piece, n in Counter(pieces).items()) for text, pieces in inserted]
    comparable = [text.casefold() for text in targets] == [text.casefold() for text in same_references]
    return Robustness(
        name,
        len(outputs),
        score,
        chrf.corpus_score(outputs, [targets]).score,
        clean_score,
        _chance(same_lines, outputs, targets, tokenize) if comparable and outputs != same_lines else None,
        sum(once) / len(once) if once else None,
        sum(bool(translation.flags) for translation in translations) / len(translations),
        sum(translation.retried for translation in translations) / len(translations),
    )


def _without(text: str, pieces: Sequence[str]) -> str:
    """Return a text without these pieces, each taken out once, and without the spaces that they leave."""
    for piece in pieces:
        text = text.replace(piece, " ", 1)
    return re.sub(r"\s+(?=[.,;:!?]|$)", "", " ".join(text.split())) if pieces else text


def _chance(first: Sequence[str], second: Sequence[str], references: Sequence[str], tokenize: str) -> float | None:
    """Return how often chance alone makes such a difference of BLEU (paired bootstrap); None for equal scores."""
    systems = [("clean", first), ("varied", second)]
    metrics: dict[str, Any] = {"BLEU": bleu_metric(tokenize, lowercase=True)}
    _, results = PairedTest(systems, metrics, [references], test_type="bs", n_samples=RESAMPLES)()
    clean, varied = cast(list[Any], results["BLEU"])
    return None if clean.score == varied.score else float(varied.p_value)


def as_table(rows: Sequence[Robustness]) -> str:
    """Return rows as a table of text: names to the left, numbers to the right."""
    table = [HEADING, *(row.cells for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 5) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        for cells in table
    )
