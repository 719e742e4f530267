"""Run experiments one after the other, and write one page that shows what they found. Needs the extra `plot`."""

import base64
import csv
import io
import math
import re
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from dragoman.console import format_duration
from dragoman.errors import DragomanError
from dragoman.evaluation.timing import describe_machine
from dragoman.inspection.figure import pyplot
from dragoman.storage.writing import replace_file
from dragoman.text.speech import Language, Say, say_english
from dragoman.version import __version__
from dragoman_lab import COMPARISONS, EXPERIMENTS, speaker
from dragoman_lab.experiment import Cell, Effort, Experiment, Figure, Findings, Sentences, Table

DOTS = 150  # per inch, of a PNG
BOOLS = (bool, np.bool_)  # results of comparisons; unlike numpy's other numbers, its bool has no base class for this
MAX_SLUG = 50  # characters that the title of a table gives to the name of its file


@dataclass(frozen=True)
class Drawing:
    """Describe a figure that was drawn and written to files."""

    file: str  # in the folder of the report, without its suffix: there is a .png and an .svg
    caption: str
    data: str  # the PNG as a data URI


@dataclass(frozen=True)
class Result:
    """Describe the outcome of running an experiment. One that failed has an error, and findings if it got that far."""

    name: str
    seconds: float
    experiment: Experiment | None = None
    findings: Findings | None = None
    drawings: tuple[Drawing, ...] = ()
    files: tuple[str, ...] = ()  # of the tables, in their order, in the folder of the report
    error: str = ""  # one sentence
    trace: str = ""  # for debugging
    language: Language = "en"
    note: str = ""  # behind each verdict

    @property
    def tally(self) -> str:
        """Say in a few words how many claims hold."""
        say = speaker(self.language)
        if self.error or self.findings is None:
            return say("failed")
        verdicts = self.findings.verdicts
        return say(f"{sum(verdict.holds for verdict in verdicts)} of {len(verdicts)} claims hold")

    def __str__(self) -> str:
        """Say in one line how many claims hold, and for each that does not what is claimed and what was found."""
        if self.error or self.findings is None:
            return f"{self.name}: {self.tally}: {self.error}"
        claimed, finding = map(speaker(self.language), ("Claimed", "Found"))
        contrary = [v for v in self.findings.verdicts if not v.holds]
        sentences = [f"{claimed}: {v.claim} {finding}: {v.sentence}{self.note}" for v in contrary]
        return " ".join([f"{self.name}: {self.tally}" + "." * bool(sentences), *sentences])


def load(name: str, sentences: Sentences | None) -> Experiment:
    """Return the experiment of that name; ImportError if there is none. sentences: what a comparison trains on; the
    others need none.
    """
    if name in COMPARISONS:
        return import_module("dragoman_lab.comparisons").COMPARISONS[name].on(sentences)
    return import_module(f"dragoman_lab.{name.replace('-', '_')}").run


def perform(
    name: str, effort: Effort, folder: Path, sentences: Sentences | None = None, language: Language = "en"
) -> Result:
    """Run an experiment, and write its figures and tables into `folder`. No error is raised: a result has the message
    and, if it was not a DragomanError, the traceback. language: of texts and figures; files of tables are in English,
    for the programs that read them.
    """
    say = speaker(language, name)
    began = time.perf_counter()
    experiment = findings = None
    drawings: tuple[Drawing, ...] = ()
    files: tuple[str, ...] = ()
    error = trace = note = ""
    try:
        experiment = load(name, sentences).said(say)
        findings = experiment.run(effort)
        if len(effort.seeds) == 1 and str(effort) in findings.setting:
            note = f" {say('(one seed)')}"
        slugs = [f"{name}-{number}-{slug(title)}" for number, title in enumerate(findings.tables, 1)]
        files = tuple(map(partial(write_table, folder), slugs, findings.tables.values()))
        findings = findings.said(say)
        drawings = tuple(write_figure(folder, f"{name}-{key}", figure, say) for key, figure in findings.figures.items())
    except DragomanError as failure:
        error = str(failure)
    except Exception as failure:  # whatever it is, the other experiments still run
        error, trace = f"{type(failure).__name__}: {failure}", traceback.format_exc()
    seconds = time.perf_counter() - began
    return Result(name, seconds, experiment, findings, drawings, files, error, trace, language, note)


def write_figure(folder: Path, name: str, figure: Figure, say: Say = say_english) -> Drawing:
    """Draw a figure, its words as `say` says them, and write it as PNG and SVG to `folder`/figures. The same numbers
    give the same files.
    """
    plt = pyplot()
    file = f"figures/{name}"
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    # Numbers on logarithmic axes are formulas, and no text of these figures comes from users.
    with plt.rc_context({"svg.hashsalt": "dragoman", "text.parse_math": True}):
        drawn = plt.figure(figsize=figure.size, layout="constrained")
        try:
            figure.draw(drawn)
            say_words(drawn, say)
            drawn.savefig(folder / f"{file}.png", dpi=DOTS)
            drawn.savefig(folder / f"{file}.svg", metadata={"Date": None})
        finally:
            plt.close(drawn)
    data = base64.b64encode((folder / f"{file}.png").read_bytes()).decode()
    return Drawing(file, figure.caption, f"data:image/png;base64,{data}")


def say_words(drawn: Any, say: Say) -> None:
    """Replace the words of a matplotlib figure, none of which come from users, by what `say` says."""
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_text() for label in axis.get_ticklabels()]
            if any(say(label) != label for label in labels):  # an axis would write its own labels again
                axis.set_ticks(axis.get_ticklocs(), [say(label) for label in labels])
    for text in drawn.findobj(lambda artist: hasattr(artist, "get_text")):
        text.set_text(say(text.get_text()))


def slug(title: str) -> str:
    """Return the title in lower-case letters, digits and hyphens, at most MAX_SLUG characters."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower())[:MAX_SLUG].strip("-")


def write_table(folder: Path, name: str, table: Table) -> str:
    """Write a table as CSV with all digits to `folder`/tables; return the path of the file within `folder`."""
    file = f"tables/{name}.csv"
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.columns, *table.rows])
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text.getvalue(), encoding="utf-8")
    return file


def cell_text(cell: Cell, say: Say = say_english) -> str:
    """Return a cell as text for the page: floats with four significant digits, those from 10^4 to 10^7 as whole numbers
    with commas; integers in full, with commas; yes or no for a bool, as `say` says it; text unchanged.
    """
    if isinstance(cell, str):
        return cell
    if isinstance(cell, BOOLS):
        return say("yes" if cell else "no")
    if isinstance(cell, Integral):
        return f"{cell:,}".replace("-", "−")
    if not math.isfinite(cell):
        return say("not a number") if math.isnan(cell) else "∞" if cell > 0 else "−∞"
    size = abs(cell)
    text = f"{cell:.4g}" if size < 1e4 or size >= 1e7 else f"{cell:,.0f}"
    return re.sub(r"e([+-])0*(\d+)", r" × 10^\1\2", text).replace("^+", "^").replace("-", "−")


def repeating_command(result: Result, effort: Effort, quick: bool, sentences: Sentences | None = None) -> str:
    """Return the shell command that runs an experiment again with the same settings. sentences: those of a
    comparison.
    """
    seeds = " ".join(map(str, effort.seeds))
    files = f" {sentences.flags()}" if sentences and result.name in COMPARISONS else ""  # which resumes the same runs
    language = f" --language {result.language}" if result.language != "en" else ""
    return f"dragoman lab {result.name}{files}{' --quick' if quick else ''} --seeds {seeds}{language}"


def write_report(
    folder: Path,
    results: Sequence[Result],
    effort: Effort,
    quick: bool,
    sentences: Sentences | None = None,
    language: Language = "en",
) -> Path:
    """Write `folder`/report.html, one page that needs no network, with all of `results` in their order; return its
    path. language: that of the results.
    """
    say = speaker(language)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    total = sum(result.seconds for result in results)
    values: dict[str, Any] = {
        "version": __version__,
        "machine": say(describe_machine()),
        "date": datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %z"),
        "language": language,
        "say": say,
        "effort": effort,
        "quick": quick,
        "results": results,
        "total": total,
        "share": lambda result: round(100 * result.seconds / total) if total else 0,
        "purposes": {name: say(purpose) for name, purpose in (EXPERIMENTS | COMPARISONS).items()},
        "cell_text": partial(cell_text, say=say),
        "numeric": lambda cell: isinstance(cell, Real) and not isinstance(cell, BOOLS),
        "duration": lambda seconds: say(format_duration(seconds)),
        "command": lambda result: repeating_command(result, effort, quick, sentences),
    }
    page = folder / "report.html"
    replace_file(page, environment.get_template("report.html").render(values), shared=True)
    return page
