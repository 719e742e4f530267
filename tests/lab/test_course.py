"""The pages of docs/course: what they name exists, what they print is so, and their numbers are those of the lab."""

import contextlib
import csv
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from textwrap import dedent, indent
from xml.etree import ElementTree

import pytest
import torch

from dragoman_lab import COMPARISONS, EXPERIMENTS
from dragoman_lab.command import GROUPS

ROOT = Path(__file__).parents[2]
COURSE, SOURCE = ROOT / "docs" / "course", ROOT / "src"
TOURS, SLIPS = ("tour.md", "tour.ko.md"), ("slips.md", "slips.ko.md")
KOREAN = sorted(page.name for page in COURSE.glob("*.ko.md"))


def read(page: str) -> str:
    return (COURSE / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", SLIPS)
def test_slips_have_one_test_each_in_their_order(page: str):
    entries = re.split(r"^### \d+\. |^\| (?!slip |실수 |---)", read(page), flags=re.MULTILINE)[1:]
    named = [re.findall(r"`(test_\w+)`", entry) for entry in entries]
    code = (Path(__file__).parent / "test_slips.py").read_text(encoding="utf-8")
    tests = re.findall(r"^def (test_\w+)", code, re.MULTILINE)
    assert named == [[test] for test in tests]


def unknown(page: str) -> list[str]:
    """Return the files, names of code and experiments that a page has and the package does not."""
    code = "\n".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    named = re.findall(r"`((?!tests/)[a-z_]+/\w+\.py)`", page)
    files = [file for file in named if not any((SOURCE / room / file).exists() for room in ("", "dragoman"))]
    names = re.findall(r"`(?:\w+\.)?([A-Z]\w+[a-z]|[a-z]+_[a-z_]+)`", page)
    lost = [name for name in names if not name.startswith("test_") and not re.search(rf"\b{name}\b", code)]
    wanted = re.findall(r"(?:^    |`)dragoman lab((?: [a-z][a-z0-9-]*)*)", page, flags=re.MULTILINE)
    known = {*EXPERIMENTS, *COMPARISONS, *GROUPS}
    return files + lost + [name for names in wanted for name in names.split() if name not in known]


@pytest.mark.parametrize("page", [*TOURS, *SLIPS, "lab.md", "lab.ko.md"])
def test_pages_name_code_and_experiments_that_exist(page: str):
    assert unknown(read(page)) == []


def test_names_that_do_not_exist_would_be_found():
    page = "`model/moon.py`, `model/attention.py`, `Moonlight`, `Transformer.embed`, `full_moon`, `dragoman lab sun`"
    assert unknown(page) == ["model/moon.py", "Moonlight", "full_moon", "sun"]


def snippets(page: str) -> list[tuple[str, str]]:
    """Return the (Python, output) pairs of a page."""
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", read(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("code", "printed"), [snippet for page in TOURS for snippet in snippets(page)])
def test_python_on_the_tours_prints_what_stands_below_it(code: str, printed: str):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "tour", "exec"), {})
    torch.set_printoptions(profile="default")
    assert out.getvalue() == printed


def shared(page: str) -> list[list[str]]:
    """Return what every language has in common, by station: code and its output, commands, names, links, numbers."""
    text = re.sub(r"  # .*", "", read(page)).replace(".ko.", ".")
    text = re.sub(r"\]\(slips\.md#[^)]*\)", "](slips.md)", text)
    stations = re.split(r"^##+ (?=\d+\. )", text, flags=re.MULTILINE)
    parts = r"^```.*?^```$|`[^`\n]+`|^    dragoman \S+(?: \S+)*|\]\([^)]+\)|\d+(?:[.,]\d+)*(?:e[+-]\d+)?(?: %)?"
    return [sorted(re.findall(parts, station, re.MULTILINE | re.DOTALL)) for station in stations[1:]]


@pytest.mark.parametrize("pages", [TOURS, SLIPS])
def test_course_pages_have_the_same_stations_commands_and_numbers_in_both_languages(pages: tuple[str, str]):
    english, korean = map(shared, pages)
    for one, other in zip(english, korean, strict=True):
        assert one == other


def test_tour_snippets_have_their_output_below_them():
    assert all(len(snippets(page)) == read(page).count("```python") > 0 for page in TOURS)


def stops(page: str) -> list[str]:
    """Return the text of each stop of a tour."""
    text = re.sub(r"\n## (?!\d).*", "", read(page), flags=re.DOTALL)
    return re.split(r"^## (?=\d+\. )", text, flags=re.MULTILINE)[1:]


def lost_excerpts(stop: str) -> list[str]:
    """Return the lines of code (```py) at a stop that none of the files linked there has as they stand."""
    files = [(COURSE / link).read_text(encoding="utf-8") for link in re.findall(r"\]\(([./]+src/[\w/]+\.py)\)", stop)]
    excerpts = re.findall(r"^```py\n(.*?)^```$", stop, re.MULTILINE | re.DOTALL)
    steps = [indent(excerpt, " " * depth) for excerpt in excerpts for depth in range(0, 16, 4)]
    there = {dedent(step) for step in steps if any(f"\n{step}" in file for file in files)}
    return [excerpt for excerpt in excerpts if excerpt not in there]


@pytest.mark.parametrize("page", TOURS)
def test_stops_show_the_code_as_it_stands(page: str):
    assert [lost_excerpts(stop) for stop in stops(page)] == [[]] * 19
    assert all("```py\n" in stop for stop in stops(page))
    assert lost_excerpts(stops(page)[0].replace("for now, alive", "for alive, now")) != []


@pytest.mark.parametrize("page", TOURS)
def test_stops_have_a_picture_and_a_question_with_a_folded_answer(page: str):
    idea, question = (
        r"^!\[[^]]+\]\(([^)]+)\)$",
        r"^\*\*(?:Predict|예상).*?^<details><summary>(?:Answer|답)</summary>\n\n",
    )
    for stop in stops(page):
        pictures = re.findall(idea, stop.partition("\n**Co" if page == "tour.md" else "\n**코드")[0], re.MULTILINE)
        assert pictures, stop
        assert all((COURSE / picture).is_file() for picture in pictures), stop
        assert len(re.findall(question, stop, re.MULTILINE | re.DOTALL)) == 1, stop
        assert stop.count("<details>") == stop.count("</details>") <= 2, stop


def drawn(name: str) -> list[str]:
    """Return the texts of a drawing, in their order."""
    root = ElementTree.parse(COURSE / "images" / f"{name}.svg").getroot()
    return ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]


def test_drawings_agree_with_the_formulas():
    tokens = drawn("shift")[3:]
    labels, target = tokens[:4], tokens[4:]
    assert target[1:] == labels[:-1]
    assert (target[0], labels[-1]) == ("<s>", "</s>")
    smoothing, words = 0.1, 5
    shares = [float(text) for text in drawn("label-smoothing") if re.fullmatch(r"0\.\d+", text)]
    assert shares == pytest.approx([1 - smoothing + smoothing / words, *[smoothing / words] * (words - 1)])
    assert f"ε = {smoothing},  words = {words}" in "".join(drawn("label-smoothing"))
    beam = drawn("beam")
    products = [tuple(map(float, re.findall(r"\d\.\d+", text))) for text in beam if "×" in text]
    assert [first * second for first, second, _ in products] == pytest.approx([product for *_, product in products])
    first_step, second_step = map(float, beam[:2]), map(float, beam[2:5])
    assert set(first_step) == {first for first, *_ in products}
    assert list(second_step) == [second for _, second, _ in products]


def compare(course: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts" / "course_numbers.py", "--course", course]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_numbers_on_the_pages_are_those_of_the_lab():
    assert (compare(COURSE).stdout, compare(COURSE).returncode) == ("all numbers agree\n", 0)


@pytest.mark.parametrize(
    ("page", "old", "new", "complaint"),
    [
        ("tour.md", "1.895", "1.896", "tour.md, 5: 1.896 has no source"),
        ("tour.ko.md", "99.4 %", "99 %", "(residuals-4; layer: x + f(x); layers: 12; accuracy): not on tour.ko.md"),
        ("slips.md", "0.8262", "0.8263", "form: not divided; 1): not on slips.md"),
        ("slips.ko.md", "1.953", "1.954", "not on slips.ko.md"),
        ("numbers.md", "| 1.8e+08 |", "| 1.7e+08 |", "the table has 1.76917e+08"),
        ("numbers.md", "activations-2", "activations-3", "0 tables activations-3"),
        ("numbers.md", "gain: 2.0", "gain: 5.0", "no row activation: relu; gain: 5.0"),
        ("numbers.md", "smallest times", "smallest moons", "no column moons self-attention"),
        ("numbers.md", "largest times", "time's", "no column time's self-attention"),
        ("tour.md", "the note", "the notes", "all numbers agree"),
    ],
)
def test_number_that_differs_would_be_found(tmp_path: Path, page: str, old: str, new: str, complaint: str):
    shutil.copytree(COURSE, tmp_path / "course", ignore=shutil.ignore_patterns("images"))
    changed = tmp_path / "course" / page
    assert old in read(page)
    changed.write_text(read(page).replace(old, new), encoding="utf-8")
    assert complaint in compare(tmp_path / "course").stdout


def scores_in(page: str) -> dict[str, list[str]]:
    """Return the scores with a spread in the table of comparisons of a page, given as its text, by comparison."""
    rows = re.findall(r"^\| `(compare-[\w-]+)` \| ([^|]*) \|", page, re.MULTILINE)
    return {name: found for name, cell in rows if (found := re.findall(r"\d+\.\d ± \d+\.\d", cell))}


def scores_in_results() -> dict[str, list[str]]:
    """Return the mean BLEU of each variant and its standard deviation over the runs in docs/course/results."""
    scores: dict[str, list[str]] = {}
    for file in sorted((COURSE / "results").glob("compare-*-1-each-run-*.csv")):
        runs: dict[str, list[float]] = {}
        with file.open(encoding="utf-8", newline="") as opened:
            for row in csv.DictReader(opened):
                runs.setdefault(row["variant"], []).append(float(row["BLEU"]))
        assert {len(bleu) for bleu in runs.values()} == {3}
        scores[file.name.split("-1-each-run")[0]] = [f"{fmean(bleu):.1f} ± {stdev(bleu):.1f}" for bleu in runs.values()]
    return scores


@pytest.mark.parametrize("page", ["lab.md", "lab.ko.md"])
def test_scores_of_comparisons_are_those_of_their_runs(page: str):
    text, scores = read(page), scores_in_results()
    assert scores_in(text) == scores != {}
    assert scores_in(text.replace(scores["compare-heads"][1], "19.3 ± 0.4")) != scores
    assert set(scores) <= set(COMPARISONS)


def adopted(folder: Path, table: str, row: str, column: str, value: str) -> tuple[dict[str, str], str]:
    """Take over a run that has another value in one cell; return the tours and what was printed.

    row: what one of its cells contains.
    """
    course, tables = folder / "course", folder / "run" / "tables"
    shutil.copytree(COURSE, course, ignore=shutil.ignore_patterns("images"))
    shutil.copytree(COURSE / "results", tables)
    (file,) = tables.glob(f"{table}-*.csv")
    with file.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    (changed,) = (each for each in rows if row in each.values())
    changed[column] = value
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, changed)
        writer.writeheader()
        writer.writerows(rows)
    command = [sys.executable, ROOT / "scripts" / "course_numbers.py", "--course", course, "--keep", folder / "run"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    return {page: (course / page).read_text(encoding="utf-8") for page in TOURS}, ran.stdout


def test_fresh_run_brings_its_numbers_onto_the_pages(tmp_path: Path):
    tours, told = adopted(tmp_path, "sinusoids-4", "5", "distance from", "1234.56789")
    for page, text in tours.items():  # what a snippet prints stays
        printed, result = read(page).rsplit("11.5242", 1)
        assert text == f"{printed}1,234.5679{result}"
    assert told == "8: 11.5242 (sinusoids-4; offset: 5; distance from): 1,234.5679\nall numbers agree\n"


def test_number_that_stands_for_two_things_is_left_if_they_differ(tmp_path: Path):
    """All rows of the table have norm 16.0: its shortest and its longest."""
    tours, told = adopted(tmp_path, "sinusoids-3", "512", "shortest row", "15.0")
    assert tours == {page: read(page) for page in TOURS}
    assert told == "8: 16.0 (sinusoids-3; numbers: 512; shortest row): the table has 15\n"
