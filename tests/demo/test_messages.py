"""`dragoman demo --corpus messages`: real sentences from the catalogues of programs."""

from dataclasses import replace
from pathlib import Path

import polib
import pytest

from dragoman.cli import main
from dragoman.demo import messages as demo
from dragoman.demo.messages import catalogues, messages, settings

WORDS = "file folder window page table line image letter border style".split()


def write_catalogue(path: Path, entries: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for source, target in entries.items():
        catalogue.append(polib.POEntry(msgid=source, msgstr=target))
    catalogue.save_as_mofile(str(path))
    return path


def test_messages_are_sentences_of_one_line_each_once(tmp_path: Path):
    folder = tmp_path / "locale" / "ko" / "LC_MESSAGES"
    first = write_catalogue(
        folder / "a.mo",
        {
            "_Save the file": "파일 저장(_S)",
            "Open": "열기",
            "GNU Emacs": "GNU Emacs",
            "Two\nlines here": "두 줄",
            "A long one " * 60: "길어요",
            "&Close the window": "창 닫기",
            "a_b stays here": "a_b 그대로",
        },
    )
    second = write_catalogue(folder / "b.mo", {"Save the file": "다르게 저장"})
    (folder / "broken.mo").write_bytes(b"no catalogue")
    assert catalogues("ko", [str(tmp_path)]) == [first, second, folder / "broken.mo"]
    assert catalogues("de", [str(tmp_path)]) == []
    assert sorted(messages(catalogues("ko", [str(tmp_path)]))) == [
        ("Close the window", "창 닫기"),
        ("Save the file", "파일 저장"),
        ("a_b stays here", "a_b 그대로"),
    ]


def test_settings_are_those_of_the_recipe(tmp_path: Path):
    config = settings(tmp_path, tmp_path / "run", "en-ko", 7.0)
    assert (config.preset, config.vocabulary, config.training.minutes) == ("small", 4000, 7.0)
    assert config.train == (str(tmp_path / "train.tsv"),)


def test_demo_with_messages_trains_and_translates(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch):
    texts = {
        f"The {a} has {b} {n} times the {c}": f"{c}의 {a}에는 {b}(이/가) {n}번"
        for n, (a, b, c) in enumerate((x, y, z) for x in WORDS for y in WORDS for z in WORDS[:5])
    }
    file = write_catalogue(tmp_path / "a.mo", texts)
    monkeypatch.setattr(demo, "catalogues", lambda language: [file])
    monkeypatch.setattr(demo, "FEWEST", 400)
    monkeypatch.setattr(
        demo, "split_by_pair", lambda pairs, dev, test: ["dev", "test"] * 4 + ["train"] * (len(pairs) - 8)
    )
    recipe = demo.settings
    monkeypatch.setattr(demo, "settings", lambda *given: replace(recipe(*given), vocabulary=300))
    out = tmp_path / "run"
    assert main(["demo", "--corpus", "messages", "--out", str(out), "--minutes", "0.02", "--threads", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1 catalogues, English to Korean: 492 pairs to learn from, 4 held out" in printed
    assert "My grandmother baked" in printed
    assert (out / "attention.svg").exists()
    monkeypatch.setattr(demo, "FEWEST", 900)
    assert main(["demo", "--corpus", "messages", "--out", str(tmp_path / "no")]) == 1
    assert "500 messages in Korean are on this machine, too few" in capsys.readouterr().err
    assert main(["demo", "--corpus", "messages", "--quick"]) == 2
