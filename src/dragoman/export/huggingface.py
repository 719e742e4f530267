"""Export a model in a form of Hugging Face's `transformers`: MarianMT or M2M100."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.config import RecurrentConfig, SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.tokenizer import EOS, tag_piece
from dragoman.errors import DragomanError
from dragoman.export.readme import read_usage
from dragoman.export.sentencepiece import known_tags, names_of, sentencepiece_sides, tag_name, write_models
from dragoman.export.target import Exported, Target
from dragoman.interop.huggingface import EPSILONS
from dragoman.interop.importing import RECORDS
from dragoman.interop.tokenizer_json import TARGET_FILE, write_tokenizers
from dragoman.interop.transformers.conversion import (
    LENGTH,
    Layout,
    convert,
    lay_out,
    unknown_settings,
    unknown_weights,
    write_json,
)
from dragoman.interop.transformers.engine import TransformersEngine, import_transformers, open_tokenizer, quietly
from dragoman.interop.verification import Mismatch
from dragoman.model.transformer import Transformer


def check(exported: Exported) -> None:
    """Raise DragomanError for a model that neither form has, naming all that speaks against it and what to do."""
    model = exported.model
    unknown = unknown_settings(model.config)
    reasons = [*unknown, *(unknown_weights(model, exported.tokenizers) if isinstance(model, Transformer) else [])]
    if reasons:
        other = "" if isinstance(model.config, RecurrentConfig) else "export it to ONNX"
        remedy = f"train or distill with {' '.join(dict.fromkeys(unknown.values()))}" if unknown else ""
        raise DragomanError(
            f"the forms of transformers (MarianMT, M2M100) do not have {' and '.join(reasons)}: "
            f"{', or '.join(part for part in (other, remedy) if part)}"
        )


def parts_of(exported: Exported) -> tuple[Transformer, Layout]:
    """Return the model, and where its words are in its form."""
    assert isinstance(exported.model, Transformer)  # `check` refuses all others
    return exported.model, lay_out(exported.model, exported.tokenizers)


def write(exported: Exported, folder: Path, compute_type: str) -> None:
    """Write the weights, the settings and the subwords into a folder."""
    import_transformers()  # without it nothing could be checked
    model, layout = parts_of(exported)
    tag, rows = exported.tags.target, layout.rows("target")
    convert(model, layout, folder, rows[exported.tokenizers.target.tags[tag]] if tag else None)
    if sides := sentencepiece_sides(exported.tokenizers):
        write_sentencepiece(sides, layout, folder)
    else:
        write_tokenizers(exported.tokenizers, folder, LENGTH, layout.target[:3])


def write_sentencepiece(
    sides: tuple[SentencePieceTokenizer, SentencePieceTokenizer], layout: Layout, folder: Path
) -> None:
    """Write SentencePiece models and lists of words as MarianTokenizer reads them, which cuts texts with the library.

    It suits M2M100's form, too: transformers' own tokenizers of M2M100 know other lists of languages than the model
    may have, and that of NLLB does not cut all texts as SentencePiece does.
    """
    words = [words_of(side, rows, layout) for side, rows in zip(sides, (layout.source, layout.target), strict=True)]
    write_models(sides, folder)
    write_json(folder / "vocab.json", words[0])
    if words[0] != words[1]:
        write_json(folder / "target_vocab.json", words[1])
    config = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": words[0] != words[1],
        "unk_token": "<unk>",
        "eos_token": "</s>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": LENGTH,
    }
    write_json(folder / "tokenizer_config.json", config)


def words_of(side: SentencePieceTokenizer, rows: Sequence[int], layout: Layout) -> dict[str, int]:
    """Return the names of the words of a side with their rows, our ids of which are given."""
    names = names_of(side, start="<pad>" if layout.pad == layout.start else "<start>")
    return {names[id]: row for row, id in enumerate(rows)}


def check_subwords(folder: Path, exported: Exported, sources: Sequence[Ids]) -> None:
    tokenizers, (_, layout) = exported.tokenizers, parts_of(exported)
    of_spm = sentencepiece_sides(tokenizers) is not None
    other, name = open_tokenizer(folder), tag_name if of_spm else tag_piece
    their, target = layout.rows("source"), layout.rows("target")
    # Where a text contains the name of a special word, such as </s>, these tokenizers take it for that word.
    texts = [
        text
        for text in map(tokenizers.source.decode, sources)
        if not any(special in text for special in other.all_special_tokens)
    ]
    target_tokenizer = open_target(folder, exported, other)
    with quietly():
        for tag in ("", *tokenizers.source.tags):
            some = texts if not tag else [text.lstrip() for text in texts[:3]]  # a tag takes the spaces away
            marked = [f"{name(tag)} {text}" if tag else text for text in some]
            expected = tokenizers.source.encode_sources(some)
            for text, ids, expected_ids in zip(marked, other(marked)["input_ids"], expected, strict=True):
                if ids != [their[id] for id in (*tokenizers.source.tag_ids(tag), *expected_ids, EOS)]:
                    raise Mismatch(f"its tokenizer does not give the text {text!r} the same ids")
        for ids in tokenizers.target.encode_all(texts):
            known = [id for id in ids if id != tokenizers.target.unknown]
            said = target_tokenizer.decode([target[id] for id in (*known, EOS)], skip_special_tokens=True)
            if said.strip() != tokenizers.target.decode(known).strip():
                raise Mismatch(f"its tokenizer does not give the ids {known} the same text")
        for tag, id in tokenizers.target.tags.items():
            vocabulary = getattr(target_tokenizer, "target_encoder", None) or target_tokenizer.get_vocab()
            if vocabulary.get(name(tag)) != target[id]:
                raise Mismatch(f"the tag {tag} has another id there")


def open_target(folder: Path, exported: Exported, other: Any) -> Any:
    """Return the tokenizer of the target: `other`, that of the source, unless our own subwords have two."""
    if exported.tokenizers.is_one or sentencepiece_sides(exported.tokenizers):
        return other
    return import_transformers().PreTrainedTokenizerFast(tokenizer_file=str(folder / TARGET_FILE))


def open_copy(folder: Path, exported: Exported, compute_type: str) -> TransformersEngine:
    return TransformersEngine(folder, parts_of(exported)[1], exported.model.config.max_positions)


def usage(exported: Exported, compute_type: str) -> str:
    tokenizers, tag = exported.tokenizers, exported.tags.source
    epsilon = parts_of(exported)[0].config.norm_epsilon
    of_spm = sentencepiece_sides(tokenizers) is not None
    two = not of_spm and not tokenizers.is_one
    norms = ""
    if epsilon != EPSILONS[0]:
        norms = read_usage("huggingface-norms").format(ours=epsilon, theirs=EPSILONS[0])
    front = f'"{tag_name(tag) if of_spm else tag_piece(tag)} " + ' if tag else ""
    return read_usage("huggingface").format(
        library=" sentencepiece" if of_spm else "",
        imports="AutoTokenizer, PreTrainedTokenizerFast" if two else "AutoTokenizer",
        target=f'PreTrainedTokenizerFast(tokenizer_file=str(folder / "{TARGET_FILE}"))' if two else "tokenizer",
        front=front,
        known=known_tags(tokenizers) if of_spm else "",
        norms=norms,
        alpha=HUGGING_FACE.search.length_penalty,
        extra=HUGGING_FACE.search.extra_length - 1 + len(tokenizers.target.tag_ids(exported.tags.target)),
    )


HUGGING_FACE = Target(
    title="for Hugging Face's transformers",
    compute_types=("float32",),
    search=SearchConfig(),
    check=check,
    write=write,
    check_subwords=check_subwords,
    open=open_copy,
    usage=usage,
    quiet=quietly,
    records=RECORDS,
)
