"""Export an inspection as plain numbers and text, for other programs and for the page."""

from dataclasses import asdict
from typing import Any

from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspection import Inspection, Sentence


def as_dict(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection without its attention weights, as JSON types: what `dragoman inspect --json` prints of it.

    Its keys are the fields of `Inspection`, without the weights, 'decoder_input', and 'heads', the statistics of all
    heads.
    """
    tree, alignment = inspection.tree, inspection.alignment
    return {
        "model": inspection.model,
        "version": inspection.version,
        "source": sentence_as_dict(inspection.source),
        "target": sentence_as_dict(inspection.target),
        "decoder_input": sentence_as_dict(inspection.decoder_input),
        "positions": [asdict(position) for position in inspection.positions],
        "heads": [asdict(head) | {"pattern": head.pattern} for head in head_statistics([inspection])],
        "tree": asdict(tree) | {"path": tree.path, "steps": tree.steps} if tree else None,
        "alignment": asdict(alignment) if alignment else None,
    }


def sentence_as_dict(sentence: Sentence) -> dict[str, Any]:
    """Return a sentence as JSON types: 'text', 'tokens' (labels), 'words', 'special' and 'punctuation'.

    A word has a 'label' and 'tokens': its first token and the one after its last. The last two are positions of tokens.
    """
    return {
        "text": sentence.text,
        "tokens": [token.label for token in sentence.tokens],
        "words": [{"label": word.label, "tokens": [word.tokens.start, word.tokens.stop]} for word in sentence.words],
        "special": sorted(sentence.positions_of(["special"])),
        "punctuation": sorted(sentence.positions_of(["punctuation"])),
    }


def weights_as_dict(inspection: Inspection) -> dict[str, Any]:
    """Return all attention weights, [1][head][query][key] for each layer, and the tokens that they are between.

    The keys are the names of BertViz's arguments: 'encoder_attention', 'decoder_attention', 'cross_attention',
    'encoder_tokens' and 'decoder_tokens'.
    """
    return {
        "encoder_attention": [layer.tolist() for layer in inspection.encoder_attentions],
        "decoder_attention": [layer.tolist() for layer in inspection.decoder_attentions],
        "cross_attention": [layer.tolist() for layer in inspection.cross_attentions],
        "encoder_tokens": inspection.encoder_tokens,
        "decoder_tokens": inspection.decoder_tokens,
    }
