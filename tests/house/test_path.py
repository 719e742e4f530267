"""From file to BLEU: how many files of dragoman a sentence passes in `dragoman evaluate`, and which.

A file counts where one of its functions runs between the reading of the first line and the BLEU score. Not counted are
the command line, errors and settings, which handle no sentence, and what runs while the model is loaded. The sentences
are ordinary ones: none is translated a second time because something was wrong with the first translation.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import write_tsv

import dragoman
from dragoman.cli import main
from dragoman.commands.evaluate import translate_corpus
from dragoman.config import SearchConfig
from dragoman.data.corpus import Pair
from dragoman.data.lines import read_lines
from dragoman.evaluation.metrics import evaluate
from dragoman.translation.translator import Translator

PACKAGE = Path(dragoman.__file__).parent
BUDGET = 27
NO_SENTENCE = {"cli.py", "errors.py", "config", "commands/__init__.py"}  # settings and messages


def files_between(start: Callable, stop: Callable, without: Callable, work: Callable[[], object]) -> set[str]:
    """Return the files of dragoman whose functions `work` calls after `start` is called and until `stop` returns,
    leaving out what `without` calls.
    """
    files: set[str] = set()
    running, loading = False, 0

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal running, loading
        code = frame.f_code
        running = running or (event == "call" and code is start.__code__)
        if code is without.__code__:
            loading += {"call": 1, "return": -1}.get(event, 0)
        if running and not loading and event == "call" and code.co_filename.startswith(str(PACKAGE)):
            files.add(str(Path(code.co_filename).relative_to(PACKAGE)))
        if event == "return" and code is stop.__code__:
            running = False

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return files


@pytest.fixture(scope="module")
def files(trained: Path, pairs: list[Pair], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    translations = Translator.load(trained).translate([source for source, _ in pairs])
    ordinary = [pair for pair, found in zip(pairs, translations, strict=True) if not found.retried]
    assert len(ordinary) > 2
    test = write_tsv(tmp_path_factory.mktemp("path") / "test.tsv", ordinary[:20])
    passed = files_between(
        read_lines, evaluate, Translator.load.__func__, lambda: main(["evaluate", "-m", str(trained), test])
    )
    return {file for file in passed if not NO_SENTENCE & {file, file.split("/")[0]}}


def test_commands_do_not_run_below_translate(trained: Path, pairs: list[Pair], tmp_path: Path):
    test = write_tsv(tmp_path / "test.tsv", pairs[:4])

    def below(function: Callable) -> set[str]:
        words = ["evaluate", "-m", str(trained), test, "--beam", "3"]
        return files_between(function, function, Translator.load.__func__, lambda: main(words))

    assert not {file for file in below(Translator.translate) if file.startswith("commands")}
    assert "commands/evaluate.py" in below(translate_corpus)  # the control


def test_translate_builds_settings_only_where_they_change(trained: Path, monkeypatch: pytest.MonkeyPatch):
    translator, built = Translator.load(trained), list[SearchConfig]()
    monkeypatch.setattr(SearchConfig, "__post_init__", lambda config: built.append(config))
    for settings, changes in (({}, 0), ({"beam": 2}, 1)):
        built.clear()
        retried = translator.translate(["A dog.", "The cat sees 3 dogs."] * 4, **settings)
        assert len(built) == changes + any(translation.retried for translation in retried)


def test_sentence_passes_few_files_from_file_to_bleu(files: set[str]):
    assert {"commands/evaluate.py", "data/corpus.py", "inference/native.py", "evaluation/metrics.py"} <= files
    assert len(files) <= BUDGET, "\n".join(sorted(files))


def test_map_of_the_code_names_these_files(files: set[str]):
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    section = readme.split("## The path of a sentence")[1].split("\n## ")[0]
    assert set(re.findall(r"`([\w/]+\.py)`", section)) == files
