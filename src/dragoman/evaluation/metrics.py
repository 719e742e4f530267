"""Score translations with sacreBLEU, and give the signature that makes scores comparable."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman.config.fields import check_choice, check_texts
from dragoman.data.normal_form import normal_form
from dragoman.errors import UsageError, plural

SAMPLE = 500  # sentences that are compared with their sources


@dataclass(frozen=True)
class Score:
    """A score of a whole test set."""

    name: str
    value: float  # 0 to 100
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f}   {self.signature}"


@dataclass(frozen=True)
class Scores:
    """Report what `evaluate` measures of a test set."""

    bleu: Score
    chrf: Score
    exact: float  # share of sentences that equal their reference, 0 to 1
    sentences: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.bleu}\n{self.chrf}\nexact match {100 * self.exact:.1f} % of {plural(self.sentences, 'sentence')}"


def evaluate(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Scores:
    """Return BLEU and chrF of a test set, one reference for each translation.

    References are compared in Unicode NFC. tokenize: how sacreBLEU splits text into words for BLEU. Raise UsageError
    for what is not a list of strings, and where the numbers of sentences differ or are 0.
    """
    check_texts("translations", translations)
    check_texts("references", references)
    check_choice("tokenize", tokenize, tuple(BLEU.TOKENIZERS))
    references = normalise_references(translations, references)
    bleu, chrf = BLEU(tokenize=tokenize), CHRF()
    bleu_score, chrf_score = (
        Score(
            name,
            without_noise(metric.corpus_score(list(translations), [references]).score),
            str(metric.get_signature()),
        )
        for name, metric in (("BLEU", bleu), ("chrF2", chrf))
    )
    same = sum(a == b for a, b in zip(translations, references, strict=True))
    return Scores(bleu_score, chrf_score, same / len(references), len(references))


def without_noise(score: float) -> float:
    """Return a score of sacreBLEU without the noise of its last digits: 100 for 100.00000000000004."""
    return round(float(score), 9)


def closer_to_sources(translations: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether the first SAMPLE translations have a higher chrF with their sources than with their references.

    So they are copies of much of the sources, or of another language than the references.
    """
    sample = list(translations[:SAMPLE])
    to_sources, to_references = (
        CHRF().corpus_score(sample, [list(texts[:SAMPLE])]).score for texts in (sources, references)
    )
    return to_sources > to_references


def normalise_references(translations: Sequence[str], references: Sequence[str]) -> list[str]:
    """Return the references in Unicode NFC, as translations are.

    Raise UsageError where there are none, or not as many as translations.
    """
    if len(translations) != len(references):
        raise UsageError(
            f"each translation needs a reference: {plural(len(translations), 'translation')}, "
            f"{plural(len(references), 'reference')}"
        )
    if not len(references):
        raise UsageError("there is nothing to score: no translations and no references")
    return [normal_form(reference) for reference in references]


def scores_by_sentence(
    translations: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> list[tuple[float, float]]:
    """Return (BLEU, chrF), 0 to 100, of each sentence.

    This BLEU leaves out n-grams that are longer than the sentence. tokenize and what is raised: as for `evaluate`.
    """
    bleu, chrf = BLEU(tokenize=tokenize, effective_order=True), CHRF()
    return [
        (
            without_noise(bleu.sentence_score(text, [reference]).score),
            without_noise(chrf.sentence_score(text, [reference]).score),
        )
        for text, reference in zip(translations, normalise_references(translations, references), strict=True)
    ]


@dataclass(frozen=True)
class LengthGroup:
    """The scores of the sentences whose sources have from `shortest` to `longest` characters."""

    shortest: int
    longest: int
    sentences: int
    bleu: float
    chrf: float


def scores_by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    groups: int = 4,
) -> list[LengthGroup]:
    """Return scores by characters of the source, from the shortest to the longest, in groups of about the same size.

    Sources of one length are in one group, so there may be fewer than `groups`. tokenize and what is raised: as for
    `evaluate`.
    """
    lengths = [len(source) for source in sources]
    ordered = sorted(lengths)
    ends = sorted({ordered[max(0, len(ordered) * group // groups - 1)] for group in range(1, groups + 1)})
    scored, start = [], 0
    for end in ends:
        rows = [row for row, length in enumerate(lengths) if start <= length <= end]
        scores = evaluate([translations[row] for row in rows], [references[row] for row in rows], tokenize)
        shortest = min(lengths[row] for row in rows)
        scored.append(LengthGroup(shortest, end, len(rows), scores.bleu.value, scores.chrf.value))
        start = end + 1
    return scored
