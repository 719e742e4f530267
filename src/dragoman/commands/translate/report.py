"""Report on standard error about the translations that `translate` makes."""

from collections import Counter

from dragoman.console import LineProgress
from dragoman.translation.translator import Translation


class TranslationReport:
    """Log what is remarkable about each translation, and count it for the summary."""

    def __init__(self, progress: LineProgress, max_source_tokens: int):
        self.progress, self.max_source_tokens = progress, max_source_tokens
        self.counts: Counter[str] = Counter()

    def add(self, location: str, translation: Translation) -> None:
        """Log the flags of a translation and whether its text was cut into segments, and count it for the summary.

        location: names the text in the log.
        """
        if translation.flags:
            self.progress.log(f"{location}: {', '.join(translation.flags)}")
        if translation.segments > 1:
            limit, segments = self.max_source_tokens, translation.segments
            self.progress.log(f"{location}: longer than {limit} tokens, translated in {segments} segments")
        self.counts["decoded a second time"] += translation.retried
        self.counts["still flagged"] += bool(translation.flags)
        self.counts["terms met"] += len(translation.terms_met)

    def summarise(self) -> None:
        """Log the counts that are not 0."""
        if counts := [f"{count:,} {name}" for name, count in self.counts.items() if count]:
            self.progress.log(", ".join(counts))
