"""Bounds of numbers, declared with the field that they apply to: `heads: Annotated[int, at_least(1)]`.

Settings come from flags and from untrusted files, so every number has an upper bound, far above any sensible value.
"""

import functools
import math
import operator
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from dragoman.errors import UsageError


@dataclass(frozen=True)
class Bound:
    """A limit, how a value is compared with it, and the words for the comparison, such as 'at least'."""

    words: str
    holds: Callable[[float, float], bool]
    limit: float


def at_least(limit: float) -> Bound:
    """Return the bound of a field whose values must be `limit` or more."""
    return Bound("at least", operator.ge, limit)


def at_most(limit: float) -> Bound:
    """Return the bound of a field whose values must be `limit` or less."""
    return Bound("at most", operator.le, limit)


def above(limit: float) -> Bound:
    """Return the bound of a field whose values must be more than `limit`."""
    return Bound("above", operator.gt, limit)


def below(limit: float) -> Bound:
    """Return the bound of a field whose values must be less than `limit`."""
    return Bound("below", operator.lt, limit)


MAX_LAYERS, MAX_THREADS, MAX_BEAMS = 1000, 1024, 1000
MAX_SIZE, MAX_POSITIONS, MAX_COUNT = 1_000_000, 10_000_000, 2**31 - 1

Size = Annotated[int, at_least(1), at_most(MAX_SIZE)]  # of a vector
Layers = Annotated[int, at_least(0), at_most(MAX_LAYERS)]
Count = Annotated[int, at_least(1), at_most(MAX_COUNT)]  # of tokens, steps, pairs
CountOrZero = Annotated[int, at_least(0), at_most(MAX_COUNT)]
Fraction = Annotated[float, at_least(0), below(1)]
Duration = Annotated[float, above(0), below(math.inf)]


def check_bounds(config: Any) -> None:
    """Raise UsageError, naming the field, where a number in a dataclass is out of its bounds, or is not a number."""
    section: type = type(config)
    for name, bounds in bounds_of(section).items():
        value = getattr(config, name)
        for bound in bounds:
            if isinstance(value, int | float) and not bound.holds(value, bound.limit):
                raise UsageError(f"{name} must be {bound.words} {bound.limit:,}, not {value}")


@functools.cache
def bounds_of(config: type) -> dict[str, list[Bound]]:
    """Return the bounds of each field of a dataclass, `int | None` and the like included."""
    hints = typing.get_type_hints(config, include_extras=True)
    options = {name: (hint, *typing.get_args(hint)) for name, hint in hints.items()}
    return {
        name: [bound for option in types for bound in getattr(option, "__metadata__", ()) if isinstance(bound, Bound)]
        for name, types in options.items()
    }
