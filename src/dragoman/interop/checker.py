"""Collect what speaks against an import, so that a user reads all reasons at once and nothing is written before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragoman.config.fields import quote_value
from dragoman.errors import DragomanError

MAX_REASONS = 20  # more are only counted


class Checker:
    """The reasons why a model of others cannot be imported, and what was assumed or left aside if it can."""

    def __init__(self, source: Path):
        self.source = source
        self.reasons: dict[str, None] = {}  # in order; a file may give many thousands
        self.notes: list[str] = []
        self.warnings: list[str] = []  # those of the notes that a user must not miss

    def refuse(self, reason: str) -> None:
        """Add a reason, once."""
        self.reasons[reason] = None

    def expect(self, holds: bool, reason: str) -> None:
        if not holds:
            self.refuse(reason)

    def note(self, note: str) -> None:
        """Add what the model card is to say about the import, once."""
        if note not in self.notes:
            self.notes.append(note)

    def warn(self, note: str) -> None:
        """Add a note that the user is also told at once."""
        self.note(note)
        self.warnings.append(note)

    def finish(self) -> None:
        """Raise DragomanError with all reasons if there are any."""
        if self.reasons:
            more = len(self.reasons) - MAX_REASONS
            shown = "; ".join(list(self.reasons)[:MAX_REASONS]) + (f"; and {more} more reasons" if more > 0 else "")
            raise DragomanError(f"{self.source}: cannot be imported: {shown}")


class Settings:
    """The settings of a model of others, as a file has them, read with checks: what is wrong is a reason to refuse."""

    def __init__(self, file: str, values: Mapping[str, Any], defaults: Mapping[str, Any], checker: Checker):
        """file: its name, for messages; defaults: what a missing setting means."""
        self.file, self.values, self.defaults, self.checker = file, values, defaults, checker
        self.read: set[str] = set()

    def get(self, name: str) -> Any:
        """Return the value of a setting: that of the file, else its default, else None."""
        self.read.add(name)
        return self.values.get(name, self.defaults.get(name))

    def refuse(self, name: str, why: str) -> None:
        """Add a reason: the value of a setting, and what is wrong with it."""
        self.checker.refuse(f"{self.file} has {name} = {quote_value(self.get(name))}: {why}")

    def integer(self, name: str, least: int, most: int) -> int:
        """Return a whole number; `least` where it is none within the bounds, which is then a reason."""
        value = self.get(name)
        if type(value) is int and least <= value <= most:
            return value
        self.refuse(name, f"a whole number from {least:,} to {most:,} is needed")
        return least

    def fraction(self, name: str) -> float:
        """Return a number from 0 to below 1; 0 where it is none, which is then a reason."""
        value = self.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1:
            return float(value)
        self.refuse(name, "a number from 0 to below 1 is needed")
        return 0.0

    def flag(self, name: str) -> bool:
        """Return a setting that is true or false; False where it is neither, which is then a reason."""
        value = self.get(name)
        if isinstance(value, bool):
            return value
        self.refuse(name, "true or false is needed")
        return False

    def choice(self, name: str, choices: Mapping[str, Any]) -> Any:
        """Return what a name means; the first of `choices` for any other name, which is then a reason."""
        value = self.get(name)
        if isinstance(value, str) and value in choices:
            return choices[value]
        self.refuse(name, f"only {', '.join(choices)} can be imported")
        return next(iter(choices.values()))

    def only(self, name: str, *values: Any, why: str) -> None:
        """Add a reason where a setting has none of the values. why: what another value would mean."""
        if not any(self.get(name) == value and type(self.get(name)) is type(value) for value in values):
            self.refuse(name, why)
