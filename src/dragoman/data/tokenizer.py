"""Learn subwords from the corpus, and turn text into ids and back: BPE with byte fallback (section 5.1).

Language-neutral: words are runs of letters with the space before them, digits stand alone, and what the vocabulary does
not know is spelled in bytes, so that there is no unknown word and every string comes back as it went in, after
normalisation to Unicode NFC.

The file, `tokenizer.json`, is the Hugging Face format and can be read by its library. We read only the vocabulary and
the merges from it: the rest of the pipeline is always ours, so a file from a stranger brings no patterns to run.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice, pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from dragoman.config.fields import check_argument, quote_value
from dragoman.data.normal_form import normal_form
from dragoman.errors import DragomanError, UsageError
from dragoman.storage.records import MAX_RECORD_SIZE, MAX_TABLE_SIZE, read_json
from dragoman.storage.writing import name_errors

PAD, BOS, EOS = 0, 1, 2
SPECIAL = ["<pad>", "<s>", "</s>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BYTE = {piece: byte for byte, piece in enumerate(BYTES)}
RESERVED = [*SPECIAL, *BYTES]

# Letters with their marks and the space before them; single digits; other marks; white space. Merges stay within such a
# word, so no text can become a reserved entry or a tag: those mix letters and other marks.
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s"

SPACES = re.compile(" {2,}")
SURROGATE = re.compile("[\ud800-\udfff]")

# An entry of its own, put in front of a source to name its language or domain.
TAG = re.compile(r"<tag:([\w.-]{1,40})>")

# Entries without text that a development version put around target terms in sources; its models have them still.
TERM_MARKS = ("<term>", "</term>")

ALPHABET_SHARE = 0.5  # of the vocabulary at most goes to single characters; rarer ones are spelled in bytes

# Subwords are learned from at most so many texts, drawn evenly from all, and from so many characters of each: more
# would change little, and these fit into memory.
SAMPLE, SAMPLE_LENGTH = 1_000_000, 1000

# Of tokenizer.json for each entry: a subword of ten Hangul and its merge take 150 bytes and count as four values.
MAX_ENTRY_SIZE, MAX_ENTRY_VALUES = 512, 8
SPARE_VALUES = 10_000

SYMBOLS = 0x10000  # the character chr(SYMBOLS + id) stands for a piece, see Tokenizer._as_symbols


Built = TypeVar("Built")


class Tokenizer:
    """Turn text into ids and back. Ids 0, 1, 2 are PAD, BOS and EOS; 3 to 258 are the bytes; then tags and subwords."""

    def __init__(self, vocabulary: dict[str, int], merges: Sequence[tuple[str, str]]):
        """Raise ValueError where the ids are not 0, 1, 2, ... or the reserved entries are missing."""
        if sorted(vocabulary.values()) != list(range(len(vocabulary))):
            raise ValueError("its ids are not 0, 1, 2, ... each once")
        if any(vocabulary.get(piece) != id for id, piece in enumerate(RESERVED)):
            raise ValueError("ids 0 to 258 are not padding, start, end and the 256 bytes")
        self.merges = list(merges)
        self.inner = _pipeline(models.BPE(vocab=vocabulary, merges=self.merges, byte_fallback=True))
        self.pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        "by id, as text: spaces are real ones, a byte is such as '<0x6C>'"
        self.tags = {tag[1]: id for id, piece in enumerate(self.pieces) if (tag := TAG.fullmatch(piece))}
        marks = (vocabulary[mark] for mark in TERM_MARKS if mark in vocabulary)
        self.special_ids = {PAD, BOS, EOS, *self.tags.values(), *marks}
        "entries without text"
        self.byte_values = {id: id - len(SPECIAL) for id in range(len(SPECIAL), len(RESERVED))}
        "the byte that each entry for a byte stands for, by id"
        self.unknown: int | None = None
        "the entry for an unknown word; there is none, because all words can be spelled"
        self.suppressed: tuple[int, ...] = ()
        "entries that no search may generate; a model that has learned from us generates none by itself"

    def __len__(self) -> int:
        return len(self.pieces)

    def __repr__(self) -> str:
        return f"<Tokenizer: {len(self):,} subwords{', tags ' * bool(self.tags)}{', '.join(self.tags)}>"

    @classmethod
    def train(
        cls, texts: Iterable[str], vocabulary: int | None = None, suggested: int = 8000, tags: Sequence[str] = ()
    ) -> "Tokenizer":
        """Return a tokenizer of the subwords of `texts`, or of SAMPLE of them where there are more, and of the tags.

        With `vocabulary`, exactly so many entries; raise UsageError where the texts do not support as many. Without,
        `suggested` or as many as the texts support.
        """
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise UsageError(f"texts must be strings, such as the lines of a file, not {quote_value(texts)}")
        reserved = [*RESERVED, *(tag_piece(tag) for tag in dict.fromkeys(tags))]
        texts = sample_texts(texts)
        characters = characters_by_frequency(texts)
        room = (vocabulary or suggested) - len(reserved)
        if room < 1:
            raise UsageError(
                f"vocabulary {vocabulary or suggested:,} is too small: tags and bytes need {len(reserved):,}"
            )
        alphabet = max(1, int(ALPHABET_SHARE * room))
        pieces, merges = train_bpe(_pipeline(models.BPE(byte_fallback=True)), texts, room, characters[:alphabet])
        if len(pieces) < room and alphabet < len(characters):  # room is left: use it for more characters
            learner = _pipeline(models.BPE(byte_fallback=True))
            pieces, merges = train_bpe(learner, texts, room, characters[: alphabet + room - len(pieces)])
        supported = len(reserved) + len(pieces)
        if vocabulary and supported < vocabulary:
            raise UsageError(
                f"vocabulary {vocabulary:,} is larger than this text supports: "
                f"it yields {supported:,} subwords; choose {supported:,} or fewer"
            )
        return cls(index_by_piece([*reserved, *pieces]), merges)

    def extend(self, texts: Iterable[str], vocabulary: int, tags: Sequence[str] = ()) -> "Tokenizer":
        """Return a tokenizer with the same ids and merges, and after them new tags, characters and subwords of `texts`.

        It has up to `vocabulary` entries in all. Old merges come first, so that new subwords are made of old ones.
        Raise UsageError where there is no room.
        """
        pieces = [*self.pieces, *(tag_piece(tag) for tag in dict.fromkeys(tags) if tag not in self.tags)]
        room = vocabulary - len(pieces)
        if room < 0:
            raise UsageError(f"vocabulary {vocabulary:,} is too small: the existing subwords need {len(pieces):,}")
        texts = sample_texts(texts)
        known = set(self.pieces)
        new = [character for character in characters_by_frequency(texts, least=2) if character not in known]
        pieces += new[: int(ALPHABET_SHARE * room)]
        base = Tokenizer(index_by_piece(pieces), self.merges)
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        alphabet = [chr(SYMBOLS + id) for id in range(len(pieces))]
        symbols, merges = train_bpe(learner, base._as_symbols(texts), vocabulary, alphabet)

        def spell_out(symbols: str) -> str:
            return "".join(pieces[ord(symbol) - SYMBOLS] for symbol in symbols)

        # Different merges may give the same subword, which has one entry.
        entries = index_by_piece(dict.fromkeys([*pieces, *map(spell_out, symbols)]))
        added = [(spell_out(left), spell_out(right)) for left, right in merges]
        return Tokenizer(entries, list(dict.fromkeys([*self.merges, *added])))

    def _as_symbols(self, texts: Sequence[str]) -> Iterator[str]:
        """Yield each text with one character for each piece, and a space between words and in place of bytes.

        The library learns merges of characters only. So each piece that there is becomes a character of its own, and
        what the library merges then are whole pieces (`extend` spells them out again):

            text       " The seas"
            pieces     " The" (id 300)   " s" (261)      "eas" (402)
            symbols    chr(SYMBOLS+300)  chr(SYMBOLS+261)chr(SYMBOLS+402)  with a space after the first: a word ends
            learned    chr(SYMBOLS+261)chr(SYMBOLS+402), that is " s" + "eas" = " seas"
        """
        for start in range(0, len(texts), 1000):
            for encoding in self.inner.encode_batch(texts[start : start + 1000], add_special_tokens=False):
                symbols: list[str] = []
                for id, (word, next_word) in zip(encoding.ids, pairwise([*encoding.word_ids, None]), strict=True):
                    symbols.append(chr(SYMBOLS + id) if id >= len(RESERVED) else " ")
                    if next_word != word:
                        symbols.append(" ")
                yield "".join(symbols)

    def encode(self, text: str, tag: str = "") -> list[int]:
        """Return the ids of one text without BOS and EOS, the tag in front. Raise DragomanError for an unknown tag."""
        return self.encode_all([text], tag)[0]

    def encode_all(self, texts: Sequence[str], tag: str = "") -> list[list[int]]:
        """Return ids of texts, on all cores, the tag in front. Raise DragomanError where the tag was not learned."""
        if isinstance(texts, str) or not isinstance(texts, Iterable):
            raise UsageError(f"texts must be a list of strings, not {quote_value(texts)}; for a single one: encode")
        front = self.tag_ids(tag)
        encodings = self.inner.encode_batch_fast([normalise(text) for text in texts], add_special_tokens=False)
        return [front + encoding.ids for encoding in encodings]

    def encode_sources(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of texts to translate, as `encode_all` does, but of what `plain_spaces` makes of them."""
        return self.encode_all([self.plain_spaces(text) for text in texts])

    def plain_spaces(self, text: str) -> str:
        """Return a text with one space for each run of spaces and of white space that was not learned.

        A model that never saw two spaces or a tab would translate the word after them as another one.
        """
        return SPACES.sub(" ", self._strange_space.sub(" ", text))

    @cached_property
    def _strange_space(self) -> re.Pattern[str]:
        """What matches a character of white space that no piece has."""
        learned = {character for piece in self.pieces for character in piece if character.isspace()}
        return re.compile(rf"[^\S{re.escape(''.join(sorted(learned)))}]")

    def tag_ids(self, tag: str) -> list[int]:
        """Return the ids in front of a source with this tag: one, or none for ''. Raise DragomanError for another."""
        return find_tag(self.tags, tag)

    def encode_inside(self, text: str) -> list[int]:
        """Return the ids of a text that follows other characters, without a space in front of it."""
        newline = "\n"  # a word of its own, so that what follows is a word without a space before it
        return self.encode(newline + text)[len(self.encode(newline)) :]

    def encode_with_dropout(self, text: str, rate: float, random: Random) -> list[int]:
        """Return the ids of a text, without BOS and EOS, segmented with BPE-dropout (Provilkov et al. 2020).

        At each step, each possible merge is skipped with probability `rate`: with 0 this is `encode`; with 1 every
        character is a token of its own. The library can do this, too, but cannot be given a seed.
        """
        normal = self.inner.normalizer.normalize_str(normalise(text))
        words = self.inner.pre_tokenizer.pre_tokenize_str(normal)
        return [id for word, _ in words for id in self._merge_with_dropout(word, rate, random)]

    def resegment(self, ids: Sequence[int], rate: float, random: Random) -> list[int]:
        """Return ids for the text of `ids`, segmented again with BPE-dropout of this rate; a tag stays in front."""
        tag = [id for id in ids[:1] if id in self.special_ids]
        return tag + self.encode_with_dropout(self.decode(ids), rate, random)

    def _merge_with_dropout(self, word: str, rate: float, random: Random) -> list[int]:
        """Return the ids of a word after merging its characters, each merge skipped with probability `rate`."""
        ids = [id for character in word for id in self._character_ids(character)]
        possible = [self._merges.get(pair) for pair in pairwise(ids)]
        # By rank, from the left where ranks are equal: the first merge that is not skipped is made.
        while choices := sorted((merge, index) for index, merge in enumerate(possible) if merge):
            chosen = next((choice for choice in choices if random.random() >= rate), None)
            if not chosen:
                break
            (_, merged), index = chosen
            ids[index : index + 2] = [merged]
            near = slice(max(index - 1, 0), index + 2)
            possible[near] = [self._merges.get(pair) for pair in pairwise(ids[near])]
        return ids

    def _character_ids(self, character: str) -> list[int]:
        """Return the id of a character, or those of its bytes if it is not in the vocabulary."""
        id = self._ids.get(character)
        return [id] if id is not None else [len(SPECIAL) + byte for byte in character.encode()]

    @cached_property
    def _ids(self) -> dict[str, int]:
        return index_by_piece(self.pieces)

    @cached_property
    def _merges(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Map (left id, right id) to (rank of the merge, id of the merged piece)."""
        ids = self._ids
        return {(ids[left], ids[right]): (rank, ids[left + right]) for rank, (left, right) in enumerate(self.merges)}

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. PAD, BOS, EOS and tags are dropped; bytes that are not UTF-8 become U+FFFD."""
        return self.inner.decode([id for id in ids if id not in self.special_ids], skip_special_tokens=False)

    def to_json(self) -> str:
        """Return the content of tokenizer.json."""
        return self.inner.to_str(pretty=True)

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to `path`, a file called tokenizer.json."""
        check_argument("path", path, str | Path)
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path, vocabulary: int | None = None) -> "Tokenizer":
        """Read tokenizer.json. Raise DragomanError where it is missing or is not one of ours, OSError as `open` does.

        vocabulary: how many entries its model has; a file that is too large for them is refused before it costs memory.
        """
        check_argument("path", path, str | Path)
        return read_tokenizer(path, vocabulary, cls.from_json)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Tokenizer":
        """Return the tokenizer that the content of tokenizer.json describes.

        Raise an exception of any kind where it describes none: the library reports merges that fit no vocabulary as a
        bare Exception.
        """
        model = content["model"]
        return cls(dict(model["vocab"]), [(left, right) for left, right in model["merges"]])


def read_tokenizer(path: str | Path, vocabulary: int | None, build: Callable[[dict[str, Any]], Built]) -> Built:
    """Return what `build` makes of the content of a tokenizer's file. Raise OSError as `open` does.

    vocabulary: how many entries its model has, None where that is not known. Raise DragomanError where the file is
    missing, is too large for the vocabulary, or does not describe a tokenizer, so that `build` raises an exception.
    """
    size, values = MAX_TABLE_SIZE, None
    if vocabulary is not None:
        size = min(size, MAX_RECORD_SIZE + MAX_ENTRY_SIZE * max(vocabulary, 0))
        values = SPARE_VALUES + MAX_ENTRY_VALUES * max(vocabulary, 0)
    try:
        with name_errors(path):
            content = read_json(Path(path), size, values)
        return build(content)
    except FileNotFoundError:
        raise DragomanError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DragomanError(f"{Path(path)}: a folder; the file in it is tokenizer.json") from None
    except (MemoryError, OSError, DragomanError):
        raise
    except Exception as error:
        raise DragomanError(f"{path}: not a dragoman tokenizer: {' '.join(str(error).split())}") from None


def find_tag(tags: Mapping[str, int], tag: str) -> list[int]:
    """Return the id of a tag, or none for ''. Raise DragomanError, naming those that there are, for an unknown one."""
    if tag and tag not in tags:
        known = f"choose from {', '.join(tags)}" if tags else "this model was trained without tags"
        raise DragomanError(f"unknown tag '{tag}': {known}")
    return [tags[tag]] if tag else []


def train_bpe(
    learner: tokenizers.Tokenizer, texts: Iterable[str], room: int, alphabet: list[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Return at most `room` pieces, the alphabet included, and the merges that make them; `learner` is changed."""
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
    model = json.loads(learner.to_str())["model"]
    return sorted(model["vocab"], key=model["vocab"].get), [(left, right) for left, right in model["merges"]]


def sample_texts(texts: Iterable[str]) -> list[str]:
    """Return SAMPLE of the texts, or all, the same ones each time: cut to SAMPLE_LENGTH characters and normalised."""
    random, texts = Random(0), iter(texts)
    reservoir = [normalise(text[:SAMPLE_LENGTH]) for text in islice(texts, SAMPLE)]
    for number, text in enumerate(texts, start=SAMPLE + 1):
        index = int(number * random.random())
        if index < SAMPLE:
            reservoir[index] = normalise(text[:SAMPLE_LENGTH])
    return reservoir


def characters_by_frequency(texts: Sequence[str], least: int = 1) -> list[str]:
    """Return the characters that occur at least so often in `texts`, from the most frequent to the rarest.

    For each text a space counts once more: the one that the tokenizer puts in front of it.
    """
    characters = Counter(chain.from_iterable(texts))
    characters[" "] += len(texts)  # the pipeline puts one in front of each text
    ordered = sorted(characters.items(), key=lambda item: (-item[1], item[0]))
    return [character for character, count in ordered if count >= least]


def index_by_piece(pieces: Iterable[str]) -> dict[str, int]:
    """Return the id of each piece: its index."""
    return {piece: id for id, piece in enumerate(pieces)}


def tag_piece(tag: str) -> str:
    """Return the vocabulary entry of a tag. Raise UsageError where it is no tag."""
    piece = f"<tag:{tag}>"
    if not TAG.fullmatch(piece):
        raise UsageError(f"a tag is 1 to 40 letters, digits, '-', '_' or '.', not {tag!r}")
    return piece


def normalise(text: str) -> str:
    """Return text in Unicode NFC; a lone surrogate, which UTF-8 cannot write, becomes U+FFFD.

    Raise UsageError for what is no string.
    """
    if not isinstance(text, str):
        raise UsageError(f"a text must be a string, not {quote_value(text)}")
    if text.isascii():
        return text
    return normal_form(SURROGATE.sub("\ufffd", text))


def _pipeline(model: models.BPE) -> tokenizers.Tokenizer:
    pipeline = tokenizers.Tokenizer(model)
    # One space is put in front and removed again, so that a word at the start of a text is the same piece as elsewhere.
    pipeline.normalizer = normalizers.Prepend(" ")
    pipeline.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(WORDS), "isolated")
    pipeline.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return pipeline
