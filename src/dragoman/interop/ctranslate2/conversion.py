"""Write our Transformer as CTranslate2 reads it: every weight, and every setting that it knows."""

import copy
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.config import ModelConfig, TransformerConfig
from dragoman.data.tokenizer import BOS, EOS, PAD
from dragoman.errors import DragomanError
from dragoman.inference.products import adds_int8
from dragoman.model import Model
from dragoman.model.attention import MultiHeadAttention
from dragoman.model.positions import Learned, Positions, Rotary, Sinusoidal
from dragoman.model.transformer import DecoderLayer, Residual, Transformer

TABLE_SIZE = 4096  # positions in the table of a formula: the longest source and output
MAX_HEADS = 2**15 - 1
# The largest whole number of a weight in int8. Processors without VNNI add two products, each with a number up to 255,
# in 16 bits: with LARGEST their sums overflow, and most translations become other ones.
LARGEST, LARGEST_WITHOUT_VNNI = 127, 63
POSITION_SCHEMES = ("none", "sinusoidal", "sinusoidal-halves", "learned", "rotary")  # those that CTranslate2 has


def import_ctranslate2() -> ModuleType:
    """Import ctranslate2 now, not before, and return it. Raise DragomanError where it is not installed."""
    try:
        import ctranslate2
    except ImportError:
        raise DragomanError("the CTranslate2 engine needs a package: pip install 'dragoman[fast]'") from None
    return ctranslate2


def convert(
    model: Model,
    pieces: tuple[Sequence[str], Sequence[str]],
    folder: Path,
    compute_type: str = "float32",
    unknown: int = PAD,
    largest: int | None = None,
) -> None:
    """Write `model` into `folder` as CTranslate2 reads it.

    pieces: the subwords of the source and of the target, by id; compute_type: how weights are stored, such as float32
    or int8; unknown: the id of the target's word for what is none of them; largest: the whole number that the largest
    weight of a row becomes in int8, by default as `largest_weight` says. CTranslate2 adds no EOS to a source, so a
    program that uses the folder without this engine has to. Raise DragomanError naming the settings of the model that
    CTranslate2 does not know.
    """
    check_model(model.config)
    assert isinstance(model, Transformer)  # it refuses all others
    import_ctranslate2()
    spec = specification(model)
    source_pieces, target_pieces = pieces
    spec.register_source_vocabulary(list(source_pieces))
    spec.register_target_vocabulary(list(target_pieces))
    special = (target_pieces[id] for id in (unknown, BOS, EOS))
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = special
    spec.config.decoder_start_token = target_pieces[BOS]
    spec.config.layer_norm_epsilon = model.config.norm_epsilon
    table = position_table(model.encoder_positions, model.config)
    spec.config.add_attribute("longest", None if table is None else len(table))
    spec.validate()
    largest = largest or largest_weight()
    if compute_type.startswith("int8") and largest != LARGEST:
        weights = {name: value.numpy().copy() for name, value in spec.variables().items()}
        spec.optimize(compute_type)
        requantise(spec, weights, largest)
    else:
        spec.optimize(compute_type)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def check_model(config: ModelConfig) -> None:
    """Raise DragomanError for a model that CTranslate2 cannot run, naming its settings and what to do."""
    if unknown := unknown_settings(config):
        raise DragomanError(
            f"CTranslate2 does not support models with {' and '.join(unknown)}: use the native engine, "
            f"or train or distill with {' '.join(unknown.values())}"
        )


def describe_engines(config: ModelConfig) -> str:
    """Return which engines can run a model; where CTranslate2 cannot, also why, and the flags for one that it can."""
    if unknown := unknown_settings(config):
        reason, remedy = " and ".join(unknown), " ".join(unknown.values())
        return f"native; ctranslate2 lacks {reason}: train or distill with {remedy} for it"
    return "native, ctranslate2"


def unknown_settings(config: ModelConfig) -> dict[str, str]:
    """Return the settings of a model that CTranslate2 does not have, each with the flags of one that it has."""
    if type(config) is not TransformerConfig:
        return {config.departure: "--preset small --model.positions rotary"}
    attention = config.attention
    d_k, d_v = attention.head_sizes(config.d_model)
    settings = [
        (config.positions not in POSITION_SCHEMES, f"positions = '{config.positions}'", "--model.positions rotary"),
        (attention.score != "dot", f"attention.score = '{attention.score}'", "--model.attention.score dot"),
        (d_v != d_k, f"attention.d_v = {d_v} with d_k = {d_k}", f"--model.attention.d-v {d_k}"),
        (attention.heads > MAX_HEADS, f"attention.heads = {attention.heads}", "--model.attention.heads 8"),
        (config.encoder_layers == 0, "encoder_layers = 0", "--model.encoder-layers 1"),
        (config.decoder_layers == 0, "decoder_layers = 0", "--model.decoder-layers 1"),
    ]
    return {setting: remedy for applies, setting, remedy in settings if applies}


def specification(model: Transformer) -> Any:
    """Return a TransformerSpec with the weights of `model`, without a vocabulary."""
    from ctranslate2.specs import common_spec, transformer_spec

    config = model.config
    d_k, _ = config.attention.head_sizes(config.d_model)
    activations = {
        "relu": common_spec.Activation.RELU,
        "gelu": common_spec.Activation.GELU,
        "silu": common_spec.Activation.SWISH,
    }
    shape: dict[str, Any] = {
        "num_heads": config.attention.heads,
        "head_dim": d_k,
        "pre_norm": config.norm_first,
        "activation": activations[config.feed_forward.activation],
        "rotary_dim": d_k if config.positions == "rotary" else None,
    }
    encoder = transformer_spec.TransformerEncoderSpec(config.encoder_layers, **shape)
    decoder = transformer_spec.TransformerDecoderSpec(config.decoder_layers, **shape)
    sides = (
        (encoder, encoder.embeddings[0], model.source_embedding, model.encoder_positions, model.encoder_norm),
        (decoder, decoder.embeddings, model.target_embedding, model.decoder_positions, model.decoder_norm),
    )
    for side, embeddings, words, positions, norm in sides:
        embeddings.weight = float32_copy(words.weight)
        side.scale_embeddings = config.scale_embedding
        if (table := position_table(positions, config)) is not None:
            side.position_encodings.encodings = float32_copy(table)
        if isinstance(norm, nn.LayerNorm):
            fill_norm(side.layer_norm, norm)
    layers: list[Any] = [*model.encoder, *model.decoder]
    for spec, layer in zip([*encoder.layer, *decoder.layer], layers, strict=True):
        fill_attention(spec.self_attention, layer.attention, layer.around_attention)
        fill_norm(spec.ffn.layer_norm, layer.around_feed_forward.norm)
        fill_linear(spec.ffn.linear_0, layer.feed_forward.hidden)
        fill_linear(spec.ffn.linear_1, layer.feed_forward.out)
        if isinstance(layer, DecoderLayer):
            fill_attention(spec.attention, layer.cross_attention, layer.around_cross_attention)
    fill_linear(decoder.projection, model.output)
    return transformer_spec.TransformerSpec(encoder, decoder)


def largest_weight() -> int:
    """Return what the largest weight of a row may become in int8 so that no sum overflows on this processor."""
    return LARGEST if adds_int8() else LARGEST_WITHOUT_VNNI


def requantise(spec: Any, weights: dict[str, np.ndarray], largest: int) -> None:
    """Round weights of an optimised specification again, where they are int8.

    weights: in float32, by their names; largest: what the largest of a row becomes.
    """
    from ctranslate2.specs.model_spec import NumpyVariable, index_spec

    variables = spec.variables()
    for name, weight in weights.items():
        if f"{name}_scale" in variables:
            furthest = np.abs(weight).max(1)
            scale = (largest / np.where(furthest > 0, furthest, largest)).astype(np.float32)
            path, _, key = name.rpartition("/")
            layer = index_spec(spec, path)
            setattr(layer, key, NumpyVariable(np.rint(weight * scale[:, None]).astype(np.int8)))
            setattr(layer, f"{key}_scale", NumpyVariable(scale))


def fill_attention(spec: Any, attention: MultiHeadAttention, around: Residual) -> None:
    """Fill in an attention of the specification, and the norm of the residual connection around it.

    Projections of the same vectors are one matrix: all three, or key and value.
    """
    query, key, value = attention.query, attention.key, attention.value
    is_self_attention = len(spec.linear) == 2
    groups = [[query, key, value], [attention.out]] if is_self_attention else [[query], [key, value], [attention.out]]
    for linear, layers in zip(spec.linear, groups, strict=True):
        fill_linear(linear, *layers)
    fill_norm(spec.layer_norm, around.norm)


def fill_linear(spec: Any, *layers: nn.Linear) -> None:
    """Fill in a linear layer of the specification, or several of the same input as one."""
    spec.weight = float32_copy(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = float32_copy(torch.cat([layer.bias for layer in layers]))


def fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    spec.gamma, spec.beta = float32_copy(norm.weight), float32_copy(norm.bias)


def position_table(positions: Positions, config: TransformerConfig) -> Tensor | None:
    """Return what is added to the embeddings (positions, d_model), from the first token on; None for rotary positions.

    Those add nothing. Without a table CTranslate2 would add its own formula, so a model without positions gets a table
    of zeros.
    """
    if isinstance(positions, Rotary):
        return None
    if isinstance(positions, Learned):
        return positions.table.weight
    if isinstance(positions, Sinusoidal):
        first = config.first_position
        return positions.formula(first + TABLE_SIZE, config.d_model)[first:]
    return torch.zeros(TABLE_SIZE, config.d_model)


def rounded_to_float16(model: Model) -> Model:
    """Return the model that CTranslate2 has when its weights are stored in float16: a copy in float32, rounded.

    The tables that are added to embeddings are stored, and so rounded, too. Rotary angles are computed.
    """
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for weight in rounded.parameters():
            weight.copy_(weight.half())
    for positions in rounded.modules():
        if isinstance(positions, Sinusoidal):
            assert isinstance(rounded, Transformer)
            size = rounded.config.first_position + TABLE_SIZE
            positions.table = positions.formula(size, rounded.config.d_model).half().to(positions.table)
    return rounded


def float32_copy(tensor: Tensor) -> Tensor:
    """Return a copy in float32 on the CPU: CTranslate2 rounds the weights that it is given in place."""
    return tensor.detach().to("cpu", torch.float32, copy=True)
