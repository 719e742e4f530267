"""Show how many texts are translated, and how long the others will take."""

import time

from dragoman.console import ProgressDisplay, format_duration, time_left


class TextProgress(ProgressDisplay):
    """Show how many texts are translated: as a bar on a terminal, in a log as a line from time to time."""

    def begin(self, name: str, total: int) -> None:
        self.name, self.total = name, total
        self.began = self.last_line = time.monotonic()
        self.start()

    def show_done(self, count: int) -> None:
        share = min(count / self.total, 1)
        spent = max(time.monotonic() - self.began, 1e-9)
        figures = (
            f"{count:,} of {self.total:,} texts, {count / spent:,.1f} texts/s, "
            f"end in {format_duration(time_left(spent, 0, share))}"
        )
        self.show(self.name, figures, share)
        if not self.is_live and self.line_due():
            self.log(f"{self.name}: {figures}")
