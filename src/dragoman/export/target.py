"""Describe what a target of an export is: what belongs into its folder, and how the folder is opened to check it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizers import Tokenizers
from dragoman.interop.verification import Copy
from dragoman.model import Model
from dragoman.text.tags import DefaultTags


@dataclass(frozen=True)
class Exported:
    """What is exported: a model, its tokenizers, and the tags that its texts have where none are given."""

    model: Model
    tokenizers: Tokenizers
    tags: DefaultTags


@dataclass(frozen=True)
class Target:
    """A kind of folder that a model is exported to."""

    title: str  # for the heading of the README
    compute_types: tuple[str, ...]  # of the weights; the first is the default
    search: SearchConfig  # of the program that `usage` shows
    check: Callable[[Exported], None]
    "raise DragomanError for a model that it cannot hold, with what to do"
    write: Callable[[Exported, Path, str], None]
    "write all files but the README into a folder, with weights of a compute type"
    check_subwords: Callable[[Path, Exported, Sequence[Ids]], None]
    "raise Mismatch where the subwords in a folder do not do with the texts of sources, or a tag, what the model's do"
    open: Callable[[Path, Exported, str], Copy]
    "open a folder that was written, to be compared; raise Mismatch where its words are not those of the model"
    usage: Callable[[Exported, str], str]
    "how the folder is used, for the README: Markdown, with a program that needs the folder alone"
    quiet: Callable[[], AbstractContextManager] = nullcontext
    "a block in which the libraries of that program print nothing"
    records: tuple[str, ...] = ()
    "records of the model folder that go along, for an import of the folder"
