"""Average checkpoints: one model with the mean of their weights, section 6.1."""

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch

from dragoman.alignment.heads import AlignmentHead
from dragoman.config import as_dict
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.model import Model
from dragoman.model_folder import copy_records, fetch_model, read_model, write_model
from dragoman.model_folder.weights import named_tensors
from dragoman.storage.writing import new_folder
from dragoman.text import languages, scripts
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.training.card import card_of_average


def average(folders: Sequence[Path], out: Path) -> None:
    """Write the model folder `out` with the mean weights of the models in `folders`, whose order does not matter.

    Sums are in double precision. Raise UsageError where `out` exists or a folder is named twice, DragomanError where a
    folder is damaged or models differ in more than their weights.
    """
    refuse_existing(out)
    # A sum depends on its order, if only in its last bits.
    folders = sorted(fetch_model(folder).resolve() for folder in folders)
    for folder, following in pairwise(folders):
        if folder == following:
            raise UsageError(f"{os.path.relpath(folder)}: named twice; each checkpoint counts once")
    model, tokenizers = read_model(folders[0])
    sums = [tensor.double() for _, tensor in named_tensors(model)]
    for folder in folders[1:]:
        added, its_tokenizers = read_model(folder)
        if difference := difference_of(added, its_tokenizers, model, tokenizers):
            names = os.path.relpath(folder), os.path.relpath(folders[0])
            raise DragomanError(f"{names[0]}: cannot be averaged with {names[1]}: {difference}")
        for total, (_, tensor) in zip(sums, named_tensors(added), strict=True):
            total += tensor
    with torch.no_grad():
        for total, (_, tensor) in zip(sums, named_tensors(model), strict=True):
            tensor.copy_(total / len(folders))
    with new_folder(out) as draft:
        write_model(draft, model, tokenizers, card_of_average(out.name, folders))
        # As true of the mean as of each of them.
        records = (AlignmentHead, SourceExtent, KnownWords, scripts, languages, DefaultTags, LanguageTags, Origin)
        copy_records(folders[-1], draft, [record.RECORD for record in records])


def refuse_existing(out: Path) -> None:
    """Raise UsageError where the folder to write exists."""
    if out.exists():
        raise UsageError(f"{out}: exists already; choose another name with --out")


def difference_of(other: Model, its_tokenizers: Tokenizers, model: Model, tokenizers: Tokenizers) -> str:
    """Return in words how `other` differs from `model` in its subwords or settings; '' where it does not."""
    # Unrelated models differ in their subwords; of their settings, the first to differ may be one that hardly matters.
    if its_tokenizers.as_files() != tokenizers.as_files():
        return "its tokenizer has other subwords"
    theirs, ours = as_dict(other.config), as_dict(model.config)
    for name in {**ours, **theirs}:
        if theirs.get(name) != ours.get(name):
            return f"its {name} is {theirs.get(name)}, not {ours.get(name)}"
    return ""
