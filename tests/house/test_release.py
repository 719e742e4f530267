"""What a release and its visitors need is there, and agrees: metadata, extras, versions, templates, what CI runs."""

import importlib.util
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dragoman.version import __version__

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
PYTHONS = re.compile(r"Programming Language :: Python :: (3\.\d+)")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def load(name: str) -> Any:
    return yaml.safe_load(read(name))


def constraints(name: str) -> dict[str, str]:
    """Return the versions of a file by the names of packages, as pip compares these."""
    pairs = (line.split("==") for line in read(name).splitlines() if "==" in line)
    return {re.sub(r"[-_.]+", "-", package.strip().lower()): version.strip() for package, version in pairs}


def parts(version: str) -> tuple[int, ...]:
    """Return the numbers of a version; trailing zeros do not count."""
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    while numbers[-1:] == [0]:
        numbers.pop()
    return tuple(numbers)


def test_metadata_is_complete():
    needed = "description readme license license-files requires-python authors keywords classifiers".split()
    assert [name for name in needed if not PROJECT.get(name)] == []
    pythons = [match[1] for match in map(PYTHONS.fullmatch, PROJECT["classifiers"]) if match]
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert "Typing :: Typed" in PROJECT["classifiers"]
    assert all((package / "py.typed").exists() for package in (ROOT / "src").glob("dragoman*") if package.suffix == "")


def test_extras_are_all_on_their_page():
    table = re.findall(r"^\| ((?:`[\w-]+`(?:, )?)+) \|", read("docs/extras.md"), re.MULTILINE)
    assert {extra for cell in table for extra in re.findall(r"`([\w-]+)`", cell)} == set(EXTRAS)


def test_extras_all_have_a_proof_in_the_release_check():
    place = importlib.util.spec_from_file_location("release_check", ROOT / "scripts" / "release_check.py")
    assert place is not None
    assert place.loader is not None
    place.loader.exec_module(script := importlib.util.module_from_spec(place))
    assert set(script.PROOFS) == set(EXTRAS)


def test_versions_agree():
    assert load("CITATION.cff")["version"] == __version__
    assert f"dragoman:{__version__}\n" in read("deploy/kubernetes.yaml")
    assert load("CITATION.cff")["authors"] == PROJECT["authors"]
    assert load("CITATION.cff")["license"] == PROJECT["license"]


def test_pre_commit_has_the_same_ruff():
    hooks = [hook for repo in load(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert [hook["entry"].split()[:2] for hook in hooks] == [["ruff", "check"], ["ruff", "format"]]
    versions = {package for hook in hooks for package in hook["additional_dependencies"]}
    assert versions == {f"ruff=={constraints('constraints.txt')['ruff']}"}


def test_workflows_run_ci_and_nothing_else():
    workflows = list((ROOT / ".github" / "workflows").iterdir())
    assert workflows
    for workflow in workflows:
        jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values()
        steps = [step for job in jobs for step in job["steps"]]
        assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
        assert {step["uses"].split("@")[0] for step in steps if "uses" in step} == {"actions/checkout"}


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_templates_ask_for_the_system(name: str):
    body = load(f".github/ISSUE_TEMPLATE/{name}.yml")["body"]
    (system,) = [field for field in body if "`dragoman info --system`" in field["attributes"]["description"]]
    assert system.get("validations", {}).get("required", False) == (name == "bug")
    assert len({field["id"] for field in body}) == len(body)


def bounds(extras: Iterable[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield each package of the base and of some extras, and its lower bound."""
    for requirement in itertools.chain(PROJECT["dependencies"], *(EXTRAS[extra] for extra in extras)):
        package, _, bound = requirement.partition(">=")
        if bound:
            yield re.sub(r"[-_.]+", "-", package.partition("[")[0].lower()), parts(bound)


def test_constraints_allow_what_is_required():
    versions = constraints("constraints.txt")
    assert [package for package, bound in bounds(EXTRAS) if parts(versions[package]) < bound] == []


def test_oldest_constraints_are_the_lower_bounds():
    versions = constraints("constraints-oldest.txt")
    (extras,) = re.findall(r"dragoman\[(.*)\]", read("constraints-oldest.txt"))
    oldest = {package: (parts(versions[package]), bound) for package, bound in bounds(extras.split(","))}
    assert {package for package, (version, bound) in oldest.items() if version[: len(bound)] != bound} == set()


def test_source_archive_has_every_tracked_folder_and_file():
    manifest = read("MANIFEST.in").split()
    present = {path.name for path in ROOT.iterdir()}
    untracked = {line.strip("/") for line in read(".gitignore").split()} | {".git", "build", "dist"}
    kept = {name for name in present - untracked if not name.endswith((".egg-info", "_cache", "__pycache__"))}
    # setuptools adds these of its own.
    assert kept - {"pyproject.toml"} <= set(manifest) | {"lab", "runs"}, kept
