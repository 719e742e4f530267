"""Tell files with a structure that is not read from lines of text, and configuration from messages of programs."""

import re
from collections.abc import Collection
from itertools import islice

from dragoman.data.lines import LANGUAGE
from dragoman.data.spec import STRUCTURED
from dragoman.documents.document import DocumentConfig
from dragoman.errors import plural

HEAD = 1 << 16  # bytes at the beginning of a file that are looked at
CODE = re.compile(r"([a-z]{2,3})(?:[-_][A-Za-z]{4})?(?:[-_](?:[A-Za-z]{2}|\d{3}))?")
PATH_LENGTH = 4  # of keys that say what a file is, from the outermost
COMMENTS = ("#", "!", ";", "//", "/*", "*")  # what lines begin with that are looked past
SHAPES = [  # of the first three lines with anything in them
    (re.compile(pattern), shape, suffixes)
    for pattern, shape, suffixes in (
        (
            r"<\?xml|<!DOCTYPE|<[\w:.-]{1,60}(?:\s[^<>]{0,999})?>\s{0,99}<",
            "XML or HTML",
            ".html, .xlf, .xml (Android) or .resx",
        ),
        (r'[{\[]\s{0,99}(?:"[^"\n]{0,99}"\s{0,9}[:,]|[{\[]|[}\]])', "JSON", ".json, .arb or .jsonl"),
        (r'(?:msgid|msgctxt) "', "a catalogue of gettext", ".po"),
        (r"WEBVTT|(?:\d{1,9}\n)?\d\d:\d\d(?::\d\d)?[.,]\d{3} --> ", "subtitles", ".srt or .vtt"),
        (r"\[Script Info\]", "subtitles", ".ass"),
        (r'"[^"\n]{0,999}" ?= ?"', "keys and values", ".strings"),
        (r"[\w.-]{1,99} ?= ?\S[^\n]*\n[\w.-]{1,99} ?= ?\S", "keys and values", ".properties"),
        (r"---\n[\w.-]{1,99}:", "YAML", ".yml"),
    )
]
# The keys by which a file is known to be configuration.
CONFIGURATION = [
    ("GitHub's workflows", "on jobs.*"), ("GitHub's actions", "runs.using"), ("Docker Compose", "services.*.image"),
    ("Docker Compose", "services.*.build"), ("Kubernetes", "apiVersion kind"), ("OpenAPI", "openapi info.title"),
    ("Swagger", "swagger info.title"), ("AsyncAPI", "asyncapi info.title"), ("CloudFormation", "Resources.*.Type"),
    ("GitLab", "stages.* *.script"), ("Travis", "language script.*"), ("CircleCI", "jobs.*.steps"),
    ("pre-commit", "repos.*.hooks"), ("MkDocs", "site_name nav.*"), ("Read the Docs", "version build.os"),
    ("Dependabot", "updates.*.package-ecosystem"), ("Ansible", "*.hosts *.tasks"),
    ("Conda", "channels.* dependencies.*"), ("Dart", "environment.sdk"), ("npm", "lockfileVersion"),
    ("npm", "name version dependencies.*"), ("npm", "name version scripts.*"), ("TypeScript", "compilerOptions"),
    ("Composer", "require.* autoload.*"), ("a browser's extension", "manifest_version"),
    ("a web app", "start_url icons.*"), ("JSON Schema", "$schema properties.*"), ("Jupyter", "nbformat cells.*"),
    ("GeoJSON", "type features.*.geometry"),
]  # fmt: skip


def structure_of(head: bytes, suffix: str) -> str:
    """Return what is wrong with translating a file line by line, in words, or '' where nothing is.

    head: the beginning of its bytes; suffix: of its name, which is none of a format that is read.
    """
    if suffix in STRUCTURED:
        return STRUCTURED[suffix]
    text = head.decode("utf-8", "replace")
    lines = (line.strip() for line in text.removeprefix("\ufeff").splitlines())
    begin = "\n".join(islice((line for line in lines if line and not line.startswith(COMMENTS)), 3))
    for pattern, shape, suffixes in SHAPES:
        if pattern.match(begin):
            return f"it looks like {shape}, which is read from files named {suffixes}"
    return ""


def no_messages(paths: Collection[tuple[str, ...]], config: DocumentConfig) -> str:
    """Return why a file with these paths of keys holds no messages in one language, or '' where it may."""
    names = (name for name, keys in CONFIGURATION if all(has_path(paths, key) for key in keys.split()))
    if not config.keys and (name := next(names, "")):
        return f"configuration ({name}), no texts: --translate-key chooses the keys to translate in any file"
    roots, opened = ({path[0] for path in paths if len(path) > length} for length in (0, 1))
    if len(roots) > 1 and roots == opened and all(map(is_language, roots)):
        return f"texts in {plural(len(roots), 'language')}: put those to translate into a file of their own"
    return ""


def has_path(paths: Collection[tuple[str, ...]], wanted: str) -> bool:
    """Return whether one of the paths begins as the wanted one, in which * is any name."""
    names = wanted.split(".")
    return any(
        len(path) >= len(names) and all(name in ("*", key) for name, key in zip(names, path, strict=False))
        for path in paths
    )


def is_language(key: str) -> bool:
    """Return whether a key is the code of a language."""
    code = CODE.fullmatch(key)
    return code is not None and code[1] in LANGUAGE


def below(place: int, key: str, is_outermost: bool) -> int:
    """Return a number for what is below a key in a place; it is the same below any language that is the outermost."""
    return hash((place, "" if is_outermost and is_language(key) else key))
