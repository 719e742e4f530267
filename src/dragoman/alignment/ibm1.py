"""Align words without alignments made by people: IBM model 1 (Brown et al. 1993).

It knows nothing of order and context, only which words go together.
"""

from collections.abc import Sequence

import numpy as np

from dragoman.data.batches import Ids

ITERATIONS = 5
NULL = -1  # the empty source word: it explains target tokens that no source token does


def mutual_links(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[np.ndarray]:
    """Return, for each pair, the ids (T,) of the source tokens that the target tokens are linked with; NULL for none.

    Two tokens are linked if each is the most probable translation of the other in this pair, by two models, one for
    each direction. Such links are rarely wrong.
    """
    links = []
    forward, backward = most_probable_origins(sources, targets), most_probable_origins(targets, sources)
    for source, target, origins, returns in zip(sources, targets, forward, backward, strict=True):
        returned = dict(zip(source, returns.tolist(), strict=True))
        mutual = [returned.get(origin) == token for token, origin in zip(target, origins.tolist(), strict=True)]
        links.append(np.where(mutual, origins, NULL))
    return links


def most_probable_origins(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[np.ndarray]:
    """Return, for each pair, the ids (T,) of the source tokens that most probably produced the target tokens, or NULL.

    The table p(target token | source token) is learned from the pairs by expectation maximisation.
    """
    if not sources:
        return []
    pairs = list(zip(sources, targets, strict=True))
    # A cell is a target token together with NULL or a source token of its pair; the arrays have an item for each cell.
    source = np.concatenate([np.tile([NULL, *s], len(t)) for s, t in pairs])
    target = np.concatenate([np.repeat(t, len(s) + 1) for s, t in pairs])
    widths = np.concatenate([np.full(len(t), len(s) + 1) for s, t in pairs])  # cells of each target token
    starts = np.cumsum(widths) - widths
    base = int(target.max()) + 1
    entries, entry = np.unique((source + 1) * base + target, return_inverse=True)  # of the table p, and of each cell
    origin = entries // base
    p = np.ones(len(entries))
    for _ in range(ITERATIONS):
        share = p[entry]
        share /= np.repeat(np.add.reduceat(share, starts), widths)
        expected = np.bincount(entry, share)
        p = expected / np.bincount(origin, expected)[origin]
    probability = p[entry]
    best = np.flatnonzero(probability == np.repeat(np.maximum.reduceat(probability, starts), widths))
    _, first = np.unique(np.searchsorted(starts, best, side="right"), return_index=True)
    return np.split(source[best[first]], np.cumsum([len(t) for t in targets])[:-1])
