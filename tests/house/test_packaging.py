"""The wheel has every file that the packages read."""

import tomllib
from pathlib import Path

import pytest

import dragoman
import dragoman_lab

PACKAGES = [Path(package.__path__[0]) for package in (dragoman, dragoman_lab)]
PROJECT = PACKAGES[0].parents[1] / "pyproject.toml"
NOT_READ = {"README.md"}  # maps of the code
COMPILED = {".py", ".so"}  # modules, and what is compiled from the .cpp

each_package = pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)


def left_out(package: Path, globs: list[str]) -> set[str]:
    """The files of a package that setuptools would leave out: no modules, and matched by no glob."""
    packed = {file for glob in globs for file in package.glob(glob)}
    files = {file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts}
    return {file.relative_to(package).as_posix() for file in files - packed if file.suffix not in COMPILED} - NOT_READ


@each_package
def test_package_data_names_every_file_that_is_no_module(package: Path):
    data = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]
    globs = data[package.name]
    assert left_out(package, globs) == set()
    for glob in globs:  # the controls
        assert left_out(package, [other for other in globs if other != glob])


@each_package
def test_folders_with_modules_are_packages(package: Path):
    folders = {file.parent for file in package.rglob("*.py")}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_packages_are_all_tested_here():
    assert {file.parent for file in PACKAGES[0].parent.glob("*/__init__.py")} == set(PACKAGES)
