"""Write our Transformer in one of two forms of `transformers`: MarianMT has the norms of the paper, M2M100 those before
each sublayer.

MarianMT has the paper's positions with their columns sorted: all sines, then all cosines. So the vectors between layers
are renumbered, which changes no result. Marian's own positions go along as a table.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from dragoman.config import ModelConfig, TransformerConfig
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.data.tokenizers import SideTokenizer, Tokenizers
from dragoman.interop.huggingface import ACTIVATIONS, EPSILONS
from dragoman.interop.names import POSITION_TABLES, hugging_face_names
from dragoman.interop.weights import UNSAYABLE, WORDS, columns_in_pairs, in_order
from dragoman.model.positions import sinusoids_in_halves
from dragoman.model.transformer import Transformer
from dragoman.model_folder.weights import Description, expected_shapes

LENGTH = 1024  # positions in the table of a MarianMT: the longest source and output
LONGEST = 512  # tokens of an output, where nobody says how long it may be
FIRST_POSITION = 2  # of M2M100, whose padding is 1
CLASSES = {"marian": "MarianMTModel", "m2m_100": "M2M100ForConditionalGeneration"}


@dataclass(frozen=True)
class Layout:
    """Where our words are in the matrices of another model.

    source, target: our id of each row; pad, start, end: rows of the target; silent: rows that no output has.
    """

    source: list[int]
    target: list[int]
    pad: int
    start: int
    end: int
    silent: list[int]

    def rows(self, side: str) -> dict[int, int]:
        """Return the row of each of our ids on the side 'source' or 'target'."""
        return {id: row for row, id in enumerate(self.source if side == "source" else self.target)}


def form_of(config: TransformerConfig) -> str:
    """Return which kind of model of `transformers` has the norms of ours: 'marian' or 'm2m_100'."""
    return "m2m_100" if config.norm_first else "marian"


def unknown_settings(config: ModelConfig) -> dict[str, str]:
    """Return the settings of a model that its form does not have, each with the flags of one that it has."""
    if type(config) is not TransformerConfig:
        return {config.departure: "--preset base"}
    attention, d_k, known = config.attention, config.d_model // config.attention.heads, ["sinusoidal-halves"]
    first, remedy = 0, "--model.positions sinusoidal"
    if config.norm_first:
        first, remedy = FIRST_POSITION, f"--model.positions sinusoidal-halves --model.first-position {FIRST_POSITION}"
    else:
        known.append("sinusoidal")
    sizes = attention.head_sizes(config.d_model)
    settings = [
        (config.positions not in known, f"positions = '{config.positions}'", remedy),
        (
            config.positions in known and config.first_position != first,
            f"first_position = {config.first_position}",
            f"--model.first-position {first}",
        ),
        (attention.score != "dot", f"attention.score = '{attention.score}'", "--model.attention.score dot"),
        (
            sizes != (d_k, d_k) or config.d_model % attention.heads != 0,
            f"heads of the sizes {sizes[0]} and {sizes[1]}",
            "--model.attention.d-k and --model.attention.d-v left out",
        ),
        (
            config.norm_first and (config.d_model % 2 != 0 or config.d_model < 4),
            f"d_model = {config.d_model}",
            "--model.d-model 256",
        ),
        (
            config.norm_epsilon not in EPSILONS,
            f"norm_epsilon = {config.norm_epsilon:g}",
            f"--model.norm-epsilon {EPSILONS[0]:g}",
        ),
        (config.encoder_layers == 0, "encoder_layers = 0", "--model.encoder-layers 1"),
        (config.decoder_layers == 0, "decoder_layers = 0", "--model.decoder-layers 1"),
    ]
    return {setting: remedy for applies, setting, remedy in settings if applies}


def unknown_weights(model: Transformer, tokenizers: Tokenizers) -> list[str]:
    """Return what a model has beside its settings that its form does not have."""
    if form_of(model.config) == "marian":
        return []
    reasons = []
    if vocabulary(tokenizers.source) != vocabulary(tokenizers.target):
        reasons.append("a vocabulary for each side")
    if model.output.bias is not None:
        said = sorted({*range(len(tokenizers.target))} - {*unsaid(model, tokenizers.target)})
        if model.output.bias[said].abs().max() > 0:
            reasons.append("a bias in its output")
    return reasons


def vocabulary(tokenizer: SideTokenizer) -> list[str]:
    """Return the entries of a tokenizer by our ids: of SentencePiece as its model has them."""
    return tokenizer.vocabulary if isinstance(tokenizer, SentencePieceTokenizer) else tokenizer.pieces


def unsaid(model: Transformer, tokenizer: SideTokenizer) -> set[int]:
    """Return our ids that no output has: those that the tokenizer suppresses, or whose bias forbids them."""
    bias = model.output.bias
    return {*tokenizer.suppressed, *([] if bias is None else (bias < UNSAYABLE / 2).nonzero()[:, 0].tolist())}


def lay_out(model: Transformer, tokenizers: Tokenizers) -> Layout:
    """Return where the words of a model are in its form.

    With our own subwords they stay where they are, but the padding of M2M100 is 1, and the start 0. With SentencePiece
    they are where OPUS-MT and M2M100 have them: the start of MarianMT is its padding, which comes last, or second where
    each side has a vocabulary; that of M2M100 is its end, unless it has learned to be something else.
    """
    source, target = len(tokenizers.source), len(tokenizers.target)
    marian = form_of(model.config) == "marian"
    if not isinstance(tokenizers.target, SentencePieceTokenizer):
        order = [PAD, BOS, EOS] if marian else [BOS, PAD, EOS]
        left, right = ([*order, *range(3, size)] for size in (source, target))
        return Layout(left, right, pad=order.index(PAD), start=order.index(BOS), end=EOS, silent=[])
    if marian:
        separate = vocabulary(tokenizers.source) != vocabulary(tokenizers.target)
        left, right = (
            [EOS, BOS, *range(3, size)] if separate else [EOS, *range(3, size), BOS] for size in (source, target)
        )
        pad = right.index(BOS)
        return Layout(left, right, pad=pad, start=pad, end=0, silent=[])
    start, end = model.target_embedding.weight[[BOS, EOS]]
    rows_of_both = [3, PAD, EOS, *range(4, target), *([] if torch.equal(start, end) else [BOS])]
    silent = unsaid(model, tokenizers.target)
    return Layout(
        rows_of_both,
        rows_of_both,
        pad=1,
        start=rows_of_both.index(BOS if BOS in rows_of_both else EOS),
        end=2,
        silent=[row for row, id in enumerate(rows_of_both) if id in silent],
    )


def convert(model: Transformer, layout: Layout, folder: Path, forced: int | None = None) -> None:
    """Write config.json, generation_config.json and model.safetensors of a model into a folder.

    forced: the row of the tag that each output begins with, None for none. `unknown_settings` and `unknown_weights`
    must be empty.
    """
    special = {
        "pad_token_id": layout.pad,
        "eos_token_id": layout.end,
        "decoder_start_token_id": layout.start,
    }
    generation: dict[str, Any] = {"max_length": LONGEST, "num_beams": 4, "length_penalty": 0.0, **special}
    if layout.silent:
        generation |= {"suppress_tokens": layout.silent, "renormalize_logits": True}
    if forced is not None:
        generation |= {"forced_bos_token_id": forced}
    write_json(folder / "config.json", description(model, layout) | special)
    write_json(folder / "generation_config.json", generation)
    save_file(weights(model, layout), folder / "model.safetensors", {"format": "pt"})


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def description(model: Transformer, layout: Layout) -> dict[str, Any]:
    """Return the settings of a model as `transformers` calls them, without the ids of special words."""
    config, form, activation = model.config, form_of(model.config), model.config.feed_forward.activation
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", getattr(config, f"{side}_layers")),
            ("attention_heads", config.attention.heads),
            ("ffn_dim", config.feed_forward.d_ff),
            ("layerdrop", 0.0),
        )
    }
    vocabularies: dict[str, Any] = {"vocab_size": len(layout.source)}
    if form == "marian":
        shared = config.share == "all"
        vocabularies |= {"decoder_vocab_size": len(layout.target), "share_encoder_decoder_embeddings": shared}
    return {
        "model_type": form,
        "architectures": [CLASSES[form]],
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        **sides,
        **vocabularies,
        "tie_word_embeddings": has_tied_output(config),
        "activation_function": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == activation),
        "scale_embedding": config.scale_embedding,
        "max_position_embeddings": LENGTH,
        "forced_eos_token_id": None,  # an output that was cut off does not look finished
        "dropout": config.dropout,
        "attention_dropout": config.attention.dropout,
        "activation_dropout": config.feed_forward.dropout,
        # For `dragoman import` alone: transformers has the first, whatever is here.
        **({"norm_epsilon": config.norm_epsilon} if config.norm_epsilon != EPSILONS[0] else {}),
    }


def has_tied_output(config: TransformerConfig) -> bool:
    """Return whether the output matrix is stored as that of the embeddings: M2M100 ties all three matrices or none."""
    return config.share == "all" or (config.share == "output" and not config.norm_first)


def weights(model: Transformer, layout: Layout) -> dict[str, Tensor]:
    """Return the tensors of a model by the names of `transformers`; biases that ours has not got are zero."""
    config, state = model.config, model.state_dict()
    marian = form_of(config) == "marian"
    columns = columns_in_pairs(config.d_model).argsort() if marian and config.positions == "sinusoidal" else None
    whole = replace(config, attention=replace(config.attention, bias=True), output_bias=marian, share="none")
    rows = {"source": layout.source, "target": layout.target}
    tensors: dict[str, Tensor] = {}
    sizes = model.source_embedding.num_embeddings, model.target_embedding.num_embeddings
    for (ours, *_), shape in expected_shapes(Description(whole, *sizes)):
        value = state[ours] if ours in state else torch.zeros(shape)
        if (side := "target" if ours == "output.bias" else WORDS.get(ours)) is not None:
            value = value[rows[side]]
        if columns is not None:
            value = in_order(ours, value, columns)
        names = hugging_face_names(ours)
        if ours == "output.bias":
            value = value[None]
        if ours in WORDS and config.share == "all":
            tensors[names[-1]] = value.contiguous()
        elif ours != "output.weight" or not has_tied_output(config):
            tensors[names[0]] = value.clone(memory_format=torch.contiguous_format)
    if config.share != "all" and not marian:
        tensors["model.shared.weight"] = tensors["model.encoder.embed_tokens.weight"].clone()  # it has one in any case
    if marian and config.positions == "sinusoidal-halves":
        tensors |= {name: sinusoids_in_halves(LENGTH, config.d_model).float() for name in POSITION_TABLES}
    return tensors
