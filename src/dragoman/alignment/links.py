"""Turn attention weights into word alignments. Weights are those of words, (W, U): W target words, U source words."""

from collections.abc import Sequence

from torch import Tensor

from dragoman.alignment.words import Span, Word

Link = tuple[int, int]  # source word, target word; both count from 0


def strongest_links(weights: Tensor) -> list[Link]:
    """Link each target word to the source word that it looked at most."""
    if not weights.numel():
        return []
    largest, sources = (values.tolist() for values in weights.max(1))
    return sorted((u, w) for w, u in enumerate(sources) if largest[w] > 0)


def links_above(weights: Tensor, threshold: float) -> list[Link]:
    """Link all pairs of words with at least that weight."""
    return sorted((u, w) for w, u in ((weights >= threshold) & (weights > 0)).nonzero().tolist())


def character_links(weights: Tensor, target: Sequence[Word], source: Sequence[Word]) -> list[tuple[Span, Span]]:
    """Link the characters of each source word to those of the target word that looked at it most.

    The links are in the order of the source. What stands before, behind or around a source word belongs to the same
    spot in the target. A source word that no target word looked at is missing.
    """
    return sorted((source[u].span, target[w].span) for w, u in strongest_links(weights.T))
