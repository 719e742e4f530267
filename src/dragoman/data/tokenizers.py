"""Pair the tokenizers of a model: one for its sources and one for its targets. In our own models they are the same."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Union, runtime_checkable

import numpy as np

from dragoman.data.tokenizer import Tokenizer, read_tokenizer
from dragoman.errors import UsageError

# In a folder there is one file for both sides, or one for each side.
JOINT, SIDES = "tokenizer.json", ("source-tokenizer.json", "target-tokenizer.json")


@runtime_checkable
class SideTokenizer(Protocol):
    """Turns texts of one side of a model into ids and back. Ids 0, 1 and 2 are PAD, BOS and EOS."""

    pieces: list[str]
    "by id, as text: spaces are real ones, a byte is such as '<0x6C>'"
    tags: dict[str, int]
    "ids of the entries that may stand in front of a text to name its language or domain, by name"
    special_ids: set[int]
    "entries without text: PAD, BOS, EOS and tags"
    byte_values: dict[int, int]
    "the byte that each entry for a byte stands for, by id"

    @property
    def unknown(self) -> int | None:
        """The entry for an unknown word; None where all words can be spelled."""

    @property
    def suppressed(self) -> tuple[int, ...]:
        """The entries that no search may generate."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...

    def encode(self, text: str, tag: str = "") -> list[int]:
        """Return the ids of one text without BOS and EOS, the tag in front. Raise DragomanError for an unknown tag."""

    def encode_all(self, texts: Sequence[str], tag: str = "") -> list[list[int]]:
        """Return the ids of texts, as `encode` does."""

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts to translate, as `encode_all` does, but of what `plain_spaces` makes of them."""

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of a text that follows other characters, without a space in front of it."""

    def plain_spaces(self, text: str) -> str:
        """Return a text as `encode_sources` reads it, with the spaces that a model has learned to read."""

    def tag_ids(self, tag: str) -> list[int]:
        """Return the ids in front of a text with this tag: one, or none for ''. Raise DragomanError for another."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without the entries that have none."""

    def to_json(self) -> str:
        """Return the content of the file that it is loaded from."""


class Tokenizers(NamedTuple):
    """The tokenizers of the two sides of a model."""

    source: SideTokenizer
    target: SideTokenizer

    @classmethod
    def from_tokenizer(cls, tokenizer: Union[SideTokenizer, "Tokenizers"]) -> "Tokenizers":
        """Return the pair in which one tokenizer reads both sides; a pair as it is."""
        return tokenizer if isinstance(tokenizer, Tokenizers) else cls(tokenizer, tokenizer)

    @property
    def is_one(self) -> bool:
        """Return whether both sides have the same tokenizer."""
        return self.source is self.target

    @property
    def target_vocabulary(self) -> int | None:
        """The number of entries of the target's tokenizer; None where it is the source's, too."""
        return None if self.is_one else len(self.target)

    def __str__(self) -> str:
        sizes = {len(self.source): None, len(self.target): None}
        return f"{' and '.join(f'{size:,}' for size in sizes)} subwords"

    def encode_sides(
        self, sources: Sequence[str], targets: Sequence[str], tag: str = "", target_tag: str = ""
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Return the ids of both sides, tags in front, without BOS and EOS. Raise DragomanError for an unknown tag."""
        return self.source.encode_all(sources, tag), self.target.encode_all(targets, target_tag)

    def bpe(self) -> tuple[Tokenizer, Tokenizer]:
        """Return both if they are of our own kind, which can cut a text in several ways. Raise UsageError otherwise."""
        source, target = self
        if not isinstance(source, Tokenizer) or not isinstance(target, Tokenizer):
            raise UsageError("BPE-dropout needs tokenizers that dragoman has learned: leave out training.bpe_dropout")
        return source, target

    def as_files(self) -> dict[str, str]:
        """Return the content of the files that they are loaded from, by name; equal for equal tokenizers."""
        names = (JOINT,) if self.is_one else SIDES
        return {name: side.to_json() for name, side in zip(names, self, strict=False)}

    def save(self, folder: Path) -> None:
        """Write the files into a folder."""
        for name, content in self.as_files().items():
            (folder / name).write_text(content, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, vocabulary: int | None = None, target_vocabulary: int | None = None) -> "Tokenizers":
        """Read the tokenizers in a folder. Raise DragomanError where one is missing or damaged, OSError as `open` does.

        vocabulary, target_vocabulary: how many entries the model in the folder has; `target_vocabulary` is None where
        both sides have one tokenizer. A file that is too large for them is refused before it costs memory. Without
        them, there is one tokenizer unless there is a file for each side.
        """
        if target_vocabulary is None and (
            vocabulary is not None or not all((folder / name).exists() for name in SIDES)
        ):
            return cls.from_tokenizer(load_tokenizer(folder / JOINT, vocabulary))
        source, target = SIDES
        return cls(load_tokenizer(folder / source, vocabulary), load_tokenizer(folder / target, target_vocabulary))


def tag_of(tokenizer: SideTokenizer, ids: Sequence[int] | np.ndarray) -> list[int]:
    """Return the tag that ids begin with, or nothing."""
    return [int(id) for id in ids[:1] if id in tokenizer.tags.values()]


def load_tokenizer(file: Path, vocabulary: int | None = None) -> SideTokenizer:
    """Read the file of one tokenizer. Raise DragomanError where it is missing or damaged, OSError as `open` does.

    vocabulary: how many entries its model has; a file that is too large for them is refused.
    """
    return read_tokenizer(file, vocabulary, tokenizer_of)


def tokenizer_of(content: dict[str, Any]) -> SideTokenizer:
    """Return the tokenizer that the content of a file describes. Raise an exception of any kind if it is none."""
    if "sentencepiece" in content:
        from dragoman.data.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer.from_json(content)
    return Tokenizer.from_json(content)
