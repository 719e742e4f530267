"""Change samples in ways that pass a reader's first checks, where changes of any bytes would not."""

import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
from hostile import packed

ChangeBytes = Callable[[bytes], bytes]
Mutator = Callable[[bytes, Random, ChangeBytes], bytes]  # the sample, chance, and how to change any bytes

RAW = 0.2  # how often any bytes change instead, so that the first checks are fuzzed, too
STRINGS = ["", "a", "\0", "\ud800", "é\u0301", "../x", "a.b", "<b>x</b>", "x" * 300, "1", "kind", "F16", "transformer"]
NUMBERS = [0, -1, 1, 2, 255, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.5, 1e308, math.nan, math.inf]
DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]
VALUES: list[Any] = [None, True, False, [], {}, [0], [[], {}], {"a": 1}, DEEP, *STRINGS, *NUMBERS]


def mutate_json(data: bytes, random: Random, change_bytes: ChangeBytes) -> bytes:
    """Change one or a few values of JSON."""
    if random.random() < RAW:
        return change_bytes(data)
    try:
        tree = json.loads(data)
        for _ in range(random.choice((1, 1, 1, 2, 5))):
            tree = changed(tree, random)
        return json.dumps(tree, ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return change_bytes(data)


def changed(value: Any, random: Random) -> Any:
    """Return JSON with one value in it replaced, removed, repeated or moved."""
    inside = random.random() < 0.8
    if isinstance(value, dict) and value and inside:
        key, other = random.choice(list(value)), random.choice([*value, *STRINGS])
        match random.randrange(6):
            case 0:
                return {name: inner for name, inner in value.items() if name != key}
            case 1:
                return {**value, other: value[key], key: value.get(other)}
        return {**value, key: changed(value[key], random)}
    if isinstance(value, list) and value and inside:
        at = random.randrange(len(value))
        match random.randrange(4):
            case 0:
                middle = []
            case 1:
                middle = [value[at]] * 2
            case _:
                middle = [changed(value[at], random)]
        return [*value[:at], *middle, *value[at + 1 :]]
    if isinstance(value, str) and value and inside:
        at = random.randrange(len(value))
        return value[:at] + random.choice([*STRINGS, value]) + value[at + random.randrange(2) :]
    return random.choice([*VALUES, value + 1 if isinstance(value, int) else value])


def mutate_header(data: bytes, random: Random, change_bytes: ChangeBytes) -> bytes:
    """Change the JSON in front of safetensors; its length stays right."""
    if len(data) < 8 or random.random() < RAW:
        return change_bytes(data)
    (size,) = struct.unpack("<Q", data[:8])
    header = mutate_json(data[8 : 8 + size], random, change_bytes)
    return struct.pack("<Q", len(header)) + header + data[8 + size :]


def mutate_packed(data: bytes, random: Random, change_bytes: ChangeBytes, codec: str) -> bytes:
    """Change what was compressed, and compress it again."""
    try:
        inner = bytearray(1 << 20)
        length = pa.CompressedInputStream(pa.BufferReader(data), codec).readinto(inner)  # read() leaks damaged blocks
    except OSError:
        return change_bytes(data)
    return change_bytes(data) if random.random() < RAW else packed(change_bytes(bytes(inner[:length])), codec)


def mutate_zip(data: bytes, random: Random, change_bytes: ChangeBytes) -> bytes:
    """Change the first bytes of one or a few files in a zip file without compression, where their headers are."""
    if random.random() < RAW:
        return change_bytes(data)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = [(entry.filename, archive.read(entry)) for entry in archive.infolist()]
    except (OSError, ValueError, RuntimeError, EOFError, zipfile.BadZipFile, struct.error, zlib.error):
        return change_bytes(data)
    for _ in range(random.choice((1, 1, 2)) if files else 0):
        at = random.randrange(len(files))
        name, content = files[at]
        head = random.choice((80, 200, len(content)))
        files[at] = name, change_bytes(content[:head]) + content[head:]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return written.getvalue()
