"""The numbers of the formats: what has an old one is read, what has a newer one is refused and left alone."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import events, progress, run_config, run_training, signed_again, toy_pairs, with_training, write_tsv

from dragoman.config import TrainingConfig
from dragoman.data.dataset import Pairs, tokenise
from dragoman.data.spec import CorpusSpec
from dragoman.data.tokenizer import Tokenizer, index_by_piece
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.forced import score
from dragoman.errors import DragomanError, UsageError
from dragoman.model_folder import read_model
from dragoman.storage import formats
from dragoman.storage.formats import NewerFormatError
from dragoman.text.extent import SourceExtent
from dragoman.training.resume import previous_config, read_run_config
from dragoman.training.weights import untrained_model
from dragoman.translation.translator import Translator
from dragoman.version import __version__

Corpus = tuple[str, str]


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    """A model folder of one's own."""
    return shutil.copytree((trained / "best").resolve(), tmp_path / "model")


def change(file: Path, **changes: Any) -> None:
    """Change fields of a JSON file in a model folder; None takes one out."""
    fields = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))
    signed_again(file.parent)


@pytest.mark.parametrize(("name", "number"), [("config.json", 3), ("state.json", 2)])
def test_checkpoint_begins_with_its_format_and_the_version_that_wrote_it(folder: Path, name: str, number: int):
    fields = json.loads((folder / name).read_text())
    assert list(fields.items())[:2] == [("format", number), ("version", __version__)]


def test_model_of_a_newer_format_is_refused_with_what_to_do(folder: Path):
    change(folder / "config.json", format=formats.MODEL + 1, version="9.8.7")
    with pytest.raises(NewerFormatError, match=r"config\.json: written by dragoman 9\.8\.7 .* update dragoman"):
        read_model(folder)
    # The controls: the version alone does not matter, and no format is that of version 0.1.0.
    change(folder / "config.json", format=formats.MODEL)
    read_model(folder)
    change(folder / "config.json", format=None, version=None)
    read_model(folder)


@pytest.mark.parametrize("number", ["2", 0, -1, 2.0, True, [], {}])
def test_format_that_is_no_number_is_damage(folder: Path, number: Any):
    change(folder / "config.json", format=number)
    with pytest.raises(DragomanError, match=r"config\.json: .*its format is not a number"):
        read_model(folder)


def test_run_with_a_newer_checkpoint_is_not_resumed_from_an_older_one(corpus: Corpus, tmp_path: Path):
    config = run_config(corpus, tmp_path / "run", max_steps=4, save_every=2)
    run_training(config)
    run, last = tmp_path / "run", (tmp_path / "run" / "last").resolve()
    change(last / "state.json", format=formats.CHECKPOINT + 1)
    longer = with_training(config, max_steps=6)
    with pytest.raises(NewerFormatError, match=r"state\.json: written by .* update dragoman"):
        run_training(longer)
    assert (run / "last").resolve() == last
    (last / "state.json").write_text("{}")  # the control: from before damage it is resumed
    assert len(run_training(longer).losses) == 4


def test_corpus_of_a_newer_format_is_refused_unless_it_can_be_remade(
    corpus: Corpus, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
):
    spec, file = CorpusSpec((write_tsv(tmp_path / "a.tsv", toy_pairs(5)),)), tmp_path / "a.arrow"
    with monkeypatch.context() as newer:
        newer.setattr(formats, "CORPUS", formats.CORPUS + 1)
        written, _ = tokenise((spec,), Tokenizers.from_tokenizer(tokenizer), None, file)
    with pytest.raises(NewerFormatError, match=r"a\.arrow: written by dragoman .* update dragoman"):
        Pairs.open(file)
    assert (
        tokenise((spec,), Tokenizers.from_tokenizer(tokenizer), None, file)[0].fingerprint == written.fingerprint
    )  # the control


def test_objects_that_commands_print_begin_with_their_format(dragoman, trained: Path, corpus: Corpus):
    for words in (
        ["check", corpus[0], "--json"],
        ["evaluate", "-m", trained, corpus[1], "--beam", "1", "--extra-length", "5", "--json"],
        ["info", "--preset", "tiny", "--json"],
        ["inspect", "-m", trained, "The dog sees 2 red cats.", "--json"],
    ):
        assert next(iter(json.loads(dragoman(*words).out).items())) == ("format", formats.OUTPUT), words


# What earlier versions wrote. scripts/make_format_example.py made these folders, and recorded what their models gave.

EXAMPLES = sorted((Path(__file__).parents[1] / "formats").iterdir())


@pytest.fixture(params=EXAMPLES, ids=lambda folder: folder.name)
def example(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a folder with `train.tsv`, `dev.tsv`, `run/` and `recorded.json`; we are in it."""
    copy = shutil.copytree(request.param, tmp_path / request.param.name, symlinks=True)
    monkeypatch.chdir(copy)
    return copy


def test_examples_are_of_every_version_up_to_this_one():
    assert [folder.name for folder in EXAMPLES] == ["0.1.0", "0.2.0"]
    assert EXAMPLES[-1].name == __version__


def test_model_of_an_earlier_version_translates_as_it_did(example: Path):
    recorded = json.loads(Path("recorded.json").read_text())["pairs"]
    translator = Translator.load("run")
    found = translator.translate([row["source"] for row in recorded])
    assert [translation.text for translation in found] == [row["translation"] for row in recorded]
    assert [translation.score for translation in found] == pytest.approx([row["score"] for row in recorded], abs=1e-3)
    sides = [[translator.tokenizers.source.encode(row[side]) for row in recorded] for side in ("source", "target")]
    likelihoods = [likelihood.total for likelihood in score(translator.model, *sides)]
    assert likelihoods == pytest.approx([row["log_p"] for row in recorded], abs=1e-3)
    # The control: the model has learned something, and tells the pairs apart.
    assert sum(row["translation"] == row["target"] for row in recorded) > len(recorded) / 2
    assert len({round(row["log_p"], 3) for row in recorded}) == len(recorded)


def test_run_settings_of_earlier_versions_are_read_by_all_commands(dragoman, example: Path):
    os.chdir(example)  # `dragoman` has left it
    settings = read_run_config(Path("run"))
    assert settings.training.concatenate == {"0.1.0": 0.1}.get(example.name, settings.training.concatenate)
    assert settings == previous_config(Path("run"))
    assert untrained_model(Path("run"), read_model(Path("run"))[1]) is not None
    assert dragoman("inspect", "-m", "run", "The dog sees 2 cats.", "--html", "page.html").code == 0


def test_run_of_an_earlier_version_is_resumed_to_its_end(example: Path):
    run, recorded = Path("run"), json.loads(Path("recorded.json").read_text())["resumed"]
    config, before = previous_config(run), progress(run)
    assert config is not None
    assert Pairs.open(run / "data" / "train.arrow").fingerprint == before["data"]
    earlier = events(run, "step")[-1]["loss"]
    resumed = run_training(with_training(config, max_steps=recorded["step"]))
    assert progress(run)["step"] == recorded["step"] == before["step"] + len(resumed.losses)
    assert sum(resumed.losses) / sum(resumed.tokens_of_steps) == pytest.approx(recorded["loss"], abs=1e-4)
    assert earlier != pytest.approx(recorded["loss"], abs=1e-4)  # the control


# An experiment that was removed: models that read terms in their sources.


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_run_settings_with_terms_are_refused_and_without_are_read(tmp_path: Path, share: float):
    (tmp_path / "config.toml").write_text(f"[training]\nseed = 5\nterms = {share}\n")
    if share:
        with pytest.raises(UsageError, match=r"config\.toml: training\.terms no longer exists: start a new run"):
            read_run_config(tmp_path)
    else:
        assert read_run_config(tmp_path).training == TrainingConfig(seed=5)


def test_model_trained_with_terms_translates_like_any_other(folder: Path):
    record = json.loads((folder / "extent.json").read_text())
    plain = SourceExtent.load(folder)
    change(folder / "extent.json", terms=True)
    assert SourceExtent.load(folder) == plain
    change(folder / "extent.json", other=True)  # the control
    with pytest.raises(DragomanError, match="not a record"):
        SourceExtent.load(folder)
    assert "terms" not in record


def test_tokenizer_of_a_model_trained_with_terms_has_marks_without_text(tokenizer: Tokenizer):
    marked = Tokenizer(index_by_piece([*tokenizer.pieces, "<term>", "</term>", "<other>"]), tokenizer.merges)
    begin, end, other = range(len(tokenizer), len(marked))
    ids = marked.encode("The dog.")
    assert marked.decode([begin, *ids, end]) == "The dog."
    assert marked.decode([*ids, other]) == "The dog.<other>"  # the control
