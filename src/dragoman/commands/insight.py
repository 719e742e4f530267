"""dragoman insight"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from dragoman.commands import folders_first, parse, set_threads
from dragoman.errors import DragomanError, UsageError, plural
from dragoman.text.speech import Language, speaker


@dataclass(frozen=True)
class Options:
    """Show how a model learned, from the checkpoints that its run kept, and print the name of the file.

    It shows for each checkpoint the gradient and the change of each layer, the entropy of each attention head, and
    the attention of one sentence, as a page with a slider (.html) or as a figure.

    $ dragoman insight runs/en-ko --pairs dev.tsv
    $ dragoman insight runs/en-ko --pairs dev.tsv --sentence 7 --out insight.svg
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    "run folder, which may still be training; -m RUN is the same"
    pairs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="CORPUS ...")] = ()
    "sentence pairs in any format that training reads; default: the dev pairs of the run"
    sentence: int = 1
    "number of the pair whose attention is shown, from 1"
    subwords: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    "show subwords instead of words"
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("insight.html")
    "page (.html) or figure (.svg, .png, .pdf) to write"
    language: Language = "en"
    "language of the figure and of the summary; the page has both"
    threads: int | None = None
    "CPU threads; default: one for each core that this process may use"


def main(arguments: list[str]) -> None:
    """Run `dragoman insight`: write a page or a figure of how a run learned, and print its name."""
    options = parse(Options, "insight", folders_first(arguments))
    from dragoman.data.corpus import read_corpus
    from dragoman.data.spec import parse_corpora
    from dragoman.inspection import CATALOGUE
    from dragoman.inspection.figure import FORMATS, save
    from dragoman.inspection.history import read_history
    from dragoman.storage.output import require_no_folder
    from dragoman.storage.writing import replace_file
    from dragoman.training.checkpoint import by_step, lasting_checkpoints
    from dragoman.training.resume import read_run_config

    page = options.out.suffix.lower() == ".html"
    if not page and options.out.suffix.lower() not in FORMATS:
        raise UsageError(f"{options.out}: the name must end in .html, {', '.join(FORMATS)}")
    require_no_folder(options.out)
    if not options.run.is_dir():
        raise DragomanError(f"{options.run}: no such run folder")
    set_threads(options.threads)
    kept = by_step(lasting_checkpoints(options.run))
    if len(kept) < 2:
        raise DragomanError(
            f"{options.run}: {'only one checkpoint' if kept else 'no checkpoints'}, and insight needs at least two: "
            "--training.keep 20 keeps the newest 20 on disk, --training.save-every 100 saves one every 100 steps"
        )
    config = read_run_config(options.run)
    try:
        specs = parse_corpora(options.pairs or config.dev)
        corpus = read_corpus(options.pairs or config.dev)
    except DragomanError as error:
        if options.pairs:
            raise
        raise DragomanError(
            f"{error}; these are the dev pairs of the run, whose paths are relative to the folder where training was "
            "started: change to it, or give --pairs"
        ) from None
    name, smoothing = options.run.resolve().name, config.training.label_smoothing
    history = read_history(
        name, kept, corpus.pairs, corpus.tags, options.sentence, smoothing, options.subwords, corpus.target_tags
    )
    first, last = history.snapshots[0], history.snapshots[-1]
    loss = f"loss with label smoothing {smoothing:g}" if smoothing else "loss"
    names = ", ".join(spec.name for spec in specs)
    say = speaker(options.language, CATALOGUE)
    summary = (
        f"{len(history.snapshots)} checkpoints, steps {first.step:,} to {last.step:,}; "
        f"{loss} of {plural(history.pairs, 'pair')} ({names}): {first.loss:.2f} to {last.loss:.2f}; "
        f"cross-attention of {history.head_name} for '{' '.join(history.source[:-1])}'"
    )
    print(say(summary), file=sys.stderr)
    if page:
        from dragoman.inspection.history_page import history_page

        replace_file(options.out, history_page(history).encode(errors="replace"), shared=True)
    else:
        from dragoman.inspection.plots.history import history_figure

        save(history_figure(history, say), options.out)
    print(options.out)
