"""Report on standard error about the translations that `translate` makes."""

from bisect import insort
from collections import Counter

from dragoman.console import LineProgress
from dragoman.errors import plural
from dragoman.text.scripts import SAMPLE, direction_warning
from dragoman.translation.segment_search import UNSURE
from dragoman.translation.translation import EXACT, SWAPPED, TERM_REPORTS, Translation
from dragoman.translation.translator import Translator

FIRST, SHOWN = 10, 60  # translations to read first, and characters of each


class TranslationReport:
    """Log what is remarkable about each translation, and count it for the summary."""

    def __init__(self, progress: LineProgress, translator: Translator, *, ranked: bool = False):
        """Take where to log; ranked: say at the end which translations to read first."""
        self.progress, self.translator, self.ranked = progress, translator, ranked
        # Confidence, number, and what stands there; the least sure first.
        self.least_sure: list[tuple[float, int, str]] = []
        self.added = self.unsure = 0
        self.counts: Counter[str] = Counter()
        self.sample: list[str] = []  # of the sources

    def add(self, location: str, translation: Translation) -> None:
        """Log the flags of a translation and whether a sentence was cut, and count it."""
        flags = [flag for flag in translation.flags if flag not in (EXACT, SWAPPED)]
        if flags:
            self.progress.log(f"{location}: translation flagged: {', '.join(flags)}")
        self.added += 1
        if self.ranked and translation.confidence is not None:
            insort(self.least_sure, (translation.confidence, self.added, f"{location}: {translation.output[:SHOWN]}"))
            del self.least_sure[FIRST:]
        if self.translator.cuts_sentence(translation):
            limit = self.translator.max_source_tokens
            self.progress.log(f"{location}: a sentence of more than {limit} tokens is translated in several segments")
        if len(self.sample) < SAMPLE:
            self.sample += [source for source, _ in translation.segments]
        self.counts["translated a second time because of faults"] += translation.retried
        self.counts["still flagged"] += bool(flags)
        self.unsure += UNSURE in flags
        self.counts["approved before"] += len(flags) < len(translation.flags)
        for name in TERM_REPORTS:
            self.counts[name.replace("_", " ")] += len(getattr(translation, name))

    def summarise(self) -> None:
        """Log the counts that are not 0, and whether the sources are in a script that the model does not read."""
        extent, writes = self.translator.extent, self.translator.scripts
        if warning := direction_warning("the input", self.sample, extent.scripts, writes):
            self.progress.log(warning)
        if self.unsure > self.added / 2:
            learned = f"the {extent.pairs:,} pairs" if extent.pairs else "the texts"
            self.progress.log(
                f"unlike {learned} that this model has learned from: {self.unsure:,} of {plural(self.added, 'text')}; "
                "these translations are guesses"
            )
        if self.least_sure:
            self.progress.log("to read first, with the confidence in each:")
        for confidence, _, what in self.least_sure:
            self.progress.log(f"  {confidence:.2f}  {what}")
        if counts := [f"{name}: {count:,}" for name, count in self.counts.items() if count]:
            self.progress.log(", ".join(counts))
