"""The model folder: config.json, model.safetensors, tokenizer.json, card.md, manifest.json. Nothing in it is code."""

import json
import re
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from dragoman.config import ModelConfig, RecurrentConfig, as_dict, model_config
from dragoman.data.tokenizer import PAD, Tokenizer
from dragoman.errors import DragomanError
from dragoman.files import MANIFEST, fingerprint
from dragoman.model import Model, build, outline

FILES = ("config.json", "model.safetensors", "tokenizer.json", "card.md")
LARGEST_CONFIG = 1_000_000  # bytes
LONGEST_NAME = 100  # characters

Named = TypeVar("Named")


def verify(folder: Path) -> None:
    """Raises DragomanError naming the first file that is missing or is not the one that was written."""
    if not folder.is_dir():
        raise DragomanError(f"{folder}: no such model folder")
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        expected = {str(name): (entry["bytes"], entry["sha256"]) for name, entry in manifest.items()}
    except FileNotFoundError:
        raise DragomanError(f"{folder}: not a model folder: it has no {MANIFEST}") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise DragomanError(f"{folder / MANIFEST}: damaged") from None
    for name in FILES:
        if name not in expected:
            raise DragomanError(f"{folder / MANIFEST}: damaged: it does not list {name}")
    for name, (size, digest) in expected.items():
        file = folder / name
        if Path(name).name != name or len(name) > LONGEST_NAME:
            raise DragomanError(f"{folder / MANIFEST}: damaged: {name[:LONGEST_NAME]!r} is no file name")
        if not file.is_file():
            raise DragomanError(f"{file}: missing from the model folder")
        if file.stat().st_size != size or fingerprint(file)["sha256"] != digest:
            raise DragomanError(f"{file}: damaged: it is not the file that was written (SHA-256 differs)")


def write_model(folder: Path, model: Model, tokenizer: Tokenizer, card: str) -> None:
    """Write the files of a model into `folder`; the caller wraps this in `new_folder`."""
    config = as_dict(model.config)
    description = {**config, "vocabulary": len(tokenizer), "pad": model.pad}
    (folder / "config.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    save_file({names[0]: tensor.detach() for names, tensor in weights(model)}, folder / "model.safetensors")
    tokenizer.save(folder / "tokenizer.json")
    (folder / "card.md").write_text(card, encoding="utf-8")


def find_model(path: Path) -> Path:
    """A model folder, or the best model of a run folder."""
    best = path / "best"
    return best.resolve() if best.is_dir() else path  # training may move the link while we read


def read_model(path: Path) -> tuple[Model, Tokenizer]:
    """The model and the tokenizer of a model folder or run folder, ready to translate.

    Raises DragomanError naming the file where something is missing, damaged or does not fit.
    """
    folder = find_model(path)
    verify(folder)
    return load_model(folder)


def load_model(folder: Path) -> tuple[Model, Tokenizer]:
    """As `read_model`, from a folder that was verified. Shapes are compared with the file's header before any weight is
    allocated.
    """
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    config_file, weights_file = folder / "config.json", folder / "model.safetensors"
    try:
        if config_file.stat().st_size > LARGEST_CONFIG:
            raise DragomanError(f"{config_file}: too large for a model description")
        description = json.loads(config_file.read_text(encoding="utf-8"))
        vocabulary, pad = int(description.pop("vocabulary")), int(description.pop("pad"))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise DragomanError(f"{config_file}: not a model description: {error!r}") from None
    if vocabulary != len(tokenizer):
        raise DragomanError(f"{config_file}: {vocabulary} words, but tokenizer.json has {len(tokenizer)}")
    if pad != PAD:
        raise DragomanError(f"{config_file}: the padding id is {pad}, the tokenizer's is {PAD}")
    config = model_config(description, str(config_file))
    try:
        with safe_open(str(weights_file), framework="pt") as opened:
            found = {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise DragomanError(f"{weights_file}: not a safetensors file: {error}") from None
    check_shapes(config, vocabulary, current_names(found), weights_file)
    model = build(config, vocabulary, pad=pad)
    load_weights(model, weights_file)
    return model.eval(), tokenizer


def weights(model: Model) -> list[tuple[list[str], Tensor]]:
    """Every tensor of `model` once, with all the names it has: a shared matrix has several."""
    groups: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), ([], tensor))[0].append(name)
    return list(groups.values())


def check_shapes(config: ModelConfig, vocabulary: int, found: dict[str, tuple[int, ...]], file: Path) -> None:
    """Raises DragomanError where the tensors in a file are not those of such a model; allocates none of them."""
    layers = config.layers if isinstance(config, RecurrentConfig) else config.encoder_layers + config.decoder_layers
    if layers > len(found):
        raise DragomanError(f"{file}: {len(found)} tensors are too few for the {layers} layers of config.json")
    try:
        expected = weights(outline(config, vocabulary))
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise DragomanError(f"{file.with_name('config.json')}: no such model can be: {error}") from None
    for names, tensor in expected:
        shape = tuple(tensor.shape)
        if not any(name in found for name in names):
            raise DragomanError(f"{file}: '{names[0]}' is missing")
        for name in names:
            if (there := found.pop(name, shape)) != shape:
                raise DragomanError(f"{file}: '{name}' is {there}, but config.json describes {shape}")
    for name in found:
        raise DragomanError(f"{file}: '{name}' is not part of the model that config.json describes")


def load_weights(model: Model, file: Path) -> None:
    """Fill `model` from a file whose shapes were checked or that the model itself was saved to."""
    model.load_state_dict(current_names(load_file(file)), strict=False)


def current_names(tensors: dict[str, Named]) -> dict[str, Named]:
    """Return tensors of a file, or their shapes, by the names that they have in a model today.

    Up to version 0.1 the weight of additive attention was `kernel.weight`.
    """
    return {re.sub(r"\bkernel\.weight\b", "score.weight", name): tensor for name, tensor in tensors.items()}
