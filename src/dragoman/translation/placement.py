"""Put terms of a glossary in the place of the words that a translation has for them.

Attention over the source tells which words these are, and what stands around them stays. So a term comes where its
source word is translated, and the source word is not said twice. Attention alone is often wrong, so a word counts only
if it becomes much less probable without the source words of the term.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead, alignment_weights
from dragoman.alignment.words import character_spans
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.forced import max_positions, score
from dragoman.decoding.search import Hypothesis, length_penalty
from dragoman.model import Model
from dragoman.text.glossary import SENTENCE_END, TermMatch, check_terms
from dragoman.text.inflection import before_head, fitting_form, is_compound, is_form
from dragoman.translation.segments import Segment
from dragoman.translation.terms import OPEN, OPENING_MARKS, target_tokens, token_boundaries

MIN_ATTENTION = 0.2  # of the word that attends most to the source words of a term
BESIDE = 0.3  # the same, of words beside it that are replaced as well
MIN_LOSS = 1.0  # nats that the most affected token of the replaced word loses without the source words of the term

OWN_ATTENTION = 0.05  # of a form of the model's own word for a term

Span = tuple[int, int]  # start and end of tokens, as for a slice


@dataclass(frozen=True)
class Place:
    """Where a term goes: the tokens of a word."""

    span: Span
    own_word: str = ""  # the model's own word for the term, which the word is a form of, as far as that is known
    before: str = ""  # the other part of a compound that ends with a form of it; it stays


class TermPlacer:
    """Finds the words that translations have for terms, and replaces them."""

    def __init__(self, model: Model, tokenizers: Tokenizers, head: AlignmentHead):
        """Take the model that attends and decides between the forms of a term. head: its layer and head for that."""
        self.model, self.tokenizers, self.head = model, tokenizers, head
        self.boundaries = token_boundaries(tokenizers.target)

    def place(
        self,
        segments: Sequence[Segment],
        hypotheses: Sequence[Hypothesis],
        alpha: float,
        own_words: Sequence[Mapping[TermMatch, Sequence[str]]] | None = None,
    ) -> list[Hypothesis | None]:
        """Return each hypothesis with the missing terms of its segment in place.

        alpha: of the length penalty in the scores. own_words: words that the model says for the source of a term alone.
        A term has no place where no word attends to its source, or where the word that does is as probable without it;
        None where no missing term has one.
        """
        sources = [segment.source_ids for segment in segments]
        longest = max_positions(self.model) - 1
        rows = [
            row
            for row, (source, hypothesis) in enumerate(zip(sources, hypotheses, strict=True))
            if max(len(hypothesis.tokens), len(source)) <= longest
        ]
        chosen, outputs = [segments[row] for row in rows], [hypotheses[row].tokens for row in rows]
        maps = list(alignment_weights(self.model, [sources[row] for row in rows], outputs, self.head))
        said = [own_words[row] if own_words else {} for row in rows]
        terms = [self._missing(segment, tokens) for segment, tokens in zip(chosen, outputs, strict=True)]
        places = list(map(self._own_places, chosen, outputs, maps, terms, said))
        others = [[term for term in missing if term not in known] for missing, known in zip(terms, places, strict=True)]
        losses = self._losses(chosen, outputs, others)
        drafts = {
            row: draft
            for row, *known in zip(rows, chosen, outputs, maps, losses, places, said, strict=True)
            if (draft := self._draft(*known)) and len(draft) <= longest
        }
        likelihoods = score(self.model, [sources[row] for row in drafts], list(drafts.values()))
        placed: list[Hypothesis | None] = [None] * len(hypotheses)
        for (row, draft), likelihood in zip(drafts.items(), likelihoods, strict=True):
            total = likelihood.after(len(segments[row].target_tag_ids)).total
            value = total / length_penalty(len(draft) + 1, alpha)
            placed[row] = Hypothesis(draft, value, hypotheses[row].finished)
        return placed

    def _losses(
        self, segments: Sequence[Segment], outputs: Sequence[Ids], terms: Sequence[Sequence[TermMatch]]
    ) -> list[dict[TermMatch, Tensor]]:
        """Return, for each segment and each of its terms, what each token (T,) loses without the term, in nats.

        The term is deleted from the source. There is nothing for a term whose place in the source is unknown. outputs:
        the translations; terms: those of each segment to look at.
        """
        sources = [segment.source_ids for segment in segments]
        cases = [
            (row, term, [id for n, id in enumerate(sources[row]) if n not in columns])
            for row, segment in enumerate(segments)
            for term in terms[row]
            if (columns := set(self._columns(segment, term)))
        ]
        complete = score(self.model, sources, outputs)
        without = score(self.model, [source for _, _, source in cases], [outputs[row] for row, _, _ in cases])
        losses: list[dict[TermMatch, Tensor]] = [{} for _ in segments]
        for (row, term, _), likelihood in zip(cases, without, strict=True):
            losses[row][term] = torch.tensor(complete[row].log_p[:-1]) - torch.tensor(likelihood.log_p[:-1])
        return losses

    def _missing(self, segment: Segment, tokens: Ids) -> list[TermMatch]:
        """Return the terms whose targets a translation does not have as often as the source of the segment has them."""
        missed = {term.targets for term in check_terms(segment.terms, self.tokenizers.target.decode(tokens)).missed}
        return [term for term in segment.terms if term.targets in missed]

    def _own_places(
        self,
        segment: Segment,
        tokens: Ids,
        attention: Tensor,
        terms: Sequence[TermMatch],
        own_words: Mapping[TermMatch, Sequence[str]],
    ) -> dict[TermMatch, Place | None]:
        """Return where the model's own words for terms stand in a translation: forms of what it says for them alone.

        None for a term whose own word begins a compound, which would lose its other part. A term whose own words are
        not there, or attend to others, is not in the result.
        """
        places: dict[TermMatch, Place | None] = {}
        spans = self._words(tokens)
        for term in terms:
            columns = self._columns(segment, term)
            weights = attention[: len(tokens), columns].sum(1)
            best = OWN_ATTENTION
            for span, word in spans:
                if any(place and place.span == span for place in places.values()):
                    continue
                said = own_words.get(term, ())
                fitting = next((Place(span, own_word) for own_word in said if is_form(word, own_word)), None)
                compound = not fitting and any(is_compound(word, own_word) for own_word in said)
                if (fitting or compound) and float(weights[slice(*span)].max()) > best:
                    best = float(weights[slice(*span)].max())
                    heads = (
                        Place(span, own_word, before) for own_word in said if (before := before_head(word, own_word))
                    )
                    places[term] = fitting or next(heads, None)
        return places

    def _draft(
        self,
        segment: Segment,
        tokens: Ids,
        attention: Tensor,
        losses: Mapping[TermMatch, Tensor],
        places: Mapping[TermMatch, Place | None],
        own_words: Mapping[TermMatch, Sequence[str]],
    ) -> Ids | None:
        """Return the tokens of a translation with the missing terms that have a place there; None where none has one.

        attention (T+1, S+1): of the steps of the translation on the source with its tag; losses: see `_losses`, of the
        terms that have no place yet; places: see `_own_places`.
        """
        replaced: dict[Span, list[int]] = {}
        begun = len(segment.target_tag_ids) + len(segment.prefix_ids)
        for term in (*places, *losses):
            place = places.get(term)
            if term in losses:
                place = self._attending_place(segment, term, tokens, attention, losses[term], own_words.get(term, ()))
            if place is None or place.span[0] < begun:
                continue
            start, end = place.span
            if any(first < end and start < last for first, last in replaced):
                continue
            if not check_terms([term], self.tokenizers.target.decode(tokens[start:end])).met:
                replaced[start, end] = self._form(term, tokens, place)
        if not replaced or not all(replaced.values()):
            return None
        draft = list(tokens)
        for span, form in sorted(replaced.items(), reverse=True):
            draft[slice(*span)] = form
        return draft

    def _attending_place(
        self, segment: Segment, term: TermMatch, tokens: Ids, attention: Tensor, loss: Tensor, own_words: Sequence[str]
    ) -> Place | None:
        """Return the word that attends to the source of a term and needs it; None where there is none.

        A word that begins with a small letter where the model's own words for the term have capitals is none: it is
        one of grammar. Nor is a compound of them.
        """
        weights = attention[: len(tokens), self._columns(segment, term)].sum(1)
        span = self._place(tokens, weights, " " in term.entry.source)
        if span is None or not depends(loss, span) or not self._is_word(tokens, span):
            return None
        word = self.tokenizers.target.decode(tokens[slice(*span)]).strip()
        capital = bool(own_words) and all(own_word[:1].isupper() for own_word in own_words)
        if (capital and word[:1].islower()) or any(is_compound(word, own_word) for own_word in own_words):
            return None
        return Place(span)

    def _columns(self, segment: Segment, term: TermMatch) -> list[int]:
        """Return which tokens of the source of a segment, its tag included, belong to a term."""
        spans = [*[(0, 0)] * len(segment.tag_ids), *character_spans(self.tokenizers.source, segment.ids)]
        return [n for n, span in enumerate(spans) if max(span[0], term.start) < min(span[1], term.end)]

    def _place(self, tokens: Ids, attention: Tensor, several: bool) -> Span | None:
        """Return the span of the word for a term: the one that attends most. None where no word attends to its source.

        attention (T,): of each token on the source words of the term; tokens of punctuation do not count. several:
        whether the term has several source words, so that words beside that one may belong to it.
        """
        attention = attention * torch.tensor(
            [any(map(str.isalnum, self.tokenizers.target.pieces[id])) for id in tokens]
        )
        if not len(attention) or float(attention.max()) < MIN_ATTENTION:
            return None
        start, end = self._word(tokens, int(attention.argmax()))
        while (
            several and start > 0 and float(attention[slice(*(word := self._word(tokens, start - 1)))].max()) > BESIDE
        ):
            start = word[0]
        while (
            several and end < len(tokens) and float(attention[slice(*(word := self._word(tokens, end)))].max()) > BESIDE
        ):
            end = word[1]
        return start, end

    def _word(self, tokens: Ids, index: int) -> Span:
        """Return the span of the word that the token at `index` belongs to."""
        start, end = index, index + 1
        while start > 0 and self._is_continued(tokens, start):
            start -= 1
        while end < len(tokens) and self._is_continued(tokens, end):
            end += 1
        return start, end

    def _words(self, tokens: Ids) -> list[tuple[Span, str]]:
        """Return the span and the text of each word that may give way to a term."""
        words: list[tuple[Span, str]] = []
        start = 0
        while start < len(tokens):
            span = self._word(tokens, start)
            if self._is_word(tokens, span):
                words.append((span, self.tokenizers.target.decode(tokens[slice(*span)]).strip()))
            start = span[1]
        return words

    def _is_word(self, tokens: Ids, place: Span) -> bool:
        """Return whether a span is a whole word, or several, without digits: not "만큼" in "50만큼"."""
        start, end = place
        text = self.tokenizers.target.decode(tokens[start:end])
        begins = start == 0 or OPEN in (self.boundaries[tokens[start - 1]][1], self.boundaries[tokens[start]][0])
        return begins and any(map(str.isalpha, text)) and not any(map(str.isdigit, text))

    def _is_continued(self, tokens: Ids, index: int) -> bool:
        """Return whether the token at `index` continues the word of the token before it."""
        before, begin = self.boundaries[tokens[index - 1]][1], self.boundaries[tokens[index]][0]
        return before == begin != OPEN

    def _form(self, term: TermMatch, tokens: Ids, place: Place) -> list[int]:
        """Return the tokens of a term for the words at a place, after a space if these come after a space.

        Of its forms, the one that fits the form of these words, see `fitting_form`. Where there is a choice, it has a
        capital if the words have one because a sentence begins with them.
        """
        span = place.span
        replaced = self.tokenizers.target.decode(tokens[slice(*span)])
        before = self.tokenizers.target.decode(tokens[: span[0]]).rstrip()
        capital = replaced[:1].isupper() and (not before or before[-1] in SENTENCE_END or before[-1] in OPENING_MARKS)
        fitting = [target for target in term.targets if target[:1].isupper() == capital] or term.targets
        head = replaced.strip()[len(place.before) :]
        form = fitting_form(head, place.own_word, fitting) if place.own_word else fitting[0]
        if place.before:
            form = place.before + form.lower()
        spaced = self.tokenizers.target.pieces[tokens[span[0]]].startswith(" ")
        return list(target_tokens(form, self.tokenizers.target)[not spaced])


def depends(loss: Tensor, span: Span) -> bool:
    """Return whether the tokens of a span are less probable without the source words of a term; loss (T,): in nats."""
    return float(loss[slice(*span)].max()) >= MIN_LOSS
