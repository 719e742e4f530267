"""Write the table of settings in docs/training.md anew from the dataclasses of dragoman.config.

    python scripts/settings_table.py

A comment in a dataclass begins a section of the table, the string after a field is its help.
"""

import inspect
import re
import typing
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from dragoman.config import RunConfig, TrainingConfig
from dragoman.config.presets import PRESETS

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
BEGIN, END = "<!-- settings:begin -->\n", "<!-- settings:end -->\n"
SECTION, FIELD, HELP = r"    # (.+)", r"    (\w+): .+", r'    "(.+)"'


def table() -> str:
    """Return the table in Markdown."""
    rows = ["| setting | default | what it does |", "|---|---|---|", "| **The run** | | |"]
    rows += rows_of(RunConfig, "")
    rows += rows_of(TrainingConfig, "training.")
    return "\n".join(rows) + "\n"


def rows_of(config: type, prefix: str) -> list[str]:
    rows: list[str] = []
    name = ""
    for line in inspect.getsource(config).splitlines():
        if section := re.fullmatch(SECTION, line):
            rows.append(f"| **{section[1]}** | | |")
        elif field := re.fullmatch(FIELD, line):
            name = field[1]
        elif name and (help_ := re.fullmatch(HELP, line)) and not is_dataclass(getattr(config(), name)):
            rows.append(f"| `{prefix}{name}` | {default(config, name)} | {help_[1].replace('|', chr(92) + '|')} |")
    return rows


def default(config: type, name: str) -> str:
    """Return the default of a setting, its other values where they are few, and the presets that have another one."""
    value = getattr(config(), name)
    choices = [other for other in typing.get_args(typing.get_type_hints(config)[name]) if isinstance(other, str)]
    others = [shown(other) for other in choices if other != value]
    text = shown(value) + (f" (or {', '.join(others)})" if others else "")
    presets: dict[str, list[str]] = {}
    for preset, settings in PRESETS.items():
        if config is TrainingConfig and (preset_value := getattr(settings.training, name)) != value:
            presets.setdefault(shown(preset_value), []).append(preset)
    return "; ".join([text, *(f"{preset_value} ({', '.join(names)})" for preset_value, names in presets.items())])


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value in ("", ()):
        return ""
    if isinstance(value, str):
        return f"`{value}`"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def with_table(page: str) -> str:
    """Return a page with what is between the markers replaced by the table."""
    before, following = page.split(BEGIN)
    _, after = following.split(END)
    return before + BEGIN + table() + END + after


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(old), encoding="utf-8")
    print(f"{PAGE}: {'unchanged' if with_table(old) == old else 'updated'}")
