"""Learn the tokenizer of a new run from its texts, or take over those of the model that it starts from."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from dragoman.config import RunConfig
from dragoman.config.presets import PRESETS
from dragoman.data.corpus import stream_rows
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import SAMPLE_LENGTH, Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import UsageError, plural
from dragoman.model_folder import fetch_model, read_parts
from dragoman.storage.writing import replace_file
from dragoman.training.journal import Journal


def prepare_tokenizers(
    config: RunConfig, train: Sequence[CorpusSpec], dev: Sequence[CorpusSpec], folder: Path, journal: Journal
) -> Tokenizers:
    """Write the tokenizers of a new run into a folder and return them: those of `init_from`, or one that is learned.

    They have the tags of all corpora, dev ones included. If subwords were learned from the beginnings of some training
    texts, that is logged. Raise UsageError where the vocabulary is too small, or smaller than that of `init_from`.
    """
    shortened = 0

    def training_texts() -> Iterator[str]:
        nonlocal shortened
        for row in chain.from_iterable(map(stream_rows, train)):
            shortened += max(len(row.source), len(row.target)) > SAMPLE_LENGTH
            yield from (row.source, row.target)

    tags = tuple(dict.fromkeys(tag for spec in (*train, *dev) for tag in spec.tags if tag))
    if config.init_from:
        _, tokenizers = read_parts(fetch_model(Path(config.init_from)))
        tokenizers = extend_tokenizers(tokenizers, config, training_texts(), tags)
    else:
        journal.log(f"learning subwords from {' '.join(spec.name for spec in train)}")
        suggested = PRESETS[config.preset].vocabulary
        tokenizers = Tokenizers.from_tokenizer(Tokenizer.train(training_texts(), config.vocabulary, suggested, tags))
    if shortened:
        journal.log(
            f"subwords are learned from the first {SAMPLE_LENGTH:,} characters of a text; longer: "
            f"{plural(shortened, 'pair')}"
        )
    for name, content in tokenizers.as_files().items():
        replace_file(folder / name, content)
    return tokenizers


def extend_tokenizers(
    tokenizers: Tokenizers, config: RunConfig, texts: Iterable[str], tags: Sequence[str]
) -> Tokenizers:
    """Return the tokenizers of the model to start from with new tags, and new subwords of texts up to `vocabulary`.

    Raise UsageError where they cannot learn any, or have more subwords than `vocabulary`.
    """
    reader = tokenizers.source
    if config.vocabulary and config.vocabulary < len(reader):
        raise UsageError(
            f"vocabulary {config.vocabulary:,} is not possible: {config.init_from} has {len(reader):,} "
            "subwords, which stay; leave it out, or choose more to learn new ones"
        )
    size = max(config.vocabulary or 0, len(reader) + sum(tag not in reader.tags for tag in tags))
    if size == len(reader):
        return tokenizers
    if not tokenizers.is_one or not isinstance(reader, Tokenizer):
        raise UsageError(
            f"the tokenizers of {config.init_from} cannot learn new subwords or tags: leave out --vocabulary and new "
            "tags"
        )
    return Tokenizers.from_tokenizer(reader.extend(texts, size, tags))
