"""`dragoman benchmark`: which engine and data type is the fastest for a model on this machine."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from dragoman.commands.benchmark import LINES
from dragoman.config import ComputeType, EngineName
from dragoman.evaluation.engine_speed import ALONE, TOGETHER, EngineComparison, EngineSpeed
from dragoman.inference.products import supported_types

QUICK = ("--rounds", "1", "--sentences", "8", "--threads", "1")
KINDS = [kind for kind in get_args(ComputeType) if kind != "auto"]


def cells(printed: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if line[:1] == "|"]


@pytest.mark.slow
def test_benchmark_has_a_row_or_a_reason_for_each_engine_and_type(dragoman, trained: Path, corpus: tuple[str, str]):
    ran = dragoman("benchmark", "-m", trained, corpus[1], *QUICK)
    assert ran.code == 0
    columns, _, *rows = cells(ran.out)
    assert columns == ["engine", "type", ALONE, TOGETHER, "BLEU", "change"]
    measured = {f"{row[0]} {row[1]}" for row in rows}
    reasons = re.findall(r"^(.+) left out: .+", ran.out, re.MULTILINE)
    left_out = {name for names in reasons for name in names.split(", ")}
    assert measured | left_out == {f"{engine} {kind}" for engine in get_args(EngineName) for kind in KINDS}
    assert not measured & left_out
    assert {f"native {kind}" for kind in supported_types()} <= measured
    assert rows[0][5] == "+0.0"


def test_benchmark_without_a_test_set_times_the_dev_set(dragoman, trained: Path, corpus: tuple[str, str]):
    ran = dragoman("benchmark", "-m", trained, *QUICK)
    assert cells(ran.out)[0] == ["engine", "type", ALONE, TOGETHER]
    assert Path(corpus[1]).name in ran.out
    ran = dragoman("benchmark", "-m", trained / "best", *QUICK)  # it does not know its run
    assert f"up to {len(LINES)} of built-in sentences" in ran.out


def test_benchmark_ends_with_the_commands_of_the_fastest(dragoman, trained: Path, corpus: tuple[str, str]):
    ran = dragoman("benchmark", "-m", trained, *QUICK, "--beam", "2")
    _, _, *rows = cells(ran.out)
    rate = {
        how: [float(row[column].split()[0].replace(",", "")) for row in rows]
        for column, how in ((2, ALONE), (3, TOGETHER))
    }
    for line, how in zip(ran.out.splitlines()[-2:], (ALONE, TOGETHER), strict=True):
        found = re.fullmatch(
            rf"fastest {how}: dragoman translate -m (\S+) --engine (\w+) --compute-type (\w+) --beam 2 --threads 1",
            line,
        )
        assert found
        assert [*found.groups()][1:] == rows[rate[how].index(max(rate[how]))][:2]
    command = ran.out.splitlines()[-1].partition("dragoman ")[2].split()
    assert dragoman(*command, "The dog sees 2 red cats.", "--extra-length", "5").code == 0


def test_benchmark_prints_json(dragoman, trained: Path):
    record = json.loads(dragoman("benchmark", "-m", trained, *QUICK, "--json").out)
    assert {"format", "model", "test", "beam", "rows", "left_out", "machine", "fastest"} == {*record}
    assert record["rows"][0] | {"alone": 0, "together": 0} == {
        **{"engine": "native", "compute_type": "float32", "alone": 0, "alone_spread": 0.0},
        **{"together": 0, "together_spread": 0.0, "bleu": None},
    }


def test_benchmark_says_why_an_engine_is_left_out(dragoman, trained: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    ran = dragoman("benchmark", "-m", trained, *QUICK)
    assert ran.code == 0
    reason = f"{', '.join(f'ctranslate2 {kind}' for kind in KINDS)} left out: the CTranslate2 engine needs a package"
    assert reason in ran.out
    assert "--engine native" in ran.out.splitlines()[-1]


def test_fastest_engine_is_named_for_each_way():
    slow = EngineSpeed("native", "float32", 1.0, 0.1, 2.0, 0.1, 30.0)
    alone, together = replace(slow, compute_type="int8", alone=3.0), replace(slow, engine="ctranslate2", together=9.0)
    compared = EngineComparison((slow, alone, replace(together, bleu=29.5)), {}, "a machine")
    assert (compared.fastest(ALONE), compared.fastest(TOGETHER).engine) == (alone, "ctranslate2")
    assert cells(str(compared))[-1] == ["ctranslate2", "float32", "1.0 ± 10 %", "9.0 ± 10 %", "29.5", "-0.5"]
