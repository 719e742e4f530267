"""The line that repeats the paper, as docs/paper-to-code.md has it, on a small corpus; and what goes wrong."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import toy_pairs, write_tsv

from dragoman.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def line_of(page: str, start: str) -> list[str]:
    """Return the words of the command on the page that begins so."""
    (found,) = re.findall(rf"^    ({re.escape(start)}(?:.*\\\n)*.*)$", page, re.MULTILINE)
    return shlex.split(found.replace("\\\n", " "))


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that begins with dragoman or torchrun with this Python, on a port that is free."""
    starts = {
        "dragoman": ["-m", "dragoman"],
        "torchrun": ["-m", "torch.distributed.run", "--standalone"],
    }
    command = [sys.executable, *starts[words[0]], *words[1:]]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_line_of_the_paper_trains_in_two_processes(tmp_path: Path):
    write_tsv(tmp_path / "try.tsv", toy_pairs())
    trained = run(line_of(PAGE, "torchrun --nproc_per_node 2"), tmp_path)
    assert trained.returncode == 0, trained.stderr
    config = (tmp_path / "runs" / "paper-try" / "config.toml").read_text()
    assert 'schedule = "paper"' in config
    averaged = run(line_of(PAGE, "dragoman average runs/paper-try"), tmp_path)
    assert averaged.stdout == "runs/paper-try-average\n"
    named = re.findall(r"checkpoints/step-0*(\d+)", (tmp_path / "runs/paper-try-average/card.md").read_text())
    assert named == ["2", "4", "6"]


@pytest.mark.slow
def test_wrong_setting_ends_the_report_of_torchrun(tmp_path: Path):
    words = line_of(PAGE, "torchrun --nproc_per_node 2")
    ran = run([*words, "--model.attention.heads", "5"], tmp_path)
    sentence = "dragoman: d_model 32 is not divisible by 5 heads: choose a divisor, or give d_k and d_v"
    assert ran.returncode != 0
    assert ran.stderr.rstrip().splitlines()[-2].strip() == f"traceback : {sentence}"
    before = ran.stderr.split("Traceback")[0].splitlines()
    assert sentence in before
    assert not any(line.startswith("  File") for line in before)


def test_torchrun_is_told_why_a_command_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "error.json"))
    assert main(["trian"]) == 2
    told = json.loads((tmp_path / "error.json").read_text())["message"]
    assert f"{told['message']}\n" == capsys.readouterr().err
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "missing" / "error.json"))
    assert main(["trian"]) == 2


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 8", "torchrun --nproc_per_node 2"])
def test_recipe_and_page_have_the_same_line(start: str):
    recipe = (ROOT / "src" / "dragoman" / "recipes" / "wmt14-en-de-base.toml").read_text(encoding="utf-8")
    words = line_of(PAGE, start)[:6]
    assert (words == line_of(recipe.replace("#   ", "    "), "torchrun --nproc_per_node")[:6]) == ("8" in start)
