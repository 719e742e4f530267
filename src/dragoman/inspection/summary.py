"""Say in a few lines what a model is and what it can: shape, languages, how much it reads at once, engines."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman.confidence.estimate import Confidence
from dragoman.config import ModelConfig, as_dict
from dragoman.config.languages import LanguagePair
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import plural
from dragoman.interop.ctranslate2.conversion import describe_engines, unknown_settings
from dragoman.text.extent import SourceExtent
from dragoman.text.languages import read_languages
from dragoman.text.origin import Origin
from dragoman.text.scripts import name_scripts, read_scripts
from dragoman.text.tags import DefaultTags


@dataclass(frozen=True)
class Summary:
    """What a model is and what it can. A preset is a model that no training has recorded anything of."""

    config: ModelConfig
    vocabulary: int  # subwords, special tokens included
    target_vocabulary: int | None = None  # None: both languages have the same ones
    tags: tuple[str, ...] = ()  # that may stand in front of a source
    languages: LanguagePair | None = None
    scripts: tuple[str, ...] = ()  # of the target language
    default_tags: DefaultTags = DefaultTags()
    origin: Origin | None = None  # of a model that was imported
    extent: SourceExtent | None = None  # what the sources of the training were like
    confidence: Confidence | None = None  # what tells how good its translations are

    @classmethod
    def read(cls, folder: Path, config: ModelConfig, tokenizers: Tokenizers) -> "Summary":
        """Return the summary of a model that was read before. Raise DragomanError where a record is damaged."""
        extent = SourceExtent.load(folder)
        return cls(
            config,
            len(tokenizers.source),
            tokenizers.target_vocabulary,
            tuple(tokenizers.source.tags),
            read_languages(folder),
            read_scripts(folder),
            DefaultTags.load(folder),
            Origin.load(folder),
            extent,
            Confidence.load(folder),
        )

    def __str__(self) -> str:
        rows = {"model": str(self.config)}
        if self.config.max_positions:
            rows["longest text"] = f"{self.config.max_positions:,} tokens on each side"
        rows["vocabulary"] = f"{self.vocabulary:,} subwords"
        if self.target_vocabulary:
            rows["vocabulary"] += f" of the source, {self.target_vocabulary:,} of the target"
        if self.tags:
            rows["tags"] = ", ".join(self.tags)
        if self.default_tags != DefaultTags():
            rows["default tags"] = f"source {self.default_tags.source or '-'}, target {self.default_tags.target or '-'}"
        if self.origin:
            rows["origin"] = f"{self.origin.origin}; licence: {self.origin.licence or 'unknown'}"
        if self.languages:
            rows["languages"] = f"{self.languages.source} to {self.languages.target}"
        if self.scripts and self.extent and self.extent.scripts:
            rows["scripts"] = f"{name_scripts(self.extent.scripts)} to {name_scripts(self.scripts)}"
        elif self.scripts:
            rows["scripts"] = f"to {name_scripts(self.scripts)}"
        if self.extent:
            sentences, tokens = plural(self.extent.sentences, "sentence"), plural(self.extent.tokens, "token")
            rows["reads at once"] = f"up to {sentences}, {tokens} (95 % of the training sources were no longer)"
        if self.confidence:
            rows["confidence"] = str(self.confidence)
        rows["engines"] = describe_engines(self.config)
        return "\n".join(f"{name:<22} {value}" for name, value in rows.items())

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as an object of JSON: its fields, and 'engines', the names of those that can run it."""
        return {
            "config": as_dict(self.config),
            "vocabulary": self.vocabulary,
            "target_vocabulary": self.target_vocabulary or self.vocabulary,
            "tags": self.tags,
            "default_tags": asdict(self.default_tags),
            "origin": asdict(self.origin) if self.origin else None,
            "languages": self.languages._asdict() if self.languages else None,
            "scripts": self.scripts,
            "extent": asdict(self.extent) if self.extent else None,
            "confidence": self.confidence.as_dict() if self.confidence else None,
            "engines": ["native"] if unknown_settings(self.config) else ["native", "ctranslate2"],
        }
