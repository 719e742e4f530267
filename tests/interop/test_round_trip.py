"""What was exported to Hugging Face comes back by `dragoman import` as the same model, and leaves again the same."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import signed_again, tiny_transformer, toy_pairs
from foreign import change_config, copy_of, m2m100_folder, marian_folder, npz_folder
from imported import LINES, NASTY
from safetensors.torch import load_file, save_file

from dragoman import Tokenizer
from dragoman.alignment.heads import AlignmentHead
from dragoman.config import AttentionConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizers import Tokenizers
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError
from dragoman.export.huggingface import HUGGING_FACE
from dragoman.export.target import Exported
from dragoman.interop import weights
from dragoman.interop.importing import import_model
from dragoman.interop.transformers.conversion import lay_out
from dragoman.interop.weights import UNSAYABLE
from dragoman.model import Model, build
from dragoman.model_folder import copy_records, read_model, write_model
from dragoman.storage.writing import new_folder
from dragoman.text.extent import SourceExtent
from dragoman.text.origin import Origin
from dragoman.text.tags import DefaultTags, LanguageTags
from dragoman.training.integrity import verify

pytest.importorskip("transformers", reason="exports to Hugging Face need the extra `huggingface`")

MARIAN = Path(__file__).parents[1] / "marian"
TEXTS = [pair[0] for pair in toy_pairs(4)] + ["", " Two  spaces,\tNFD u\u0308 </s> and 개!"]


def tokenizers(two: bool = False) -> Tokenizers:
    """Our own subwords with tags; two: of each side."""
    english, korean = zip(*toy_pairs(), strict=True)
    if not two:
        return Tokenizers.from_tokenizer(Tokenizer.train([*english, *korean], vocabulary=400, tags=["de", "ko"]))
    return Tokenizers(Tokenizer.train(english, vocabulary=290, tags=["de"]), Tokenizer.train(korean, vocabulary=300))


M2M100 = tiny_transformer(positions="sinusoidal-halves", first_position=2, norm_first=True)
OURS: dict[str, tuple[TransformerConfig, bool]] = {
    "MarianMT": (tiny_transformer(), False),
    "MarianMT, halves": (
        tiny_transformer(positions="sinusoidal-halves", output_bias=True, attention=AttentionConfig(2, bias=True)),
        False,
    ),
    "MarianMT, two tokenizers": (tiny_transformer(share="output", scale_embedding=False), True),
    "M2M100": (M2M100, False),
    "M2M100, nothing shared": (tiny_transformer(**{**vars(M2M100), "share": "none"}), False),
}
THEIRS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "MarianMT": (marian_folder, {"tags": [">>deu<<", ">>spa<<"]}),
    "MarianMT, separate": (marian_folder, {"separate": True, "head": "own"}),
    "MarianMT, end not 0": (marian_folder, {"end": 17, "head": "unequal"}),
    "M2M100": (m2m100_folder, {}),
    "NLLB": (m2m100_folder, {"nllb": True}),
    "Marian": (npz_folder, {"spm": False}),
}
NAMES = [*(f"ours, {name}" for name in OURS), *(f"theirs, {name}" for name in THEIRS)]
FAST = ("ours, MarianMT, two tokenizers", "ours, M2M100", "theirs, MarianMT, separate", "theirs, M2M100")


def make(name: str, folder: Path) -> Path:
    """Return the folder of a model of ours, with random weights, or imported."""
    whose, name = name.split(", ", 1)
    if whose == "theirs":
        write, settings = THEIRS[name]
        write(folder / "their", **settings)
        return import_model(folder / "their", folder / "model")
    config, two = OURS[name]
    subwords = tokenizers(two)
    torch.manual_seed(0)
    model = build(config, len(subwords.source), subwords.target_vocabulary).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1)
    with new_folder(folder / "model") as draft:
        write_model(draft, model, subwords, "# Random\n")
    return folder / "model"


def leave(folder: Path, out: Path) -> Path:
    """Export without the check, which other tests show."""
    with new_folder(out) as draft:
        HUGGING_FACE.write(Exported(*read_model(folder), DefaultTags.load(folder)), draft, "float32")
        copy_records(folder, draft, HUGGING_FACE.records)
    return out


def logits(model: Model, subwords: Tokenizers) -> torch.Tensor:
    """For some texts."""
    sources, targets = subwords.source.encode_all(TEXTS[:3]), subwords.target.encode_all(TEXTS[1:4])
    with torch.no_grad():
        rows = [
            model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))[0]
            for source, target in zip(sources, targets, strict=True)
        ]
    return torch.cat(rows)


def sayable(model: Model) -> torch.Tensor:
    """The words that its bias does not forbid."""
    bias = model.output.bias
    return torch.ones(len(model.output.weight), dtype=torch.bool) if bias is None else bias > UNSAYABLE / 2


def words(model: Model, subwords: Tokenizers, beam: int) -> list[list[int]]:
    sources = [ids for ids in subwords.source.encode_sources(TEXTS) if ids]
    config = SearchConfig(beam=beam, length_penalty=0, extra_length=8)
    return [found[0].tokens for found in TorchEngine(model).search(sources, config)]


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_model_comes_back_and_leaves_again(name: str, tmp_path: Path):
    folder = make(name, tmp_path)
    out = leave(folder, tmp_path / "out")
    back = import_model(out, tmp_path / "back")
    (model, subwords), (other, its) = read_model(folder), read_model(back)
    bound = 1e-4 if "M2M100" in name or "NLLB" in name else 1e-5
    assert torch.equal(sayable(model), sayable(other))
    said = logits(model, subwords)[:, sayable(model)]
    assert float((said - logits(other, its)[:, sayable(model)]).abs().max()) < bound
    assert said.std() > 0.1
    for beam in (1, 4):
        assert words(model, subwords, beam) == words(other, its, beam)
    for one, two in zip(subwords, its, strict=True):
        assert one.encode_sources(TEXTS) == two.encode_sources(TEXTS)
        assert one.tags == two.tags
    again = leave(back, tmp_path / "again")
    assert same_files(out, again)
    assert same_files(back, import_model(again, tmp_path / "third"))


def same_files(one: Path, other: Path) -> bool:
    """All but the texts for people, what is made of them, and where the model came from."""
    own = {"card.md", "origin.json", "manifest.json"}
    names = [sorted({file.name for file in folder.iterdir()} - own) for folder in (one, other)]
    return names[0] == names[1] and all((one / name).read_bytes() == (other / name).read_bytes() for name in names[0])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model of ours, and its export."""
    folder = tmp_path_factory.mktemp("exported")
    model = make("ours, MarianMT", folder)
    records = {
        AlignmentHead(1, 2): AlignmentHead,
        DefaultTags("de"): DefaultTags,
        LanguageTags(("de", "ko"), "target"): LanguageTags,
        SourceExtent(3, 40): SourceExtent,
        Origin("somewhere", "mit"): Origin,
    }
    for record, kind in records.items():
        (model / kind.RECORD).write_text(record.as_json())
    signed_again(model)
    return model, leave(model, folder / "out")


def distance(model: Path, other: Path) -> float:
    """Between two models' logits of words that both may say: one from Marian has the unknown word's share, too."""
    one, two = read_model(model), read_model(other)
    both = sayable(one[0]) & sayable(two[0])
    both[:2] = False
    assert both.sum() > 0.9 * len(both)
    return float((logits(*one) - logits(*two))[:, both].abs().max())


def unsorted_norm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right, norm = weights.in_order, "decoder.0.around_feed_forward.norm.weight"
    monkeypatch.setattr(weights, "in_order", lambda ours, *given: given[0] if ours == norm else right(ours, *given))


def another_weight(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.encoder.layers.0.fc1.weight"][3, 5] += 0.5
    save_file(tensors, folder / "model.safetensors")


def nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(("fault", "seen"), [(unsorted_norm, True), (another_weight, True), (nothing, False)])
def test_fault_on_the_way_back_is_seen(
    fault: Callable, seen: bool, exported: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The controls."""
    out = copy_of(exported[1], tmp_path / "out")
    fault(out, monkeypatch)
    assert (distance(exported[0], import_model(out, tmp_path / "back")) > 1e-4) == seen


def test_records_of_a_folder_come_back(exported: tuple[Path, Path], tmp_path: Path):
    back = import_model(exported[1], tmp_path / "back")
    for record in (AlignmentHead, DefaultTags, LanguageTags, SourceExtent, Origin):
        assert record.load(back) == record.load(exported[0])
        assert record.load(back)
    assert DefaultTags.load(import_model(exported[1], tmp_path / "other", tag="ko")).source == "ko"


def test_export_is_verified_by_its_checksums(exported: tuple[Path, Path], tmp_path: Path):
    out = copy_of(exported[1], tmp_path / "out")
    assert [finding.state for finding in verify(out)] == ["ok"]
    another_weight(out, pytest.MonkeyPatch())
    assert [finding.state for finding in verify(out)] == ["damaged"]


def test_folder_that_transformers_has_saved_comes_back(exported: tuple[Path, Path], tmp_path: Path):
    """As somebody leaves it who has fine-tuned the export there."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    for part in (AutoModelForSeq2SeqLM, AutoTokenizer):
        part.from_pretrained(exported[1]).save_pretrained(tmp_path / "tuned")
    assert distance(exported[0], import_model(tmp_path / "tuned", tmp_path / "back")) < 1e-5


@pytest.mark.parametrize("name", ["M2M100", pytest.param("NLLB", marks=pytest.mark.slow)])
def test_transformers_opens_an_m2m100_with_the_subwords_of_its_original(name: str, tmp_path: Path):
    """As MarianTokenizer, whose tags have its own form: `M2M100Tokenizer` and `NllbTokenizer` do not fit all models."""
    from transformers import AutoTokenizer

    folder = make(f"theirs, {name}", tmp_path)
    out, (model, subwords) = leave(folder, tmp_path / "out"), read_model(folder)
    opened, rows = AutoTokenizer.from_pretrained(out), lay_out(model, subwords).rows("source")
    assert type(opened).__name__ == "MarianTokenizer"
    texts = [text for text in (*LINES[:200], *NASTY) if not any(mark in text for mark in ("</s>", "<pad>", ">>"))]
    tag = min(subwords.source.tags)
    for text, ids in zip(texts, subwords.source.encode_all(texts, tag), strict=True):
        assert opened(f">>{tag}<<{text}")["input_ids"] == [rows[id] for id in (*ids, 2)], text
    assert opened(f"{tag} {texts[0]}")["input_ids"][0] != rows[subwords.source.tags[tag]]  # the control


@pytest.fixture(scope="module")
def from_marian(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that Marian has trained, whose norms have an epsilon of 1e-6, and its export."""
    folder = tmp_path_factory.mktemp("from_marian")
    model = import_model(MARIAN, folder / "model")
    return model, leave(model, folder / "out")


def epsilon(folder: Path) -> float:
    config = read_model(folder)[0].config
    assert isinstance(config, TransformerConfig)
    return config.norm_epsilon


def test_epsilon_of_marian_comes_back(from_marian: tuple[Path, Path], tmp_path: Path):
    model, out = from_marian
    back = import_model(out, tmp_path / "back")
    assert epsilon(model) == epsilon(back) == 1e-6
    assert distance(model, back) < 1e-5
    # The control: with that of transformers it would be another model, if not by much.
    without = import_model(change_config(copy_of(out, tmp_path / "out"), norm_epsilon=None), tmp_path / "without")
    assert epsilon(without) == 1e-5
    assert 2e-5 < distance(model, without) < 1e-2


def test_readme_of_an_export_says_that_the_epsilon_differs(from_marian: tuple[Path, Path]):
    exported = Exported(*read_model(from_marian[0]), DefaultTags())
    assert "an epsilon of 1e-06, those of transformers 1e-05" in HUGGING_FACE.usage(exported, "float32")
    usual = replace(exported, model=build(tiny_transformer(), 10))
    assert "epsilon" not in HUGGING_FACE.usage(usual, "float32")


def test_model_saved_by_transformers_has_its_epsilon(from_marian: tuple[Path, Path], tmp_path: Path):
    """It ignores ours, so what it has trained further was trained with its own."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    for part in (AutoModelForSeq2SeqLM, AutoTokenizer):
        part.from_pretrained(from_marian[1]).save_pretrained(tmp_path / "tuned")
    assert epsilon(import_model(tmp_path / "tuned", tmp_path / "back")) == 1e-5


def other_spaces(content: dict[str, Any]) -> None:
    content["normalizer"]["normalizers"].pop(0)


def other_merges(content: dict[str, Any]) -> None:
    content["model"]["merges"].append(["q", "q"])


def other_start(content: dict[str, Any]) -> None:
    content["model"]["vocab"] |= {"<s>": 0, "<pad>": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_spaces, "normalizer would do other things to texts"),
        (other_merges, "not a dragoman tokenizer"),
        (other_start, "ids 0 to 258 are not padding, start, end"),
    ],
)
def test_other_subwords_than_ours_are_refused(change: Callable, says: str, exported: tuple[Path, Path], tmp_path: Path):
    out = copy_of(exported[1], tmp_path / "out")
    content = json.loads((out / "tokenizer.json").read_text("utf-8"))
    change(content)
    (out / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(DragomanError, match=f"tokenizer.json: .*{says}.*; vocab.json, source.spm, target.spm missing"):
        import_model(out, tmp_path / "back")
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize(("file", "program"), [("model.bin", "CTranslate2"), ("encoder_model.onnx", "onnxruntime")])
def test_exports_for_other_programs_are_refused(file: str, program: str, exported: tuple[Path, Path], tmp_path: Path):
    out = copy_of(exported[1], tmp_path / "out")
    (out / file).write_bytes(b"")
    with pytest.raises(DragomanError, match=f"exported for {program}.* import what dragoman export --to huggingface"):
        import_model(out, tmp_path / "back")
