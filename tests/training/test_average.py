"""Averaged checkpoints: the mean, rounded once, whatever their order; a model like any other."""

import dataclasses
import itertools
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from conftest import TINY, TINY_RECURRENT
from safetensors.torch import load_file
from torch import Tensor

from dragoman.cli import main
from dragoman.config import ModelConfig
from dragoman.data.corpus import Pair
from dragoman.data.tokenizer import Tokenizer
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.model import build
from dragoman.model_folder import read_model, write_model
from dragoman.model_folder.weights import named_tensors
from dragoman.storage.writing import new_folder, replace_link
from dragoman.training.average import average
from dragoman.translation.translator import Translator


def write(
    folder: Path, tokenizer: Tokenizer, seed: int = 0, fill: float | None = None, config: ModelConfig = TINY
) -> Path:
    """A model folder with random weights, or with one number everywhere."""
    torch.manual_seed(seed)
    model = build(config, len(tokenizer))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_() if fill is None else parameter.fill_(fill)
    with new_folder(folder) as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), f"# {folder.name}\n\nLearned from toys.\n")
    return folder


def read(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def exact_mean(tensors: Sequence[Tensor]) -> Tensor:
    """The mean without any error of summation, rounded to single precision."""
    columns = zip(*(tensor.flatten().tolist() for tensor in tensors), strict=True)
    return torch.tensor([math.fsum(column) / len(tensors) for column in columns]).view_as(tensors[0])


@pytest.mark.parametrize("count", [1, 2, 7])
def test_average_has_the_exact_mean_of_every_weight(tmp_path: Path, tokenizer: Tokenizer, count: int):
    folders = [write(tmp_path / f"model-{seed}", tokenizer, seed) for seed in range(count)]
    average(folders, tmp_path / "mean")
    found, given = read(tmp_path / "mean"), [read(folder) for folder in folders]
    assert all(torch.equal(found[name], exact_mean([one[name] for one in given])) for name in found)
    if count > 2:  # the control: sums in single precision are not exact
        assert any(not torch.equal(found[name], sum(one[name] for one in given) / count) for name in found)


def test_average_does_not_depend_on_the_order_of_its_models(tmp_path: Path, tokenizer: Tokenizer):
    """Not even where sums depend on it: of these three, one order gives a third and another nothing."""
    assert (1e30 - 1e30) + 1.0 != (1e30 + 1.0) - 1e30
    folders = [write(tmp_path / str(fill), tokenizer, fill=fill) for fill in (1e30, -1e30, 1.0)]
    for number, order in enumerate(itertools.permutations(folders)):
        average(order, tmp_path / f"mean-{number}")
    assert len({(tmp_path / f"mean-{n}" / "model.safetensors").read_bytes() for n in range(6)}) == 1


@pytest.mark.parametrize("share", ["all", "none"])
@pytest.mark.parametrize("config", [TINY, TINY_RECURRENT], ids=["transformer", "recurrent"])
def test_average_keeps_shared_matrices_shared(tmp_path: Path, tokenizer: Tokenizer, config: ModelConfig, share: str):
    config = dataclasses.replace(config, share=share)  # type: ignore[arg-type]
    folders = [write(tmp_path / str(seed), tokenizer, seed, config=config) for seed in range(2)]
    average(folders, tmp_path / "mean")
    (found, _), (given, _) = read_model(tmp_path / "mean"), read_model(folders[0])
    names = [names for names, _ in named_tensors(found)]
    assert names == [names for names, _ in named_tensors(given)]
    assert any(len(shared) > 1 for shared in names) == (share == "all")
    assert read(tmp_path / "mean").keys() == read(folders[0]).keys()


def test_average_translates(tmp_path: Path, trained: Path, pairs: list[Pair]):
    """The mean of a model and its copy does as the model itself; with another one it does something else."""
    one, other = (trained / "best").resolve(), tmp_path / "other"
    model, (tokenizer, _) = read_model(one)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
    with new_folder(other) as draft:
        write_model(draft, model, Tokenizers.from_tokenizer(tokenizer), "# other\n")
    average([one, shutil.copytree(one, tmp_path / "copy")], tmp_path / "same")
    average([one, other], tmp_path / "mean")
    texts = [source for source, _ in pairs[:5]]
    found = [Translator.load(folder).translate(texts) for folder in (one, tmp_path / "same", tmp_path / "mean")]
    assert found[0] == found[1]
    assert found[0] != found[2]


# What cannot be averaged.


def refused(folders: Sequence[Path], out: Path, kind: type[DragomanError] = DragomanError) -> str:
    """The message; nothing is left where the result would have been."""
    there = sorted(out.parent.iterdir())
    with pytest.raises(kind) as error:
        average(folders, out)
    assert sorted(out.parent.iterdir()) == there
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (dataclasses.replace(TINY, decoder_layers=2), "its decoder_layers is 2, not 1"),
        (dataclasses.replace(TINY, dropout=0.2), "its dropout is 0.2, not 0.1"),  # though its weights would fit
        (TINY_RECURRENT, "its kind is recurrent, not transformer"),
    ],
)
def test_average_refuses_models_that_differ_in_a_setting_by_name(
    tmp_path: Path, tokenizer: Tokenizer, config: ModelConfig, words: str
):
    folders = [write(tmp_path / "first", tokenizer), write(tmp_path / "second", tokenizer, config=config)]
    message = refused(folders, tmp_path / "mean")
    assert "second: cannot be averaged" in message
    assert words in message


@pytest.mark.parametrize("part", ["pieces", "merges"])
def test_average_refuses_models_with_other_subwords(tmp_path: Path, tokenizer: Tokenizer, part: str):
    """As many, and all but two at the same index. Another dropout, which would be in the way too, is not the reason."""
    pieces, merges = list(tokenizer.pieces), list(tokenizer.merges)
    changed: list = pieces if part == "pieces" else merges
    changed[-2:] = reversed(changed[-2:])
    others = Tokenizer({piece: id for id, piece in enumerate(pieces)}, merges)
    config = dataclasses.replace(TINY, dropout=0.2)
    folders = [write(tmp_path / "first", tokenizer), write(tmp_path / "second", others, config=config)]
    assert "its tokenizer has other subwords" in refused(folders, tmp_path / "mean")


def test_average_refuses_duplicate_existing_and_damaged_folders(tmp_path: Path, tokenizer: Tokenizer):
    folder, damaged = (write(tmp_path / name, tokenizer) for name in ("model", "damaged"))
    replace_link(tmp_path / "best", folder)  # by another name, it would still count twice
    assert "named twice" in refused([tmp_path / "best", folder], tmp_path / "mean", UsageError)
    assert "exists already" in refused([folder], folder, UsageError)
    (damaged / "model.safetensors").write_bytes(b"")
    assert "damaged/model.safetensors: damaged" in refused([folder, damaged], tmp_path / "mean")


# The command.


@pytest.fixture
def run(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose checkpoint at step k has the weights k."""
    monkeypatch.chdir(tmp_path)
    for step in range(1, 8):
        write(Path(f"run/checkpoints/step-{step:08d}"), tokenizer, fill=step)
    for name, step in (("best", 2), ("last", 7)):
        replace_link(Path("run") / name, Path(f"run/checkpoints/step-{step:08d}"))
    return Path("run")


def weight(folder: str) -> float:
    """The one number of which all weights consist."""
    (found,) = {value for tensor in read(Path(folder)).values() for value in tensor.flatten().tolist()}
    return found


@pytest.mark.parametrize(
    ("arguments", "mean"),
    [
        ("run", 5),  # 3 4 5 6 7
        ("run --last 3", 6),
        ("run --last 1", 7),
        ("run/best run/last", 4.5),
        ("run/checkpoints/step-00000001", 1),
        ("run run/best --last 1", 4.5),
        ("run/best run --last 1", 4.5),
    ],
)
def test_average_takes_the_last_checkpoints_of_a_run(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: str, mean: float
):
    assert main(["average", *arguments.split(), "--out", "out/mean"]) == 0
    assert weight("out/mean") == mean
    printed = capsys.readouterr()
    assert printed.out == "out/mean\n"
    told = printed.err.splitlines()
    alone = [line for line in told if "nothing to average it with" in line]
    assert len(alone) == (mean in (1, 7))  # a single checkpoint
    assert all(": not validated: " in line for line in told if line not in alone)
    of_run = int((*arguments.split("--last "), 5)[1]) if "run" in arguments.split() else 0
    assert printed.err.count(": averaged\n") == of_run


def test_average_leaves_out_much_worse_checkpoints_by_name(run: Path, capsys: pytest.CaptureFixture[str]):
    """Validations at 2, 4, 5 and 7: of step 3, and of step 6, the loss is that of the one before; 1 has none."""
    losses = {2: 2.5, 4: 2.06, 5: 2.04, 7: 2.0}
    rows = [{"event": "validation", "step": step, "loss": loss, "bleu": 31.24} for step, loss in losses.items()]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for last, mean, left_out in ((7, 6, [1, 2, 3, 4]), (4, 6, [4]), (3, 6, [])):
        assert main(["average", "run", "--last", str(last), "--out", f"mean{last}"]) == 0
        assert weight(f"mean{last}") == mean
        lines = capsys.readouterr().err.splitlines()
        told = {int(line.split(":")[0][-1]): line for line in lines}
        assert sorted(told) == [1, 2, 3, 4, 5, 6, 7]
        for reason, steps in (
            ("the lowest dev loss is 2.00", [step for step in left_out if step > 1]),
            ("later checkpoints have a dev loss", [step for step in left_out if step == 1]),
            ("not among the last", [*range(1, 8 - last)]),
        ):
            assert [step for step, line in sorted(told.items()) if f"left out: {reason}" in line] == steps
        assert "dev loss 2.04, dev BLEU 31.2: averaged" in told[5]
        assert "dev loss 2.04, dev BLEU 31.2 (validation at step 5): averaged" in told[6]
    assert main(["average", "run", "--last", "7", "--all", "--out", "all"]) == 0
    assert weight("all") == 4  # the paper's rule
    capsys.readouterr()
    assert main(["average", *map(str, sorted((run / "checkpoints").iterdir())), "--out", "named"]) == 0
    assert weight("named") == 4  # those that are named are averaged, whatever their loss


def test_average_reports_fewer_checkpoints_than_asked_for_and_its_card_names_them(
    run: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["average", "run", "--last", "20", "--out", "mean"]) == 0
    assert weight("mean") == 4
    assert "run: 7 checkpoints kept, not 20" in capsys.readouterr().err
    card = Path("mean/card.md").read_text()
    named = [line for line in card.splitlines() if line.startswith("- ")]
    assert named == [f"- run/checkpoints/step-{step:08d}" for step in range(1, 8)]
    assert "> Learned from toys." in card  # quoted from the card of the last one


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("", 2, "give a run folder"),
        ("run --last 0", 2, "--last must be at least 1"),
        ("nowhere", 1, "nowhere: no such model folder"),
        ("empty", 1, "empty: no checkpoints yet"),
    ],
)
def test_plot_answers_a_wrong_request_in_one_clear_line(
    run: Path, capsys: pytest.CaptureFixture[str], arguments: str, code: int, words: str
):
    Path("empty/checkpoints").mkdir(parents=True)
    assert main(["average", *arguments.split(), "--out", "mean"]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert printed.err.count("\n") == 1
    assert not Path("mean").exists()
