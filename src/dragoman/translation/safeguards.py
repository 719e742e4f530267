"""Describe what every translation is checked for, and judge candidates by it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dragoman.config.fields import check_fields, short_repr
from dragoman.data.tokenizers import SideTokenizer
from dragoman.decoding.search import Hypothesis
from dragoman.errors import UsageError
from dragoman.text import verbatim
from dragoman.text.casing import Casing, as_sentence, casing_of
from dragoman.text.faults import find_faults, is_empty
from dragoman.text.glossary import Entry, Glossary, TermMatch, check_terms, find_in_compounds, normalise_term
from dragoman.text.known_words import KnownWords
from dragoman.text.verbatim.kinds import Kinds
from dragoman.translation.segments import Candidate, Segment, Wording


@dataclass(frozen=True)
class Safeguards:
    """Say what is checked in every translation. A segment that fails is translated a second time (`retry`).

    placeholders: placeholders, tags, addresses and code come back unchanged, once each.
    numbers: so do numbers with units.
    keep: regular expressions for more that comes back unchanged, at least as often.
    faults: no loops, no copies of the source, nothing empty or far too long.
    sentence_case: capitals, Title Case and mixed case are read as a sentence, for that is what a model has learned.
    visible_characters: soft hyphens and the like are left out of texts, and full-width Latin letters are read as ASCII.
    glossary: source terms, and the target terms that have to stand for them.
    forbidden: words that must not appear, in any case; words in capitals must not appear in capitals.
    forbidden_exact: words that must not appear in exactly this case.
    known_words: names that are none of these come back as they are; None: those that the model has read in training.
    min_confidence: from 0 to 1; a translation of less is left out, so that its text is '', and has the flag 'unsure'.
    swap_numbers: whether what was approved in a memory counts, too, where numbers and placeholders differ.
    """

    placeholders: bool = True
    numbers: bool = False
    keep: tuple[str, ...] = ()
    faults: bool = True
    sentence_case: bool = True
    visible_characters: bool = True
    glossary: Glossary | None = None
    forbidden: tuple[str, ...] = ()
    forbidden_exact: tuple[str, ...] = ()
    known_words: KnownWords | None = None
    min_confidence: float = 0.0
    swap_numbers: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        check_fields(self)
        if not 0 <= self.min_confidence <= 1:
            raise UsageError(f"min_confidence must be between 0 and 1, not {self.min_confidence:g}")
        try:
            self.kinds  # noqa: B018
        except ValueError as error:
            raise UsageError(f"keep: {error}") from None
        if not all(map(str.strip, self.forbidden + self.forbidden_exact)):
            raise UsageError("a forbidden word must not be blank")
        for entry in self.glossary.entries if self.glossary and self.forbidden_words else ():
            if all(map(self.is_forbidden, entry.targets)):
                targets = " and ".join(f"'{target}'" for target in entry.targets)
                raise UsageError(
                    f"the glossary translates '{entry.source}' as {targets}, which is forbidden: change the glossary, "
                    "or allow the word"
                )

    @cached_property
    def forbidden_words(self) -> Glossary | None:
        """Return the forbidden words as entries without targets, found by the rules for terms; None without words."""
        entries = [Entry(normalise_term(word), ()) for word in self.forbidden]
        entries += [Entry(normalise_term(word), (), "exact") for word in self.forbidden_exact]
        return Glossary(entries) if entries else None

    def is_forbidden(self, text: str) -> bool:
        return bool(self.forbidden_words and self.forbidden_words.find(text))

    def demands_words(self, segment: Segment) -> bool:
        """Return whether the translation of a segment must have terms or must not have some words."""
        return bool(segment.terms or self.forbidden_words)

    def unmet(self, segment: Segment, text: str) -> int:
        """Return how many terms of its segment a translation lacks, and how often it has forbidden words."""
        if not self.demands_words(segment):
            return 0
        forbidden = self.forbidden_words.find(text) if self.forbidden_words else []
        _, missed = find_in_compounds(check_terms(segment.terms, text).missed, text)
        return len(missed) + len(forbidden)

    def has_words(self, text: str) -> bool:
        """Return whether there is anything to translate: not only placeholders, digits, punctuation or emoji.

        Where words are known, a single letter is a label, "(A)", unless its script has no capitals.
        """
        letters = list(filter(str.isalpha, self.bare(text)))
        is_label = self.known_words and len(letters) == 1 and letters[0].lower() != letters[0].upper()
        return bool(letters) and not is_label

    @cached_property
    def kinds(self) -> Kinds:
        """The kinds of what must come back letter by letter: also names that the glossary keeps."""
        finders = [verbatim.find_matches(pattern) for pattern in self.keep]
        if self.glossary and (names := self.glossary.names):
            finders.append(verbatim.Finder("own", names.spans))
        return (verbatim.WITH_NUMBERS if self.numbers else verbatim.KINDS).union(finders)

    @cached_property
    def source_kinds(self) -> Kinds:
        """The same, and names, which only the words of a source tell."""
        words = self.known_words
        return self.kinds | {verbatim.Finder("name", words.find_names)} if words else self.kinds

    def find_names(self, text: str) -> list[verbatim.Placeholder]:
        """Return the names in a source, in order."""
        return [each for each in verbatim.find(text, self.source_kinds) if each.kind == "name"]

    def casing(self, text: str) -> Casing | None:
        """Return how a text is cased, see `casing_of`."""
        return casing_of(text, self.known_words, self.kinds)

    def as_sentence(self, text: str) -> str:
        """Return a text as the model reads it: as a sentence, if it is in capitals, Title Case or mixed case."""
        return as_sentence(text, self.known_words, self.kinds) if self.sentence_case else text

    def find_doubtful(self, text: str) -> list[str]:
        """Return the unknown words of a source that may be names, so that only a reader can say what is right."""
        return self.known_words.find_doubtful(text) if self.known_words and self.placeholders else []

    def bare(self, text: str) -> str:
        """Return the text without its placeholders; all of it if `placeholders` is off."""
        if not self.placeholders or not verbatim.find(text, self.kinds):  # most texts have none
            return text
        return verbatim.remove(text, self.kinds)[0]

    def find_terms(self, text: str) -> tuple[TermMatch, ...]:
        """Return the glossary terms in `text` that do not overlap a placeholder, which is not translated.

        Their targets are those without a forbidden word, if there are any.
        """
        if not self.glossary:
            return ()
        spans = verbatim.find(text, self.source_kinds) if self.placeholders else []
        return tuple(
            replace(term, targets=tuple(t for t in term.targets if not self.is_forbidden(t)) or term.targets)
            for term in self.glossary.find(text)
            if all(term.end <= span.start or span.end <= term.start for span in spans)
        )

    def segment_terms(self, segment: Segment, tokenizer: SideTokenizer) -> tuple[TermMatch, ...]:
        """Return what the glossary demands of a segment; where it has unknown words, without positions in the source.

        An unknown word is one token, whatever its length. tokenizer: that of the source.
        """
        terms = self.find_terms(tokenizer.plain_spaces(segment.text)) if self.glossary else ()
        if terms and tokenizer.unknown in segment.ids:
            return tuple(replace(term, start=0, end=0) for term in terms)
        return terms


NO_SAFEGUARDS = Safeguards(placeholders=False, faults=False, sentence_case=False, visible_characters=False)


def check_wording(segment: Segment, text: str, safeguards: Safeguards, refused: frozenset[str]) -> Wording:
    """Return which terms of its segment a translation has, and what is wrong with its words.

    refused: source terms that have no place, because they would have taken that of half a compound.
    """
    if not safeguards.demands_words(segment):
        return Wording()
    terms = check_terms(segment.terms, text)
    in_compounds, missed = find_in_compounds(terms.missed, text)
    matches = safeguards.forbidden_words.find(text) if safeguards.forbidden_words else []
    forbidden = dict.fromkeys(match.entry.source for match in matches)
    flags = [f"no {term}" for term in dict.fromkeys(missed)] + [f"has {word}" for word in forbidden]
    kept_out, lacking = ([term for term in missed if (term in refused) is out] for out in (True, False))
    return Wording(
        tuple(term.entry.source for term in terms.met), in_compounds, tuple(kept_out), tuple(lacking), tuple(flags)
    )


def judge(
    segment: Segment,
    text: str,
    hypothesis: Hypothesis,
    safeguards: Safeguards,
    scripts: tuple[str, ...],
    refused: frozenset[str] = frozenset(),
) -> Candidate:
    """Return a candidate with this text and a flag for each safeguard that it breaks.

    hypothesis: what the text was decoded from; scripts: those of the target language, see `find_faults`; refused: see
    `check_wording`.
    """
    faults: list[str] = []
    lost: list[str] = []
    invented: list[str] = []
    wrong: list[tuple[str, str]] = []  # numbers, with what they became
    if safeguards.faults:
        faults += find_faults(segment.text, text, finished=hypothesis.finished, scripts=scripts)
        if "empty" not in faults and is_empty(safeguards.bare(segment.text), safeguards.bare(text)):
            faults.append("empty")  # besides its placeholders
    if safeguards.placeholders:
        lost, invented = verbatim.compare(segment.text, text, safeguards.source_kinds, segment.prefix)
        missing, extra = verbatim.compare_numbers(segment.text, text, segment.prefix)
        wrong = list(zip(missing, extra, strict=False))
        lost, invented = lost + missing[len(extra) :], invented + extra[len(missing) :]
    faults += [f"number {number} is {other}" for number, other in wrong]
    faults += [f"lost {verbatim_text}" for verbatim_text in lost]
    faults += [f"invented {verbatim_text}" for verbatim_text in invented]
    begun = segment.target_tag_ids + segment.prefix_ids
    if segment.prefix_ids and hypothesis.tokens[: len(begun)] != begun:
        faults.append("lost prefix")
    wording = check_wording(segment, text, safeguards, refused)
    if lacking := [word for word in safeguards.find_doubtful(segment.text) if word.casefold() not in text.casefold()]:
        wording = replace(wording, flags=(*wording.flags, *(f"unknown {word}" for word in lacking)))
    return Candidate(text, hypothesis, tuple(faults), len(lost) + len(invented) + len(wrong), wording)


def replace_worse(candidates: list[Candidate], second: list[Candidate]) -> list[Candidate]:
    """Return the candidates of the first search, or those of the second one if its best is better; best first."""
    return candidates if second[0].badness >= candidates[0].badness else second


def merge_hypotheses(
    first: Sequence[Hypothesis], second: Sequence[Hypothesis], unmet: Callable[[Hypothesis], int], n: int
) -> list[Hypothesis]:
    """Return the hypotheses of two searches that leave the fewest demands unmet, at most n, best first.

    All others are dropped, so there may be fewer than n; one that both searches found is there once. unmet: how many
    demands a hypothesis leaves unmet. The best one of the first search stays the best where the second one found none
    that meets more.
    """
    hypotheses = {tuple(hypothesis.tokens): hypothesis for hypothesis in (*second, *first)}.values()
    counts = [unmet(hypothesis) for hypothesis in hypotheses]
    kept = [hypothesis for hypothesis, count in zip(hypotheses, counts, strict=True) if count == min(counts)]
    return sorted(kept, key=lambda hypothesis: (hypothesis is not first[0], -hypothesis.score))[:n]
