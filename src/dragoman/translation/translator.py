"""Translate text: cut it into segments, search, check the results, search again for the faulty ones, and join them.

Ids, models and search lie below this module, commands above it.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import compress, islice, pairwise
from pathlib import Path
from typing import Never, overload

import torch

from dragoman.alignment.heads import AlignmentHead, default_head
from dragoman.alternatives import find_words, likely_starts, next_word_start
from dragoman.config import ComputeType, Device, EngineName, SearchConfig
from dragoman.config.fields import Count, changed_fields, check_argument
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.search import Hypothesis
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model, parameter_count
from dragoman.model_folder import find_model
from dragoman.text.extent import SourceExtent
from dragoman.text.glossary import TermMatch
from dragoman.text.scripts import read_scripts
from dragoman.text.segmentation import split_sentences
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.translation.annotate import Annotator
from dragoman.translation.arguments import refuse_unknown
from dragoman.translation.coverage import rerank_by_coverage
from dragoman.translation.engines import open_engine, read_models, torch_engine
from dragoman.translation.placement import TermPlacer, far_less_probable
from dragoman.translation.retry import Retry, careful_search, copy_segment, prepare_retries, restore_placeholders
from dragoman.translation.safeguards import (
    Candidate,
    Safeguards,
    SegmentResult,
    judge,
    merge_hypotheses,
    replace_worse,
)
from dragoman.translation.segments import Segment, Segmenter, divide_prefix
from dragoman.translation.terms import forbidden_sequences, insert_terms, token_sequences
from dragoman.translation.translation import Alternative, Translation

MAX_SOURCE_TOKENS = 512  # EOS not included; longer texts are cut
LINE_END = re.compile(r"\r?\n\Z")
PARTING_TAG = re.compile(r"</|<br\b", re.IGNORECASE)
WIDE_ENDS = frozenset("。．！？｡」』”）")  # of sentences that no space follows


class Translator:
    """Translates texts: `Translator.load("runs/mine").translate("A sentence.")` is a `Translation`.

    A translator has a model, an engine, search settings and safeguards, and never changes: `replace` returns another
    one that shares the model. Several threads may use one at the same time.
    """

    def __init__(
        self,
        model: Model,
        tokenizers: SideTokenizer | Tokenizers | None = None,
        search: SearchConfig = SearchConfig(),
        safeguards: Safeguards = Safeguards(),
        engine: Engine | None = None,
        *,
        alignment: AlignmentHead | None = None,
        scripts: tuple[str, ...] = (),
        extent: SourceExtent | None = None,
        tag: str = "",
        target_tag: str = "",
        **unknown: Never,
    ):
        """Take the parts of a translator; `load` reads them from a model folder. Raise UsageError for wrong settings.

        model: what scores and aligns words, and what the engine is made of where none is given; tokenizers: the one of
        both sides, or those of source and target; alignment: its layer and head for word alignments, None where they
        were not measured; scripts: in which the target language is written, as `text.scripts` names them; extent: how
        much text a training source had, None for a sentence; tag, target_tag: those of texts for which `translate` is
        given none.
        """
        if tokenizers is None or isinstance(model, str | Path):  # what people try first
            folder = str(model) if isinstance(model, str | Path) else "runs/mine"
            raise UsageError(f"to open a model folder: Translator.load({folder!r}); Translator takes a model in memory")
        if unknown:
            refuse_unknown(Translator, unknown)
        if not hasattr(model, "parameters"):
            raise UsageError(f"model must be a model in memory, such as a Transformer, not {model!r}")
        check_argument("tokenizers", tokenizers, SideTokenizer | Tokenizers)
        for name, value, kind in (("search", search, SearchConfig), ("safeguards", safeguards, Safeguards)):
            if not isinstance(value, kind):
                raise UsageError(f"{name} must be a {kind.__name__}, not {value!r}")
        self.model, self.tokenizers, self.search, self.safeguards = model, Tokenizers.of(tokenizers), search, safeguards
        self.engine = engine or torch_engine([model], self.tokenizers.target)
        plain = search.temperature is None and search.beam_groups == 1
        if safeguards.glossary and self.engine.forces_terms and not plain:
            raise UsageError("a glossary needs a plain beam search: no temperature, and no groups of beams")
        self.measured_alignment, self.scripts = alignment, scripts
        self.extent = extent or SourceExtent(1, MAX_SOURCE_TOKENS)
        self.segmenter = Segmenter(self.tokenizers.source, self.extent, search.split, keep_tags=safeguards.placeholders)
        self.tokenizers.source.tag_ids(tag)  # raises for an unknown one
        self.tag, self.target_tag, self.target_tag_ids = tag, target_tag, self.tokenizers.target.tag_ids(target_tag)
        self.forbidden = forbidden_sequences(safeguards.forbidden_words, self.tokenizers.target)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        search: SearchConfig = SearchConfig(),
        safeguards: Safeguards = Safeguards(),
        ensemble: Sequence[str | Path] = (),
        *,
        device: Device | torch.device = "auto",
        engine: EngineName = "native",
        compute_type: ComputeType = "float32",
        threads: int | None = None,
        replicas: int = 1,
        target_tag: str = "",
        **unknown: Never,
    ) -> "Translator":
        """Open a model folder or run folder.

        search, safeguards: how to search, and what to check in every translation. ensemble: further models, whose
        probabilities are averaged with those of the first. device: where the native engine computes. engine: 'native',
        or 'ctranslate2', usually the fastest on CPUs. compute_type: what the engine multiplies in, 'float32',
        'bfloat16' or, on a CPU, 'int8'; 'auto' for the one that is fastest in batches, on a GPU 'float32'. threads: on
        the CPU; None: as many as PyTorch uses. PyTorch has one number for the whole process, which the native engine
        sets. replicas: how many threads of the caller may search with CTranslate2 at the same time; the native engine
        takes any number.
        target_tag: what every translation begins with, such as its language, for models trained with such tags; '' for
        the one that the folder records, if any.

        Raise DragomanError naming the file where a model folder is missing or damaged, and the folder where a model has
        other tokenizers than the first; UsageError for settings that the engine lacks, and for unknown arguments.
        """
        if unknown:
            refuse_unknown(cls.load, unknown)
        check_argument("folder", folder, str | Path)
        folder = find_model(Path(folder))
        (models, tokenizers), tags = read_models(folder, ensemble, device), DefaultTags.load(folder)
        extent = SourceExtent.load(folder) or SourceExtent(1, MAX_SOURCE_TOKENS)
        tagged = extent.tagged or LanguageTags.load(folder) is not None
        return cls(
            models[0],
            tokenizers,
            search,
            safeguards,
            open_engine(
                engine,
                folder,
                models,
                tokenizers.target,
                search,
                compute_type=compute_type,
                threads=threads,
                replicas=replicas,
            ),
            alignment=AlignmentHead.load(folder),
            scripts=read_scripts(folder),
            extent=replace(extent, tagged=tagged),
            tag=tags.source,
            target_tag=target_tag or tags.target,
        )

    def __repr__(self) -> str:
        search = ", ".join(f"{name} {value}" for name, value in changed_fields(self.search).items())
        return (
            f"<Translator: {self.model.config}; {parameter_count(self.model):,} parameters, "
            f"{self.tokenizers}; {self.engine}; {search or f'beam {self.search.beam}'}>"
        )

    def replace(
        self,
        *,
        search: SearchConfig | None = None,
        safeguards: Safeguards | None = None,
        engine: Engine | None = None,
        tag: str | None = None,
        target_tag: str | None = None,
        **unknown: Never,
    ) -> "Translator":
        """Return a translator with the same model and these parts in the place of its own.

        Raise UsageError for unknown arguments.
        """
        if unknown:
            refuse_unknown(self.replace, unknown)
        return Translator(
            self.model,
            self.tokenizers,
            search or self.search,
            safeguards or self.safeguards,
            engine or self.engine,
            alignment=self.measured_alignment,
            scripts=self.scripts,
            extent=self.extent,
            tag=self.tag if tag is None else tag,
            target_tag=self.target_tag if target_tag is None else target_tag,
        )

    @property
    def max_source_tokens(self) -> int:
        """The most tokens that a source may have in one search, EOS not included; longer ones are cut."""
        return min(MAX_SOURCE_TOKENS, (self.engine.max_positions or MAX_SOURCE_TOKENS + 1) - 1)

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
        """The annotator that scores and aligns words with the model; with the first one of an ensemble."""
        return Annotator(self.model, self.tokenizers, self.alignment, self.tag, self.target_tag)

    @cached_property
    def term_placer(self) -> TermPlacer | None:
        """What puts terms of a glossary into translations; None for a model without attention over its source."""
        if self.alignment is None:
            return None
        return TermPlacer(self.model, self.tokenizers, self.alignment, len(self.target_tag_ids))

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is a sequence of strings, but is not meant as one
        self,
        texts: str,
        tags: str | Sequence[str] = "",
        prefixes: str | Sequence[str] = "",
        *,
        beam: int | None = None,
        n_best: int | None = None,
        alignments: bool = False,
        target_tags: str | Sequence[str] = "",
    ) -> Translation: ...

    @overload
    def translate(
        self,
        texts: Iterable[str],
        tags: str | Sequence[str] = "",
        prefixes: str | Sequence[str] = "",
        *,
        beam: int | None = None,
        n_best: int | None = None,
        alignments: bool = False,
        target_tags: str | Sequence[str] = "",
    ) -> list[Translation]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        tags: str | Sequence[str] = "",
        prefixes: str | Sequence[str] = "",
        *,
        beam: int | None = None,
        n_best: int | None = None,
        alignments: bool = False,
        target_tags: str | Sequence[str] = "",
    ) -> Translation | list[Translation]:
        """Return the translation of a text; of several texts a list, in order.

        White space around a text is left out, so that lines of a file may be passed as they are read; blank text stays
        as it is, without its line end. Line feeds in a text become spaces.

        tags: those that the model was trained with, one for each text, or one for all; '' for that of the translator,
        which is none unless the model folder records one.
        prefixes: how the translations begin, one for each text, or one for all. Where a prefix goes beyond the first
        sentence of a text, its complete sentences are taken as the translations of as many sentences of the text; they
        add nothing to the score.
        beam, n_best: in place of those of `search`; n_best: how many translations, see `Translation.alternatives`.
        alignments: also align the words, see `Translation.alignment`.
        target_tags: tags that the translations begin with, such as the language that they are in, one for each text, or
        one for all; '' for that of the translator. They are not part of a translation, and do not count for its score.

        Raise DragomanError for an unknown tag, naming those that there are, and UsageError for texts that are not
        strings.
        """
        beam, n_best = (self.search.beam if beam is None else beam), (self.search.n_best if n_best is None else n_best)
        search = replace(self.search, beam=beam, n_best=n_best)
        if search != self.search:
            return self.replace(search=search).translate(
                texts, tags, prefixes, alignments=alignments, target_tags=target_tags
            )
        single = isinstance(texts, str)
        texts = checked_texts(texts)
        tags, prefixes = for_each("tags", tags, texts), for_each("prefixes", prefixes, texts)
        target_tags = [tag or self.target_tag for tag in for_each("target_tags", target_tags, texts)]
        by_tag: dict[str, list[int]] = {}
        for index, target_tag in enumerate(target_tags):
            by_tag.setdefault(target_tag, []).append(index)
        if {*by_tag} - {self.target_tag}:
            found: dict[int, Translation] = {}
            for target_tag, rows in by_tag.items():
                given = ([own[row] for row in rows] for own in (texts, tags, prefixes))
                found |= zip(
                    rows, self.replace(target_tag=target_tag).translate(*given, alignments=alignments), strict=True
                )
            return found[0] if single else [found[row] for row in range(len(texts))]
        inner = [text.strip() for text in texts]  # no training source has white space around it
        ids = self.tokenizers.source.encode_sources(inner)
        segments = [self._segments(*text) for text in zip(inner, ids, tags, prefixes, strict=True)]
        results = iter(self._translate_segments([segment for of_text in segments for segment in of_text]))
        translations = [
            join_segments([next(results) for _ in of_text])
            if of_text
            else Translation(one_line(LINE_END.sub("", text)), 0.0)
            for text, of_text in zip(texts, segments, strict=True)
        ]
        if alignments:
            translations = self._align(translations, tags)
        return translations[0] if single else translations

    def alternatives(
        self, text: str, prefix: str = "", tag: str = "", *, count: int = 8, **unknown: Never
    ) -> list[Alternative]:
        """Return the words that may come next where the translation of a text begins with `prefix`, likeliest first.

        If the prefix is empty or ends in a space, they are different words for the next place; if it ends within a
        word, they are words that begin with that part. There are at most `count`, and none for a text without words. In
        a text of several segments, the words are those of the segment in which the prefix ends, see `translate`. tag:
        as for `translate`. Raise UsageError for unknown arguments.
        """
        if unknown:
            refuse_unknown(self.alternatives, unknown)
        for name, given in (("text", text), ("prefix", prefix), ("tag", tag)):
            check_argument(name, given, str)
        check_argument("count", count, Count)
        segments = self._segments(text.strip(), self.tokenizers.source.encode_sources([text.strip()])[0], tag, prefix)
        open_ones = (index for index, one in enumerate(segments) if one.has_words and not (one.markup or one.given))
        if (place := next(open_ones, None)) is None:
            return []
        prefix = segments[place].prefix and segments[place].prefix + prefix[len(prefix.rstrip()) :]
        source = self._source_ids(segments[place])
        starts = likely_starts(
            self.model, self.tokenizers.target, source, prefix, 2 * count, target_tag=self.target_tag_ids
        )
        if not prefix or prefix[-1].isspace():  # no word is begun that must stay
            forbidden = {tuple(tokens) for tokens in self.forbidden}
            lengths = {len(tokens) for tokens in forbidden}
            starts = [start for start in starts if not any(tuple(start.tokens[-n:]) in forbidden for n in lengths)]
        begun = [replace(segments[place], prefix_ids=start.tokens) for start in starts]
        others = [segment for index, segment in enumerate(segments) if index != place]
        every = self.replace(search=replace(self.search, n_best=min(2, self.search.beam)))
        results = every._translate_segments([*begun, *others])
        candidates = [candidate for result in results[: len(begun)] for candidate in result.candidates]
        candidates.sort(key=lambda candidate: (candidate.badness, -candidate.hypothesis.score))
        found = find_words(
            self.model, self.tokenizers.target, source, prefix, [one.hypothesis.tokens for one in candidates], count
        )
        rest = [result.candidates[0] for result in results[len(begun) :]]
        return [
            Alternative(
                one.word,
                one.probability,
                join_candidates(segments, [*rest[:place], candidates[one.output], *rest[place:]]),
            )
            for one in found
        ]

    def stream(self, texts: Iterable[str], chunk: int = 1024, tag: str = "", **unknown: Never) -> Iterator[Translation]:
        """Return an iterator over the translation of each text, in order, with one tag ('' for none).

        `chunk` texts are in memory at a time. Raise UsageError for a single text, for what has no texts and for unknown
        arguments, and, while it goes on, DragomanError for an unknown tag.
        """
        if unknown:
            refuse_unknown(self.stream, unknown)
        if isinstance(texts, str):
            raise UsageError("stream takes many texts; for a single one: translate(text)")
        if not isinstance(texts, Iterable):
            raise UsageError(f"stream takes strings, such as the lines of a file, not {texts!r}")
        check_argument("chunk", chunk, Count)
        check_argument("tag", tag, str)
        return self._stream(iter(texts), chunk, tag)

    def _stream(self, texts: Iterator[str], chunk: int, tag: str) -> Iterator[Translation]:
        """Yield the translation of each text; see `stream`, which has checked the arguments."""
        while block := list(islice(texts, chunk)):
            yield from self.translate(block, tag)

    def _align(self, translations: Sequence[Translation], tags: Sequence[str]) -> list[Translation]:
        """Return the translations, and their alternatives, with their word alignments."""
        every = [[translation, *translation.alternatives] for translation in translations]
        tags = [tag for tag, ranked in zip(tags, every, strict=True) for _ in ranked]
        flat = [one for ranked in every for one in ranked]
        links = self.annotator.links([one.segments for one in flat], tags, [one.tokens for one in flat])
        aligned = iter([replace(one, alignment=tuple(own)) for one, own in zip(flat, links, strict=True)])
        return [
            replace(next(aligned), alternatives=tuple(next(aligned) for _ in translation.alternatives))
            for translation in translations
        ]

    def _segments(self, text: str, ids: Ids, tag: str, prefix: str) -> list[Segment]:
        """Return the segments of a text, none where it is blank, with what their translations begin with."""
        tag_ids = self.tokenizers.source.tag_ids(tag or self.tag)
        segments = [
            replace(segment, tag_ids=tag_ids, terms=self._find_terms(segment))
            for segment in self.segmenter.cut(text, ids, self.max_source_tokens - len(tag_ids))
        ]
        return self._begin(segments, prefix) if segments and prefix.strip() else segments

    def _begin(self, segments: list[Segment], prefix: str) -> list[Segment]:
        """Return the segments of a text whose translation begins with `prefix`, divided among those with words.

        All but the one in which the prefix ends are given as a whole. The pieces of a sentence that was too long for
        the model are not told apart in its translation: the first one has all of the prefix.
        """
        places = [index for index, segment in enumerate(segments) if segment.has_words] or [0]
        whole = self._has_long_sentence("".join(segment.text + segment.space for segment in segments))
        parts = [prefix] if whole else divide_prefix(prefix.lstrip(), [segments[place].text for place in places])
        begun, places = list(segments), places[: len(parts)]
        for place, part in zip(places, map(str.rstrip, parts), strict=True):
            part_ids = self.tokenizers.target.encode(part) if part else []
            begun[place] = replace(begun[place], prefix=part, prefix_ids=part_ids, given=True)
        last = begun[places[-1]]
        # The next token begins a word, and brings a space; a term may take the place of any word, so none is given.
        if parts[-1] != last.prefix and last.prefix_ids and not last.terms:
            before = self._source_ids(last), last.prefix_ids, self.target_tag_ids
            forbidden = {tokens[0] for tokens in self.forbidden if len(tokens) == 1}
            start = next_word_start(self.model, self.tokenizers.target, *before, forbidden)
            last = replace(last, prefix_ids=last.prefix_ids + start)
        begun[places[-1]] = replace(last, given=False)
        return begun

    def _find_terms(self, segment: Segment) -> tuple[TermMatch, ...]:
        """Return what the glossary demands of a segment; where it has unknown words, without positions in the source.

        An unknown word is one token, whatever its length.
        """
        terms = tuple(self.safeguards.find_terms(self.tokenizers.source.plain_spaces(segment.text)))
        if terms and self.tokenizers.source.unknown in segment.ids:
            return tuple(replace(term, start=0, end=0) for term in terms)
        return terms

    def cuts_sentence(self, translation: Translation) -> bool:
        """Return whether a sentence of the source was too long for the model, so that it was cut into segments."""
        if len(translation.segments) < 2:
            return False
        return self._has_long_sentence("".join(source for source, _ in translation.segments))

    def _has_long_sentence(self, text: str) -> bool:
        """Return whether a sentence of a text is too long for the model."""
        return any(len(self.tokenizers.source.encode(one)) > self.max_source_tokens for one in split_sentences(text))

    def _translate_segments(self, segments: Sequence[Segment]) -> list[SegmentResult]:
        """Return the candidates for each segment, best first; where the first one was faulty, of two searches."""
        searched = [
            not (segment.markup or segment.given) and (self.extent.wordless or self.safeguards.has_words(segment.text))
            for segment in segments
        ]
        hypotheses = iter(self._search_segments(list(compress(segments, searched)), self.search))
        first = [
            [self._judge(segment, self.tokenizers.target.decode(one.tokens), one) for one in next(hypotheses)]
            if is_searched
            else [self._without_search(segment)]
            for segment, is_searched in zip(segments, searched, strict=True)
        ]
        flagged = [row for row, candidates in enumerate(first) if candidates[0].faults and not segments[row].given]
        second = dict(zip(flagged, self._retry([segments[index] for index in flagged]), strict=True)) if flagged else {}
        return [
            SegmentResult(segment, replace_worse(candidates, second.get(index)), retried=index in second)
            for index, (segment, candidates) in enumerate(zip(segments, first, strict=True))
        ]

    def _without_search(self, segment: Segment) -> Candidate:
        """Return the translation that is given for a segment, or else a copy of it, after its prefix if it has one."""
        if segment.given:
            return self._judge(segment, segment.prefix, Hypothesis(segment.prefix_ids, 0.0))
        if not segment.prefix:
            return Candidate(segment.text.strip(), Hypothesis([], 0.0))
        (retry,) = prepare_retries([segment], self.tokenizers.source, self.safeguards)
        return Candidate(copy_segment(retry, self.annotator, self.safeguards), Hypothesis([], 0.0))

    def _retry(self, segments: Sequence[Segment]) -> list[list[Candidate]]:
        """Return the candidates for each segment, best first, of a more careful search without its placeholders.

        See `retry`. Without words, the only candidate is a copy of the segment.
        """
        retries = list(prepare_retries(segments, self.tokenizers.source, self.safeguards))
        with_words = [retry.bare for retry in retries if retry.has_words]
        hypotheses = iter(self._search_segments(with_words, careful_search(self.search)))
        return [
            [self._restore(retry, hypothesis) for hypothesis in next(hypotheses)]
            if retry.has_words
            else [Candidate(copy_segment(retry, self.annotator, self.safeguards), Hypothesis([], 0.0))]
            for retry in retries
        ]

    def _restore(self, retry: Retry, hypothesis: Hypothesis) -> Candidate:
        """Return the candidate of a hypothesis for the bare segment, with the placeholders of the whole one."""
        bare = self.tokenizers.target.decode(hypothesis.tokens)
        text = restore_placeholders(retry, bare, hypothesis.tokens, self.annotator, self.safeguards)
        return self._judge(retry.segment, text, hypothesis)

    def _judge(self, segment: Segment, text: str, hypothesis: Hypothesis) -> Candidate:
        """Return the candidate with this text, flagged wherever it breaks the safeguards."""
        return judge(segment, text, hypothesis, self.safeguards, self.scripts)

    def _search_segments(self, segments: Sequence[Segment], search: SearchConfig) -> list[list[Hypothesis]]:
        """Return the hypotheses for each segment, best first, that have its prefix and terms and no forbidden words.

        What a plain search finds stays where it has all its terms and nothing forbidden. Missing terms are put in the
        place of the model's own words for them, which removes these words if they are forbidden. Other forbidden words
        are avoided by a second search. Where terms have no place, a third one has to say them.
        """
        free = [self._constraints(segment) for segment in segments]
        plain = self._search([self._source_ids(segment) for segment in segments], search, free)
        results = self._place_terms(segments, plain, search)
        rows = [row for row, own in enumerate(results) if self.forbidden and any(map(self._has_forbidden, own))]
        if rows:
            chosen = [segments[row] for row in rows]
            bound = [replace(free[row], forbidden=self.forbidden) for row in rows]
            found = self._search([self._source_ids(segment) for segment in chosen], search, bound)
            for row, own in zip(rows, self._place_terms(chosen, found, search), strict=True):
                results[row] = self._merge(segments[row], results[row], own, search.n_best)
        rows = [row for row, own in enumerate(results) if any(self._unmet(segments[row], one) for one in own)]
        if rows := [row for row in rows if segments[row].terms and self.engine.forces_terms]:
            chosen, before = [segments[row] for row in rows], [plain[row][0].tokens for row in rows]
            for row, own in zip(rows, self._search_with_terms(chosen, before, search), strict=True):
                results[row] = self._merge(segments[row], results[row], own, search.n_best)
        return results

    def _constraints(self, segment: Segment) -> Constraints:
        """Return what the translation of a segment has to begin with."""
        return Constraints(tuple(segment.prefix_ids), tag=tuple(self.target_tag_ids))

    def _source_ids(self, segment: Segment) -> Ids:
        """Return the tokens that the model reads for a segment: its tag, its text, and its terms if it was trained so.

        Without the terms where they make it too long.
        """
        plain = segment.tag_ids + segment.ids
        if not self.extent.terms or not self.tokenizers.source.term_marks:
            return plain
        terms = [(term.end, term.targets[0]) for term in segment.terms if term.end]
        ids = segment.tag_ids + insert_terms(segment.ids, terms, self.tokenizers.source)
        return ids if len(ids) <= self.max_source_tokens else plain

    def _search_with_terms(
        self, segments: Sequence[Segment], plain: Sequence[Ids], search: SearchConfig
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses for each segment of a search that has to say its terms; none where they make no sense.

        plain: the tokens of a translation of each segment that need not have the terms.
        """
        sources = [self._source_ids(segment) for segment in segments]
        bound = [
            replace(
                self._constraints(segment),
                terms=tuple(filter(None, token_sequences(segment.terms, self.tokenizers.target))),
                forbidden=self.forbidden,
            )
            for segment in segments
        ]
        found = self._search(sources, search, bound)
        best, terms = [own[0].tokens for own in found], [own.terms for own in bound]
        nonsense = far_less_probable(self.model, sources, plain, best, terms)
        stand = [True] * len(segments)
        if self.term_placer is not None:
            stand = self.term_placer.stand(segments, best)
        return [
            own if stands and not senseless else []
            for own, stands, senseless in zip(found, stand, nonsense, strict=True)
        ]

    def _merge(
        self, segment: Segment, first: Sequence[Hypothesis], second: Sequence[Hypothesis], n: int
    ) -> list[Hypothesis]:
        """Return the best of the hypotheses of two searches for a segment, at most n: see `merge_hypotheses`."""
        return merge_hypotheses(first, second, lambda one: self._unmet(segment, one), n)

    def _place_terms(
        self, segments: Sequence[Segment], hypotheses: Sequence[list[Hypothesis]], search: SearchConfig
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses, those without all their terms with the terms in place, where that can be done."""
        placed = [list(own) for own in hypotheses]
        missing = [
            (row, rank)
            for row, own in enumerate(placed)
            for rank, one in enumerate(own)
            if segments[row].terms and self._unmet(segments[row], one)
        ]
        if not missing or self.term_placer is None:
            return placed
        drafts = self.term_placer.place(
            [segments[row] for row, _ in missing], [placed[row][rank] for row, rank in missing], search.length_penalty
        )
        for (row, rank), draft in zip(missing, drafts, strict=True):
            if draft and self._unmet(segments[row], draft) < self._unmet(segments[row], placed[row][rank]):
                placed[row][rank] = draft
        for row in {row for row, _ in missing}:  # with their terms, they have other scores, and two may be one
            best, *others = {tuple(one.tokens): one for one in placed[row]}.values()
            placed[row] = [best, *sorted(others, key=lambda one: (self._unmet(segments[row], one), -one.score))]
        return placed

    def _unmet(self, segment: Segment, hypothesis: Hypothesis) -> int:
        """Return how many terms of its segment a hypothesis lacks, and how many forbidden words it has."""
        return self.safeguards.unmet(segment, self.tokenizers.target.decode(hypothesis.tokens))

    def _has_forbidden(self, hypothesis: Hypothesis) -> bool:
        """Return whether a hypothesis has a forbidden word."""
        return self.safeguards.is_forbidden(self.tokenizers.target.decode(hypothesis.tokens))

    def _search(
        self, sources: Sequence[Ids], search: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Return the engine's hypotheses for each source, best first, at most `n_best`.

        With a coverage penalty the engine returns its whole beam, and the penalty decides the order before the rest is
        dropped. Without attention over the source there is no penalty.
        """
        if not search.coverage_penalty or self.alignment is None:
            return self.engine.search(sources, search, constraints)
        all_beams = replace(search, n_best=search.beam, coverage_penalty=0.0)
        hypotheses = self.engine.search(sources, all_beams, constraints)
        ranked = rerank_by_coverage(self.model, sources, hypotheses, search.coverage_penalty, self.alignment)
        return [best[: search.n_best] for best in ranked]

    def source_ids(self, texts: Sequence[str], tags: Sequence[str]) -> list[Ids]:
        """Return what the model reads of each text as a whole, cut where it is too long, with its tag in front.

        tags: one for each text, '' for the translator's own. Raise DragomanError for an unknown one.
        """
        tokenizer = self.tokenizers.source
        return [
            (tokenizer.tag_ids(tag or self.tag) + ids)[: self.max_source_tokens]
            for ids, tag in zip(tokenizer.encode_all(texts), tags, strict=True)
        ]

    def search_ids(self, sources: Sequence[Ids]) -> list[Hypothesis]:
        """Return the best hypothesis for each source (token ids without EOS), in order, without any safeguards."""
        tag = Constraints(tag=tuple(self.target_tag_ids))
        constraints = [tag] * len(sources) if self.target_tag_ids else None
        return [hypotheses[0] for hypotheses in self._search(sources, self.search, constraints)]


def checked_texts(texts: str | Iterable[str]) -> list[str]:
    """Return a text, or several, as a list. Raise UsageError for what is no string, naming where it is."""
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes | Mapping | Set) or not isinstance(texts, Iterable):
        raise UsageError(f"translate takes a string or a list of strings, not {texts!r}")
    for index, text in enumerate(texts := list(texts)):
        if not isinstance(text, str):
            raise UsageError(f"texts[{index}] must be a string, not {text!r}")
    return texts


def for_each(name: str, given: str | Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return one string for each text: those that are given, or the same one for all.

    name: of what is given, for the message. Raise UsageError where there are more or fewer of them, or other things.
    """
    strings = [given] * len(texts) if isinstance(given, str) else given
    is_list = isinstance(strings, Sequence) and all(isinstance(string, str) for string in strings)
    if not is_list or len(strings) != len(texts):
        raise UsageError(f"{name} must be a string for all texts, or one for each of {len(texts)}, not {given!r}")
    return list(strings)


def join_segments(results: Sequence[SegmentResult]) -> Translation:
    """Return the translation of a text from its segments, one or more: their best candidates, joined.

    Its alternatives are the second best candidates, joined, and so on, to the last one of the segment with the most.
    A segment that has fewer gives its last one again.
    """
    segments = [result.segment for result in results]
    best, *alternatives = (
        join_candidates(segments, [result.candidates[min(rank, len(result.candidates) - 1)] for result in results])
        for rank in range(max(len(result.candidates) for result in results))
    )
    return replace(best, retried=any(result.retried for result in results), alternatives=tuple(alternatives))


def join_candidates(segments: Sequence[Segment], candidates: Sequence[Candidate]) -> Translation:
    """Return the translation of a text: one candidate for each of its segments, joined with the space between them.

    Scores, flags (each once), terms met and missed are those of all. `retried`, `alternatives`: see `join_segments`.
    """
    outputs = spaced_outputs(segments, [candidate.text for candidate in candidates])
    return Translation(
        one_line("".join(outputs)),
        sum(candidate.hypothesis.score for candidate in candidates),
        tuple(zip((segment.text + segment.space for segment in segments), outputs, strict=True)),
        all(candidate.hypothesis.finished for candidate in candidates),
        tuple(dict.fromkeys(flag for candidate in candidates for flag in candidate.flags)),
        terms_met=tuple(term for candidate in candidates for term in candidate.wording.terms_met),
        terms_missed=tuple(term for candidate in candidates for term in candidate.wording.terms_missed),
        tokens=tuple(tuple(candidate.hypothesis.tokens) for candidate in candidates),
    )


def spaced_outputs(segments: Sequence[Segment], outputs: Sequence[str]) -> list[str]:
    """Return the output of each segment with the space after it, between the tags that close one and open the next."""
    spaced = list(outputs)
    words: tuple[Segment, str] | None = None  # the last segment that is not markup, until a space follows it
    for index, (segment, following) in enumerate(pairwise(segments)):
        if not segment.markup:
            words = segment, outputs[index]
        if words is None or (following.markup and PARTING_TAG.match(following.text)):
            spaced[index] += segment.space
        else:
            spaced[index] += space_after(replace(words[0], space=segment.space), words[1])
            words = None
    return spaced


def space_after(segment: Segment, output: str) -> str:
    """Return the space after the output of a segment: that of the source, unless only one language writes spaces."""
    if output[-1:] in WIDE_ENDS:
        return ""
    return segment.space or " " * (segment.text[-1:] in WIDE_ENDS)


def one_line(text: str) -> str:
    """Return the text with a space for each line feed and the carriage return before it."""
    return text.replace("\r\n", " ").replace("\n", " ")
