"""From a sentence to a picture of its cross-attention."""

from pathlib import Path

from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.attention import Word, by_word, cross_attention, words
from dragoman.inspection.figures import heat_map
from dragoman.tokenizer import Tokenizer
from dragoman.translator import Translator


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
    or head that the model does not have, DragomanError for a model without attention.
    """
    tokenizer = translator.tokenizer
    source = tokenizer.encode(text)
    if len(source) > translator.longest:
        raise UsageError(f"the sentence has {len(source)} tokens; a picture takes at most {translator.longest}")
    target = translator.search_ids([source])[0].tokens if translation is None else tokenizer.encode(translation)
    try:
        maps = cross_attention(translator.model, source, target)
    except ValueError as error:
        raise DragomanError(str(error)) from None
    layers, heads = maps.shape[:2]
    for name, chosen, most in (("layer", layer, layers), ("head", head, heads)):
        if chosen is not None and not 1 <= chosen <= most:
            raise UsageError(f"{name} {chosen}: the model has {name}s 1 to {most}")
    layer = layer or layers
    weights = maps[layer - 1].mean(0) if head is None else maps[layer - 1, head - 1]
    label = subwords if pieces else words
    rows, columns = label(tokenizer, target), label(tokenizer, source)
    which = f"mean of {heads} heads" if head is None else f"head {head} of {heads}"
    heat_map(
        path,
        by_word(weights, rows, columns),
        [word.label for word in rows],
        [word.label for word in columns],
        "What each word of the translation looked at",
        f"cross-attention of layer {layer} of {layers}, {which}; each row sums to 1",
    )
    return tokenizer.decode(target)


def subwords(tokenizer: Tokenizer, ids: list[int]) -> list[Word]:
    """One label per token; a space is shown as ␣."""
    found = [Word(tokenizer.pieces[id].replace(" ", "␣"), range(i, i + 1)) for i, id in enumerate(ids)]
    return [*found, Word("</s>", range(len(ids), len(ids) + 1))]
