"""Translate a file as a whole document: only its texts change."""

from collections.abc import Sequence
from pathlib import Path

from dragoman.commands.translate.options import ALL_IS_FOR, Options
from dragoman.commands.translate.report import TranslationReport
from dragoman.console import LineProgress
from dragoman.data.lines import read_blocks
from dragoman.documents import read_document
from dragoman.errors import DragomanError, UsageError, plural
from dragoman.model_folder import fetch_model
from dragoman.storage.output import open_output
from dragoman.text.languages import read_languages
from dragoman.translation.limits import is_unsure, within_limits
from dragoman.translation.translator import Translator

BLOCK = 1024  # texts translated together
SHOWN = 60  # characters of a text in a log line


def translate_document(translator: Translator, options: Options, progress: LineProgress) -> None:
    """Translate the document in --input, and write it to --output, or standard output, once all is translated.

    Parts that are left untranslated, and translations that are flagged, are logged with the lines of the document that
    they begin in. Raise DragomanError where the document cannot be read, and where its encoding cannot write a
    translation; OSError, before anything is translated, where --output cannot be written.
    """
    assert options.input is not None
    content = b"".join(read_blocks(str(options.input)))
    source, to = read_languages(fetch_model(Path(options.model))) or ("", "")
    try:
        document = read_document(
            content, options.suffix, options.translate_key, source=source, target=to, all=options.all
        )
    except UsageError as error:
        if options.suffix != ".csv":
            raise
        raise UsageError(f"{error}; --translate-key chooses a column, by its name or its number") from None
    for line, reason in document.skipped:
        location = f"{options.input}:{line}" if line else str(options.input)
        if not document.readable:
            raise DragomanError(f"{location}: {reason}; nothing is written")
        progress.log(f"{location}: {reason}")
    if options.all and document.left is None:
        raise UsageError(f"{options.input}: {ALL_IS_FOR}")
    report = TranslationReport(progress, translator, ranked=options.confidence)
    texts, lines, tags = document.texts, document.lines, tags_of(document.contexts, translator, options.tag)
    outputs: list[str] = []
    unsure: set[int] = set()
    with open_output(options.output) as target:  # now, so that it fails before the work where nothing can be written
        for start in range(0, len(texts), BLOCK):
            block = texts[start : start + BLOCK]
            progress.begin(len(block))
            limits, tagged = document.limits[start : start + BLOCK], tags[start : start + BLOCK]
            translations = translator.translate(block, tagged, [options.prefix] * len(block))
            translations = within_limits(translator, block, translations, limits, tagged)
            for line, text, translation in zip(lines[start : start + BLOCK], block, translations, strict=True):
                report.add(f"{options.input}:{line}: '{text[:SHOWN]}'", translation)
            unsure.update(
                number
                for number, (translation, limit) in enumerate(zip(translations, limits, strict=True), start)
                if is_unsure(translation, limit, document.mark)
            )
            outputs += [translation.output for translation in translations]
            progress.advance(sum(map(len, block)))
        target.write(document.fill(outputs, source, to, unsure))
        target.flush()
    report.summarise()
    for line, reason in document.refused:
        progress.log(f"{options.input}:{line}: {reason}")
    if document.left is not None:
        changes = document.changes(outputs, unsure)
        counts = {
            f"marked {document.mark}": sum(change.marked for change in changes),
            **document.left,
            "still empty": len(document.passages) - len(changes),
        }
        states = "".join(f", {count:,} {state}" for state, count in counts.items() if count)
        progress.log(f"{options.input}: {plural(len(changes), document.entry)} translated{states}")


def tags_of(contexts: Sequence[str], translator: Translator, tag: str) -> list[str]:
    """Return for each text the tag with the name of its context if the model has learned it and no `tag` is given."""
    learned = () if tag or translator.tag else translator.tokenizers.source.tags
    return [context if context in learned else tag for context in contexts]
