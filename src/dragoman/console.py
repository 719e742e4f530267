"""How far a translation is, for whoever watches a terminal; a log gets the remarks alone."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PROMPT = "> "


class Lines:
    """Remarks about lines, and how many are done. With `interactive`, a prompt before each line instead."""

    def __init__(self, quiet: bool, interactive: bool):
        self.quiet, self.interactive = quiet, interactive
        self.lines = self.characters = 0
        self.began = time.monotonic()
        self.shown: Progress | None = None
        self.console = Console(stderr=True, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        if self.interactive and not self.quiet:
            print("reading from standard input, one line at a time; Ctrl-D ends", file=sys.stderr)
            self.prompt()
        elif not self.quiet and self.console.is_terminal and not sys.stdout.isatty():
            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            self.shown = Progress(*columns, console=self.console, transient=True)
            self.task = self.shown.add_task("translating")
            self.shown.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.shown:
            self.shown.stop()

    def say(self, remark: str) -> None:
        if not self.quiet:
            self.console.print(remark, markup=False)

    def done(self, lines: int, characters: int) -> None:
        self.lines, self.characters = self.lines + lines, self.characters + characters
        if self.interactive and not self.quiet:
            self.prompt()
        if self.shown:
            seconds = max(time.monotonic() - self.began, 1e-9)
            self.shown.update(
                self.task,
                description=f"{self.lines:,} lines, {self.lines / seconds:,.1f} lines/s, "
                f"{self.characters / seconds:,.0f} characters/s",
            )

    def prompt(self) -> None:
        print(PROMPT, end="", file=sys.stderr, flush=True)
