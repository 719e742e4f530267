"""Every command works with an imported model, or says in a sentence why it cannot."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from test_marian_model import EXPECTED, MARIAN

from dragoman.interop.importing import import_model

TEXT = "The LORD is my shepherd."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return import_model(MARIAN, tmp_path_factory.mktemp("imported") / "model")


@pytest.fixture(scope="module")
def pairs_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    rows = [f"{row['source']}\t{row['beam 4'][0]}\n" for row in EXPECTED if row["beam 4"][0]]
    file.write_text("".join(rows), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    "line",
    [
        "info {model}",
        "verify {model}",
        "score -m {model} {pairs}",
        "align -m {model} {pairs}",
        "inspect -m {model} text --html {out}.html",
        "inspect -m {model} text --view heads --out {out}.svg",
        "inspect -m {model} text --view tree --out {out}.svg",
    ],
)
def test_a_command_works(line: str, model: Path, pairs_file: Path, tmp_path: Path, dragoman: Any):
    words = line.format(model=model, pairs=pairs_file, out=tmp_path / "out").split()
    ran = dragoman(*(TEXT if word == "text" else word for word in words))
    assert ran.code == 0, ran.err
    assert ran.out


def test_it_evaluates_as_marian_does(model: Path, pairs_file: Path, dragoman: Any):
    ran = dragoman("evaluate", "-m", model, pairs_file, "--json", "--length-penalty", 0, "--extra-length", 100)
    assert json.loads(ran.out)["bleu"]["value"] == pytest.approx(100)  # the pairs are Marian's own translations


def test_long_texts_placeholders_and_terms(model: Path, tmp_path: Path, dragoman: Any):
    (tmp_path / "terms.tsv").write_text("LORD\tSeñor\n", encoding="utf-8")
    source = f"{TEXT} And {{name}} went. {TEXT * 3}"
    ran = dragoman("translate", "-m", model, "--glossary", tmp_path / "terms.tsv", "--output-format", "jsonl", source)
    (found,) = map(json.loads, ran.out.splitlines())
    assert found["segments"] > 2
    assert found["translation"].count("{name}") == 1
    assert "Señor" in found["translation"]
    assert found["terms_met"]


def test_ctranslate2_says_the_same(model: Path, dragoman: Any):
    texts = [row["source"] for row in EXPECTED[:20]]
    one, other = (
        dragoman("translate", "-m", model, "--engine", engine, *texts) for engine in ("native", "ctranslate2")
    )
    assert (one.code, one.out) == (0, other.out)
    assert dragoman("translate", "-m", model, "--beam", 1, *texts).out != other.out  # the control


@pytest.mark.slow
def test_it_is_fine_tuned_resumed_averaged_and_taught_from(
    model: Path, pairs_file: Path, tmp_path: Path, dragoman: Any
):
    files = ["--train", pairs_file, "--dev", pairs_file, "--quiet", "--training.threads", 1]
    run = ["train", *files, "--out", tmp_path / "tuned", "--training.learning-rate", 0.1]
    assert dragoman(*run, "--init-from", model, "--training.max-steps", 1).code == 0
    assert dragoman(*run, "--training.max-steps", 2).code == 0
    assert dragoman("average", tmp_path / "tuned", "--out", tmp_path / "mean").code == 0
    assert dragoman("translate", "-m", tmp_path / "mean", TEXT).code == 0
    taught = dragoman("distill", "--teacher", model, *files, "--out", tmp_path / "student", "--training.max-steps", 1)
    assert taught.code == 0, taught.err
    (tmp_path / "text").write_text(f"{TEXT}\n", encoding="utf-8")
    back = ["backtranslate", "-m", model, "--text", tmp_path / "text", "--out", tmp_path / "back.tsv", "--quiet"]
    assert dragoman(*back).code == 0
    assert len((tmp_path / "back.tsv").read_text(encoding="utf-8").splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--training.bpe-dropout 0.1", "BPE-dropout needs tokenizers that dragoman has learned"),
        ("--vocabulary 900", "subwords"),
    ],
)
def test_what_its_subwords_cannot_do_is_said(
    flags: str, says: str, model: Path, pairs_file: Path, tmp_path: Path, dragoman: Any
):
    files = ["--train", pairs_file, "--dev", pairs_file, "--init-from", model, "--out", tmp_path / "run", "--quiet"]
    ran = dragoman("train", *files, "--training.max-steps", 1, *flags.split())
    assert (ran.code, says in ran.err) in ((1, True), (2, True)), ran.err


@pytest.mark.parametrize("to", ["ctranslate2", "onnx"])
def test_it_is_exported(to: str, model: Path, tmp_path: Path, dragoman: Any):
    ran = dragoman("export", model, "--to", to, tmp_path / "out")
    assert ran.code == 0, ran.err
    texts = [row["source"] for row in EXPECTED[:20]]
    readme = (tmp_path / "out" / "README.md").read_text("utf-8")
    (tmp_path / "out" / "translate.py").write_text(readme.split("```python\n")[1].split("```")[0], encoding="utf-8")
    translate = runpy.run_path(str(tmp_path / "out" / "translate.py"))["translate"]
    said = translate(texts, beams=1) if to == "ctranslate2" else [translate(text) for text in texts]
    assert said == [row["greedy"][0] for row in EXPECTED[:20]]


def test_no_page_is_made_of_it(model: Path, tmp_path: Path, dragoman: Any):
    ran = dragoman("export", model, "--to", "web", tmp_path / "out", "--compute-type", "float32")
    assert (ran.code, "its subwords are SentencePiece's" in ran.err) == (1, True)
    assert not (tmp_path / "out").exists()
