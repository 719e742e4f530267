"""Exports to Hugging Face: real `transformers` translates with the folder as the model does."""

import itertools
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TINY_RECURRENT, save_random, tiny_transformer
from foreign import MARIAN_SETTINGS, m2m100_folder, marian_folder, npz_folder, write_npz
from searched import without_near_ties, words_of_search

from dragoman import Tokenizer, export_model
from dragoman.config import AttentionConfig, SearchConfig, TransformerConfig
from dragoman.config.presets import PRESETS, PresetName
from dragoman.data.tokenizer import EOS
from dragoman.errors import DragomanError
from dragoman.export import run
from dragoman.export.huggingface import HUGGING_FACE
from dragoman.export.program import run_program
from dragoman.export.target import Exported
from dragoman.interop import tokenizer_json as own_subwords
from dragoman.interop.importing import import_model
from dragoman.interop.transformers import conversion
from dragoman.interop.transformers.engine import import_transformers
from dragoman.interop.verification import Mismatch, verify
from dragoman.model.positions import sinusoids
from dragoman.model_folder import read_model, write_model
from dragoman.storage.writing import new_folder
from dragoman.text.tags import DefaultTags

pytest.importorskip("transformers", reason="exports to Hugging Face need the extra `huggingface`")


@pytest.fixture(autouse=True)
def fewer_sources(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast tests translate 4 sources, not 200; the probabilities of all words are compared nevertheless."""
    if not request.node.get_closest_marker("slow"):
        monkeypatch.setattr(run, "SOURCES", 4)


POST: dict[str, TransformerConfig] = {
    "preset base": tiny_transformer(encoder_layers=2, decoder_layers=2),
    "halves, biases": tiny_transformer(
        positions="sinusoidal-halves", output_bias=True, attention=AttentionConfig(2, bias=True)
    ),
    "own output": tiny_transformer(share="embeddings"),
    "target and output": tiny_transformer(share="output"),
    "nothing shared": tiny_transformer(share="none", scale_embedding=False),
    "m2m100": tiny_transformer(positions="sinusoidal-halves", first_position=2, norm_first=True),
    "m2m100, nothing shared": tiny_transformer(
        positions="sinusoidal-halves", first_position=2, norm_first=True, share="none"
    ),
}

FAST = ("nothing shared", "m2m100")  # the others are slow


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in POST]
)
def test_our_own_models_leave(name: str, tokenizer: Tokenizer, tmp_path: Path):
    folder = save_random(POST[name], tokenizer, tmp_path / "model")
    report = export_model(folder, "huggingface", tmp_path / "out")
    assert report.agreement.gap < (1e-4 if name.startswith("m2m100") else 1e-5)
    assert report.agreement.others == {"greedy search": 0, "search with 4 beams": 0}


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["base", "big"])
def test_paper_s_models_leave_in_their_own_size(preset: PresetName, tokenizer: Tokenizer, tmp_path: Path):
    """With one source, because 200 take too long."""
    config = PRESETS[preset].model
    assert isinstance(config, TransformerConfig)
    folder = save_random(config, tokenizer, tmp_path / "model")
    exported, source = Exported(*read_model(folder), DefaultTags()), tokenizer.encode("The dog sees 5 cats.")
    (tmp_path / "out").mkdir()
    HUGGING_FACE.write(exported, tmp_path / "out", "float32")
    copy = HUGGING_FACE.open(tmp_path / "out", exported, "float32")
    agreement = verify(exported.model, copy, [source])
    assert agreement.gap < 1e-4  # nats, of numbers 512 and 1,024 of which are summed
    assert agreement.others == {"greedy search": 0, "search with 4 beams": 0}
    with torch.no_grad():
        exported.model.encoder[5].around_attention.norm.bias[7] += 0.5
    with pytest.raises(Mismatch):  # the control
        verify(exported.model, copy, [source])


IMPORTED: dict[str, Any] = {
    "shared": (marian_folder, {"tags": [">>deu<<", ">>spa<<"]}),
    "separate": (marian_folder, {"separate": True}),
    "own head": (marian_folder, {"head": "own", "end": 17}),
    "m2m100": (m2m100_folder, {}),
    "nllb": (m2m100_folder, {"nllb": True}),
    "marian": (npz_folder, {"spm": False}),
}
TO = ("ctranslate2", "onnx", "huggingface")


@pytest.mark.parametrize(
    ("name", "to"),
    [
        pytest.param(
            name, to, marks=() if name == "separate" or (name, to) == ("nllb", "ctranslate2") else pytest.mark.slow
        )
        for name in IMPORTED
        for to in TO
    ],
)
def test_imported_models_leave(name: str, to: str, tmp_path: Path):
    make, settings = IMPORTED[name]
    make(tmp_path / "their", **settings)
    model = import_model(tmp_path / "their", tmp_path / "model")
    report = export_model(model, to, tmp_path / "out")
    assert report.agreement.gap < 1e-4
    assert sum(report.agreement.others.values()) <= 2


@pytest.mark.parametrize("to", ["ctranslate2", *(pytest.param(to, marks=pytest.mark.slow) for to in TO[1:])])
def test_unknown_word_of_marian_is_never_said(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arrays = npz_folder(tmp_path / "their")
    arrays["decoder_ff_logit_out_b"][0, 1] = 20
    write_npz(tmp_path / "their" / "model.npz", arrays, MARIAN_SETTINGS | {"dim-vocabs": [len(arrays["Wemb"])] * 2})
    model, tokenizers = read_model(import_model(tmp_path / "their", tmp_path / "model"))
    assert model.output.bias[tokenizers.target.unknown] == 20

    def unknown_words(out: Path) -> int:
        export_model(tmp_path / "model", to, out)
        search = SearchConfig(beam=1, extra_length=10, length_penalty=0)
        exported = Exported(model, tokenizers, DefaultTags())
        found = run.TARGETS[to].open(out, exported, "float32").search([[7, 8, 9], [10, 11]], search)
        return sum(best.tokens.count(tokenizers.target.unknown) for (best, *_) in found)

    assert unknown_words(tmp_path / "out") == 0
    monkeypatch.setattr(run, "forbid", lambda *_: None)
    assert unknown_words(tmp_path / "control") > 20


# Controls: each of these is seen, and nothing is there.


def other_sinusoid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "sinusoids_in_halves", sinusoids)


def lost_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    right = conversion.weights
    monkeypatch.setattr(
        conversion, "weights", lambda *given: {n: w * (n != "final_logits_bias") for n, w in right(*given).items()}
    )


def unsorted_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    right = conversion.in_order

    def in_order(ours: str, value: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return value if ours == "encoder.0.around_attention.norm.weight" else right(ours, value, columns)

    monkeypatch.setattr(conversion, "in_order", in_order)


def swapped_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    right = own_subwords.write_tokenizer

    def write(tokenizer: Tokenizer, file: Path, order: Sequence[int]) -> None:
        right(tokenizer, file, order)
        text = file.read_text("utf-8")
        for old, new in (("<tag:de>", "<tag:xx>"), ("<tag:ko>", "<tag:de>"), ("<tag:xx>", "<tag:ko>")):
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")

    monkeypatch.setattr(own_subwords, "write_tokenizer", write)


SORTED, HALVES = (tiny_transformer(positions=name, output_bias=True) for name in ("sinusoidal", "sinusoidal-halves"))


@pytest.mark.parametrize(
    ("fault", "config", "says"),
    [
        (other_sinusoid, HALVES, "log-probabilities differ"),
        pytest.param(lost_bias, SORTED, "log-probabilities differ", marks=pytest.mark.slow),
        pytest.param(unsorted_norm, SORTED, "log-probabilities differ", marks=pytest.mark.slow),
        (swapped_tag, SORTED, "other subwords|the same ids|another id"),
    ],
)
@pytest.mark.slow
def test_faulty_export_is_not_there(
    fault: Callable, config: TransformerConfig, says: str, pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), vocabulary=400, tags=["de", "ko"])
    folder = save_random(config, tokenizer, tmp_path / "model")
    export_model(folder, "huggingface", tmp_path / "right")
    fault(monkeypatch)
    with pytest.raises(DragomanError, match=says):
        export_model(folder, "huggingface", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_models_that_neither_form_has_are_refused_with_all_reasons(tokenizer: Tokenizer, tmp_path: Path):
    config = tiny_transformer(positions="rotary", attention=AttentionConfig(2, d_k=4, score="unscaled"))
    folder = save_random(config, tokenizer, tmp_path / "rotary")
    with pytest.raises(
        DragomanError, match=r"'rotary' and attention\.score = 'unscaled' and heads of the sizes"
    ) as error:
        export_model(folder, "huggingface", tmp_path / "out")
    assert "export it to ONNX, or train or distill with --model.positions sinusoidal" in str(error.value)
    folder = save_random(TINY_RECURRENT, tokenizer, tmp_path / "recurrent")
    with pytest.raises(DragomanError, match="recurrent layers: train or distill with --preset base"):
        export_model(folder, "huggingface", tmp_path / "out")
    biased = tiny_transformer(positions="sinusoidal-halves", first_position=2, norm_first=True, output_bias=True)
    folder = save_random(biased, tokenizer, tmp_path / "biased")
    with pytest.raises(DragomanError, match="a bias in its output: export it to ONNX"):
        export_model(folder, "huggingface", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def program(folder: Path) -> str:
    """Return the program in a README."""
    return (folder / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]


@pytest.mark.slow
def test_program_in_the_readme_translates_with_the_folder_alone(trained: Path, pairs, tmp_path: Path):
    folder = tmp_path / "out"
    report = export_model(trained, "huggingface", folder)
    assert report.program.startswith("the program above: the same translations of ")
    assert f"- {report.program}\n" in (folder / "README.md").read_text("utf-8")
    code = program(folder)
    assert "dragoman" not in re.sub("#.*", "", code)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 25
    (folder / "translate.py").write_text(code, encoding="utf-8")
    texts = [source for source, _ in pairs[:3]]
    ran = subprocess.run(
        [sys.executable, "-I", folder / "translate.py", "", f" {texts[0]} ", *texts[1:]],
        **{"capture_output": True, "text": True, "cwd": "/", "check": True},
    )
    assert ran.stdout.removesuffix("\n").split("\n") == ["", *words_of_search(trained, texts, SearchConfig())]
    translate = runpy.run_path(str(folder / "translate.py"))["translate"]
    assert translate(texts, beams=1) == words_of_search(trained, texts, SearchConfig(beam=1))


@pytest.fixture(scope="module")
def unsure(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that finds many lengths likely."""
    model, tokenizers = read_model(trained)
    with torch.no_grad():
        model.output.weight.mul_(0.1)
    folder = tmp_path_factory.mktemp("unsure") / "model"
    with new_folder(folder) as draft:
        write_model(draft, model, tokenizers, "")
    return folder


@pytest.mark.slow
def test_program_for_transformers_ranks_as_translate_does(unsure: Path, pairs, tmp_path: Path):
    """The control: by transformers' own length penalty, others are best."""
    export_model(unsure, "huggingface", tmp_path / "out")
    texts = [f"{first} {second}" for (first, _), (second, _) in itertools.pairwise(pairs[:8])]
    code = program(tmp_path / "out")
    theirs = code.replace("LengthPenalty(0.6)", "1.0").replace(', early_stopping="never"', "")
    assert theirs != code
    ours, other = (run_program(text, tmp_path / "out") for text in (code, theirs))
    expected = words_of_search(unsure, texts, SearchConfig())
    assert ours(texts) == expected
    assert other(texts) != expected


def test_generate_searches_with_the_settings_that_were_checked(unsure: Path, pairs, tmp_path: Path):
    """Without a length penalty, and without an end where an output is cut off. The controls: with them."""
    folder = tmp_path / "out"
    export_model(unsure, "huggingface", folder)
    transformers = import_transformers()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    texts = [f"{first} {second}" for (first, _), (second, _) in itertools.pairwise(pairs[:24])]

    def generated(**settings: Any) -> list[str]:
        batches = [tokenizer(text, return_tensors="pt") for text in texts]
        return [tokenizer.decode(model.generate(**batch, **settings)[0], skip_special_tokens=True) for batch in batches]

    search = SearchConfig(length_penalty=0, extra_length=500)
    texts = without_near_ties(unsure, texts, search, tmp_path)
    expected = words_of_search(unsure, texts, search)
    assert len(texts) > 10
    assert generated() == expected
    assert generated(length_penalty=1.0) != expected
    batch = tokenizer(texts[0], return_tensors="pt")
    for settings, ended in (({}, False), ({"forced_eos_token_id": EOS}, True)):
        (output,) = model.generate(**batch, max_new_tokens=2, max_length=None, **settings)
        assert (int(output[-1]) == EOS) == ended
