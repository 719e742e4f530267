"""Join the translations of segments into that of their text."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragoman.translation.safeguards import Candidate, SegmentResult
from dragoman.translation.segments import Segment


@dataclass(frozen=True)
class Translation:
    """A translated text, and how much it can be trusted."""

    text: str
    score: float  # log-probability in nats over the length penalty; the sum over segments; 0.0 for blank text
    segments: int = 1  # how many segments the source was cut into, because it was longer than the model takes
    finished: bool = True  # False: the search reached its length limit before EOS
    flags: tuple[str, ...] = ()  # what is wrong with it, in words: 'loop', 'lost {name}', 'no brake pad'
    retried: bool = False  # whether something was wrong with the first translation, so that there was a second search
    terms_met: tuple[str, ...] = ()  # source terms of the glossary whose target terms it has
    alternatives: tuple["Translation", ...] = ()  # the next best, best first


def join(results: Sequence[SegmentResult]) -> Translation:
    """Return the best candidates of all segments as one translation, with the second best, and so on, behind it."""
    segments = [result.segment for result in results]
    best, *alternatives = (
        join_candidates(segments, [result.candidates[min(rank, len(result.candidates) - 1)] for result in results])
        for rank in range(max(len(result.candidates) for result in results))
    )
    return replace(best, retried=any(result.retried for result in results), alternatives=tuple(alternatives))


def join_candidates(segments: Sequence[Segment], candidates: Sequence[Candidate]) -> Translation:
    """Return one candidate for each segment as a translation, with a space wherever the source has one in between."""
    text = candidates[0].text
    for before, segment, candidate in zip(segments, segments[1:], candidates[1:], strict=False):
        spaced = before.text[-1:].isspace() or segment.text[:1].isspace()
        text += " " * spaced + candidate.text
    return Translation(
        one_line(text),
        sum(candidate.hypothesis.score for candidate in candidates),
        len(segments),
        all(candidate.hypothesis.finished for candidate in candidates),
        tuple(flag for candidate in candidates for flag in candidate.flags),
        terms_met=tuple(term for candidate in candidates for term in candidate.terms_met),
    )


def one_line(text: str) -> str:
    """Return the text with its line feeds as spaces: one line in, one line out."""
    return text.replace("\n", " ")
