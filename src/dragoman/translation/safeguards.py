"""Describe what every translation is checked for, and judge candidates by it."""

from dataclasses import dataclass

from dragoman.config.fields import check_fields, short_repr
from dragoman.decoding.search import Hypothesis
from dragoman.errors import UsageError
from dragoman.text import placeholders
from dragoman.text.faults import find_faults
from dragoman.text.glossary import Glossary, TermMatch, check_terms
from dragoman.translation.segments import Segment


@dataclass(frozen=True)
class Safeguards:
    """Say what is checked in every translation. A segment that fails is translated a second time (`retry`).

    placeholders: placeholders, tags, addresses and code come back unchanged, once each.
    numbers: so do numbers with units.
    faults: no loops, no copies of the source, nothing empty or far too long.
    glossary: source terms, and the target terms that have to stand for them.
    forbidden: words that must not appear.
    """

    placeholders: bool = True
    numbers: bool = False
    faults: bool = True
    glossary: Glossary | None = None
    forbidden: tuple[str, ...] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)
        if not all(map(str.strip, self.forbidden)):
            raise UsageError("a forbidden word must not be blank")

    def find_terms(self, text: str) -> tuple[TermMatch, ...]:
        """Return the glossary terms in `text` that do not overlap a placeholder, which is not translated."""
        if not self.glossary:
            return ()
        verbatim = placeholders.find(text, self.numbers) if self.placeholders else []
        return tuple(
            term
            for term in self.glossary.find(text)
            if all(term.end <= placeholder.start or placeholder.end <= term.start for placeholder in verbatim)
        )


NO_SAFEGUARDS = Safeguards(placeholders=False, faults=False)


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
        """A key to sort by, smaller for better candidates.

        Wrong placeholders count most: a text without them breaks the program that fills them in.
        """
        return self.wrong_placeholders, len(self.flags)


@dataclass(frozen=True)
class SegmentResult:
    """The candidates for a segment, from one search or two."""

    segment: Segment
    candidates: list[Candidate]  # best first
    retried: bool  # whether there was a second search


def judge(
    segment: Segment, text: str, hypothesis: Hypothesis, safeguards: Safeguards, scripts: tuple[str, ...]
) -> Candidate:
    """Return `text` as a candidate translation of the segment, with a flag in words for each thing wrong with it.

    It is checked for what the safeguards say, for the segment's terms, and for its prefix. hypothesis: what the text
    was made from: it says whether the search reached EOS, and has the prefix; scripts: those of the target language,
    see `find_faults`.
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
    terms_met: tuple[str, ...] = ()
    if segment.terms:
        terms = check_terms(segment.terms, text)
        flags += [f"no {term.entry.source}" for term in terms.missed]
        terms_met = tuple(term.entry.source for term in terms.met)
    flags += [f"has {word}" for word in safeguards.forbidden if word in text]
    if hypothesis.tokens[: len(segment.prefix_ids)] != segment.prefix_ids:
        flags.append("lost prefix")
    return Candidate(text, hypothesis, tuple(flags), len(lost) + len(invented), terms_met)


def replace_worse(candidates: list[Candidate], second: Candidate | None) -> list[Candidate]:
    """Return the candidates, best first; `second`, of the second search, replaces the first one if it is better.

    None: there was no second search.
    """
    if second is None or second.badness >= candidates[0].badness:
        return candidates
    return [second, *candidates[1:]]
