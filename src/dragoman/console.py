"""Show progress on standard error, as a bar on a terminal and plain lines in a log, or below a cell of a notebook."""

import math
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from dragoman.errors import plural

SECONDS_BETWEEN_LINES = 10.0  # in a log
SECONDS_BETWEEN_UPDATES = 0.2  # below a cell of a notebook
BAR = 16  # characters
CONTROLS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\t\n"}


def escape_controls(text: str) -> str:
    """Return the text with escapes, such as \\x1b, for characters with which a stranger could steer a terminal."""
    return text.translate(CONTROLS)


class ProgressDisplay:
    """Show a bar with figures that change in place on a terminal, and messages above it; in a log, the messages alone.

    Use it as a context manager, or call `start` and `stop`. With `quiet` nothing is shown anywhere. A notebook shows
    the bar below the cell, and messages below the bar.
    """

    def __init__(self, console: Console | None = None, *, quiet: bool = False):
        self.console, self.quiet = console or Console(stderr=True), quiet
        self.cell = None
        if self.console.is_jupyter:  # where rich has no bar without ipywidgets, and standard error is red
            self.console, self.cell = Console(force_jupyter=False, force_terminal=False), _Cell()
        self.bar = _BarWithLines(
            TextColumn("{task.fields[left]}", markup=False),
            BarColumn(bar_width=BAR),
            TextColumn("{task.fields[right]}", markup=False),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=1.0, left="", right="")
        self.last_line = time.monotonic()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Show the bar, if this is a terminal or a notebook and not quiet."""
        if self.cell and not self.quiet:
            self.cell.start()
        self.bar.start()

    def stop(self) -> None:
        """Remove the bar from the screen."""
        if self.cell:
            self.cell.stop()
        self.bar.stop()

    @property
    def is_live(self) -> bool:
        """Return whether the bar is on a screen now, so that plain lines are not needed."""
        return self.bar.live.is_started or (self.cell is not None and self.cell.handle is not None)

    def log(self, text: str) -> None:
        """Print a line that stays, above the bar, unless quiet."""
        if not self.quiet:
            self.console.print(escape_controls(text), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def show(self, left: str, right: str, share: float | None = None, below: Sequence[str] = ()) -> None:
        """Change the text on both sides of the bar, its filled share (None: unknown), and the lines below it.

        On a narrow terminal, the text on its right is the first line below it.
        """
        if self.cell:
            self.cell.show(left, right, share, below)
        if cell_len(left) + cell_len(right) + BAR + 2 > self.console.width:
            right, below = "", (right, *below)
        self.bar.below = below
        total = None if share is None else 1.0
        self.bar.update(self.task, completed=share or 0.0, total=total, left=left, right=right)

    def line_due(self) -> bool:
        """Return whether SECONDS_BETWEEN_LINES have passed since the last call that returned True."""
        now = time.monotonic()
        if now - self.last_line <= SECONDS_BETWEEN_LINES:
            return False
        self.last_line = now
        return True


class _BarWithLines(Progress):
    """A progress bar with lines of text below it."""

    below: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield what rich draws: the bar, and the lines below it."""
        yield from super().get_renderables()
        yield Text("\n".join(line for line in self.below if line))


class _Cell:
    """Text below a cell of a notebook: a bar and the lines below it."""

    def __init__(self) -> None:
        self.handle: Any = None  # what IPython calls the place of the text; None: there is none now
        self.last_update = 0.0

    def start(self) -> None:
        """Take a place below the cell."""
        from IPython.display import display

        self.handle = display({"text/plain": ""}, raw=True, display_id=True)

    def stop(self) -> None:
        """Leave the place empty."""
        if self.handle:
            self.handle.update({"text/plain": ""}, raw=True)
            self.handle = None

    def show(self, left: str, right: str, share: float | None, below: Sequence[str]) -> None:
        """Change the text, unless it changed less than SECONDS_BETWEEN_UPDATES ago."""
        now = time.monotonic()
        if self.handle and now - self.last_update >= SECONDS_BETWEEN_UPDATES:
            self.last_update = now
            filled = round(BAR * (share or 0.0))
            bar = "█" * filled + "░" * (BAR - filled)
            text = "\n".join(line for line in (f"{left} {bar} {right}", *below) if line)
            self.handle.update({"text/plain": escape_controls(text)}, raw=True)


class LineProgress(ProgressDisplay):
    """Show how many lines are translated and how fast; with `interactive`, only how to type them.

    hidden: translations are written to the same terminal, where a bar would be in their way.
    """

    def __init__(self, quiet: bool, interactive: bool, hidden: bool = False):
        super().__init__(quiet=quiet)
        self.interactive, self.hidden = interactive, hidden
        self.lines = self.characters = self.block = 0
        self.began = time.monotonic()

    def start(self) -> None:
        """Show the bar or, where lines are typed, how to end."""
        if self.interactive:
            self.log("reading from standard input, one line at a time; Ctrl-D to end")
        elif not self.hidden:
            super().start()

    def begin(self, lines: int) -> None:
        """Note that so many lines are translated next."""
        self.block = lines
        self.show_share(0.0, 0)

    def show_share(self, share: float, sentences: int) -> None:
        """Show how much is done of the sentences that are searched for now, from 0 to 1."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        figures = format_duration(seconds)
        if self.lines:
            figures = f"{self.lines / seconds:,.1f} lines/s, {self.characters / seconds:,.0f} characters/s, {figures}"
        if sentences:
            figures = f"{100 * share:.0f} % of {plural(sentences, 'sentence')}, {figures}"
        self.show(f"translating lines {self.lines + 1:,} to {self.lines + self.block:,}", figures, share)

    def advance(self, characters: int) -> None:
        """Count these lines as translated; they had so many characters."""
        self.lines, self.characters = self.lines + self.block, self.characters + characters


def time_left(spent: float, start: float, done: float) -> float:
    """Return the seconds left, where going from `start` to `done` (0 to 1) took `spent` seconds; infinity if equal."""
    return spent * (1 - done) / (done - start) if done > start else math.inf


def format_duration(seconds: float) -> str:
    """Return '45 s', '3 min 20 s' or '2 h 05 min'; '?' for infinity."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
