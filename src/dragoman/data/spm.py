"""Read, check and write anew a SentencePiece model, a file such as source.spm: the subwords of OPUS-MT, HPLT and NLLB.

The file is a message of Protocol Buffers: pieces with scores and types, the settings that they were trained with, and
the normalisation of texts, which is a double-array trie of replacements. The library reads it without asking much, so
it never sees a stranger's bytes: `read_spm` keeps what it knows and has checked, `SentencePieceModel.to_bytes` writes
that anew, and the ids that texts get stay the same.

Source: sentencepiece_model.proto and normalizer.cc of google/sentencepiece, darts.h of s-yata/darts-clone.
"""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dragoman.errors import DragomanError
from dragoman.storage.writing import name_errors

# Those of NLLB, the largest known, are 4.9 MB with 256,000 pieces; its normalisation takes 240 kB, as everyone's does.
MAX_SIZE, MAX_CHARSMAP, MAX_SETTING = 16 << 20, 1 << 19, 1000  # bytes; of a charsmap, its trie and texts each
MAX_PIECES, MAX_PIECE = 300_000, 1000  # pieces, characters
MAX_FIELDS = 100_000  # of the settings, the largest of which are lists of words
MAX_SCORE = 1e9  # sums of scores stay far below the largest float
MAX_KEY, MAX_REPLACEMENT = 64, 256  # bytes of a replacement
MAX_PREFIXES = 32  # keys that begin a text at the same time: the library has room for no more

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # how a field is written

# Units of a double array: a node has the label of the way to it, a leaf the place of its replacement.
LABEL, LEAF, HAS_LEAF, LONG = 0x8000_00FF, 0x8000_0000, 1 << 8, 1 << 9


class Kind(IntEnum):
    """What a piece is for."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Piece(NamedTuple):
    """A subword: its text, in which '▁' is a space, its score and its kind."""

    text: str
    score: float
    kind: Kind


@dataclass(frozen=True)
class Normalisation:
    """What happens to a text before it is cut.

    charsmap: replacements of characters as the library has them; b'' for none. dummy_prefix: a space is put in front;
    single_spaces: spaces at both ends go, and of several in a row one stays.
    """

    name: str = ""
    charsmap: bytes = field(default=b"", repr=False)
    dummy_prefix: bool = True
    single_spaces: bool = True


@dataclass(frozen=True)
class SentencePieceModel:
    """Describe all of a SentencePiece model that decides about ids and texts; the piece at index i has id i.

    algorithm: 'unigram' or 'bpe'; unknown_surface: what an unknown piece becomes in a text; names: of the pieces for
    unknown, begin, end and padding, which need not exist.
    """

    algorithm: str
    pieces: tuple[Piece, ...] = field(repr=False)
    byte_fallback: bool = False
    normalisation: Normalisation = Normalisation()
    unknown_surface: str = " \u2047 "
    names: tuple[str, str, str, str] = ("<unk>", "<s>", "</s>", "<pad>")

    def __post_init__(self) -> None:
        """Raise ValueError, naming the piece, where the library would refuse the pieces or be led astray by them."""
        seen: dict[str, int] = {}
        for id, (text, score, _) in enumerate(self.pieces):
            if not text:
                raise ValueError(f"piece {id} is empty")
            if len(text) > MAX_PIECE:
                raise ValueError(f"piece {id} has {len(text):,} characters")
            if "\0" in text:
                raise ValueError(f"piece {id} has a character that is zero")
            if not abs(score) <= MAX_SCORE:
                raise ValueError(f"piece {id} has the score {score}")
            if (other := seen.setdefault(text, id)) != id:
                raise ValueError(f"pieces {other} and {id} are the same")
        kinds = [piece.kind for piece in self.pieces]
        if (unknown := kinds.count(Kind.UNKNOWN)) != 1:
            raise ValueError(f"{unknown} pieces are for the unknown instead of one")
        spelled = {piece.text for piece in self.pieces if piece.kind is Kind.BYTE}
        if spelled != ({f"<0x{byte:02X}>" for byte in range(256)} if self.byte_fallback else set()):
            raise ValueError(
                f"{len(spelled)} pieces are for bytes, {'not all 256' if self.byte_fallback else 'unused'}"
            )

    def to_bytes(self) -> bytes:
        """Return the file that the library loads; two equal models give the same bytes."""
        ours = self.normalisation
        trainer = [
            write_varint(3, ALGORITHMS[self.algorithm]),
            write_varint(4, len(self.pieces)),
            write_varint(35, self.byte_fallback),
            write_bytes(44, self.unknown_surface.encode()),
            *(write_bytes(45 + place, name.encode()) for place, name in enumerate(self.names)),
        ]
        normaliser = [
            write_bytes(1, ours.name.encode()),
            write_bytes(2, ours.charsmap),
            write_varint(3, ours.dummy_prefix),
            write_varint(4, ours.single_spaces),
        ]
        pieces = (
            write_bytes(1, text.encode()) + struct.pack("<Bf", 2 << 3 | FIXED32, score) + write_varint(3, kind)
            for text, score, kind in self.pieces
        )
        specs = [write_bytes(2, b"".join(trainer)), write_bytes(3, b"".join(normaliser))]
        return b"".join([*(write_bytes(1, piece) for piece in pieces), *specs])


ALGORITHMS = {"unigram": 1, "bpe": 2}
KINDS = {int(kind): kind for kind in Kind}


def read_spm(path: Path) -> SentencePieceModel:
    """Return the SentencePiece model in a file. Raise DragomanError, naming the file, where it is not sound."""
    with name_errors(path), path.open("rb") as file:
        data = file.read(MAX_SIZE + 1)
    try:
        return parse_spm(data)
    except (ValueError, struct.error) as error:
        raise DragomanError(f"{path}: not a sound SentencePiece model: {error}") from None


def parse_spm(data: bytes) -> SentencePieceModel:
    """Return the SentencePiece model that the bytes of a file describe. Raise ValueError where it is not sound."""
    if len(data) > MAX_SIZE:
        raise ValueError(f"it has more than {MAX_SIZE:,} bytes")
    if sum(number == 1 for number, _ in read_fields(data, MAX_PIECES + MAX_FIELDS)) > MAX_PIECES:
        raise ValueError(f"it has more than {MAX_PIECES:,} pieces")  # counted first: reading them all takes a second
    pieces: list[Piece] = []
    specs: dict[int, dict[int, Any]] = {2: {}, 3: {}, 5: {}}  # of training, normalisation and its reverse
    texts: set[str] = set()
    for number, value in read_fields(data, MAX_PIECES + MAX_FIELDS):
        if number == 1:
            pieces.append(read_piece(as_bytes(value), len(pieces)))
            texts.add(pieces[-1].text)
            if len(texts) != len(pieces):
                raise ValueError(f"piece {len(pieces) - 1} is there twice")
        elif number in specs:
            specs[number] |= dict(read_fields(as_bytes(value), MAX_FIELDS))  # several are one, as for the library
    trainer, normaliser, denormaliser = specs.values()
    algorithm = next((name for name, id in ALGORITHMS.items() if id == trainer.get(3, 1)), None)
    if algorithm is None:
        raise ValueError(f"its type is {trainer[3]!r:.100}, neither unigram (1) nor BPE (2)")
    if as_flag(trainer, 24, False) or not as_flag(normaliser, 5, True):
        raise ValueError("its pieces do not begin with '▁' for a space")
    if denormaliser.get(2):
        raise ValueError("it changes texts after joining their pieces")
    defaults = SentencePieceModel.names
    return SentencePieceModel(
        algorithm,
        tuple(pieces),
        as_flag(trainer, 35, False),
        Normalisation(
            as_text(normaliser, 1, ""),
            check_charsmap(as_bytes(normaliser.get(2, b""))),
            as_flag(normaliser, 3, True),
            as_flag(normaliser, 4, True),
        ),
        as_text(trainer, 44, SentencePieceModel.unknown_surface),
        tuple(as_text(trainer, 45 + place, defaults[place]) for place in range(4)),  # type: ignore[arg-type]
    )


def read_piece(data: bytes, id: int) -> Piece:
    """Return the piece that a message describes. Raise ValueError, naming its id, where it has no text or kind."""
    fields: dict[int, Any] = dict(read_fields(data, MAX_FIELDS))
    text, score, kind = fields.get(1, b""), fields.get(2, 0.0), fields.get(3, 1)
    if not text or not isinstance(text, bytes):
        raise ValueError(f"piece {id} is empty")
    if not isinstance(score, float) or math.isnan(score):
        raise ValueError(f"piece {id} has the score {score}")
    if kind not in KINDS:
        raise ValueError(f"piece {id} is of an unknown kind, {kind}")
    try:
        return Piece(text.decode(), score, KINDS[kind])
    except UnicodeDecodeError:
        raise ValueError(f"piece {id} is not UTF-8") from None


def read_fields(data: bytes, limit: int) -> Iterator[tuple[int, int | float | bytes]]:
    """Yield the number and the value of each field of a message: an int, 4 bytes as a float, any others as bytes.

    Raise ValueError where the message is cut off, has groups or more than `limit` fields.
    """
    at, size = 0, len(data)
    for _ in range(limit):
        if at == size:
            return
        key, at = (data[at], at + 1) if data[at] < 0x80 else read_varint(data, at)  # a call takes as long as the rest
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = (data[at], at + 1) if at < size and data[at] < 0x80 else read_varint(data, at)
            yield number, value
        elif wire == BYTES:
            length, at = (data[at], at + 1) if at < size and data[at] < 0x80 else read_varint(data, at)
            if length > size - at:
                raise ValueError(f"it ends within a field of {length:,} bytes")
            yield number, data[at : at + length]
            at += length
        elif wire == FIXED32:
            yield number, *struct.unpack_from("<f", data, at)
            at += 4
        elif wire == FIXED64 and at + 8 <= size:
            yield number, data[at : at + 8]
            at += 8
        else:
            raise ValueError(f"byte {at:,} begins no field")
    if at != size:
        raise ValueError(f"it has more than {limit:,} fields")


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at this place, seven bits a byte, and the place behind it. Raise ValueError where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError(f"byte {at:,} is within a number that does not end")


def write_varint(number: int, value: int) -> bytes:
    """Return a field with a whole number that is not negative."""
    return seven_bits(number << 3 | VARINT) + seven_bits(value)


def write_bytes(number: int, value: bytes) -> bytes:
    """Return a field with a string, bytes or a message."""
    return seven_bits(number << 3 | BYTES) + seven_bits(len(value)) + value


@lru_cache(1000)
def seven_bits(value: int) -> bytes:
    """Return the bytes of a number, the lowest seven bits first; all but the last have their highest bit set."""
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + seven_bits(value >> 7)


def as_bytes(value: Any) -> bytes:
    """Return the bytes of a field. Raise ValueError where it has a number instead."""
    if not isinstance(value, bytes):
        raise ValueError(f"a field has the number {value} instead of bytes")
    return value


def as_flag(fields: dict[int, Any], number: int, default: bool) -> bool:
    """Return a field that is true or false. Raise ValueError where it is something else."""
    if (value := fields.get(number, int(default))) not in (0, 1) or not isinstance(value, int):
        raise ValueError(f"setting {number} is {value!r:.100} instead of true or false")
    return bool(value)


def as_text(fields: dict[int, Any], number: int, default: str) -> str:
    """Return a field that is a short text. Raise ValueError where it is something else."""
    if number not in fields:
        return default
    value = as_bytes(fields[number])
    if len(value) > MAX_SETTING:
        raise ValueError(f"setting {number} has {len(value):,} bytes")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(f"setting {number} is not UTF-8") from None


def check_charsmap(data: bytes) -> bytes:
    """Return the replacements of characters, written anew: only the nodes that a text can reach, and their texts.

    data: the size of a double-array trie, the trie, and texts that each end with a zero byte. Raise ValueError where a
    way leads out of the trie or is longer than any key, as a loop is, where more keys than the library has room for
    begin a text at the same time, and where a text is not UTF-8, too long or does not end.
    """
    if not data:
        return b""
    size = int.from_bytes(data[:4], "little")
    if size > MAX_CHARSMAP or size % 4 or not 0 < size <= len(data) - 4:
        raise ValueError(f"its map of characters has {len(data):,} bytes, {size:,} of them for the trie")
    units, texts = np.frombuffer(data, "<u4", size // 4, 4).astype(np.int64), data[4 + size :]
    # The children of a node are at its base XOR their labels; nodes with the same children have the same base.
    base = np.arange(len(units)) ^ (units >> 10 << ((units & LONG) >> 6))
    labels, ends = units & LABEL, units & HAS_LEAF != 0
    inner = np.flatnonzero((labels > 0) & (labels < 0x100))
    base_of_parents = inner ^ labels[inner]
    nodes, prefixes = np.zeros(1, np.int64), np.zeros(1, np.int64)  # after so many bytes, and the keys that ended
    reached = np.zeros(len(units), bool)
    for _ in range(MAX_KEY + 1):
        reached[nodes] = True
        if (base[nodes] | 0xFF).max() >= len(units):
            raise ValueError("its map of characters leads out of itself")
        most = np.full(len(units), -1)
        np.maximum.at(most, base[nodes], prefixes)
        children = most[base_of_parents] >= 0
        nodes = inner[children]
        if not len(nodes):
            break
        prefixes = most[base_of_parents[children]] + ends[nodes]
        if prefixes.max() > MAX_PREFIXES:
            raise ValueError(f"its map of characters has more than {MAX_PREFIXES} keys that begin alike")
    else:
        raise ValueError(f"its map of characters has a loop, or a key of more than {MAX_KEY} bytes")
    leaves = np.unique(base[reached & ends])
    if ends[0] or not (units[leaves] & LEAF).all():
        raise ValueError("its map of characters has a key without a text")
    pool, places = bytearray(), {}
    for old in np.unique(units[leaves] & ~LEAF).tolist():
        places[old] = len(pool)
        pool += read_replacement(texts, old)
    if len(pool) > MAX_CHARSMAP:
        raise ValueError(f"its map of characters has more than {MAX_CHARSMAP:,} bytes of texts")
    kept = np.where(reached, units, LEAF)  # where no text leads, nothing matches
    kept[leaves] = [LEAF | places[old] for old in (units[leaves] & ~LEAF).tolist()]
    return size.to_bytes(4, "little") + kept.astype("<u4").tobytes() + bytes(pool)


def read_replacement(texts: bytes, place: int) -> bytes:
    """Return the text at this place with the zero byte behind it. Raise ValueError where it is not sound."""
    end = texts.find(b"\0", place, place + MAX_REPLACEMENT + 1)
    if place >= len(texts) or end < 0:
        raise ValueError("its map of characters has a text that does not end")
    try:
        texts[place:end].decode()
    except UnicodeDecodeError:
        raise ValueError(f"its map of characters has the text {texts[place:end]!r}, which is not UTF-8") from None
    return texts[place : end + 1]
