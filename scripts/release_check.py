"""Walk the checklist of a release: build it, install it as users do, and try it there.

    make release-check                              # every step, from the last commit
    make release-check STEPS="archives base demo"   # some of them
    make release-check STEPS=base PYTHON=python3.13 CONSTRAINTS=constraints-oldest.txt

Each step prints what it did, its seconds, and the megabytes of the environment it made. Environments have a home and a
temporary folder of their own and no cache, so that the seconds are those of a first installation.
"""

import argparse
import ast
import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import BytesParser
from functools import cached_property, partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_BYTES = 2_000_000  # of a wheel
METADATA = "Name Version Summary Requires-Python License-Expression License-File Author Keywords Classifier".split()
SENTENCE = "We need 26 seats next to each other, if possible."

# What shows that an extra has brought what it is for.
PROOFS = {
    "plot": "import matplotlib.pyplot, koreanize_matplotlib, dragoman.inspection.figure",
    "demo": "import dragoman.demo.values, matplotlib.pyplot",
    "memory": "import faiss, dragoman.memory.index",
    "documents": "import dragoman.documents.yaml, dragoman.documents.fluent, babel, yaml, fluent.syntax",
    "fast": "import ctranslate2, dragoman.interop.ctranslate2.conversion",
    "hub": "import huggingface_hub, dragoman.storage.hub",
    "huggingface": "from transformers import MarianMTModel",
    "import": "import sentencepiece, yaml, dragoman.data.sentencepiece",
    "onnx": "import onnx, onnxruntime, dragoman.interop.onnx.graph",
    "ray": "import ray, dragoman.synthesis.ray",
    "serve": "import dragoman.server.app, uvicorn, msgspec, babel",
    "ray-serve": "import ray.serve, dragoman.server.ray",
    "detect": "import py3langid",
    "tensorboard": "import tensorboardX",
    "benchmark": "import transformers, gunicorn",
    "docs": "import pdoc",
    "release": "import build",
    "all": "import matplotlib, babel, faiss, ctranslate2, transformers, onnxruntime, ray, starlette, py3langid",
    "test": "import pytest, hypothesis, mypy",
    "fuzz": "import atheris",
}


class Fault(Exception):
    """What keeps a release from being made."""


def run(command: list[str | Path], folder: Path, **changes: str) -> str:
    """Return what a command prints. Raise Fault with the end of it where it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | changes
    words = list(map(str, command))
    ran = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if ran.returncode:
        raise Fault(f"{' '.join(words)} ended with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-3000:]}")
    return ran.stdout


def require(condition: object, fault: str) -> None:
    """Raise Fault where a condition does not hold."""
    if not condition:
        raise Fault(fault)


def megabytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) // 1_000_000


def digest(file: Path) -> str:
    """Return the beginning of the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


class Release:
    """A release that is being checked, in a folder of its own outside the checkout."""

    def __init__(self, work: Path, python: str, constraints: Path, keep: bool) -> None:
        self.work, self.python, self.constraints, self.keep = work, python, constraints.resolve(), keep
        self.pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        self.costs: dict[str, tuple[float, int]] = {}  # of environments: seconds and megabytes

    # What is built.

    @cached_property
    def archives(self) -> list[Path]:
        """The sdist of the last commit, and the wheel that is built from it; those that lie there already are taken."""
        archives = sorted(self.folder("first").glob("*"), key=lambda file: file.suffix == ".whl")
        return archives if len(archives) == 2 else self.build("first", 0o022)

    def folder(self, name: str) -> Path:
        """Return where the archives of the last commit are built into."""
        return self.work / f"{name}-{run(['git', 'log', '-1', '--format=%h'], ROOT).strip()}"

    def build(self, name: str, umask: int, *only: str) -> list[Path]:
        """Build in a new clone, where new files get the permissions that `umask` leaves; return the sdist and wheel."""
        clone, archives = self.work / name / "dragoman", self.folder(name)
        for folder in (clone, archives):
            shutil.rmtree(folder, ignore_errors=True)
        before = os.umask(umask)
        try:
            run(["git", "clone", "--quiet", ROOT, clone], ROOT)
            epoch = run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
            command: list[str | Path] = [sys.executable, "-m", "build", *only, "--outdir", archives]
            run(command, clone, SOURCE_DATE_EPOCH=epoch, PIP_CONSTRAINT=str(ROOT / "constraints.txt"))
        finally:
            os.umask(before)
        return sorted(archives.iterdir(), key=lambda file: file.suffix == ".whl")

    # Environments.

    def environment(self, name: str, *requirements: str | Path, base: Path | None = None) -> Path:
        """Make a virtual environment and install into it; return its folder. Files of `base` are there before."""
        folder = self.work / f"venv-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        run([self.python, "-m", "venv", folder], self.work)
        if base:
            (packages,) = (base / "lib").glob("python*/site-packages")
            (place,) = (folder / "lib").glob("python*/site-packages")
            shutil.rmtree(place)
            shutil.copytree(packages, place, copy_function=os.link)
        began = time.perf_counter()
        pip: list[str | Path] = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "-c", self.constraints]
        self.call(folder, *pip, *requirements)
        self.costs[name] = time.perf_counter() - began, megabytes(folder / "lib")
        self.call(folder, "-m", "pip", "check")
        return folder

    def call(self, folder: Path, *arguments: str | Path) -> str:
        """Run Python in an environment, in a home without any settings; return what it prints."""
        home = folder / "home"
        home.mkdir(exist_ok=True)
        return run([folder / "bin" / "python", *arguments], home, HOME=str(home), COLUMNS="100")

    @cached_property
    def base(self) -> Path:
        """The environment with the wheel and the base dependencies alone."""
        return self.environment("base", self.archives[1])


# The steps. Each returns what it found, in a line.


def version(release: Release) -> str:
    """Compare the version with those of CHANGELOG.md and CITATION.cff."""
    tree = ast.parse((ROOT / "src" / "dragoman" / "version.py").read_text(encoding="utf-8"))
    (number,) = [node.value.value for node in tree.body if isinstance(node, ast.Assign)]
    heading = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[0]
    cited = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    require(heading.split()[0] == number, f"the version is {number}, but CHANGELOG.md begins with {heading}")
    require(cited == [number], f"the version is {number}, but CITATION.cff has {cited}")
    require("unreleased" not in heading, f"CHANGELOG.md still says {heading}: write the date of the release there")
    return f"{number} in version.py, CHANGELOG.md and CITATION.cff"


def clean(release: Release) -> str:
    """Look for files that are not committed, which the archives would not have."""
    changed = run(["git", "status", "--porcelain"], ROOT)
    require(not changed, f"not committed:\n{changed}")
    return f"commit {run(['git', 'log', '-1', '--format=%h %s'], ROOT).strip()}"


def archives(release: Release) -> str:
    """Build sdist and wheel twice, in other folders and with other permissions: the same bytes."""
    again = release.build("second", 0o077)
    for first, second in zip(release.archives, again, strict=True):
        require(first.name == second.name and digest(first) == digest(second), f"two builds of {first.name} differ")
    return ", ".join(f"{file.name} {file.stat().st_size:,} bytes, sha256 {digest(file)}" for file in again)


def wheel(release: Release) -> str:
    """Build the wheel without the sdist: the same bytes; look at its size, files and metadata."""
    (directly,) = release.build("direct", 0o022, "--wheel")
    built = release.archives[1]
    require(digest(directly) == digest(built), "the wheel of the checkout differs from that of the sdist")
    require(built.stat().st_size < MOST_BYTES, f"{built.name} has {built.stat().st_size:,} bytes")
    with zipfile.ZipFile(built) as files:
        names = files.namelist()
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        fields = BytesParser().parsebytes(files.read(metadata))
    missing = [field for field in METADATA if field not in fields]
    require(not missing, f"no {', '.join(missing)} in the metadata")
    outside = {name.split("/")[0] for name in names} - {"dragoman", "dragoman_lab", metadata.split("/")[0]}
    require(not outside, f"the wheel would install {outside}")
    require({"dragoman/py.typed", "dragoman_lab/py.typed"} <= set(names), "no py.typed")
    libraries = sum(name.endswith(".so") for name in names)
    return f"{built.stat().st_size / 1e6:.2f} MB, {len(names)} files, {libraries} libraries, as built from the sdist"


def sdist(release: Release) -> str:
    """Compare the files of the sdist with those of the last commit."""
    with tarfile.open(release.archives[0]) as tar:
        packed = {member.name.partition("/")[2] for member in tar if not member.isdir()}
    tracked = set(run(["git", "ls-tree", "-r", "--name-only", "-z", "HEAD"], ROOT).split("\0")) - {""}
    require(tracked <= packed, f"not in the sdist: {sorted(tracked - packed)[:9]}")
    extra = {name for name in packed - tracked if "egg-info" not in name and name not in ("PKG-INFO", "setup.cfg")}
    require(not extra, f"in the sdist only: {sorted(extra)[:9]}")
    return f"all {len(tracked)} files of the commit"


def base(release: Release) -> str:
    """Install the wheel with the base dependencies alone; import it, and ask each command for help."""
    call = partial(release.call, release.base)
    place = call("-c", "import dragoman; print(dragoman.__version__, dragoman.__file__)")
    require("venv-base" in place, f"another dragoman was imported: {place}")
    listed = call("-m", "dragoman", "--help")
    commands = call("-c", "from dragoman.cli import COMMANDS; print(*COMMANDS)").split()
    for command in commands:
        require(command in listed, f"dragoman --help has no {command}")
        require("--help" in call("-m", "dragoman", command, "--help"), f"no help of {command}")
    call("-c", "from dragoman import *")
    return f"{len(commands)} commands and all public names with {len(call('-m', 'pip', 'freeze').split())} packages"


def imports(release: Release) -> str:
    """Measure the processor's seconds of an import, which do not depend on what else runs: the best of three."""
    code = "import time; start = time.process_time(); {}; print(time.process_time() - start)"
    statements = ("import dragoman", "import torch", "from dragoman import Translator")
    times = {
        statement: min(float(release.call(release.base, "-c", code.format(statement))) for _ in range(3))
        for statement in statements
    }
    return ", ".join(f"{statement} {seconds:.2f} s" for statement, seconds in times.items())


def demo(release: Release) -> str:
    """Run the quick demo with the base dependencies alone, and translate with its model."""
    printed = release.call(release.base, "-m", "dragoman", "demo", "--quick")
    require("pip install 'dragoman[plot]'" in printed, "the demo does not say which extra draws the picture")
    (exact,) = re.findall(r"^exact match (.*)$", printed, re.MULTILINE)
    began = time.perf_counter()
    model = "runs/quick-en-ko"
    said = release.call(release.base, "-m", "dragoman", "translate", "-m", model, "--quiet", SENTENCE).strip()
    seconds = time.perf_counter() - began
    return f"exact match {exact}; {SENTENCE!r} → {said!r} in {seconds:.1f} s"


def extra(release: Release, name: str) -> str:
    """Install an extra into a copy of the base environment; import what it is for."""
    folder = release.environment(name, f"{release.archives[1]}[{name}]", base=release.base)
    release.call(folder, "-c", PROOFS[name])
    (seconds, size), (_, base_size) = release.costs[name], release.costs["base"]
    if not release.keep:
        shutil.rmtree(folder)
    return f"{PROOFS[name]}; {seconds:.0f} s and {size - base_size} MB more than the base"


STEPS: dict[str, Callable[[Release], str]] = {
    **{step.__name__: step for step in (version, clean, archives, wheel, sdist, base, imports, demo)},
    **{f"extra-{name}": partial(extra, name=name) for name in PROOFS},
}
FOR_DEVELOPERS = {"extra-test", "extra-fuzz"}  # only if asked for: `make test` installs the one, `make fuzz` the other


def main() -> None:
    """Run the steps that were asked for; exit with 1 if one has failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"one of {', '.join(STEPS)}; default: all")
    parser.add_argument("--work", type=Path, required=True, help="an empty folder outside the checkout")
    parser.add_argument("--python", default=sys.executable, help="the Python of the environments")
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt", help="versions to install")
    parser.add_argument("--keep", action="store_true", help="keep the environments of extras")
    options = parser.parse_args()
    if unknown := set(options.steps) - set(STEPS):
        parser.error(f"no step {', '.join(sorted(unknown))}; choose from {', '.join(STEPS)}")
    work = options.work.resolve()
    if work.is_relative_to(ROOT):
        parser.error(f"{work} is in the checkout, whose files could then be imported by mistake")
    work.mkdir(parents=True, exist_ok=True)
    release = Release(work, options.python, options.constraints, options.keep)
    failed = 0
    for name in options.steps or [name for name in STEPS if name not in FOR_DEVELOPERS]:
        began, sign = time.perf_counter(), "ok"
        with contextlib.suppress(BrokenPipeError):
            try:
                line = STEPS[name](release)
            except Fault as fault:
                line, sign, failed = str(fault), "FAILED", failed + 1
            print(f"{sign:7}{name:18}{time.perf_counter() - began:6.0f} s  {line}", flush=True)
    for name, (seconds, size) in release.costs.items():
        print(f"environment {name:16}{seconds:6.0f} s{size:7,} MB")
    if failed:
        sys.exit(f"{failed} of the steps failed")


if __name__ == "__main__":
    main()
