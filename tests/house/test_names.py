"""Names say what they hold, and names of tests begin with their subject."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAY_NOTHING = frozenset("own one found every told rest of".split())
EXCEPTIONS = {  # fields of language-tags.json in model folders, and of `verify --json`
    ("src/dragoman/text/tags.py", "of"),
    ("src/dragoman/training/integrity.py", "found"),
}
BEGIN_NO_SUBJECT = frozenset(
    "of that what who where when with in after before only nothing no there if it on from by for all every each many "
    "several two both any some whatever how as".split()
)
WORDS = 12
COUNT = 0  # names of tests that are longer or begin with no subject; it may only go down


def read_files(folder: str) -> dict[str, str]:
    """Return the Python files in a folder of the repository."""
    files = sorted((ROOT / folder).rglob("*.py"))
    return {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}


@cache
def parse_files(folder: str) -> dict[str, ast.Module]:
    return {file: ast.parse(source) for file, source in read_files(folder).items()}


def names_given(tree: ast.AST) -> set[str]:
    """Return the names that a file gives to variables, parameters, attributes, imports, functions and classes."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.arg(arg=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
                | ast.alias(asname=str(name))
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                names.add(name)
    return names


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def begins_with_hold(tree: ast.AST) -> bool:
    return any(text.startswith("Hold") for text in docstrings(tree))


def is_well_named(test: str) -> bool:
    """Return whether the name of a test begins with its subject and has at most WORDS words."""
    words = test.split("_")[1:]
    return len(words) <= WORDS and words[0] not in BEGIN_NO_SUBJECT


def badly_named(source: str) -> list[str]:
    """Return the tests of a file whose names are not so."""
    return [
        name for name in re.findall(r"^ *(?:async )?def (test_\w+)", source, re.MULTILINE) if not is_well_named(name)
    ]


def test_names_in_the_source_say_what_they_hold():
    trees = parse_files("src") | parse_files("benchmarks")
    assert {(file, name) for file, tree in trees.items() for name in names_given(tree) & SAY_NOTHING} == EXCEPTIONS


@pytest.mark.parametrize(
    "line",
    [
        "one = 1",
        "self.own = 1",
        "found: int",
        "[found for found in ()]",
        "(found := 1)",
        "def f(every): ...",
        "def f(*rest): ...",
        "lambda told: told",
        "class Trial:\n    @classmethod\n    def of(cls): ...",
        "async def found(): ...",
        "import numpy as one",
        "with open('') as one: ...",
        "try: ...\nexcept OSError as told: ...",
        "match []:\n    case [_, *rest]: ...",
        "match {}:\n    case {**rest}: ...",
        "match 1:\n    case int() as one: ...",
    ],
)
def test_names_that_say_nothing_are_seen_control(line: str):
    assert names_given(ast.parse(line)) & SAY_NOTHING


def test_names_that_are_only_used_are_left_to_those_who_give_them():
    uses = ast.parse("own_one: str = 'one of the rest'  # every\nkeys = rest.of(found=1)")
    assert names_given(uses) == {"own_one", "keys"}


def test_docstrings_do_not_begin_with_hold():
    assert [file for file, tree in parse_files("src").items() if begins_with_hold(tree)] == []


@pytest.mark.parametrize("place", ["{}", "class Box:\n    {}", "def box():\n    {}", "async def box():\n    {}"])
def test_docstrings_that_begin_with_hold_are_seen_control(place: str):
    assert begins_with_hold(ast.parse(place.format('"""Hold what is in it."""')))
    assert not begins_with_hold(ast.parse(place.format('"""Say what others hold."""')))


def test_names_of_tests_begin_with_their_subject_and_are_short():
    names = {file: badly_named(source) for file, source in read_files("tests").items()}
    assert sum(map(len, names.values())) <= COUNT, {file: tests for file, tests in names.items() if tests}


@pytest.mark.parametrize("name", ["what_is_no_number_is_refused", "only_names", "figure" + "_word" * WORDS])
def test_names_of_tests_without_a_subject_are_seen_control(name: str):
    assert badly_named(f"class TestBox:\n    def test_{name}(self): ...") == [f"test_{name}"]
    assert not badly_named(f"def test_values_are_refused(): ...\ndef {name}(): ...")
    assert is_well_named("test_figure" + "_word" * (WORDS - 1))
