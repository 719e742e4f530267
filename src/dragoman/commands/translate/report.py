"""Report on standard error about the translations that `translate` makes."""

from collections import Counter

from dragoman.console import LineProgress
from dragoman.text.scripts import SAMPLE, direction_warning
from dragoman.translation.translation import TERM_REPORTS, Translation
from dragoman.translation.translator import Translator


class TranslationReport:
    """Log what is remarkable about each translation, and count it for the summary."""

    def __init__(self, progress: LineProgress, translator: Translator):
        self.progress, self.translator = progress, translator
        self.counts: Counter[str] = Counter()
        self.sample: list[str] = []  # of the sources

    def add(self, location: str, translation: Translation) -> None:
        """Log the flags of a translation and whether a sentence was cut, and count it."""
        if translation.flags:
            self.progress.log(f"{location}: translation flagged: {', '.join(translation.flags)}")
        if self.translator.cuts_sentence(translation):
            limit = self.translator.max_source_tokens
            self.progress.log(f"{location}: a sentence of more than {limit} tokens is translated in several segments")
        if len(self.sample) < SAMPLE:
            self.sample += [source for source, _ in translation.segments]
        self.counts["translated a second time because of faults"] += translation.retried
        self.counts["still flagged"] += bool(translation.flags)
        for name in TERM_REPORTS:
            self.counts[name.replace("_", " ")] += len(getattr(translation, name))

    def summarise(self) -> None:
        """Log the counts that are not 0, and whether the sources are in a script that the model does not read."""
        extent, writes = self.translator.extent, self.translator.scripts
        if warning := direction_warning("the input", self.sample, extent.scripts, writes):
            self.progress.log(warning)
        if counts := [f"{name}: {count:,}" for name, count in self.counts.items() if count]:
            self.progress.log(", ".join(counts))
