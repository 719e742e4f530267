"""Scores of translations, through sacreBLEU, with the signature that makes them comparable."""

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

RESAMPLES = 1000  # test sets that are drawn from the one there is
MOST_RESAMPLED = 10_000  # sentences; the library holds RESAMPLES times as many rows in memory
LONGEST_FOR_TER = 300  # words; shifting them takes the library time that grows with the square and worse
FEW = 30  # sentences that cannot stand for others
CHANCE = 0.05  # a difference that comes by chance less often than this is taken as one


@dataclass(frozen=True)
class Score:
    name: str
    value: float  # 0 to 100
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f}   {self.signature}"


@dataclass(frozen=True)
class Scores:
    bleu: Score
    chrf: Score
    exact: float  # share of sentences that equal their reference, 0 to 1
    sentences: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.bleu}\n{self.chrf}\nexact match {100 * self.exact:.1f} %"


def evaluate(translations: Sequence[str], references: Sequence[str], tokenize: str = "13a") -> Scores:
    """BLEU and chrF of a corpus, one reference each, in Unicode NFC as translations are.

    Raises ValueError where the numbers of sentences differ.
    """
    references = checked(translations, references)
    bleu, chrf = BLEU(tokenize=tokenize), CHRF()
    found = [
        Score(name, metric.corpus_score(list(translations), [references]).score, str(metric.get_signature()))
        for name, metric in (("BLEU", bleu), ("chrF2", chrf))
    ]
    same = sum(a == b for a, b in zip(translations, references, strict=True))
    return Scores(found[0], found[1], same / len(references), len(references))


def checked(translations: Sequence[str], references: Sequence[str]) -> list[str]:
    """The references, as they are compared."""
    if len(translations) != len(references) or not references:
        raise ValueError(f"{len(translations)} translations, {len(references)} references")
    return [unicodedata.normalize("NFC", reference) for reference in references]


def by_sentence(
    translations: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> list[tuple[float, float]]:
    """BLEU and chrF of each sentence. That BLEU takes only the n-grams that a short sentence has (effective order)."""
    bleu, chrf = BLEU(tokenize=tokenize, effective_order=True), CHRF()
    return [
        (bleu.sentence_score(text, [reference]).score, chrf.sentence_score(text, [reference]).score)
        for text, reference in zip(translations, checked(translations, references), strict=True)
    ]


@dataclass(frozen=True)
class Group:
    """The sentences whose sources have from `shortest` to `longest` characters."""

    shortest: int
    longest: int
    sentences: int
    bleu: float
    chrf: float


def by_length(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    groups: int = 4,
) -> list[Group]:
    """Scores of the shortest sources, the next ones, up to the longest: so many groups of about the same size.

    Sources of one length are in one group, so that there may be fewer.
    """
    lengths = [len(source) for source in sources]
    ordered = sorted(lengths)
    ends = sorted({ordered[max(0, len(ordered) * part // groups - 1)] for part in range(1, groups + 1)})
    found, start = [], 0
    for end in ends:
        rows = [row for row, length in enumerate(lengths) if start <= length <= end]
        scores = evaluate([translations[row] for row in rows], [references[row] for row in rows], tokenize)
        shortest = min(lengths[row] for row in rows)
        found.append(Group(shortest, end, len(rows), scores.bleu.value, scores.chrf.value))
        start = end + 1
    return found


@dataclass(frozen=True)
class Estimate:
    """A score of one system, how far chance moves it, and how it compares."""

    name: str
    value: float
    low: float  # 95 % of the test sets that are drawn from this one, with repetition, score from here
    high: float  # to here
    p: float | None  # how often chance alone makes such a difference to the first system; None: there is none
    signature: str

    def __str__(self) -> str:
        return f"{self.value:.1f} ({self.low:.1f} to {self.high:.1f})"


def estimates(
    systems: Sequence[Sequence[str]], references: Sequence[str], tokenize: str = "13a"
) -> list[list[Estimate]]:
    """BLEU, chrF and TER of each system's translations, with intervals, and compared with the first system.

    Paired bootstrap resampling (Koehn 2004) as sacreBLEU does it. TER is missing where a sentence has more than
    LONGEST_FOR_TER words. Raises ValueError where the numbers of sentences differ.
    """
    for translations in systems:
        references = checked(translations, references)
    metrics: dict[str, Any] = {"BLEU": BLEU(tokenize=tokenize), "chrF2": CHRF()}
    if not any(too_long_for_ter(texts) for texts in (references, *systems)):
        metrics["TER"] = TER()
    named: list[tuple[str, Sequence[str]]] = [("", list(translations)) for translations in systems]
    signatures, results = PairedTest(named, metrics, [references], test_type="bs", n_samples=RESAMPLES)()
    found: list[list[Estimate]] = [[] for _ in systems]
    for name in metrics:
        of_systems = cast(list[Any], results[name])
        for of_system, result in zip(found, of_systems, strict=True):
            # Two systems of one score differ by no chance, says the library: they do not differ.
            p = None if result.score == of_systems[0].score else result.p_value
            low, high = float(result.mean - result.ci), float(result.mean + result.ci)
            of_system.append(Estimate(name, result.score, low, high, p, str(signatures[name])))
    return found


def too_long_for_ter(texts: Sequence[str]) -> bool:
    return any(len(text.split()) > LONGEST_FOR_TER for text in texts)


def in_words(first: Estimate, second: Estimate, sentences: int) -> str:
    """How the first system compares with the second, for which `p` was found."""
    gain = (second.value - first.value) if first.name == "TER" else (first.value - second.value)
    if second.p is None:
        return f"{first.name} {first} against {second}: no difference"
    difference = f"{first.name} {first} against {second}: {abs(gain):.1f} {'better' if gain > 0 else 'worse'}"
    if sentences < FEW:
        return f"{difference}; {sentences} sentences are too few to tell it from chance"
    verdict = "significant" if second.p < CHANCE else "not significant"
    return f"{difference}, {verdict} (p = {second.p:.3f})"
