"""Save, verify and load model folders: config.json, model.safetensors, tokenizers, card.md, manifest.json.

Nothing in them is code, and nothing in them is trusted: they come from strangers.
"""

import contextlib
import errno
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from dragoman import formats
from dragoman.config import ModelConfig, RecurrentConfig, TransformerConfig, as_dict, model_config
from dragoman.data.tokenizer import PAD
from dragoman.data.tokenizers import JOINT, SIDES, Tokenizers
from dragoman.errors import DragomanError, is_out_of_memory
from dragoman.files import (
    CARD,
    MANIFEST,
    MAX_RECORD_SIZE,
    MAX_TABLE_SIZE,
    fingerprint,
    name_errors,
    read_json,
    read_listed,
    refuse_links_out,
)
from dragoman.hub import Repository, is_on_hub
from dragoman.model import Model, build_empty, outline

WEIGHTS, TRAINING_STATE = "model.safetensors", "state.safetensors"
FILES = ("config.json", WEIGHTS)
DTYPES = ("F64", "F32", "F16", "BF16")  # that weights may have in a file; a model computes in float32
MAX_NAME_LENGTH = 100  # characters

# Bytes: training writes nothing larger.
HEADER_SIZE = 8 << 10  # of weights, for each layer: a layer of the decoder has 30 names of 100 bytes
MAX_SIZES = dict.fromkeys((JOINT, *SIDES, "state.json"), MAX_TABLE_SIZE)  # others: MAX_RECORD_SIZE
WORTH_READING = 4 << 30  # of a file that cannot be right, to say whether it was changed: some seconds
MAX_TRAINING_STATE = 8  # times the size of the weights: two moments of each, and the weights beside their average

Named = TypeVar("Named")


def verify_files(folder: Path) -> None:
    """Raise DragomanError, naming the file, where the manifest or one of its files is missing or was changed.

    The card, which older manifests list, may be missing or changed.
    """
    if damage := next(find_damage(folder, read_manifest(folder)), None):
        raise DragomanError(f"{damage}; copy or download the folder again")


def read_manifest(folder: Path, required: Sequence[str] = FILES) -> dict[str, tuple[int, str]]:
    """Return the size in bytes and the SHA-256 of each file of a model folder, by name, but not of the card.

    Raise DragomanError where there is no manifest, it is damaged or does not list the files `required` and those of
    tokenizers, where the model was exported for another program, and where a file is a link that leads out of the
    folder.
    """
    manifest = read_checksums(folder)
    if program := exported_for(folder, manifest):
        raise DragomanError(f"{folder}: a model that was exported for {program}, not a model folder of dragoman")
    if nested := next((name for name in manifest if "/" in name), None):
        raise DragomanError(f"{folder / MANIFEST}: damaged: {nested!r} is not a file name")
    for name in (*required, *(SIDES if SIDES[0] in manifest else (JOINT,))):
        if name not in manifest:
            raise DragomanError(f"{folder / MANIFEST}: damaged: it does not list {name}")
    return manifest


def exported_for(folder: Path, names: Iterable[str]) -> str | None:
    """Return the program that a folder with files of these names was exported for; None for a model folder."""
    if "model.bin" in names:
        return "CTranslate2"
    if any(name.endswith(".onnx") for name in names):
        return "onnxruntime"
    with contextlib.suppress(OSError, ValueError, TypeError):
        if "model_type" in read_json(folder / "config.json"):
            return "transformers"
    return None


def read_checksums(folder: Path) -> dict[str, tuple[int, str]]:
    """Return the size in bytes and the SHA-256 of each file that a folder's manifest lists, but not of the card.

    Raise DragomanError where there is no manifest or it is damaged, and where a file is a link that leads out of the
    folder.
    """
    if not folder.is_dir():
        kind = "a file; name the model folder that it is in" if folder.is_file() else "no such model folder"
        raise DragomanError(f"{folder}: {kind}")
    if not (folder / MANIFEST).is_file():
        runs, others = (sorted(folder.glob(f"{part}/{MANIFEST}")) for part in ("*/best", "*"))
        near = [*runs, *folder.parent.glob(f"best/{MANIFEST}"), *others]  # the second: where these are its checkpoints
        hint = f"; did you mean {near[0].parent}?" if near else ""
        raise DragomanError(f"{folder}: not a model folder: it has no {MANIFEST}{hint}")
    refuse_links_out(folder)
    try:
        manifest = {
            str(name): (entry["bytes"], str(entry["sha256"])) for name, entry in read_json(folder / MANIFEST).items()
        }
        if any(type(size) is not int for size, _ in manifest.values()):
            raise ValueError
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        raise DragomanError(f"{folder / MANIFEST}: damaged") from None
    for name in manifest:
        parts = name.split("/")  # an export has files in folders
        unsafe = any(part in ("", ".", "..") or Path(part).name != part for part in parts)
        if unsafe or len(name) > MAX_NAME_LENGTH:
            raise DragomanError(f"{folder / MANIFEST}: damaged: {name[:MAX_NAME_LENGTH]!r} is not a file name")
    manifest.pop(CARD, None)
    return manifest


class Damage(NamedTuple):
    """A file that is not what its manifest says: what was expected and what was found, in words."""

    file: Path
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: damaged: expected {self.expected}, found {self.found}"


def find_damage(folder: Path, manifest: dict[str, tuple[int, str]]) -> Iterator[Damage]:
    """Yield the files of a model folder, or of a folder that a model was exported to, that are missing or were changed.

    Raise DragomanError as `check_size` does where a file of a model folder is what the manifest says, or is too large
    to find out.
    """
    sound, exported = True, exported_for(folder, manifest)
    # The weights come last: the other files tell how large they may be.
    for name in sorted(manifest, key=lambda name: (name in (WEIGHTS, TRAINING_STATE), name)):
        size, digest = manifest[name]
        file, expected = folder / name, f"{size:,} bytes"
        if sound and not exported and file.is_file() and file.stat().st_size == size:
            try:
                check_size(file)
            except DragomanError:
                if size > WORTH_READING or fingerprint(file)["sha256"] == digest:
                    raise
        if not file.is_file():
            sound = False
            yield Damage(file, expected, "nothing: it is missing from the folder")
        elif (found := file.stat().st_size) != size:
            sound = False
            yield Damage(file, expected, f"{found:,}")
        elif (sha256 := fingerprint(file)["sha256"]) != digest:
            sound = False
            yield Damage(file, f"SHA-256 {digest}", sha256)


def check_size(file: Path) -> None:
    """Raise DragomanError where a file is larger than its model needs, or has other weights: it is not worth reading.

    file: in a model folder whose config.json was verified before.
    """
    if file.name == WEIGHTS:
        check_weights(file)
        return
    limit = MAX_SIZES.get(file.name, MAX_RECORD_SIZE)
    if file.name == TRAINING_STATE:
        limit += MAX_TRAINING_STATE * file.with_name(WEIGHTS).stat().st_size
    if file.stat().st_size > limit:
        raise DragomanError(f"{file}: larger than its model needs")


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


def write_model(folder: Path, model: Model, tokenizers: Tokenizers, card: str) -> None:
    """Write the files of a model into `folder`, all but the manifest: the caller wraps this in `new_folder`.

    card: the model card in Markdown.
    """
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


def find_model(path: Path) -> Path:
    """Return the folder of a model: the best of `path` if it is a run folder, else `path` itself.

    No link is left in it that training may move: whoever reads several files of a model calls this once. A name such as
    'hub:USER/NAME' is downloaded; raise then as `download_model` does. Raise DragomanError for a run without a
    checkpoint.
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
    folder = find_model(path)
    verify_files(folder)
    return load_model(folder)


def read_config(path: Path) -> ModelConfig:
    """Return the settings of the model in a model folder or run folder, without loading its weights.

    Raise DragomanError as `read_model` does, but not for weights that do not fit the settings.
    """
    folder = find_model(path)
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
    one = config = description.config
    if type(config) is TransformerConfig:  # a change of the lab may have a weight for each layer
        stacks = {f"{name}_layers": min(1, getattr(config, f"{name}_layers")) for name in ("encoder", "decoder")}
        one = replace(config, **stacks)
    shapes: list[tuple[list[str], tuple[int, ...]]] = []
    for names, tensor in named_tensors(outline(one, *description[1:])):
        stack = re.match(r"(encoder|decoder)\.0\.", names[0]) if one is not config else None
        for layer in range(getattr(config, f"{stack[1]}_layers") if stack else 1):
            own = [re.sub(r"\.0\.", f".{layer}.", name, count=1) for name in names] if stack else names
            shapes.append((own, tuple(tensor.shape)))
    return shapes


def check_shapes(description: Description, shapes: dict[str, tuple[int, ...]], file: Path) -> None:
    """Raise DragomanError where the shapes of the tensors in a file, by name, are not those of such a model.

    Takes names out of `shapes`.
    """
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

    Raise DragomanError where a weight is infinite or not a number: such a model translates nothing. Raise otherwise as
    `read_tensors` does.
    """
    weights = read_tensors(file)
    for name, tensor in weights.items():
        if not all_finite(tensor):
            raise DragomanError(f"{file}: damaged: {name} has values that are infinite or not numbers")
    model.load_state_dict(weights, strict=False)


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
