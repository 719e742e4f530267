"""The guides of docs/, run as they are written: from other programs to ours, and an evening with a TMX."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import marian_folder

ROOT = Path(__file__).parents[2]


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
