"""Checkpoints of fairseq, imported, compute and find what `transformers` does with the same weights.

fairseq 0.12 does not run on Python 3.11, so the files are written from its published layout.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign import copy_of, fairseq_folder
from sentencepiece import SentencePieceProcessor
from test_import_huggingface import Pair

from dragoman.config import AttentionConfig
from dragoman.data.sentencepiece import SentencePieceTokenizer
from dragoman.errors import DragomanError
from dragoman.interop.checker import Checker
from dragoman.interop.fairseq import read_fairseq
from dragoman.interop.importing import import_model
from dragoman.interop.sources import Foreign
from dragoman.interop.weights import build_model
from dragoman.model_folder import read_model
from dragoman.text.tags import LanguageTags

pytest.importorskip("transformers", reason="fairseq's models are held against transformers")

MODELS: dict[str, dict[str, Any]] = {
    "M2M100": {},
    "norms after": {"norm_first": False},
    "settings of later versions": {"new": True, "encoder_layers": 3, "decoder_layers": 1},
    "gelu, not scaled": {"activation_fn": "gelu", "no_scale_embedding": True},
}


def opened(folder: Path, tmp_path: Path) -> Foreign:
    (tmp_path / "scratch").mkdir()
    return read_fairseq(folder, Checker(folder), tmp_path / "scratch")


CONTROLLED = ("M2M100", "norms after")


@pytest.mark.parametrize(
    "name", [name if name == "M2M100" else pytest.param(name, marks=pytest.mark.slow) for name in MODELS]
)
def test_checkpoint_computes_and_finds_the_same(name: str, tmp_path: Path):
    theirs = fairseq_folder(tmp_path / "their", **MODELS[name])
    pair = Pair(theirs, opened(tmp_path / "their", tmp_path))
    pair.check_with_a_tag()
    if name in CONTROLLED:  # the controls
        for wrong in ({"first_position": 0}, {"attention": AttentionConfig(2, bias=True)}, {"scale_embedding": False}):
            original = pair.foreign.original
            other = build_model(replace(original, config=replace(original.config, **wrong)))
            assert Pair(theirs, pair.foreign, other).gap() > 1e-3


@pytest.fixture(scope="module")
def their(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fairseq") / "their"
    fairseq_folder(folder)
    return folder


def test_words_are_those_of_the_dictionary_and_languages_follow_them(their: Path, tmp_path: Path):
    _, (source, target) = read_model(import_model(their, tmp_path / "out", tag="en", target_tag="ko"))
    assert source is target
    assert isinstance(source, SentencePieceTokenizer)
    pieces = [line.rpartition(" ")[0] for line in (their / "dict.txt").read_text("utf-8").splitlines()]
    library = SentencePieceProcessor(str(their / "spm.model"))
    text = "The dog sees 5 cats."
    # Ours are 0 to 2, fairseq's 0 to 3; both then go on with what is left: 3 is its start, 4 the unknown word.
    assert source.encode(text) == [pieces.index(piece) + 5 for piece in library.encode(text, out_type=str)]
    assert source.tags == {"en": len(pieces) + 5, "ko": len(pieces) + 6, "sp": len(pieces) + 7}
    assert "weights and settings read from checkpoint_last.pt" in (tmp_path / "out" / "card.md").read_text().lower()
    assert LanguageTags.load(tmp_path / "out") == LanguageTags(("en", "ko", "sp"), "text")


def change(folder: Path, content: dict[str, Any]) -> None:
    """Change settings in a checkpoint."""
    file = folder / "checkpoint_last.pt"
    saved = torch.load(file, weights_only=False)
    vars(saved["args"]).update(content)
    torch.save(saved, file)


# Settings, and the reason.
SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"encoder_learned_pos": True}, "encoder_learned_pos = True: learned positions"),
    ({"layernorm_embedding": True}, "a norm of the embeddings"),
    ({"adaptive_softmax_cutoff": [10, 20]}, "an adaptive softmax"),
    ({"decoder_ffn_embed_dim": 48}, "decoders unlike the encoder, which has 40"),
    ({"decoder_normalize_before": False}, "decoders unlike the encoder, which has True"),
    ({"encoder_attention_heads": None}, "a whole number from 1"),
    ({"activation_fn": "tanh"}, "only relu, gelu can be imported"),
    ({"encoder_langtok": "both"}, "only None, src and tgt"),
    ({"langs": ["en", "k o"]}, "a language '__k o__'"),
]


def reasons(folder: Path, tmp_path: Path) -> str:
    """What the import says; nothing is left of it."""
    with pytest.raises(DragomanError) as refused:
        import_model(folder, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == [folder.name]
    return str(refused.value)


def test_settings_that_we_lack_are_refused_with_all_reasons(their: Path, tmp_path: Path):
    folder = copy_of(their, tmp_path / "their")
    for changes, _ in SETTINGS:
        change(folder, changes)
    said = reasons(folder, tmp_path)
    assert [why for _, why in SETTINGS if why not in said] == []


def test_settings_that_the_tensors_contradict_are_refused(their: Path, tmp_path: Path):
    change(copy_of(their, tmp_path / "their"), {"encoder_layers": 3, "decoder_layers": 1})
    said = reasons(tmp_path / "their", tmp_path)
    assert "the tensor 'encoder.layers.2.self_attn.q_proj.weight' is missing" in said
    assert "more tensors like these" in said


def not_fairseq(folder: Path) -> None:
    torch.save({"weight": torch.zeros(2)}, folder / "checkpoint_last.pt")


def no_settings(folder: Path) -> None:
    file = folder / "checkpoint_last.pt"
    torch.save({"model": torch.load(file, weights_only=False)["model"]}, file)


def another_dictionary(folder: Path) -> None:
    (folder / "dict.en.txt").write_text("one 1\n")


def one_word_twice(folder: Path) -> None:
    lines = (folder / "dict.txt").read_text("utf-8").splitlines(keepends=True)
    (folder / "dict.txt").write_text("".join([lines[3], *lines[1:]]), encoding="utf-8")


def no_count(folder: Path) -> None:
    (folder / "dict.txt").write_text("one 1\ntwo\n")


def long_dictionary(folder: Path) -> None:
    with (folder / "dict.txt").open("a") as file:
        file.writelines(f"more{number} 1\n" for number in range(20))


def no_subwords(folder: Path) -> None:
    (folder / "spm.model").unlink()


def numbers_for_names_and_words(folder: Path) -> None:
    saved = torch.load(folder / "checkpoint_last.pt", weights_only=False)
    saved["model"]["encoder.embed_tokens.weight"] = torch.tensor(1.0)
    torch.save(saved, folder / "checkpoint_last.pt")
    change(folder, {"langs": 5})


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (not_fairseq, "with the settings of fairseq; convert it"),
        pytest.param(no_settings, "with the settings of fairseq; convert it", marks=pytest.mark.slow),
        (another_dictionary, "needs one dictionary .dict.txt., here are dict.en.txt, dict.txt"),
        (one_word_twice, "dict.txt:4: '.*' is there twice"),
        (no_count, "dict.txt:2: not a word and how often it occurred"),
        pytest.param(long_dictionary, "words, but dict.txt", marks=pytest.mark.slow),
        pytest.param(
            numbers_for_names_and_words,
            "langs = 5: a list of names is needed; .* has 0 words, but dict.txt",
            marks=pytest.mark.slow,
        ),
        (no_subwords, "needs one SentencePiece model .*, here are none"),
    ],
)
def test_faulty_folder_is_refused(fault: Callable, says: str, their: Path, tmp_path: Path):
    fault(copy_of(their, tmp_path / "their"))
    assert re.search(says, reasons(tmp_path / "their", tmp_path))


class Config:
    """As OmegaConf's, which cannot be read without running its code."""


class Runs:
    """A pickle of it makes a folder when it is loaded."""

    def __reduce__(self) -> tuple:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize(("kind", "name"), [(Runs, "mkdir"), pytest.param(Config, "Config", marks=pytest.mark.slow)])
def test_objects_in_a_checkpoint_are_refused_and_nothing_runs(
    kind: type, name: str, their: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    change(copy_of(their, tmp_path / "their"), {"task": kind()})
    said = reasons(tmp_path / "their", tmp_path)
    assert re.search(rf"checkpoint_last\.pt: .*: it has '\w+\.{name}', neither a tensor nor a setting", said)
    assert "if it is a checkpoint of fairseq, convert it to a folder of Hugging Face with the script for M2M100" in said
    torch.load(tmp_path / "their" / "checkpoint_last.pt", weights_only=False)  # the control
    assert (tmp_path / "ran").exists() == (kind is Runs)
