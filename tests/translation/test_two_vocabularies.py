"""Models whose two languages have a tokenizer each, through everything that is done with a model."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import run_config, run_training, signed_again, state, tiny_transformer, with_training, write_tsv

from dragoman.cli import main
from dragoman.config import RunConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import JOINT, SIDES, Tokenizers
from dragoman.decoding.forced import score
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.inspection.inspect import inspect
from dragoman.model import build
from dragoman.model_folder import read_model, write_model
from dragoman.storage.writing import new_folder
from dragoman.training.average import average
from dragoman.translation.safeguards import NO_SAFEGUARDS
from dragoman.translation.translator import Translator

Corpus = tuple[str, str]
Pair = tuple[str, str]


@pytest.fixture(scope="module")
def both(pairs: list[Pair]) -> Tokenizers:
    """A tokenizer of each language; what the one knows the other spells in bytes."""
    english, korean = zip(*pairs, strict=True)
    return Tokenizers(Tokenizer.train(english, suggested=340), Tokenizer.train(korean, suggested=320))


@pytest.fixture(scope="module")
def start(both: Tokenizers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder before training."""
    torch.manual_seed(1)
    model = build(tiny_transformer(share="output"), len(both.source), both.target_vocabulary)
    with new_folder(tmp_path_factory.mktemp("start") / "model") as draft:
        write_model(draft, model, both, "# card\n")
    return draft.parent / "model"


def config_of(corpus: Corpus, start: Path, out: Path, **training) -> RunConfig:
    config = run_config(corpus, out, **training)
    return dataclasses.replace(config, init_from=str(start), vocabulary=None, model=TransformerConfig())


@pytest.fixture(scope="module")
def run(corpus: Corpus, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after a short training."""
    out = tmp_path_factory.mktemp("two") / "run"
    run_training(config_of(corpus, start, out, max_steps=40, validate_every=20, bpe_dropout=0.1))
    return out


def test_folder_with_two_tokenizers_comes_back(start: Path, both: Tokenizers, tokenizer: Tokenizer):
    model, found = read_model(start)
    assert found.as_files() == both.as_files()
    assert not found.is_one
    assert sorted(found.as_files()) == sorted(SIDES)
    assert not (start / JOINT).exists()
    assert model.source_embedding.num_embeddings == len(both.source) != len(both.target) == model.output.out_features
    assert Tokenizers.from_tokenizer(both) is both
    assert Tokenizers.from_tokenizer(tokenizer).is_one
    assert list(Tokenizers.from_tokenizer(tokenizer).as_files()) == [JOINT]


@pytest.mark.parametrize("name", SIDES)
def test_folder_without_one_of_them_is_refused(start: Path, tmp_path: Path, name: str):
    folder = shutil.copytree(start, tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(DragomanError, match=name):
        read_model(folder)
    signed_again(folder)
    with pytest.raises(DragomanError, match="does not list"):
        read_model(folder)


def test_sizes_that_are_not_those_of_the_model_are_refused(start: Path, tmp_path: Path, both: Tokenizers):
    folder = shutil.copytree(start, tmp_path / "model")
    shutil.copy(folder / SIDES[0], folder / SIDES[1])
    signed_again(folder)
    with pytest.raises(DragomanError, match=rf"{len(both.target)} words, but {SIDES[1]} has {len(both.source)}"):
        read_model(folder)
    description = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**description, "target_vocabulary": len(both.source)}))
    signed_again(folder)
    with pytest.raises(DragomanError, match=r"model\.safetensors: .*config\.json describes"):
        read_model(folder)


@pytest.mark.slow
def test_run_is_resumed_to_the_bit(corpus: Corpus, start: Path, tmp_path: Path):
    whole = config_of(corpus, start, tmp_path / "whole", max_steps=8, bpe_dropout=0.1)
    run_training(whole)
    parts = dataclasses.replace(whole, out=str(tmp_path / "parts"))
    run_training(with_training(parts, max_steps=5))
    run_training(parts)
    assert state(tmp_path / "parts") == state(tmp_path / "whole")
    assert state(tmp_path / "parts") != state_of_other(whole, tmp_path)


def state_of_other(config: RunConfig, folder: Path) -> str:
    """The control: the same run with another seed."""
    run_training(with_training(dataclasses.replace(config, out=str(folder / "other")), seed=7))
    return state(folder / "other")


def test_training_and_translation_use_the_tokenizer_of_each_side(run: Path, pairs: list[Pair], both: Tokenizers):
    translator = Translator.load(run, SearchConfig(beam=2, extra_length=6), NO_SAFEGUARDS)
    assert f"{len(both.source)} and {len(both.target)} subwords" in repr(translator)
    sources = [source for source, _ in pairs[:20]]
    found = translator.translate(sources)
    searched = TorchEngine(translator.model).search(both.source.encode_all(sources), translator.search)
    assert [one.text for one in found] == [both.target.decode(own[0].tokens) for own in searched]
    assert any("가" in one.text for one in found)  # it has learned to write Korean
    assert [one.text for one in found] != [both.source.decode(own[0].tokens) for own in searched]  # the control


def test_scores_are_those_of_each_sides_ids(dragoman, run: Path, corpus: Corpus, pairs: list[Pair], both: Tokenizers):
    lines = [json.loads(line) for line in dragoman("score", "-m", run, corpus[1], "--json").out.splitlines()]
    model, sources, targets = read_model(run)[0], *zip(*pairs[190:], strict=True)
    expected = score(model, both.source.encode_all(sources), both.target.encode_all(targets))
    assert [line["log_p"] for line in lines] == pytest.approx([one.total for one in expected], abs=1e-3)
    for line, (_, target) in zip(lines, pairs[190:], strict=True):
        assert [piece for piece, _ in line["tokens"][:-1]] == [
            both.target.pieces[id] for id in both.target.encode(target)
        ]
    swapped = score(model, both.source.encode_all(sources), both.target.encode_all(sources))
    assert [line["log_p"] for line in lines] != pytest.approx([one.total for one in swapped], abs=1)  # the control


def test_words_of_both_sides_are_aligned_and_inspected(dragoman, run: Path, corpus: Corpus, pairs: list[Pair]):
    lines = dragoman("align", "-m", run, corpus[1], "--text").out.splitlines()
    for line, (source, target) in zip(lines, pairs[190:], strict=True):
        for link in line.split(" "):
            one, other = link.split("→")
            assert one in source.split()
            assert other in target.split()
    source, target = pairs[0]
    inspection = inspect(Translator.load(run), source, target)
    assert [word.label for word in inspection.source.words] == [*source.split(), "</s>"]
    assert [word.label for word in inspection.target.words] == [*target.split(), "</s>"]
    translator = Translator.load(run)
    (scores,) = translator.annotator.word_scores([[(source, target)]])
    assert [word for word, _ in scores] == [*target.split(), ""]
    sides = translator.tokenizers.encode_sides([source], [target])
    assert sum(log_p for _, log_p in scores) == pytest.approx(score(translator.model, *sides)[0].total, abs=1e-3)
    translation = translator.translate(source, alignments=True)
    assert max(pair[1] for pair in translation.alignment) < len(translation.text.split())


def test_info_names_both_sizes(dragoman, run: Path, both: Tokenizers):
    assert f"{len(both.source)} subwords of the source, {len(both.target)} of the target" in dragoman("info", run).out
    found = json.loads(dragoman("info", run, "--json").out)
    assert (found["vocabulary"], found["target_vocabulary"]) == (len(both.source), len(both.target))


@pytest.mark.slow
def test_model_with_two_vocabularies_is_averaged_verified_and_distilled(
    dragoman, run: Path, start: Path, tmp_path: Path, corpus: Corpus
):
    average([start, run / "best"], tmp_path / "mean")
    assert read_model(tmp_path / "mean")[1].as_files() == read_model(start)[1].as_files()
    assert dragoman("verify", run).code == 0
    few = write_tsv(tmp_path / "few.tsv", [("The dog sees 2 red cats.", "개가 빨간 고양이 2마리를 봐요.")] * 8)
    student = ["--out", tmp_path / "student", "--training.max-steps", 2, "--training.validate-every", 2]
    smaller = ["--preset", "tiny", "--model.d-model", 16, "--model.attention.heads", 2, "--model.feed-forward.d-ff", 8]
    smaller += ["--model.encoder-layers", 1, "--model.decoder-layers", 1, "--model.share", "output"]
    ran = dragoman("distill", "--teacher", run, "--train", few, "--dev", corpus[1], *student, *smaller, "--quiet")
    assert ran.code == 0, ran.err
    assert read_model(tmp_path / "student")[1].as_files() == read_model(run)[1].as_files()


def test_ctranslate2_has_both_vocabularies(run: Path, pairs: list[Pair], both: Tokenizers, monkeypatch, tmp_path: Path):
    pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")
    from dragoman.interop.ctranslate2.cache import open_ctranslate2

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):  # it is converted, then found again
        engine = open_ctranslate2(run)
        assert (engine.source_pieces, engine.pieces) == (both.source.pieces, both.target.pieces)
    sources, greedy = both.source.encode_all([source for source, _ in pairs[:40]]), SearchConfig(beam=1)
    native = TorchEngine(read_model(run)[0])
    found, expected = (one.search(sources, greedy) for one in (engine, native))
    assert [own[0].tokens for own in found] == [own[0].tokens for own in expected]
    scores = [own[0].score for own in expected]
    assert [own[0].score for own in found] == pytest.approx(scores, abs=1e-4)
    other = native.search([ids[::-1] for ids in sources], greedy)
    assert [own[0].score for own in other] != pytest.approx(scores, abs=1e-4)  # the control: the source matters


@pytest.mark.parametrize("change", [{"vocabulary": 400}, {"tag": "news"}], ids=str)
def test_tokenizers_of_two_sides_learn_nothing_new(corpus: Corpus, start: Path, tmp_path: Path, change):
    config = config_of(corpus, start, tmp_path / "run")
    config = dataclasses.replace(config, vocabulary=change.get("vocabulary"))
    if "tag" in change:
        config = dataclasses.replace(config, train=(*config.train, "tag=news"))
    with pytest.raises(UsageError, match="cannot learn new subwords or tags"):
        run_training(config)


def test_ensemble_needs_the_same_tokenizers(run: Path, start: Path, trained: Path):
    assert Translator.load(run, ensemble=[start]).translate("The dog sees 2 red cats.").text
    with pytest.raises(DragomanError, match="its tokenizer is not that of"):
        Translator.load(run, ensemble=[trained])


def test_command_line_translates(run: Path, pairs: list[Pair], capsys: pytest.CaptureFixture[str]):
    assert (
        main(["translate", "-m", str(run), pairs[0][0], "--beam", "1", "--no-detect-faults", "--no-placeholders"]) == 0
    )
    expected = Translator.load(run, SearchConfig(beam=1), NO_SAFEGUARDS).translate(pairs[0][0]).text
    assert capsys.readouterr().out.rstrip("\n") == expected
