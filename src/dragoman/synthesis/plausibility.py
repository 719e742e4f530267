"""Say how plausible pairs are to models: to one of the user's, or to small ones that learn from the pairs themselves.

Those are two each way, and each judges the half of the pairs that it has not seen. What counts is how much better a
model knows the target with its source than with the source of another pair: rare words are improbable with both.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from random import Random
from zlib import crc32

import numpy as np

from dragoman.config import TrainingConfig
from dragoman.config.presets import TINY
from dragoman.data.corpus import Pair
from dragoman.decoding.forced import max_positions, score
from dragoman.errors import UsageError
from dragoman.model_folder import read_model
from dragoman.synthesis.side_by_side import processes_for, side_by_side
from dragoman.synthesis.small_model import FEWEST, train_small

DEV = 40  # pairs of a training that are not learned; so few that it does not measure how sure it is
WRONG = 5_000  # wrong pairs that are judged, at most
NEAR = 50  # ranks by length, on each side, from which another text is drawn
DRAWS = 5  # since another text may be the same
SURE = 1e-6  # nats that are added, of a model that is sure in any case
Announce = Callable[[str], None]


def others_like(texts: Sequence[str]) -> list[str]:
    """Return for each text another one of about the same length; itself where those that were drawn are the same."""
    chance, order = Random(1), sorted(range(len(texts)), key=lambda number: len(texts[number]))
    others = list(texts)
    for place, number in enumerate(order):
        near = order[max(place - NEAR, 0) : place + NEAR + 1]
        drawn = (texts[other] for other in chance.choices(near, k=DRAWS))
        others[number] = next((other for other in drawn if other != texts[number]), texts[number])
    return others


def wrong_pairs(pairs: Sequence[Pair], count: int = WRONG) -> list[Pair]:
    """Return sources with the targets of other pairs, of about the same length as their own."""
    others = others_like([target for _, target in pairs])
    places = sorted(Random(1).sample(range(len(pairs)), min(count, len(pairs))))
    return [(pairs[place][0], others[place]) for place in places if others[place] != pairs[place][1]]


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


def plausibility_of(folder: Path, pairs: Sequence[Pair], tags: tuple[str, str] = ("", "")) -> np.ndarray:
    """Return the plausibility (n,) of pairs to a model; NaN where a side is too long.

    It is the nats of the target with the source of another pair, as a share of these and those with its own source: 1
    if the source says all about the target, 0.5 if it says nothing. tags: as for `cross_entropy`.
    """
    others = others_like([source for source, _ in pairs])
    unlike = [(other, target) for other, (_, target) in zip(others, pairs, strict=True)]
    with_its_source, with_another = cross_entropy(folder, [*pairs, *unlike], tags).reshape(2, -1) + SURE
    return with_another / (with_its_source + with_another)


def judge(folder: Path, pairs: Sequence[Pair], tags: tuple[str, str] = ("", "")) -> tuple[np.ndarray, np.ndarray]:
    """Return the plausibility of pairs (n,) and of wrong ones (m,) to a model; NaN where a side is too long."""
    plausibility = plausibility_of(folder, [*pairs, *wrong_pairs(pairs)], tags)
    return plausibility[: len(pairs)], plausibility[len(pairs) :]


def fold_of(source: str) -> int:
    """Return the half, 0 or 1, that the pairs with a source are in."""
    return crc32(source.encode()) & 1


def learn(
    pairs: Sequence[Pair], place: Path, minutes: float, threads: int = 1, announce: Announce = lambda text: None
) -> tuple[np.ndarray, np.ndarray]:
    """Train four small models on pairs, in the folder `place`, and return what `judge` does.

    minutes: of training, until all four have learned; as many learn at once as there are threads. Raise UsageError for
    fewer than FEWEST pairs.
    """
    if len(pairs) < FEWEST:
        raise UsageError(f"{len(pairs):,} pairs are too few to learn from; {FEWEST:,} are the fewest")
    turns = ceil(4 / processes_for(4, threads))
    settings = replace(TINY.training, minutes=minutes / turns, validate_every=1_000_000)
    folds = np.array([fold_of(source) for source, _ in pairs])
    jobs, judged = [], []
    for fold in range(2):
        seen, unseen = (
            [pairs[row] for row in np.flatnonzero((folds == fold) == same).tolist()] for same in (False, True)
        )
        judged.append([*unseen, *wrong_pairs(unseen, WRONG // 2)])
        jobs += [
            (list(turn(seen, turned)), list(turn(judged[fold], turned)), place / f"{fold}-{turned:d}", settings)
            for turned in (False, True)
        ]

    def begin(number: int) -> None:
        announce(f"model {number + 1} of 4 learns {'targets to sources' if number % 2 else 'sources to targets'}")

    each_way = side_by_side(learn_and_judge, jobs, threads, begin)
    scores, wrong_scores = np.full(len(pairs), np.nan), []
    for fold in range(2):
        forward, backward = each_way[2 * fold : 2 * fold + 2]
        plausibility = (forward + backward) / 2
        right = int((folds == fold).sum())
        scores[folds == fold] = plausibility[:right]
        wrong_scores.append(plausibility[right:])
    return scores, np.concatenate(wrong_scores)


def learn_and_judge(learned: list[Pair], judged: list[Pair], run: Path, settings: TrainingConfig) -> np.ndarray:
    """Return the plausibility (n,) of pairs to a small model that learns from others, in a folder of its own."""
    return plausibility_of(train_small(learned[DEV:], learned[:DEV], run, settings), judged)


def turn(pairs: Sequence[Pair], turned: bool) -> Iterator[Pair]:
    """Yield pairs, the target first if `turned`."""
    return ((target, source) if turned else (source, target) for source, target in pairs)
