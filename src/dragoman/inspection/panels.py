"""Encode for the page the stages of all heads, and the words among the embeddings, before and after training."""

import base64
from typing import Any

import torch
from torch import Tensor

from dragoman.inspection.embeddings import Neighbourhood, neighbourhoods
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.inspection.stages import has_stages, layer_stages
from dragoman.model import Model
from dragoman.model.capture import AttentionKind, attention_layers
from dragoman.translation.translator import Translator

STEPS = 2**15 - 1  # numbers are rounded to so many steps between 0 and the largest of their table
MASKED = -(2**15)  # the step that stands for -inf
MAX_NUMBERS = 60_000  # in the stages of one kind of attention, each 2.7 bytes of the page


def panel_data(translator: Translator, inspection: Inspection, untrained: Model | None) -> dict[str, Any]:
    """Return the data of two panels of the page as JSON types: 'stages' and 'neighbourhoods'.

    'stages' has a dict of `encode_stages` for each kind of attention of which it has a layer, None for a model without
    stages; 'neighbourhoods' has 'trained' and 'untrained', each a list with the source and the target. untrained: the
    model before training, None where it is not known.
    """
    model, tokenizers = translator.model, translator.tokenizers
    kinds = [kind for kind in KINDS if len(inspection.maps(kind))]
    stages = [encode_stages(translator, inspection, kind) for kind in kinds] if has_stages(model) else None
    trained, before = (
        [encode_neighbourhood(side) for side in neighbourhoods(variant, tokenizers, inspection)] if variant else None
        for variant in (model, untrained)
    )
    return {
        "stages": stages and [kind for kind in stages if kind["layers"]],
        "neighbourhoods": {"trained": trained, "untrained": before},
    }


def encode_stages(translator: Translator, inspection: Inspection, kind: AttentionKind) -> dict[str, Any]:
    """Return the stages of all heads of the last layers, as many layers as have MAX_NUMBERS numbers, for the page.

    The keys: 'name'; 'layers', a list of their numbers, and 'heads', how many there are; 'rows' and 'columns', labels;
    'divisor'; and 'product', 'masked', 'weights' and 'output', each as `encode_tables` has it, for [layer][head] in
    one list. 'masked' is None where the mask changes nothing.
    """
    layers, heads, queries, keys = inspection.maps(kind).shape
    d_v = attention_layers(translator.model)[kind][0].value.out_features // heads  # type: ignore[union-attr, operator]
    fitting = min(layers, MAX_NUMBERS // (heads * queries * (3 * keys + d_v)))
    shown = range(layers - fitting + 1, layers + 1)
    stages = [head for layer in layer_stages(translator, inspection, kind, shown) for head in layer] if shown else []
    encoded: dict[str, Any] = {"name": kind, "layers": list(shown), "heads": heads}
    if not stages:
        return encoded
    product, scaled, masked, weights, output = (
        torch.stack([getattr(head, name) for head in stages])
        for name in ("product", "scaled", "masked", "weights", "output")
    )
    return encoded | {
        "rows": stages[0].rows,
        "columns": stages[0].columns,
        "divisor": stages[0].divisor,
        "product": encode_tables(product),
        "masked": None if torch.equal(masked, scaled) else encode_tables(masked),
        "weights": encode_tables(weights),
        "output": encode_tables(output),
    }


def encode_tables(tables: Tensor) -> dict[str, Any]:
    """Return tables (N, T, S) as 'largest', the largest absolute value of each, and 'steps', 16 bits for each number.

    The steps are in base64, the lower byte first. A number is off by the largest divided by 2 * STEPS at most.
    """
    finite = tables.masked_fill(tables == -torch.inf, 0.0).double()
    largest = finite.abs().flatten(1).amax(1).clamp(min=1e-6)
    steps = (finite / largest[:, None, None] * STEPS).round().masked_fill(tables == -torch.inf, MASKED)
    return {"largest": largest.tolist(), "steps": base64.b64encode(steps.numpy().astype("<i2").tobytes()).decode()}


def encode_neighbourhood(side: Neighbourhood) -> dict[str, Any]:
    """Return the words of a side and their neighbours for the page.

    The keys: 'words'; 'near', the labels of all neighbours; 'points', [x, y] of the words and then of 'near'; and
    'neighbours', for each word [index in 'near', cosine] of its own, the nearest first.
    """
    index = {entry: number for number, entry in enumerate(side.near)}
    rows = zip(side.neighbours, side.cosines, strict=True)
    return {
        "words": side.words,
        "near": list(side.near.values()),
        "points": [[round(value, 4) for value in point] for point in side.points.tolist()],
        "neighbours": [[[index[i], round(cosine, 4)] for i, cosine in zip(*row, strict=True)] for row in rows],
    }
