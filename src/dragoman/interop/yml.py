"""Read the little YAML that Marian writes: settings with scalars and lists of scalars, and lists of words with ids.

PyYAML says where scalars begin and end, and what they are when their quotes and escapes are gone. It does not say what
they mean: a word such as 'no', '0x1' or '2020-01-01' stays one. Anchors, tags and nesting are refused.
"""

import re
from collections.abc import Iterator
from typing import Any

from dragoman.errors import DragomanError
from dragoman.interop.sources import MAX_WORDS

MAX_LINES = 2 * MAX_WORDS  # of a list; a word may have two


def parse_settings(text: str) -> dict[str, Any]:
    """Return Marian's settings by name: scalars, and lists of scalars. Raise ValueError, with the line, for others."""
    settings: dict[str, Any] = {}
    for line, name, value in entries(text):
        if name in settings:
            raise ValueError(f"line {line}: '{name:.100}' is there twice")
        settings[name] = [scalar(item) for item in value] if isinstance(value, list) else scalar(value)
    return settings


def parse_words(text: str) -> dict[str, int]:
    """Return the ids of the words in a list of Marian. Raise ValueError, with the line, where one is there twice."""
    words: dict[str, int] = {}
    if text.count("\n") > MAX_LINES:
        raise ValueError(f"it has more than {MAX_LINES:,} lines")
    for line, word, id in entries(text):
        if isinstance(id, list) or id.style or not re.fullmatch(r"-?\d{1,18}", id.value) or not word:
            raise ValueError(f"line {line}: {word[:100]!r} is no word with an id")
        if word in words:
            raise ValueError(f"line {line}: {word[:100]!r} is there twice")
        words[word] = int(id.value)
        if len(words) > MAX_WORDS:
            raise ValueError(f"it has more than {MAX_WORDS:,} words")
    return words


def scalar(event: Any) -> Any:
    """Return what a scalar means: a string in quotes, true or false, a number, nothing, or a string."""
    text: str = event.value
    if event.style:  # quotes
        return text
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "~", "null"):
        return None
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if re.fullmatch(r"-?\d{1,18}\.\d{0,18}(e[+-]?\d{1,2})?|-?\d{1,18}e[+-]?\d{1,2}", text):
        return float(text)
    return text


def entries(text: str) -> Iterator[tuple[int, str, Any]]:
    """Yield the line, the key and the value of each entry of a mapping; the value is a scalar event or a list of them.

    Raise ValueError, with the line, for all other YAML, and DragomanError where PyYAML is missing.
    """
    inside, key = False, None
    items: list[Any] | None = None
    for kind, line, event in parse_events(text):
        if kind == "MappingStart" and not inside:
            inside = True
        elif kind == "Scalar" and inside and key is None:
            key = event.value
        elif kind == "Scalar" and items is not None:
            items.append(event)
        elif kind == "SequenceStart" and key is not None and items is None:
            items = []
        elif kind in ("Scalar", "SequenceEnd") and key is not None:
            yield line, key, event if items is None else items
            key, items = None, None
        elif kind != "MappingEnd":
            raise ValueError(f"line {line}: neither a setting nor an item of a list")


def parse_events(text: str) -> Iterator[tuple[str, int, Any]]:
    """Yield the kind, the line and each event of PyYAML but those of documents; for what is raised, see `entries`."""
    try:
        import yaml
    except ImportError:
        raise DragomanError("models of Marian need a package: pip install 'dragoman[import]'") from None
    line = 1
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # in C: 7 times as fast
            kind, line = type(event).__name__.removesuffix("Event"), event.start_mark.line + 1
            if getattr(event, "anchor", None) or getattr(event, "tag", None):
                raise ValueError(f"line {line}: anchors, aliases and tags are YAML that Marian does not write")
            if not kind.startswith(("Stream", "Document")):
                yield kind, line, event
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else line
        raise ValueError(f"line {line}: not YAML: {error.problem}") from None
    except (yaml.YAMLError, OverflowError) as error:  # a character that is none
        raise ValueError(f"line {line} or later: not YAML: {getattr(error, 'reason', error)}") from None
