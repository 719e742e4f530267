"""The page of an inspection, in a real browser: what it tells is what the model did, and nothing leaves it."""

import base64
import dataclasses
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_transformer
from PIL import Image
from torch import Tensor

from dragoman.alignment.words import by_word
from dragoman.cli import main
from dragoman.config import AttentionConfig, FeedForwardConfig, RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.inspection.inspection import KINDS, Inspection, inspect
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.page import MAX_SCORED, content_hash, contents, inspection_page, read, script
from dragoman.inspection.plots.positions import added_positions
from dragoman.model import build
from dragoman.model.capture import AttentionKind
from dragoman.translation.translator import Translator

SENTENCE = "The dog sees 12 cats."
HOSTILE = (
    """</script><script>alert(1)</script> "'` <img src=x onerror=alert(1)> &amp; \u2028 \u2029 ]]> {{ 7*7 }} -->"""
)
DEEP = tiny_transformer(encoder_layers=3, decoder_layers=2)
ROUNDED = 0.005 + 1 / 510  # two digits, of weights in bytes


def make(tokenizer: Tokenizer, config: TransformerConfig | RecurrentConfig = DEEP) -> Translator:
    torch.manual_seed(0)
    model = build(config, len(tokenizer)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():  # attention with some contrast
            if "query" in name or "key" in name:
                weight *= 4
    return Translator(model, tokenizer, SearchConfig(beam=3, extra_length=3))


@pytest.fixture(scope="module")
def translator(tokenizer: Tokenizer) -> Translator:
    return make(tokenizer)


@pytest.fixture(scope="module")
def inspection(translator: Translator) -> Inspection:
    return inspect(translator, SENTENCE, name="toy")


# The document.


def data_of(document: str) -> dict[str, Any]:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', document, re.DOTALL)
    return json.loads(block)


def unpacked(kind: dict[str, Any], data: dict[str, Any], name: str = "weights") -> Tensor:
    sides = [len(data[kind[side]]["tokens"]) for side in ("rows", "columns")]
    block = torch.frombuffer(bytearray(base64.b64decode(kind[name])), dtype=torch.uint8)
    return block.view(kind["layers"], -1, *sides) / 255


@pytest.mark.parametrize("number", range(3))
def test_weights_in_the_page_are_off_by_half_a_step_at_most(
    inspection: Inspection, translator: Translator, number: int
):
    data = data_of(inspection_page(inspection, translator.model))
    kind = data["kinds"][number]
    name: AttentionKind = list(KINDS)[number]
    assert kind["name"] == name
    weights = unpacked(kind, data)
    assert weights.shape == inspection.maps(name).shape
    assert float((weights - inspection.maps(name)).abs().max()) <= 1 / 510 + 1e-6
    for layer, rollout in enumerate(unpacked(kind, data, "rollout")[:, 0], start=1):
        assert float((rollout - inspection.weights(name, layer, None, "rollout")).abs().max()) <= 1 / 510 + 1e-6


def test_sides_of_maps_are_as_long_as_they(inspection: Inspection, translator: Translator):
    data = contents(inspection, None, None)
    for kind, name in zip(data["kinds"], KINDS, strict=True):
        rows, columns = (data[kind[side]] for side in ("rows", "columns"))
        assert (len(rows["tokens"]), len(columns["tokens"])) == inspection.maps(name).shape[-2:]
        assert rows["words"][-1]["tokens"][1] == len(rows["tokens"])


def test_links_are_those_of_the_alignment(inspection: Inspection):
    found = contents(inspection, None, None)["links"]
    weights = by_word(inspection.cross[-1].mean(0), inspection.target.words, inspection.source.words)[:-1, :-1]
    torch.testing.assert_close(torch.tensor(found["weights"]).view(weights.shape), weights)
    assert found["source"] == ["The", "dog", "sees", "12", "cats."]


def test_positions_in_bytes_are_off_by_half_a_step_at_most(inspection: Inspection, translator: Translator):
    found = added_positions(translator.model, 50)
    data = contents(inspection, None, found)["positional_encoding"]
    steps = torch.frombuffer(bytearray(base64.b64decode(data["table"])), dtype=torch.uint8).float()
    table = ((steps - 127) / 127 * data["largest"]).view(data["rows"], data["columns"])
    assert found
    assert float((table - found.table).abs().max()) <= data["largest"] / 254 + 1e-6


def test_nothing_in_the_document_points_elsewhere(inspection: Inspection, translator: Translator):
    document = inspection_page(inspection, translator.model)
    markup = document.replace(script(), "")
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]+)""", markup) == ["data:,"]
    assert "@import" not in document
    assert "url(" not in document.replace("createObjectURL(", "").replace("revokeObjectURL(", "")
    assert set(re.findall(r"https?://[^\s\"'`<]+", document)) == {
        "http://www.w3.org/2000/svg"
    }  # a name, not an address


def test_only_its_own_script_and_style_may_run(inspection: Inspection, translator: Translator):
    document = inspection_page(inspection, translator.model)
    (policy,) = re.findall(r'content="(default-src[^"]*)"', document)
    assert policy.startswith("default-src &#39;none&#39;") or policy.startswith("default-src 'none'")
    assert content_hash(script()) in document
    assert content_hash(read("page.css")) in document
    assert "unsafe" not in policy


def test_every_string_is_there_in_both_languages():
    strings, code, document = json.loads(read("strings.json")), script(), read("page.html")
    english, korean = strings["en"], strings["ko"]
    assert english.keys() == korean.keys()
    for key, text in english.items():
        assert set(re.findall(r"\{\d\}", text)) == set(re.findall(r"\{\d\}", korean[key])), key
    used = set(re.findall(r"""\bt\("([^"]+)\"""", code)) | set(re.findall(r'data-(?:t|label)="([^"]+)"', document))
    assert used <= english.keys()
    for key in english.keys() - used:  # made of a name and what follows the point, or chosen between two
        beginning = key.split(".")[0]
        assert f"`{beginning}." in code or f'"{key}"' in code or f"t(`{beginning}" in code, key


def of_127_tokens(tokenizer: Tokenizer) -> str:
    text = "dog"
    while len(tokenizer.encode(text)) < 127:
        text += " dog" if len(tokenizer.encode(text + " dog")) <= 127 else "."
    assert len(tokenizer.encode(text)) == 127
    return text


@pytest.fixture(scope="module")
def large(tokenizer: Tokenizer) -> tuple[Inspection, str, float]:
    """128 x 128 tokens, 6 layers, 8 heads, the paper's base model: what was seen, its page, the seconds it took."""
    base = TransformerConfig(
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        attention=AttentionConfig(heads=8),
        feed_forward=FeedForwardConfig(d_ff=2048),
    )
    translator, text = make(tokenizer, base), of_127_tokens(tokenizer)
    began = time.process_time()
    found = inspect(translator, text, text)
    document = inspection_page(found, translator.model)
    return found, document, time.process_time() - began


def test_a_long_sentence_in_a_large_model_makes_a_page_in_time(large: tuple[Inspection, str, float]):
    """Under 10 s of one core, under 5 MB."""
    found, document, seconds = large
    assert found.cross.shape == (6, 8, 128, 128)
    assert seconds < 10
    assert len(document.encode()) < 5_000_000
    data = data_of(document)
    assert data["occlusion"] is None  # 128 sentences to score: left to --view occlusion
    assert unpacked(data["kinds"][2], data).shape == (6, 8, 128, 128)


def test_a_short_sentence_is_scored_without_each_of_its_words(inspection: Inspection, translator: Translator):
    assert len(inspection.source.words) * (len(inspection.source.tokens) + len(inspection.target.tokens)) < MAX_SCORED
    found, data = (
        occlusion(translator.model, inspection),
        data_of(inspection_page(inspection, translator.model))["occlusion"],
    )
    torch.testing.assert_close(torch.tensor(data["drops"]), found.drop.T)
    assert (data["rows"], data["columns"]) == (found.target, found.source)


# In the browser.


@pytest.fixture(scope="module")
def document(inspection: Inspection, translator: Translator) -> str:
    return inspection_page(inspection, translator.model)


CELL = re.compile(r"“(.*)” → “(.*)”: ([\d.]+), rank (\d+) of (\d+) \(row (\d+), column (\d+)\)( · pinned)?")
MAP, SAID = "#attention-map canvas.map", "#attention-map .readout"


def told(tab: Any) -> tuple[str, str, float, int, int, int, int]:
    """What is read out: labels, weight, rank, of how many, row and column from 0."""
    found = CELL.fullmatch(tab.locator(SAID).inner_text())
    assert found, tab.locator(SAID).inner_text()
    row, column, weight, rank, of, y, x, _ = found.groups()
    return row, column, float(weight), int(rank), int(of), int(y) - 1, int(x) - 1


# Of the table twin of the large map: labels of rows, of columns, numbers.
TABLE = """() => {
  const texts = (root, selector) => [...root.querySelectorAll(selector)].map((cell) => cell.textContent);
  const table = document.querySelector("#attention-map details table");
  const rows = [...table.querySelectorAll("tbody tr")];
  return [texts(table, "tbody th"), texts(table, "thead th").slice(1), rows.map((row) => texts(row, "td").map(Number))];
}"""


def pixels(tab: Any, selector: str) -> Tensor:
    """(height, width, 3) of what is seen of an element."""
    import numpy as np

    shot = Image.open(io.BytesIO(tab.locator(selector).screenshot())).convert("RGB")
    return torch.from_numpy(np.array(shot)).float()


def agrees(tab: Any, expected: Tensor) -> None:
    """That the cell that is read out has its weight and its rank."""
    _, _, weight, rank, of, y, x = told(tab)
    assert expected.shape[1] == of
    assert weight == pytest.approx(float(expected[y, x]), abs=ROUNDED)
    # Weights that are nearly the same may share a rank.
    assert (
        int((expected[y] > expected[y, x] + 1 / 255).sum())
        < rank
        <= int((expected[y] >= expected[y, x] - 1 / 255).sum())
    )


def words_of(inspection: Inspection, kind: AttentionKind, weights: Tensor) -> Tensor:
    rows, columns = inspection.queries_and_keys(kind)
    return by_word(weights, rows.words, columns.words)


def test_a_cell_that_is_pointed_at_tells_its_weight(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    canvas = tab.locator(MAP)
    left, top, cell = (float(canvas.get_attribute(f"data-{name}")) for name in ("left", "top", "cell"))
    expected = inspection.map("cross", 2, 1)
    for y in range(len(expected.rows)):
        x = (3 * y + 1) % len(expected.columns)
        canvas.hover(position={"x": left + (x + 0.5) * cell, "y": top + (y + 0.5) * cell})
        assert told(tab)[:2] == (expected.rows[y], expected.columns[x])
        assert told(tab)[-2:] == (y, x)
        agrees(tab, expected.weights)


def test_the_keyboard_reaches_every_cell_layer_and_head(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    canvas = tab.locator(MAP)
    canvas.focus()
    rows, columns = (len(side.words) for side in inspection.queries_and_keys("cross"))
    agrees(tab, inspection.map("cross", 2, 1).weights)
    assert told(tab)[-2:] == (0, 0)
    for key, place in (
        ("ArrowRight", (0, 1)),
        ("ArrowDown", (1, 1)),
        ("End", (1, columns - 1)),
        ("ArrowRight", (1, columns - 1)),
        ("ArrowLeft", (1, columns - 2)),
        ("Control+End", (rows - 1, columns - 1)),
        ("ArrowDown", (rows - 1, columns - 1)),
        ("ArrowUp", (rows - 2, columns - 1)),
        ("Home", (rows - 2, 0)),
        ("Control+Home", (0, 0)),
        ("ArrowUp", (0, 0)),
    ):
        canvas.press(key)
        assert told(tab)[-2:] == place, key
        agrees(tab, inspection.map("cross", 2, 1).weights)
    for key, which in (("2", (2, 2)), ("[", (1, 2)), ("[", (1, 2)), ("1", (1, 1)), ("]", (2, 1)), ("9", (2, 1))):
        canvas.press(key)
        canvas.press("ArrowRight")
        canvas.press("ArrowLeft")
        agrees(tab, inspection.map("cross", *which).weights)
        assert f"layer {which[0]} of 2, head {which[1]} of 2" in tab.locator("#attention-map figcaption").inner_text()


def test_a_pinned_cell_stays_until_it_is_let_go(open_page, document: str):
    tab = open_page(document)
    canvas = tab.locator(MAP)
    canvas.focus()
    canvas.press("Enter")
    assert tab.locator(SAID).inner_text().endswith("· pinned")
    canvas.hover(
        position={"x": float(canvas.get_attribute("data-left")) + 60, "y": float(canvas.get_attribute("data-top")) + 60}
    )
    assert told(tab)[-2:] == (0, 0)
    canvas.press("Escape")
    assert not tab.locator(SAID).inner_text().endswith("pinned")
    canvas.hover(
        position={"x": float(canvas.get_attribute("data-left")) + 61, "y": float(canvas.get_attribute("data-top")) + 61}
    )
    assert told(tab)[-2:] != (0, 0)  # the control


@pytest.mark.parametrize(
    ("kind", "tab_name"), [("encoder", "Encoder self"), ("decoder", "Decoder masked"), ("cross", "Cross")]
)
def test_each_tab_shows_its_kind(open_page, document: str, inspection: Inspection, kind: AttentionKind, tab_name: str):
    tab = open_page(document)
    tab.get_by_role("tab", name=tab_name).click()
    assert tab.locator('[role=tab][aria-selected="true"]').inner_text().startswith(tab_name)
    layers = len(inspection.maps(kind))
    assert tab.locator("#thumbnails button").count() == 2 * layers
    canvas = tab.locator(MAP)
    canvas.focus()
    for layer in range(layers):
        tab.locator(f'#thumbnails button[data-layer="{layer}"][data-head="1"]').click()
        canvas.focus()
        canvas.press("Control+End")
        canvas.press("ArrowLeft")
        agrees(tab, inspection.map(kind, layer + 1, 2).weights)
    expected = inspection.map(kind, layers, 2)
    tab.locator("#attention-map details summary").click()
    tab.locator("#attention-map details table").wait_for()  # it is made when the details have opened
    rows, columns, table = tab.evaluate(TABLE)
    assert (rows, columns) == (expected.rows, expected.columns)
    assert float((torch.tensor(table) - expected.weights).abs().max()) < 0.02  # the sum over pieces of what is rounded
    if kind == "decoder":
        assert not torch.tensor(table).triu(1).any()


AGGREGATES: dict[str, tuple[int | None, int | None, Any]] = {
    "mean": (1, None, "mean"),
    "max": (1, None, "max"),
    "rollout": (1, None, "rollout"),
    "mean-all": (None, None, "mean"),
    "max-all": (None, None, "max"),
}


@pytest.mark.parametrize("hide", [(), ("special",), ("special", "punctuation")])
def test_aggregates_words_and_hidden_places_are_as_the_inspector_has_them(
    open_page, document: str, inspection: Inspection, hide: tuple
):
    tab = open_page(document)
    tab.locator(MAP).press("[")
    for name in hide:
        tab.locator(f"#hide-{name}").check()
    tab.locator("#attention-map details summary").click()
    tab.locator("#attention-map details table").wait_for()
    for by_subwords in (False, True):
        tab.locator("#subwords").set_checked(by_subwords)
        for show, which in AGGREGATES.items():
            tab.locator("#show").select_option(show)
            expected = inspection.map("cross", *which, subwords=by_subwords, hide=hide)
            rows, columns, table = tab.evaluate(TABLE)
            assert (rows, columns) == (expected.rows, expected.columns)
            assert float((torch.tensor(table) - expected.weights).abs().max()) < 0.02
    assert ("rescaled" in tab.locator("#attention-map figcaption").inner_text()) == bool(hide)


def test_the_last_of_many_cells_can_be_reached(open_page, large: tuple[Inspection, str, float]):
    found, document, _ = large
    tab = open_page(document)
    canvas = tab.locator(MAP)
    tab.locator("#subwords").check()
    canvas.press("Control+End")
    assert told(tab)[-3:] == (128, 127, 127)
    agrees(tab, found.cross[5, 0])
    for key in "[[5":
        canvas.press(key)
    agrees(tab, found.cross[3, 4])


def test_words_light_up_in_both_directions(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    weights = inspection.map("cross", inspection.alignment.layer, inspection.alignment.head).weights[:-1, :-1]  # type: ignore[union-attr]
    shades = "[...document.querySelectorAll('#{} button')].map(word => Number(word.style.getPropertyValue('--weight')))"
    target, source = tab.locator("#target-words button"), tab.locator("#source-words button")
    assert source.all_inner_texts() == ["The", "dog", "sees", "12", "cats."]
    for row in range(weights.size(0)):
        target.nth(row).hover()
        found = torch.tensor(tab.evaluate(shades.format("source-words")), dtype=torch.float32)
        torch.testing.assert_close(found, weights[row])
    source.nth(1).focus()
    found = torch.tensor(tab.evaluate(shades.format("target-words")), dtype=torch.float32)
    torch.testing.assert_close(found, weights[:, 1])
    assert not any(tab.evaluate(shades.format("source-words")))  # only the other side
    best = inspection.target.words[int(weights[:, 1].argmax())].label
    assert tab.locator("#words-readout").inner_text().startswith(f"“dog” was looked at by: {best} ")
    source.nth(1).press("ArrowRight")
    assert tab.locator("#words-readout").inner_text().startswith("“sees”")


def test_heads_can_be_sorted_and_open_page(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    tab.locator("#heads-table button[data-column=entropy]").click()
    column = 2  # of the cells of a row, the name is the first
    texts = tab.locator(f"#heads-table tbody tr > :nth-child({column})").all_inner_texts()
    values = [float(text) for text in texts]
    assert values == sorted(values, reverse=True)
    assert values != sorted(values)  # the control
    tab.locator("#heads-table button[data-column=entropy]").click()
    again = tab.locator(f"#heads-table tbody tr > :nth-child({column})").all_inner_texts()
    assert [float(text) for text in again] == sorted(values)
    assert tab.locator("#heads-table th[aria-sort=ascending]").count() == 1
    tab.get_by_role("button", name="Encoder self-attention 3.2").click()
    assert "layer 3 of 3, head 2 of 2" in tab.locator("#attention-map figcaption").inner_text()
    agrees(tab, inspection.map("encoder", 3, 2).weights)


def test_probabilities_are_those_of_the_model(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    rows = tab.evaluate(
        "[...document.querySelectorAll('#positions-table tbody tr')]"
        ".map(row => [...row.children].map(cell => cell.textContent))"
    )
    assert len(rows) == len(inspection.positions)
    for row, place in zip(rows, inspection.positions, strict=True):
        assert row[1] == place.token
        assert float(row[2]) == pytest.approx(place.probability, abs=0.00501)
        assert int(row[3]) == place.rank
        assert float(row[4]) == pytest.approx(place.entropy, abs=0.00501)
        assert row[5].count(" · ") == 4


def test_the_search_can_be_followed_step_by_step(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    tree = inspection.tree
    assert tree
    frames = "[...document.querySelectorAll('#tree-picture rect')].length"
    slider = tab.locator("#step")
    slider.focus()
    slider.press("Home")
    assert tab.locator("#step-shown").inner_text() == f"1 of {tree.steps}"

    def wanted(step: int) -> int:
        nodes = [node for node in tree.nodes if node.step <= step]
        return len(nodes) + sum(node.fate == "finished" for node in nodes)  # which have two frames

    assert tab.evaluate(frames) == wanted(1)
    slider.press("ArrowRight")
    assert tab.evaluate(frames) == wanted(2) > wanted(1)
    slider.press("End")
    tab.locator("#tree-details summary").click()
    rows = tab.locator("#tree-details tbody tr")
    rows.first.wait_for()  # they are made when the details have opened
    assert rows.count() == len(tree.nodes) - 1
    last = tree.nodes[tree.winner]
    best = tab.locator("#tree-details tbody tr", has_text="yes")
    assert best.count() == len(tree.path) - 1
    cells = best.last.locator("td").all_inner_texts()
    assert cells[0] == str(last.step)
    assert float(cells[5].replace("−", "-")) == pytest.approx(last.normalised, abs=0.00501)


def test_what_is_lost_without_a_word_is_told(open_page, document: str, inspection: Inspection, translator: Translator):
    tab = open_page(document)
    found = occlusion(translator.model, inspection)
    canvas = tab.locator("#occlusion-map canvas.map")
    canvas.focus()
    canvas.press("ArrowDown")
    canvas.press("ArrowRight")
    said = tab.locator("#occlusion-map .readout").inner_text()
    row, column, before, after = re.fullmatch(r"“(.*)” without “(.*)”: from (\S+) to (\S+)", said).groups()  # type: ignore[union-attr]
    assert (row, column) == (found.target[1], found.source[1])
    assert float(before) == pytest.approx(float(found.probability[1]), abs=0.00501)
    assert float(after) == pytest.approx(float(found.without[1, 1]), abs=0.00501)


def test_canvases_are_not_blank_and_the_greatest_weight_is_darkest(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    tab.locator("#subwords").check()
    canvas = tab.locator(MAP)
    left, top, cell = (float(canvas.get_attribute(f"data-{name}")) for name in ("left", "top", "cell"))
    seen = pixels(tab, MAP).mean(-1)
    weights = inspection.cross[1, 0]
    y, x = (top + (torch.arange(weights.size(0)) + 0.25) * cell), (left + (torch.arange(weights.size(1)) + 0.25) * cell)
    middle = seen[y.long()][:, x.long()]
    assert middle.std() > 5
    order = torch.corrcoef(torch.stack([middle.flatten(), weights.flatten()]))[0, 1]
    assert float(order) < -0.9  # the more, the darker
    assert pixels(tab, "#thumbnails button:nth-of-type(2) canvas").std() > 5
    assert pixels(tab, "#encoding-map canvas.map").std() > 5


def test_korean_is_one_click_away_and_the_first_choice_of_a_korean_browser(open_page, document: str):
    tab = open_page(document)
    assert tab.locator("h1").inner_text() == "What the model looked at"
    tab.get_by_role("button", name="한국어").click()
    assert tab.locator("h1").inner_text() == "모델이 무엇을 보았나"
    assert tab.locator("html").get_attribute("lang") == "ko"
    left = [
        text
        for text in tab.locator("[data-t]").all_inner_texts()
        if re.search("[A-Za-z]{3}", text) and not re.search("[가-힣]", text)
    ]
    assert left == []
    tab.locator(MAP).focus()
    assert "위 (1행 1열)" in tab.locator(SAID).inner_text()
    tab.get_by_role("button", name="English").click()
    assert tab.locator("h1").inner_text() == "What the model looked at"
    assert open_page(document, language="ko-KR").locator("h1").inner_text() == "모델이 무엇을 보았나"


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_ground_follow_the_system_and_differ_enough(open_page, document: str, dark: bool):
    """4.5 to 1, WCAG's contrast for text, of what is really painted."""
    tab = open_page(document, dark=dark)
    colours = "(name => getComputedStyle(document.querySelector(name)))"
    ground = luminance(tab.evaluate(f"{colours}('body').backgroundColor"))
    assert (ground < 0.1) == dark
    for name in ("body", ".note", ".hint", "figcaption", "h3"):
        text = luminance(tab.evaluate(f"{colours}('{name}').color"))
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5, name
    shot = Image.open(io.BytesIO(tab.screenshot())).convert("L").resize((1, 1)).getpixel((0, 0))
    assert (shot < 100) == dark


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_phone_scrolls_down_but_not_sideways(open_page, document: str):
    tab = open_page(document, width=320)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    tab.locator(MAP).focus()
    tab.locator(MAP).press("Control+End")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("translation", [HOSTILE, None])
def test_hostile_text_stays_text(open_page, translator: Translator, translation: str | None):
    found = inspect(translator, HOSTILE, translation, name="<b>&\"'</script>")
    document = inspection_page(found, translator.model)
    assert document.count("</script>") == inspection_page(inspect(translator, "a", "b"), translator.model).count(
        "</script>"
    )
    tab = open_page(document)
    assert tab.locator("img, iframe, object, embed").count() == 0
    assert tab.locator("script").count() == 3
    assert tab.locator("header b").inner_text() == "<b>&\"'</script>"
    shown = found.map("cross", 2).columns[:-1]
    assert tab.evaluate("[...document.querySelectorAll('#source-words button')].map(word => word.textContent)") == shown
    assert "<script>alert(1)</script>" in " ".join(shown)
    for details in tab.locator("details summary").all():
        if details.is_visible():
            details.click()
    for button in tab.get_by_role("button", name="Save SVG").all():
        if button.is_visible():
            with tab.expect_download() as download:
                button.click()
            well_formed(Path(download.value.path()).read_text(encoding="utf-8"))


def well_formed(svg: str) -> list[str]:
    """The texts of an SVG file. Raises where it is none."""
    from defusedxml.ElementTree import fromstring

    root = fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    return [element.text or "" for element in root.iter() if element.tag.endswith("text")]


def test_figures_leave_the_page_as_files(open_page, document: str, inspection: Inspection):
    tab = open_page(document, dark=True)

    def saved(place: str, format: str) -> Path:
        with tab.expect_download() as download:
            tab.locator(place).get_by_role("button", name=f"Save {format}").click()
        assert download.value.suggested_filename.endswith(f".{format.lower()}")
        return Path(download.value.path())

    texts = well_formed(saved("#attention-map", "SVG").read_text(encoding="utf-8"))
    expected = inspection.map("cross", 2, 1)
    assert set(expected.columns) <= set(texts)
    caption = " ".join(" ".join(texts).split())
    for part in ("Cross-attention", "layer 2 of 2, head 1 of 2", "model toy", "dragoman"):
        assert part in caption
    with Image.open(saved("#attention-map", "PNG")) as picture:
        assert picture.format == "PNG"
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)  # light, also from a dark page
    told = json.loads(saved("#attention-map", "JSON").read_text(encoding="utf-8"))
    assert told["rows"] == expected.rows
    assert float((torch.tensor(told["values"]) - expected.weights).abs().max()) < 0.02
    nodes = well_formed(saved("#tree-save", "SVG").read_text(encoding="utf-8"))
    assert sum(text == "pruned" for text in nodes) == sum(node.fate == "pruned" for node in inspection.tree.nodes)  # type: ignore[union-attr]
    assert len(json.loads(saved("#heads-save", "JSON").read_text())["heads"]) == 14
    assert len(json.loads(saved("#positions-save", "JSON").read_text())["positions"]) == len(inspection.positions)


@pytest.mark.parametrize(
    ("config", "translation"),
    [
        (RecurrentConfig(d_model=16, attention="dot"), None),
        (RecurrentConfig(d_model=16, attention="none"), "개가 봐요."),
        (dataclasses.replace(DEEP, positions="rotary"), ""),
        (dataclasses.replace(DEEP, positions="none", decoder_layers=1), "개가 봐요."),
    ],
)
def test_every_kind_of_model_has_a_page(open_page, tokenizer: Tokenizer, config: Any, translation: str | None):
    translator = make(tokenizer, config)
    found = inspect(translator, SENTENCE, translation)
    tab = open_page(inspection_page(found, translator.model))
    assert tab.locator("#positions-table tbody tr").count() == len(found.positions)
    assert tab.locator("#tree").is_visible() == (found.tree is not None)
    assert tab.locator("#attention").is_visible() == bool(len(found.cross))
    assert tab.locator('#kinds [role="tab"]').count() == sum(len(found.maps(kind)) > 0 for kind in KINDS)


# The command.


def test_the_command_writes_the_page_and_nothing_else(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", "-m", str(trained), SENTENCE, "--html", "new/page.html"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "new/page.html"
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["page.html"]
    assert data_of((tmp_path / "new/page.html").read_text(encoding="utf-8"))["source"]["text"] == SENTENCE
