"""Open the files of a model of others: names, sizes and links are checked before anything is read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.data.spm import Kind, SentencePieceModel
from dragoman.data.tokenizer import BOS, PAD, SPECIAL, Tokenizer
from dragoman.errors import DragomanError
from dragoman.interop.weights import Original
from dragoman.model_folder.manifest import refuse_link_out
from dragoman.storage.hub import Repository
from dragoman.storage.records import MAX_RECORD_SIZE, read_json
from dragoman.storage.writing import name_errors

MAX_LIST = 32 << 20  # bytes of a list of words; that of M2M100, the largest known, has 4 MB
MAX_WORDS = 1_000_000
TAG = re.compile(r">>([\w.-]{1,40})<<")
PLAIN_NAME = re.compile(r"\w[\w.@+ -]{0,200}")
# Files that an import may read. Pickles are read only where there are no other weights.
READABLE = re.compile(r".+\.(json|safetensors|spm|model|npz|ya?ml|vocab)|(model_)?dict(\..+)?\.txt|README\.md")
PICKLED = re.compile(r"pytorch_model.*\.bin|.+\.pt")


@dataclass(frozen=True)
class Vocabulary:
    """The words of one side by their ids in the original, and how texts become them.

    file: the list, for messages; model: what cuts texts into pieces, which are looked up in the list by their text;
    tags: ids of the words that name a language, by its name.
    """

    file: str
    model: SentencePieceModel
    words: dict[str, int]
    tags: dict[str, int]


@dataclass(frozen=True)
class Subwords:
    """The words of one side by our ids: those of `Vocabulary` in another order, with the first three ours.

    unsayable: ids that are never generated: padding, start, the unknown word, and those that have no text.
    """

    model: SentencePieceModel
    pieces: list[str]
    tags: dict[str, int]
    unknown: int
    unsayable: list[int]


@dataclass(frozen=True)
class Foreign:
    """A model of others, read and checked: what it is, its weights, and the subwords of its two sides.

    source, target: our own tokenizers in an export of ours; tags_name: whose language a tag in front of a source names,
    that of the text or that of the target, None where it need not name one; aligned: layer and head, from 0, that were
    trained to align words; None where none was.
    """

    form: str
    original: Original
    source: Subwords | Tokenizer
    target: Subwords | Tokenizer
    tags_name: Literal["text", "target"] | None
    aligned: tuple[int, int] | None = None


def arrange(vocabulary: Vocabulary, rows: Sequence[int]) -> Subwords:
    """Return the words of one side by our ids. rows: the id in the original for each of ours, see `rows_of`.

    The start, row 1, is a row of its own even where it is a copy. Rows that no word has are named and never
    generated, as are the unknown word and the control words of SentencePiece.
    """
    names = {id: word for word, id in vocabulary.words.items()}
    pieces = [*SPECIAL, *(names.get(row, f"<row:{row}>") for row in rows[len(SPECIAL) :])]
    ids = {row: id for id, row in enumerate(rows) if id >= len(SPECIAL)}
    control = {piece.text for piece in vocabulary.model.pieces if piece.kind is Kind.CONTROL}
    unknown = ids[vocabulary.words["<unk>"]]
    silent = [id for row, id in ids.items() if row not in names or names[row] in control]
    tags = {name: ids[row] for name, row in vocabulary.tags.items()}
    return Subwords(vocabulary.model, pieces, tags, unknown, [PAD, BOS, unknown, *silent])


def language_tags(words: Mapping[str, int]) -> dict[str, int]:
    """Return the words of OPUS-MT that name a language, such as '>>deu<<', by its name, with their ids."""
    return {tag[1]: id for word, id in words.items() if (tag := TAG.fullmatch(word))}


def download_source(name: str) -> Path:
    """Return the folder of a model of others on the Hugging Face Hub, with the files that an import may read.

    Raise DragomanError as `Repository.download` does, UsageError for a name that is none.
    """
    commit, names = Repository.parse(name).list_files()
    plain = [file for file in names if PLAIN_NAME.fullmatch(file)]
    readable = [file for file in plain if READABLE.fullmatch(file)]
    if not any(file.endswith((".safetensors", ".npz")) for file in readable):
        readable += [file for file in plain if PICKLED.fullmatch(file)]
    files = [file for file in map(commit.download, readable) if file]
    if not files:
        raise DragomanError(f"{name}: cannot be imported: it has no file of a model that an import reads")
    return files[0].parent


def source_file(folder: Path, name: str) -> Path:
    """Return a file that others name, in a folder. Raise DragomanError where it is missing, a device or leads out."""
    file = folder / name
    if not PLAIN_NAME.fullmatch(name):
        raise DragomanError(f"{folder}: {name[:100]!r} is not the name of a file in it")
    refuse_link_out(file)
    if not file.is_file():
        raise DragomanError(f"{file}: {'not a file' if file.exists() else 'missing'}")
    return file


def read_text(file: Path, max_size: int) -> str:
    """Return the text of a file. Raise DragomanError where it has more than `max_size` bytes or is not UTF-8."""
    with name_errors(file), file.open("rb") as opened:
        data = opened.read(max_size + 1)
    if len(data) > max_size:
        raise DragomanError(f"{file}: it has more than {max_size:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DragomanError(f"{file}: not UTF-8") from None


def read_object(file: Path, max_size: int = MAX_RECORD_SIZE, max_values: int | None = None) -> dict[str, Any]:
    """Return the object in a JSON file. Raise DragomanError where it is too large or is none."""
    try:
        with name_errors(file):
            content = read_json(file, max_size, max_values)
    except ValueError as error:
        raise DragomanError(f"{file}: not JSON that can be read: {error}") from None
    if not isinstance(content, dict):
        raise DragomanError(f"{file}: not an object with settings")
    return content


def read_words(file: Path) -> dict[str, int]:
    """Return the ids of the words in a JSON file such as vocab.json. Raise DragomanError as `check_words` does."""
    return check_words(file, read_object(file, MAX_LIST, 2 * MAX_WORDS))


def check_words(file: Path, words: Mapping[str, Any]) -> dict[str, int]:
    """Return words with their ids. Raise DragomanError where these are not 0, 1, ... each once, or there are none."""
    if not words:
        raise DragomanError(f"{file}: it has no words")
    for word, id in words.items():
        if type(id) is not int or not 0 <= id < len(words):
            raise DragomanError(
                f"{file}: the id of {word[:100]!r} is {id!r:.100}; {len(words):,} words have 0, 1, 2, ..."
            )
    if len(set(words.values())) != len(words):
        seen: dict[int, str] = {}
        first, second = next((seen[id], word) for word, id in words.items() if seen.setdefault(id, word) != word)
        raise DragomanError(f"{file}: {first[:100]!r} and {second[:100]!r} have the same id, {words[first]}")
    for word in words:
        if not word or "\ud800" <= max(word) <= "\udfff" or len(word) > 1000:
            raise DragomanError(f"{file}: {word[:100]!r} is no word")
    return dict(words)
