"""Check the fields of settings by their type hints, with bounds: `heads: Annotated[int, at_least(1)]`.

Settings come from flags, from Python and from untrusted files, so sizes and counts have an upper bound, far above any
sensible value.
"""

import difflib
import functools
import math
import operator
import types
import typing
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from dragoman.errors import UsageError


@dataclass(frozen=True)
class Bound:
    """A limit, how a value is compared with it, and the words for the comparison, such as 'at least'."""

    words: str
    holds: Callable[[float, float], bool]
    limit: float

    def __repr__(self) -> str:
        return f"{self.words} {self.limit:,}"


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


SHOWN = 100  # characters of a value in a message

MAX_LAYERS, MAX_THREADS, MAX_BEAMS = 1000, 1024, 1000
MAX_SIZE, MAX_POSITIONS, MAX_COUNT = 1_000_000, 10_000_000, 2**31 - 1
MAX_WAIT = 10_000_000  # seconds or minutes; clocks of the system count nanoseconds up to 292 years

Size = Annotated[int, at_least(1), at_most(MAX_SIZE)]  # of a vector
Layers = Annotated[int, at_least(0), at_most(MAX_LAYERS)]
Count = Annotated[int, at_least(1), at_most(MAX_COUNT)]  # of tokens, steps, pairs
Threads = Annotated[int, at_least(1), at_most(MAX_THREADS)]
CountOrZero = Annotated[int, at_least(0), at_most(MAX_COUNT)]
Fraction = Annotated[float, at_least(0), below(1)]
Positive = Annotated[float, above(0), below(math.inf)]
NotNegative = Annotated[float, at_least(0), below(math.inf)]
Wait = Annotated[float, above(0), at_most(MAX_WAIT)]


@dataclass(frozen=True)
class Option:
    """One of the types that a field may have: what belongs to it, in words and as a test, and the bounds of numbers."""

    words: str
    holds: Callable[[Any], bool]
    bounds: tuple[Bound, ...] = ()


def check_fields(config: Any) -> None:
    """Raise UsageError, naming the field, where a value in a dataclass has the wrong type or is out of its bounds."""
    section: type = type(config)
    for name, options in options_of(section).items():
        check_value(name, getattr(config, name), options)


def check_argument(name: str, value: Any, hint: Any) -> None:
    """Raise UsageError where the argument `name` of a public function is not what the type `hint` says."""
    check_value(name, value, options_of_hint(hint))


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise UsageError, with the choices and the nearest of them, where an argument is none of them."""
    if not isinstance(value, str) or value not in choices:
        near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise UsageError(f"{name} must be one of {', '.join(choices)}, not {quote_value(value)}{hint}")


def check_texts(name: str, texts: Any) -> None:
    """Raise UsageError where an argument is not several strings: a list, a tuple, a column of a table."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Collection):
        raise UsageError(f"{name} must be a list of strings, not {quote_value(texts)}")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            hint = ": pass its .text" if hasattr(text, "text") else ""
            raise UsageError(f"{name}[{index}] must be a string, not {quote_value(text)}{hint}")


def check_value(name: str, value: Any, options: Sequence["Option"]) -> None:
    """Raise UsageError, naming the field or argument, where a value fits no option or is out of its bounds."""
    option = next((option for option in options if option.holds(value)), None)
    if option is None:
        words = " or ".join(option.words for option in options if option.words)
        raise UsageError(f"{name} must be {words}, not {quote_value(value)}")
    for bound in option.bounds:
        if not bound.holds(value, bound.limit):
            raise UsageError(f"{name} must be {bound.words} {bound.limit:,}, not {quote_value(value)}")


def quote_value(value: Any) -> str:
    """Return a value as Python writes it, shortened, for messages: a file may hold one of any size."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists
        return f"this {type(value).__name__}"
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def changed_fields(record: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that have no default, or another value than their default."""
    values = {field.name: (getattr(record, field.name), field.default) for field in fields(record)}
    return {name: value for name, (value, default) in values.items() if value != default}


def short_repr(record: Any) -> str:
    """Return a dataclass as the call that makes it, without arguments that are defaults."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in changed_fields(record).items())
    return f"{type(record).__name__}({arguments})"


@functools.cache
def options_of(config: type) -> dict[str, list[Option]]:
    """Return the options of each field of a dataclass; a field of type `int | None` has two."""
    hints = typing.get_type_hints(config, include_extras=True)
    return {field.name: options_of_hint(hints[field.name]) for field in fields(config)}


def options_of_hint(hint: Any) -> list[Option]:
    """Return the options of a type hint: those of a union, or one."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return [option_of(kind) for kind in (typing.get_args(hint) if is_union else [hint])]


def option_of(hint: Any) -> Option:
    """Return the option that a type hint describes: a type, one with bounds, a choice, strings, or None."""
    if typing.get_origin(hint) is Annotated:
        kind, *notes = typing.get_args(hint)
        return replace(option_of(kind), bounds=tuple(note for note in notes if isinstance(note, Bound)))
    if typing.get_origin(hint) is Literal:
        choices = typing.get_args(hint)
        return Option(f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0], choices.__contains__)
    kind = typing.get_origin(hint) or hint
    if kind in (tuple, list):
        return Option(
            f"a {kind.__name__} of strings", lambda value: isinstance(value, kind) and all(map(is_string, value))
        )
    return PLAIN.get(hint) or Option(f"of type {kind.__name__}", lambda value: isinstance(value, kind))


def is_string(value: Any) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


PLAIN = {
    int: Option("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    float: Option("a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)),
    bool: Option("true or false", lambda value: isinstance(value, bool)),
    str: Option("a string", is_string),
    Path: Option("a path", lambda value: isinstance(value, Path)),
    types.NoneType: Option("", lambda value: value is None),
}
