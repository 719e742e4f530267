"""The panels of the page that take a model apart: their numbers are those of Python, and everybody can reach them."""

import base64
import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import gap, run_config, run_training, tiny_transformer
from PIL import Image
from test_page import data_of, well_formed
from torch import Tensor
from visiting import axe_problems

from dragoman.config import RecurrentConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.inspection import panels
from dragoman.inspection.embeddings import Neighbourhood, neighbourhoods
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, Inspection
from dragoman.inspection.page import inspection_page, page_data
from dragoman.inspection.panels import STEPS, panel_data
from dragoman.inspection.stages import Stages, head_stages
from dragoman.model import Model, build
from dragoman.model.capture import AttentionKind
from dragoman.model_folder import fetch_model, read_model
from dragoman.training.weights import untrained_model
from dragoman.translation.translator import Translator

SENTENCE, TRANSLATION = "The dog sees 12 cats.", "개가 고양이 12마리를 봐요."
DEEP = tiny_transformer(encoder_layers=2, decoder_layers=2)


def random_model(tokenizer: Tokenizer, seed: int = 0, **config: Any) -> Model:
    torch.manual_seed(seed)
    model = build(dataclasses.replace(DEEP, **config), len(tokenizer)).eval()
    for parameter in model.parameters():  # relative positions begin as zeros
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return Translator(random_model(tokenizer), tokenizer)


@pytest.fixture(scope="module")
def untrained(tokenizer: Tokenizer) -> Model:
    return random_model(tokenizer, seed=1)


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect(translator, SENTENCE, TRANSLATION, name="toy")


@pytest.fixture(scope="module")
def document(inspection: Inspection, translator: Translator, untrained: Model) -> str:
    return inspection_page(inspection, translator, untrained)


# The data.


def unpacked(tables: dict[str, Any], number: int, shape: torch.Size) -> Tensor:
    steps = torch.frombuffer(bytearray(base64.b64decode(tables["steps"])), dtype=torch.int16)
    table = steps.view(-1, *shape)[number].float()
    return (table / STEPS * tables["largest"][number]).masked_fill(table == panels.MASKED, -torch.inf)


def near(tables: dict[str, Any], number: int, expected: Tensor) -> bool:
    decoded = unpacked(tables, number, expected.shape)
    masked = expected == -torch.inf
    step = tables["largest"][number] / STEPS
    return torch.equal(decoded == -torch.inf, masked) and gap(decoded[~masked], expected[~masked]) <= 0.51 * step


@pytest.mark.parametrize("positions", ["sinusoidal", "relative"])
def test_panel_data_has_the_stages_of_every_head(tokenizer: Tokenizer, positions: str):
    translator = Translator(random_model(tokenizer, positions=positions), tokenizer)
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    kinds = panel_data(translator, inspection, None)["stages"]
    assert [kind["name"] for kind in kinds] == list(KINDS)
    for kind in kinds:
        assert (kind["layers"], kind["heads"]) == ([1, 2], 2)
        for number, (layer, head) in enumerate([(1, 1), (1, 2), (2, 1), (2, 2)]):
            stages = head_stages(translator, inspection, kind["name"], layer, head)
            assert (kind["rows"], kind["columns"], kind["divisor"]) == (stages.rows, stages.columns, stages.divisor)
            for name in ("product", "weights", "output"):
                assert near(kind[name], number, getattr(stages, name))
                assert not near(kind[name], 3 - number, getattr(stages, name))  # the control: another head
            if kind["masked"]:
                assert near(kind["masked"], number, stages.masked)
            else:
                assert torch.equal(stages.masked, stages.scaled)
    masked = {kind["name"] for kind in kinds if kind["masked"]}
    assert masked == {"decoder"} if positions == "sinusoidal" else masked >= {"encoder", "decoder"}


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ({"encoder_layers": 0}, ["decoder", "cross"]),
        ({"decoder_layers": 0}, ["encoder"]),
        ({"encoder_layers": 0, "decoder_layers": 0}, None),
    ],
)
def test_attention_kinds_without_layers_have_no_stages(
    open_page, tokenizer: Tokenizer, layers: dict[str, int], expected: list[str] | None
):
    translator = Translator(random_model(tokenizer, **layers), tokenizer)
    inspection = inspect(translator, SENTENCE, TRANSLATION)
    document = inspection_page(inspection, translator)
    stages = data_of(document)["stages"]
    assert (stages and [kind["name"] for kind in stages]) == expected
    assert open_page(document).locator("#stages-shown").is_visible() == bool(expected)


@pytest.mark.parametrize("room", [2, 1, 0])
def test_stages_of_a_long_sentence_are_those_of_the_last_layers(
    translator: Translator, inspection: Inspection, monkeypatch: pytest.MonkeyPatch, room: int
):
    stages = head_stages(translator, inspection, "cross")
    needed = 2 * (3 * stages.product.numel() + stages.output.numel())  # of a layer
    monkeypatch.setattr(panels, "MAX_NUMBERS", (room + 1) * needed - 1)
    kind = panels.encode_stages(translator, inspection, "cross")
    assert kind["layers"] == [2, 1][:room][::-1]
    if room:
        assert near(kind["product"], 2 * room - 2, stages.product)  # the first head of the last layer


@pytest.mark.parametrize("score", ["additive", None])
def test_attention_without_products_has_no_stages_on_the_page(open_page, tokenizer: Tokenizer, score: Any):
    if score:
        model = random_model(tokenizer, attention=dataclasses.replace(DEEP.attention, score=score))
    else:
        model = build(RecurrentConfig(d_model=16), len(tokenizer)).eval()
    translator = Translator(model, tokenizer)
    document = inspection_page(inspect(translator, SENTENCE, TRANSLATION), translator)
    assert data_of(document)["stages"] is None
    tab = open_page(document)
    assert tab.locator("#not-staged").is_visible()
    assert not tab.locator("#stages-shown").is_visible()
    assert not tab.locator("#stages-left-out").is_visible()
    assert tab.locator("#lines-picture line").count() > 0
    assert "not known" in tab.locator("#embeddings-untrained").inner_text()


def same(encoded: dict[str, Any], side: Neighbourhood) -> bool:
    words = zip(encoded["neighbours"], side.labels, side.cosines, strict=True)
    return (
        encoded["words"] == side.words
        and all([encoded["near"][i] for i, _ in pairs] == labels for pairs, labels, _ in words)
        and gap(torch.tensor(encoded["points"]), side.points) <= 6e-5
        and [[cosine for _, cosine in pairs] for pairs in encoded["neighbours"]]
        == [pytest.approx(cosines, abs=6e-5) for cosines in side.cosines]
    )


def test_panel_data_has_neighbours_before_and_after_training(
    translator: Translator, inspection: Inspection, untrained: Model
):
    data = panel_data(translator, inspection, untrained)["neighbourhoods"]
    for name, model in (("trained", translator.model), ("untrained", untrained)):
        sides = neighbourhoods(model, translator.tokenizers, inspection)
        assert all(same(*pair) for pair in zip(data[name], sides, strict=True))
    assert not same(data["trained"][0], sides[0])  # the control
    assert panel_data(translator, inspection, None)["neighbourhoods"]["untrained"] is None


@pytest.mark.slow
def test_untrained_model_is_built_again_from_the_seed(corpus: Any, tmp_path: Path):
    run_training(run_config(corpus, tmp_path, max_steps=1, learning_rate=1e-9, validate_every=1))
    trained, tokenizers = read_model(tmp_path)
    model = untrained_model(tmp_path, tokenizers)
    assert model
    for name, weight in model.named_parameters():
        assert gap(weight, trained.get_parameter(name)) < 1e-6


def test_untrained_model_depends_on_the_seed_of_a_run_alone(trained: Path, tmp_path: Path):
    tokenizers = read_model(trained)[1]
    run = shutil.copytree(trained, tmp_path / "run", symlinks=True)
    settings = run / "config.toml"
    text, before = settings.read_text(), torch.get_rng_state()
    model, of_checkpoint = untrained_model(trained, tokenizers), untrained_model(fetch_model(run), tokenizers)
    assert torch.equal(torch.get_rng_state(), before)
    assert model
    assert of_checkpoint
    assert torch.equal(model.source_embedding.weight, of_checkpoint.source_embedding.weight)
    # A model folder that is not a checkpoint has no run, whatever lies above it.
    elsewhere = shutil.copytree(fetch_model(run).resolve(), tmp_path / "models" / "mine")
    shutil.copy(settings, tmp_path / "config.toml")
    assert untrained_model(elsewhere, tokenizers) is None
    settings.write_text(text.replace("seed = 1", "seed = 2"))
    other = untrained_model(run, tokenizers)
    assert other
    assert gap(other.source_embedding.weight, model.source_embedding.weight) > 0.01  # the control
    settings.write_text(text.replace('init_from = ""', 'init_from = "elsewhere"'))
    assert untrained_model(run, tokenizers) is None
    settings.unlink()
    assert untrained_model(run, tokenizers) is None


# In the browser.


# What a select, a box or a radio button shows is drawn at once.
def choose(tab: Any, **choices: str | int) -> None:
    for name, choice in choices.items():
        tab.locator(f"#{name.replace('_', '-')}").select_option(label=str(choice))


def shown_stage(tab: Any, stage: str) -> Tensor:
    tab.locator(f'#stages-stage input[value="{stage}"]').check()
    values, rows = tab.evaluate("[Array.from(stageMap.shown.values, String), stageMap.shown.rows.length]")
    return torch.tensor([float(value.replace("Infinity", "inf")) for value in values]).view(rows, -1)


STAGES = {"product": "product", "scale": "scaled", "mask": "masked", "softmax": "weights", "sum": "output"}
KIND_NAMES: dict[AttentionKind, str] = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder masked self-attention",
    "cross": "Cross-attention",
}


def all_stages(tab: Any, stages: Stages) -> bool:
    """Whether the five tables that can be chosen are those of a head, to the digits of the data."""
    for name, field in STAGES.items():
        expected, values = getattr(stages, field), shown_stage(tab, name)
        masked = expected == -torch.inf
        if values.shape != expected.shape or not torch.equal(values == -torch.inf, masked):
            return False
        if gap(values[~masked], expected[~masked]) > 1e-4 * float(expected[~masked].abs().max()):
            return False
    return True


def test_stages_on_the_page_are_those_of_the_chosen_head(
    open_page, document: str, translator: Translator, inspection: Inspection
):
    tab = open_page(document)
    assert all_stages(tab, head_stages(translator, inspection, "cross"))  # the last layer, its first head
    for kind, name in KIND_NAMES.items():
        choose(tab, stages_kind=name, stages_layer=1, stages_head=2)
        assert all_stages(tab, head_stages(translator, inspection, kind, 1, 2))
        assert not all_stages(tab, head_stages(translator, inspection, kind, 2, 2))  # the control
    caption = tab.locator("#stages-map figcaption").inner_text()
    assert caption.startswith("Cross-attention; layer 1 of 2, head 2 of 2; 1. product: Q Kᵀ; rows: queries, ")
    assert "model toy" in caption


def test_stages_of_a_cell_are_read_and_reached_by_keyboard(
    open_page, document: str, translator: Translator, inspection: Inspection
):
    tab = open_page(document)
    choose(tab, stages_kind=KIND_NAMES["decoder"])
    table, readout = tab.locator("#stages-map canvas.map"), tab.locator("#stages-map .readout")
    stages = head_stages(translator, inspection, "decoder", 2, 1)
    table.press("ArrowRight")
    numbers = [f"{float(getattr(stages, name)[0, 1]):.2f}".replace("-", "−") for name in ("product", "scaled")]
    cell = f"“{stages.rows[0]}” · “{stages.columns[1]}”"
    read = f"{cell}: product {numbers[0]}, scaled {numbers[1]}, masked −∞, weight 0.00"
    assert readout.inner_text() == read
    checked = tab.locator("#stages-stage :checked")
    for stage in [*list(STAGES)[1:], "sum"]:  # the last one stays
        table.press("+")
        assert checked.get_attribute("value") == stage
    assert readout.inner_text() == f"“{stages.rows[0]}”, dimension 2: {float(stages.output[0, 1]):.2f}".replace(
        "-", "−"
    )
    table.press("-")
    table.press("-")
    assert checked.get_attribute("value") == "mask"
    tab.locator("#stages-map summary").click()
    tab.locator("#stages-map table").wait_for()
    texts = tab.locator("#stages-map tbody tr").nth(0).locator("td").all_inner_texts()
    assert texts[1:] == ["−∞"] * (len(stages.columns) - 1)
    for key in "[2":
        table.press(key)
    table.press("9")  # there is none
    assert all_stages(tab, head_stages(translator, inspection, "decoder", 1, 2))


# Draws another sentence over the one that is shown.
DRAW = "data => { for (const show of [showAttention, showLines, showStages, showEmbeddings]) show(data); }"


def test_choices_in_panels_stay_when_the_sentence_changes(open_page, document: str, translator: Translator):
    other = inspect(translator, "The bear likes 3 white rabbits.", "곰은 흰 토끼 3마리를 좋아해요.")
    tab = open_page(document)
    choose(tab, stages_kind=KIND_NAMES["encoder"], stages_layer=1, stages_head=2)
    choose(tab, lines_kind=KIND_NAMES["encoder"], lines_layer=1, lines_word="dog", embeddings_side="Translation")
    tab.locator("#lines-heads input").first.uncheck()
    tab.evaluate(DRAW, page_data(other, None, None) | panel_data(translator, other, None))
    assert all_stages(tab, head_stages(translator, other, "encoder", 1, 2))
    assert "Encoder self-attention; layer 1 of 2, heads 2;" in tab.locator("#lines-caption").inner_text()
    assert tab.locator("#lines-word").input_value() == ""  # another sentence has other words
    assert tab.locator("#embeddings-words button").all_inner_texts() == ["곰은", "흰", "토끼", "3마리를", "좋아해요."]
    assert "not known" in tab.locator("#embeddings-untrained").inner_text()


def lines_of(tab: Any, heads: int) -> Tensor:
    """Return (lines, 2), their head and their weight, as they are drawn; the lines of the legend come first."""
    drawn = tab.locator("#lines-picture line").evaluate_all(
        "lines => lines.map(line => [line.getAttribute('stroke'), Number(line.getAttribute('stroke-width'))])"
    )
    head_of = {colour: number for number, (colour, _) in enumerate(drawn[:heads])}
    assert len(head_of) == heads
    return torch.tensor([[head_of[colour], (wide - 0.5) / 3] for colour, wide in drawn[heads:]])


def sorted_weights(*maps: Tensor) -> Tensor:
    """Return what `lines_of` should: weights from 0.05, row by row, and of each cell head by head."""
    table = torch.stack([weights.flatten() for weights in maps], 1)
    cells, heads = (table >= 0.05).nonzero(as_tuple=True)
    return torch.stack([heads.float(), table[cells, heads]], 1)


def test_lines_are_as_thick_as_their_weights_in_colours_of_heads(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    for kind, layer, subwords in (("cross", 2, False), ("encoder", 1, True), ("decoder", 1, False)):
        choose(tab, lines_kind=KIND_NAMES[kind], lines_layer=layer)
        tab.locator("#lines-subwords").set_checked(subwords)
        rounded = dataclasses.replace(inspection, **{kind: (inspection.maps(kind) * 255).round() / 255})
        maps = [rounded.map(kind, layer, head, subwords=subwords).weights for head in (1, 2)]
        drawn, expected = lines_of(tab, 2), sorted_weights(*maps)
        assert gap(drawn, expected) < 1e-5
        tab.locator("#lines-heads input").nth(0).uncheck()
        alone = lines_of(tab, 1)
        assert gap(alone[:, 1], sorted_weights(maps[1])[:, 1]) < 1e-5
        assert len(alone) < len(drawn)  # the control
        tab.locator("#lines-heads input").nth(0).press("Space")
        assert len(lines_of(tab, 2)) == len(drawn)
    tab.locator("#lines-picture text[data-row='1']").click()
    shown = inspection.map("decoder", 1, 1)
    assert tab.locator("#lines-word option:checked").inner_text() == shown.rows[1]
    assert gap(lines_of(tab, 2), sorted_weights(*(weights[1] for weights in maps))) < 1e-5
    best = shown.columns[int(shown.weights[1].argmax())]
    read = tab.locator("#lines .readout").inner_text()
    assert read.startswith(f"“{shown.rows[1]}”: head 1 → “{best}” {float(shown.weights[1].max()):.2f}; head 2 → ")


# How many pairs of labels in the same map cover each other, by more than what fonts leave empty.
COVERED = """() => [...document.querySelectorAll("#embeddings-picture g")].flatMap((map) => {
  const boxes = [...map.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
  const cover = (a, b) => a.left + 1 < b.right && b.left + 1 < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom;
  return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => cover(a, b)));
}).length"""


def test_neighbours_of_the_focused_word_are_shown_before_and_after_training(
    open_page, document: str, translator: Translator, inspection: Inspection, untrained: Model
):
    tab = open_page(document)
    before, after = (
        neighbourhoods(model, translator.tokenizers, inspection) for model in (untrained, translator.model)
    )
    words, rows = tab.locator("#embeddings-words button"), tab.locator("#embeddings-near tbody tr")
    for side, name in enumerate(("Source", "Translation")):
        choose(tab, embeddings_side=name)
        assert words.all_inner_texts() == after[side].words
        words.first.focus()
        for number, word in enumerate(after[side].words):
            texts = [row.split("\t") for row in rows.all_inner_texts()]
            for rank, (_, old, old_cosine, new, new_cosine) in enumerate(texts):
                assert (old, new) == (before[side].labels[number][rank], after[side].labels[number][rank])
                cosines = [before[side].cosines[number][rank], after[side].cosines[number][rank]]
                assert [float(old_cosine), float(new_cosine)] == pytest.approx(cosines, abs=0.00506)
            assert len(texts) == 5
            assert tab.evaluate(COVERED) == 0
            assert tab.locator("#embeddings .readout").inner_text().startswith(f"“{word}”: before training: ")
            tab.keyboard.press("ArrowRight")
        points = tab.locator("#embeddings-picture circle").count()
        assert points == 2 * len(after[side].words)
    tab.locator("#embeddings-details summary").click()
    tab.locator("#embeddings-details tbody tr").first.wait_for()
    cells = tab.locator("#embeddings-details tbody tr").first.locator("td").all_inner_texts()
    assert cells[1].startswith(f"{after[1].labels[0][0]} ")
    assert cells[0] != cells[1]


def test_panels_leave_the_page_as_files(open_page, document: str, inspection: Inspection):
    tab = open_page(document, dark=True)

    def saved(panel: str, format: str) -> Path:
        with tab.expect_download() as download:
            tab.locator(panel).get_by_role("button", name=f"Save {format}").click()
        assert download.value.suggested_filename.endswith(f".{format.lower()}")
        return Path(download.value.path())

    choose(tab, stages_kind=KIND_NAMES["decoder"])
    masked = int((shown_stage(tab, "mask") == -torch.inf).sum())
    texts = well_formed(saved("#stages-map", "SVG").read_text(encoding="utf-8"))
    assert texts.count("−∞") == masked > 0
    numbers = [text for text in texts if re.fullmatch(r"−?\d*\.\d\d", text)]
    assert len(numbers) + masked == shown_stage(tab, "mask").numel()
    for panel, label in (("#lines-save", "dog"), ("#stages-map", "␣dog"), ("#embeddings-save", "dog")):
        if panel == "#embeddings-save":
            tab = open_page(document, dark=True)  # Chromium saves ten files from one page, and no more
        choose(tab, stages_kind=KIND_NAMES["encoder"])
        texts = well_formed(saved(panel, "SVG").read_text(encoding="utf-8"))
        assert label in texts
        assert "model toy" in " ".join(" ".join(texts).split())
        record = json.loads(saved(panel, "JSON").read_text(encoding="utf-8"))
        assert "model toy" in record["caption"]
        alone = saved(panel, "HTML").read_text(encoding="utf-8")
        assert "default-src 'none'" in alone
        assert alone.count("<tr>") > 3
        with Image.open(saved(panel, "PNG")) as picture:
            assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)  # light, also from a dark page
        if panel == "#lines-save":
            maps = [inspection.map("cross", 2, head).weights for head in record["heads"]]
            assert gap(torch.tensor(record["weights"]), torch.stack(maps)) < 0.01


@pytest.mark.parametrize(
    ("dark", "width", "language"), [pytest.param(False, 1100, "en-US", marks=pytest.mark.slow), (True, 320, "ko-KR")]
)
def test_axe_finds_nothing_in_the_panels(open_page, document: str, dark: bool, width: int, language: str):
    tab = open_page(document, dark=dark, width=width, language=language)
    for details in ("#lines-details", "#stages-map details", "#embeddings-details"):
        tab.locator(f"{details} > summary").click()
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    if language == "ko-KR":
        panels = [tab.locator(f"#{name}").inner_text() for name in ("lines", "stages", "embeddings")]
        words = " ".join(panels).replace(SENTENCE, "")
        assert re.findall(r"\b(?:head|layer|query|weight|training|words?|row|save)\b", words, re.IGNORECASE) == []
    assert axe_problems(tab) == []
