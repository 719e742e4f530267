"""Read the weights of others tensor by tensor, so that no file has to fit into memory beside the model.

Files come from strangers: sizes are compared with what the file has before anything is read. Safetensors may be in
several parts; .npz is what Marian writes, arrays of NumPy in a zip file without compression.
"""

import io
import math
import os
import re
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from dragoman.errors import DragomanError
from dragoman.model_folder.weights import DTYPES, all_finite, name_tensor_errors
from dragoman.storage.writing import name_errors

MAX_HEADER = 8 << 20  # bytes of safetensors; NLLB has a tenth of a megabyte
MAX_DIRECTORY = 1 << 20  # bytes of a zip file: thousands of arrays
MAX_ARRAY_HEADER = 1000  # bytes
ARRAY = re.compile(rb"\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([\d, ]*)\),? *\} *\n?")
FLOATS = {"<f4": "F32", "<f2": "F16", "<f8": "F64"}


class Tensors(Protocol):
    """Tensors in files, read one at a time."""

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    "as safetensors calls them, such as F32; others as the file does"

    def read(self, name: str) -> Tensor:
        """Return a tensor in float32. Raise DragomanError where its values are infinite or not numbers."""
        ...


class SafeTensors:
    """The tensors of one or several files of safetensors.

    aliases: other names of tensors, as files have them whose tied matrices are stored once. Raise DragomanError where a
    file is damaged or a name is there twice.
    """

    def __init__(self, files: Sequence[Path], aliases: dict[str, str] | None = None):
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.dtypes: dict[str, str] = {}
        self.files: dict[str, Path] = {}
        self.aliases = aliases or {}
        for file in files:
            with name_errors(file), file.open("rb") as opened:
                header = int.from_bytes(opened.read(8), "little")
            if header > MAX_HEADER:
                raise DragomanError(f"{file}: damaged: its header has {header:,} bytes")
            with name_tensor_errors(file), safe_open(str(file), framework="pt") as opened:
                for name in opened.keys():  # noqa: SIM118
                    if name in self.files:
                        raise DragomanError(f"{file}: '{name:.100}' is in {self.files[name].name}, too")
                    part = opened.get_slice(name)
                    self.files[name], self.dtypes[name] = file, part.get_dtype()
                    self.shapes[name] = tuple(part.get_shape())
        for name, other in self.aliases.items():
            self.shapes[name], self.dtypes[name] = self.shapes[other], self.dtypes[other]

    def read(self, name: str) -> Tensor:
        name = self.aliases.get(name, name)
        file = self.files[name]
        with name_tensor_errors(file), safe_open(str(file), framework="pt") as opened:
            return as_weights(opened.get_tensor(name), name, file)


class Place(NamedTuple):
    """Where an array lies in a file: its first byte, its type as NumPy calls it, its shape, how it is laid out."""

    offset: int
    kind: str
    shape: tuple[int, ...]
    by_column: bool


class Npz:
    """The arrays of a .npz file. Raise DragomanError where it is none, or has objects, that is pickles."""

    def __init__(self, file: Path):
        self.file = file
        with name_errors(file):
            try:
                self.places = find_arrays(file)
            except (ValueError, zipfile.BadZipFile, struct.error, NotImplementedError) as error:
                raise DragomanError(f"{file}: not a sound .npz file: {' '.join(str(error).split())}") from None
        self.shapes = {name: place.shape for name, place in self.places.items()}
        self.dtypes = {name: FLOATS.get(place.kind, place.kind) for name, place in self.places.items()}

    def array(self, name: str) -> np.ndarray:
        """Return an array as it is in the file, mapped into memory."""
        offset, kind, shape, by_column = self.places[name]
        if not math.prod(shape):
            return np.zeros(shape, kind)
        return np.memmap(self.file, kind, "r", offset, shape, "F" if by_column else "C")

    def read(self, name: str) -> Tensor:
        return as_weights(torch.from_numpy(self.array(name).astype(np.float32)), name, self.file)


def as_weights(tensor: Tensor, name: str, file: Path) -> Tensor:
    """Return a tensor in float32. Raise DragomanError where it is not one of floats, or they are not finite."""
    if not tensor.is_floating_point():
        raise DragomanError(f"{file}: '{name}' is in {tensor.dtype}; weights are in {', '.join(DTYPES)}")
    if tensor.numel() and not all_finite(tensor):
        raise DragomanError(f"{file}: damaged: {name} has values that are infinite or not numbers")
    return tensor.to(torch.float32)


class ShortReads(io.FileIO):
    """A file that gives no more than MAX_DIRECTORY bytes at once: a stranger says how long a zip's directory is."""

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes. Raise ValueError where that is too many."""
        left = os.fstat(self.fileno()).st_size - self.tell()
        if (left if size is None or size < 0 else min(size, left)) > MAX_DIRECTORY:
            raise ValueError("its list of files is too long")
        return super().read(size)


def find_arrays(file: Path) -> dict[str, Place]:
    """Return where the arrays of a .npz file lie, by name. Raise ValueError where it is not sound."""
    places: dict[str, Place] = {}
    size, total = file.stat().st_size, 0
    with ShortReads(file) as opened, zipfile.ZipFile(opened) as archive:
        for entry in archive.infolist():
            name, suffix = entry.filename[:-4], entry.filename[-4:]
            if suffix != ".npy" or name in places:
                raise ValueError(f"'{entry.filename:.100}' is {'there twice' if name in places else 'no array'}")
            if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                raise ValueError(f"'{name:.100}' is compressed or encrypted: write it anew with numpy.savez")
            if entry.header_offset < 0:  # behind a directory that is said to be longer than it is
                raise ValueError(f"'{name:.100}' begins before the file")
            opened.seek(entry.header_offset)
            local = opened.read(30)
            start = entry.header_offset + 30 + sum(struct.unpack("<HH", local[26:30]))
            total += entry.file_size
            if local[:4] != b"PK\x03\x04" or start + entry.file_size > size or total > size:
                raise ValueError(f"'{name:.100}' has {entry.file_size:,} bytes, which are not all there")
            opened.seek(start)
            places[name] = find_array(name, opened.read(min(entry.file_size, MAX_ARRAY_HEADER)), start, entry.file_size)
    return places


def find_array(name: str, data: bytes, start: int, size: int) -> Place:
    """Return where the numbers of an array lie. Raise ValueError where it is no array of numbers.

    data: the first bytes of its file; start, size: the place of the file in the .npz, in bytes.
    """
    long = data[6:7] in (b"\x02", b"\x03")
    begin = 12 if long else 10
    length = int.from_bytes(data[8:begin], "little")
    header = ARRAY.fullmatch(data[begin : begin + length])
    if data[:6] != b"\x93NUMPY" or not header or begin + length > len(data):
        raise ValueError(f"'{name:.100}' is no array")
    kind = header[1].decode("ascii", "replace")
    if not re.fullmatch(r"[<|][fiu][1248]", kind):
        raise ValueError(f"'{name:.100}' has no numbers but '{kind:.20}'")
    shape = tuple(int(each) for each in header[3].replace(b" ", b"").split(b",") if each)
    if len(shape) > 8 or begin + length + math.prod(shape) * int(kind[2]) != size:
        raise ValueError(f"'{name:.100}' has the shape {shape!s:.100}, which {size:,} bytes do not fit")
    return Place(start + begin + length, kind, shape, header[2] == b"True")
