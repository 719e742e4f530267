"""Describe a translated text, with all that is known of it."""

from dataclasses import dataclass, replace

from dragoman.config.fields import short_repr
from dragoman.memory.matches import Match

EXACT = "memory: exact"  # the flag of a translation that somebody has approved for this text
SWAPPED = "memory: exact but for numbers"  # the same, where numbers or placeholders differ
TERM_REPORTS = ("terms_met", "terms_in_compounds", "terms_refused", "terms_missed")


@dataclass(frozen=True)
class Translation:
    """A translated text, and how much it can be trusted. `str` gives the text.

    text: the translation, in one line.
    score: its log-probability in nats over the length penalty, summed over the segments; 0.0 for blank text.
    segments: what was translated at once, each with its translation, in order; joined, they are the two texts,
    without white space around them.
    finished: whether the model ended all segments itself, before the search reached its length limit.
    flags: what is wrong with it, in words, such as 'loop', 'lost {name}' or 'no brake pad', each once; () for nothing.
    retried: whether something was wrong with the first translation, so that there was a second search.
    terms_met, terms_in_compounds, terms_refused, terms_missed: the source terms of the glossary whose target terms it
    has; has as the last part of a longer word; lacks, because they would have replaced half of a longer word; lacks.
    alternatives: the next best translations, best first; with `n_best`.
    alignment: pairs of a word of the source and the word of the translation aligned with it, counted from 0 and
    separated by white space; with `alignments=True`.
    confidences: for each segment the probability, from 0 to 1, that a reader would find it good enough: that its chrF
    against a reference would reach the threshold of the model's record; None for one that was copied. () for a model
    without such a record, and where nothing was translated.
    memory: the approved pair whose source is like the text, and how much; None without a memory, and for none.
    tokens: for each segment the ids that the search found, without EOS; () for a segment that was copied. Where
    placeholders were put back, the translation of the segment has more than these.
    """

    text: str
    score: float
    segments: tuple[tuple[str, str], ...] = ()
    finished: bool = True
    flags: tuple[str, ...] = ()
    retried: bool = False
    terms_met: tuple[str, ...] = ()
    terms_in_compounds: tuple[str, ...] = ()
    terms_refused: tuple[str, ...] = ()
    terms_missed: tuple[str, ...] = ()
    alternatives: tuple["Translation", ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()
    tokens: tuple[tuple[int, ...], ...] = ()
    confidences: tuple[float | None, ...] = ()
    memory: Match | None = None

    @property
    def confidence(self) -> float | None:
        """The confidence in the least sure segment; None where there is none."""
        return min((each for each in self.confidences if each is not None), default=None)

    def __str__(self) -> str:
        return self.text

    @property
    def output(self) -> str:
        """Return the text, also where it was left out because it is less sure than `min_confidence`."""
        return self.text or "".join(output for _, output in self.segments).strip()

    @property
    def left_out(self) -> bool:
        """Return whether the text was left out; see `output`."""
        return self.text != self.output

    def __repr__(self) -> str:
        return short_repr(replace(self, tokens=(), segments=self.segments if len(self.segments) > 1 else ()))


@dataclass(frozen=True)
class Alternative:
    """A word that may come next in a translation, and where it leads.

    word: without the marks after it, such as a full stop.
    probability: that the model writes it after the words before: the product of those of its pieces, and that the word
    ends after them.
    translation: the whole one that follows from it.
    """

    word: str
    probability: float
    translation: Translation
