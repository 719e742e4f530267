"""Put terms of a glossary in the place of the words that a translation has for them.

Attention over the source tells which words these are, and what stands around them stays. So a term comes where its
source word is translated, and the source word is not said twice. Attention alone is often wrong, so a word counts only
if it becomes much less probable without the source words of the term.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from dragoman.alignment.heads import AlignmentHead, alignment_weights
from dragoman.alignment.words import character_spans
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Term
from dragoman.decoding.forced import Likelihood, leave_room_for_eos, max_positions, score
from dragoman.decoding.search import Hypothesis, length_penalty
from dragoman.decoding.terms import OPEN
from dragoman.model import Model
from dragoman.text.glossary import SENTENCE_END, TermMatch, check_terms
from dragoman.translation.segments import Segment
from dragoman.translation.terms import OPENING_MARKS, target_tokens, token_boundaries, token_sequences

MIN_ATTENTION = 0.2  # of the word that attends most to the source words of a term
BESIDE = 0.3  # the same, of words beside it that are replaced as well
MIN_LOSS = 1.0  # nats that the most affected token of the replaced word loses without the source words of the term
MAX_LOSS = 1.0  # nats for each token around the terms, of a translation that has to say them

Span = tuple[int, int]  # start and end of tokens, as for a slice


class TermPlacer:
    """Finds the words that translations have for terms, and replaces them."""

    def __init__(self, model: Model, tokenizers: Tokenizers, head: AlignmentHead):
        """Take the model that attends and decides between the forms of a term. head: its layer and head for that."""
        self.model, self.tokenizers, self.head = model, tokenizers, head
        self.boundaries = token_boundaries(tokenizers.target)

    def place(
        self, segments: Sequence[Segment], hypotheses: Sequence[Hypothesis], alpha: float
    ) -> list[Hypothesis | None]:
        """Return each hypothesis with the missing terms of its segment in place, in their most probable forms.

        alpha: of the length penalty in the scores. A term has no place where no word attends to its source, or where
        the word that does is as probable without it; None where no missing term has one.
        """
        sources = [segment.source_ids for segment in segments]
        longest = max_positions(self.model) - 1
        rows = [
            row
            for row, (source, hypothesis) in enumerate(zip(sources, hypotheses, strict=True))
            if max(len(hypothesis.tokens), len(source)) <= longest
        ]
        outputs = [hypotheses[row].tokens for row in rows]
        maps = alignment_weights(self.model, [sources[row] for row in rows], outputs, self.head)
        terms = [self._missing(segments[row], tokens) for row, tokens in zip(rows, outputs, strict=True)]
        losses = self._losses([segments[row] for row in rows], outputs, terms)
        drafts = [
            (row, draft)
            for row, attention, loss in zip(rows, maps, losses, strict=True)
            for draft in self._drafts(segments[row], hypotheses[row].tokens, attention, loss)
            if len(draft) <= longest
        ]
        scored: dict[int, list[Hypothesis]] = defaultdict(list)
        likelihoods = score(self.model, [sources[row] for row, _ in drafts], [draft for _, draft in drafts])
        for (row, draft), likelihood in zip(drafts, likelihoods, strict=True):
            of_words = likelihood.after(len(segments[row].target_tag_ids))
            value = of_words.total / length_penalty(len(draft) + 1, alpha)
            scored[row].append(Hypothesis(draft, value, hypotheses[row].finished))
        return [max(scored[row], key=attrgetter("score"), default=None) for row in range(len(hypotheses))]

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

    def _drafts(
        self, segment: Segment, tokens: Ids, attention: Tensor, losses: Mapping[TermMatch, Tensor]
    ) -> Iterator[Ids]:
        """Yield the tokens of a translation with the missing terms that have a place there, once for each form.

        Yield nothing where a missing term has no place of its own or no tokens, or where none has to be put in.
        attention (T+1, S+1): of the steps of the translation on the source with its tag; losses: see `_losses`.
        """
        replaced: dict[Span, TermMatch] = {}
        begun = len(segment.target_tag_ids) + len(segment.prefix_ids)
        for term, loss in losses.items():
            source = self._columns(segment, term)
            place = self._place(tokens, attention[: len(tokens), source].sum(1), " " in term.entry.source)
            if place is None or place[0] < begun:
                continue
            if any(start < place[1] and place[0] < end for start, end in replaced):
                continue
            if not depends(loss, place) or not self._is_word(tokens, place):
                continue
            if not check_terms([term], self.tokenizers.target.decode(tokens[slice(*place)])).met:
                replaced[place] = term
        forms = {place: self._forms(term, tokens, place) for place, term in sorted(replaced.items(), reverse=True)}
        if not all(forms.values()):
            return
        for number in range(max(map(len, forms.values()), default=0)):
            draft = list(tokens)
            for place, of_term in forms.items():
                draft[slice(*place)] = of_term[number % len(of_term)]
            yield draft

    def stand(self, segments: Sequence[Segment], outputs: Sequence[Ids]) -> list[bool]:
        """Return whether the terms of each segment stand in its translation where the model reads their sources.

        A term that a search was made to say may stand anywhere, such as in front of the sentence. Those that are not in
        a translation do not count, nor those whose positions in the source are unknown. outputs: the translations.
        """
        sources = [segment.source_ids for segment in segments]
        outputs = leave_room_for_eos(self.model, outputs)
        maps = alignment_weights(self.model, sources, outputs, self.head)
        losses = self._losses(segments, outputs, [segment.terms for segment in segments])
        return [
            all(self._stands(segment, term, tokens, attention, loss) for term, loss in of_terms.items() if term.end)
            for segment, tokens, attention, of_terms in zip(segments, outputs, maps, losses, strict=True)
        ]

    def _stands(self, segment: Segment, term: TermMatch, tokens: Ids, attention: Tensor, loss: Tensor) -> bool:
        """Return whether a term stands where the model reads its source, or not at all; see `stand`."""
        weights = attention[:, self._columns(segment, term)].sum(1)
        (sequences,) = token_sequences([term], self.tokenizers.target)
        there = [
            (start, start + len(sequence))
            for sequence in sequences
            for start in range(len(tokens) - len(sequence) + 1)
            if tuple(tokens[start : start + len(sequence)]) == sequence
        ]
        return not there or any(
            float(weights[slice(*span)].max()) >= MIN_ATTENTION and depends(loss, span) for span in there
        )

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

    def _forms(self, term: TermMatch, tokens: Ids, place: Span) -> list[Ids]:
        """Return the tokens of each form of a term for the words at `place`, after a space if these come after a space.

        Where there is a choice, they have a capital if the words have one because a sentence begins with them.
        """
        replaced = self.tokenizers.target.decode(tokens[slice(*place)])
        before = self.tokenizers.target.decode(tokens[: place[0]]).rstrip()
        capital = replaced[:1].isupper() and (not before or before[-1] in SENTENCE_END or before[-1] in OPENING_MARKS)
        fitting = [target for target in term.targets if target[:1].isupper() == capital] or term.targets
        spaced = self.tokenizers.target.pieces[tokens[place[0]]].startswith(" ")
        forms = [list(target_tokens(target, self.tokenizers.target)[not spaced]) for target in fitting]
        return [form for form in forms if form]


def depends(loss: Tensor, span: Span) -> bool:
    """Return whether the tokens of a span are less probable without the source words of a term; loss (T,): in nats."""
    return float(loss[slice(*span)].max()) >= MIN_LOSS


def far_less_probable(
    model: Model, sources: Sequence[Ids], plain: Sequence[Ids], bound: Sequence[Ids], terms: Sequence[Sequence[Term]]
) -> list[bool]:
    """Return whether the words around its terms are so improbable in each translation that it makes no sense.

    They are held against a plain translation of the same source. sources: with tags; plain, bound: the tokens of the
    translations without and with terms; terms: those of each source.
    """
    free, forced = (score(model, sources, leave_room_for_eos(model, outputs)) for outputs in (plain, bound))
    return [
        without_terms.mean - mean_around(with_terms, of_source) > MAX_LOSS
        for without_terms, with_terms, of_source in zip(free, forced, terms, strict=True)
    ]


def mean_around(likelihood: Likelihood, terms: Sequence[Term]) -> float:
    """Return the mean log-probability of the tokens that belong to no term, EOS included."""
    inside: set[int] = set()
    for sequence in (sequence for term in terms for sequence in term):
        for start in range(len(likelihood.tokens) - len(sequence) + 1):
            if tuple(likelihood.tokens[start : start + len(sequence)]) == sequence:
                inside.update(range(start, start + len(sequence)))
    around = [log_p for index, log_p in enumerate(likelihood.log_p) if index not in inside]
    return sum(around) / len(around)
