"""Say for dragoman's own API what is served: the pairs of languages, and a card for each model."""

import re
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

from msgspec import Struct

from dragoman.data.tokenizers import SideTokenizer
from dragoman.documents import SUFFIXES
from dragoman.model import parameter_count
from dragoman.server.languages import name_of
from dragoman.server.models import Served
from dragoman.server.routes import OWN, Call, Route

WORD = re.compile(r" ([^\W\d_]{4,})")  # as a subword has it
MAX_COMMON = 500  # words that are sent
ENDING = 3  # letters at most


class AlignedBy(Struct):
    """The layer and the head that align words, counted from 1, and how well they agree with a word model."""

    layer: int
    head: int | None  # None: the mean of all
    agreement: float | None  # from 0 to 1, of the links of the word model; None: not measured
    links: int


class ServedPair(Struct):
    """A pair of languages that is translated, through which others, and what can be asked for."""

    source: str
    target: str
    source_name: str
    target_name: str
    through: list[str]
    glossary: bool
    alignment: bool
    aligned_by: AlignedBy | None
    word_scores: bool
    confidence: bool  # whether translations have one
    memory: Literal["all", "exact"] | None  # what counts of a memory: all of it, or exact matches; None: there is none
    tags: list[str]


class TaggedPair(Struct):
    """A pair of languages, and the tags that its texts and its translations begin with ('' for none)."""

    source: str
    target: str
    tag: str
    target_tag: str


class ModelCard(Struct):
    """A model, and what it is and can, as `dragoman info --json` says it."""

    pairs: list[TaggedPair]
    parameters: int
    vocabulary: int
    target_vocabulary: int
    config: dict[str, Any]
    tags: list[str]
    default_tags: dict[str, str]  # of sources and targets for which none are given
    origin: dict[str, str] | None  # of weights that were imported, and their licence
    languages: dict[str, str] | None  # that the model records
    scripts: list[str]
    extent: dict[str, Any] | None
    confidence: dict[str, Any] | None  # how good the confidence in its translations is; None: it was not measured
    engines: list[str]
    alignment: bool
    sentences_per_second: float
    common: list[str]  # words of its sources that are mostly about grammar, as far as its subwords show


class ModelsAnswer(Struct):
    """What is served."""

    pairs: list[ServedPair]
    models: list[ModelCard]
    engine: str
    compute_type: str
    beam: int
    detects: bool
    document_formats: list[str]  # none without --state
    max_alternatives: int
    max_beam: int
    max_texts: int
    max_characters: int
    max_inspect_tokens: int  # on each side of a sentence; 0: nothing is inspected


def pair_of(call: Call, source: str, target: str) -> ServedPair:
    """Return what is said of a pair of languages."""
    path = call.service.models.path(source, target)
    direct = len(path) == 1
    head = path[0].translator.alignment if direct else None
    return ServedPair(
        source,
        target,
        name_of(source),
        name_of(target),
        [leg.pair.target for leg in path[:-1]],
        glossary=direct,
        alignment=head is not None,
        aligned_by=AlignedBy(head.layer, head.head, head.agreement, head.links) if head else None,
        word_scores=direct,
        confidence=all(leg.translator.confidence for leg in path),
        memory=path[0].remembers if direct else None,
        tags=tags_to_choose(path[0]),
    )


def tags_to_choose(served: Served) -> list[str]:
    """Return the tags that a request may choose for a pair: none where they name languages, which the pair does."""
    return [] if served.source.names_languages else sorted(served.translator.tokenizers.source.tags)


@lru_cache(100)
def common_words(tokenizer: SideTokenizer) -> list[str]:
    """Return longer words that are mostly about grammar: they are frequent, and there is none with another ending.

    A tokenizer learns the frequent words first. "could" and "which" are such words. "file" is more frequent in texts
    about programs, but there it has "files" beside it.
    """
    words = [word[1].lower() for piece in tokenizer.pieces if (word := WORD.fullmatch(piece))]
    with_endings = {word[:-length] for word in words for length in range(1, ENDING + 1)}
    frequent = (word[1].lower() for piece in tokenizer.pieces[: len(tokenizer) // 2] if (word := WORD.fullmatch(piece)))
    return list(islice((word for word in dict.fromkeys(frequent) if word not in with_endings), MAX_COMMON))


def card_of(served: list[Served]) -> ModelCard:
    """Return the card of a model, which may be served for several pairs."""
    first = served[0]
    translator, summary = first.translator, first.summary.as_dict()
    return ModelCard(
        [TaggedPair(*each.pair, each.translator.tag, each.translator.target_tag) for each in served],
        parameter_count(translator.model),
        alignment=translator.alignment is not None,
        sentences_per_second=round(first.rate, 2),
        common=common_words(translator.tokenizers.source),
        **summary,
    )


def models(call: Call) -> ModelsAnswer:
    """List the pairs of languages and the models that are served, and what the server can do."""
    service, served = call.service, call.service.models
    by_folder: dict[str, list[Served]] = {}
    for model in served.by_pair.values():
        by_folder.setdefault(str(model.source.folder), []).append(model)
    config = service.config
    return ModelsAnswer(
        [pair_of(call, source, target) for source in served.sources for target in served.targets(source)],
        [card_of(group) for group in by_folder.values()],
        engine=config.engine,
        compute_type=config.compute_type,
        beam=config.beam,
        detects=service.detector is not None,
        document_formats=list(SUFFIXES) if config.state else [],
        max_alternatives=config.max_beam - 1,
        max_beam=config.max_beam,
        max_texts=config.texts,
        max_characters=config.characters,
        max_inspect_tokens=config.inspect_tokens,
    )


ROUTES = (Route("GET", "/api/v1/models", models, OWN, answer=ModelsAnswer),)
