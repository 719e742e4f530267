"""The guides of docs/, run as they are written: from other programs to ours, and an evening with a TMX."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import marian_folder
from test_flags import FLAGS

from dragoman.commands.habits import HABITS

ROOT = Path(__file__).parents[2]
# Values, what says how others count, and what means something else here.
NOT_TYPED = {"batch-type", "max-tokens", "torchrun"}


def read_guide(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def fenced(page: str, language: str) -> list[str]:
    """Return the blocks of a page that are marked as being in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def shown_commands(page: str) -> list[str]:
    """Return the commands of a page that stand on lines of their own, without the comments behind them."""
    return [re.split(r"\s{2,}#", line)[0] for line in re.findall(r"^    (dragoman [^\n]*)$", page, re.MULTILINE)]


@pytest.fixture
def opus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a MarianMT of random weights, in the current one."""
    monkeypatch.chdir(tmp_path)
    marian_folder(tmp_path / "downloads" / "opus-mt-en-de")
    return tmp_path


def test_page_from_transformers_runs(opus: Path):
    namespace: dict[str, Any] = {}
    threads = torch.get_num_threads()
    for example in fenced(read_guide("from-transformers"), "python"):
        exec(compile(example, "docs/from-transformers.md", "exec"), namespace)
    torch.set_num_threads(threads)
    assert namespace["best"].alternatives


@pytest.mark.slow
def test_check_of_the_page_from_transformers_runs(opus: Path, dragoman: Any):
    (line,) = shown_commands(read_guide("from-transformers"))
    assert dragoman(*line.split()[1:]).code == 0


@pytest.mark.parametrize("task", ["translation", "translation_en_to_de", "text2text-generation"])
def test_transformers_has_no_pipeline_for_a_task_of_the_page(task: str, opus: Path):
    from transformers import pipeline

    (message,) = fenced(read_guide("from-transformers"), "text")
    with pytest.raises(KeyError) as raised:
        pipeline(task, model="downloads/opus-mt-en-de")
    assert message.strip().replace("translation", task, 1) in raised.value.args[0]


def flag_rows(page: str) -> list[tuple[list[str], list[str]]]:
    """Return the flags of other toolkits and of ours in each row of the tables of flags."""
    tables = page.partition("## Flags of training")[2]
    rows = [line.strip("|").split("|") for line in re.findall(r"^\|.*\|$", tables, re.MULTILINE)]
    cells = [(" ".join(theirs), ours) for *theirs, ours in rows]
    return [(re.findall(r"`-*([a-z][\w-]*)", theirs), re.findall(r"`--([\w.-]+)`", ours)) for theirs, ours in cells]


def test_flags_of_other_toolkits_lead_to_ours_as_on_the_page():
    """Those of `batch_type`, which say how others count, and those that mean something else here, are left out."""
    known = {*FLAGS["train"].split(), *FLAGS["translate"].split()}
    rows = [row for row in flag_rows(read_guide("from-other-toolkits")) if row[1]]
    assert len(rows) > 25
    for theirs, ours in rows:
        flags = {f"--{flag}" for flag in ours}
        assert flags <= known
        for word in (name.replace("_", "-") for name in theirs):
            same = {flag.rpartition(".")[2].removeprefix("--") for flag in flags}
            assert word in same | NOT_TYPED or flags & set(HABITS.get(word, [])), (word, flags)


def test_command_with_the_flag_of_another_toolkit_answers_as_on_the_page(dragoman: Any):
    command, _, answer = fenced(read_guide("from-other-toolkits"), "text")[0].partition("\n")
    ran = dragoman(*command.removeprefix("$ dragoman ").split())
    assert (ran.code, ran.err) == (2, answer)


@pytest.mark.slow
def test_commands_of_the_page_from_other_toolkits_run(corpus: tuple[str, str], dragoman: Any):
    for name, file in zip(("train", "dev"), corpus, strict=True):
        sources, targets = zip(*(line.split("\t") for line in Path(file).read_text().splitlines()), strict=True)
        Path(f"{name}.en").write_text("\n".join(sources))
        Path(f"{name}.de").write_text("\n".join(targets))
    more = {"train": ["--training.max-steps", "1"], "translate": ["--input", "dev.en"], "check": []}
    for line in shown_commands(read_guide("from-other-toolkits")):
        words = line.partition(" <")[0].split()[1:]
        assert dragoman(*words, *more[words[0]]).code == 0, line


def follow_evening(
    dragoman: Any, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], last: str
) -> dict[str, str]:
    """Do in the current folder what the page about an evening says, to a last command; return what commands printed.

    changes: of the page's words, for a shorter evening.
    """
    monkeypatch.setenv("COLUMNS", "100")
    page = read_guide("evening")
    for word, other in changes.items():
        assert word in page
        page = page.replace(word, other)
    exec(compile(fenced(page, "python")[0], "docs/evening.md", "exec"), {})
    Path("notes.md").write_text(fenced(page, "markdown")[0], encoding="utf-8")
    printed: dict[str, str] = {}
    for line in shown_commands(page):
        words = shlex.split(line)[1:]
        if words[0] != "serve" and last not in printed:
            ran = dragoman(*words)
            assert ran.code in (0, int(words[0] == "check")), (line, ran.err)
            printed[words[0]] = ran.out
    return printed


def test_evening_with_a_tmx_begins_as_written(dragoman: Any, monkeypatch: pytest.MonkeyPatch):
    fewer = {"per_template=32": "per_template=3", "--dev 140 --test 140": "--dev 20 --test 20"}
    assert "one side is empty" in follow_evening(dragoman, monkeypatch, fewer, "split")["check"]
    assert Path("data", "train.tsv").exists()


@pytest.mark.slow
def test_evening_with_a_tmx_prints_what_the_page_shows(dragoman: Any, monkeypatch: pytest.MonkeyPatch):
    """What a clock decides is left out: how far the training comes."""
    printed = follow_evening(dragoman, monkeypatch, {"--training.minutes 10": "--training.max-steps 1"}, "export")
    shown = fenced(read_guide("evening"), "text")
    assert sorted(printed["check"].split()) == sorted(shown[0].split())
    assert printed["split"] == shown[1]
    assert "of 140 sentences" in printed["evaluate"]
    assert Path("company-en-de", "model.safetensors").exists()


def test_commands_of_the_page_on_language_models_run(sure_model: Path, dragoman: Any):
    Path("source.txt").write_text("The dog sees two cats.\n", encoding="utf-8")
    lines = shown_commands(read_guide("language-models"))
    assert len(lines) == 3
    for line in lines:
        words = line.partition(" <")[0].replace("runs/mine", str(sure_model)).split()[1:]
        ran = dragoman(*words, "--input", "source.txt")
        assert (ran.code, ran.out.count("\n")) == (0, 1), line


def test_figures_of_the_page_on_language_models_follow_from_the_times():
    table = read_guide("language-models").partition("## Cost per million words")[2]
    rows = re.findall(r"^\| .+? \| (\d.*?) \| (\d.*?) \|$", table, re.MULTILINE)
    seconds, speed, hours, power, price = rows
    for column, name in enumerate(("float32", "int8")):
        spent = float(seconds[column].split()[0])
        assert int(speed[column]) == int(39863 / spent), name
        core_hours = 1e6 / 39863 * spent / 3600
        assert float(hours[column]) == pytest.approx(core_hours, abs=0.01)
        assert int(power[column].split()[0]) == round(10 * core_hours)
        assert int(price[column].split()[0]) == round(5 * core_hours)
