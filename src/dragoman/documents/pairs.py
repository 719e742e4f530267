"""Read the messages of programs as sentence pairs: from a file with both languages, and from two with the same keys."""

from collections.abc import Hashable, Iterator

from dragoman.data.lines import OnProblem, Problem, Row, display_path, join_lines, read_blocks
from dragoman.data.spec import WITH_COLUMNS, CorpusSpec, suffix_of
from dragoman.documents import read_document
from dragoman.documents.document import SURROGATES, Document, Message, skipped_lines, translatable_lines
from dragoman.errors import DragomanError

LARGEST = 64 << 20  # bytes: a whole file is held in memory
PAIRED = ("one", "other")  # plural categories that say the same in two languages, where both have them

Numbered = tuple[int, Message]  # with its line


def read_pairs(spec: CorpusSpec, on_problem: OnProblem) -> Iterator[Row]:
    """Yield the rows of a file with both languages, or of two files whose keys are the same, by lines of the first.

    Messages whose translation is not finished, with plural forms or branches that have no sure counterpart, or with a
    key that the other file lacks are left out and reported. Raise DragomanError where a file is not in its format.
    """
    files = [read_messages(file, spec.columns, on_problem) for file in spec.files]
    for number, message in files[0] if len(files) == 1 else joined(spec, files, on_problem):
        if message.state:
            on_problem(Problem(message.state, spec.files[0], number))
            continue
        pairs = [
            (message.forms[category], message.translations[category])
            for category in PAIRED
            if category in message.forms and category in message.translations
        ]
        if not pairs:
            on_problem(Problem("plural", spec.files[0], number))
        for pair in pairs:
            lines = [translatable_lines(text) for text in pair]
            if len(files) == 2 and len(lines[0]) == len(lines[1]):  # as they are translated
                yield from (Row(number, *sides) for sides in zip(*lines, strict=True))
            else:
                source, target = (join_lines(text, spec.files[0], number, on_problem) for text in pair)
                yield Row(number, source, target)


def read_messages(file: str, columns: tuple[str, str] | None, on_problem: OnProblem) -> list[Numbered]:
    """Return the messages of a file with their lines, in order; see `read_pairs`. columns: the languages to read."""
    blocks, size = [], 0
    for block in read_blocks(file):
        size += len(block)
        if size > LARGEST:
            raise DragomanError(f"{display_path(file)}: messages of more than {LARGEST >> 20} MiB; split the file")
        blocks.append(block)
    source, target = columns or ("", "")
    document = read_document(b"".join(blocks), suffix_of(file), source=source, target=target)
    messages = sorted(document.messages, key=lambda message: message.start)
    if document.skipped and (not document.readable or not messages):
        line, reason = document.skipped[0]
        hint = "" if columns or suffix_of(file) not in WITH_COLUMNS else "; columns=en,de names two"
        raise DragomanError(f"{display_path(file)}{f':{line}' if line else ''}: {reason}{hint}")
    return [*numbered(document, messages, file, on_problem)]


def numbered(document: Document, messages: list[Message], file: str, on_problem: OnProblem) -> Iterator[Numbered]:
    """Yield messages with their lines. Report those with bytes that are no characters, and leave them out."""
    lines = skipped_lines(document.original, ((message.start, "") for message in messages))
    for (line, _), message in zip(lines, messages, strict=True):
        texts = "".join([*message.forms.values(), *message.translations.values()])
        if SURROGATES.search(texts):
            on_problem(Problem("utf-8", file, line, f"a text with bytes that are not {document.encoding}"))
        else:
            yield line, message


def joined(spec: CorpusSpec, files: list[list[Numbered]], on_problem: OnProblem) -> list[Numbered]:
    """Return the messages of the first file, with those of the second as their translations, and report all others.

    Under a key that a file has several times, as that of a list, they are joined in their order if it has as many in
    both files.
    """
    sources, targets = map(by_key, files)
    pairs: list[Numbered] = []
    for file, messages, others in zip(spec.files, (sources, targets), (targets, sources), strict=True):
        for key, same in messages.items():
            partners = others.get(key, [])
            if len(partners) != len(same):
                for number, _ in same:
                    on_problem(Problem("unmatched", file, number))
            elif messages is sources:
                for (number, message), (_, other) in zip(same, partners, strict=True):
                    pairs.append((number, message._replace(translations=other.forms)))
    return sorted(pairs, key=lambda pair: pair[0])


def by_key(messages: list[Numbered]) -> dict[Hashable, list[Numbered]]:
    """Return messages by their keys."""
    keyed: dict[Hashable, list[Numbered]] = {}
    for number, message in messages:
        keyed.setdefault(message.key, []).append((number, message))
    return keyed
