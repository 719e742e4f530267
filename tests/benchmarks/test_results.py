"""Results are files, and the page shows the newest of them."""

import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from benchmarks import __main__, page, results
from benchmarks.options import MEASUREMENTS
from benchmarks.page import PAGE, with_tables
from benchmarks.results import Result, keep, newest, read_results, read_tables
from dragoman.errors import UsageError

ROOT = PAGE.parents[1]
MACHINES = [row[0] for row in read_tables(PAGE.read_text(encoding="utf-8"))[0][1:]]
PRINTED = "Decoding.\nA machine.\n\n| | a | b |\n| --- | ---: | ---: |\n| x | 1,234 ± 2 % | – |\n\n- A note.\n"


def result(what: str = "speed", day: str = "2026-01-31", cell: str = "1") -> Result:
    return Result(what, "Zen 5", day, None, "python -m benchmarks speed", {"threads": 1}, ["", "speed"], [["a", cell]])


@pytest.mark.parametrize("kept", read_results(), ids=lambda kept: kept.file_name)
def test_result_file_has_its_fields(kept: Result):
    assert (results.FOLDER / kept.file_name).exists()
    assert date.fromisoformat(kept.date) <= date.today()
    assert kept.machine in MACHINES
    assert kept.command
    assert kept.rows
    assert {len(row) for row in kept.rows} == {len(kept.columns)}
    assert kept.commit is None or re.fullmatch("[0-9a-f]{40}", kept.commit)


def test_result_is_read_as_it_was_written(tmp_path: Path):
    written = [result(day="2026-02-01"), result()]
    for one in written:
        one.write(tmp_path)
    assert read_results(tmp_path) == written[::-1]
    with pytest.raises(UsageError, match="is there already"):
        written[0].write(tmp_path)


def test_newest_result_of_a_machine_replaces_older_ones():
    old, new, other = result(), result(day="2026-02-01"), replace(result(), machine="AMX")
    assert newest([old, other, new]) == {("Zen 5", "speed"): new, ("AMX", "speed"): other}


def test_page_has_the_tables_of_the_newest_results():
    """If this fails: python -m benchmarks page."""
    text = PAGE.read_text(encoding="utf-8")
    kept = newest(read_results())
    assert with_tables(text, kept) == text
    assert text.count("<!-- table: ") == len(re.findall(page.SPAN, text)) >= 4
    for key in (("Zen 5", "training-1-thread"), ("AMX", "quality-german-technical"), ("AVX2", "decoding-1-thread")):
        changed = replace(kept[key], rows=[[re.sub(r"\d", "7", cell) for cell in row] for row in kept[key].rows])
        assert with_tables(text, kept | {key: changed}) != text, key  # the control


def test_page_is_short():
    assert PAGE.read_text(encoding="utf-8").count("\n") <= 150


def test_tables_of_a_report_are_kept_with_what_was_said(tmp_path: Path):
    files = keep(PRINTED + PRINTED, "decoding", "Zen 5", ["decoding", "--threads", "1"], {"threads": 1}, tmp_path)
    second, first = read_results(tmp_path)
    assert [file.name for file in files] == [first.file_name, second.file_name]
    assert (first.what, second.what, first.machine) == ("decoding", "decoding-2", "Zen 5")
    assert (first.columns, first.rows) == (["", "a", "b"], [["x", "1,234 ± 2 %", "–"]])
    assert first.command == "python -m benchmarks decoding --threads 1"
    assert first.settings["threads"] == 1
    assert first.settings["printed"].startswith("Decoding. A machine. - A note.")


# The command line


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("decoding --batches 1 0", 2, "--batches must be above 0"),
        ("decoding --sentences -3", 2, "--sentences must be above 0"),
        ("training --seconds nan", 2, "--seconds must be above 0"),
        ("training --shapes", 2, "--shapes needs a value"),
        ("decoding --batches", 2, "--batches needs a value"),
        ("memory --threads 2000", 2, "--threads must be at most"),
        ("quality", 2, "quality needs --train, --dev, --test, --minutes, which this repository does not contain"),
        ("pipeline -m x", 2, "pipeline needs --test, which"),
        ("quality --train a.tsv --dev b.tsv --test c.tsv --minutes 1", 1, "a.tsv: no such file"),
        ("compare-exports a.tsv missing", 1, "missing: no such model folder"),
        ("speed", 2, "choose from training, quality, decoding,"),
        ("memory --keep x", 2, "--keep needs --machine"),
    ],
)
def test_measurement_that_cannot_run_says_so_in_a_sentence(
    line: str, code: int, says: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["benchmarks"])
    assert __main__.main(line.split()) == code
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"benchmarks: {says}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("name", [*MEASUREMENTS, *__main__.SCRIPTS])
def test_measurement_is_a_module(name: str):
    assert (ROOT / "benchmarks" / f"{name.replace('-', '_')}.py").exists()


def test_commands_on_the_pages_are_measurements():
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "Makefile"]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = set(re.findall(r"python -m benchmarks ([a-z0-9-]+)", text)) | set(
        re.findall(r"make benchmark-([a-z0-9-]+)", text)
    )
    assert len(named) > 10
    assert named <= {*MEASUREMENTS, *__main__.SCRIPTS}
