"""Open the models of a server, and find the ones for a pair of languages."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal, NamedTuple

from dragoman.config import SearchConfig
from dragoman.config.languages import CODES, PAIR, LanguagePair, parse_pair
from dragoman.config.serve import ServeConfig
from dragoman.decoding.pool import Pool
from dragoman.decoding.rows import Ticket
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError, listed
from dragoman.inspection.summary import Summary
from dragoman.memory import Memory, create_memory
from dragoman.memory.memory import RECORD, TAIL
from dragoman.model_folder import fetch_model
from dragoman.model_folder.manifest import read_manifest
from dragoman.runtime.threads import granted_cores
from dragoman.server.languages import find_language, languages_of_tags
from dragoman.storage.hub import PREFIX, is_on_hub
from dragoman.text.languages import read_languages
from dragoman.text.tags import LanguageTags
from dragoman.translation.engines import torch_engine
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translator import CALIBRATE, Translator

WARM_UP = "This is a sentence, and this server translates it before it says that it is ready."
CROWD = 8  # sentences at once, which show how fast a model is with many requests


class ModelSource(NamedTuple):
    """Where a model is, for which pair, its name, and the tags of its texts and translations; '' for its own."""

    pair: LanguagePair
    folder: Path
    tag: str
    name: str  # of the folder that was given, as `dragoman inspect` shows it
    target_tag: str = ""
    names_languages: bool = False  # whether the tags of the model do


@dataclass(frozen=True)
class Served:
    """A model that is served for a pair of languages."""

    source: ModelSource
    translator: Translator  # with the tags of the pair
    pool: Pool
    summary: Summary
    rate: float  # sentences a second, one after the other, after the start

    @property
    def pair(self) -> LanguagePair:
        return self.source.pair

    @property
    def remembers(self) -> Literal["all", "exact"] | None:
        """What its memory changes: all translations, or only those of texts that are in it; None without one."""
        if self.translator.memory is None:
            return None
        return "all" if isinstance(self.translator.engine, TorchEngine) else "exact"

    def translator_for(self, ticket: Ticket, search: SearchConfig, safeguards: Safeguards) -> Translator:
        """Return the translator of one request; it keeps what the server keeps."""
        safeguards = replace(safeguards, keep=self.translator.safeguards.keep)
        return self.translator.replace(search=search, safeguards=safeguards, engine=self.pool.view(ticket))


class Models:
    """The models of a server, by their pairs."""

    def __init__(self, served: Sequence[Served], pivot: str | None = None):
        """Take the models; pivot: the language that pairs without a model are translated through."""
        self.by_pair = {model.pair: model for model in served}
        self.pools = list({id(model.pool): model.pool for model in served}.values())
        self.pivot = pivot
        self.native: dict[Pool, TorchEngine] = {}

    @cached_property
    def sources(self) -> list[str]:
        """Return the languages that can be translated from, sorted."""
        return sorted({pair.source for pair in self.by_pair})

    @cached_property
    def all_targets(self) -> list[str]:
        """Return the languages that can be translated into, sorted."""
        return sorted({pair.target for pair in self.by_pair})

    @cached_property
    def languages(self) -> list[str]:
        """Return all languages, sorted."""
        return sorted({*self.sources, *self.all_targets})

    def targets(self, source: str) -> list[str]:
        """Return the languages that one of the sources can be translated into, sorted, without itself."""
        return [target for target in self.all_targets if target != source and self.path(source, target)]

    def path(self, source: str, target: str) -> tuple[Served, ...]:
        """Return the models that translate a pair one after the other: one, two through the pivot, or none."""
        if direct := self.by_pair.get(LanguagePair(source, target)):
            return (direct,)
        if self.pivot in (None, source, target):
            return ()
        assert self.pivot
        first = self.by_pair.get(LanguagePair(source, self.pivot))
        second = self.by_pair.get(LanguagePair(self.pivot, target))
        return (first, second) if first and second else ()

    def native_engine(self, served: Served) -> TorchEngine:
        """Return the native engine in float32 with a model: its own, or else one that is made when first asked for."""
        translator = served.translator
        if isinstance(translator.engine, TorchEngine) and translator.engine.compute_type == "float32":
            return translator.engine
        if served.pool not in self.native:
            self.native[served.pool] = torch_engine([translator.model], translator.tokenizers.target)
        return self.native[served.pool]

    def find_language(self, code: str) -> str | None:
        """Return the language, source or target, that a code means; None for none. See `find_language`."""
        return find_language(code, self.languages)

    def wait(self, tokens: float = math.inf) -> float:
        """Return about how many seconds a request for so many tokens would wait, at the busiest model."""
        return max((pool.wait(tokens) for pool in self.pools), default=0.0)

    def stalled(self) -> float:
        """Return for how many seconds a model with work has not finished a step; 0 if none is stuck."""
        return max((pool.stalled() for pool in self.pools), default=0.0)

    def close(self, timeout: float) -> None:
        """Finish accepted work within `timeout` seconds, and end the threads."""
        end = time.monotonic() + timeout
        for pool in self.pools:
            pool.close(max(0.0, end - time.monotonic()))


def parse_model(text: str) -> list[ModelSource]:
    """Return what a --model says: FOLDER, PAIR=FOLDER, PAIR=FOLDER:TAG or LANGUAGES=FOLDER, one for each direction.

    FOLDER may be a name on the Hugging Face Hub. Raise UsageError where the folder is missing or its languages are not
    known, DragomanError where it is no model's.
    """
    named, _, location = text.partition("=")
    pair = parse_pair(named) if location and PAIR.fullmatch(named) else None
    codes = named.split(",") if location and not pair and CODES.fullmatch(named) and not Path(text).is_dir() else []
    name, tag = (location if pair or codes else text), ""
    if not Path(name).is_dir() and ":" in name.removeprefix(PREFIX):
        name, _, tag = name.rpartition(":")
    if not (is_on_hub(name) or Path(name).is_dir()):
        if location and not pair and any(Path(part).is_dir() for part in (location, name.partition("=")[2])):
            raise UsageError(f"{text}: '{named}' is not a language pair, such as en-de")
        raise UsageError(f"{name}: no such model folder")
    folder = fetch_model(Path(name))
    read_manifest(folder)
    if not codes:
        pair = pair or read_languages(folder)
    tags, given = LanguageTags.load(folder), Path(name).absolute().name
    if tags and not tag:
        return [
            ModelSource(direction, folder, source_tag, given, target_tag, names_languages=True)
            for direction, source_tag, target_tag in directions(name, tags, pair, codes)
        ]
    if not pair:
        why = "has no tags of languages: write a pair" if codes else "does not record its languages: write them"
        raise UsageError(f"{name} {why} in front, as in en-de={name}")
    return [ModelSource(pair, folder, tag, given)]


def read_manifests(texts: Sequence[str]) -> dict[str, dict[str, tuple[int, str]]]:
    """Return the manifest of the model that each --model names. Raise UsageError and DragomanError as `parse_model`."""
    return {text: read_manifest(parse_model(text)[0].folder) for text in texts}


def directions(
    name: str, tags: LanguageTags, pair: LanguagePair | None, codes: Sequence[str]
) -> Iterator[tuple[LanguagePair, str, str]]:
    """Yield the pairs that a model of several languages is to translate, each with the tags of source and target.

    pair: the only one, None for all between the languages `codes`, or, where its tags name targets, from these into
    all; no codes: all of its languages. Raise UsageError where it lacks one, or they are too few.
    """
    known = languages_of_tags(tags.tags)

    def tag_of(code: str) -> str:
        language = find_language(code, known)
        if language is None:
            raise UsageError(f"{name} has no tag for '{code}': choose from {listed(sorted(known))}")
        return known[language]

    if pair:
        pairs = [pair]
    elif tags.of == "text":
        languages = codes or list(known)
        pairs = [LanguagePair(source, target) for source in languages for target in languages if source != target]
        if not pairs:
            raise UsageError(f"{name}: name two languages or more, as in en,de={name}")
    elif codes:
        pairs = [LanguagePair(source, target) for source in codes for target in known if source != target]
    else:
        raise UsageError(f"{name} has tags for its targets: write the language of its sources in front: en={name}")
    for each in pairs:
        yield (each, tag_of(each.source), tag_of(each.target)) if tags.of == "text" else (each, tag_of(each.target), "")


def parse_models(texts: Sequence[str], pivot: str | None) -> list[ModelSource]:
    """Return what several --model say. Raise UsageError for none, for two of one pair, and for a useless pivot."""
    if not texts:
        raise UsageError("give a model: dragoman serve -m en-de=runs/mine")
    sources = [source for text in texts for source in parse_model(text)]
    pair, count = Counter(source.pair for source in sources).most_common(1)[0]
    if count > 1:
        raise UsageError(f"two models for {pair}: leave out one")
    into, out_of = ({source.pair.target for source in sources}, {source.pair.source for source in sources})
    if pivot is not None and not (pivot in into and pivot in out_of):
        raise UsageError(f"--pivot {pivot}: there must be a model into it and one out of it")
    return sources


def parse_memories(texts: Sequence[str], sources: Sequence[ModelSource]) -> dict[Path, Path]:
    """Return the folder of the memory of each model that has one, by the model's.

    Raise UsageError where a --memory names a pair that is not served, or none though there are several models, and for
    two memories of one model.
    """
    memories: dict[Path, Path] = {}
    for text in texts:
        named, _, folder = text.partition("=")
        pair = parse_pair(named) if folder and PAIR.fullmatch(named) else None
        models = {source.folder for source in sources if pair in (None, source.pair)}
        if not models:
            raise UsageError(f"--memory {text}: no model for {pair}" if pair else f"--memory {text}: needs a model")
        if len(models) > 1:
            example = f"{sources[0].pair}={text}"
            raise UsageError(f"--memory {text}: there are several models; name a pair of one, as in {example}")
        (model,) = models
        if model in memories:
            raise UsageError(f"--memory {text}: {model} has a memory already, {memories[model]}")
        memories[model] = Path(folder if pair else text)
    return memories


def open_models(config: ServeConfig, sources: Sequence[ModelSource]) -> Models:
    """Open and warm up all models. Raise DragomanError where one is damaged, lacks a tag, or does not translate."""
    opened: dict[Path, Served] = {}
    memories = parse_memories(config.memory, sources)
    served = []
    threads, replicas = config.threads, 1
    if config.engine == "ctranslate2":
        threads = threads or 1
        replicas = config.replicas or max(1, granted_cores() // config.processes // threads)
    for source in sources:
        if source.folder not in opened:
            memory = memories.get(source.folder)
            if memory and not (memory / RECORD).exists():
                create_memory(memory, source.folder)
            translator = Translator.load(
                source.folder,
                SearchConfig(beam=config.beam, patience=config.patience),
                Safeguards(keep=config.keep),
                device=config.device,
                engine=config.engine,
                compute_type=config.compute_type,
                threads=threads,
                replicas=replicas,
                memory=memory,
            )
            if config.min_confidence and translator.confidence is None:
                raise UsageError(f"{source.folder}: --min-confidence {CALIBRATE}")
            engine = translator.engine
            if translator.memory and isinstance(engine, TorchEngine):
                translator.memory.tidy(least=TAIL)
            pool = Pool(
                engine,
                threads=engine.searches if isinstance(engine, TorchEngine) else replicas,
                batches=config.batches,
                gather=config.gather,
                cache=config.cache << 20,
                version=partial(version_of, translator.memory),
            )
            summary = Summary.read(source.folder, translator.model.config, translator.tokenizers)
            model = Served(source, translator, pool, summary, 0.0)
            opened[source.folder] = replace(model, rate=warm_up(with_tags(model)))
        served.append(with_tags(replace(opened[source.folder], source=source)))
    return Models(served, config.pivot)


def version_of(memory: Memory | None) -> int:
    """Return a number that tells what a memory has from what it had before: how long the file of its pairs is."""
    if memory is None:
        return 0
    memory.refresh()
    return memory.log.end


def with_tags(served: Served) -> Served:
    """Return a model whose translator has the tags of its pair.

    Raise DragomanError where it has no such tags, and where all that it learned had one, and the pair has none.
    """
    source, translator = served.source, served.translator
    try:
        tagged = translator.replace(tag=source.tag or None, target_tag=source.target_tag or None)
    except DragomanError as error:
        raise DragomanError(f"{source.folder}: cannot serve {source.pair}: {error}") from None
    if tagged.extent.tagged and not tagged.tag:
        tags = tagged.tokenizers.source.tags
        raise DragomanError(
            f"{source.folder}: every training source had a tag ({listed(tags)}): choose one, as in "
            f"{source.pair}={source.folder}:{next(iter(tags))}"
        )
    return replace(served, translator=tagged)


def warm_up(served: Served) -> float:
    """Translate some sentences; return how many a second, one after the other. Raise DragomanError where it fails."""
    translator = served.translator_for(Ticket(), served.translator.search, served.translator.safeguards)
    try:
        translator.translate(WARM_UP)
        translator.translate([WARM_UP.replace("a sentence", f"sentence {number}") for number in range(CROWD)])
        began = time.perf_counter()
        translator.translate(WARM_UP.replace("a sentence", "another sentence"))
    except DragomanError as error:
        raise DragomanError(f"{served.source.folder}: cannot serve {served.pair}: {error}") from None
    return 1 / (time.perf_counter() - began)
