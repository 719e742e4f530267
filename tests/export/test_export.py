"""Exports: each translates as its model does, from its folder alone, or is not there."""

import itertools
import json
import random
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from conftest import TINY_RECURRENT, save_random, signed_again, tiny_transformer, toy_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from packages import npm_packages
from searched import without_near_ties, words_of_search

from dragoman import Tokenizer, Translator, export_model
from dragoman.config import AttentionConfig, ModelConfig, SearchConfig
from dragoman.data.tokenizer import EOS, RESERVED
from dragoman.data.tokenizers import Tokenizers
from dragoman.errors import DragomanError, UsageError
from dragoman.export import run
from dragoman.export.onnx import ONNX
from dragoman.export.program import run_program
from dragoman.export.run import Report
from dragoman.export.target import Exported
from dragoman.interop.ctranslate2 import conversion
from dragoman.interop.ctranslate2.conversion import LARGEST, LARGEST_WITHOUT_VNNI
from dragoman.interop.tokenizer_json import check_tokenizer, complete, write_tokenizer, write_tokenizers
from dragoman.interop.verification import Mismatch
from dragoman.model import build
from dragoman.model_folder import read_model, write_model
from dragoman.storage.writing import MANIFEST, fingerprint, new_folder
from dragoman.text.tags import DefaultTags
from dragoman.translation.safeguards import NO_SAFEGUARDS

for package, extra in (("ctranslate2", "fast"), ("onnx", "onnx"), ("onnxruntime", "onnx")):
    pytest.importorskip(package, reason=f"exports need the extra `{extra}`")

LINES = {"ctranslate2": 25, "onnx": 40}  # of the program in the README, at most
ALL_SOURCES = run.SOURCES


@pytest.fixture(autouse=True)
def fewer_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exports of these tests are checked with 12 sources, not 200, but for those of `exported`."""
    monkeypatch.setattr(run, "SOURCES", 12)


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Report]]:
    """Return a function that exports the trained model, once for each target. The folders are not to be changed."""
    folder, done = tmp_path_factory.mktemp("exports"), {}

    def export(to: str) -> tuple[Path, Report]:
        if to not in done:
            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.setattr(run, "SOURCES", ALL_SOURCES)
                done[to] = folder / to, export_model(trained, to, folder / to)
        return done[to]

    return export


def program(folder: Path) -> str:
    """Return the program in a README."""
    (code,) = re.findall(r"^```python\n(.+?)^```$", (folder / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return code


@pytest.mark.parametrize("to", LINES)
def test_export_is_checked_and_says_how(to: str, exported, trained: Path):
    folder, report = exported(to)
    agreement = report.agreement
    assert agreement.sources == 200
    assert agreement.gap < 1e-4
    assert report.program == "the program above: the same translations of 8 of 8 texts"
    assert agreement.tokens > len(Tokenizer.load(trained / "best" / "tokenizer.json"))
    readme = (folder / "README.md").read_text("utf-8")
    for line in str(report).splitlines():
        assert f"- {line}\n" in readme
    assert "> # toy" in readme
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}
    manifest = json.loads(files.pop(MANIFEST).read_text("utf-8"))
    assert manifest == {name: fingerprint(file) for name, file in files.items()}


@pytest.mark.parametrize("to", LINES)
def test_program_in_the_readme_translates_with_the_folder_alone(
    to: str, exported, trained: Path, pairs, tmp_path: Path
):
    folder = Path(shutil.copytree(exported(to)[0], tmp_path / "alone"))
    code = program(folder)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= LINES[to]
    (folder / "translate.py").write_text(code, encoding="utf-8")
    texts = [source for source, _ in pairs[:8]]
    ran = subprocess.run(
        [sys.executable, "-I", folder / "translate.py", *texts], capture_output=True, text=True, cwd="/", check=True
    )
    assert "dragoman" not in code
    said = ran.stdout.removesuffix("\n").split("\n")
    translate = runpy.run_path(str(folder / "translate.py"))["translate"]
    assert translate(texts) == said
    if to == "ctranslate2":  # whose program searches with 4 beams
        said = translate(texts, beams=1)
    assert said == words_of_search(trained, texts, SearchConfig(beam=1))
    assert len(set(said)) > 2


@pytest.mark.parametrize("to", LINES)
def test_program_leaves_blank_text_and_outer_space_out_as_translate_does(to: str, exported, trained: Path, pairs):
    """The control: the tokenizer of the folder reads a space in front."""
    folder = exported(to)[0]
    translate = run_program(program(folder), folder)
    texts = [source for source, _ in pairs[:3]]
    spaced = [f"\u3000 {texts[0]}\n", "", " \t", f"{texts[1]}  ", texts[2]]
    plain = translate(texts)
    assert translate(spaced) == [plain[0], "", "", *plain[1:]]
    native = Translator.load(trained).translate(spaced)
    assert [not text for text in translate(spaced)] == [not translation.text.strip() for translation in native]
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode(spaced[0]).ids != tokenizer.encode(texts[0]).ids


@pytest.mark.parametrize(
    ("to", "old", "new", "says"),
    [
        ("onnx", "text and ", "", "its program translates blank text"),
        ("onnx", "text and ", "text and '!' + ", "its program translates '"),
        ("onnx", "str.strip", "str", "its program translates "),
        ("ctranslate2", "text and ", "text and '!' + ", "its program translates '"),
        ("ctranslate2", "text.strip()", "text", "its program translates "),
    ],
)
def test_program_that_translates_otherwise_is_not_exported(
    to: str, old: str, new: str, says: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = run.TARGETS[to]
    wrong = replace(target, usage=lambda *arguments: target.usage(*arguments).replace(old, new))
    monkeypatch.setitem(run.TARGETS, to, wrong)
    with pytest.raises(DragomanError, match=f"not written: .*: {says}"):
        export_model(trained, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_program_for_ctranslate2_ranks_as_translate_does(trained: Path, pairs, tmp_path: Path):
    """Even where many lengths are likely. The control: by CTranslate2's own length penalty, others are best."""
    model, tokenizers = read_model(trained)
    with torch.no_grad():
        model.output.weight.mul_(0.1)
    with new_folder(tmp_path / "model") as draft:
        write_model(draft, model, tokenizers, "")
    export_model(tmp_path / "model", "ctranslate2", tmp_path / "out")
    texts = [f"{first} {second}" for (first, _), (second, _) in itertools.pairwise(pairs[:24])]
    code = program(tmp_path / "out")
    theirs = code.replace("length_penalty=1e-9", "length_penalty=1").replace("** 0.6", "** 0")
    for name, program_text in (("ours", code), ("theirs", theirs)):
        (tmp_path / "out" / f"{name}.py").write_text(program_text, encoding="utf-8")
    texts = without_near_ties(tmp_path / "model", texts, SearchConfig(), tmp_path)
    expected = words_of_search(tmp_path / "model", texts, SearchConfig())
    ours, other = (runpy.run_path(str(tmp_path / "out" / f"{name}.py"))["translate"] for name in ("ours", "theirs"))
    assert len(texts) > 10
    assert ours(texts) == expected
    assert other(texts) != expected


# What is compared must be able to differ.


@pytest.fixture(scope="module")
def tagged(pairs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with biases everywhere and two tags, which knows nothing."""
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), vocabulary=400, tags=["de", "ko"])
    return save_random(
        tiny_transformer(attention=AttentionConfig(2, bias=True), positions="rotary", output_bias=True),
        tokenizer,
        tmp_path_factory.mktemp("tagged") / "model",
    )


def wrong_weight(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the smallest matrices is off by a little."""
    if to == "ctranslate2":
        right = conversion.fill_linear
        monkeypatch.setattr(conversion, "fill_linear", lambda spec, *layers: right(spec, *map(shifted, layers)))
    else:
        from dragoman.interop.onnx.graph import Graph

        kept = Graph.keep

        def keep(self, name: str, array: np.ndarray) -> str:
            return kept(
                self, name, array + np.float32(0.01) if name == "decoder.0.cross_attention.query.weight" else array
            )

        monkeypatch.setattr(Graph, "keep", keep)


def shifted(layer: torch.nn.Linear) -> torch.nn.Linear:
    """Return a layer whose matrix is off if it is the last of a feed-forward network."""
    if (layer.in_features, layer.out_features) != (32, 16):
        return layer
    other = torch.nn.Linear(32, 16)
    other.weight, other.bias = torch.nn.Parameter(layer.weight + 0.02 * torch.eye(16)[:, 3:4]), layer.bias
    return other


def lost_bias(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output has no bias."""
    if to == "ctranslate2":
        right = conversion.fill_linear

        def fill(spec, *layers) -> None:
            right(spec, *layers)
            if layers[0].out_features > 300:
                spec.bias = torch.zeros_like(spec.bias)

        monkeypatch.setattr(conversion, "fill_linear", fill)
    else:
        from dragoman.interop.onnx.graph import Graph

        kept = Graph.keep
        monkeypatch.setattr(
            Graph, "keep", lambda self, name, array: kept(self, name, array * 0 if name == "output.bias" else array)
        )


def swapped_tag(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two tags have each other's ids in the tokenizer."""
    monkeypatch.setattr("dragoman.interop.tokenizer_json.write_tokenizer", write_swapped)


def write_swapped(tokenizer: Tokenizer, file: Path, order: Sequence[int]) -> None:
    write_tokenizer(tokenizer, file, order)
    text = file.read_text("utf-8")
    for old, new in (("<tag:de>", "<tag:xx>"), ("<tag:ko>", "<tag:de>"), ("<tag:xx>", "<tag:ko>")):
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")


def swapped_rows(to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The two tags have each other's vectors."""
    if to == "ctranslate2":
        from dragoman.interop.ctranslate2 import conversion as module

        right = module.float32_copy

        def copy(tensor: torch.Tensor) -> torch.Tensor:
            found = right(tensor)
            if found.dim() == 2 and len(found) == 400:
                found[[259, 260]] = found[[260, 259]]
            return found

        monkeypatch.setattr(module, "float32_copy", copy)
    else:
        from dragoman.interop.onnx import graph as other

        array = other.float_array

        def swapped(tensor: torch.Tensor) -> np.ndarray:
            found = array(tensor).copy()
            if found.ndim == 2 and len(found) == 400:
                found[[259, 260]] = found[[260, 259]]
            return found

        monkeypatch.setattr(other, "float_array", swapped)


@pytest.mark.parametrize("fault", [wrong_weight, lost_bias, swapped_tag, swapped_rows])
@pytest.mark.parametrize("to", LINES)
def test_faulty_export_is_not_there(to: str, fault: Callable, tagged: Path, dragoman, tmp_path: Path, monkeypatch):
    fault(to, monkeypatch)
    ran = dragoman("export", tagged, "--to", to, tmp_path / "new" / "out")
    assert ran.code == 1
    assert "not written: the export does not translate as" in ran.err
    assert ran.out == ""
    assert list((tmp_path / "new").iterdir()) == []


def test_models_of_these_tests_are_exported_where_nothing_is_wrong(tagged: Path, dragoman, tmp_path: Path):
    """The control."""
    for to in LINES:
        ran = dragoman("export", "-m", tagged, "--to", to, tmp_path / to)
        assert (ran.code, ran.out) == (0, f"{tmp_path / to}\n"), ran.err
        assert ran.err.startswith("log-probabilities of ")


# Weights of fewer bits


@pytest.mark.parametrize(("to", "program"), [("ctranslate2", "CTranslate2"), ("onnx", "onnxruntime")])
def test_export_is_verified_and_is_no_model_folder(to: str, program: str, exported, dragoman, tmp_path: Path):
    out = shutil.copytree(exported(to)[0], tmp_path / "out")
    assert dragoman("verify", out).out.startswith("ok")
    ran = dragoman("translate", "-m", out, "A dog.")
    assert f"exported for {program}, not a model folder" in ran.err
    largest = max(out.iterdir(), key=lambda file: file.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-1] + b"?")
    ran = dragoman("verify", out)  # the control
    assert ran.code == 1
    assert f"damaged   {largest}" in ran.out


def test_float16_is_compared_with_the_model_rounded_to_it(trained: Path, tagged: Path, exported, tmp_path: Path):
    """As CTranslate2 rounds it: the weights and the table of `trained`, of `tagged` the weights, but no angle."""
    report = export_model(tagged, "ctranslate2", tmp_path / "rotary", compute_type="float16")
    assert report.agreement.gap < 1e-4
    report = export_model(trained, "ctranslate2", tmp_path / "out", compute_type="float16")
    assert report.agreement.gap < 1e-4
    assert report.bytes < 0.8 * exported("ctranslate2")[1].bytes
    import ctranslate2

    assert ctranslate2.Translator(str(tmp_path / "out")).compute_type == "float32"  # of a CPU


@pytest.mark.parametrize("to", LINES)
def test_int8_is_measured(to: str, trained: Path, corpus, dragoman, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    arguments = ("export", trained, "--to", to, "--compute-type", "int8")
    ran = dragoman(*arguments, tmp_path / "out")
    assert (ran.code, "give --test" in ran.err) == (2, True)
    ran = dragoman(*arguments, tmp_path / "out", "--test", corpus[1])
    assert ran.code == 0, ran.err
    (line,) = [line for line in ran.err.splitlines() if line.startswith("int8 on")]
    search = {"ctranslate2": "beam 4", "onnx": "greedy search"}[to]
    assert re.search(rf"10 pairs, {search}: BLEU \d+\.\d -> \d+\.\d, chrF2 \d+\.\d -> \d+\.\d \(nrefs:1", line)
    assert f"- {line}\n" in (tmp_path / "out" / "README.md").read_text("utf-8")
    monkeypatch.setattr(run, "MOST_LOST", -100.0)
    ran = dragoman(*arguments, tmp_path / "lost", "--test", corpus[1])
    assert ran.code == 1
    assert "BLEU are lost" in ran.err
    assert not (tmp_path / "lost").exists()


def test_int8_runs_on_processors_without_vnni_wherever_it_is_written(
    trained: Path, corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    largest: list[int] = []

    def noted(spec: Any, weights: dict, limit: int) -> None:
        largest.append(limit)

    monkeypatch.setattr(conversion, "requantise", noted)
    monkeypatch.setattr(conversion, "largest_weight", lambda: LARGEST)
    export_model(trained, "ctranslate2", tmp_path / "out", compute_type="int8", test=[corpus[1]])
    assert set(largest) == {LARGEST_WITHOUT_VNNI}


# For people with dragoman


def test_model_goes_to_others_without_the_state_of_training(dragoman, trained: Path, pairs, tmp_path: Path):
    out, best = tmp_path / "out", (trained / "best").resolve()
    ran = dragoman("export", "-m", trained, "--to", "dragoman", out)
    assert (ran.code, ran.out) == (0, f"{out}\n"), ran.err
    assert ran.err.startswith("the same files, without the state of training\n")
    before, after = ({file.name for file in folder.iterdir()} for folder in (best, out))
    assert before - after == {"state.json", "state.safetensors"}
    assert after <= before
    for name in after - {MANIFEST, "card.md"}:
        assert (out / name).read_bytes() == (best / name).read_bytes()
    assert dragoman("verify", out).out.startswith("ok ")
    assert "no training state" not in dragoman("verify", out).out
    texts = [source for source, _ in pairs[:3]]
    assert words_of_search(out, texts, SearchConfig()) == words_of_search(trained, texts, SearchConfig())
    again = tmp_path / "again"
    assert dragoman("export", out, "--to", "dragoman", again).code == 0
    assert (again / MANIFEST).read_bytes() == (out / MANIFEST).read_bytes()


def test_damaged_model_does_not_go_to_others(dragoman, trained: Path, tmp_path: Path):
    model = Path(shutil.copytree((trained / "best").resolve(), tmp_path / "model"))
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    ran = dragoman("export", model, "--to", "dragoman", tmp_path / "out")
    assert (ran.code, "model.safetensors: damaged" in ran.err) == (1, True)
    assert not (tmp_path / "out").exists()


def test_folders_of_corpora_stay_at_home(dragoman, trained: Path, corpus, tmp_path: Path):
    """Also those that the card of an earlier version names, and those of the pairs that int8 is measured on."""
    model = Path(shutil.copytree((trained / "best").resolve(), tmp_path / "model"))
    assert "/" not in (model / "card.md").read_text("utf-8").split("Written on")[0]
    (model / "card.md").write_text("# toy\n\nTrained on /home/me/secret/train.tsv tag=de, see https://a.org/b/c.\n")
    for to, more in (("dragoman", ()), ("onnx", ("--compute-type", "int8", "--test", corpus[1]))):
        ran = dragoman("export", model, "--to", to, tmp_path / to, *more)
        assert ran.code == 0, ran.err
        for file in (tmp_path / to).rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                assert b"secret" not in content
                assert str(Path(corpus[1]).parent).encode() not in content
        texts = {file.name: file.read_text("utf-8") for file in (tmp_path / to).glob("*.md")}
        (text,) = texts.values()
        assert "Trained on train.tsv tag=de, see https://a.org/b/c." in text


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "onnx", "there"), "there: exists already"),
        (("--to", "onnx", "out", "--compute-type", "float16"), "--to onnx stores weights in float32 or int8"),
        (("--to", "onnx", "out", "--test", "a.tsv"), "--test measures what int8 costs"),
        (("--to", "dragoman", "out", "--test", "a.tsv"), "--to dragoman copies a model as it is: leave out"),
        (("--to", "dragoman", "out", "--compute-type", "int8"), "--to dragoman copies a model as it is: leave out"),
        (("--to", "gguf", "out"), "ctranslate2"),
        (("out",), "--to"),
    ],
)
def test_wrong_request_is_refused_before_anything_is_read(arguments: tuple[str, ...], message: str, dragoman):
    Path("there").mkdir()
    ran = dragoman("export", "no-model", *arguments)
    assert ran.code == 2
    assert message in ran.err
    assert not Path("out").exists()


def test_sample_is_read(trained: Path, pairs, tmp_path: Path):
    file = tmp_path / "sample.txt"
    file.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DragomanError, match=r"sample\.txt: no line with text"):
        export_model(trained, "onnx", tmp_path / "out", sample=file)
    file.write_text("\n".join(source for source, _ in pairs[:7]) + "\n\n", encoding="utf-8")
    assert export_model(trained, "onnx", tmp_path / "out", sample=file).agreement.sources == 7


@pytest.mark.parametrize(
    ("config", "ways_out"),
    [
        (
            TINY_RECURRENT,
            {
                "ctranslate2": "recurrent layers: train or distill with --preset small --model.positions rotary",
                "onnx": "recurrent layers: train or distill with --preset small",
            },
        ),
        (
            tiny_transformer(positions="relative"),
            {"ctranslate2": "export it to ONNX, or train or distill with --model.positions rotary"},
        ),
    ],
)
def test_model_that_does_not_fit_is_refused_with_the_way_out(
    config: ModelConfig, ways_out: dict[str, str], tokenizer: Tokenizer, tmp_path: Path
):
    folder = save_random(config, tokenizer, tmp_path / "model")
    for to, way_out in ways_out.items():
        with pytest.raises(DragomanError, match=way_out):
            export_model(folder, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_model_with_a_tokenizer_for_each_side_is_exported(tokenizer: Tokenizer, tmp_path: Path):
    others = Tokenizer.train((target for _, target in toy_pairs()), vocabulary=330)
    model = build(tiny_transformer(share="output", output_bias=True), len(tokenizer), len(others)).eval()
    with new_folder(tmp_path / "model") as draft:
        write_model(draft, model, Tokenizers(tokenizer, others), "")
    texts = ["The dog sees 2 red cats.", "The cat likes 3 blue dogs."]
    for to in LINES:
        export_model(tmp_path / "model", to, tmp_path / to)
        (tmp_path / to / "translate.py").write_text(program(tmp_path / to), encoding="utf-8")
        names = runpy.run_path(str(tmp_path / to / "translate.py"))
        said = names["translate"](texts, **{"beams": 1} if to == "ctranslate2" else {})
        assert len(said) == 2
        if to == "onnx":
            assert said == words_of_search(tmp_path / "model", texts, SearchConfig(beam=1))
    with pytest.raises(DragomanError, match="a page needs one tokenizer"):
        export_model(tmp_path / "model", "web", tmp_path / "out", compute_type="float32")
    assert not (tmp_path / "out").exists()


def with_default_tags(model: Path, tags: DefaultTags, folder: Path) -> Path:
    """Return a copy of a model folder with these tags."""
    shutil.copytree(model, folder)
    (folder / DefaultTags.RECORD).write_text(tags.as_json())
    signed_again(folder)
    return folder


@pytest.mark.parametrize("to", LINES)
def test_program_puts_the_default_tag_in_front_of_sources(to: str, tagged: Path, tmp_path: Path):
    folder = with_default_tags(tagged, DefaultTags("de"), tmp_path / "model")
    export_model(folder, to, tmp_path / "out")
    (tmp_path / "out" / "translate.py").write_text(program(tmp_path / "out"), encoding="utf-8")
    translate = runpy.run_path(str(tmp_path / "out" / "translate.py"))["translate"]
    texts = ["The dog sees 2 red cats.", " The cat likes 3 blue dogs."]
    said = translate(texts, **{"beams": 1} if to == "ctranslate2" else {})
    stripped = [text.strip() for text in texts]
    expected, plain = (words_of_search(model, stripped, SearchConfig(beam=1)) for model in (folder, tagged))
    # CTranslate2 has one limit for a batch.
    assert [one[: len(other)] for one, other in zip(said, expected, strict=True)] == expected
    assert all(one != other for one, other in zip(expected, plain, strict=True))  # the control


@pytest.mark.parametrize("to", [*LINES, "huggingface"])
@pytest.mark.slow
def test_program_begins_outputs_with_the_default_tag_of_the_target(to: str, tagged: Path, pairs, tmp_path: Path):
    """As a search that is given it does. The control: without the tag they are others."""
    if to == "huggingface":
        pytest.importorskip("transformers", reason="exports to Hugging Face need the extra `huggingface`")
    _, tokenizers = read_model(tagged)
    model = build(tiny_transformer(output_bias=True), len(tokenizers.source)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)), alpha=0.2)
        model.output.bias[: len(RESERVED)] = -50  # no bytes, no tags
        model.output.bias[EOS] = 2
    with new_folder(tmp_path / "plain") as draft:
        write_model(draft, model, tokenizers, "")
    folder = with_default_tags(tmp_path / "plain", DefaultTags(target="ko"), tmp_path / "model")
    texts = [source for source, _ in pairs[:6]]
    said = []
    for name in ("model", "plain"):
        report = export_model(tmp_path / name, to, tmp_path / "out" / name)
        assert report.program.startswith("the program above: the same translations of 8 of 8 texts")
        said.append(run_program(program(tmp_path / "out" / name), tmp_path / "out" / name)(texts))
    search = SearchConfig(beam=1) if to == "onnx" else SearchConfig()
    native = Translator.load(folder, replace(search, split="none")).replace(safeguards=NO_SAFEGUARDS)
    if to != "ctranslate2":  # in which an output hardly ever ends right after its tag, as some of these do
        assert said[0] == [translation.text for translation in native.translate(texts)]
    assert said[0] != said[1]


@pytest.mark.parametrize("tags", [DefaultTags("fr"), DefaultTags(target="fr")])
def test_default_tags_that_the_model_does_not_have_are_an_error(
    tags: DefaultTags, tokenizer: Tokenizer, tmp_path: Path
):
    folder = with_default_tags(
        save_random(tiny_transformer(), tokenizer, tmp_path / "random"), tags, tmp_path / "model"
    )
    for to in ("ctranslate2", "huggingface"):
        with pytest.raises(DragomanError, match="unknown tag 'fr'"):
            export_model(folder, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wrong_arguments_from_python_have_names(trained: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="to must be one of ctranslate2, onnx"):
        export_model(trained, "onxx", tmp_path / "out")
    with pytest.raises(UsageError, match="out"):
        export_model(trained, "onnx", None)  # type: ignore[arg-type]


# Subwords

NASTY = [
    "",
    " ",
    "  two  spaces\tand a tab ",
    "한국어",  # decomposed below
    "".join(map(chr, (0x1112, 0x1161, 0x11AB))),
    "e\u0301",
    "a\u00a0b\u2003c\u3000d\u200be\ufefff\x85g\x1ch\u2028i\r\nj",
    "👩‍👩‍👧‍👦 ☃️ … ---- ....... !!!",
    "ⅷ ½ ٣ ๔ 12345,67",
    "x" * 300,
    "\ud800 lone",
]


@pytest.fixture(scope="module")
def written(tagged: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Tokenizer, tokenizers.Tokenizer, Path]:
    tokenizer, folder = Tokenizer.load(tagged / "tokenizer.json"), tmp_path_factory.mktemp("written")
    write_tokenizers(Tokenizers.from_tokenizer(tokenizer), folder, 99)
    return tokenizer, tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), folder


def test_tokenizer_of_an_export_is_that_of_the_model(written, pairs):
    tokenizer, other, folder = written
    texts = [text.encode("utf-8", "replace").decode() for text in NASTY] + [source for source, _ in pairs]
    check_tokenizer(folder / "tokenizer.json", tokenizer, texts)
    tag, text = tokenizer.tags["ko"], "a cat"
    assert other.encode(f"<tag:ko> {text}").ids == [tag, *tokenizer.encode(text), EOS]
    assert tokenizer.inner.encode("a\u00a0b").ids != other.encode("a\u00a0b").ids  # the control: ours alone does not


@settings(max_examples=50)
@given(st.text())
def test_exported_tokenizer_gives_any_text_the_same_ids(written, text: str):
    tokenizer, other, _ = written
    text = text.encode("utf-8", "replace").decode()
    assert other.encode(text).ids == [*tokenizer.encode_sources([text])[0], EOS]


def test_another_tokenizer_is_refused(written, pairs, tmp_path: Path):
    tokenizer, _, _ = written
    others = Tokenizer.train((text for pair in pairs for text in pair), vocabulary=390, tags=["de", "ko"])
    write_tokenizer(others, tmp_path / "tokenizer.json")
    with pytest.raises(Mismatch, match="has other subwords"):
        check_tokenizer(tmp_path / "tokenizer.json", tokenizer, ["a cat"])
    plain = complete(tokenizer)
    plain.normalizer = tokenizer.inner.normalizer
    plain.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(Mismatch, match="does not give the text"):
        check_tokenizer(tmp_path / "tokenizer.json", tokenizer, ["e\u0301  e"])


def test_transformers_reads_the_tokenizer(written, pairs):
    transformers = pytest.importorskip("transformers", reason="reading as Hugging Face does needs transformers")
    tokenizer, _, folder = written
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    texts = random.Random(0).sample([source for source, _ in pairs], 20)
    assert fast(texts)["input_ids"] == [[*ids, EOS] for ids in tokenizer.encode_sources(texts)]
    assert (fast.pad_token_id, fast.bos_token_id, fast.eos_token_id) == (0, 1, 2)
    assert fast.model_max_length == 99
    assert fast.decode([1, *tokenizer.encode(texts[0]), 2], skip_special_tokens=True) == texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("compute_type", ["float32", "int8"])
def test_transformers_js_says_the_same(
    compute_type: str, trained: Path, corpus, pairs, request: pytest.FixtureRequest, tmp_path: Path, tmp_path_factory
):
    package = {"private": True, "dependencies": {"@huggingface/transformers": "4.3.1"}}
    files = {"package.json": json.dumps(package).encode()}
    packages = npm_packages(files, "install", request.config, tmp_path_factory)
    folder = tmp_path / "exported"
    export_model(trained, "onnx", folder, compute_type=compute_type, test=[corpus[1]] if compute_type == "int8" else ())
    texts = [source for source, _ in pairs[:50]]
    script = Path(__file__).parents[1] / "npm" / "transformers.js"
    ran = subprocess.run(["node", script, packages, folder, *texts], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    model, (tokenizer, _) = read_model(trained)
    engine = ONNX.open(folder, Exported(model, Tokenizers.from_tokenizer(tokenizer), DefaultTags()), compute_type)
    found = engine.search(tokenizer.encode_sources(texts), SearchConfig(beam=1))
    assert json.loads(ran.stdout) == [tokenizer.decode(one.tokens) for (one,) in found]
