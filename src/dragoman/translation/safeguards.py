"""What a translation is held to, besides being probable."""

from dataclasses import dataclass

from dragoman.errors import UsageError
from dragoman.text import placeholders
from dragoman.text.glossary import Glossary, TermMatch


@dataclass(frozen=True)
class Safeguards:
    """Describe what is checked in every translation. A segment that fails is translated again, more carefully."""

    placeholders: bool = True  # placeholders, tags, addresses and code come back unchanged, once each
    numbers: bool = False  # so do numbers with units
    faults: bool = True  # no loops, no copies of the source, nothing empty or far too long
    glossary: Glossary | None = None  # source terms, and the target terms that have to stand for them
    forbidden: tuple[str, ...] = ()  # words that must not appear

    def __post_init__(self) -> None:
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
