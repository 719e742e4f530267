"""`dragoman distill`: a student learns from its teacher's translations, and both are compared."""

import json
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import TINY, TINY_RECURRENT, state, write_tsv
from processes import KILLED, Command, signal_before

from dragoman.cli import main
from dragoman.config import FeedForwardConfig, ModelConfig, RunConfig, SearchConfig, read_toml
from dragoman.data.corpus import Pair, read_corpus
from dragoman.evaluation import compare
from dragoman.evaluation.compare import compare_models
from dragoman.evaluation.metrics import evaluate
from dragoman.model_folder import load_model
from dragoman.synthesis.student import prepare_student
from dragoman.training.checkpoint import lock_folder
from dragoman.translation.translator import Translator

Corpus = tuple[str, str]


def distill(teacher: Path, corpus: Corpus, out: Path, *more: object) -> list[str]:
    settings = "--preset tiny --training.max-steps 3 --training.validate-every 3 --training.save-every 1 "
    settings += "--training.threads 1 --training.batch-tokens 500 --training.device cpu --training.precision float32 "
    settings += "--model.feed-forward.d-ff 24 --beam 1 --extra-length 5 --block 20"
    given = ["--teacher", teacher, "--train", corpus[0], "--dev", corpus[1], "--out", out, *more]
    return ["distill", *map(str, given), *settings.split()]


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Corpus:
    """Fewer pairs than the teacher has seen."""
    folder = tmp_path_factory.mktemp("few")
    return write_tsv(folder / "train.tsv", pairs[:60]), write_tsv(folder / "dev.tsv", pairs[190:])


@pytest.fixture(scope="module")
def student(trained: Path, few: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a student, never interrupted."""
    out = tmp_path_factory.mktemp("student") / "run"
    running = Command(distill(trained, few, out), out.with_suffix(".log"))
    assert running.code() == 0, running.said
    return out


def synthetic(run: Path) -> Path:
    """The file of what a teacher made of the training sources."""
    return run / "synthetic" / "1.tsv"


def test_student_has_the_subwords_of_its_teacher_and_its_own_layers(student: Path, trained: Path):
    (teacher, (subwords, _)), (model, (same, _)) = load_model(trained / "best"), load_model(student / "best")
    assert same.pieces == subwords.pieces
    assert model.config == replace(teacher.config, feed_forward=FeedForwardConfig(d_ff=24))
    assert read_toml(student / "config.toml")["train"] == [str(synthetic(student))]
    assert read_corpus([str(synthetic(student))]).pairs


def test_teacher_and_student_stand_side_by_side(
    student: Path, trained: Path, few: Corpus, capfd: pytest.CaptureFixture[str]
):
    assert main(distill(trained, few, student, "--json")) == 0  # all is there: it only measures
    shown = capfd.readouterr()
    assert f"comparing teacher and student on {few[1]}, " in shown.err
    found = json.loads(shown.out)
    assert {row["beam"] for row in found["rows"]} == {1}
    rows = {(row["model"], row["engine"]): row for row in found["rows"]}
    for name, folder in (("teacher", trained), ("student", student)):
        row = rows[name, "native"]
        model, _ = load_model(folder / "best")
        assert row["parameters"] == sum(p.numel() for p in model.parameters())
        assert row["bytes"] > 4 * row["parameters"]
        assert row["tokens_per_second"] > 0
        assert main(["evaluate", "-m", str(folder), few[1], "--beam", "1", "--extra-length", "5", "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["bleu"] == row["scores"]["bleu"]
    assert found == json.loads((student / "students.json").read_text())
    assert next(iter(found)) == "format"
    assert found["synthetic"][0]["pairs"] > 30


@pytest.mark.slow
def test_comparison_measures_beams_two_and_one_too(student: Path, trained: Path, few: Corpus):
    folders = {"teacher": trained, "student": student}
    comparison = compare_models(folders, [few[1]], SearchConfig(beam=3, extra_length=5))
    natives = [row for row in comparison.rows if row.engine == "native"]
    assert [(row.model, row.beam) for row in natives] == [(name, beam) for name in folders for beam in (3, 2, 1)]
    sources, references = zip(*read_corpus([few[1]]).pairs, strict=True)
    for row in natives:
        translator = Translator.load(folders[row.model], SearchConfig(beam=row.beam, extra_length=5))
        translations = [found.text for found in translator.translate(sources)]
        assert evaluate(translations, references).bleu.value == row.scores.bleu.value
    lines = [line.split(" | ")[0] for line in str(comparison).splitlines() if line.startswith("| student, native")]
    assert lines == ["| student, native", "| student, native, beam 2", "| student, native, greedy"]


def test_fewer_beams_cut_texts_as_the_search_does(trained: Path, few: Corpus, monkeypatch: pytest.MonkeyPatch):
    searches: list[SearchConfig] = []
    monkeypatch.setattr(compare, "count_tokens", lambda translator, ids: searches.append(translator.search) or 1)
    compare_models({"teacher": trained}, [few[1]], SearchConfig(beam=2, extra_length=5, split="none"))
    assert {(one.beam, one.split) for one in searches} == {(2, "none"), (1, "none")}


def test_killed_distillation_ends_as_one_that_was_not(student: Path, trained: Path, few: Corpus, tmp_path: Path):
    """While the teacher translates, before the first model of the student is written, and while it learns."""
    out = tmp_path / "run"
    places = (
        ("dragoman.synthesis.blocks", "replace_file", 3),
        ("dragoman.model_folder", "write_model", 1),
        ("dragoman.training.learner:Learner", "update", 3),
    )
    for owner, name, call in places:
        fault = partial(signal_before, owner, name, call, signal.SIGKILL)
        killed = Command(distill(trained, few, out), tmp_path / "log", {"RANK": "0"}, [fault])
        assert killed.code() == KILLED, killed.said
    again = Command(distill(trained, few, out), tmp_path / "log")
    assert again.code() == 0, again.said
    assert synthetic(out).read_bytes() == synthetic(student).read_bytes()
    assert state(out) == state(student)


def test_shards_of_a_distillation_only_translate(student: Path, trained: Path, few: Corpus, tmp_path: Path):
    out = tmp_path / "run"
    for number in (1, 2):
        assert main(distill(trained, few, out, "--quiet", "--shard", f"{number}/2")) == 0
    assert [path.name for path in out.iterdir()] == ["synthetic"]
    assert synthetic(out).read_bytes() == synthetic(student).read_bytes()


@pytest.mark.slow
def test_original_pairs_are_mixed_in_if_wanted(student: Path, trained: Path, few: Corpus, tmp_path: Path):
    out = tmp_path / "run"
    assert main(distill(trained, few, out, "--quiet", "--originals", "0.5")) == 0
    assert read_toml(out / "config.toml")["train"] == [str(synthetic(out)), few[0], "weight=0.5"]
    assert state(out) != state(student)  # the control for the equalities above


# What a student starts from.


@pytest.mark.parametrize(
    ("model", "layers"),
    [
        (replace(TINY, encoder_layers=3), {"encoder.0", "decoder.0"}),
        (replace(TINY, decoder_layers=0), {"encoder.0"}),
        (replace(TINY, d_model=24), set()),
        (TINY_RECURRENT, set()),
    ],
    ids=["deeper", "shallower", "wider", "recurrent"],
)
def test_student_starts_with_what_fits_of_its_teacher(
    trained: Path, tmp_path: Path, model: ModelConfig, layers: set[str]
):
    start = tmp_path / "start"
    prepare_student(RunConfig("tiny", ("a.tsv",), ("b.tsv",), model=model, init_from=str(start)), trained / "best")
    (student, (tokenizer, _)), (teacher, (other, _)) = load_model(start), load_model(trained / "best")
    assert (tokenizer.pieces, student.config) == (other.pieces, model)
    theirs = dict(teacher.named_parameters())
    matrices = {name: own for name, own in student.named_parameters() if own.dim() > 1}
    same = {name for name, own in matrices.items() if name in theirs and torch.equal(own, theirs[name])}
    found = {name for name in matrices if ".".join(name.split(".")[:2]) in layers}
    assert same == (found | {"source_embedding.weight"} if layers else set())
    inherited = sum(p.numel() for name, p in student.named_parameters() if layers and name in theirs)
    assert f"weights, {inherited:,} come from the teacher" in (start / "card.md").read_text()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("--train {train} --dev {train}", 2, "--teacher is missing"),
        ("--teacher {model} --dev {train}", 2, "--train is missing"),
        ("--teacher missing --train {train} --dev {train}", 1, "missing: no such model folder"),
        ("--teacher {model} --train {train} --dev {train} --preset huge", 2, "no preset 'huge'"),
        ("--teacher {model} --train {train} --dev {train} --originals -1", 2, "originals must be a weight"),
        ("--teacher {model} --train {train} --dev missing", 1, "missing: no such file"),
        ("--teacher {model} --train {train} --dev {train} --test missing", 1, "missing: no such file"),
        ("--teacher {model} --train missing --dev {train}", 1, "missing: no such file"),
        (
            "--teacher {model} --train {train} --dev {train} --model.encoder-layers 2",
            2,
            "more than the {weights:,} of its teacher",
        ),
    ],
)
def test_wrong_request_is_one_sentence(
    trained: Path, few: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], words: str, code: int, says: str,
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(["distill", "--out", "run", *words.format(model=trained, train=few[0]).split()]) == code
    err = capfd.readouterr().err
    weights = sum(parameter.numel() for parameter in load_model(trained / "best")[0].parameters())
    assert says.format(weights=weights) in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_second_distillation_leaves_the_start_of_the_one_that_is_training(
    student: Path, trained: Path, few: Corpus, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    out = shutil.copytree(student, tmp_path / "run", symlinks=True)
    shutil.rmtree(out / "checkpoints")
    (out / "start" / "mine").write_text("")
    with lock_folder(out):
        assert main(distill(trained, few, out, "--quiet")) == 1
    assert "another process is using this folder" in capfd.readouterr().err
    assert (out / "start" / "mine").exists()
