"""The commands on the pages of the course run as they are written, on models that the page has made before."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from dragoman.cli import command_module, main
from dragoman.commands import parse
from dragoman_lab import COMPARISONS
from dragoman_lab.command import GROUPS

COURSE = Path(__file__).parents[2] / "docs" / "course"
PAGES = sorted(
    page.name for page in COURSE.glob("*.md") if page.name not in ("numbers.md", "requirements.md", "notes.md")
)
COMPARED = ("heads-8-1", "heads-1-1", "pre-norm-none-1", "post-norm-none-1")  # runs that `dragoman lab` would leave


def commands(page: str) -> dict[str, None]:
    """Return the commands with arguments of a page, each once, in their order; of a bare name the page only speaks."""
    text = re.sub(r"\\\n\s*", " ", (COURSE / page).read_text(encoding="utf-8"))
    lines = re.findall(r"^    dragoman ([^\n]*)$|`dragoman ([^`]*)`", text, re.MULTILINE)
    written = [" ".join(re.sub(r"  # .*|\s{3,}.*", "", indented or code).split()) for indented, code in lines]
    return dict.fromkeys(line for line in written if len(line.split()) > 1 and line.split()[-1] != "-m")


EVERY = [*dict.fromkeys(line for page in PAGES for line in commands(page))]
LAB = [line for line in EVERY if line.startswith("lab ")]
TRAINING = [line for line in EVERY if line.startswith(("train ", "demo "))]
TRACE = [line for line in EVERY if line.startswith("trace ")]  # of a word that only the model of the demo says
OTHERS = [line for line in EVERY if line not in [*LAB, *TRAINING, *TRACE]]


def run(line: str) -> int:
    """Run a command in the current folder, its file names expanded as a shell does it."""
    words = shlex.split(line)
    return main([name for word in words for name in (sorted(map(str, Path().glob(word))) if "*" in word else [word])])


@pytest.fixture
def home(tmp_path: Path, trained: Path, corpus: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the pages have made before: a little model in place of each, and sentence pairs."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs/mine", "runs/demo-en-ko", *(f"lab-mine/runs/1500-steps/{name}" for name in COMPARED)):
        shutil.copytree(trained, name, symlinks=True)
    for name, file in zip(("train.tsv", "dev.tsv"), corpus, strict=True):
        shutil.copy(file, name)
    shutil.copy(corpus[1], "test.tsv")
    assert main(["remember", "-m", "runs/demo-en-ko", "train.tsv", "--out", "runs/demo-memory"]) == 0
    return tmp_path


def test_pages_have_commands():
    assert len(EVERY) > 50
    assert {line.split()[0] for line in EVERY} >= {
        "lab",
        "train",
        "demo",
        "inspect",
        "insight",
        "plot",
        "info",
        "trace",
    }


@pytest.mark.parametrize("line", OTHERS)
def test_command_of_the_course_runs_as_written(line: str, home: Path):
    if line.startswith("remember"):
        shutil.rmtree("runs/demo-memory")
    assert run(line) == 0


@pytest.mark.parametrize("line", [*LAB, *TRAINING, *TRACE])
def test_command_of_the_course_has_flags_and_values_that_exist(line: str):
    """Those that take minutes; each experiment runs in `test_lab_claims.py`, the demo in tests/demo."""
    name, *arguments = shlex.split(line)
    module = command_module(name)
    parse(module.Options, name, arguments, module.defaults(arguments) if name == "train" else None)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in TRAINING if line.startswith("train ")])
def test_training_of_the_course_begins_as_written(line: str, home: Path):
    assert run(f"{line} --training.max-steps 1") == 0


@pytest.mark.slow
def test_lab_of_the_course_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (line,) = {line for line in LAB if "all --quick" in line and "ko" not in line and line in commands("tour.md")}
    assert run(line) == 0
    named = {word for line in LAB for word in line.split()[1:] if re.fullmatch("[a-z][a-z-]*", word)}
    report = Path("lab-quick/report.html").read_text(encoding="utf-8")
    left = {name for name in named - {*COMPARISONS, *GROUPS, "ko"} if f'id="{name}"' not in report}
    assert left <= {"lab-quick", "lab-mine"}


@pytest.mark.slow
def test_stops_17_and_18_run_as_written_after_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    if len([*Path("runs/demo-en-ko/checkpoints").iterdir()]) < 2:
        pytest.skip("slower than the machines that the page has in mind")
    for line in commands("tour.md"):
        if "runs/demo" in line:
            assert run(line) == 0, line
