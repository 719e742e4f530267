"""`dragoman import --check` holds a new model against what `transformers` computes with its original."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import m2m100_folder, marian_folder, npz_folder

from dragoman.errors import DragomanError, UsageError
from dragoman.interop import importing, verification, weights
from dragoman.interop.importing import import_model
from dragoman.interop.transformers import original

pytest.importorskip("transformers", reason="--check needs the extra `huggingface`")

FORMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "MarianMT": (marian_folder, {"tags": [">>deu<<", ">>spa<<"]}),
    "separate": (marian_folder, {"separate": True, "dtype": torch.float16}),
    "a head that differs": (marian_folder, {"head": "unequal", "end": 17}),
    "a start of its own": (marian_folder, {"own_start": True}),
    "a pickle": (marian_folder, {"pickled": "new"}),
    "M2M100": (m2m100_folder, {"head": "own"}),
    "NLLB": (m2m100_folder, {"nllb": True, "shard": "20KB"}),
}
FAST = ("separate", "NLLB")


@pytest.fixture(autouse=True)
def few_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (verification, original):
        monkeypatch.setattr(module, "SOURCES", 4)


@pytest.mark.parametrize(
    "form", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in FORMS]
)
def test_forms_of_transformers_all_agree(form: str, tmp_path: Path):
    write, settings = FORMS[form]
    write(tmp_path / "their", **settings)
    (tmp_path / "their" / "generation_config.json").write_text(
        '{"num_beams": 6, "no_repeat_ngram_size": 1, "min_length": 30, "bad_words_ids": [[5]]}'
    )
    out = import_model(tmp_path / "their", tmp_path / "ours", check=True)
    card = (out / "card.md").read_text("utf-8")
    assert "- Compared with transformers 5." in card
    for beams in ("greedy search", "search with 4 beams"):
        assert f"{beams}: the same words for 4 of 4 sources" in card


def test_sample_is_translated_behind_the_tag(dragoman: Any, tmp_path: Path):
    m2m100_folder(tmp_path / "their", nllb=True)
    (tmp_path / "sample.txt").write_text("The dog sees 5 cats.\n\nThe cat.\n")
    command = ["import", "their", "ours", "--tag", "eng_Latn", "--target-tag", "kor_Hang", "--sample", "sample.txt"]
    ran = dragoman(*command, "--check")
    assert (ran.code, ran.out) == (0, "ours\n")
    assert "on sources of sample.txt: log-probabilities of" in ran.err
    assert "greedy search: the same words for 2 of 2 sources" in ran.err
    ran = dragoman(*command[:2], "other", *command[3:])
    assert (ran.code, "--sample is for --check" in ran.err) == (2, True)


def unsorted_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    right, norm = weights.in_order, "encoder.0.around_attention.norm.weight"
    monkeypatch.setattr(weights, "in_order", lambda ours, *given: given[0] if ours == norm else right(ours, *given))


def another_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    right = importing.build_model

    def build(given: Any) -> Any:
        model = right(given)
        with torch.no_grad():
            model.decoder[0].feed_forward.out.weight[3, 5] += 0.5
        return model

    monkeypatch.setattr(importing, "build_model", build)


@pytest.mark.parametrize("fault", [unsorted_norm, another_weight])
def test_faulty_import_is_not_there(fault: Callable, dragoman: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The controls; without --check, nobody sees it."""
    marian_folder(tmp_path / "their")
    fault(monkeypatch)
    before = sorted(tmp_path.iterdir())
    ran = dragoman("import", "their", "ours", "--check")
    assert (ran.code, ran.out) == (1, "")
    assert "ours: not written: it does not translate as their in transformers: its log-probabilities differ" in ran.err
    assert sorted(tmp_path.iterdir()) == before
    assert dragoman("import", "their", "ours").code == 0


def test_check_refuses_what_transformers_has_not_got(tmp_path: Path):
    npz_folder(tmp_path / "their")
    with pytest.raises(DragomanError, match="transformers, which reads only its own folders"):
        import_model(tmp_path / "their", tmp_path / "ours", check=True)
    with pytest.raises(UsageError, match="other positions than --positions marian"):
        import_model(tmp_path / "their", tmp_path / "ours", "marian", check=True)


def test_without_transformers_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    (tmp_path / "their").mkdir()
    with pytest.raises(DragomanError, match=r"pip install 'dragoman\[huggingface\]'"):
        import_model(tmp_path / "their", tmp_path / "ours", check=True)
