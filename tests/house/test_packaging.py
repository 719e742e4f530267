"""The wheel has every file that the package reads."""

import tomllib
from pathlib import Path

import dragoman

PACKAGE = Path(dragoman.__file__).parent
PROJECT = PACKAGE.parents[1] / "pyproject.toml"
NOT_READ = {"README.md"}  # the map of the code


def left_out(globs: list[str]) -> set[str]:
    """The files of the package that setuptools would leave out: no modules, and matched by no glob."""
    packed = {file for glob in globs for file in PACKAGE.glob(glob)}
    files = {file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    return {file.relative_to(PACKAGE).as_posix() for file in files - packed if file.suffix != ".py"} - NOT_READ


def test_every_file_that_is_no_module_is_named():
    globs = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["dragoman"]
    assert left_out(globs) == set()
    for glob in globs:  # the controls
        assert left_out([other for other in globs if other != glob])


def test_every_folder_with_modules_is_a_package():
    folders = {file.parent for file in PACKAGE.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []
