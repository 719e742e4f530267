"""Turn attention weights into word alignments. Weights are those of words, (W, U): W target words, U source words."""

from collections.abc import Sequence

from torch import Tensor

from dragoman.alignment.words import Span, Word

Link = tuple[int, int]  # source word, target word; both count from 0


def strongest_links(weights: Tensor) -> list[Link]:
    """Return a link (source word, target word) from each target word to the source word that it attended to most.

    weights (W, U). Links are sorted by source word. A target word whose weights are all 0 has none.
    """
    if not weights.numel():
        return []
    largest, sources = (values.tolist() for values in weights.max(1))
    return sorted((u, w) for w, u in enumerate(sources) if largest[w] > 0)


def links_above(weights: Tensor, threshold: float) -> list[Link]:
    """Return links (source word, target word) of all pairs with at least the weight `threshold` and not 0.

    weights (W, U).
    """
    return sorted((u, w) for w, u in ((weights >= threshold) & (weights > 0)).nonzero().tolist())


def character_links(weights: Tensor, target: Sequence[Word], source: Sequence[Word]) -> list[tuple[Span, Span]]:
    """Return the spans of each source word and of the target word that attended to it most, in the order of the source.

    A source word that no target word attended to is left out. weights (W, U).
    """
    return sorted((source[u].span, target[w].span) for w, u in strongest_links(weights.T))
