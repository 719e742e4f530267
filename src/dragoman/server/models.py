"""Open the models of a server, and find the ones for a pair of languages."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from dragoman.config import SearchConfig
from dragoman.config.languages import PAIR, LanguagePair, parse_pair
from dragoman.config.serve import ServeConfig
from dragoman.decoding.pool import Pool
from dragoman.decoding.rows import Ticket
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.summary import Summary
from dragoman.model_folder import find_model
from dragoman.server.languages import find_language
from dragoman.text.languages import read_languages
from dragoman.threads import granted_cores
from dragoman.translation.engines import torch_engine
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translator import Translator

WARM_UP = "This is a sentence, and this server translates it before it says that it is ready."
CROWD = 8  # sentences at once, which show how fast a model is with many requests


class ModelSource(NamedTuple):
    """Where a model is, for which pair, the tag in front of its texts ('' for none), and its name."""

    pair: LanguagePair
    folder: Path
    tag: str
    name: str  # of the folder that was given, as `dragoman inspect` shows it


@dataclass(frozen=True)
class Served:
    """A model that is served for a pair of languages."""

    source: ModelSource
    translator: Translator
    pool: Pool
    summary: Summary
    rate: float  # sentences a second, one after the other, after the start

    @property
    def pair(self) -> LanguagePair:
        """The languages that it translates from and into."""
        return self.source.pair

    def translator_for(self, ticket: Ticket, search: SearchConfig, safeguards: Safeguards) -> Translator:
        """Return the translator of one request."""
        return self.translator.replace(search=search, safeguards=safeguards, engine=self.pool.view(ticket))


class Models:
    """The models of a server, by their pairs."""

    def __init__(self, served: Sequence[Served], pivot: str | None = None):
        """Take the models; pivot: the language that pairs without a model are translated through."""
        self.by_pair = {one.pair: one for one in served}
        self.pools = list({id(one.pool): one.pool for one in served}.values())
        self.pivot = pivot
        self.native: dict[Translator, TorchEngine] = {}

    @property
    def sources(self) -> list[str]:
        """Return the languages that can be translated from, sorted."""
        return sorted({pair.source for pair in self.by_pair})

    @property
    def all_targets(self) -> list[str]:
        """Return the languages that can be translated into, sorted."""
        return sorted({pair.target for pair in self.by_pair})

    @property
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
        if isinstance(translator.engine, TorchEngine):  # the native one serves in float32 only
            return translator.engine
        if translator not in self.native:
            self.native[translator] = torch_engine([translator.model], translator.tokenizers.target)
        return self.native[translator]

    def find_source(self, code: str) -> str | None:
        """Return the language among the sources that a code means; None for none. See `find_language`."""
        return find_language(code, self.sources)

    def find_target(self, code: str) -> str | None:
        """Return the language among the targets that a code means; None for none. See `find_language`."""
        return find_language(code, self.all_targets)

    def find_language(self, code: str) -> str | None:
        """Return the language, source or target, that a code means; None for none. See `find_language`."""
        return find_language(code, self.languages)

    def wait(self, tokens: float = math.inf) -> float:
        """Return about how many seconds a request for so many tokens would wait, at the busiest model."""
        return max((pool.wait(tokens) for pool in self.pools), default=0.0)

    def stalled(self) -> float:
        """Return for how many seconds a model has had work without finishing a step; 0 where all go on."""
        return max((pool.stalled() for pool in self.pools), default=0.0)

    def close(self, timeout: float) -> None:
        """Finish what was asked for, within so many seconds, and end the threads."""
        end = time.monotonic() + timeout
        for pool in self.pools:
            pool.close(max(0.0, end - time.monotonic()))


def parse_model(text: str) -> ModelSource:
    """Return what a --model says: FOLDER, PAIR=FOLDER or PAIR=FOLDER:TAG.

    Raise UsageError where the folder is missing or its languages are not known.
    """
    named, _, rest = text.partition("=")
    pair = parse_pair(named) if rest and PAIR.fullmatch(named) else None
    name, tag = (rest if pair else text), ""
    if not Path(name).is_dir() and ":" in name:
        name, _, tag = name.rpartition(":")
    if not Path(name).is_dir():
        if rest and not pair and Path(rest).is_dir():
            raise UsageError(f"{text}: '{named}' is not a pair of languages, such as en-de")
        raise UsageError(f"{name}: no such model folder")
    folder = find_model(Path(name))
    pair = pair or read_languages(folder)
    if not pair:
        raise UsageError(f"{name} does not record its languages: write them in front, as in en-de={name}")
    return ModelSource(pair, folder, tag, Path(name).absolute().name)


def parse_models(texts: Sequence[str], pivot: str | None) -> list[ModelSource]:
    """Return what several --model say. Raise UsageError for none, for two of one pair, and for a useless pivot."""
    if not texts:
        raise UsageError("give a model: dragoman serve -m en-de=runs/mine")
    sources = [parse_model(text) for text in texts]
    pairs = [source.pair for source in sources]
    for pair in pairs:
        if pairs.count(pair) > 1:
            raise UsageError(f"two models for {pair}: leave out one")
    into, out_of = ({pair.target for pair in pairs}, {pair.source for pair in pairs})
    if pivot is not None and not (pivot in into and pivot in out_of):
        raise UsageError(f"--pivot {pivot}: there must be a model into it and one out of it")
    return sources


def open_models(config: ServeConfig, sources: Sequence[ModelSource]) -> Models:
    """Open and warm up all models. Raise DragomanError where one is damaged, lacks its tag, or does not translate."""
    opened: dict[Path, Served] = {}
    served = []
    threads, replicas = config.threads, 1  # one thread steps the batches of the native engine
    if config.engine == "ctranslate2":
        threads = threads or 1
        replicas = config.replicas or max(1, granted_cores() // config.processes // threads)
    for source in sources:
        if source.folder not in opened:
            translator = Translator.load(
                source.folder,
                SearchConfig(beam=config.beam),
                device=config.device,
                engine=config.engine,
                compute_type=config.compute_type,
                threads=threads,
                replicas=replicas,
            )
            pool = Pool(
                translator.engine,
                threads=replicas,
                batches=config.batches,
                gather=config.gather,
                cache=config.cache << 20,
            )
            summary = Summary.read(source.folder, translator.model.config, translator.tokenizers)
            opened[source.folder] = Served(source, translator, pool, summary, 0.0)
        served.append(warm_up(replace(opened[source.folder], source=source)))
    return Models(served, config.pivot)


def warm_up(served: Served) -> Served:
    """Translate a sentence, and return the model with its speed. Raise DragomanError where it fails."""
    translator = served.translator_for(Ticket(), served.translator.search, served.translator.safeguards)
    try:
        translator.translate(WARM_UP, served.source.tag)
        crowd = [WARM_UP.replace("a sentence", f"sentence {number}") for number in range(CROWD)]
        translator.translate(crowd, served.source.tag)
        began = time.perf_counter()
        translator.translate(WARM_UP.replace("a sentence", "another sentence"), served.source.tag)
    except DragomanError as error:
        raise DragomanError(f"{served.source.folder}: cannot serve {served.pair}: {error}") from None
    return replace(served, rate=1 / (time.perf_counter() - began))
