"""Write the subwords of a model as other programs read them: tokenizer.json with everything that `Tokenizer` does.

The tokenizer.json of a model folder has the subwords alone, since our code does the rest. This one also replaces white
space, normalises to Unicode NFC, knows padding, start, end and tags by name, and puts the end behind a source. It is
read back if it has nothing else.
"""

import json
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tokenizers as library
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers, processors

from dragoman.data.tokenizer import BOS, EOS, PAD, SPECIAL, WORDS, Tokenizer, read_tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError
from dragoman.interop.verification import Mismatch

FILE, TARGET_FILE = "tokenizer.json", "target_tokenizer.json"  # of both sides or of the source; of the target
SETTINGS = ("version", "truncation", "padding")  # of tokenizer.json, which do nothing to a single text

# What \s means differs between languages, so it is spelled out. The first is what the library that we use takes for
# white space; Python has four characters more.
WHITE_SPACE = r"\t\n\x0B\f\r \x85\xA0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000"


def own_sides(tokenizers: Tokenizers) -> tuple[Tokenizer, Tokenizer]:
    """Return both tokenizers, which are our own. Raise DragomanError where one is not."""
    source, target = tokenizers
    if not isinstance(source, Tokenizer) or not isinstance(target, Tokenizer):
        raise DragomanError("one side has a SentencePiece model and the other has not, so the model is not exported")
    return source, target


def write_tokenizers(tokenizers: Tokenizers, folder: Path, longest: int | None, order: Sequence[int] = ()) -> None:
    """Write tokenizer.json and tokenizer_config.json, which Hugging Face's libraries read, into a folder.

    Where each side has a tokenizer, that of the target is target_tokenizer.json. longest: the most tokens of a source,
    EOS included; None: any number; order: our ids of the first words there, where they are others.
    """
    source, target = own_sides(tokenizers)
    write_tokenizer(source, folder / FILE, order)
    if not tokenizers.is_one:
        write_tokenizer(target, folder / TARGET_FILE, order)
    pad, bos, eos = SPECIAL
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "bos_token": bos,
        "eos_token": eos,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if longest:
        config["model_max_length"] = longest
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def write_tokenizer(tokenizer: Tokenizer, file: Path, order: Sequence[int] = ()) -> None:
    """Write one tokenizer.json. order: our ids of its first words, where they are others."""
    file.write_text(json.dumps(content_of(tokenizer, order), indent=2, ensure_ascii=False), encoding="utf-8")


def content_of(tokenizer: Tokenizer, order: Sequence[int]) -> dict[str, Any]:
    """Return the content of one tokenizer.json, with its words and special entries in the order of their ids there."""
    content: dict[str, Any] = json.loads(complete(tokenizer).to_str())
    moved = {id: new for new, id in enumerate(order)}
    words = content["model"]["vocab"]
    content["model"]["vocab"] = dict(
        sorted(((piece, moved.get(id, id)) for piece, id in words.items()), key=lambda entry: entry[1])
    )
    for entry in content["added_tokens"]:
        entry["id"] = moved.get(entry["id"], entry["id"])
    content["added_tokens"].sort(key=lambda entry: entry["id"])
    return content


def read_written(file: Path, order: Sequence[int], vocabulary: int) -> Tokenizer:
    """Return the tokenizer of which `write_tokenizer` makes this file with this order.

    vocabulary: how many entries its model has. Raise DragomanError where the file is missing, damaged or has anything
    else in it, so that it may cut texts in another way.
    """

    def build(content: dict[str, Any]) -> Tokenizer:
        moved, model = dict(enumerate(order)), content["model"]
        ids = {piece: moved.get(row, row) for piece, row in model["vocab"].items()}
        tokenizer = Tokenizer(ids, [(left, right) for left, right in model["merges"]])
        written = content_of(tokenizer, order)
        if others := [name for name in written if name not in SETTINGS and written[name] != content.get(name)]:
            raise ValueError(f"{' and '.join(others)} would do other things to texts")
        return tokenizer

    return read_tokenizer(file, vocabulary, build)


def complete(tokenizer: Tokenizer) -> library.Tokenizer:
    """Return a tokenizer of the library that gives text the ids that `Tokenizer.encode_sources` gives it, and EOS."""
    whole = library.Tokenizer.from_str(tokenizer.inner.to_str())
    steps = [
        normalizers.Replace(Regex(f"[{strange_spaces(tokenizer)}]"), " "),
        normalizers.Replace(Regex(" {2,}"), " "),
        normalizers.NFC(),
        tokenizer.inner.normalizer,
    ]
    whole.normalizer = normalizers.Sequence(steps)
    # Inside of brackets and alone.
    pattern = WORDS.replace(r"[^\s", f"[^{WHITE_SPACE}").replace(r"\s", f"[{WHITE_SPACE}]")
    whole.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    whole.add_special_tokens(
        [
            AddedToken(tokenizer.pieces[id], rstrip=id not in (PAD, BOS, EOS), normalized=False)
            for id in sorted(tokenizer.special_ids)
        ]
    )
    end = SPECIAL[EOS]
    whole.post_processor = processors.TemplateProcessing(f"$A {end}", f"$A {end} $B {end}", [(end, EOS)])
    return whole


def strange_spaces(tokenizer: Tokenizer) -> str:
    """Return the inside of a class of characters: white space that no subword has, which counts as a space."""
    learned = {character for piece in tokenizer.pieces for character in piece if character.isspace()}
    return "".join(f"\\u{ord(character):04X}" for character in all_spaces() if character not in learned)


@cache
def all_spaces() -> list[str]:
    """Return all characters of white space, in the order of Unicode; to find them takes a moment."""
    return re.findall(r"\s", "".join(map(chr, range(sys.maxunicode + 1))))


def check_tokenizers(folder: Path, tokenizers: Tokenizers, sources: Sequence[list[int]]) -> None:
    """Raise Mismatch where the tokenizers in a folder do not do with texts, or a tag, what ours do.

    sources: their texts are cut.
    """
    source, target = own_sides(tokenizers)
    texts = [source.decode(ids) for ids in sources]
    check_tokenizer(folder / FILE, source, texts)
    if not tokenizers.is_one:
        check_tokenizer(folder / TARGET_FILE, target, texts)


def check_tokenizer(file: Path, tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Raise Mismatch where a tokenizer.json does not do with texts, or a tag, what `tokenizer` does."""
    other = library.Tokenizer.from_file(str(file))
    pieces = [other.id_to_token(id) for id in range(other.get_vocab_size())]
    if pieces != tokenizer.pieces:
        raise Mismatch(f"its {file.name} has other subwords")
    for tag in ("", *tokenizer.tags):
        front = tokenizer.tag_ids(tag)
        plain = [text.lstrip() for text in texts] if tag else list(texts)  # a tag takes the spaces behind it away
        marked, ids = [f"<tag:{tag}> {text}" if tag else text for text in plain], tokenizer.encode_sources(plain)
        for text, expected, encoded in zip(marked, ids, other.encode_batch(marked), strict=True):
            if encoded.ids != [*front, *expected, EOS]:
                raise Mismatch(f"its {file.name} does not give the text {text!r} the same ids")
            if other.decode(encoded.ids) != tokenizer.decode(expected):
                raise Mismatch(f"its {file.name} does not give the ids {encoded.ids} the same text")
