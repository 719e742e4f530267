"""Find where one side of a corpus has slipped: a line is missing there, and each line after it has a wrong partner."""

from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from dragoman.check.detectors import Hits
from dragoman.check.pairing import FARTHEST, LOST
from dragoman.data.lines import Row

WINDOW = 256  # rows over which the lengths of both sides are compared
SLIPPED = 0.3  # the correlation of lengths is higher by this one row further
TELLING = 0.1  # share of windows that are surely slipped or straight; below it, lengths say little in this corpus


def find_slips(lengths: np.ndarray, has_text: np.ndarray) -> list[Hits]:
    """Return the hits of the rules 'slipped' and 'near-slip' in a corpus of n rows.

    A window of WINDOW rows has slipped if the lengths of its two sides correlate better, by SLIPPED, when one side is
    moved by a row. It is straight if they correlate better, by SLIPPED, as they are. A straight window next to a
    slipped one may have some slipped rows, too. So the rows between a slipped window and the nearest straight one on
    each side, and those of the straight one, are near a slip. Fewer than WINDOW rows are not judged.

    lengths (n, 2): characters of the source and the target; has_text (n,), bool: the rows that may be hits.
    """
    slipped, near = np.zeros((2, len(has_text)), bool)
    last = len(has_text) - WINDOW
    if last >= 0:
        windows = [slice(start, start + WINDOW) for start in [*range(0, last, WINDOW), last]]
        gains = np.array([gain_of_a_shift(*np.log(lengths[rows] + 1.0).T) for rows in windows])
        telling = (np.abs(gains) > SLIPPED).mean() > TELLING
        for direction in (1, -1):
            uncertain = False
            for rows, gain in zip(windows[::direction], gains[::direction], strict=True):
                if gain > SLIPPED:
                    slipped[rows] = uncertain = True
                elif uncertain:
                    near[rows] = True
                    uncertain = telling and gain >= -SLIPPED
    return [Hits("slipped", slipped & has_text), Hits("near-slip", near & ~slipped & has_text)]


def realigned(rows: Iterator[Row], offsets: np.ndarray, on_lost_target: Callable[[Row], None]) -> Iterator[Row]:
    """Yield the rows of a corpus with the targets that are as many rows further down as `offsets` (n,) says.

    A row whose offset is LOST keeps its target, unless that belongs to another source: then it has none. A target that
    no row gets is told with its row.
    """
    places = np.arange(len(offsets)) + offsets
    wanted = set(places[(offsets != 0) & (offsets != LOST)].tolist())
    before: deque[Row] = deque(maxlen=FARTHEST)
    after: deque[Row] = deque()
    for index, offset in enumerate(offsets.tolist()):
        while len(after) <= FARTHEST and (row := next(rows, None)):
            after.append(row)
        if not after:
            return
        row = after.popleft()
        if offset == LOST:
            yield row._replace(target="") if index in wanted else row
        elif offset:
            near = after[offset - 1] if offset > 0 else before[offset]
            if index not in wanted:
                on_lost_target(row)
            yield row._replace(target=near.target)
        else:
            yield row
        before.append(row)
    yield from after
    yield from rows


def gain_of_a_shift(a: np.ndarray, b: np.ndarray) -> float:
    """Return by how much two arrays (n,) correlate better if one of them is moved by one place."""
    return max(correlation(a[1:], b[:-1]), correlation(a[:-1], b[1:])) - correlation(a, b)


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Pearson's correlation of two arrays; 0 where one is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / size) if size > 1e-9 else 0.0
