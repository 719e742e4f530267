"""Write the subwords of an imported model: its SentencePiece models, and the names of its words."""

from collections.abc import Sequence
from pathlib import Path

from dragoman.data.batches import Ids
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.data.tokenizers import Tokenizers
from dragoman.interop.verification import Mismatch

SPM = ("source.spm", "target.spm")
UNKNOWN, END = "<unk>", "</s>"


def sentencepiece_sides(tokenizers: Tokenizers) -> tuple[SentencePieceTokenizer, SentencePieceTokenizer] | None:
    """Return both tokenizers if they have SentencePiece models, None if they have not."""
    source, target = tokenizers
    if isinstance(source, SentencePieceTokenizer) and isinstance(target, SentencePieceTokenizer):
        return source, target
    return None


def names_of(tokenizer: SentencePieceTokenizer, start: str = "<s>") -> list[str]:
    """Return the names of all words by our ids: pieces as SentencePiece writes them, tags such as '>>deu<<'.

    start: the name of the start.
    """
    special = {PAD: "<pad>", BOS: start, EOS: END, tokenizer.unknown: UNKNOWN}
    special |= {id: tag_name(tag) for tag, id in tokenizer.tags.items()}
    taken = {*special.values()}
    pieces = ((id, f"{piece}#{id}" if piece in taken else piece) for id, piece in enumerate(tokenizer.vocabulary))
    return [special.get(id, piece) for id, piece in pieces]


def tag_name(tag: str) -> str:
    """Return the name of a tag among the words, as OPUS-MT has it."""
    return f">>{tag}<<"


def write_models(sides: Sequence[SentencePieceTokenizer], folder: Path) -> None:
    """Write the SentencePiece models of both sides into a folder."""
    for side, file in zip(sides, SPM, strict=True):
        (folder / file).write_bytes(side.model.to_bytes())


def known_tags(tokenizers: Tokenizers) -> str:
    """Return which tags a model knows, as a paragraph of Markdown; '' if none."""
    sides = [(name, side.tags) for name, side in zip(("source", "target"), tokenizers, strict=True) if side.tags]
    if len(sides) == 2 and sides[0][1] == sides[1][1]:
        sides = [("source and the target", sides[0][1])]
    return "".join(
        f"\nTags of the {name}: {', '.join(f'`{tag_name(tag)}`' for tag in sorted(tags))}.\n" for name, tags in sides
    )


def check_models(
    folder: Path, tokenizers: Tokenizers, sources: Sequence[Ids], words: tuple[Sequence[str], Sequence[str]]
) -> None:
    """Raise Mismatch where the SentencePiece models in a folder do not do with texts, or a tag, what our tokenizers do.

    sources: their texts are cut; words: the names of both sides' words in the folder, by id.
    """
    from sentencepiece import SentencePieceProcessor

    texts = [tokenizers.source.decode(source) for source in sources]
    for side, file, names in zip(tokenizers, SPM, words, strict=True):
        library, ids = SentencePieceProcessor(str(folder / file)), {name: id for id, name in enumerate(names)}
        for text, expected in zip(texts, side.encode_all(texts), strict=True):
            if [ids.get(piece, ids[UNKNOWN]) for piece in library.encode(text, out_type=str)] != expected:
                raise Mismatch(f"its {file} does not give the text {text!r} the same ids")
            known = [id for id in expected if id != side.unknown]
            if library.decode([names[id] for id in known]) != side.decode(known):
                raise Mismatch(f"its {file} does not give the ids {known} the same text")
        for tag, id in side.tags.items():
            if ids.get(tag_name(tag)) != id:
                raise Mismatch(f"the tag {tag} has another id there")
