"""How far the work is: a bar on a terminal, in a log a line every ten seconds."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dragoman.training.journal import PLAIN_EVERY, duration, time_left


class Meter:
    """Says on standard error how many of the texts are translated, and how long the others will take."""

    def __init__(self, quiet: bool = False):
        self.console, self.quiet = Console(stderr=True), quiet
        self.bar = Progress(
            TextColumn("{task.fields[name]}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[figures]}"),
            console=self.console,
            transient=True,
            disable=quiet or not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=1.0, name="", figures="")

    def say(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, name: str, total: int) -> None:
        """`total` texts are to be translated, or a few less."""
        self.name, self.total = name, total
        self.began = self.spoken = time.monotonic()
        self.bar.start()

    def reached(self, count: int) -> None:
        """So many of them are."""
        now, share = time.monotonic(), min(count / self.total, 1)
        spent = max(now - self.began, 1e-9)
        figures = (
            f"{count:,} of {self.total:,} texts, {count / spent:,.1f} texts/s, "
            f"end in {duration(time_left(spent, 0, share))}"
        )
        self.bar.update(self.task, completed=share, name=self.name, figures=figures)
        if now - self.spoken > PLAIN_EVERY and not self.bar.live.is_started:
            self.spoken = now
            self.say(f"{self.name}: {figures}")

    def end(self) -> None:
        self.bar.stop()
