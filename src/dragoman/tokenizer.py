"""Subwords learned from the corpus: byte-pair encoding with byte fallback (section 5.1).

Language-neutral: words are runs of letters with the space before them, digits stand alone, and what the vocabulary does
not know is spelled in bytes, so that there is no unknown word and every string comes back as it went in, after
normalisation to Unicode NFC.

The file, `tokenizer.json`, is the Hugging Face format and can be read by its library. We read only the vocabulary and
the merges from it: the rest of the pipeline is always ours, so a file from a stranger brings no patterns to run.
"""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from dragoman.errors import DragomanError, UsageError

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ["<pad>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RESERVED = [*SPECIAL, *BYTES]

# Letters with their marks and the space before them; single digits; other marks; white space.
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s"

SURROGATE = re.compile("[\ud800-\udfff]")

ALPHABET_SHARE = 0.5  # of the vocabulary, at most, goes to single characters; rarer ones are spelled in bytes


class Tokenizer:
    """Text to ids and back. Ids 0, 1, 2 are padding, start and end; 3 to 258 are the bytes; then the subwords."""

    def __init__(self, vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]):
        """Raises ValueError where the vocabulary is not the numbers 0, 1, 2, ... or lacks the reserved entries."""
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError("its ids are not 0, 1, 2, ... each once")
        if any(vocabulary.get(piece) != id for id, piece in enumerate(RESERVED)):
            raise ValueError("ids 0 to 258 are not padding, start, end and the 256 bytes")
        self.merges = list(merges)
        self.inner = _pipeline(models.BPE(vocab=vocabulary, merges=self.merges, byte_fallback=True))
        self.pieces = sorted(vocabulary, key=vocabulary.__getitem__)

    def __len__(self) -> int:
        return len(self.pieces)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int | None = None, suggested: int = 8000) -> "Tokenizer":
        """Learn subwords from `texts`.

        With `vocabulary`, exactly so many entries; raises UsageError where the texts do not support as many. Without,
        `suggested` or as many as the texts support.
        """
        texts = [normalise(text) for text in texts]
        characters = Counter(character for text in texts for character in text)
        characters[" "] += len(texts)  # the one that the pipeline puts in front
        frequent = [character for character, _ in sorted(characters.items(), key=lambda item: (-item[1], item[0]))]
        room = (vocabulary or suggested) - len(RESERVED)
        alphabet = max(1, int(ALPHABET_SHARE * room))
        pieces, merges = learn(texts, room, frequent[:alphabet])
        if len(pieces) < room and alphabet < len(frequent):  # room is left: for more of the characters
            pieces, merges = learn(texts, room, frequent[: alphabet + room - len(pieces)])
        supported = len(RESERVED) + len(pieces)
        if vocabulary and supported < vocabulary:
            raise UsageError(
                f"vocabulary {vocabulary:,} is larger than this text supports: "
                f"it yields {supported:,} subwords; choose {supported:,} or fewer"
            )
        return cls({piece: id for id, piece in enumerate([*RESERVED, *pieces])}, merges)

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids without start and end. The library spreads many texts over the processor's cores."""
        encodings = self.inner.encode_batch([normalise(text) for text in texts], add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; padding, start and end are left out, bytes that are no UTF-8 become U+FFFD."""
        return self.inner.decode([id for id in ids if id > EOS], skip_special_tokens=False)

    def save(self, path: Path) -> None:
        path.write_text(self.inner.to_str(pretty=True), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Raises DragomanError where the file is missing or is not one of ours."""
        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
            model = data["model"]
            merges = [(left, right) for left, right in model["merges"]]
            return cls(dict(model["vocab"]), merges)
        except FileNotFoundError:
            raise DragomanError(f"{path}: no such file") from None
        except Exception as error:  # the library reports merges that fit no vocabulary as a bare Exception
            raise DragomanError(f"{path}: not a dragoman tokenizer: {' '.join(str(error).split())}") from None


def learn(texts: Sequence[str], room: int, alphabet: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """At most `room` pieces, the alphabet included, and the merges that make them."""
    learner = _pipeline(models.BPE(byte_fallback=True))
    # The alphabet is chosen by us: among equally frequent characters the library would choose by chance.
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=2,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
        special_tokens=[],
    )
    learner.train_from_iterator(texts, trainer)
    found = json.loads(learner.to_str())["model"]
    # A merge may by chance spell a reserved entry, as in a text about "</s>"; it is not learned.
    reserved = set(RESERVED)
    merges = [(left, right) for left, right in found["merges"] if left + right not in reserved]
    return [piece for piece in sorted(found["vocab"], key=found["vocab"].get) if piece not in reserved], merges


def normalise(text: str) -> str:
    """The form in which text comes back: Unicode NFC; a lone surrogate, which no UTF-8 can hold, becomes U+FFFD."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", SURROGATE.sub("\ufffd", text))


def _pipeline(model: models.BPE) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(model)
    # One space is put in front, so that a word is the same piece at the start of a text as inside, and removed again.
    pipeline.normalizer = normalizers.Prepend(" ")
    pipeline.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
    pipeline.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return pipeline
