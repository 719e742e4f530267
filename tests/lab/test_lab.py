"""The lab: what is run, what is written, and the page, opened in a real browser."""

import base64
import csv
import io
import itertools
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageStat
from test_page import luminance, stands_out

import dragoman_lab
from dragoman.cli import ELSEWHERE
from dragoman.errors import DragomanError
from dragoman.inspection.figure import pyplot
from dragoman_lab import COMPARISONS, EXPERIMENTS, SECTIONS, speaker
from dragoman_lab.experiment import Effort, Experiment, Figure, Findings, Table
from dragoman_lab.report import Result, cell_text, perform, write_figure, write_report

TINY = Effort((7,), 0.02)
THIRD = 1 / 3
SOURCE = str(Path(__file__).parents[2] / "src")


def draw(figure: Any) -> None:
    figure.subplots().plot([1, 2], [3, 4])


def run_known(effort: Effort) -> Findings:
    """Two verdicts, one of each kind, and text that must not become markup."""
    rows = ((1, THIRD, True, "<b>a</b>"), (2, -1e-7, False, "b, c"), (3, float("inf"), np.bool_(True), "d"))
    return Findings(
        f"{effort}, {effort.scale(100)} steps",
        CLAIMS,
        {"The table: of <numbers>": Table("n | share | yes? | text", rows)},
        {"line": Figure("A caption with <angles>.", draw), "other-line": Figure("Another.", draw)},
    )


def run_wrong(effort: Effort) -> Findings:
    raise ValueError("too many\ncooks")


def run_refused(effort: Effort) -> Findings:
    raise DragomanError("there is no soup")


def run_undrawable(effort: Effort) -> Findings:
    return Findings("s", CLAIMS, figures={"broken": Figure("c", lambda figure: 1 / 0)})


CLAIMS = {"A & B were [<seen>|missed].": True, "C was [seen|not seen].": False}
MADE_UP: dict[str, Callable[[Effort], Findings]] = {
    "known": run_known,
    "wrong": run_wrong,
    "refused": run_refused,
    "undrawable": run_undrawable,
}


def make_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four more experiments, and one whose module cannot even be loaded."""
    for name, run in MADE_UP.items():
        module = ModuleType(name)
        module.run = Experiment(f"Title of {name}", "section <000>", "Claim.", run)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, f"dragoman_lab.{name}", module)
        monkeypatch.setitem(EXPERIMENTS, name, f"about {name}")
    monkeypatch.setitem(EXPERIMENTS, "not-written", "about nothing")


@pytest.fixture
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    make_up(monkeypatch)


made_up = pytest.mark.usefixtures("_made_up")


# The experiments.


def listed(page: str) -> dict[str, str]:
    """Return the rows of a page's tables whose first cell names an experiment or a comparison."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| ([^|]*) \|$", page, flags=re.MULTILINE)
    return {name: purpose for name, purpose in rows if name in EXPERIMENTS | COMPARISONS}


@pytest.mark.parametrize(
    ("language", "page", "word"), [("en", "lab.md", "Gray code"), ("ko", "lab.ko.md", "그레이 부호")]
)
def test_docs_list_what_the_command_lists(language: Any, page: str, word: str):
    text = (Path(__file__).parents[2] / "docs" / "course" / page).read_text(encoding="utf-8")
    purposes = {name: speaker(language)(purpose) for name, purpose in (EXPERIMENTS | COMPARISONS).items()}
    assert listed(text) == purposes
    assert listed(text.replace(word, "another")) != purposes


@pytest.mark.parametrize("name", ["Loss", "a b", "a/b", ""])
def test_figure_has_a_name_that_is_fit_for_a_file(name: str):
    with pytest.raises(ValueError, match=f"figure '{name}'"):
        Findings("s", {}, figures={name: Figure("c", draw)})


def test_row_of_a_table_has_a_cell_for_each_column():
    with pytest.raises(ValueError, match="table 'word, number': 2 cells under 1 columns"):
        Table("word, number", [("a", 1)])


def test_lab_modules_are_experiments_with_a_name():
    """Except what they share, and the command."""
    modules = {file.stem.replace("_", "-") for file in Path(dragoman_lab.__path__[0]).glob("*.py")}
    shared = {"--init--", "experiment", "tasks", "reversal-setup", "drawing", "report", "command", "ablation", "layers"}
    assert modules - shared - {"comparing", "comparisons"} <= set(EXPERIMENTS)


# Running one.


@made_up
def test_experiment_becomes_files_that_the_same_numbers_give_again(tmp_path: Path):
    result, again = (perform("known", TINY, tmp_path / folder) for folder in ("a", "b"))
    assert (result.error, result.tally) == ("", "1 of 2 claims hold")
    assert str(result) == "known: 1 of 2 claims hold. Claimed: C was seen. Found: C was not seen. (one seed)"
    figures = {f"figures/known-{name}.{suffix}" for name in ("line", "other-line") for suffix in ("png", "svg")}
    assert result.files == again.files == ("tables/known-1-the-table-of-numbers.csv",)
    written = [
        {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "a", tmp_path / "b")
    ]
    assert written[0] == written[1]
    assert set(written[0]) == {*figures, *result.files}
    first = result.drawings[0].file
    assert base64.b64decode(result.drawings[0].data.split(",")[1]) == written[0][f"{first}.png"]
    assert written[0][f"{first}.svg"].startswith(b"<?xml")
    rows = list(csv.reader(written[0][result.files[0]].decode().splitlines()))
    assert rows[0] == ["n", "share", "yes?", "text"]
    assert [float(row[1]) for row in rows[1:]] == [THIRD, -1e-7, float("inf")]  # all digits
    assert rows[2][3] == "b, c"
    assert float(cell_text(THIRD)) != THIRD  # the page has fewer


def test_numbers_on_a_logarithmic_axis_are_drawn_as_formulas(tmp_path: Path):
    """As 10 to the power of 3, not as the signs that say so. Elsewhere a dollar sign stays one: the control."""
    formulas: list[bool] = []

    def draw_log(figure: Any) -> None:
        axes = figure.subplots()
        axes.loglog([1, 1e3], [1, 1e6])
        formulas.extend(label.get_parse_math() for label in axes.get_xticklabels())

    write_figure(tmp_path, "made-up-log", Figure("c", draw_log))
    assert formulas
    assert all(formulas)
    plt = pyplot()
    plain = plt.figure()
    draw_log(plain)
    plt.close(plain)
    assert not all(formulas)


@made_up
@pytest.mark.parametrize(
    ("name", "error", "traced"),
    [
        ("wrong", "ValueError: too many\ncooks", True),
        ("refused", "there is no soup", False),
        ("undrawable", "ZeroDivisionError: division by zero", True),
        ("not-written", "ModuleNotFoundError: No module named 'dragoman_lab.not_written'", True),
    ],
)
def test_experiment_that_fails_says_why(tmp_path: Path, name: str, error: str, traced: bool):
    result = perform(name, TINY, tmp_path)
    assert (result.error, result.tally) == (error, "failed")
    assert bool(result.trace) == traced
    page = write_report(tmp_path, [result], TINY, quick=True).read_text()
    assert "✗ failed" in page
    assert (f"Title of {name}" in page) == (name in MADE_UP)


def test_interrupt_stops_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C is no failed experiment."""

    def stopped(effort: Effort) -> Findings:
        raise KeyboardInterrupt

    module = ModuleType("stopped")
    module.run = Experiment("t", "s", "c", stopped)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dragoman_lab.stopped", module)
    with pytest.raises(KeyboardInterrupt):
        perform("stopped", TINY, tmp_path)


# The page.


@made_up
def test_page_says_what_was_done(tmp_path: Path):
    results = [perform(name, Effort((3, 4), 0.25), tmp_path) for name in ("known", "wrong")]
    page = write_report(tmp_path, results, Effort((3, 4), 0.25), quick=True).read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    for words in [
        "quick: 25 % of the steps and draws, seeds 3, 4",
        "cores, torch",
        "dragoman lab known --quick --seeds 3 4",
        "✓ holds: A &amp; B were &lt;seen&gt;. A &amp; B were &lt;seen&gt;.",
        "✗ does not hold: C was seen. C was not seen.",
        "section &lt;000&gt;",
        "seeds 3, 4, 25 steps",
        "0.3333",
        "−1 × 10^−7",
        "∞",
        "ValueError: too many cooks",
        "2 experiments",
    ]:
        assert words in text, words
    assert "<b>a</b>" not in page
    assert page.count('src="data:image/png;base64,') == 2
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", page)
    shares = [int(share) for share in re.findall(r">(\d+) %</td>", page)]
    assert len(shares) == 2
    assert abs(sum(shares) - 100) <= 1


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (0, "0"),
        (-1234567, "−1,234,567"),
        (True, "yes"),
        (np.bool_(False), "no"),
        (np.int64(4096), "4,096"),
        (0.98661429815, "0.9866"),
        (np.float64(0.5), "0.5"),
        (63_045_632.0, "6.305 × 10^7"),
        (12345.6, "12,346"),
        (1.7469e-7, "1.747 × 10^−7"),
        (-0.25, "−0.25"),
        (float("nan"), "not a number"),
        (-float("inf"), "−∞"),
        ("as it is", "as it is"),
    ],
)
def test_numbers_on_the_page_are_rounded(cell, text: str):
    assert cell_text(cell) == text


# The command.


def test_lab_without_a_name_lists_the_experiments(dragoman):
    code, out, err = dragoman("lab")
    assert (code, err) == (0, "")
    listed = [line.split(None, 1) for line in out.splitlines() if line.startswith("  ")]
    assert listed == [[*pair] for pair in (EXPERIMENTS | COMPARISONS).items()]
    titles = [line for line in out.splitlines() if line and not line.startswith(" ")]
    assert titles[:-1] == list(SECTIONS)
    assert "--train" in titles[-1]


def test_list_comes_at_once():
    """Without torch, in twice the processor time of the libraries that read flags and print, at most; best of three."""
    code = "import sys; from dragoman.cli import main; main(['lab']); assert 'torch' not in sys.modules"
    environment = {**os.environ, "PYTHONPATH": SOURCE}

    def spent(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert any(spent(code) < 2 * spent("import tyro, rich.console") for _ in range(3))


def test_command_says_that_its_package_is_missing(dragoman, monkeypatch: pytest.MonkeyPatch):
    """The control: a module that is missing in the package is a fault, and is shown as one."""
    monkeypatch.setitem(sys.modules, "dragoman_lab.command", None)
    with pytest.raises(ModuleNotFoundError):
        dragoman("lab")
    monkeypatch.setitem(ELSEWHERE, "lab", "missing_lab.command")
    code, out, err = dragoman("lab")
    assert (code, out) == (1, "")
    assert err == "dragoman: 'dragoman lab' needs the package missing_lab, which is not installed\n"


@made_up
def test_command_tells_each_verdict_and_writes_the_page(dragoman):
    code, out, err = dragoman("lab", "known", "known", "--quick", "--seeds", 5, 6)
    assert (code, out) == (0, "known: 1 of 2 claims hold. Claimed: C was seen. Found: C was not seen.\n")
    assert "1/1 known: about known\n" in err
    assert err.endswith("report: lab/report.html\n")
    page = Path("lab/report.html").read_text()
    assert "seeds 5, 6, 25 steps" in page
    assert page.count("Title of known</h2>") == 1
    assert not [*Path("lab").glob("*.tmp"), *Path("lab").glob(".*.draft")]


@made_up
@pytest.mark.parametrize(("flags", "effort"), [((), "seeds 1, 2, 3, 100 steps"), (("--quick",), "seed 1, 25 steps")])
def test_failed_experiment_does_not_lose_the_others(dragoman, flags: tuple[str, ...], effort: str):
    code, out, err = dragoman("lab", "wrong", "known", "refused", "--out", "new/folder", *flags)
    assert code == 1
    assert [line.split(":")[0] for line in out.splitlines()] == ["wrong", "known", "refused"]  # in the given order
    assert "dragoman: 2 of 3 experiments failed: wrong, refused; see new/folder/report.html" in err
    page = Path("new/folder/report.html").read_text()
    assert "✓ holds:" in page
    assert page.count("✗ failed:") == 2
    assert effort in page


def test_lab_all_performs_every_experiment(dragoman, monkeypatch: pytest.MonkeyPatch):
    run: list[str] = []
    monkeypatch.setattr("dragoman_lab.report.perform", lambda name, *_: run.append(name) or Result(name, 0.1))
    code, _, _ = dragoman("lab", "all", "--quick")
    assert (code, run) == (0, list(EXPERIMENTS))


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("maks", 2, "no experiment 'maks'; did you mean 'masks'?"),
        ("table_3", 2, "did you mean 'table-3'?"),
        ("masks al", 2, "did you mean 'all'?"),
        ("zzzzzz", 2, "no experiment 'zzzzzz'; 'dragoman lab' lists them"),
        ("compare-hads --quick", 2, "did you mean 'compare-heads'?"),
        (
            "compare-heads --train a.tsv",
            2,
            "compare-heads trains on your own sentence pairs: give them with --dev, --test",
        ),
        ("masks --train a.tsv", 2, "only comparisons train on your own sentence pairs"),
        ("compare-heads --train file --dev nowhere.tsv --test file", 1, "nowhere.tsv: no such file"),
        ("masks --seeds -1", 2, "seeds must be at least 0"),
        ("masks --out file", 1, "file: "),
        ("masks --out file/below", 1, "file"),
    ],
)
def test_plot_answers_a_wrong_request_in_one_clear_line(dragoman, line: str, code: int, words: str):
    Path("file").touch()
    found, out, err = dragoman("lab", *line.split())
    assert (found, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1


# In a browser.


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with an experiment of ours, one that failed, and one with a table wider than a phone."""
    folder = tmp_path_factory.mktemp("lab")
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_up(monkeypatch)
        results = [perform(name, TINY, folder) for name in ("known", "table-3", "wrong")]
        return write_report(folder, results, TINY, quick=True).read_text(encoding="utf-8")


def test_page_opens_without_a_network(open_page, page: str):
    """And without a message: the fixture sees to it."""
    widths = open_page(page).evaluate("[...document.images].map(image => image.naturalWidth)")
    assert len(widths) == 4
    assert min(widths) > 300


def test_page_itself_forbids_requests(chromium: Any, page: str, tmp_path: Path):
    """Whatever a text might bring in: the browser is told to fetch nothing."""
    (tmp_path / "page.html").write_text(page.replace("</main>", '<img src="http://127.0.0.1:9/x.png"></main>'))
    tab, complaints = chromium.new_page(), []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.goto((tmp_path / "page.html").as_uri())
    tab.close()
    assert any("Content Security Policy" in complaint for complaint in complaints)


@pytest.mark.parametrize("dark", [False, True])
def test_words_stand_out_in_light_and_in_dark(open_page, page: str, dark: bool):
    """A contrast of 4.5, as the Web Content Accessibility Guidelines ask for, and figures on white."""
    tab = open_page(page, dark=dark)
    style = "selector => getComputedStyle(document.querySelector(selector))"
    stands_out(tab, dark, "main", "main a, a", ".faint", ".holds .mark", "tr:not(.holds) .mark", ".failed")
    assert tab.evaluate(f"({style})('figure img').backgroundColor") == "rgb(255, 255, 255)"
    shot = Image.open(io.BytesIO(tab.screenshot())).convert("L")
    assert ImageStat.Stat(shot).stddev[0] > 10  # not blank
    assert (ImageStat.Stat(shot).mean[0] < 80) == dark


def test_luminance_gives_the_contrast_of_the_guidelines():
    grey, white = luminance("rgb(118, 118, 118)"), luminance("rgb(255, 255, 255)")
    assert (white + 0.05) / (grey + 0.05) == pytest.approx(4.54, abs=0.01)


def test_phone_shows_the_page_without_moving_it_sideways(open_page, page: str):
    tab = open_page(page, width=320)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    wide = tab.evaluate("[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)")
    assert wide  # tables move in boxes of their own


def test_page_can_be_read_without_a_mouse_and_without_eyes(open_page, page: str):
    tab = open_page(page)
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.className") == "skip"
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.activeElement.id") == "experiments"
    reached = set()
    for _ in range(12):
        tab.keyboard.press("Tab")
        reached.add(tab.evaluate("document.activeElement.className"))
    assert "scroll" in reached
    counts = tab.evaluate(
        """() => ({
            images: document.querySelectorAll("img:not([alt]), img[alt='']").length,
            described: [...document.querySelectorAll("img")].filter(
                image => !document.getElementById(image.getAttribute("aria-describedby"))?.textContent.trim()).length,
            boxes: document.querySelectorAll(".scroll:not([tabindex='0']), .scroll:not([role])").length,
            cells: document.querySelectorAll("th:not([scope])").length,
            captions: document.querySelectorAll("main table").length - document.querySelectorAll("caption").length,
            twice: [...document.querySelectorAll("[id]")].length - new Set([...document.querySelectorAll("[id]")]
                .map(element => element.id)).size,
            lost: [...document.querySelectorAll("a[href^='#']")].filter(
                link => !document.getElementById(link.getAttribute("href").slice(1))).length,
            levels: [...document.querySelectorAll("h1, h2, h3")].map(heading => +heading.tagName[1]),
        })"""
    )
    levels = counts.pop("levels")
    assert set(counts.values()) == {0}, counts
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
