"""Turn text into ids and back with a SentencePiece model, as the models of OPUS-MT, HPLT, M2M100 and NLLB do.

The library cuts a text into pieces; their ids are those of a list of pieces, the vocabulary of the model. In OPUS-MT's
models it is the list of both languages, while each language has a SentencePiece model of its own, so pieces are looked
up by their text, and so are runs of characters that the SentencePiece model does not know: the other language may.
What is not in the list has the id of the unknown word.

Our ids of an imported vocabulary: PAD, BOS and EOS are 0, 1 and 2, and the rest keeps its order.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import Any

from dragoman.config.fields import quote_value
from dragoman.data.spm import Kind, SentencePieceModel, parse_spm
from dragoman.data.tokenizer import BOS, BYTE, EOS, PAD, SPECIAL, SURROGATE, TAG, find_tag
from dragoman.errors import DragomanError, UsageError

SPACE = "\u2581"  # how SentencePiece writes a space


class SentencePieceTokenizer:
    """Turns text into ids with a SentencePiece model and a list of pieces. It never changes."""

    def __init__(self, model: SentencePieceModel, vocabulary: Sequence[str], unknown: int, tags: Mapping[str, int]):
        """Take the pieces by our ids, as SentencePiece writes them, and which of them are the unknown word and tags.

        The names of the first three do not matter. Raise ValueError where an id is out of range or taken, or two pieces
        are the same, and DragomanError where the library is not installed.
        """
        names = {id: f"<tag:{name}>" for name, id in tags.items()} | dict(enumerate(SPECIAL))
        taken = {*names.values()}
        self.model, self.vocabulary, self.tags = model, list(vocabulary), dict(tags)
        self.pieces = [
            names.get(id) or (f"{piece}#{id}" if piece in taken else piece.replace(SPACE, " "))
            for id, piece in enumerate(vocabulary)
        ]
        "by id, as text: spaces are real ones, a byte is such as '<0x6C>', a tag such as '<tag:de>'"
        if len(set(self.pieces)) < len(self.pieces) or not all(self.pieces):
            raise ValueError("its pieces are not all different")
        special_ids = [*range(len(SPECIAL)), *tags.values(), unknown]
        if len(set(special_ids)) < len(special_ids) or not all(0 <= id < len(self.pieces) for id in special_ids):
            raise ValueError("its tags and its unknown word are not entries of their own")
        kinds = {piece.text: piece.kind for piece in model.pieces}
        control = {id for id, piece in enumerate(vocabulary) if kinds.get(piece) is Kind.CONTROL}
        self.unknown = unknown
        self.suppressed = (PAD, BOS, unknown)
        "entries that no search may generate"
        self.special_ids = {PAD, BOS, EOS, *self.tags.values(), *control} - {unknown}
        "entries without text"
        self.byte_values = {
            id: BYTE[piece] for id, piece in enumerate(vocabulary) if piece in BYTE and kinds.get(piece) is Kind.BYTE
        }
        "the byte that each entry for a byte stands for, by id"
        self._ids = {piece: id for id, piece in enumerate(vocabulary) if id not in self.special_ids and id != unknown}
        self._library = load_library(model)

    def __len__(self) -> int:
        return len(self.pieces)

    def __repr__(self) -> str:
        tags = f", tags {', '.join(list(self.tags)[:10])}{', …' * (len(self.tags) > 10)}" if self.tags else ""
        return f"<SentencePieceTokenizer: {len(self):,} subwords{tags}>"

    def encode(self, text: str, tag: str = "") -> list[int]:
        """Return the ids of one text without BOS and EOS, the tag in front. Raise DragomanError for an unknown tag."""
        return self.encode_all([text], tag)[0]

    def encode_all(self, texts: Sequence[str], tag: str = "") -> list[list[int]]:
        """Return the ids of texts, as `encode` does."""
        front, ids, unknown = self.tag_ids(tag), self._ids, self.unknown
        cut = self._library.encode([readable(text) for text in texts], out_type=str)
        return [[*front, *(ids.get(piece, unknown) for piece in pieces)] for pieces in cut]

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts to translate: those of `encode_all`."""
        return self.encode_all(texts)

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of a text that follows other characters, without a space in front of it."""
        pieces = self._inside.encode(readable(text), out_type=str)
        return [self._ids.get(piece, self.unknown) for piece in pieces]

    @cached_property
    def _inside(self) -> Any:
        """The library's tokenizer without the space that it puts in front of a text."""
        without_prefix = replace(self.model.normalisation, dummy_prefix=False)
        return load_library(replace(self.model, normalisation=without_prefix))

    def plain_spaces(self, text: str) -> str:
        """Return a text as the SentencePiece model reads it: normalised, with the spaces that it keeps."""
        return self._shown(self._library.normalize(readable(text)).replace(SPACE, " "))

    def tag_ids(self, tag: str) -> list[int]:
        """Return the ids in front of a text with this tag: one, or none for ''. Raise DragomanError for another."""
        return find_tag(self.tags, tag)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, without the entries that have none; bytes that are not UTF-8 become U+FFFD."""
        parts: list[str] = []
        for bytewise, group in groupby((id for id in ids if id not in self.special_ids), self.byte_values.__contains__):
            if bytewise:
                parts.append(decode_bytes(bytes(self.byte_values[id] for id in group)))
            else:
                parts += [self.pieces[id] for id in group]
        return self._shown("".join(parts))

    def _shown(self, text: str) -> str:
        ours = self.model.normalisation
        return text.lstrip(" ") if ours.dummy_prefix or ours.single_spaces else text

    def to_json(self) -> str:
        """Return the content of the file that it is loaded from."""
        content = {
            "sentencepiece": base64.b64encode(self.model.to_bytes()).decode("ascii"),
            "unknown": self.unknown,
            "tags": self.tags,
            "pieces": self.vocabulary,
        }
        return json.dumps(content, indent=0, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "SentencePieceTokenizer":
        """Return the tokenizer that a file describes.

        Raise an exception of any kind where it describes none, and DragomanError where the library is not installed.
        """
        pieces, tags, unknown = content["pieces"], content["tags"], content["unknown"]
        if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
            raise ValueError("its pieces are not a list of strings")
        if not all(type(id) is int for id in (unknown, *tags.values())):
            raise ValueError("its ids are not numbers")
        if not all(TAG.fullmatch(f"<tag:{name}>") for name in tags):
            raise ValueError("its tags are not names")
        return cls(parse_spm(base64.b64decode(content["sentencepiece"], validate=True)), pieces, unknown, tags)


def load_library(model: SentencePieceModel) -> Any:
    """Return the library's tokenizer for a model. Raise DragomanError where the library is not installed."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise DragomanError("the subwords of this model need a package: pip install 'dragoman[import]'") from None
    return SentencePieceProcessor(model_proto=model.to_bytes())


def readable(text: str) -> str:
    """Return a text with U+FFFD for lone surrogates, which UTF-8 cannot write. Raise UsageError if it is no string."""
    if not isinstance(text, str):
        raise UsageError(f"a text must be a string, not {quote_value(text)}")
    return SURROGATE.sub("\ufffd", text)


def decode_bytes(data: bytes) -> str:
    """Return the text of bytes; where they are not UTF-8, U+FFFD for each of them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "\ufffd" * len(data)
