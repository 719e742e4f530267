"""From an inspection to a picture: what is shown, and what its caption says."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch

from dragoman.data.tokenizer import BOS, EOS, PAD, SPECIAL
from dragoman.errors import UsageError
from dragoman.inspection.attention import by_word
from dragoman.inspection.figure import LONGEST_LABEL, Picture, labelled_map, save, shortened
from dragoman.inspection.heads import head_statistics
from dragoman.inspection.inspection import KINDS, Aggregate, Inspection, Kind, inspect
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.plots import maps, positions, tables, trees
from dragoman.model import Model
from dragoman.model.attention import decoder_mask, padding_mask
from dragoman.translation.translator import Translator

View = Literal["map", "grid", "tree", "heads", "probabilities", "occlusion", "positions", "masks"]
TITLES: dict[Kind, str] = {
    "encoder": "What each word of the source looked at",
    "decoder": "What each word that the decoder read looked at",
    "cross": "What each word of the translation looked at",
}
STATISTICS = {  # of a head, and the heads of their columns
    "entropy": "entropy\n(nats)",
    "spread": "spread\n0 to 1",
    "distance": "distance",
    "shift": "shift",
    "peak": "peak",
    "previous": "previous",
    "same": "same",
    "next": "next",
    "ends": "ends",
    "punctuation": "punctu-\nation",
    "diversity": "diversity",
}
LONGEST_TEXT = 200  # characters of a sentence in a caption
PADS = 2  # places of padding in a picture of masks


def draw_cross_attention(
    translator: Translator,
    text: str,
    path: Path,
    *,
    translation: str | None = None,
    layer: int | None = None,
    head: int | None = None,
    pieces: bool = False,
) -> str:
    """Draw how a translation of `text`, the model's own by default, looked at the source. Returns the translation.

    layer and head count from 1; without them, the last layer and the mean of its heads. Raises UsageError for a layer
    or head that the model does not have, and for a model without attention over the source.
    """
    inspection = inspect(translator, text, translation)
    save(attention_map(inspection, "cross", layer, head, pieces=pieces), path)
    return inspection.target.text


def about(inspection: Inspection) -> str:
    """Which model and sentence."""
    source, target = (shortened(side.text, LONGEST_TEXT) for side in (inspection.source, inspection.target))
    return f"model {inspection.model}: “{source}” → “{target}”; dragoman {inspection.version}"


def attention_map(
    inspection: Inspection,
    kind: Kind,
    layer: int | None = None,
    head: int | None = None,
    aggregate: Aggregate | None = None,
    *,
    pieces: bool = False,
) -> Picture:
    """One map. Without an aggregate: of the head, or the mean of all heads, of the layer, or of the last one."""
    if aggregate is None and layer is None:
        layer = len(inspection.maps(kind)) or None
    found = inspection.map(kind, layer, head, aggregate or "mean", pieces=pieces)
    caption = f"{found.caption}; {about(inspection)}"
    title = TITLES[kind].replace("word", "piece") if pieces else TITLES[kind]
    return labelled_map(found.weights, found.rows, found.columns, title, caption)


def attention_grid(inspection: Inspection, kind: Kind, *, pieces: bool = False) -> Picture:
    """All layers and heads."""
    weights = inspection.maps(kind)
    if not len(weights):
        raise UsageError(f"this model has no {KINDS[kind]}")
    asking, asked = inspection.sides(kind)
    rows, columns = (side.pieces if pieces else side.words for side in (asking, asked))
    if not pieces:
        weights = by_word(weights, asking.words, asked.words)
    level = "pieces" if pieces else "words"
    caption = f"{KINDS[kind]}, all layers and heads, by {level}, on one scale; {about(inspection)}"
    title = TITLES[kind].replace("word", "piece") if pieces else TITLES[kind]
    return maps.grid(weights, [row.label for row in rows], [column.label for column in columns], title, caption)


def search_tree(inspection: Inspection) -> Picture:
    if inspection.tree is None:
        raise UsageError("there is no beam search to draw: the translation was given, or found in another way")
    return trees.beam_tree(inspection.tree, about(inspection))


def head_table(inspections: Iterable[Inspection], kind: Kind, about: str) -> Picture:
    """Of one sentence, or of many together; about: the model, and which sentences."""
    statistics = [head for head in head_statistics(inspections) if head.kind == kind]
    if not statistics:
        raise UsageError(f"this model has no {KINDS[kind]}")
    names = [f"layer {head.layer}, head {head.head}{f' ({head.habit})' if head.habit else ''}" for head in statistics]
    values = [[getattr(head, name) for name in STATISTICS] for head in statistics]
    numbers = [[float("nan") if value is None else value for value in row] for row in values]
    unit = "sentence lengths" if kind == "cross" else "tokens"
    which = " (places of two languages do not count)" if kind == "cross" else ""
    queries, sentences = statistics[0].queries, statistics[0].sentences
    over = "one sentence" if sentences == 1 else f"{sentences:,} sentences"
    caption = (
        f"{KINDS[kind]}, means over {queries:,} queries of {over}; distance and shift in {unit}; "
        "previous, same, next, ends, punctuation: shares of the weight; in brackets: where more than half of it goes"
        f"{which}; the darkest is the greatest of its column; {about}"
    )
    return tables.table(names, list(STATISTICS.values()), numbers, "What each head does", caption)


def token_probabilities(inspection: Inspection, vocabulary: int) -> Picture:
    places = [
        tables.Chances(
            place.piece, place.probability, place.entropy, [(o.piece, o.probability) for o in place.alternatives]
        )
        for place in inspection.places
    ]
    return tables.probabilities(places, vocabulary, about(inspection))


def masks(inspection: Inspection) -> Picture:
    """Of this sentence, as if it stood in a batch with longer ones."""
    source = torch.tensor([[*inspection.source.ids, EOS, *[PAD] * PADS]])
    read = torch.tensor([[BOS, *inspection.target.ids, *[PAD] * PADS]])
    of_source, of_read, of_target = (
        [*(word.label for word in side.pieces), *[SPECIAL[PAD]] * PADS]
        for side in (inspection.source, inspection.read, inspection.target)
    )
    seen, own = padding_mask(source, PAD)[0, 0], decoder_mask(read, PAD)[0, 0]
    every: dict[Kind, tuple[torch.Tensor, list[str], list[str]]] = {
        "encoder": (seen.expand(source.size(1), -1), of_source, of_source),
        "decoder": (own, of_read, of_read),
        "cross": (seen.expand(read.size(1), -1), of_target, of_source),
    }
    shown = [maps.Mask(KINDS[kind], *mask) for kind, mask in every.items() if len(inspection.maps(kind))]
    if not shown:
        raise UsageError("this model has no attention, so it needs no masks")
    caption = (
        "rows: queries, columns: keys; grey and crossed out: no attention allowed, because the key comes later or is "
        f"padding, {PADS} places of it for show; what rows of padding look at does not count; {about(inspection)}"
    )
    return maps.masks(shown, caption)


def lost_without(inspection: Inspection, model: Model, *, pieces: bool = False) -> Picture:
    found = occlusion(model, inspection, pieces=pieces)
    level = "piece" if pieces else "word"
    caption = (
        f"each source {level} left out in turn, the translation scored again; beside each {level} of the translation "
        f"its probability with the whole source, the most that it can lose; {about(inspection)}"
    )
    letters, probabilities = LONGEST_LABEL - len(" 0.00"), found.probability.tolist()
    rows = [f"{shortened(word, letters)} {p:.2f}" for word, p in zip(found.target, probabilities, strict=True)]
    return maps.occlusion(found.drop.T, rows, found.source, caption)


def picture(translator: Translator, inspection: Inspection, view: View, kind: Kind, pieces: bool) -> Picture:
    """One of the views that no layer and head are chosen for."""
    model = translator.model
    if view == "grid":
        return attention_grid(inspection, kind, pieces=pieces)
    if view == "tree":
        return search_tree(inspection)
    if view == "heads":
        return head_table([inspection], kind, about(inspection))
    if view == "probabilities":
        return token_probabilities(inspection, len(translator.tokenizer))
    if view == "occlusion":
        return lost_without(inspection, model, pieces=pieces)
    if view == "positions":
        return positions.of_model(model, max(50, len(inspection.source.pieces)), about(inspection))
    return masks(inspection)
