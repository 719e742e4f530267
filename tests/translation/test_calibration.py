"""Measuring on sentence pairs what training would have measured."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dragoman.alignment.heads import AlignmentHead
from dragoman.model_folder import fetch_model, verify_files
from dragoman.model_folder.manifest import OF_TRAINING
from dragoman.storage.writing import MANIFEST, fingerprint
from dragoman.text.extent import SourceExtent
from dragoman.text.known_words import KnownWords
from dragoman.translation.translator import Translator


def forget(model: Path, folder: Path) -> Path:
    """Return a copy of a model folder, as of an earlier version: without what `dragoman calibrate` measures."""
    shutil.copytree(model, folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    for name in (KnownWords.RECORD, AlignmentHead.RECORD):
        (folder / name).unlink()
        del manifest[name]
    extent = SourceExtent.load(model)
    assert extent
    (folder / SourceExtent.RECORD).write_text(replace(extent, subwords=0.0).as_json())
    manifest[SourceExtent.RECORD] = fingerprint(folder / SourceExtent.RECORD)
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def test_model_of_an_earlier_version_gets_the_records_that_training_writes(
    dragoman: Callable, trained: Path, corpus: tuple[str, str], pairs, tmp_path: Path
):
    old, new, model = forget(fetch_model(trained), tmp_path / "old"), tmp_path / "new", fetch_model(trained)
    ran = dragoman("calibrate", "-m", old, corpus[0], "--out", new)
    assert (ran.code, ran.out) == (0, f"{new}\n")
    assert "names that it copies: none" in ran.err
    verify_files(new)
    measured, of_training = KnownWords.load(new), KnownWords.load(model)
    assert measured
    assert of_training
    assert (KnownWords.load(old), {*measured.words}) == (None, {*of_training.words})
    assert (AlignmentHead.load(old), AlignmentHead.load(new) is None) == (None, False)
    kept = {file.name for file in old.iterdir()} - {*OF_TRAINING}
    assert {file.name for file in new.iterdir()} == kept | {KnownWords.RECORD, AlignmentHead.RECORD}
    before, after = SourceExtent.load(old), SourceExtent.load(model)
    assert before != after
    assert SourceExtent.load(new) == after
    sources = [source for source, _ in pairs[:20]]
    assert [each.text for each in Translator.load(new).translate(sources)] == [
        each.text for each in Translator.load(model).translate(sources)
    ]
    assert dragoman("calibrate", "-m", old, corpus[0], "--out", new).code == 2  # it is there
    assert dragoman("calibrate", "-m", old, "--out", tmp_path / "other").code == 2


def test_damaged_model_is_not_calibrated(dragoman: Callable, trained: Path, corpus: tuple[str, str], tmp_path: Path):
    shutil.copytree(fetch_model(trained), tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("{}")
    ran = dragoman("calibrate", "-m", "model", corpus[0], "--out", "new")
    assert (ran.code, ran.out, (tmp_path / "new").exists()) == (1, "", False)
    assert "tokenizer.json" in ran.err
