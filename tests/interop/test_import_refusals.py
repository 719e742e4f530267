"""What cannot be imported is refused by name, with all reasons at once, and nothing is written."""

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import (
    MARIAN_SETTINGS,
    change_config,
    copy_of,
    m2m100_folder,
    marian_folder,
    npz_folder,
    pieces_of,
    write_npz,
    write_words,
)
from safetensors.torch import load_file, save_file

from dragoman.cli import main
from dragoman.errors import DragomanError, UsageError
from dragoman.interop.checker import Checker
from dragoman.interop.importing import import_model

OTHER = "normalize_embedding = True"  # a reason that is always there, too
OTHER_OF_MARIAN = "right-left = True"


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused") / "marian"
    marian_folder(folder)
    return folder


@pytest.fixture(scope="module")
def m2m100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused") / "m2m100"
    m2m100_folder(folder)
    return folder


def reasons(folder: Path, tmp_path: Path) -> str:
    """What the import says; nothing is left of it."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DragomanError) as refused:
        import_model(folder, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
    message = str(refused.value)
    assert "\n" not in message
    assert message.startswith(str(folder))
    return message


# Settings of config.json, and the reason.
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "norms before": ({"normalize_before": True}, "the norms of marian stand elsewhere"),
    "a final norm": ({"add_final_layer_norm": True}, "the norms of marian stand elsewhere"),
    "learned positions": ({"static_position_embeddings": False}, "learned positions"),
    "heads of the decoder": ({"decoder_attention_heads": 2}, "decoders with other heads"),
    "size of the decoder": ({"decoder_ffn_dim": 48}, "another feed-forward size"),
    "activation": ({"activation_function": "gelu_new"}, "only relu, gelu, swish, silu can be imported"),
    "another epsilon": ({"norm_epsilon": 1e-3}, "the norms of transformers have 1e-05"),
    "no decoder": ({"is_encoder_decoder": False}, "only encoders with a decoder"),
    "8 bits": ({"quantization_config": {"load_in_8bit": True}}, "8-bit or 4-bit weights"),
    "a number of layers": ({"encoder_layers": 2**31}, "encoder_layers = 2147483648"),
    "a huge vocabulary": ({"vocab_size": 2**31}, "vocab_size = 2147483648"),
    "a wrong type": ({"d_model": "24"}, "d_model = '24'"),
    "a negative size": ({"encoder_ffn_dim": -40}, "encoder_ffn_dim = -40"),
    "heads that do not divide": ({"d_model": 25}, "no multiple of the 4 heads"),
    "a padding beyond the words": ({"pad_token_id": 999_999}, "pad_token_id = 999,999, but"),
    "another end": ({"eos_token_id": 3}, "eos_token_id = 3, but '</s>' has 0"),
    "several ends": ({"eos_token_id": [0, 2]}, "eos_token_id = [0, 2]"),
    "dropout of 1": ({"dropout": 1.0}, "dropout = 1.0"),
    "fewer words": ({"vocab_size": 20, "decoder_vocab_size": 20}, "20 words, but"),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_setting_of_marianmt(name: str, marian: Path, tmp_path: Path):
    changes, words = CONFIGS[name]
    folder = change_config(copy_of(marian, tmp_path / "their"), normalize_embedding=True, **changes)
    said = reasons(folder, tmp_path)
    assert words in said
    assert OTHER in said


def test_unknown_settings_of_hugging_face_are_noted(marian: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A new release of `transformers` may write more: what nothing contradicts is no reason to refuse a model."""
    folder = change_config(copy_of(marian, tmp_path / "their"), gate_kind="x\n- y", **{"a\x1b": 1, "off": False})
    main(["import", str(folder), str(tmp_path / "out")])
    note = (
        "nknown settings in config.json were ignored: gate_kind = 'x\\n- y', 'a\\x1b' = 1; import with --check "
        "to compare the model with transformers"
    )
    assert capsys.readouterr() == (f"{tmp_path / 'out'}\n", f"dragoman: u{note}\n")
    assert f"- U{note}.\n" in (tmp_path / "out" / "card.md").read_text()
    import_model(marian, tmp_path / "plain", report=lambda note: pytest.fail(note))  # the control
    assert "nknown settings" not in (tmp_path / "plain" / "card.md").read_text()


def test_thousands_of_unknown_settings_are_counted(marian: Path, tmp_path: Path):
    folder = change_config(copy_of(marian, tmp_path / "their"), **{f"setting_{number}": 1 for number in range(1000)})
    notes: list[str] = []
    import_model(folder, tmp_path / "out", report=notes.append)
    assert "setting_19 = 1; and 980 more; import with --check" in notes[0]
    assert len(notes) == 1


@pytest.mark.parametrize(
    "changes", [{"d_model": 32}, {"encoder_layers": 3}, {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}]
)
def test_sizes_that_contradict_the_tensors_are_refused(changes: dict[str, int], marian: Path, tmp_path: Path):
    folder = change_config(copy_of(marian, tmp_path / "their"), gate_kind="x", **changes)
    assert "the tensor '" in reasons(folder, tmp_path)


TYPES = {
    "mbart": "norm of the embeddings",
    "bart": "learned positions",
    "pegasus": "Pegasus",
    "t5": "T5, MADLAD",
    "mt5": "RMS norms",
    "umt5": "UMT5",
    "fsmt": "'@@'",
    "nllb-moe": "mixture of experts",
    "switch_transformers": "mixture of experts",
    "llama": "only marian and m2m_100",
    "marian\nmarian": "only marian and m2m_100",
}


@pytest.mark.parametrize("kind", TYPES)
def test_another_kind_of_model(kind: str, marian: Path, tmp_path: Path):
    folder = change_config(copy_of(marian, tmp_path / "their"), model_type=kind)
    (folder / "adapter_config.json").write_text("{}")
    said = reasons(folder, tmp_path)
    assert TYPES[kind] in said
    assert "adapters such as LoRA" in said


def without(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def with_tensor(name: str, value: torch.Tensor | None) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        if value is None:
            del weights[name]
        else:
            weights[name] = value
        save_file(weights, folder / "model.safetensors")

    return change


def words_of(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        words = json.loads((folder / "vocab.json").read_text())
        change(words)
        (folder / "vocab.json").write_text(json.dumps(words))

    return changed


NORM, MATRIX = "model.encoder.layers.0.self_attn_layer_norm.weight", "model.encoder.layers.0.fc1.weight"
FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "no weights": (without("model.safetensors"), "no model.safetensors and no pytorch_model.bin"),
    "no list": (without("vocab.json"), "vocab.json missing"),
    "no subwords": (without("source.spm", "target.spm"), "source.spm, target.spm missing"),
    "a missing tensor": (with_tensor(NORM, None), f"the tensor '{NORM}' is missing"),
    "another shape": (with_tensor(NORM, torch.zeros(25)), f"the tensor '{NORM}' is (25,) instead of (24,)"),
    "a matrix in a list": (
        with_tensor(MATRIX, torch.zeros(1, 40, 24)),
        f"'{MATRIX}' is (1, 40, 24) instead of (40, 24)",
    ),
    "8 bits": (with_tensor(NORM, torch.zeros(24, dtype=torch.int8)), f"the tensor '{NORM}' has 8-bit numbers"),
    "an unknown tensor": (with_tensor("model.encoder.gate.weight", torch.zeros(3)), "gate.weight' is unknown"),
    "positions of no formula": (
        with_tensor("model.encoder.embed_positions.weight", torch.randn(64, 24)),
        "positions that follow no formula",
    ),
    **{
        f"positions of the shape {shape}": (
            with_tensor("model.decoder.embed_positions.weight", torch.zeros(shape)),
            f"embed_positions.weight' is {shape} instead of (positions, 24)",
        )
        for shape in ((20, 1), (24,), (), (0, 24), (1, 20, 24))
    },
    "not a number": (with_tensor(NORM, torch.full((24,), torch.nan)), "infinite or not numbers"),
    "a hole": (words_of(lambda words: words.update({"<pad>": 1000})), "the id of '<pad>' is 1000"),
    "a negative id": (words_of(lambda words: words.update({"<pad>": -1})), "the id of '<pad>' is -1"),
    "a double id": (words_of(lambda words: words.update({"<pad>": 4})), "have the same id, 4"),
    "an id that is no number": (words_of(lambda words: words.update({"<pad>": "4"})), "the id of '<pad>' is '4'"),
    "no unknown word": (words_of(lambda words: words.update({"?": words.pop("<unk>")})), "vocab.json has no '<unk>'"),
    "GGUF": (lambda folder: (folder / "model.gguf").write_bytes(b"GGUF"), "GGUF"),
    "LoRA": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "LoRA"),
    "Moses": (
        lambda folder: without("source.spm", "target.spm")(folder) or (folder / "source.bpe").touch(),
        "text that is cut by Moses and BPE with '@@'",
    ),
}
TOGETHER = {"no list", "no subwords", "GGUF", "LoRA", "Moses", "no unknown word"}  # seen before the weights are opened


@pytest.mark.parametrize("name", FILES)
def test_file_of_marianmt(name: str, marian: Path, tmp_path: Path):
    change, words = FILES[name]
    folder = copy_of(marian, tmp_path / "their")
    change(folder)
    if name in TOGETHER:
        change_config(folder, normalize_embedding=True)
    said = reasons(folder, tmp_path)
    assert words in said
    assert (OTHER in said) == (name in TOGETHER)


def test_code_is_ignored_and_said_so(marian: Path, tmp_path: Path):
    folder = change_config(copy_of(marian, tmp_path / "their"), auto_map={"AutoModel": "modeling_x.Model"})
    (folder / "modeling_x.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    import_model(folder, tmp_path / "out")
    card = (tmp_path / "out" / "card.md").read_text()
    assert "Code in the folder was ignored: modeling_x.py" in card
    assert "Auto_map" in card
    assert not (tmp_path / "ran").exists()


M2M100_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "norms after": ({"normalize_before": False}, "the norms of m2m_100 stand elsewhere"),
    "a high padding": ({"pad_token_id": 1000}, "pad_token_id = 1000: a whole number from 0 to 999 is needed"),
    "no final norm": ({"add_final_layer_norm": False}, "the norms of m2m_100 stand elsewhere"),
}


@pytest.mark.parametrize("name", M2M100_CONFIGS)
def test_setting_of_m2m100(name: str, m2m100: Path, tmp_path: Path):
    changes, words = M2M100_CONFIGS[name]
    folder = change_config(copy_of(m2m100, tmp_path / "their"), normalize_embedding=True, **changes)
    said = reasons(folder, tmp_path)
    assert words in said
    assert OTHER in said


def test_files_of_m2m100(m2m100: Path, tmp_path: Path):
    folder = copy_of(m2m100, tmp_path / "their")
    (folder / "sentencepiece.bpe.model").rename(folder / "tokenizer.json")
    assert "sentencepiece.bpe.model missing" in reasons(folder, tmp_path)
    folder = copy_of(m2m100, tmp_path / "other")
    (folder / "special_tokens_map.json").unlink()
    assert "no word names a language" in reasons(folder, tmp_path)
    (folder / "added_tokens.json").write_text(json.dumps({"__de__": 5}))
    assert "the added word '__de__' has the id 5, which is not its own" in reasons(folder, tmp_path)
    (folder / "special_tokens_map.json").write_text(json.dumps({"additional_special_tokens": [[1]]}))
    assert "special_tokens_map.json: its special tokens are not a list of words" in reasons(folder, tmp_path)


def test_positions_of_marian_for_others(m2m100: Path, tmp_path: Path):
    with pytest.raises(DragomanError, match="the positions of Marian are for MarianMT alone"):
        import_model(m2m100, tmp_path / "out", positions="marian")
    npz_folder(tmp_path / "their")
    with pytest.raises(DragomanError, match="the positions of Marian are for MarianMT alone"):
        import_model(tmp_path / "their", tmp_path / "out", positions="marian")


# Settings of special:model.yml, and the reason.
SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "recurrent": ({"type": "amun"}, "no recurrent networks"),
    "SSRU": ({"transformer_decoder_autoreg": "rnn"}, "students of Firefox and Bergamot"),
    "average attention": ({"transformer_decoder_autoreg": "average-attention"}, "decoders without self-attention"),
    "tied layers": ({"transformer_tied_layers": [1, 1]}, "layers that share their weights"),
    "depth of the network": ({"transformer_ffn_depth": 3}, "another depth than 2"),
    "depth in the decoder": ({"transformer_decoder_ffn_depth": 1}, "another depth than 2"),
    "size in the decoder": ({"transformer_decoder_dim_ffn": 80}, "not the encoder's"),
    "a norm of the embeddings": ({"transformer_postprocess_emb": "nd"}, "a norm of the embeddings"),
    "RMS norms": ({"transformer_postprocess": "dar"}, "RMS norms"),
    "highways": ({"transformer_postprocess": "dhn"}, "RMS norms or highways"),
    "norms at other places": ({"transformer_preprocess": "n"}, "norms at other places"),
    "no norm on top": ({"transformer_preprocess": "n", "transformer_postprocess": "da"}, "norms at other places"),
    "ALiBi": ({"transformer_alibi_shift": True}, "ALiBi"),
    "ALiBi as a mask": ({"transformer_attention_mask": "alibi"}, "ALiBi"),
    "gelu": ({"transformer_ffn_activation": "gelu"}, "Marian's GELU"),
    "tanh": ({"transformer_ffn_activation": "tanh"}, "only swish, relu"),
    "factors": ({"factors_combine": "concat"}, "factored vocabularies"),
    "lemmas": ({"lemma_dim_emb": 32}, "factored vocabularies"),
    "a number as a norm": ({"transformer_preprocess": 5}, "RMS norms or highways ('5' before"),
    "no projection": ({"transformer_no_projection": True}, "attention without an output projection"),
    "no positions": ({"transformer_disable_position_embeddings": True}, "models without positions"),
    "8 bits": ({"gemm_type": "intgemm8"}, "8-bit weights"),
    "an unknown setting": ({"transformer_gate": "sigmoid"}, "transformer-gate = 'sigmoid': an unknown setting"),
    "heads that do not divide": ({"transformer_heads": 5}, "no multiple of the 5 heads"),
    "a huge size": ({"enc_depth": 2**31}, "enc-depth = 2147483648"),
}


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    folder = tmp_path_factory.mktemp("refused") / "npz"
    return folder, npz_folder(folder)


@pytest.mark.parametrize("name", SETTINGS)
def test_setting_of_marian(name: str, arrays: tuple[Path, dict[str, np.ndarray]], tmp_path: Path):
    changes, words = SETTINGS[name]
    folder = copy_of(arrays[0], tmp_path / "their")
    own = {key.replace("_", "-"): value for key, value in changes.items()}
    sizes = [len(arrays[1]["Wemb"])] * 2
    write_npz(folder / "model.npz", arrays[1], MARIAN_SETTINGS | {"dim-vocabs": sizes, "right-left": True} | own)
    said = reasons(folder, tmp_path)
    assert words in said
    assert OTHER_OF_MARIAN in said


def test_8_bits_of_intgemm(arrays: tuple[Path, dict[str, np.ndarray]], tmp_path: Path):
    folder = copy_of(arrays[0], tmp_path / "their")
    more = arrays[1] | {"encoder_l1_self_Wq_QuantMultA": np.ones((1, 1), np.float32)}
    write_npz(folder / "model.npz", more, MARIAN_SETTINGS | {"dim-vocabs": [len(more["Wemb"])] * 2, "right-left": True})
    said = reasons(folder, tmp_path)
    assert "8-bit weights (intgemm)" in said
    assert OTHER_OF_MARIAN in said


@pytest.mark.parametrize("shape", [(), (24,), (1, 8, 24)])
def test_learned_positions_that_are_no_matrix(
    shape: tuple[int, ...], arrays: tuple[Path, dict[str, np.ndarray]], tmp_path: Path
):
    folder = copy_of(arrays[0], tmp_path / "their")
    more = arrays[1] | {"Wpos": np.zeros(shape, np.float32)}
    write_npz(folder / "model.npz", more, MARIAN_SETTINGS | {"dim-vocabs": [len(more["Wemb"])] * 2, "right-left": True})
    said = reasons(folder, tmp_path)
    assert "Wpos has 0 positions" in said
    assert OTHER_OF_MARIAN in said


def test_files_of_firefox(tmp_path: Path):
    folder = tmp_path / "their"
    folder.mkdir()
    (folder / "model.enes.intgemm.alphas.bin").write_bytes(bytes(100))
    (folder / "vocab.enes.spm").write_bytes(b"")
    said = reasons(folder, tmp_path)
    assert "8-bit weights" in said
    assert "SSRU" in said


@pytest.mark.parametrize("suffix", [".fsv", ".txt"])
def test_vocabularies_of_other_kinds(suffix: str, arrays: tuple[Path, dict[str, np.ndarray]], tmp_path: Path):
    folder = copy_of(arrays[0], tmp_path / "their")
    decoder = (folder / "decoder.yml").read_text()
    (folder / "joint.spm").rename(folder / f"joint{suffix}")
    (folder / "decoder.yml").write_text(decoder.replace("joint.spm", f"joint{suffix}"))
    sizes = {"dim-vocabs": [len(arrays[1]["Wemb"])] * 2, "right-left": True}
    write_npz(folder / "model.npz", arrays[1], MARIAN_SETTINGS | sizes)
    said = reasons(folder, tmp_path)
    assert {".fsv": "factored vocabularies", ".txt": "plain text"}[suffix] in said
    assert OTHER_OF_MARIAN in said


def test_lists_without_their_subwords(tmp_path: Path):
    npz_folder(tmp_path / "their", spm=False)
    (tmp_path / "their" / "source.spm").unlink()
    assert "source.spm is missing: opus.vocab.yml alone" in reasons(tmp_path / "their", tmp_path)
    with (tmp_path / "their" / "opus.vocab.yml").open("a") as file:
        file.write(f'"ab@@": {len(pieces_of((tmp_path / "their" / "target.spm").read_bytes())) + 500}\n')
    shutil.rmtree(tmp_path / "their")
    npz_folder(tmp_path / "their", spm=False)
    words = {"</s>": 0, "<unk>": 1, "ab@@": 2, "c": 3}
    (tmp_path / "their" / "opus.vocab.yml").unlink()
    write_words(tmp_path / "their" / "opus.vocab.json", words)
    (tmp_path / "their" / "decoder.yml").write_text("vocabs: [opus.vocab.json, opus.vocab.json]\n")
    (tmp_path / "their" / "source.spm").unlink()
    assert "Moses or BPE with '@@'" in reasons(tmp_path / "their", tmp_path)


def test_bias_in_the_output_of_an_m2m100(m2m100: Path, tmp_path: Path):
    """`transformers` would leave it out; a bias of zeros is none."""
    folder = copy_of(m2m100, tmp_path / "their")
    words = json.loads((folder / "config.json").read_text())["vocab_size"]
    bias = torch.zeros(1, words)
    with_tensor("final_logits_bias", bias)(folder)
    import_model(folder, tmp_path / "none")
    bias[0, 7] = 0.1
    with_tensor("final_logits_bias", bias)(folder)
    assert "'final_logits_bias' is a bias in the output, which transformers leaves out" in reasons(folder, tmp_path)


def test_thousands_of_reasons_are_not_compared_with_each_other(tmp_path: Path):
    class Reason(str):
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Reason.compared += 1
            return super().__eq__(other)

    checker = Checker(tmp_path)
    for number in [*range(1000), 0]:
        checker.refuse(Reason(number))
    assert Reason.compared < 1000
    with pytest.raises(DragomanError, match=r"cannot be imported: 0; 1; .*; 19; and 980 more reasons"):
        checker.finish()


def test_empty_folder_is_refused(tmp_path: Path):
    folder = tmp_path / "their"
    folder.mkdir()
    assert "no folder of Hugging Face (config.json), Marian (a .npz file) or fairseq" in reasons(folder, tmp_path)


def test_our_own_folders_need_no_import(trained: Path, tmp_path: Path):
    """A model, a run, a checkpoint, and a zip file of one."""
    checkpoint = next((trained / "checkpoints").iterdir())
    for folder in (trained / "best", trained, checkpoint):
        with pytest.raises(UsageError) as error:
            import_model(folder, tmp_path / "out")
        assert str(error.value) == f"{folder}: a model of dragoman already: use it as it is, with -m {folder}"
    archive = tmp_path / "model.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in (trained / "best").iterdir():
            zipped.write(file, file.name)
    with pytest.raises(UsageError, match="a model of dragoman already: unpack it, and use the folder") as error:
        import_model(archive, tmp_path / "out")
    assert str(error.value).startswith(f"{archive}: ")


def test_folder_that_is_there_already(marian: Path, tmp_path: Path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DragomanError, match="exists already"):
        import_model(marian, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder in which not even root can write")
def test_folder_where_nothing_can_be_written(marian: Path):
    with pytest.raises(OSError, match=r"'/proc/out'$"):  # not a name of ours inside it
        import_model(marian, Path("/proc/out"))
