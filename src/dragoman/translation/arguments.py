"""Say where an argument belongs that a call of a translator does not have."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NoReturn

from dragoman.config import SearchConfig
from dragoman.errors import UsageError
from dragoman.translation.safeguards import Safeguards

SETTINGS = {"search": SearchConfig, "safeguards": Safeguards}


def refuse_unknown(call: Callable[..., Any], unknown: Mapping[str, object]) -> NoReturn:
    """Raise UsageError for the first of the `unknown` arguments of `call`, naming the nearest one that there is.

    A setting of the search or of the safeguards is named with the argument that takes it.
    """
    name, value = next(iter(unknown.items()))
    known = {own: f"{own}=" for own in inspect.signature(call).parameters if own != "unknown"}
    known |= {
        field.name: f"{argument}={config.__name__}({field.name}={value!r})"
        for argument, config in SETTINGS.items()
        for field in fields(config)
        if argument in known
    }
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {known[nearest[0]]}?" if nearest else ""
    raise UsageError(f"{call.__qualname__} has no argument '{name}'{hint}")
