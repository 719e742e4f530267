"""The one progress display: a bar on a terminal, plain lines in a log, times in words."""

import io
import math
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from dragoman.cli import main
from dragoman.console import ProgressDisplay, escape_controls, format_duration, time_left
from dragoman.decoding import parts


def shown(terminal: bool, quiet: bool = False) -> str:
    """What a display prints that shows figures once and logs a line with brackets, which are no markup."""
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, force_terminal=terminal, width=80), quiet=quiet) as display:
        assert display.is_live == (terminal and not quiet)
        display.show("epoch [b]3", "30 %", 0.3, below=["loss 2.0", ""])
        display.log("[b] a line")
    return text.getvalue()


def test_terminal_has_the_bar_and_a_log_only_lines():
    for words in ("epoch [b]3", "30 %", "loss 2.0", "[b] a line"):
        assert words in shown(terminal=True)
    assert shown(terminal=False) == "[b] a line\n"
    assert shown(terminal=True, quiet=True) == shown(terminal=False, quiet=True) == ""


@pytest.mark.parametrize("width", [50, 60, 100])
def test_narrow_terminal_shows_all_words(width: int):
    left, right, below = (
        "epoch 12, step 3,456 of 10,000",
        "34 %, end in 1 h 05 min",
        "loss 2.000, rate 1e-03, gradient 0.50",
    )
    text = io.StringIO()
    with ProgressDisplay(Console(file=text, force_terminal=True, width=width)) as display:
        display.show(left, right, 0.34, below=[below])
    lines = [re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", line).rstrip() for line in text.getvalue().splitlines()]
    assert any(line.startswith(left) for line in lines)
    assert any(line.endswith(right) for line in lines)
    assert below in lines
    assert all(len(line) <= width for line in lines)
    assert any(left in line and right in line for line in lines) == (width == 100)


@pytest.mark.parametrize("quiet", [False, True])
def test_notebook_has_the_bar_below_the_cell_until_it_ends(
    quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    shown: list[str] = []
    place = SimpleNamespace(update=lambda data, raw: shown.append(data["text/plain"]))
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: place)
    with ProgressDisplay(Console(force_jupyter=True), quiet=quiet) as display:
        assert display.is_live == (not quiet)
        display.show("epoch 3", "50 %", 0.5, below=["loss 2.0", ""])
        display.show("epoch 3", "51 %", 0.51)  # too soon
        display.log("[b] a line")
    assert not display.is_live
    assert shown == ([] if quiet else ["epoch 3 ████████░░░░░░░░ 50 %\nloss 2.0", ""])
    assert capsys.readouterr() == ("" if quiet else "[b] a line\n", "")


def test_time_left_counts_from_where_the_session_began():
    assert time_left(20.0, start=0.5, done=0.52) == pytest.approx(480.0)
    assert time_left(20.0, start=0.5, done=0.5) == math.inf


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (7500, "2 h 05 min"), (math.inf, "?")],
)
def test_format_duration(seconds: float, words: str):
    assert format_duration(seconds) == words


@pytest.mark.parametrize("steer", ["\x1b]52;c;cm0gLXJm\x07", "\x1b[2J", "\x9b2J", "\r"])
def test_texts_of_strangers_do_not_steer_the_terminal(steer: str, capsys: pytest.CaptureFixture[str]):
    """Keys of a stranger's config.json, for instance, are in messages."""
    display = ProgressDisplay(Console(file=(out := io.StringIO()), force_terminal=True))
    display.log(f"dev :heart: {steer}")
    assert out.getvalue().splitlines() == [f"dev :heart: {escape_controls(steer)}"]
    assert main(["translate", "-m", f"no{steer}", "x"]) == 1
    assert steer not in (said := capsys.readouterr()).err + said.out
    assert escape_controls("가 é\n\tx") == "가 é\n\tx"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("evaluate -m {model} {pairs}", ["translating with ", " 0 % of 10 sentences", "85 % of 10 sentences"]),
        ("translate -m {model} -i {text} -o out.txt", ["translating lines 1 to 10"]),
        ("translate -m {model} -i {text} -o out.txt --quiet", []),
    ],
)
def test_terminal_shows_how_far_a_translation_is(
    trained: Path,
    corpus: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    words: list[str],
    terminal: bool,
):
    """And a log, where nothing can change in place, does not."""
    monkeypatch.chdir(tmp_path)
    if terminal:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(ProgressDisplay, "show", show_at_once)
    monkeypatch.setattr(parts, "max_batch_tokens", lambda *_: 1)
    lines = Path(corpus[1]).read_text(encoding="utf-8").splitlines()[:10]
    Path("pairs.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    Path("text.txt").write_text("".join(line.split("\t")[0] + "\n" for line in lines), encoding="utf-8")
    assert main(command.format(model=trained, pairs="pairs.tsv", text="text.txt").split()) == 0
    said = capsys.readouterr().err
    for word in (*words, "translating"):
        assert (word in said) == (terminal and bool(words))


SHOW = ProgressDisplay.show


def show_at_once(display: ProgressDisplay, *figures: Any) -> None:
    """Not at the next of ten times a second."""
    SHOW(display, *figures)
    display.bar.refresh()
