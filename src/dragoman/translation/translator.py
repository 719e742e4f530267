"""Translate text: open a model, and turn texts into translations.

A text is cut into `segments`, these are translated by `segment_search`, and their translations are joined.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import overload

import torch

from dragoman.alignment.heads import AlignmentHead
from dragoman.confidence.estimate import Confidence
from dragoman.config import ComputeType, Device, EngineName, SearchConfig
from dragoman.config.fields import Count, changed_fields, check_argument
from dragoman.data.batches import Ids
from dragoman.data.normal_form import visible_characters
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.decoding.engine import Constraints, Engine
from dragoman.decoding.search import Hypothesis
from dragoman.errors import UsageError
from dragoman.memory import Memory
from dragoman.memory.matches import Match
from dragoman.memory.provenance import Shares
from dragoman.model import Model, parameter_count
from dragoman.model_folder import fetch_model
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.text.scripts import read_scripts
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.translation.annotate import Annotator, judge_words
from dragoman.translation.engines import open_engine, read_models, torch_engine
from dragoman.translation.prefixes import begin_segments, has_long_sentence, next_words
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.segment_search import UNSURE, SegmentSearch
from dragoman.translation.segments import Segment, Segmenter, SegmentResult, join_segments, one_line
from dragoman.translation.translation import EXACT, SWAPPED, Alternative, Translation

MAX_SOURCE_TOKENS = 512  # EOS not included; longer texts are cut
CALIBRATE = "needs a model that knows how sure it may be: dragoman calibrate --dev PAIRS measures it"
EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA"}  # scripts whose texts have full-width letters
LINE_END = re.compile(r"\r?\n\Z")


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
        known_words: KnownWords | None = None,
        confidence: Confidence | None = None,
        memory: Memory | None = None,
        tag: str = "",
        target_tag: str = "",
    ):
        """Take the parts of a translator; `load` reads them from a model folder. Raise UsageError for wrong settings.

        model: what scores and aligns words, and what the engine is made of where none is given; tokenizers: the one of
        both sides, or those of source and target; alignment: its layer and head for word alignments, None where they
        were not measured; scripts: in which the target language is written, as `text.scripts` names them; extent: how
        much text a training source had, None for a sentence; known_words: those that it has read, to tell names;
        confidence: what tells how good its translations are, None where that was not measured; memory: approved pairs,
        which an engine that is given here must have, too; tag, target_tag: those of texts for which `translate` is
        given none.
        """
        if tokenizers is None or isinstance(model, str | Path):  # what people try first
            folder = str(model) if isinstance(model, str | Path) else "runs/mine"
            raise UsageError(f"to open a model folder: Translator.load({folder!r}); Translator takes a model in memory")
        if not hasattr(model, "parameters"):
            raise UsageError(f"model must be a model in memory, such as a Transformer, not {model!r}")
        check_argument("tokenizers", tokenizers, SideTokenizer | Tokenizers)
        for name, value, kind in (("search", search, SearchConfig), ("safeguards", safeguards, Safeguards)):
            if not isinstance(value, kind):
                raise UsageError(f"{name} must be a {kind.__name__}, not {value!r}")
        self.model, self.search, self.safeguards = model, search, safeguards
        self.tokenizers = Tokenizers.from_tokenizer(tokenizers)
        self.memory = memory
        self.engine = engine or torch_engine([model], self.tokenizers.target, memory=memory)
        extent = extent or SourceExtent(1, MAX_SOURCE_TOKENS)
        self.scripts, self.extent, self.known_words, self.confidence = scripts, extent, known_words, confidence
        self.segmenter = Segmenter(self.tokenizers.source, self.extent, search.split, keep_tags=safeguards.placeholders)
        self.tokenizers.source.tag_ids(tag)  # raises for an unknown one
        self.tag, self.target_tag, self.target_tag_ids = tag, target_tag, self.tokenizers.target.tag_ids(target_tag)
        if safeguards.min_confidence and confidence is None:
            raise UsageError(f"min_confidence {CALIBRATE}")
        self.segment_search = SegmentSearch(
            model,
            self.tokenizers,
            self.engine,
            replace(safeguards, known_words=safeguards.known_words or known_words),
            alignment,
            scripts,
            self.extent.wordless,
            self.extent.markup,
            confidence,
            self.extent.subwords,
        )

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
        memory: str | Path | None = None,
        target_tag: str = "",
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
        other tokenizers than the first; UsageError for settings that the engine lacks.
        """
        check_argument("folder", folder, str | Path)
        folder = fetch_model(Path(folder))
        (models, tokenizers), tags = read_models(folder, ensemble, device), DefaultTags.load(folder)
        extent = SourceExtent.load(folder) or SourceExtent(1, MAX_SOURCE_TOKENS)
        tagged, target = extent.tagged or LanguageTags.load(folder) is not None, tokenizers.target
        remembered = None if memory is None else Memory(Path(memory), folder, models[0], tokenizers)
        opened = open_engine(
            engine,
            folder,
            models,
            target,
            search,
            compute_type=compute_type,
            threads=threads,
            replicas=replicas,
            memory=remembered,
        )
        return cls(
            models[0],
            tokenizers,
            search,
            safeguards,
            opened,
            alignment=AlignmentHead.load(folder),
            scripts=read_scripts(folder),
            extent=replace(extent, tagged=tagged),
            known_words=KnownWords.load(folder),
            confidence=None if ensemble else Confidence.load(folder),  # it was measured for one model
            memory=remembered,
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
        confidence: Confidence | None = None,
        tag: str | None = None,
        target_tag: str | None = None,
    ) -> "Translator":
        """Return a translator with the same model and these parts in the place of its own."""
        return Translator(
            self.model,
            self.tokenizers,
            search or self.search,
            safeguards or self.safeguards,
            engine or self.engine,
            alignment=self.segment_search.measured_alignment,
            scripts=self.scripts,
            extent=self.extent,
            known_words=self.known_words,
            confidence=confidence or self.confidence,
            memory=self.memory,
            tag=self.tag if tag is None else tag,
            target_tag=self.target_tag if target_tag is None else target_tag,
        )

    @property
    def max_source_tokens(self) -> int:
        """The most tokens that a source may have in one search, EOS not included; longer ones are cut."""
        return min(MAX_SOURCE_TOKENS, (self.engine.max_positions or MAX_SOURCE_TOKENS + 1) - 1)

    @property
    def alignment(self) -> AlignmentHead | None:
        """The layer and head that align words; None for a model without attention over its source."""
        return self.segment_search.alignment

    @cached_property
    def annotator(self) -> Annotator:
        """The annotator that scores and aligns words with the model; with the first one of an ensemble."""
        reading = self.segment_search.safeguards.as_sentence
        return Annotator(self.model, self.tokenizers, self.alignment, self.tag, self.target_tag, reading)

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
        as it is, without its line end. Line feeds in a text become spaces. Characters that nobody sees, such as soft
        hyphens, are left out, and full-width Latin letters become usual ones.

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
        single = isinstance(texts, str)
        texts = checked_texts(texts)
        tags, prefixes = for_each("tags", tags, texts), for_each("prefixes", prefixes, texts)
        target_tags = for_each("target_tags", target_tags, texts)
        results = self.segment_results(texts, tags, prefixes, target_tags, with_beams(self.search, beam, n_best))
        translations = [
            join_segments(of_text) if of_text else Translation(one_line(LINE_END.sub("", text)), 0.0)
            for text, of_text in zip(texts, results, strict=True)
        ]
        if self.memory:
            translations = [
                replace(each, memory=self._find_match(text, tag, target))
                for each, text, tag, target in zip(translations, texts, tags, target_tags, strict=True)
            ]
        if self.safeguards.min_confidence:
            translations = [left_out(each, self.safeguards.min_confidence) for each in translations]
        if alignments:
            translations = self.annotator.align(translations, tags, target_tags)
        return translations[0] if single else translations

    def segment_results(
        self,
        texts: Sequence[str],
        tags: Sequence[str],
        prefixes: Sequence[str],
        target_tags: Sequence[str],
        search: SearchConfig,
    ) -> list[list[SegmentResult]]:
        """Return for each text what was found for each of its segments; none for a blank one. See `translate`."""
        stripped = list(map(self._readable, texts))
        ids = self.tokenizers.source.encode_sources(stripped)
        segments = [self._segments(*text) for text in zip(stripped, ids, tags, prefixes, target_tags, strict=True)]
        results = iter(self.segment_search.translate([part for of_text in segments for part in of_text], search))
        return [[next(results) for _ in of_text] for of_text in segments]

    def alternatives(self, text: str, prefix: str = "", tag: str = "", *, count: int = 8) -> list[Alternative]:
        """Return the words that may come next where the translation of a text begins with `prefix`, likeliest first.

        If the prefix is empty or ends in a space, they are different words for the next place; if it ends within a
        word, they are words that begin with that part. There are at most `count`, and none for a text without words. In
        a text of several segments, the words are those of the segment in which the prefix ends, see `translate`. tag:
        as for `translate`.
        """
        for name, given in (("text", text), ("prefix", prefix), ("tag", tag)):
            check_argument(name, given, str)
        check_argument("count", count, Count)
        (ids,) = self.tokenizers.source.encode_sources([readable := self._readable(text)])
        segments = self._segments(readable, ids, tag, prefix)
        return next_words(segments, prefix, self.segment_search, self.search, count)

    def stream(self, texts: Iterable[str], chunk: int = 1024, tag: str = "") -> Iterator[Translation]:
        """Return an iterator over the translation of each text, in order, with one tag ('' for none).

        `chunk` texts are in memory at a time. Raise UsageError for a single text and for what has no texts, and, while
        it goes on, DragomanError for an unknown tag.
        """
        if isinstance(texts, str):
            raise UsageError("stream takes many texts; for a single one: translate(text)")
        if not isinstance(texts, Iterable):
            raise UsageError(f"stream takes strings, such as the lines of a file, not {texts!r}")
        check_argument("chunk", chunk, Count)
        check_argument("tag", tag, str)
        remaining = iter(texts)
        blocks = iter(lambda: list(islice(remaining, chunk)), [])
        return (translation for block in blocks for translation in self.translate(block, tag))

    def _readable(self, text: str) -> str:
        """Return a text without what no training source has: white space around it, and characters that nobody sees."""
        if self.safeguards.visible_characters:
            text = visible_characters(text, narrow=not EAST_ASIAN.intersection(self.extent.scripts))
        return text.strip()

    def _segments(self, text: str, ids: Ids, tag: str, prefix: str, target_tag: str = "") -> list[Segment]:
        """Return the segments of a text, none where it is blank, with what their translations begin with.

        One that is in the memory, or the whole text, has the translation that was approved.
        """
        source, max_tokens = self.tokenizers.source, self.max_source_tokens
        tag_ids = source.tag_ids(tag or self.tag)
        target_tag_ids = self.tokenizers.target.tag_ids(target_tag or self.target_tag)
        find_terms = self.safeguards.segment_terms
        parts = [] if prefix else self._recall([Segment(text, ids)], tag, target_tag)
        if not any(part.approved for part in parts):
            parts = self.segmenter.cut(text, ids, max_tokens - len(tag_ids))
            parts = parts if prefix else self._recall(parts, tag, target_tag)
        segments = [
            replace(part, tag_ids=tag_ids, target_tag_ids=target_tag_ids, terms=find_terms(part, source))
            for part in parts
        ]
        if not segments or not prefix.strip():
            return segments
        return begin_segments(segments, prefix, self.segment_search, max_tokens)

    def _find_match(self, text: str, tag: str, target_tag: str) -> Match | None:
        """Return the approved pair whose source is a text, or like it; None without a memory."""
        tags = tag or self.tag, target_tag or self.target_tag
        return self.memory.match(self._readable(text), *tags) if self.memory else None

    def _recall(self, segments: list[Segment], tag: str, target_tag: str) -> list[Segment]:
        """Return segments, those whose text is in the memory with the translation that was approved for it."""
        if not self.memory:
            return segments
        return [self._approve(segment, tag or self.tag, target_tag or self.target_tag) for segment in segments]

    def _approve(self, segment: Segment, tag: str, target_tag: str) -> Segment:
        """Return a segment with the translation that was approved for it, if there is one."""
        assert self.memory
        pair, flag = self.memory.exact(segment.text, tag, target_tag), EXACT
        target = pair.target if pair else None
        if target is None and self.safeguards.swap_numbers:
            target, flag = self.memory.swapped(segment.text, tag, target_tag), SWAPPED
        if target is None:
            return segment
        return replace(
            segment, prefix=target, prefix_ids=self.tokenizers.target.encode(target), given=True, approved=flag
        )

    def word_confidences(
        self, translations: Sequence[Translation], tags: str | Sequence[str] = ""
    ) -> list[list[tuple[str, float]]]:
        """Return the words of each translation with the probability, from 0 to 1, that each stands in a good place.

        That is: where a reference has it, too. The model reads each translation once more. tags: as for `translate`.
        The list is empty where `Annotator.word_scores` has none. Raise UsageError for a model that was not measured.
        """
        confidence = self.confidence
        if confidence is None:
            raise UsageError(f"word_confidences {CALIBRATE}")
        given = for_each("tags", tags, [each.text for each in translations])
        texts, tokens = [each.segments for each in translations], [each.tokens for each in translations]
        judged = []
        for scores, each in zip(self.annotator.word_scores(texts, given, tokens), translations, strict=True):
            outputs, sure = [output for _, output in each.segments], each.confidences or [None] * len(each.segments)
            values = judge_words(confidence, outputs, sure, scores)
            judged.append([(word, value) for (word, _), value in zip(scores, values, strict=False)])
        return judged

    def origins(self, translations: Sequence[Translation], tags: str | Sequence[str] = "") -> list[list[Shares]]:
        """Return for each word of each translation the pairs of the memory that speak for it, by number.

        The model reads each translation once more. tags: as for `translate`. The list is empty where
        `Annotator.word_scores` has none. Raise UsageError without a memory.
        """
        if self.memory is None:
            raise UsageError("origins are those of a memory: give Translator.load one")
        given = for_each("tags", tags, [each.text for each in translations])
        texts, tokens = [each.segments for each in translations], [each.tokens for each in translations]
        return self.annotator.origins(texts, self.memory, given, tokens)

    def cuts_sentence(self, translation: Translation) -> bool:
        """Return whether a sentence of the source was too long for the model, so that it was cut into segments."""
        if len(translation.segments) < 2:
            return False
        source = "".join(text for text, _ in translation.segments)
        return has_long_sentence(source, self.tokenizers.source, self.max_source_tokens)

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
        return [ranked[0] for ranked in self.segment_search.search(sources, self.search, constraints)]


def left_out(translation: Translation, min_confidence: float) -> Translation:
    """Return a translation; one of less confidence flagged, without its text and other ones. `segments` keep it."""
    if translation.confidence is None or translation.confidence >= min_confidence:
        return translation
    flags = tuple(dict.fromkeys((*translation.flags, UNSURE)))
    return replace(translation, text="", flags=flags, alternatives=())


def with_beams(search: SearchConfig, beam: int | None, n_best: int | None) -> SearchConfig:
    """Return the settings with this beam and this number of translations, where they are not None."""
    if beam is None and n_best is None:
        return search
    return replace(
        search, beam=search.beam if beam is None else beam, n_best=search.n_best if n_best is None else n_best
    )


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
