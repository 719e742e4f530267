"""An inspection as plain numbers and text, for other programs and for the page."""

from dataclasses import asdict
from typing import Any

from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspection import Inspection, Sentence


def record(inspection: Inspection) -> dict[str, Any]:
    """Everything but the weights."""
    tree, alignment = inspection.tree, inspection.alignment
    return {
        "model": inspection.model,
        "version": inspection.version,
        "source": side(inspection.source),
        "target": side(inspection.target),
        "read": side(inspection.read),
        "places": [asdict(place) for place in inspection.places],
        "heads": [asdict(head) | {"habit": head.habit} for head in head_statistics([inspection])],
        "tree": asdict(tree) | {"path": tree.path, "steps": tree.steps} if tree else None,
        "alignment": asdict(alignment) if alignment else None,
    }


def side(found: Sentence) -> dict[str, Any]:
    """The tokens of each word are given by the first one and the one after the last."""
    return {
        "text": found.text,
        "pieces": [piece.label for piece in found.pieces],
        "words": [{"label": word.label, "tokens": [word.tokens.start, word.tokens.stop]} for word in found.words],
        "ends": sorted(found.hidden(["ends"])),
        "punctuation": sorted(found.hidden(["punctuation"])),
    }


def weights(inspection: Inspection) -> dict[str, Any]:
    """All of them, under the names that BertViz gives its arguments: for each layer [1][head][query][key]."""
    return {
        "encoder_attention": [layer.tolist() for layer in inspection.encoder_attentions],
        "decoder_attention": [layer.tolist() for layer in inspection.decoder_attentions],
        "cross_attention": [layer.tolist() for layer in inspection.cross_attentions],
        "encoder_tokens": inspection.encoder_tokens,
        "decoder_tokens": inspection.decoder_tokens,
    }
