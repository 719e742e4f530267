"""Score translations with sacreBLEU, and give the signature that makes scores comparable."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import regex
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman.config.fields import check_choice, check_texts
from dragoman.data.normal_form import normal_form
from dragoman.data.unspaced import UNSPACED
from dragoman.errors import DragomanError, UsageError, plural

SAMPLE = 500  # sentences that are compared with their sources

LETTER, UNSPACED_LETTER, HAN_LETTER = (
    regex.compile(rf"(?=[\p{{L}}\p{{M}}])[{characters}]") for characters in (r"\p{L}\p{M}", UNSPACED, r"\p{Han}")
)
CHINESE = 0.9  # of the letters without spaces are Han; Japanese has about as many kana


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


def evaluate(translations: Sequence[str], references: Sequence[str], tokenize: str | None = None) -> Scores:
    """Return BLEU and chrF of a test set, one reference for each translation.

    Both are compared in Unicode NFC. tokenize: how sacreBLEU splits text into words for BLEU; None: as
    `choose_tokenization` says. Raise UsageError for what is not a list of strings, and where the numbers of sentences
    differ or are 0; DragomanError where the tokenization needs a package.
    """
    check_texts("translations", translations)
    check_texts("references", references)
    translations, references = normalise_texts(translations, references)
    bleu, chrf = bleu_metric(tokenize or choose_tokenization(references)), CHRF()
    bleu_score, chrf_score = (
        Score(name, without_noise(metric.corpus_score(translations, [references]).score), str(metric.get_signature()))
        for name, metric in (("BLEU", bleu), ("chrF2", chrf))
    )
    same = sum(a == b for a, b in zip(translations, references, strict=True))
    return Scores(bleu_score, chrf_score, same / len(references), len(references))


def choose_tokenization(references: Sequence[str]) -> str:
    """Return how BLEU splits references into words: '13a', as nearly always, if their script has spaces between words.

    Without spaces, whole sentences would be words, and BLEU near 0: Chinese is split as sacreBLEU splits it, 'zh';
    other scripts become characters, 'char'. Japanese, too: its words need a package, 'ja-mecab'.
    """
    letters, unspaced, han = (
        sum(len(pattern.findall(text)) for text in references) for pattern in (LETTER, UNSPACED_LETTER, HAN_LETTER)
    )
    if 2 * unspaced <= letters:
        return "13a"
    return "zh" if han >= CHINESE * unspaced else "char"


def describe_tokenization(references: Sequence[str]) -> str:
    """Return a sentence on how `choose_tokenization` splits references without spaces; '' for '13a'."""
    tokenize = choose_tokenization(references)
    if tokenize == "13a":
        return ""
    return (
        "the references have no spaces between words, so BLEU compares characters instead: compare it only with BLEU "
        f"of the same signature (tok:{tokenize})"
    )


def bleu_metric(tokenize: str, effective_order: bool = False, lowercase: bool = False) -> BLEU:
    """Return sacreBLEU's metric; effective_order: without n-grams that are longer than a sentence.

    Raise UsageError for an unknown tokenization, DragomanError where it needs a package that is missing.
    """
    check_choice("tokenize", tokenize, tuple(BLEU.TOKENIZERS))
    try:
        return BLEU(tokenize=tokenize, effective_order=effective_order, lowercase=lowercase)
    except (ImportError, RuntimeError):
        package = f"'sacrebleu[{tokenize[:2]}]'" if tokenize.endswith("-mecab") else "sentencepiece"
        raise DragomanError(f"the tokenization {tokenize} needs a package: pip install {package}") from None


def without_noise(score: float) -> float:
    """Return a score of sacreBLEU without the noise of its last digits: 100 for 100.00000000000004."""
    return round(float(score), 9)


def closer_to_sources(translations: Sequence[str], sources: Sequence[str], references: Sequence[str]) -> bool:
    """Return whether the first SAMPLE translations have a higher chrF with their sources than with their references.

    So they are copies of much of the sources, or of another language than the references.
    """
    to_sources, to_references = (
        CHRF().corpus_score(sample, [compared]).score
        for sample, compared in (
            normalise_texts(translations[:SAMPLE], texts[:SAMPLE]) for texts in (sources, references)
        )
    )
    return to_sources > to_references


def normalise_texts(translations: Sequence[str], references: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return both in Unicode NFC: files of some systems have letters and their accents apart, which look the same.

    Raise UsageError where there are none, or not as many references as translations.
    """
    if len(translations) != len(references):
        raise UsageError(
            f"each translation needs a reference: {plural(len(translations), 'translation')}, "
            f"{plural(len(references), 'reference')}"
        )
    if not len(references):
        raise UsageError("there is nothing to score: no translations and no references")
    return [normal_form(text) for text in translations], [normal_form(text) for text in references]


def scores_by_sentence(
    translations: Sequence[str], references: Sequence[str], tokenize: str | None = None
) -> list[tuple[float, float]]:
    """Return (BLEU, chrF), 0 to 100, of each sentence.

    This BLEU leaves out n-grams that are longer than the sentence. tokenize and what is raised: as for `evaluate`.
    """
    translations, references = normalise_texts(translations, references)
    bleu, chrf = bleu_metric(tokenize or choose_tokenization(references), effective_order=True), CHRF()
    return [
        (
            without_noise(bleu.sentence_score(text, [reference]).score),
            without_noise(chrf.sentence_score(text, [reference]).score),
        )
        for text, reference in zip(translations, references, strict=True)
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
    tokenize: str | None = None,
    groups: int = 4,
) -> list[LengthGroup]:
    """Return scores by characters of the source, from the shortest to the longest, in groups of about the same size.

    Sources of one length are in one group, so there may be fewer than `groups`. tokenize and what is raised: as for
    `evaluate`.
    """
    tokenize = tokenize or choose_tokenization(references)  # the same for all groups
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
