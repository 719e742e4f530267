"""Export a model as ONNX, with the names of files, inputs and outputs that transformers.js looks for."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import BOS, EOS, PAD, tag_piece
from dragoman.data.tokenizers import Tokenizers
from dragoman.export.readme import read_usage
from dragoman.export.sentencepiece import check_models, known_tags, names_of, sentencepiece_sides, write_models
from dragoman.export.target import Exported, Target
from dragoman.interop.onnx.conversion import check_model, convert
from dragoman.interop.onnx.graph import import_onnx
from dragoman.interop.onnx.session import OnnxEngine, OnnxModel
from dragoman.interop.tokenizer_json import TARGET_FILE, check_tokenizers, write_tokenizers
from dragoman.interop.verification import Mismatch
from dragoman.model.transformer import Transformer

GRAPHS = ("encoder_model", "decoder_model_merged")
SUFFIXES = {"float32": "", "int8": "_int8"}
DTYPES = {"float32": "fp32", "int8": "int8"}  # what transformers.js calls them
LONGEST = 512  # tokens of an output, where the positions of the model have no end
WORDS = ("vocab.json", "target_vocab.json")  # of SentencePiece: the ids of the source's words, and of the target's


def check(exported: Exported) -> None:
    check_model(exported.model.config)


def write(exported: Exported, folder: Path, compute_type: str) -> None:
    """Write both graphs, the subwords and the settings that transformers.js reads into a folder."""
    model, tokenizers = exported.model, exported.tokenizers
    assert isinstance(model, Transformer)  # `check_model` refuses all others
    config, longest = model.config, model.config.max_positions
    (folder / "onnx").mkdir()
    for name, graph in zip(GRAPHS, convert(model, compute_type), strict=True):
        import_onnx().save(graph, folder / "onnx" / f"{name}{SUFFIXES[compute_type]}.onnx")
    if sides := sentencepiece_sides(tokenizers):
        write_models(sides, folder)
        for file, side in zip(words_files(tokenizers), sides, strict=False):
            words = {name: id for id, name in enumerate(names_of(side))}
            (folder / file).write_text(json.dumps(words, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    else:
        write_tokenizers(tokenizers, folder, longest)
    ids = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    description = {
        "model_type": "marian",  # of the kinds that transformers.js knows, one that takes any graphs
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "vocab_size": len(tokenizers.source),
        "decoder_vocab_size": len(tokenizers.target),
        "d_model": config.d_model,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_attention_heads": config.attention.heads,
        "decoder_attention_heads": config.attention.heads,
        **ids,
        "transformers.js_config": {"dtype": DTYPES[compute_type]},
    }
    generation = {"max_length": longest or LONGEST, "num_beams": 1, **ids}
    for file, content in (("config.json", description), ("generation_config.json", generation)):
        (folder / file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def words_files(tokenizers: Tokenizers) -> tuple[str, ...]:
    """Return the names of the files with the words of SentencePiece's sides: one where both have the same words."""
    sides = sentencepiece_sides(tokenizers)
    return WORDS[:1] if sides and names_of(sides[0]) == names_of(sides[1]) else WORDS


def check_subwords(folder: Path, exported: Exported, sources: Sequence[Ids]) -> None:
    tokenizers = exported.tokenizers
    if not sentencepiece_sides(tokenizers):
        check_tokenizers(folder, tokenizers, sources)
        return
    files = words_files(tokenizers)
    words = [json.loads((folder / file).read_text("utf-8")) for file in files]
    if any(list(ids.values()) != list(range(len(ids))) for ids in words):
        raise Mismatch("its words are not in the order of their ids")
    check_models(folder, tokenizers, sources, (list(words[0]), list(words[-1])))


def open_copy(folder: Path, exported: Exported, compute_type: str) -> OnnxEngine:
    encoder, decoder = (folder / "onnx" / f"{name}{SUFFIXES[compute_type]}.onnx" for name in GRAPHS)
    return OnnxEngine(OnnxModel(encoder, decoder), exported.model.config.max_positions)


def usage(exported: Exported, compute_type: str) -> str:
    tokenizers, tags = exported.tokenizers, exported.tags
    start, longest = [BOS, *tokenizers.target.tag_ids(tags.target)], exported.model.config.max_positions or LONGEST
    fields: dict[str, Any] = {"start": start, "end": EOS, "longest": longest, "suffix": SUFFIXES[compute_type]}
    if sentencepiece_sides(tokenizers):
        fields |= {"tag": tokenizers.source.tag_ids(tags.source), "words": words_files(tokenizers)[-1]}
        return read_usage("onnx-sentencepiece").format(first=len(start), more=known_tags(tokenizers), **fields)
    encode, hint, more = "tokenizer.encode(text).ids", "", ""
    if tags.source:
        piece = tag_piece(tags.source)
        encode, hint = f'[tokenizer.token_to_id("{piece}"), *{encode}]', f" Put `{piece}` in front of each."
    if tokenizers.is_one and not tags.target:
        more = read_usage("transformers-js").format(hint=hint)
    target, other = "tokenizer", ""
    if not tokenizers.is_one:
        target = "target"
        other = f'\ntarget = tokenizers.Tokenizer.from_file(str(folder / "{TARGET_FILE}"))'
    return read_usage("onnx").format(encode=encode, target=target, other=other, more=more, **fields)


ONNX = Target(
    title="as ONNX",
    compute_types=("float32", "int8"),
    search=SearchConfig(beam=1),
    check=check,
    write=write,
    check_subwords=check_subwords,
    open=open_copy,
    usage=usage,
)
