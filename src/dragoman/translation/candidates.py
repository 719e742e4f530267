"""Judge what a search found for a segment, and keep the better of two searches."""

from dataclasses import dataclass

from dragoman.decoding.search import Hypothesis
from dragoman.text import placeholders
from dragoman.text.faults import find_faults
from dragoman.text.glossary import check_terms
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.segments import Segment


@dataclass(frozen=True)
class Candidate:
    """A translation of a segment, and what is wrong with it."""

    text: str
    hypothesis: Hypothesis
    flags: tuple[str, ...] = ()  # in words: 'loop', 'lost {name}', 'no brake pad'
    wrong_placeholders: int = 0  # how many it lost or invented
    terms_met: tuple[str, ...] = ()  # source terms of the glossary whose target terms it has

    @property
    def badness(self) -> tuple[int, int]:
        """Compare candidates by wrong placeholders first: a text without them breaks the program that fills them in."""
        return self.wrong_placeholders, len(self.flags)


@dataclass(frozen=True)
class SegmentResult:
    """What all searches found for a segment."""

    segment: Segment
    candidates: list[Candidate]  # best first
    retried: bool  # whether there was a second search


def judge(
    segment: Segment, text: str, hypothesis: Hypothesis, safeguards: Safeguards, scripts: tuple[str, ...]
) -> Candidate:
    """Return the candidate with this text, flagged wherever it breaks the safeguards.

    scripts: those of the target language, see `find_faults`.
    """
    flags: list[str] = []
    lost: list[str] = []
    invented: list[str] = []
    if safeguards.faults:
        flags += find_faults(segment.text, text, finished=hypothesis.finished, scripts=scripts)
    if safeguards.placeholders:
        lost, invented = placeholders.compare(segment.text, text, safeguards.numbers, segment.prefix)
    flags += [f"lost {placeholder}" for placeholder in lost]
    flags += [f"invented {placeholder}" for placeholder in invented]
    terms = check_terms(segment.terms, text)
    flags += [f"no {term.entry.source}" for term in terms.missed]
    flags += [f"has {word}" for word in safeguards.forbidden if word in text]
    if hypothesis.tokens[: len(segment.prefix_ids)] != segment.prefix_ids:
        flags.append("lost prefix")
    terms_met = tuple(term.entry.source for term in terms.met)
    return Candidate(text, hypothesis, tuple(flags), len(lost) + len(invented), terms_met)


def better(candidates: list[Candidate], second: Candidate | None) -> list[Candidate]:
    """Return the candidates, the best one replaced by that of the second search where less is wrong with that."""
    if second is None or second.badness >= candidates[0].badness:
        return candidates
    return [second, *candidates[1:]]
