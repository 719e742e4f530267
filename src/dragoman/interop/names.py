"""What other programs call the weights of a Transformer: one table for each family, read in both directions.

Our names are those of `Transformer.state_dict()`: 'encoder.0.attention.query.weight'. Sources: modeling_marian.py
and modeling_m2m_100.py of huggingface/transformers, src/models/transformer.h of marian-nmt/marian-dev, and
fairseq/models/transformer of facebookresearch/fairseq.
"""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
HUGGING_FACE, MARIAN = TABLES["hugging_face"], TABLES["marian"]
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")  # if they are stored


class WeightName(NamedTuple):
    """The parts of one of our names: 'encoder', 0, 'attention.query' and 'weight'; no number outside of layers."""

    side: str
    layer: int | None
    part: str
    kind: str


def split_name(name: str) -> WeightName:
    side, *inner, kind = name.split(".")
    if inner and inner[0].isdigit():
        return WeightName(side, int(inner[0]), ".".join(inner[1:]), kind)
    return WeightName(side, None, ".".join(inner), kind)


def hugging_face_names(ours: str) -> list[str]:
    """Return where MarianMT and M2M100 keep one of our weights: several names for matrices that may be shared."""
    side, layer, part, kind = split_name(ours)
    if layer is not None:
        return [f"model.{side}.layers.{layer}.{HUGGING_FACE['layer'][part]}.{kind}"]
    return [*HUGGING_FACE["model"][ours]]


def fairseq_names(ours: str) -> list[str]:
    """Return where fairseq keeps one of our weights: the names of M2M100, which comes from it, but for the output's."""
    theirs = [name.removeprefix("model.") for name in hugging_face_names(ours)]
    return ["decoder.output_projection.weight" if name == "lm_head.weight" else name for name in theirs]


def marian_names(ours: str, norm_first: bool = False) -> list[str]:
    """Return where Marian keeps one of our weights: several names for matrices that may be shared."""
    side, layer, part, kind = split_name(ours)
    if layer is not None:
        if part.endswith("norm"):
            name = MARIAN["layer"][part].format("bias" if kind == "bias" else "scale") + "_pre" * norm_first
        else:
            name = MARIAN["layer"][part].format("b" if kind == "bias" else "W")
        return [f"{side}_l{layer + 1}_{name}"]
    return [*MARIAN["model"][ours]]
