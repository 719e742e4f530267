"""dragoman translate: opens the model, and chooses between a document and lines of text."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.commands import no_tag_warning, parse, set_threads
from dragoman.commands.translate.options import Options, check_files, check_options
from dragoman.errors import UsageError, plural
from dragoman.storage.output import part_of

if TYPE_CHECKING:
    from dragoman.translation.translator import Translator

STANDARD = Path("-")  # standard input or output


def main(arguments: list[str]) -> None:
    """Run `dragoman translate`: translate a document as a whole, or lines of text one by one."""
    options = parse(Options, "translate", arguments)
    if options.text and options.input:
        raise UsageError("give text or --input, not both")
    options = replace(
        options,
        text=() if options.text == ("-",) else options.text,
        input=None if options.input == STANDARD else options.input,
        output=None if options.output == STANDARD else options.output,
    )
    check_files(options)
    check_options(options)
    from dragoman.console import LineProgress
    from dragoman.runtime.signals import exit_on_signals

    translator = open_translator(options)
    interactive = not options.text and options.input is None and sys.stdin.isatty()
    hidden = options.output is None and sys.stdout.isatty()
    with exit_on_signals(), LineProgress(options.quiet, interactive, hidden) as progress:
        if progress.is_live:
            from dragoman.decoding.parts import EngineInParts

            translator = translator.replace(engine=EngineInParts(translator.engine, progress.show_share))
        if options.is_document:
            from dragoman.commands.translate.document import translate_document

            translate_document(translator, options, progress)
        else:
            from dragoman.commands.translate.lines import translate_lines

            try:
                translate_lines(translator, options, progress, interactive)
            except BaseException:
                if options.output and progress.lines and (part := part_of(options.output)).exists():
                    done = plural(progress.lines, "line")
                    progress.log(f"{options.output}: not finished; the first {done} are in {part}")
                raise


def open_translator(options: Options) -> "Translator":
    """Return the translator that the flags describe; set PyTorch's threads.

    Raise DragomanError where the model or the glossary is faulty.
    """
    from dragoman.data.lines import read_lines
    from dragoman.text.glossary import Glossary
    from dragoman.translation.safeguards import Safeguards
    from dragoman.translation.translator import CALIBRATE, Translator

    set_threads(options.threads, options.quiet)
    safeguards = Safeguards(
        placeholders=options.placeholders,
        numbers=options.keep_numbers,
        keep=options.keep + (tuple(filter(None, read_lines(str(options.keep_file)))) if options.keep_file else ()),
        faults=options.detect_faults,
        sentence_case=options.sentence_case,
        visible_characters=options.visible_characters,
        glossary=Glossary.read(options.glossary) if options.glossary else None,
        swap_numbers=options.swap_numbers,
        forbidden=options.forbid,
        forbidden_exact=options.forbid_exact,
        min_confidence=options.min_confidence,
    )
    translator = Translator.load(
        options.model,
        options.search,
        safeguards,
        options.ensemble,
        device=options.device,
        engine=options.engine,
        compute_type=options.compute_type,
        threads=options.threads,
        memory=options.memory,
        target_tag=options.target_tag,
    )
    if options.confidence and translator.confidence is None:
        raise UsageError(f"{options.model}: --confidence {CALIBRATE}")
    if options.memory and options.engine != "native" and not options.quiet:
        print("ctranslate2 searches without the memory: only texts that are in it gain from it", file=sys.stderr)
    warning = no_tag_warning(options.model, translator, [options.tag], "choose it with --tag")
    if warning and not options.quiet:
        print(warning, file=sys.stderr)
    return translator
