"""Describe what a target of an export is: what belongs into its folder, and how the folder is opened to check it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dragoman.config import ModelConfig, SearchConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.interop.verification import Copy
from dragoman.model import Model


@dataclass(frozen=True)
class Target:
    """A kind of folder that a model is exported to."""

    title: str  # for the heading of the README
    compute_types: tuple[str, ...]  # of the weights; the first is the default
    search: SearchConfig  # with which the folder is used
    check: Callable[[ModelConfig], None]
    "raise DragomanError for a model that it cannot hold, with what to do"
    write: Callable[[Model, Tokenizer, Path, str], None]
    "write all files but the README into a folder, with weights of a compute type"
    open: Callable[[Path, Model, Tokenizer, str], Copy]
    "open a folder that was written, to be compared; raise Mismatch where its subwords are not those of the model"
    usage: Callable[[Model, str], str]
    "how the folder is used, for the README: Markdown, with a program that needs the folder alone"
