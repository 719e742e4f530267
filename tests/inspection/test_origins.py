"""The pairs of a memory behind each word: as a figure, on the page, in JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("faiss")


@pytest.fixture
def memory(dragoman: Callable[..., Any], trained: Path, tmp_path: Path) -> Path:
    (tmp_path / "approved.tsv").write_text("one two three\teins zwei drei\nseven\tsieben\n" * 2, encoding="utf-8")
    assert dragoman("remember", "-m", trained, "approved.tsv", "--out", "memory", "--quiet").code == 0
    return tmp_path / "memory"


def test_words_name_their_pairs_in_json_and_on_the_page(dragoman: Callable[..., Any], trained: Path, memory: Path):
    asked = ("inspect", "-m", trained, "one two four", "--translation", "eins zwei vier")
    record = json.loads(dragoman(*asked, "--memory", memory, "--json").out)["memory"]
    assert [each["word"] for each in record] == ["eins", "zwei", "vier", "</s>"]
    first = record[0]["pairs"]
    best = max(first, key=lambda pair: pair["neighbours"])
    assert best["source"] == "one two three"
    assert best["origin"] in ("approved.tsv:1", "approved.tsv:3")
    assert 0 < sum(pair["neighbours"] for pair in first) <= 1 + 1e-9
    assert 0 < sum(pair["probability"] for pair in first) <= 1 + 1e-9

    assert dragoman(*asked, "--memory", memory, "--html", "with.html").code == 0
    assert dragoman(*asked, "--html", "without.html").code == 0
    data = [
        json.loads(Path(name).read_text().split('id="data">')[1].split("</script>")[0])
        for name in ("with.html", "without.html")
    ]
    assert (data[0]["memory"], data[1]["memory"]) == (record, None)


def test_view_of_the_memory_is_drawn(dragoman: Callable[..., Any], trained: Path, memory: Path):
    pytest.importorskip("matplotlib")
    asked = ("inspect", "-m", trained, "one two four", "--translation", "eins zwei vier", "--view", "memory")
    assert dragoman(*asked, "--memory", memory, "--out", "memory.svg").code == 0
    assert "<svg" in Path("memory.svg").read_text()
    assert "--memory" in dragoman(*asked, "--out", "memory.svg").err
