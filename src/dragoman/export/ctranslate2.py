"""Export a model for CTranslate2."""

from collections.abc import Sequence
from pathlib import Path

from dragoman.config import RecurrentConfig, SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import PAD, tag_piece
from dragoman.errors import DragomanError, UsageError
from dragoman.export.readme import read_usage
from dragoman.export.sentencepiece import (
    check_models,
    known_tags,
    names_of,
    sentencepiece_sides,
    tag_name,
    write_models,
)
from dragoman.export.target import Exported, Target
from dragoman.interop.ctranslate2.conversion import LARGEST_WITHOUT_VNNI, convert, import_ctranslate2, unknown_settings
from dragoman.interop.ctranslate2.engine import PATIENCE, CTranslate2Engine, read_vocabularies
from dragoman.interop.tokenizer_json import TARGET_FILE, check_tokenizers, write_tokenizers
from dragoman.interop.verification import Mismatch


def check(exported: Exported) -> None:
    config = exported.model.config
    if unknown := unknown_settings(config):
        other = "" if isinstance(config, RecurrentConfig) else "export it to ONNX, or "
        raise DragomanError(
            f"CTranslate2 does not support models with {' and '.join(unknown)}: "
            f"{other}train or distill with {' '.join(unknown.values())}"
        )


def words_of(exported: Exported) -> tuple[list[str], list[str]]:
    """Return how CTranslate2 calls the words of the source and of the target, by id."""
    if sides := sentencepiece_sides(exported.tokenizers):
        return names_of(sides[0]), names_of(sides[1])
    return exported.tokenizers.source.pieces, exported.tokenizers.target.pieces


def write(exported: Exported, folder: Path, compute_type: str) -> None:
    """Write the files of CTranslate2 and those of the subwords into a folder."""
    model, tokenizers, sides = exported.model, exported.tokenizers, sentencepiece_sides(exported.tokenizers)
    unknown = sides[1].unknown if sides else PAD
    # whatever this processor has, others may have no VNNI
    convert(model, words_of(exported), folder, compute_type, unknown, largest=LARGEST_WITHOUT_VNNI)
    if sides:
        write_models(sides, folder)
    else:
        write_tokenizers(tokenizers, folder, model.config.max_positions)


def check_subwords(folder: Path, exported: Exported, sources: Sequence[Ids]) -> None:
    if sentencepiece_sides(exported.tokenizers):
        check_models(folder, exported.tokenizers, sources, read_vocabularies(folder))
    else:
        check_tokenizers(folder, exported.tokenizers, sources)


def open_copy(folder: Path, exported: Exported, compute_type: str) -> CTranslate2Engine:
    """Open a folder that `write` has filled. Raise UsageError where this processor cannot compute in int8."""
    computed = "int8" if compute_type == "int8" else "float32"  # processors have no float16
    if computed not in import_ctranslate2().get_supported_compute_types("cpu"):
        raise UsageError(f"CTranslate2 cannot compute in {computed} on this processor, so it cannot be measured here")
    engine = CTranslate2Engine(folder, computed)
    if (engine.source_pieces, engine.pieces) != words_of(exported):
        raise Mismatch("its vocabulary has other subwords")
    return engine


def usage(exported: Exported, compute_type: str) -> str:
    tags, alpha = exported.tags, CTRANSLATE2.search.length_penalty
    limit = "max(map(len, sources), default=0) + "  # EOS included
    limit += str(CTRANSLATE2.search.extra_length - 1 + len(exported.tokenizers.target.tag_ids(tags.target)))
    if longest := exported.model.config.max_positions:
        limit = f"min({limit}, {longest})"
    if sentencepiece_sides(exported.tokenizers):
        tag_names = ", ".join(repr([tag_name(tag)] if tag else []) for tag in (tags.source, tags.target))
        return read_usage("ctranslate2-sentencepiece").format(
            tags=tag_names, known=known_tags(exported.tokenizers), alpha=alpha, limit=limit
        )
    file = f'tokenizers.Tokenizer.from_file(str(folder / "{TARGET_FILE}"))'
    tokens = f'["{tag_piece(tags.source)}", *encoding.tokens]' if tags.source else "encoding.tokens"
    prefix = f', target_prefix=[["{tag_piece(tags.target)}"]] * len(texts)' if tags.target else ""
    target = "tokenizer" if exported.tokenizers.is_one else file
    return read_usage("ctranslate2").format(target=target, tokens=tokens, prefix=prefix, alpha=alpha, limit=limit)


CTRANSLATE2 = Target(
    title="for CTranslate2",
    compute_types=("float32", "float16", "int8"),
    search=SearchConfig(patience=PATIENCE),
    check=check,
    write=write,
    check_subwords=check_subwords,
    open=open_copy,
    usage=usage,
)
