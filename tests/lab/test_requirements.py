"""The page of what is built: each row has code, tests and something to see, and all that it names exists."""

import ast
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from test_course import unknown
from test_lab_claims import TRAIN_LONGEST

from dragoman.cli import command_module
from dragoman.commands import parse
from dragoman.errors import UsageError
from dragoman_lab import EXPERIMENTS

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src", ROOT / "tests"
PAGE = (ROOT / "docs" / "course" / "requirements.md").read_text(encoding="utf-8")
NOTES = (ROOT / "docs" / "course" / "notes.md").read_text(encoding="utf-8")
COUNTS = {"A": 9, "B": 20, "C": 6, "D": 12, "E": 8, "F": 10, "G": 8, "H": 10, "I": 3, "J": 5, "K": 3}


@dataclass(frozen=True)
class Row:
    """A row of the page, its cells as they stand there."""

    id: str
    what: str
    code: str
    tests: str
    see: str


def rows(page: str) -> list[Row]:
    cells = [re.split(r"(?<!\\)\|", line.strip("|")) for line in page.splitlines() if re.match(r"\| [A-Z]\d", line)]
    return [Row(*map(str.strip, row)) for row in cells]


@cache
def read(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


@cache
def functions(file: str) -> set[str]:
    """Return the names of the functions of a test file, wherever it lies below tests/."""
    bodies = (ast.parse(read(path)).body for path in TESTS.rglob(file))
    return {node.name for body in bodies for node in body if isinstance(node, ast.FunctionDef)}


def missing_code(cell: str) -> list[str]:
    """Return the files that are not in the package, and the names that their file does not have."""
    missing, file = [], SOURCE / "none.py"
    for name in re.findall("`([^`]+)`", cell):
        if name.endswith(".py"):
            file = SOURCE / name if name.startswith("dragoman_lab/") else SOURCE / "dragoman" / name
        if not (file.exists() if name.endswith(".py") else re.search(rf"\b{name}\b", read(file))):
            missing.append(name)
    return missing


def missing_tests(cell: str) -> list[str]:
    """Return the tests that are not there. Those of a parameter are of an experiment."""
    missing = []
    for name in re.findall("`([^`]+)`", cell):
        match = re.fullmatch(r"(test_\w+\.py)::(test_\w+)(?:\[([a-z-]+)\])?", name)
        if not match or match[2] not in functions(match[1]) or (match[3] or "order") not in EXPERIMENTS:
            missing.append(name)
    return missing


def wrong_commands(page: str) -> list[str]:
    """Return the commands that have no such flag or value, and the experiments that the lab does not have."""
    wrong = unknown(" ".join(re.findall("`dragoman lab [^`]*`", page)))
    for line in dict.fromkeys(re.findall("`dragoman ([^`]+)`", page)):
        command, *arguments = shlex.split(line)
        try:
            module = command_module(command)
            start = module.defaults(arguments) if command == "train" else None
            parse(module.Options, command, arguments, start)
        except (UsageError, ModuleNotFoundError):
            wrong.append(line)
    return wrong


def test_requirements_have_a_full_row_each():
    assert [row.id for row in rows(PAGE)] == [f"{a}{n}" for a, count in COUNTS.items() for n in range(1, count + 1)]
    for row in rows(PAGE):
        assert row.what, row.id
        assert "`" in row.code or "](" in row.code, row.id
        assert "`" in row.tests, row.id
        assert "`dragoman" in row.see or "](" in row.see, row.id


@pytest.mark.parametrize("row", rows(PAGE), ids=lambda row: row.id)
def test_code_and_the_tests_of_a_row_exist(row: Row):
    assert missing_code(row.code) + missing_tests(row.tests) == []


def rows_of_notes() -> list[list[str]]:
    """Return the cells of each row of the page of the notes."""
    lines = re.findall(r"^\| (?!what the note has|---)(.+) \|$", NOTES.replace("|---", "| ---"), re.MULTILINE)
    return [line.split(" | ") for line in lines]


@cache
def slow_tests(file: str) -> set[str]:
    """Return the tests of a file that `make test` leaves out."""
    text = "\n".join(map(read, TESTS.rglob(file)))
    if re.search(r"^pytestmark = pytest\.mark\.slow", text, re.MULTILINE):
        return functions(file)
    marked = re.findall(r"^((?:@.*\n(?:(?:    .*|\)|\])\n)*)+)def (test_\w+)", text, re.MULTILINE)
    return {
        name for decorators, name in marked if "pytest.mark.slow" in decorators and "pytest.param" not in decorators
    }


def always_run(cell: str) -> list[bool]:
    """Return for each test that a cell names whether `make test` runs it."""
    named = re.findall(r"`(\w+\.py)::(test_\w+)(?:\[([a-z-]+)\])?`", cell)
    return [
        name not in slow_tests(file)
        and (name != "test_experiment_gives_numbers_and_verdicts" or parameter not in TRAIN_LONGEST)
        for file, name, parameter in named
    ]


def test_rows_of_the_notes_have_a_place_and_tests_always_run():
    found = rows_of_notes()
    assert len(found) > 100
    for what, place, tests in found:
        assert re.search(r"\]\((tour|slips)\.md#", place), what
        assert missing_tests(tests) == [], what
        assert always_run(tests), what
        assert all(always_run(tests)), what


def test_rows_have_a_test_that_is_always_run():
    assert [row.id for row in rows(PAGE) if not any(always_run(row.tests))] == []
    assert always_run("`test_lab_learns.py::test_relu_and_gelu_both_learn`") == [False]


def test_slow_tests_are_found():
    assert slow_tests("test_lab_learns.py") == functions("test_lab_learns.py")
    assert "test_lab_of_the_course_runs_as_written" in slow_tests("test_course_commands.py")


def test_commands_have_these_flags_and_values():
    assert wrong_commands(PAGE) == []


def test_missing_code_tests_and_commands_would_be_found():
    code = "`model/attention.py`, `causal_mask`, `moon`, `model/moon.py`, `dragoman_lab/order.py`, `causal_mask`"
    assert missing_code(code) == ["moon", "model/moon.py", "causal_mask"]
    known = "test_attention.py::test_additive_attention_equals_a_triple_loop"
    tests = [known, f"{known}[sun]", "test_moon.py::test_it", "test_learns.py::test_it", "test_it"]
    assert missing_tests(" ".join(f"`{name}`" for name in tests)) == tests[1:]
    commands = ["demo --task sort", "demo --task sun", "lab masks", "lab sun", "shine", "info --moon"]
    found = wrong_commands(" ".join(f"`dragoman {line}`" for line in commands))
    assert found == ["sun", "demo --task sun", "shine", "info --moon"]
