"""`dragoman verify`: what is damaged is named, what is not is not, and what no manifest lists is used by nobody."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran, signed_again, write_tsv

from dragoman.alignment.heads import AlignmentHead
from dragoman.data.tokenizer import Tokenizer
from dragoman.errors import DragomanError
from dragoman.model_folder import read_model, verify_files
from dragoman.storage.writing import MANIFEST, fingerprint
from dragoman.text.extent import SourceExtent
from dragoman.text.scripts import read_scripts
from dragoman.training import integrity
from dragoman.training.checkpoint import load_checkpoint


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A run folder of one's own, the working directory."""
    return shutil.copytree(trained, tmp_path / "run", symlinks=True)


@pytest.fixture
def model(run: Path) -> Path:
    return (run / "best").resolve()


def found(ran: Ran) -> dict[str, list[str]]:
    """The paths of a report by their state."""
    report = json.loads(ran.out)
    assert report["ok"] == (ran.code == 0)
    states: dict[str, list[str]] = {}
    for finding in report["findings"]:
        states.setdefault(finding["state"], []).append(finding["path"])
    return states


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def test_run_is_verified_with_all_its_checkpoints_and_corpora(dragoman, run: Path):
    ran = dragoman("verify", "run", "--json")
    checkpoints = [f"run/checkpoints/{folder.name}" for folder in sorted((run / "checkpoints").iterdir())]
    data = [f"run/data/{name}" for name in ("dev.arrow", "tokenizer.json", "train.arrow")]
    assert found(ran) == {"ok": [*checkpoints, *data]}
    assert len(checkpoints) == 2
    lines = dragoman("verify", "run").out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * 5
    assert "190 pairs" in lines[-1]


def test_checkpoint_that_its_run_deletes_meanwhile_is_not_damage(dragoman, run: Path, monkeypatch: pytest.MonkeyPatch):
    """The control: a file of a folder that stays."""
    gone, *_, stays = sorted((run / "checkpoints").iterdir())
    seen = integrity.find_damage

    def find_damage(folder: Path, *arguments: Any) -> Iterator[Any]:
        if folder.name == gone.name:
            shutil.rmtree(gone)
        if folder.name == stays.name:
            (stays / "model.safetensors").unlink()
        yield from seen(folder, *arguments)

    monkeypatch.setattr(integrity, "find_damage", find_damage)
    assert found(dragoman("verify", "run/checkpoints", "--json")) == {
        "damaged": [f"run/checkpoints/{stays.name}/model.safetensors"]
    }


@pytest.mark.parametrize("name", ["model.safetensors", "state.json", "alignment.json", "tokenizer.json"])
def test_damaged_file_is_named_with_what_was_expected(dragoman, run: Path, model: Path, name: str):
    flip(model / name)
    (model / "config.json").unlink()
    expected = json.loads((model / MANIFEST).read_text())[name]
    ran = dragoman("verify", "run", "--json")
    assert ran.code == 1
    path = f"run/checkpoints/{model.name}"
    assert sorted(found(ran)["damaged"]) == sorted([f"{path}/{name}", f"{path}/config.json"])
    (damage,) = [finding for finding in json.loads(ran.out)["findings"] if finding["path"].endswith(name)][:1]
    assert expected["sha256"] in damage["expected"]
    assert fingerprint(model / name)["sha256"] in damage["found"]
    assert "it is missing" in dragoman("verify", model).out


@pytest.mark.parametrize("name", ["train.arrow", "dev.arrow", "tokenizer.json"])
def test_damaged_and_exchanged_data_of_a_run_is_named(dragoman, run: Path, tokenizer: Tokenizer, name: str):
    file = run / "data" / name
    before = file.read_bytes()
    file.write_bytes(before[: len(before) // 2])
    assert found(dragoman("verify", "run", "--json"))["damaged"] == [f"run/data/{name}"]
    # Exchanged for another that is whole.
    if name == "tokenizer.json":
        tokenizer.save(file)
    else:
        shutil.copy(run / "data" / {"train.arrow": "dev.arrow", "dev.arrow": "train.arrow"}[name], file)
    assert found(dragoman("verify", "run", "--json"))["damaged"] == [f"run/data/{name}"]
    file.write_bytes(before)
    assert dragoman("verify", "run").code == 0


def test_checkpoint_without_manifest_and_a_link_to_nowhere_are_damage(dragoman, run: Path, model: Path):
    (model / MANIFEST).unlink()
    assert found(dragoman("verify", "run", "--json"))["damaged"] == [f"run/checkpoints/{model.name}"]
    shutil.rmtree(run / "checkpoints")
    assert found(dragoman("verify", "run", "--json"))["damaged"] == ["run/best", "run/last"]


def test_newer_format_is_not_called_damaged(dragoman, run: Path, model: Path):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "format": 99}))
    signed_again(model)
    ran = dragoman("verify", "run", "--json")
    assert ran.code == 1
    assert found(ran)["newer"] == [f"run/checkpoints/{model.name}"]


def test_synthetic_pairs_are_compared_with_their_record(dragoman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = Path(write_tsv(tmp_path / "pairs.tsv", [("a", "b")]))
    (tmp_path / "pairs.tsv.json").write_text(json.dumps({**fingerprint(file), "pairs": 1}))
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "other").write_text("")
    assert found(dragoman("verify", ".", "--json")) == {"ok": ["pairs.tsv"]}
    flip(file)
    assert found(dragoman("verify", ".", "--json")) == {"damaged": ["pairs.tsv"]}

    def fails(file: Path) -> None:
        raise OSError(5, "Input/output error", str(file))

    monkeypatch.setattr(integrity, "fingerprint", fails)
    ran = dragoman("verify", ".", "--json")
    assert (ran.code, "Input/output error" in ran.err) == (1, True)


@pytest.mark.parametrize("path", ["nowhere", "empty", "note.txt"])
def test_verify_of_nothing_is_an_error(dragoman, tmp_path: Path, path: str):
    (tmp_path / "empty").mkdir()
    (tmp_path / "note.txt").write_text("")
    ran = dragoman("verify", path)
    assert (ran.code, path in ran.err) == (1, True)


# Checkpoints without the state of training.


@pytest.mark.parametrize("missing", [["state.safetensors"], ["state.json"], ["state.safetensors", "state.json"]])
def test_checkpoint_without_training_state_is_a_sound_model(
    dragoman, run: Path, model: Path, tmp_path: Path, missing: list[str]
):
    """Outside of its run, where nothing could resume from it."""
    copy = shutil.copytree(model, tmp_path / "copy")
    for folder in (model, copy):
        for name in missing:
            (folder / name).unlink()
    ran = dragoman("verify", copy)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith("; no training state: it translates, and cannot be resumed\n")
    read_model(copy)
    assert dragoman("translate", "-m", copy, "The dog sees 2 cats.").code == 0
    with pytest.raises(DragomanError, match="it is missing from the folder"):
        load_checkpoint(copy)
    read_model(run)
    assert found(dragoman("verify", "run", "--json"))["damaged"] == [
        f"run/checkpoints/{model.name}/{name}" for name in sorted(missing)
    ]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "scripts.json"])
def test_model_without_another_file_is_damaged(dragoman, model: Path, tmp_path: Path, name: str):
    copy = shutil.copytree(model, tmp_path / "copy")
    (copy / "state.safetensors").unlink()
    (copy / name).unlink()
    assert dragoman("verify", copy).code == 1
    with pytest.raises(DragomanError, match=f"{name}: damaged: .* it is missing"):
        read_model(copy)


def test_training_state_that_is_cut_off_is_damage(dragoman, model: Path, tmp_path: Path):
    """As a copy leaves it that was stopped."""
    copy = shutil.copytree(model, tmp_path / "copy")
    with (copy / "state.safetensors").open("r+b") as file:
        file.truncate(100)
    assert found(dragoman("verify", copy, "--json"))["damaged"] == [str(copy / "state.safetensors")]
    with pytest.raises(DragomanError, match=r"state\.safetensors: damaged"):
        read_model(copy)


# Files that the manifest does not list.


RECORDS: dict[str, Any] = {"alignment.json": AlignmentHead, "scripts.json": read_scripts, "extent.json": SourceExtent}


def unlist(folder: Path, *names: str) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({name: own for name, own in manifest.items() if name not in names}))


def test_unlisted_files_are_named_and_never_read(dragoman, model: Path):
    readers = {name: getattr(reader, "load", reader) for name, reader in RECORDS.items()}
    assert all(reader(model) for reader in readers.values())  # the control
    unlist(model, *readers)
    assert not any(reader(model) for reader in readers.values())
    ran = dragoman("verify", model, "--json")
    assert ran.code == 0
    assert found(ran)["unlisted"] == [str(model / name) for name in sorted(readers)]


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_state_that_the_manifest_does_not_list_is_not_resumed_from(model: Path, name: str):
    load_checkpoint(model)  # the control
    unlist(model, name)
    with pytest.raises(DragomanError, match=f"does not list {name}"):
        load_checkpoint(model)
    read_model(model)


# Links.


@pytest.mark.parametrize("name", ["card.md", "alignment.json", "config.json", "notes.txt"])
def test_file_that_is_a_link_out_of_the_folder_is_refused(dragoman, model: Path, tmp_path: Path, name: str):
    outside = tmp_path / "outside"
    outside.write_bytes((model / name).read_bytes() if (model / name).exists() else b"secret")
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(outside)
    for use in (read_model, verify_files):
        with pytest.raises(DragomanError, match=rf"{name}: a symbolic link that leads out"):
            use(model)
    assert name in dragoman("verify", model).out
    ran = dragoman("info", model)
    assert (ran.code, ran.out) == (1, "")


def test_links_that_stay_inside_and_folders_that_are_links_are_followed(
    dragoman, run: Path, model: Path, tmp_path: Path
):
    (model / "state.json").rename(model / "inside")
    (model / "state.json").symlink_to("inside")
    (tmp_path / "link").symlink_to(model)
    for folder in (run, run / "best", run / "last", model, tmp_path / "link"):
        read_model(folder)
    shutil.move(run / "checkpoints", tmp_path / "other-disk")
    (run / "checkpoints").symlink_to(tmp_path / "other-disk")
    read_model(run)
    assert len(found(dragoman("verify", "run", "--json"))["ok"]) == 5


@pytest.mark.parametrize("name", ["config.toml", "metrics.jsonl", "data/train.arrow", "data/tokenizer.json"])
def test_run_with_a_link_out_of_it_is_neither_resumed_nor_drawn(dragoman, run: Path, tmp_path: Path, name: str):
    shutil.move(run / name, tmp_path / "outside")
    (run / name).symlink_to(tmp_path / "outside")
    ran = dragoman("train", "--train", "a.tsv", "--dev", "b.tsv", "--out", "run")
    assert (ran.code, "leads out" in ran.err) == (1, True)
    if name == "metrics.jsonl":
        assert "leads out" in dragoman("plot", "run").err
