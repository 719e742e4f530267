"""Write, fetch and read model folders."""

import contextlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from safetensors.torch import save_file

from dragoman.config import ModelConfig, as_dict
from dragoman.data.tokenizer import PAD
from dragoman.data.tokenizers import JOINT, SIDES, Tokenizers
from dragoman.errors import DragomanError
from dragoman.model import Model, build_empty
from dragoman.model_folder.manifest import read_manifest, verify_files
from dragoman.model_folder.weights import WEIGHTS, load_weights, named_tensors, read_description
from dragoman.storage import formats
from dragoman.storage.hub import Repository, is_on_hub
from dragoman.storage.records import read_json, read_listed
from dragoman.storage.writing import CARD, MANIFEST, fingerprint, replace_file


def write_model(folder: Path, model: Model, tokenizers: Tokenizers, card: str) -> None:
    """Write a model and its card (Markdown) into `folder`, without the manifest: callers wrap this in `new_folder`."""
    sizes = {"vocabulary": len(tokenizers.source), "target_vocabulary": tokenizers.target_vocabulary}
    known = {name: size for name, size in sizes.items() if size is not None}
    description = {**formats.stamp(formats.MODEL), **as_dict(model.config), **known, "pad": model.pad}
    (folder / "config.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    save_file({names[0]: tensor.detach() for names, tensor in named_tensors(model)}, folder / WEIGHTS)
    tokenizers.save(folder)
    (folder / CARD).write_text(card, encoding="utf-8")


def copy_records(folder: Path, draft: Path, names: Sequence[str]) -> None:
    """Copy those records of `names` that the manifest of the model folder `folder` lists into the folder `draft`."""
    for name in names:
        if (record := read_listed(folder / name)) is not None:
            (draft / name).write_text(record, encoding="utf-8")


def add_record(folder: Path, name: str, text: str) -> None:
    """Write a record into a finished model folder, and list it in its manifest, which vouches for it from then on."""
    replace_file(folder / name, text)
    manifest = {**read_json(folder / MANIFEST), name: fingerprint(folder / name)}
    replace_file(folder / MANIFEST, json.dumps(dict(sorted(manifest.items())), indent=1) + "\n")


def fetch_model(path: Path) -> Path:
    """Return the folder of a model: the best of `path` if it is a run folder, else `path` itself.

    Where `path` is a name such as 'hub:USER/NAME', download the model first, and raise as `download_model` does. No
    link is left in the folder that training may move: whoever reads several files of a model calls this once. Raise
    DragomanError for a run without a checkpoint.
    """
    if is_on_hub(path):
        return download_model(str(path))
    best = path / "best"
    if best.is_dir():
        return best.resolve()
    is_run = (path / "config.toml").is_file() and not (path / MANIFEST).exists()
    if is_run and not any((path / "checkpoints").glob("step-*")):
        raise DragomanError(f"{path}: this run has no checkpoint yet, so there is no model")
    return path.resolve() if path.is_symlink() else path


@cache
def download_model(name: str) -> Path:
    """Return the folder of a model on the Hugging Face Hub, with the files that its manifest lists, and its card.

    In a process, a name stays the same commit. Nothing was compared with the manifest yet. Raise DragomanError where it
    is no model folder and as `Repository.download` does, UsageError for a name that is none.
    """
    repository = Repository.parse(name)
    manifest = repository.download(MANIFEST)
    if manifest is None:
        raise DragomanError(
            f"{name}: not a model folder of dragoman: it has no {MANIFEST}; if it is a model of Hugging Face, Marian "
            f"or fairseq, import it first: dragoman import {name} OUT"
        )
    folder = manifest.parent
    commit = replace(repository, revision=folder.name)
    for file in read_manifest(folder):
        commit.download(file)
    with contextlib.suppress(DragomanError):  # text for people, which may be missing
        commit.download(CARD)
    return folder


def read_model(path: Path) -> tuple[Model, Tokenizers]:
    """Return the model and the tokenizers of a model folder or run folder, on the CPU, in eval mode.

    Raise DragomanError naming the file where something is missing, damaged or does not fit.
    """
    folder = fetch_model(path)
    verify_files(folder)
    return load_model(folder)


def read_config(path: Path) -> ModelConfig:
    """Return the settings of the model in a model folder or run folder, without loading its weights.

    Raise DragomanError as `read_model` does, but not for weights that do not fit the settings.
    """
    folder = fetch_model(path)
    verify_files(folder)
    return read_parts(folder)[0]


def load_model(folder: Path) -> tuple[Model, Tokenizers]:
    """Return model and tokenizers from a model folder that was verified before; on the CPU, in eval mode.

    Raise DragomanError where the files do not fit together.
    """
    config, tokenizers = read_parts(folder)
    model = build_empty(config, len(tokenizers.source), tokenizers.target_vocabulary, PAD)
    load_weights(model, folder / WEIGHTS)
    return model.eval(), tokenizers


def read_parts(folder: Path) -> tuple[ModelConfig, Tokenizers]:
    """Return the settings and the tokenizers in a model folder. Raise DragomanError where they do not fit together."""
    file = folder / "config.json"
    config, *sizes = read_description(file)
    tokenizers = Tokenizers.load(folder, *sizes)
    for name, size, tokenizer in zip((JOINT,) if tokenizers.is_one else SIDES, sizes, tokenizers, strict=False):
        if size != len(tokenizer):
            raise DragomanError(f"{file}: {size} words, but {name} has {len(tokenizer)}")
    return config, tokenizers
