"""Scores of translations, through sacreBLEU, with the signature that makes them comparable."""

import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


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
    if len(translations) != len(references) or not references:
        raise ValueError(f"{len(translations)} translations, {len(references)} references")
    references = [unicodedata.normalize("NFC", reference) for reference in references]
    bleu, chrf = BLEU(tokenize=tokenize), CHRF()
    found = [
        Score(name, metric.corpus_score(list(translations), [list(references)]).score, str(metric.get_signature()))
        for name, metric in (("BLEU", bleu), ("chrF2", chrf))
    ]
    same = sum(a == b for a, b in zip(translations, references, strict=True))
    return Scores(found[0], found[1], same / len(references), len(references))
