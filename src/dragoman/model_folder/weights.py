"""Read the description of a model and the weights that it says there are."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from dragoman.config import ModelConfig, RecurrentConfig, TransformerConfig, model_config
from dragoman.data.tokenizer import PAD
from dragoman.errors import DragomanError, is_out_of_memory
from dragoman.model import Model, outline
from dragoman.storage import formats
from dragoman.storage.records import read_json
from dragoman.storage.writing import name_errors

WEIGHTS = "model.safetensors"
DTYPES = ("F64", "F32", "F16", "BF16")  # that weights may have in a file; a model computes in float32
HEADER_SIZE = 8 << 10  # bytes for each layer: a layer of the decoder has 30 names of 100 bytes
Named = TypeVar("Named")


class Description(NamedTuple):
    """What config.json says of a model: its settings, and how many subwords it has, special tokens included."""

    config: ModelConfig
    vocabulary: int
    target_vocabulary: int | None  # None: one tokenizer reads both sides


def read_description(file: Path) -> Description:
    """Return the model that config.json describes. Raise DragomanError where it is damaged."""
    try:
        with name_errors(file):
            content = read_json(file)
        description = formats.unstamp(content, formats.MODEL, str(file))
        vocabulary, pad = int(description.pop("vocabulary")), int(description.pop("pad"))
        target_vocabulary = int(description.pop("target_vocabulary")) if "target_vocabulary" in description else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise DragomanError(f"{file}: not a model description: {error!r}") from None
    if pad != PAD:
        raise DragomanError(f"{file}: the padding id is {pad}, the tokenizer's is {PAD}")
    return Description(model_config(description, str(file)), vocabulary, target_vocabulary)


def check_weights(file: Path) -> None:
    """Raise DragomanError where the tensors in model.safetensors are not those of the config.json beside it.

    Only its header is read, which tells how long the file is.
    """
    description = read_description(file.with_name("config.json"))
    config = description.config
    with name_errors(file), file.open("rb") as opened:
        header = int.from_bytes(opened.read(8), "little")
    layers = config.layers if isinstance(config, RecurrentConfig) else config.encoder_layers + config.decoder_layers
    if header > HEADER_SIZE * (layers + 8):  # as much for the embeddings and the rest
        raise DragomanError(f"{file}: damaged: its header has {header:,} bytes")
    with name_tensor_errors(file), safe_open(str(file), framework="pt") as opened:
        tensors = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        dtypes = {name: tensor.get_dtype() for name, tensor in tensors.items()}
        shapes = {name: tuple(tensor.get_shape()) for name, tensor in tensors.items()}
    for name, dtype in dtypes.items():
        if dtype not in DTYPES:
            raise DragomanError(f"{file}: '{name}' is in {dtype}; weights are in {', '.join(DTYPES)}")
    check_shapes(description, current_names(shapes), file)


def named_tensors(model: Model) -> list[tuple[list[str], Tensor]]:
    """Return all names and the value of every tensor of `model`; a shared matrix has several names."""
    groups: dict[int, tuple[list[str], Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        groups.setdefault(id(tensor), ([], tensor))[0].append(name)
    return list(groups.values())


def expected_shapes(description: Description) -> list[tuple[list[str], tuple[int, ...]]]:
    """Return all names and the shape of every tensor of such a model.

    Only one layer of each stack is outlined, since the others are like it: thousands would take seconds.
    """
    outlined = config = description.config
    if type(config) is TransformerConfig:  # a change of the lab may have a weight for each layer
        stacks = {f"{name}_layers": min(1, getattr(config, f"{name}_layers")) for name in ("encoder", "decoder")}
        outlined = replace(config, **stacks)
    shapes: list[tuple[list[str], tuple[int, ...]]] = []
    for names, tensor in named_tensors(outline(outlined, *description[1:])):
        stack = re.match(r"(encoder|decoder)\.0\.", names[0]) if outlined is not config else None
        for layer in range(getattr(config, f"{stack[1]}_layers") if stack else 1):
            of_layer = [re.sub(r"\.0\.", f".{layer}.", name, count=1) for name in names] if stack else names
            shapes.append((of_layer, tuple(tensor.shape)))
    return shapes


def check_shapes(description: Description, shapes: dict[str, tuple[int, ...]], file: Path) -> None:
    """Raise DragomanError where `shapes`, by name, of which it takes names out, are not those of such a model."""
    config = description.config
    layers = config.layers if isinstance(config, RecurrentConfig) else config.encoder_layers + config.decoder_layers
    if layers > len(shapes):
        raise DragomanError(f"{file}: {len(shapes)} tensors are too few for the {layers} layers of config.json")
    try:
        expected = expected_shapes(description)
    except (DragomanError, RuntimeError, TypeError, ValueError, IndexError, OverflowError) as error:
        raise DragomanError(f"{file.with_name('config.json')}: invalid model: {error}") from None
    for names, shape in expected:
        if not any(name in shapes for name in names):
            raise DragomanError(f"{file}: '{names[0]}' is missing")
        for name in names:
            if (there := shapes.pop(name, shape)) != shape:
                raise DragomanError(f"{file}: '{name}' is {there}, but config.json describes {shape}")
    for name in shapes:
        raise DragomanError(f"{file}: '{name}' is not part of the model that config.json describes")


def load_weights(model: Model, file: Path) -> None:
    """Load the weights in a file into the model, in place; the file is known to have the model's shapes.

    Raise DragomanError where a weight is infinite or not a number, since such a model translates nothing, and as
    `read_tensors` does.
    """
    model.load_state_dict(read_tensors(file), strict=False)
    for name, parameter in model.named_parameters():  # in float32, where values of a file in float64 may be infinite
        if not all_finite(parameter.detach()):
            raise DragomanError(f"{file}: damaged: {name} has values that are infinite or not numbers")


def all_finite(tensor: Tensor) -> bool:
    """Return whether all values of a tensor of floats are finite; it must have some."""
    least, most = tensor.aminmax()  # NaN if one value is; ten times as fast as asking each of them
    return bool(least.isfinite() and most.isfinite())


def read_tensors(file: Path) -> dict[str, Tensor]:
    """Return the tensors in a file by the names that they have today. Raise as `name_tensor_errors` does."""
    with name_tensor_errors(file):
        return current_names(load_file(file))


@contextmanager
def name_tensor_errors(file: Path) -> Iterator[None]:
    """Let an error of reading tensors from a file in the block name the file and the reason.

    Raise DragomanError where it is no safetensors file, and OSError where the system cannot read it.
    """
    try:
        yield
    except SafetensorError as error:
        raise DragomanError(f"{file}: not a safetensors file: {error}") from None
    except FileNotFoundError:  # what the library raises where it cannot open a file, whatever the reason
        with file.open("rb"):  # raises what the system says
            pass
        raise OSError(errno.EIO, f"{os.strerror(errno.EIO)}: it could not be opened", str(file)) from None
    except RuntimeError as error:  # how PyTorch reports errors of the system
        if is_out_of_memory(error) or f"<{file}>" not in str(error):
            raise
        raise OSError(errno.EIO, str(error).rsplit(">", 1)[-1].rsplit(": ", 1)[-1], str(file)) from None


def current_names(tensors: dict[str, Named]) -> dict[str, Named]:
    """Return tensors of a file, or their shapes, by the names that they have in a model today.

    Up to version 0.1 the weight of additive attention was `kernel.weight`.
    """
    return {re.sub(r"\bkernel\.weight\b", "score.weight", name): tensor for name, tensor in tensors.items()}
