"""Say how plausible pairs are to models: to one of the user's, or to small ones that learn from the pairs themselves.

Those are two each way, and each judges the half of the pairs that it has not seen. A pair is plausible if both ways
find it probable, and about equally so: dual conditional cross-entropy (Junczys-Dowmunt 2018).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np

from dragoman.config.presets import TINY
from dragoman.data.corpus import Pair
from dragoman.decoding.forced import max_positions, score
from dragoman.errors import UsageError
from dragoman.model_folder import read_model
from dragoman.synthesis.small_model import FEWEST, train_small

DEV = 200  # pairs of a training that choose its best model
WRONG = 5_000  # wrong pairs that are judged, at most
NEAR = 50  # ranks by length, from which the target of a wrong pair is taken
Announce = Callable[[str], None]


def wrong_pairs(pairs: Sequence[Pair], count: int = WRONG) -> list[Pair]:
    """Return sources with the targets of other pairs, of about the same length as their own."""
    chance, order = Random(1), sorted(range(len(pairs)), key=lambda number: len(pairs[number][1]))
    wrong = []
    for place in sorted(chance.sample(range(len(order)), min(count, len(order)))):
        near = [*range(max(place - NEAR, 0), place), *range(place + 1, min(place + NEAR, len(order) - 1) + 1)]
        source, target = pairs[order[place]]
        other = pairs[order[chance.choice(near)]][1] if near else target
        if other != target:
            wrong.append((source, other))
    return wrong


def cross_entropy(folder: Path, pairs: Sequence[Pair], tags: tuple[str, str] = ("", "")) -> np.ndarray:
    """Return for each pair (n,) the nats per token of its target under a model; NaN where a side is too long.

    tags: in front of source and target. Raise DragomanError for tags that the model does not know.
    """
    model, tokenizers = read_model(folder)
    before = tokenizers.source.tag_ids(tags[0]), tokenizers.target.tag_ids(tags[1])
    sides = tokenizers.encode_sides([source for source, _ in pairs], [target for _, target in pairs])
    sources, targets = ([tag + ids for ids in side] for tag, side in zip(before, sides, strict=True))
    most = max_positions(model)
    short = [row for row in range(len(pairs)) if max(len(sources[row]), len(targets[row])) < most]
    nats = np.full(len(pairs), np.nan)
    likelihoods = score(model, [sources[row] for row in short], [targets[row] for row in short])
    nats[short] = [-each.after(len(before[1])).mean for each in likelihoods]
    return nats


def judge(folder: Path, pairs: Sequence[Pair], tags: tuple[str, str] = ("", "")) -> tuple[np.ndarray, np.ndarray]:
    """Return the plausibility of pairs (n,) and of wrong ones (m,) to a model; NaN where a side is too long."""
    wrong = wrong_pairs(pairs)
    plausibility = np.exp(-cross_entropy(folder, [*pairs, *wrong], tags))
    return plausibility[: len(pairs)], plausibility[len(pairs) :]


def fold_of(source: str) -> int:
    """Return the half, 0 or 1, that the pairs with a source are in."""
    return crc32(source.encode()) & 1


def learn(
    pairs: Sequence[Pair], place: Path, minutes: float, announce: Announce = lambda text: None
) -> tuple[np.ndarray, np.ndarray]:
    """Train four small models on pairs, in the folder `place`, and return what `judge` does.

    minutes: of training, of all four together. Raise UsageError for fewer than FEWEST pairs.
    """
    if len(pairs) < FEWEST:
        raise UsageError(f"{len(pairs):,} pairs are too few to learn from; {FEWEST:,} are the fewest")
    settings = replace(TINY.training, minutes=minutes / 4, validate_every=1_000_000)
    folds = np.array([fold_of(source) for source, _ in pairs])
    scores, wrong_scores = np.full(len(pairs), np.nan), []
    for fold in range(2):
        seen, judged = (
            [pairs[row] for row in np.flatnonzero((folds == fold) == same).tolist()] for same in (False, True)
        )
        wrong = wrong_pairs(judged, WRONG // 2)
        both = []
        for way, turned in enumerate((False, True)):
            announce(
                f"model {2 * fold + way + 1} of 4 learns {'targets to sources' if turned else 'sources to targets'}"
            )
            learned = list(turn(seen, turned))
            model = train_small(learned[DEV:], learned[:DEV], place / f"{fold}-{way}", settings)
            both.append(cross_entropy(model, list(turn([*judged, *wrong], turned))))
        forward, backward = both
        plausibility = np.exp(-np.abs(forward - backward) - (forward + backward) / 2)
        scores[folds == fold] = plausibility[: len(judged)]
        wrong_scores.append(plausibility[len(judged) :])
    return scores, np.concatenate(wrong_scores)


def turn(pairs: Sequence[Pair], turned: bool) -> Iterator[Pair]:
    """Yield pairs, the target first if `turned`."""
    return ((target, source) if turned else (source, target) for source, target in pairs)
