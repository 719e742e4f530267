"""Read settings from TOML and JSON into dataclasses, and write them out again."""

import dataclasses
import difflib
import math
import re
import sys
import tomllib
import typing
from collections.abc import Collection
from pathlib import Path
from typing import Any

import tomli_w

from dragoman.config.fields import quote_value
from dragoman.config.model import ModelConfig, RecurrentConfig, TransformerConfig
from dragoman.errors import DragomanError, UsageError

T = typing.TypeVar("T")
MAX_SIZE = 1 << 20  # bytes of a file of settings
MAX_DOTS = 200  # the library needs quadratic time for the parts of a key, and ours have up to three
END_OF_KEY = re.compile(r"[=,\n]")
KINDS: dict[str, type] = {"transformer": TransformerConfig, "recurrent": RecurrentConfig}
# Entry points of installed packages: modules that add kinds of models to KINDS and to `dragoman.model.BUILDERS`. They
# are imported when a file has a kind that is not in KINDS; what the file says does not choose among them.
MODULES_WITH_KINDS = "dragoman_models"


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file. Raise UsageError, naming the file, where there is none or it is not TOML.

    Raise DragomanError where the system cannot read it.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SIZE + 1)
        if len(data) > MAX_SIZE:
            raise UsageError(f"{path}: too large for a settings file")
        text = data.decode()
        if max(part.count(".") for part in END_OF_KEY.split(text)) > MAX_DOTS:
            raise ValueError(f"a key with more than {MAX_DOTS} dots")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except OSError as error:
        raise DragomanError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # also of numbers of thousands of digits
        raise UsageError(f"{path}: not valid TOML: {error}") from None


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a run in a TOML file, under today's names; raise as `read_toml` does."""
    settings = read_toml(path)
    training = settings.get("training")
    if isinstance(training, dict):
        if "joined" in training:  # as version 0.1 called it
            training["concatenate"] = training.pop("joined")
        if training.pop("terms", 0):  # a removed experiment, which was off by default
            raise UsageError(f"{path}: training.terms no longer exists: start a new run without it")
    return settings


def to_toml(config: Any) -> str:
    """Return a dataclass of settings as TOML, without fields that are None; `update` reads it back."""
    return tomli_w.dumps(as_dict(config))


def as_dict(config: Any) -> dict[str, Any]:
    """Return a dataclass as nested dicts, without None, with lists for tuples, and for a model with the key `kind`."""
    data: dict[str, Any] = {}
    for kind, cls in KINDS.items():
        if type(config) is cls:
            data["kind"] = kind
    for spec in dataclasses.fields(config):
        value = getattr(config, spec.name)
        if dataclasses.is_dataclass(value):
            value = as_dict(value)
        if value is not None:
            data[spec.name] = list(value) if isinstance(value, tuple) else value
    return data


def update(config: T, data: dict[str, Any], where: str) -> T:
    """Return `config` with the values of `data`. Raise UsageError, beginning with `where`, for wrong keys and types."""
    if not isinstance(data, dict):
        raise UsageError(f"{where}: expected a table of settings, found {quote_value(data)}")
    hints = typing.get_type_hints(type(config))
    names = [spec.name for spec in dataclasses.fields(config)]  # type: ignore[arg-type]
    changes: dict[str, Any] = {}
    for key, value in data.items():
        if key not in names:
            nearest = difflib.get_close_matches(key, names, n=1)
            hint = f", did you mean '{nearest[0]}'?" if nearest else ""
            raise UsageError(f"{where}: unknown setting '{key}'{hint}")
        current, location = getattr(config, key), f"{where}: {key}"
        if dataclasses.is_dataclass(current):
            inner = dict(value) if isinstance(value, dict) else value
            changes[key] = update(select_config(current, inner, location), inner, location)
        else:
            changes[key] = convert(value, hints[key])
    try:
        return dataclasses.replace(config, **changes)  # type: ignore[type-var]
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None


def model_config(data: dict[str, Any], where: str) -> ModelConfig:
    """Return the model that `data`, a dict as `as_dict` returns it, describes; remove the key `kind` from `data`.

    where: the file, for messages. Raise UsageError for a wrong one.
    """
    config = select_config(None, data, where)
    if config is None:
        raise UsageError(f"{where}: no kind of model given, expected one of {', '.join(find_kinds())}")
    return update(config, data, where)


def select_config(current: Any, data: Any, where: str) -> Any:
    """Remove the key `kind` from `data`; return a config of that kind: the current one, or the default of another.

    Without the key, return `current`. Raise UsageError for an unknown kind; `where` is for the message.
    """
    if not isinstance(data, dict) or "kind" not in data:
        return current
    kind = data.pop("kind")
    if not isinstance(kind, str) or (kind not in KINDS and kind not in find_kinds()):
        raise UsageError(f"{where}: unknown kind '{kind}', expected one of {', '.join(find_kinds())}")
    return current if type(current) is KINDS[kind] else KINDS[kind]()


def find_kinds() -> Collection[str]:
    """Return the names of all kinds of models, after importing the modules of installed packages that add some."""
    from importlib.metadata import entry_points

    for module in entry_points(group=MODULES_WITH_KINDS):
        module.load()
    return KINDS


def convert(value: Any, hint: Any) -> Any:
    """Return a TOML or JSON value as a field of type `hint` holds it, or as it is where it needs no conversion.

    For a tuple, a list is made a tuple, and text a tuple of one; for a float, a whole number is made a float. A value
    that fits none of the field's types stays as it is, for `check_fields` to refuse.
    """
    kinds = {typing.get_origin(kind) or kind for kind in (hint, *typing.get_args(hint))}
    if tuple in kinds and isinstance(value, list | str):
        return (value,) if isinstance(value, str) else tuple(value)
    if float in kinds and type(value) is int:
        return float(value) if abs(value) <= sys.float_info.max else math.inf
    return value
