"""Translate segments: search, check what was found, and search again for what is missing or faulty.

The stages of `SegmentSearch.translate`, in order: a plain search; terms of the glossary in the place of the model's own
words for them; a search that avoids forbidden words; and a second, more careful search where a translation is faulty.
Most segments need only the first.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from dragoman.alignment.heads import AlignmentHead, default_head
from dragoman.confidence.estimate import Confidence, Estimate
from dragoman.confidence.features import Features, measure
from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.search import Hypothesis, length_penalty
from dragoman.errors import DragomanError
from dragoman.model import Model
from dragoman.text import verbatim
from dragoman.text.casing import in_capitals
from dragoman.text.glossary import TermMatch
from dragoman.text.inflection import before_head, is_compound
from dragoman.text.word_forms import WordForms, forms_of, invented_words, unseen_words
from dragoman.translation.annotate import Annotator
from dragoman.translation.coverage import rerank_by_coverage
from dragoman.translation.placement import TermPlacer
from dragoman.translation.retry import (
    Retry,
    careful_search,
    copy_segment,
    find_links,
    prepare_retries,
    restore_placeholders,
    without_tags,
)
from dragoman.translation.safeguards import Safeguards, judge, merge_hypotheses, replace_worse
from dragoman.translation.segments import Candidate, Segment, SegmentResult, Wording
from dragoman.translation.terms import forbidden_sequences

MOST_SAID = 10_000
UNSURE = "unsure"  # the flag of a translation that is worth less than 99 of 100 others
STRANGE = "unlike the training"  # the flag of a text that is spelled so
TermKey = tuple[str, tuple[int, ...], tuple[int, ...]]  # a text and the tags in front of it and its translation
Ranked = list[Hypothesis]  # of one segment, best first


@dataclass(frozen=True)
class SegmentSearch:
    """Translates segments with an engine, and checks the results with a model and safeguards."""

    model: Model
    tokenizers: Tokenizers
    engine: Engine
    safeguards: Safeguards
    measured_alignment: AlignmentHead | None = None
    scripts: tuple[str, ...] = ()
    "in which the target language is written"
    wordless: bool = False
    "whether segments without words are searched for, too, because the model has learned to translate them"
    markup: bool = False
    "whether the model has learned to translate tags"
    confidence: Confidence | None = None
    "what tells how good a translation is"
    subwords: float = 0.0
    "for each letter, at most, in what the model has learned to read; 0.0 if nobody knows"

    @cached_property
    def alignment(self) -> AlignmentHead | None:
        """The layer and head that align words: measured, or else the default.

        None for a model without attention over its source.
        """
        if self.measured_alignment:
            return self.measured_alignment
        with contextlib.suppress(DragomanError):
            return default_head(self.model)
        return None

    @cached_property
    def annotator(self) -> Annotator:
        """What tells which source characters the words of a translation come from."""
        return Annotator(self.model, self.tokenizers, self.alignment)

    @cached_property
    def term_placer(self) -> TermPlacer | None:
        """What puts terms of a glossary into translations; None for a model without attention over its source."""
        return TermPlacer(self.model, self.tokenizers, self.alignment) if self.alignment else None

    @cached_property
    def said(self) -> dict[TermKey, tuple[str, ...]]:
        """The model's own words for terms of glossaries: what it says for a text with these tags."""
        return {}

    @cached_property
    def forbidden(self) -> tuple[tuple[int, ...], ...]:
        words = self.safeguards.forbidden_words
        return forbidden_sequences(words, self.tokenizers.target) if words else ()

    def translate(self, segments: Sequence[Segment], search: SearchConfig) -> list[SegmentResult]:
        """Return the candidates for each segment, best first; where the first was faulty, the best of several.

        The model reads one in capitals, Title Case or mixed case as a sentence; a translation gets back its capitals.
        """
        results = self._translate(list(map(self.read, segments)), search)
        return [
            self._shown(self._flag_strange(result), segment) for result, segment in zip(results, segments, strict=True)
        ]

    def read(self, segment: Segment) -> Segment:
        """Return a segment as the model reads it."""
        text = segment.text if segment.markup or segment.approved else self.safeguards.as_sentence(segment.text)
        if text == segment.text:
            return segment
        (ids,) = self.tokenizers.source.encode_sources([text])
        read = replace(segment, text=text, ids=ids)
        return replace(read, terms=self.safeguards.segment_terms(read, self.tokenizers.source))

    def _flag_strange(self, result: SegmentResult) -> SegmentResult:
        """Return a result with a flag if the words that the model read are spelled as none that it has learned."""
        text, most = result.segment.text, self.subwords
        if not most or not self.safeguards.faults or result.segment.subwords_per_letter <= most:
            return result
        bare = verbatim.remove(text, self.safeguards.source_kinds | verbatim.WITH_NUMBERS)[0]
        if Segment(bare, self.tokenizers.source.encode(bare)).subwords_per_letter <= most:
            return result
        candidates = [
            replace(each, wording=replace(each.wording, flags=(*each.wording.flags, STRANGE)))
            for each in result.candidates
        ]
        return replace(result, candidates=candidates)

    def _shown(self, result: SegmentResult, segment: Segment) -> SegmentResult:
        """Return a result for the segment as it was given: in capitals, if that is, and its prefix."""
        candidates, kinds = result.candidates, self.safeguards.kinds
        is_read = result.segment.text != segment.text
        if is_read and self.safeguards.casing(segment.text) == "capitals" and not any(map(str.islower, segment.prefix)):
            candidates = [replace(each, text=in_capitals(each.text, kinds)) for each in candidates]
        return replace(result, segment=segment, candidates=candidates)

    def _translate(self, segments: Sequence[Segment], search: SearchConfig) -> list[SegmentResult]:
        """Return the candidates for each segment as the model reads it, see `translate`."""
        first = self._search_once(segments, search)
        first = self._estimate(segments, first, search)
        best, retried = list(first), set[int]()
        for copied in self._ways():
            flagged = [
                row
                for row, (segment, candidates) in enumerate(zip(segments, best, strict=True))
                if candidates[0].faults
                and not segment.given
                and (not copied or self.safeguards.find_names(segment.text))
            ]
            if flagged:
                outputs = [(segments[row], first[row][0].text) for row in flagged]
                second = self._estimate(
                    [segments[row] for row in flagged], self._retry(outputs, search, copied), search
                )
                for row, candidates in zip(flagged, second, strict=True):
                    best[row] = replace_worse(best[row], candidates)
                retried.update(flagged)
        return [
            SegmentResult(segment, candidates, retried=row in retried)
            for row, (segment, candidates) in enumerate(zip(segments, best, strict=True))
        ]

    def _estimate(
        self, segments: Sequence[Segment], candidates: Sequence[list[Candidate]], search: SearchConfig
    ) -> list[list[Candidate]]:
        """Return the candidates for each segment with their features and what to expect of them, if that is known."""
        if self.confidence is None:
            return list(candidates)
        return [
            [self._estimated(segment, each, search, self.confidence) for each in ranked]
            for segment, ranked in zip(segments, candidates, strict=True)
        ]

    def _estimated(
        self, segment: Segment, candidate: Candidate, search: SearchConfig, confidence: Confidence
    ) -> Candidate:
        """Return a candidate with its features and what to expect of it, and flags for what nobody has taught."""
        features = self._features(segment, candidate, search, confidence.forms)
        if features is None:
            return candidate
        chrf = confidence.expect(features)
        flags = [UNSURE] if chrf < confidence.lowest else []
        if self.safeguards.faults:
            flags += [f"unseen: {word}" for word in self._unseen(segment)]
            flags += [f"invented: {word}" for word in self._invented(segment, candidate, confidence.forms)]
        wording = replace(candidate.wording, flags=(*candidate.wording.flags, *flags))
        return replace(candidate, wording=wording, features=features, estimate=Estimate(chrf, confidence.judge(chrf)))

    def _unseen(self, segment: Segment) -> list[str]:
        """Return the words of a segment that the training never had, but for those of the glossary."""
        known = self.safeguards.known_words
        if not known:
            return []
        terms = " ".join(segment.text[term.start : term.end] for term in segment.terms)
        return [word for word in unseen_words(segment.text, forms_of(known), known) if word not in terms]

    def _invented(self, segment: Segment, candidate: Candidate, forms: WordForms | None) -> list[str]:
        """Return the words of a candidate that neither its source nor the training explains, nor the glossary."""
        if not forms:
            return []
        given = " ".join([segment.text, *(target for term in segment.terms for target in term.targets)])
        return invented_words(given, candidate.text, forms)

    def _features(
        self, segment: Segment, candidate: Candidate, search: SearchConfig, forms: WordForms | None
    ) -> Features | None:
        """Return the features of a candidate; None for one that was not searched for, or has no score."""
        hypothesis = candidate.hypothesis
        tokens = len(hypothesis.tokens) - len(segment.target_tag_ids) - len(segment.prefix_ids)
        if hypothesis.score == 0.0 or not math.isfinite(hypothesis.score):
            return None
        return measure(
            segment.text,
            len(segment.ids),
            candidate.text,
            tokens,
            hypothesis.score * length_penalty(tokens + hypothesis.finished, search.length_penalty),
            len(candidate.faults),
            self.safeguards.known_words,
            forms,
        )

    def _ways(self) -> list[tuple[str, ...]]:
        """Return in which ways a faulty translation is repeated: with which other names, none for without its names."""
        copied = self.safeguards.known_words.copied if self.safeguards.known_words else ()
        return [copied, ()] if copied else [()]

    def _search_once(self, segments: Sequence[Segment], search: SearchConfig) -> list[list[Candidate]]:
        """Return the candidates for each segment, best first, all of one search, or copied where none is needed."""
        searched = [
            not (segment.markup or segment.given or whole_term(segment))
            and (self.wordless or self.safeguards.has_words(segment.text))
            for segment in segments
        ]
        tagless = {
            row: without_tags(segment, self.tokenizers.source, self.safeguards)
            for row, segment in enumerate(segments)
            if searched[row] and self._takes_tags_out(segment)
        }
        read = [tagless[row].bare if row in tagless else segment for row, segment in enumerate(segments)]
        rows = [row for row, is_searched in enumerate(searched) if is_searched]
        hypotheses = self._find_hypotheses([read[row] for row in rows], search)
        by_row = dict(zip(rows, hypotheses, strict=True))
        restored = self._restore(tagless, by_row) if tagless else {}
        return [
            restored[row]
            if row in restored
            else [self._judge(segment, self._text(hypothesis), hypothesis) for hypothesis in by_row[row]]
            if row in by_row
            else [self._without_search(segment)]
            for row, segment in enumerate(segments)
        ]

    def _takes_tags_out(self, segment: Segment) -> bool:
        """Return whether the model reads a segment without its tags: it has not learned what they are.

        Tags that could not even be put back into the source itself, such as "<i title='<b>x</b>'></i>", stay.
        """
        if self.markup or not self.safeguards.placeholders or not verbatim.TAG_SIGN.search(segment.text):
            return False
        plain, removed = verbatim.remove(segment.text, verbatim.TAGS)
        same_places = [(index, index) for index in range(len(plain))]
        return bool(removed) and verbatim.restore(plain, plain, removed, same_places) == segment.text

    def _without_search(self, segment: Segment) -> Candidate:
        """Return the translation that is given for a segment, or else a copy of it, after its prefix if it has one."""
        if target := whole_term(segment):
            tokens = segment.target_tag_ids + self.tokenizers.target.encode(target)
            return self._judge(segment, target, Hypothesis(tokens, 0.0))
        if segment.approved:
            tokens = segment.target_tag_ids + segment.prefix_ids
            return Candidate(segment.prefix, Hypothesis(tokens, 0.0), wording=Wording(flags=(segment.approved,)))
        if segment.given:
            return self._judge(segment, segment.prefix, Hypothesis(segment.target_tag_ids + segment.prefix_ids, 0.0))
        if not segment.prefix:
            return Candidate(segment.text.strip(), Hypothesis([], 0.0))
        (retry,) = prepare_retries([segment], self.tokenizers.source, self.safeguards)
        return Candidate(copy_segment(retry, self.safeguards), Hypothesis([], 0.0))

    def _retry(
        self, flagged: Sequence[tuple[Segment, str]], search: SearchConfig, copied: Sequence[str]
    ) -> list[list[Candidate]]:
        """Return the candidates for each segment, best first, of a more careful search without its placeholders.

        flagged: segments and their first translations; copied: names that stand for others. See `retry`. Without
        words, the only candidate is a copy of the segment.
        """
        segments, outputs = [segment for segment, _ in flagged], [output for _, output in flagged]
        retries = list(prepare_retries(segments, self.tokenizers.source, self.safeguards, outputs, copied))
        with_words = {row: retry for row, retry in enumerate(retries) if retry.has_words}
        hypotheses = self._find_hypotheses([retry.bare for retry in with_words.values()], careful_search(search))
        restored = self._restore(with_words, dict(zip(with_words, hypotheses, strict=True)))
        return [
            restored[row] if row in restored else [Candidate(copy_segment(retry, self.safeguards), Hypothesis([], 0.0))]
            for row, retry in enumerate(retries)
        ]

    def _restore(self, retries: Mapping[int, Retry], hypotheses: Mapping[int, Ranked]) -> dict[int, list[Candidate]]:
        """Return the candidates of hypotheses for bare segments, with the placeholders of the whole ones, by row."""
        pairs = [(row, retry, hypothesis) for row, retry in retries.items() for hypothesis in hypotheses[row]]
        linked = [(retry, hypothesis.tokens) for _, retry, hypothesis in pairs if retry.needs_links]
        links = iter(find_links([retry for retry, _ in linked], [tokens for _, tokens in linked], self.annotator))
        candidates: dict[int, list[Candidate]] = {row: [] for row in retries}
        for row, retry, hypothesis in pairs:
            of_pair = next(links) if retry.needs_links else None
            text = restore_placeholders(retry, self._text(hypothesis), of_pair, self.safeguards)
            candidates[row].append(self._judge(retry.segment, text, hypothesis))
        return candidates

    def _judge(self, segment: Segment, text: str, hypothesis: Hypothesis) -> Candidate:
        """Return the candidate with this text, flagged wherever it breaks the safeguards."""
        return judge(segment, text, hypothesis, self.safeguards, self.scripts, self._refused_terms(segment, text))

    def _find_hypotheses(self, segments: Sequence[Segment], search: SearchConfig) -> list[Ranked]:
        """Return the hypotheses for each segment, best first, that have its prefix and terms and no forbidden words.

        What a plain search finds stays where it has all its terms and nothing forbidden. Missing terms are put in the
        place of the model's own words for them, which removes these words if they are forbidden. Other forbidden words
        are avoided by a second search.
        """
        plain = self.search([segment.source_ids for segment in segments], search, list(map(constraints_of, segments)))
        hypotheses = self._place_terms(segments, plain, search)
        return self._avoid_forbidden(segments, hypotheses, search)

    def search(
        self, sources: Sequence[Ids], search: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[Ranked]:
        """Return the engine's hypotheses for each source, best first, at most `n_best`, without any safeguards.

        With a coverage penalty the engine returns its whole beam, and the penalty decides the order before the last
        ones are dropped. Without attention over the source there is no penalty.
        """
        if not search.coverage_penalty or self.alignment is None:
            return self.engine.search(sources, search, constraints)
        all_beams = replace(search, n_best=search.beam, coverage_penalty=0.0)
        hypotheses = self.engine.search(sources, all_beams, constraints)
        ranked = rerank_by_coverage(self.model, sources, hypotheses, search.coverage_penalty, self.alignment)
        return [best[: search.n_best] for best in ranked]

    def _place_terms(
        self, segments: Sequence[Segment], hypotheses: Sequence[Ranked], search: SearchConfig
    ) -> list[Ranked]:
        """Return the hypotheses, those without all their terms with the terms in place, where that can be done."""
        placed = [list(ranked) for ranked in hypotheses]
        missing = [
            (row, rank)
            for row, ranked in enumerate(placed)
            for rank, hypothesis in enumerate(ranked)
            if segments[row].terms and self._unmet(segments[row], hypothesis)
        ]
        if not missing or self.term_placer is None:
            return placed
        chosen = [segments[row] for row, _ in missing]
        drafts = self.term_placer.place(
            chosen, [placed[row][rank] for row, rank in missing], search.length_penalty, self._say_terms(chosen)
        )
        for (row, rank), draft in zip(missing, drafts, strict=True):
            if draft and self._unmet(segments[row], draft) < self._unmet(segments[row], placed[row][rank]):
                placed[row][rank] = draft
        for row in {row for row, _ in missing}:  # with their terms they have other scores, and two may be the same
            best, *others = {tuple(hypothesis.tokens): hypothesis for hypothesis in placed[row]}.values()
            others.sort(key=lambda hypothesis: (self._unmet(segments[row], hypothesis), -hypothesis.score))
            placed[row] = [best, *others]
        return placed

    def _say_terms(self, segments: Sequence[Segment]) -> list[dict[TermMatch, tuple[str, ...]]]:
        """Return for each term of each segment the single words that the model says for its source alone."""
        keys = [{term: key_of(segment, term) for term in segment.terms} for segment in segments]
        if len(self.said) > MOST_SAID:
            self.said.clear()
        unsaid = [key for key in dict.fromkeys(key for each in keys for key in each.values()) if key not in self.said]
        ids = self.tokenizers.source.encode_sources([text for text, _, _ in unsaid])
        sources = [list(tag) + text for (_, tag, _), text in zip(unsaid, ids, strict=True)]
        tags = [Constraints(tag=tag) for _, _, tag in unsaid]
        hypotheses = self.engine.search(sources, SearchConfig(beam=4, n_best=4), tags) if unsaid else []
        for key, ranked in zip(unsaid, hypotheses, strict=True):
            outputs = [self._text(hypothesis).strip(" .,:;!?…") for hypothesis in ranked]
            words = dict.fromkeys(output for output in outputs if len(output) > 1 and " " not in output)
            # "Vorlage", not "Dokumentvorlage": of a compound, a term takes the place of its head alone.
            self.said[key] = tuple(word for word in words if not any(before_head(word, other) for other in words))
        return [{term: self.said.get(key, ()) for term, key in of_segment.items()} for of_segment in keys]

    def _refused_terms(self, segment: Segment, text: str) -> frozenset[str]:
        """Return the source terms whose own word is a part of a compound in a text: no term takes its place there."""
        return frozenset(
            term.entry.source
            for term in segment.terms
            for own_word in self.said.get(key_of(segment, term), ())
            if any(is_compound(word, own_word) for word in text.split())
        )

    def _avoid_forbidden(
        self, segments: Sequence[Segment], hypotheses: list[Ranked], search: SearchConfig
    ) -> list[Ranked]:
        """Return the hypotheses, merged with those of a search without forbidden words where some have any."""
        rows = [
            row for row, ranked in enumerate(hypotheses) if self.forbidden and any(map(self._has_forbidden, ranked))
        ]
        if not rows:
            return hypotheses
        chosen = [segments[row] for row in rows]
        constraints = [replace(constraints_of(segment), forbidden=self.forbidden) for segment in chosen]
        without = self.search([segment.source_ids for segment in chosen], search, constraints)
        second = dict(zip(rows, self._place_terms(chosen, without, search), strict=True))
        return self._merge(segments, hypotheses, second, search.n_best)

    def _merge(
        self, segments: Sequence[Segment], first: Sequence[Ranked], second: Mapping[int, Ranked], n_best: int
    ) -> list[Ranked]:
        """Return the hypotheses of a first search; for each row of a second one the best of both, see `safeguards`."""
        merged = list(first)
        for row, ranked in second.items():
            merged[row] = merge_hypotheses(first[row], ranked, partial(self._unmet, segments[row]), n_best)
        return merged

    def _unmet(self, segment: Segment, hypothesis: Hypothesis) -> int:
        """Return how many terms of its segment a hypothesis lacks, and how many forbidden words it has."""
        return self.safeguards.unmet(segment, self._text(hypothesis))

    def _has_forbidden(self, hypothesis: Hypothesis) -> bool:
        return self.safeguards.is_forbidden(self._text(hypothesis))

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.tokenizers.target.decode(hypothesis.tokens)


def constraints_of(segment: Segment) -> Constraints:
    """Return what the translation of a segment has to begin with."""
    return Constraints(tuple(segment.prefix_ids), tag=tuple(segment.target_tag_ids))


def whole_term(segment: Segment) -> str:
    """Return the translation of a segment that is a term of the glossary, but for the marks around it; '' for others.

    It begins as the segment does: with a capital or without.
    """
    if len(segment.terms) != 1 or segment.prefix or not segment.terms[0].end:
        return ""
    (term,) = segment.terms
    before, after = segment.text[: term.start], segment.text[term.end :]
    if any(map(str.isalnum, before + after)):
        return ""
    is_capital = segment.text[term.start].isupper()
    target = next((each for each in term.targets if each[:1].isupper() == is_capital), term.targets[0])
    return f"{before}{target}{after}".strip()


def key_of(segment: Segment, term: TermMatch) -> TermKey:
    """Return what the model is asked, to know its own words for a term."""
    text = segment.text[term.start : term.end] or term.entry.source
    return text, tuple(segment.tag_ids), tuple(segment.target_tag_ids)
