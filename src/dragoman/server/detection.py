"""Detect the language of a text among those that are served."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from py3langid.langid import MODEL_FILE, LanguageIdentifier

MAX_READ = 2000  # characters of a text that are looked at
SURE = 100.0


class Detected(NamedTuple):
    """A language, and how sure it is, from 0 to 100."""

    language: str
    confidence: float


class Detector:
    """Detects languages by sequences of bytes, as langid.py does; docs/serving.md has how often it is right."""

    def __init__(self, languages: Sequence[str]):
        """Take the languages among which to choose; a variety, such as pt-BR, is detected as its base."""
        self.languages = list(languages)
        self.fallback = "en" if "en" in languages else self.languages[0]
        self.identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        known = set(self.identifier.labels)
        self.by_base: dict[str, str] = {}  # the first of the varieties of a language
        for language in sorted(languages, key=len):
            base = language.partition("-")[0]
            if base in known:
                self.by_base.setdefault(base, language)
        if self.by_base:
            self.identifier.set_languages(sorted(self.by_base))

    def rank(self, text: str, among: Collection[str] = ()) -> list[Detected]:
        """Return the languages that a text may be in, the most probable first, and at least one.

        among: those that may be returned; () for all. A text without letters is in the fallback language, with
        confidence 0.
        """
        allowed = among or self.languages
        if not self.by_base or not any(map(str.isalpha, text)):
            return [Detected(self.fallback if self.fallback in allowed else sorted(allowed)[0], 0.0)]
        scores = {self.by_base[base]: score for base, score in self.identifier.rank(text[:MAX_READ])}
        kept = {language: score for language, score in scores.items() if language in allowed}
        if not kept:
            return [Detected(sorted(allowed)[0], 0.0)]
        total = sum(kept.values()) or 1.0
        return [Detected(language, round(SURE * score / total, 1)) for language, score in kept.items()]
