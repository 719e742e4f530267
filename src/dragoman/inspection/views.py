"""Make the views of an inspection: which figure shows what, and what its caption says."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

import torch

from dragoman.alignment.words import merge_tokens
from dragoman.config.fields import check_choice
from dragoman.data.tokenizer import BOS, EOS, PAD, SPECIAL
from dragoman.errors import UsageError
from dragoman.inspection import CATALOGUE
from dragoman.inspection.embeddings import neighbourhoods
from dragoman.inspection.figure import MAX_LABEL, Figure, map_figure, save, shorten_label, signed_scale
from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, Aggregate, Inspection, map_title
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.origins import word_origins
from dragoman.inspection.plots.embeddings import embedding_figure
from dragoman.inspection.plots.lines import line_figure
from dragoman.inspection.plots.maps import Mask, map_grid, mask_figure
from dragoman.inspection.plots.origins import origin_figure
from dragoman.inspection.plots.positions import position_figure
from dragoman.inspection.plots.stages import stage_figure
from dragoman.inspection.plots.tables import number_table, probability_table
from dragoman.inspection.plots.trees import tree_figure
from dragoman.inspection.stages import head_stages
from dragoman.model import Model
from dragoman.model.attention import decoder_mask, padding_mask
from dragoman.model.capture import AttentionKind
from dragoman.text.speech import Language, speaker
from dragoman.translation.translator import Translator

View = Literal[
    "map",
    "grid",
    "tree",
    "heads",
    "probabilities",
    "occlusion",
    "positions",
    "masks",
    "stages",
    "lines",
    "words",
    "memory",
]
# The statistics of a head, and the headings of their columns.
STATISTICS = {
    "entropy": "entropy\n(nats)",
    "normalised_entropy": "normalised\nentropy",
    "distance": "distance",
    "offset": "offset",
    "max_weight": "largest\nweight",
    "previous": "previous",
    "same": "same",
    "next": "next",
    "special": "special\ntokens",
    "punctuation": "punctu-\nation",
    "diversity": "diversity",
}
MAX_TEXT = 200  # characters of a sentence in a caption
PADDING = 2  # positions of padding in a figure of masks
POSITIONS = 50  # that a figure of positions shows, or as many as the sentence has


def draw_cross_attention(
    translator: Translator,
    text: str,
    path: Path,
    *,
    translation: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    subwords: bool = False,
    language: Language = "en",
) -> str:
    """Draw the cross-attention of a translation of `text`, by default the model's own; return the translation.

    layer and head count from 1; without them, the last layer and the mean of its heads. language: of title and
    caption. Raise UsageError for a layer or head that the model does not have, and for a model without attention over
    the source.
    """
    inspection = inspect(translator, text, translation)
    save(attention_map(inspection, "cross", layer, head, subwords=subwords), path, speaker(language, CATALOGUE))
    return inspection.target.text


def caption_end(inspection: Inspection) -> str:
    """Return the end of a caption, which names the model, the sentence and its translation."""
    source, target = (shorten_label(side.text, MAX_TEXT) for side in (inspection.source, inspection.target))
    return f"model {inspection.model}: “{source}” → “{target}”; dragoman {inspection.version}"


def attention_map(
    inspection: Inspection,
    kind: AttentionKind,
    layer: int | None = None,
    head: int | None = None,
    aggregate: Aggregate | None = None,
    *,
    subwords: bool = False,
) -> Figure:
    """Return one map: an aggregate, or else `head`, or the mean of all heads, of `layer`, or of the last layer.

    layer and head count from 1. Raise UsageError for those that the model does not have.
    """
    if aggregate is None and layer is None:
        layer = len(inspection.maps(kind)) or None
    shown = inspection.map(kind, layer, head, aggregate or "mean", subwords=subwords)
    caption = f"{shown.caption}; {caption_end(inspection)}"
    return map_figure(shown.weights, shown.rows, shown.columns, shown.title, caption)


def attention_grid(inspection: Inspection, kind: AttentionKind, *, subwords: bool = False) -> Figure:
    """Return the maps of all layers and heads as one figure. Raise UsageError where the model has none of the kind."""
    weights = inspection.select(kind, None, None, "mean")
    queries, keys = inspection.queries_and_keys(kind)
    rows, columns = (side.tokens if subwords else side.words for side in (queries, keys))
    weights = merge_tokens(weights, rows, columns)
    level = "subwords" if subwords else "words"
    caption = f"{KINDS[kind]}, all layers and heads, by {level}, on one scale; {caption_end(inspection)}"
    labels = [row.label for row in rows], [column.label for column in columns]
    return map_grid(weights, *labels, map_title(kind, subwords), caption)


def attention_lines(
    inspection: Inspection,
    kind: AttentionKind,
    layer: int | None = None,
    head: int | None = None,
    *,
    subwords: bool = False,
) -> Figure:
    """Return the weights of `head`, or of all heads, of `layer`, or of the last layer, as lines in a colour for each.

    layer and head count from 1. Raise UsageError for those that the model does not have.
    """
    layer = len(inspection.maps(kind)) or None if layer is None else layer
    inspection.select(kind, layer, head, "mean")
    heads: Sequence[int] = [head] if head else range(1, inspection.maps(kind).size(1) + 1)
    maps = [inspection.map(kind, layer, number, subwords=subwords) for number in heads]
    which = maps[0].caption
    if len(heads) > 1:
        which = which.replace(f"head 1 of {len(heads)}", f"{len(heads)} heads")
    weights = torch.stack([head_map.weights for head_map in maps])
    title, caption = map_title(kind, subwords), f"{which}; {caption_end(inspection)}"
    return line_figure(weights, heads, maps[0].rows, maps[0].columns, title, caption)


def search_tree(inspection: Inspection) -> Figure:
    """Return the tree of the search that found the translation. Raise UsageError where none was recorded."""
    if inspection.tree is None:
        raise UsageError("there is no beam search to draw: the translation was given, or found without beam search")
    return tree_figure(inspection.tree, caption_end(inspection))


def head_table(inspections: Iterable[Inspection], kind: AttentionKind, about: str) -> Figure:
    """Return a table of head statistics over one sentence or many. about: the end of its caption.

    Raise UsageError where the model has no attention of the kind.
    """
    heads = [head for head in head_statistics(inspections) if head.kind == kind]
    if not heads:
        raise UsageError(f"this model has no {KINDS[kind]}")
    names = [f"layer {head.layer}, head {head.head}{f' ({head.pattern})' if head.pattern else ''}" for head in heads]
    values = [[getattr(head, name) for name in STATISTICS] for head in heads]
    numbers = [[float("nan") if value is None else value for value in row] for row in values]
    unit = "sentence lengths" if kind == "cross" else "tokens"
    note = " (not labelled by position: two languages differ in order)" if kind == "cross" else ""
    brackets = f"; in brackets: where more than half of it goes{note}" if any(head.pattern for head in heads) else ""
    queries, sentences = heads[0].queries, heads[0].sentences
    over = "one sentence" if sentences == 1 else f"{sentences:,} sentences"
    caption = (
        f"{KINDS[kind]}, means over {queries:,} queries of {over}; distance and offset in {unit}; "
        f"previous, same, next, special tokens, punctuation: shares of the weight{brackets}; "
        f"the darkest cell of a column is its largest; {about}"
    )
    return number_table(names, list(STATISTICS.values()), numbers, "What each head does", caption)


def attention_masks(inspection: Inspection) -> Figure:
    """Return the masks of this sentence with PADDING tokens behind it. Raise UsageError without attention."""
    source = torch.tensor([[*inspection.source.ids, EOS, *[PAD] * PADDING]])
    read = torch.tensor([[BOS, *inspection.target.ids, *[PAD] * PADDING]])
    source_labels, read_labels, target_labels = (
        [*(token.label for token in side.tokens), *[SPECIAL[PAD]] * PADDING]
        for side in (inspection.source, inspection.decoder_input, inspection.target)
    )
    not_padding, decoder = padding_mask(source, PAD)[0, 0], decoder_mask(read, PAD)[0, 0]
    all_masks: dict[AttentionKind, tuple[torch.Tensor, list[str], list[str]]] = {
        "encoder": (not_padding.expand(source.size(1), -1), source_labels, source_labels),
        "decoder": (decoder, read_labels, read_labels),
        "cross": (not_padding.expand(read.size(1), -1), target_labels, source_labels),
    }
    shown = [Mask(KINDS[kind], *mask) for kind, mask in all_masks.items() if len(inspection.maps(kind))]
    if not shown:
        raise UsageError("this model has no attention, so it needs no masks")
    caption = (
        "rows: queries, columns: keys; grey and crossed out: no attention allowed, because the key comes later or is "
        f"padding ({PADDING} positions as an example); rows of padding do not matter; self-attention of the decoder is "
        f"labelled by the tokens that it reads, cross-attention by those that it predicts; {caption_end(inspection)}"
    )
    return mask_figure(shown, caption)


def occlusion_view(inspection: Inspection, model: Model, *, subwords: bool = False) -> Figure:
    """Return a map of the share of its probability that each word loses in `model` without each source word."""
    losses = occlusion(model, inspection, subwords=subwords)
    level = "subword" if subwords else "word"
    caption = (
        f"each source {level} left out in turn, the translation scored again; next to each {level} of the translation, "
        f"its probability with the whole source; {caption_end(inspection)}"
    )
    letters, probabilities = MAX_LABEL - len(" 0.00"), losses.probability.tolist()
    rows = [f"{shorten_label(word, letters)} {p:.2f}" for word, p in zip(losses.target, probabilities, strict=True)]
    title = "How much less probable each word becomes without a source word"
    scale = signed_scale("share of its probability lost; below 0: gained", 1.0)
    return map_figure(losses.share.T, rows, losses.source, title, caption, scale)


def view_figure(
    translator: Translator,
    inspection: Inspection,
    view: View = "map",
    kind: AttentionKind = "cross",
    layer: int | None = None,
    head: int | None = None,
    aggregate: Aggregate | None = None,
    *,
    subwords: bool = False,
) -> Figure:
    """Return the figure of a view of an inspection that `translator` was used for; a notebook shows it.

    kind: of attention, for 'map', 'grid', 'heads', 'stages' and 'lines'; layer, head: from 1, for 'map' (None: the last
    layer, the mean of its heads), 'stages' (None: the last layer, head 1) and 'lines' (None: the last layer, all
    heads); aggregate: for 'map', how all layers, or those up to `layer`, become one; subwords: show these instead of
    words, in 'map', 'grid', 'occlusion' and 'lines'. Raise UsageError for an unknown view, and where model or search
    have nothing to show in it.
    """
    check_choice("view", view, get_args(View))
    model = translator.model
    end, stages_head = caption_end(inspection), 1 if head is None else head
    figures: dict[View, Callable[[], Figure]] = {
        "map": lambda: attention_map(inspection, kind, layer, head, aggregate, subwords=subwords),
        "grid": lambda: attention_grid(inspection, kind, subwords=subwords),
        "tree": lambda: search_tree(inspection),
        "heads": lambda: head_table([inspection], kind, end),
        "probabilities": lambda: probability_table(inspection.positions, len(translator.tokenizers.target), end),
        "occlusion": lambda: occlusion_view(inspection, model, subwords=subwords),
        "positions": lambda: position_figure(model, max(POSITIONS, len(inspection.source.tokens)), end),
        "masks": lambda: attention_masks(inspection),
        "stages": lambda: stage_figure(head_stages(translator, inspection, kind, layer, stages_head), end),
        "lines": lambda: attention_lines(inspection, kind, layer, head, subwords=subwords),
        "words": lambda: word_figure(translator, inspection),
        "memory": lambda: memory_figure(translator, inspection),
    }
    return figures[view]()


def memory_figure(translator: Translator, inspection: Inspection) -> Figure:
    """Return the pairs of the memory that speak for each word. Raise UsageError where the translator has none."""
    caption = (
        "pairs of the memory whose states before the word are nearest to the model's, and have the same word; "
        f"probability: what the memory added; {caption_end(inspection)}"
    )
    return origin_figure(word_origins(translator, inspection), caption)


def word_figure(translator: Translator, inspection: Inspection) -> Figure:
    """Return the words of both sides among the embeddings, with their neighbours."""
    titles = "Words of the source and their neighbours", "Words of the translation and their neighbours"
    caption = (
        "a word (dot) is the mean of its subwords' embeddings; crosses: the subwords with the greatest cosines, "
        f"which stand below, without the word's own; {caption_end(inspection)}"
    )
    sides = neighbourhoods(translator.model, translator.tokenizers, inspection)
    return embedding_figure(list(zip(titles, sides, strict=True)), caption)
