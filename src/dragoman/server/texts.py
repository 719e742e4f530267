"""Translate texts as people send them: with line breaks, blank lines, markup, in any number."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dragoman.config.search import Split
from dragoman.documents import Document, read_text
from dragoman.server.routes import Call
from dragoman.translation.translation import Translation

Form = Literal["text", "html"]


@dataclass(frozen=True)
class Task:
    """What a request wants of all of its texts."""

    source: str
    target: str
    form: Form = "text"
    alternatives: int = 0
    beam: int | None = None  # None: that of the server
    split: Split = "sentences"


@dataclass(frozen=True)
class Translated:
    """A text, translated, and other translations of it, none of them twice."""

    text: str
    alternatives: tuple[str, ...] = ()


def translate_texts(call: Call, texts: Sequence[str], task: Task) -> list[Translated]:
    """Return the translation of each text. What has no letter stays as it is; so does all into its own language.

    Raise Late and Gone as the ticket of the request says.
    """
    if task.source == task.target:
        return [Translated(text) for text in texts]
    documents = [read_text(text, task.form) for text in texts]
    every = [text for document in documents for text in document.texts]
    found = iter(translate_lines(call, every, task))
    return [put_together(document, [next(found) for _ in document.texts], task) for document in documents]


def translate_lines(call: Call, lines: Sequence[str], task: Task) -> list[Translation]:
    """Return the translations of texts of one line, by one model or by two, one after the other."""
    config = call.service.config
    beam = max(task.beam or config.beam, task.alternatives + 1)
    path = call.service.models.path(task.source, task.target)
    found: list[Translation] = []
    for served in path:
        n_best = task.alternatives + 1 if served is path[-1] else 1
        search = replace(served.translator.search, beam=beam, n_best=n_best, split=task.split)
        translator = served.translator_for(call.ticket, search, served.translator.safeguards)
        found = translator.translate(lines, served.source.tag)
        lines = [one.text for one in found]
    return found


def put_together(document: Document, found: Sequence[Translation], task: Task) -> Translated:
    """Return a document with its texts translated, and its alternatives: the second best of all texts, and so on.

    A text with fewer alternatives than others keeps its last one.
    """
    ranked = [(one, *one.alternatives) for one in found]
    count = max((len(own) for own in ranked), default=1)
    best, *others = dict.fromkeys(
        document.fill_text([own[min(rank, len(own) - 1)].text for own in ranked]) for rank in range(count)
    )
    return Translated(best, tuple(others[: task.alternatives]))
