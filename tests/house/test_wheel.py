"""The wheel works outside the checkout, beside nothing but the base dependencies."""

import os
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from dragoman.cli import COMMANDS

ROOT = Path(__file__).parents[2]
BASE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
HELP = """
import importlib.util, sys, tyro
from dragoman.cli import COMMANDS, main
for command in COMMANDS:
    try:
        main([command, "--help"])
    except SystemExit as stop:
        assert not stop.code, command
    print("help of", command)
assert not importlib.util.find_spec("matplotlib") and not importlib.util.find_spec("transformers")
"""


def with_dependencies(names: list[str]) -> dict[str, Distribution]:
    """Return the installed packages that some requirements need, by name."""
    packages: dict[str, Distribution] = {}
    wanted = [Requirement(name) for name in names]
    while wanted:
        requirement = wanted.pop()
        name = requirement.name.lower().replace("_", "-")
        needed = not requirement.marker or any(
            requirement.marker.evaluate({"extra": extra}) for extra in (*requirement.extras, "")
        )
        if needed and name not in packages:
            try:
                packages[name] = distribution(name)
            except PackageNotFoundError:
                pytest.skip(f"{name} is not installed")
            wanted += map(Requirement, packages[name].requires or [])
    return packages


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with the wheel, and links to its base dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    source, built = folder / "source", folder / "built"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    flags = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *flags, "--wheel-dir", built, source],
        check=True,
        env={**os.environ, "CXXFLAGS": "-O0"},  # compiles in no time
    )
    venv.create(folder / "venv", with_pip=False)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (wheel,) = built.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(packages)
    for package in with_dependencies(BASE).values():
        for name in {Path(file).parts[0] for file in package.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(package.locate_file(name))
    return folder / "venv" / "bin" / "python"


def run(python: Path, folder: Path, *words: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(
        [python, *words], cwd=folder, env={**environment, "HOME": str(folder)}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_commands_explain_themselves_without_any_extra(python: Path, tmp_path: Path):
    printed = run(python, tmp_path, "-c", HELP)
    assert [line for line in printed.splitlines() if line.startswith("help of ")] == [f"help of {c}" for c in COMMANDS]
    place = run(python, tmp_path, "-c", "from dragoman import *; import dragoman_lab; print(dragoman_lab.__file__)")
    assert Path(place.strip()).is_relative_to(python.parents[1])


def test_translator_is_trained_and_used_without_any_extra(python: Path, tmp_path: Path):
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"number {n} is odd\tNummer {n} ist gut\n" for n in range(200)), "utf-8"
    )
    (tmp_path / "dev.tsv").write_text("number 7 is odd\tNummer 7 ist gut\n", "utf-8")
    flags = ["--preset", "tiny", "--max-steps", "3", "--batch-tokens", "200", "--vocabulary", "300", "--quiet"]
    run(python, tmp_path, "-m", "dragoman", "train", "--train", "pairs.tsv", "--dev", "dev.tsv", *flags, "--out", "r")
    assert run(python, tmp_path, "-m", "dragoman", "translate", "-m", "r", "number 7", "number 8").count("\n") == 2
    assert shutil.which("c++") is None or list(python.parents[1].rglob("dragoman/inference/transformer-*.so"))
