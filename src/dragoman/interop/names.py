"""What other programs call the weights of a Transformer: one table for each family, read in both directions.

Our names are those of `Transformer.state_dict()`: 'encoder.0.attention.query.weight'. Sources: modeling_marian.py
and modeling_m2m_100.py of huggingface/transformers, src/models/transformer.h of marian-nmt/marian-dev, and
fairseq/models/transformer of facebookresearch/fairseq.
"""

from typing import NamedTuple

# The parts of a layer.
HUGGING_FACE = {
    f"{ours}.{part}": f"{theirs}.{letter}"
    for ours, theirs in (("attention", "self_attn"), ("cross_attention", "encoder_attn"))
    for part, letter in (("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj"), ("out", "out_proj"))
} | {
    "feed_forward.hidden": "fc1",
    "feed_forward.out": "fc2",
    "around_attention.norm": "self_attn_layer_norm",
    "around_cross_attention.norm": "encoder_attn_layer_norm",
    "around_feed_forward.norm": "final_layer_norm",
}
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")  # if they are stored
MARIAN = {
    f"{ours}.{part}": f"{theirs}_{{}}{part[0]}"  # {}: the kind of weight
    for ours, theirs in (("attention", "self"), ("cross_attention", "context"))
    for part in ("query", "key", "value", "out")
} | {
    "feed_forward.hidden": "ffn_{}1",
    "feed_forward.out": "ffn_{}2",
    "around_attention.norm": "self_Wo_ln_{}",
    "around_cross_attention.norm": "context_Wo_ln_{}",
    "around_feed_forward.norm": "ffn_ffn_ln_{}",
}


class WeightName(NamedTuple):
    """The parts of one of our names: 'encoder', 0, 'attention.query' and 'weight'; no number outside of layers."""

    side: str
    layer: int | None
    part: str
    kind: str


def split_name(name: str) -> WeightName:
    """Return the parts of one of our names."""
    side, *inner, kind = name.split(".")
    if inner and inner[0].isdigit():
        return WeightName(side, int(inner[0]), ".".join(inner[1:]), kind)
    return WeightName(side, None, ".".join(inner), kind)


def hugging_face_names(ours: str) -> list[str]:
    """Return where MarianMT and M2M100 keep one of our weights: several names for matrices that may be shared."""
    side, layer, part, kind = split_name(ours)
    if layer is not None:
        return [f"model.{side}.layers.{layer}.{HUGGING_FACE[part]}.{kind}"]
    return {
        "source_embedding.weight": ["model.encoder.embed_tokens.weight", "model.shared.weight"],
        "target_embedding.weight": ["model.decoder.embed_tokens.weight", "model.shared.weight"],
        "output.weight": ["lm_head.weight", "model.decoder.embed_tokens.weight", "model.shared.weight"],
        "output.bias": ["final_logits_bias"],
        "encoder_norm.weight": ["model.encoder.layer_norm.weight"],
        "encoder_norm.bias": ["model.encoder.layer_norm.bias"],
        "decoder_norm.weight": ["model.decoder.layer_norm.weight"],
        "decoder_norm.bias": ["model.decoder.layer_norm.bias"],
    }[ours]


def fairseq_names(ours: str) -> list[str]:
    """Return where fairseq keeps one of our weights: the names of M2M100, which comes from it, but for the output's."""
    theirs = [name.removeprefix("model.") for name in hugging_face_names(ours)]
    return ["decoder.output_projection.weight" if name == "lm_head.weight" else name for name in theirs]


def marian_names(ours: str, norm_first: bool = False) -> list[str]:
    """Return where Marian keeps one of our weights: several names for matrices that may be shared."""
    side, layer, part, kind = split_name(ours)
    if layer is not None:
        if part.endswith("norm"):
            name = MARIAN[part].format("bias" if kind == "bias" else "scale") + "_pre" * norm_first
        else:
            name = MARIAN[part].format("b" if kind == "bias" else "W")
        return [f"{side}_l{layer + 1}_{name}"]
    return {
        "source_embedding.weight": ["encoder_Wemb", "Wemb"],
        "target_embedding.weight": ["decoder_Wemb", "Wemb"],
        "output.weight": ["decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt", "decoder_Wemb", "Wemb"],
        "output.bias": ["decoder_ff_logit_out_b"],
        "encoder_norm.weight": ["encoder_top_ln_scale"],
        "encoder_norm.bias": ["encoder_top_ln_bias"],
        "decoder_norm.weight": ["decoder_top_ln_scale"],
        "decoder_norm.bias": ["decoder_top_ln_bias"],
        "encoder_positions.table.weight": ["Wpos"],
        "decoder_positions.table.weight": ["Wpos"],
    }[ours]
