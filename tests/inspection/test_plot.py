"""Curves: what is drawn is what was recorded, whatever an interruption left in the file."""

import io
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from dragoman.cli import main
from dragoman.inspection.plots.training import (
    axis_unit,
    names_of,
    read_metrics,
    round_values,
    style,
)
from dragoman.training.journal import Journal


def recorded(run: Path, steps: range = range(50, 501, 50), bleu: float = 20.0, only_loss: bool = False) -> Path:
    """A run folder with metrics as a run writes them: every step a row, every second one a validation.

    only_loss: with nothing else in it, so that a figure has one panel and takes a quarter of the time.
    """
    with Journal(run, Console(file=io.StringIO()), quiet=True) as journal:
        for step in steps:
            spent = {"seconds": 10.0 * step, "target_tokens": 1000 * step}
            rates = {} if only_loss else {"rate": 1e-3 / step, "gradient_norm": 0.5, "tokens_per_second": 100.0}
            journal.record("step", step=step, epoch=0, loss=5.0 - step / 500, **rates, **spent)
            if step % 100 == 0 and not only_loss:
                scores = {"bleu": bleu + step / 100, "chrf": 40.0, "exact": 0.1, "signature": "nrefs:1"}
                journal.record("validation", step=step, epoch=0, loss=4.0, **scores, **spent)
    return run


def lines(run: Path) -> list[str]:
    return (run / "metrics.jsonl").read_text().splitlines(keepends=True)


# What is read.


def test_metrics_points_are_what_was_recorded(tmp_path: Path):
    metrics = read_metrics(recorded(tmp_path / "run"))
    assert metrics.damaged == []
    assert metrics.points("step", "step", "loss") == [(step, 5.0 - step / 500) for step in range(50, 501, 50)]
    assert metrics.points("validation", "seconds", "bleu") == [(10.0 * s, 20 + s / 100) for s in range(100, 501, 100)]
    assert metrics.points("validation", "target_tokens", "rate") == []


def test_metrics_of_a_repeated_step_are_its_last_row(tmp_path: Path):
    """Killed at step 500, gone on from 200: rows 250 to 500 are there twice."""
    whole = read_metrics(recorded(tmp_path / "whole", bleu=30.0))
    recorded(tmp_path / "killed", range(50, 201, 50), bleu=30.0)
    recorded(tmp_path / "killed", range(250, 501, 50), bleu=10.0)
    assert read_metrics(tmp_path / "killed").rows != whole.rows
    recorded(tmp_path / "killed", range(250, 501, 50), bleu=30.0)
    assert len(lines(tmp_path / "killed")) > len(lines(tmp_path / "whole"))
    assert read_metrics(tmp_path / "killed").rows == whole.rows
    with (tmp_path / "killed" / "metrics.jsonl").open("a") as file:
        file.write('{"event": "step", "step": 500, "loss": 9.0}\n')
    assert read_metrics(tmp_path / "killed").rows["step", 500] == {"step": 500.0, "loss": 9.0}  # the whole row


def test_metrics_points_are_in_the_order_of_steps(tmp_path: Path):
    """Also where the last session recorded at other steps than the one before it, which had come further."""
    recorded(tmp_path / "run", range(50, 501, 50))
    recorded(tmp_path / "run", range(220, 360, 50))
    steps = [x for x, _ in read_metrics(tmp_path / "run").points("step", "step", "loss")]
    assert steps == sorted(steps)
    assert {220, 250} <= set(steps)


GARBAGE = [
    b'{"event": "st{"event": "step", "step": 50, "loss": 1.0}',
    b'{"event": "step", "step": "soon", "loss": 1.0}',
    b'{"event": "step", "loss": 1.0}',
    b'{"step": 50, "loss": 1.0}',
    b'{"event": "step", "step": 50, "loss": 1' + 400 * b"0" + b"}",
    b'{"event": "step", "step": Infinity, "loss": 1.0}',
    *(b'["event", "step"]', b"only a line feed\rends a line", b"7", b"null", 100_000 * b"["),
]
any_bytes = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b""))


@given(garbage=st.sampled_from(GARBAGE) | any_bytes, place=st.integers(0, 14))
def test_damaged_line_of_metrics_is_left_out_and_named(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, place: int
):
    run = recorded(tmp_path_factory.mktemp("runs") / "run")
    before = read_metrics(run)
    rows = [line.encode() for line in lines(run)]
    rows.insert(place, garbage + b"\n")
    (run / "metrics.jsonl").write_bytes(b"".join(rows))
    after = read_metrics(run)
    assert after.rows == before.rows
    assert after.damaged == [place + 1]


def test_metrics_value_that_is_no_number_is_no_point(tmp_path: Path):
    run = recorded(tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as file:
        for step, loss in [(550, "NaN"), (600, "Infinity"), (650, '"low"'), (700, "null"), (750, "[1]"), (800, "1.5")]:
            file.write(f'{{"event": "step", "step": {step}, "loss": {loss}}}\n')
    metrics = read_metrics(run)
    assert metrics.damaged == []
    assert metrics.points("step", "step", "loss")[-2:] == [(500, 4.0), (800, 1.5)]


# What is drawn.


@pytest.mark.parametrize(("low", "high"), [(2.5, 4.7), (0.05, 8.0), (3.9, 4.1), (1.0, 1.01), (0.0, 1e4), (-0.2, 0.3)])
def test_perplexities_are_round_and_within_the_axis(low: float, high: float):
    values = round_values(low, high)
    assert values == sorted(set(values))
    assert len(values) <= 12
    for value in values:
        assert low - 0.1 <= math.log(value) <= high + 0.1
        assert value == float(f"{value:.2g}")


def test_time_axis_is_in_minutes_or_hours():
    assert axis_unit("time", 7199) == ("minutes of training", 60)
    assert axis_unit("time", 7200) == ("hours of training", 3600)


def test_curves_of_many_runs_are_told_apart():
    """In colour and, the first four, by their lines alone."""
    assert len({tuple(style(index).items()) for index in range(140)}) == 140
    assert len({style(index)["color"] for index in range(7)}) == 7
    assert len({style(index)["linestyle"] for index in range(4)}) == 4


def test_curves_are_named_by_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert names_of([Path("a/first"), Path("b/second")]) == ["first", "second"]
    assert names_of([Path("a/run"), Path("b/run")]) == ["a/run", "b/run"]
    monkeypatch.chdir(tmp_path)
    assert names_of([Path()]) == [tmp_path.name]


# The command.

Ran = tuple[int, str, str]


@pytest.fixture
def plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command in a folder with two runs; returns its code and what it printed."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        recorded(Path(name), only_loss=True)

    def run(line: str) -> Ran:
        code = main(["plot", *line.split()])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.mark.parametrize(
    ("line", "out"),
    [("first", "curves.svg"), ("first ./first second --out new/curves.png --against time", "new/curves.png")],
)
def test_plot_prints_the_name_of_the_figure_and_damaged_lines(plot: Callable[..., Ran], line: str, out: str):
    with Path("second/metrics.jsonl").open("a") as file:
        file.write('{"event": "st')
    number = len(lines(Path("second")))
    notes = f"second/metrics.jsonl: skipped line {number}: damaged\n" if "second" in line else ""
    assert plot(line) == (0, f"{out}\n", notes)
    assert Path(out).exists()


def test_plot_leaves_out_folders_without_metrics_by_name(plot: Callable[..., Ran]):
    for name in ("young", "other"):
        Path(name).mkdir()
    Path("young/config.toml").touch()
    code, out, err = plot("young first other second first/metrics.jsonl --out some.svg")
    assert (code, out) == (0, "some.svg\n")
    assert [line.split(":")[0] for line in err.splitlines()] == ["young/metrics.jsonl", "other", "first/metrics.jsonl"]
    assert plot("first second --out two.svg")[2] == ""
    assert Path("some.svg").read_text().count("<path") == Path("two.svg").read_text().count("<path")
    code, out, err = plot("young other")
    assert (code, out, err.splitlines()[-1]) == (1, "", "dragoman: no run to draw")


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("", 2, "give a run folder"),
        ("first nowhere", 1, "nowhere: no such run folder"),
        ("first/metrics.jsonl", 1, "first/metrics.jsonl: no such run folder"),
        ("young", 1, "young/metrics.jsonl: no metrics yet"),
        ("other", 1, "other: not a run folder"),
        ("empty", 1, "empty/metrics.jsonl: no metrics yet"),
        ("first --out curves.jpg", 2, "curves.jpg: a figure's name must end in one of .svg"),
        ("first --out curves", 2, "curves: a figure's name must end in one of .svg"),
        ("first old --against time", 1, "old: its metrics have no curve to draw against time"),
    ],
)
def test_plot_answers_a_wrong_request_in_one_clear_line(plot: Callable[..., Ran], line: str, code: int, words: str):
    for name in ("young", "empty", "old", "other"):
        Path(name).mkdir()
    Path("empty/metrics.jsonl").touch()
    Path("young/config.toml").touch()
    row = {"event": "step", "step": 50, "loss": 1.0}
    Path("old/metrics.jsonl").write_text(json.dumps(row) + "\n")
    exit_code, out, err = plot(line)
    assert (exit_code, out) == (code, "")
    assert words in err
    assert err.count("\n") == 1
    assert not list(Path().glob("curves*"))
