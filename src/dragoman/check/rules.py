"""List the rules of `dragoman check`, by names that programs can rely on: those in rules.toml."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class CheckRule:
    """A rule: an error stops training; a warning does harm, and `--write-clean` drops it; a note does not."""

    level: Level
    what: str
    advice: str  # '' where the message of each finding says what to do


TABLE = tomllib.loads(Path(__file__).with_name("rules.toml").read_text(encoding="utf-8"))
RULES = {name: CheckRule(**rule) for name, rule in TABLE.items()}
