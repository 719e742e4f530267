"""The page of an inspection, in a real browser: what it tells is what the model did, and nothing leaves it."""

import base64
import dataclasses
import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import gap, tiny_transformer
from PIL import Image
from torch import Tensor

from dragoman.alignment.words import merge_tokens
from dragoman.config import RecurrentConfig, SearchConfig, TransformerConfig
from dragoman.data.tokenizer import Tokenizer
from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import KINDS, AttentionMap, Inspection
from dragoman.inspection.occlusion import Occlusion, occlusion
from dragoman.inspection.page import (
    IMPORT,
    WEB,
    content_hash,
    inspection_page,
    page_data,
    page_script,
    page_strings,
    read_web_file,
)
from dragoman.inspection.plots.positions import added_positions
from dragoman.model import build
from dragoman.translation.translator import Translator

SENTENCE = "The dog sees 12 cats."
HOSTILE = (
    """</script><script>alert(1)</script> "'` <img src=x onerror=alert(1)> &amp; \u2028 \u2029 ]]> {{ 7*7 }} -->"""
)
DEEP = tiny_transformer(encoder_layers=3, decoder_layers=2)


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


@pytest.fixture(scope="module")
def document(inspection: Inspection, translator: Translator) -> str:
    return inspection_page(inspection, translator)


# The document.


def data_of(document: str) -> dict[str, Any]:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', document, re.DOTALL)
    return json.loads(block)


def decoded(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8).float()


def unpacked(kind: dict[str, Any], data: dict[str, Any], name: str = "weights") -> Tensor:
    sides = [len(data[kind[side]]["tokens"]) for side in ("rows", "columns")]
    return decoded(kind[name]).view(kind["layers"], -1, *sides) / 255


def test_page_bytes_are_off_by_half_a_step_at_most(inspection: Inspection, translator: Translator, document: str):
    data, half = data_of(document), 1 / 510 + 1e-6
    for kind, name in zip(data["kinds"], KINDS, strict=True):
        weights = unpacked(kind, data)
        assert kind["name"] == name
        assert gap(weights, inspection.maps(name)) <= half
        for layer, rollout in enumerate(unpacked(kind, data, "rollout")[:, 0], start=1):
            assert gap(rollout, inspection.weights(name, layer, None, "rollout")) <= half
        assert data[kind["rows"]]["words"][-1]["tokens"][1] == weights.size(2)
    encoding = data["positional_encoding"]
    table = (decoded(encoding["table"]) - 127) / 127 * encoding["largest"]
    expected = added_positions(translator.model, 50)
    assert expected
    assert gap(table.view(encoding["rows"], encoding["columns"]), expected.table) <= encoding["largest"] / 254 + 1e-6


def test_links_and_losses_of_words_are_those_of_the_model(
    inspection: Inspection, translator: Translator, document: str
):
    data = data_of(document)
    weights = merge_tokens(inspection.cross[-1].mean(0), inspection.target.words, inspection.source.words)[:-1, :-1]
    torch.testing.assert_close(torch.tensor(data["links"]["weights"]).view(weights.shape), weights)
    assert data["links"]["source"] == ["The", "dog", "sees", "12", "cats."]
    losses = occlusion(translator.model, inspection)
    torch.testing.assert_close(torch.tensor(data["occlusion"]["drops"]), losses.drop.T)
    assert (data["occlusion"]["rows"], data["occlusion"]["columns"]) == (losses.target, losses.source)


def test_document_points_nowhere_else_and_runs_its_script_alone(document: str):
    markup = document.replace(page_script("page"), "")
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?([^"'\s>]+)""", markup) == ["data:,"]
    assert "@import" not in document
    assert "url(" not in document.replace("createObjectURL(", "").replace("revokeObjectURL(", "")
    # A name, not an address.
    assert set(re.findall(r"https?://[^\s\"'`<]+", document)) == {"http://www.w3.org/2000/svg"}
    (policy,) = re.findall(r'content="(default-src[^"]*)"', markup)
    assert policy.replace("&#39;", "'").startswith("default-src 'none'")
    style = "".join(map(read_web_file, ("theme.css", "figures.css", "page.css")))
    for content in (page_script("page"), style, read_web_file("dark.css")):
        assert content in document
        assert content_hash(content) in policy
    assert "unsafe" not in policy


NAMES = re.compile(r"^(?:async )?(?:const|let|var|class|function\*?) (\w+|[\[{][^=]*[\]}] =)", re.MULTILINE)


@pytest.mark.parametrize("name", ["page", "history"])
def test_page_script_has_all_modules_and_no_name_twice(name: str):
    script = page_script(name)
    names = [part for found in NAMES.findall(script) for part in re.findall(r"\w+", found)]
    assert sorted(set(names)) == sorted(names)
    assert {"make", "language", "speak", "maps" if name == "page" else "weightAt"} <= set(names)
    assert not re.search(r"^(?:import|export)\b", script, re.MULTILINE)
    # Each module comes after those that it imports.
    modules = [path.stem for path in WEB.glob("*.js")]
    begins = {module: script.find(read_web_file(f"{module}.js").partition("\n")[0]) for module in modules}
    for module in modules:
        for imported in IMPORT.findall(read_web_file(f"{module}.js")):
            assert begins[module] < 0 or -1 < begins[imported] < begins[module]


def test_page_strings_are_there_in_both_languages():
    strings, code, document = page_strings(), page_script("page"), read_web_file("page.html")
    document += read_web_file("figures.html")
    english, korean = strings["en"], strings["ko"]
    places = [{key: set(re.findall(r"\{\d\}", text)) for key, text in texts.items()} for texts in (english, korean)]
    assert places[0] == places[1]
    used = set(re.findall(r"""\bt\("([^"]+)\"""", code)) | set(re.findall(r'data-(?:t|label)="([^"]+)"', document))
    assert used <= english.keys()
    for key in english.keys() - used:  # made of a name and what follows the point, or chosen between two
        beginning = key.split(".")[0]
        assert f"`{beginning}." in code or f'"{key}"' in code or f"t(`{beginning}" in code, key


def large(tokenizer: Tokenizer, **widths: int) -> tuple[Inspection, str, float]:
    """Inspect 128 x 128 tokens with 6 layers of 8 heads, as the base model has, and return the page and its seconds."""
    translator = make(tokenizer, tiny_transformer(heads=8, encoder_layers=6, decoder_layers=6, **widths))
    text = tokenizer.decode((tokenizer.encode("dog") * 127)[:127])
    assert len(tokenizer.encode(text)) == 127
    began = time.process_time()
    found = inspect(translator, text, text)
    document = inspection_page(found, translator)
    return found, document, time.process_time() - began


@pytest.mark.slow
def test_page_of_a_long_sentence_is_made_in_time(tokenizer: Tokenizer):
    """Under 20 s of one core, under 5 MB."""
    found, document, seconds = large(tokenizer, d_model=512, d_ff=2048)
    assert found.cross.shape == (6, 8, 128, 128)
    assert seconds < 20
    assert len(document.encode()) < 5_000_000
    data = data_of(document)
    assert data["occlusion"] is None  # 128 sentences to score: left to --view occlusion
    assert unpacked(data["kinds"][2], data).shape == (6, 8, 128, 128)


# In the browser.


MAP, READOUT = "#attention-map canvas.map", "#attention-map .readout"


def cursor(tab: Any) -> tuple[int, int]:
    """Row and column of the cell that is read out."""
    row, column = tab.evaluate("[map.row, map.column]")
    return row, column


# Of the table twin of the large map: labels of rows, of columns, numbers.
TABLE = """() => {
  const texts = (root, selector) => [...root.querySelectorAll(selector)].map((cell) => cell.textContent);
  const table = document.querySelector("#attention-map details table");
  const rows = [...table.querySelectorAll("tbody tr")];
  return [texts(table, "tbody th"), texts(table, "thead th"), rows.map((row) => texts(row, "td").map(Number))];
}"""


def table_of(tab: Any, expected: AttentionMap) -> Tensor:
    """Return the table twin of the large map after comparing it with what is expected."""
    rows, columns, table = tab.evaluate(TABLE)
    assert (rows, columns) == (expected.rows, expected.columns)
    assert gap(torch.tensor(table), expected.weights) < 0.02  # the sum of what is rounded
    return torch.tensor(table)


def pixels(tab: Any, selector: str) -> Tensor:
    """(height, width, 3) of what is seen of an element."""
    shot = Image.open(io.BytesIO(tab.locator(selector).screenshot())).convert("RGB")
    return torch.from_numpy(np.array(shot)).float()


def agrees(tab: Any, expected: AttentionMap) -> bool:
    """Whether the cell that is read out has its labels, its weight and its rank."""
    (row, column), values = cursor(tab), torch.tensor(tab.evaluate("Array.from(map.shown.values)"))
    table, text = values.view(expected.weights.shape), tab.locator(READOUT).inner_text()
    rank = 1 + int((table[row] > table[row, column]).sum())
    near = float(table[row, column]) == pytest.approx(float(expected.weights[row, column]), abs=0.01)
    cell = f"“{expected.rows[row]}” → “{expected.columns[column]}”: "
    return near and text.startswith(cell) and f", rank {rank} of {len(expected.columns)} " in text


def test_mouse_and_keyboard_reach_every_cell_layer_and_head(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    canvas, expected = tab.locator(MAP), inspection.map("cross", 2)  # as words are linked: the mean of the last layer
    left, top, side = (float(canvas.get_attribute(f"data-{name}")) for name in ("left", "top", "cell"))
    rows, columns = len(expected.rows), len(expected.columns)
    for y in range(rows):
        x = (3 * y + 1) % columns
        canvas.hover(position={"x": left + (x + 0.5) * side, "y": top + (y + 0.5) * side})
        assert cursor(tab) == (y, x)
        assert agrees(tab, expected)
    canvas.press("Control+Home")
    last = (rows - 1, columns - 1)
    keys = (
        "ArrowRight ArrowDown End ArrowRight ArrowLeft Control+End ArrowDown ArrowUp Home Control+Home ArrowUp".split()
    )
    places = [(0, 1), (1, 1), (1, columns - 1), (1, columns - 1), (1, columns - 2), last, last, (rows - 2, columns - 1)]
    for key, place in zip(keys, [*places, (rows - 2, 0), (0, 0), (0, 0)], strict=True):
        canvas.press(key)
        assert cursor(tab) == place, key
        assert agrees(tab, expected)
    for key, which in (("2", (2, 2)), ("[", (1, 2)), ("[", (1, 2)), ("1", (1, 1)), ("]", (2, 1)), ("9", (2, 1))):
        canvas.press(key)
        assert agrees(tab, inspection.map("cross", *which))
        assert f"layer {which[0]} of 2, head {which[1]} of 2" in tab.locator("#attention-map figcaption").inner_text()
    # A pinned cell stays until it is released.
    canvas.press("Enter")
    assert tab.locator(READOUT).inner_text().endswith("· pinned")
    canvas.hover(position={"x": left + 1.5 * side, "y": top + 1.5 * side})
    assert cursor(tab) == (0, 0)
    canvas.press("Escape")
    assert not tab.locator(READOUT).inner_text().endswith("pinned")
    canvas.hover(position={"x": left + 1.6 * side, "y": top + 1.5 * side})
    assert cursor(tab) == (1, 1)  # the control


def test_tabs_show_their_kind_of_attention(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    tab.locator("#attention-map details summary").click()
    for kind, name in (("encoder", "Encoder self"), ("decoder", "Decoder masked"), ("cross", "Cross")):
        tab.get_by_role("tab", name=name).click()
        assert tab.locator('[role=tab][aria-selected="true"]').inner_text().startswith(name)
        layers = len(inspection.maps(kind))
        assert tab.locator("#thumbnails button").count() == 2 * layers
        for layer in range(layers):
            tab.locator(f'#thumbnails button[data-layer="{layer}"][data-head="1"]').click()
            tab.locator(MAP).press("Control+End")
            expected = inspection.map(kind, layer + 1, 2)
            assert agrees(tab, expected)
        tab.locator("#attention-map details table").wait_for()  # it is made when the details have opened
        table = table_of(tab, expected)
        assert kind != "decoder" or not table.triu(1).any()


AGGREGATES: dict[str, tuple[int | None, int | None, Any]] = {
    "mean": (1, None, "mean"),
    "max": (1, None, "max"),
    "rollout": (1, None, "rollout"),
    "mean-all": (None, None, "mean"),
    "max-all": (None, None, "max"),
}


@pytest.mark.parametrize("hide", [(), ("special", "punctuation")])
def test_aggregates_and_hidden_tokens_are_as_in_the_inspection(
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
            table_of(tab, inspection.map("cross", *which, subwords=by_subwords, hide=hide))
    assert ("rescaled" in tab.locator("#attention-map figcaption").inner_text()) == bool(hide)


def test_last_of_many_cells_can_be_reached(open_page, tokenizer: Tokenizer):
    found, document, _ = large(tokenizer, d_model=64, d_ff=64)  # how wide a layer is, the page does not show
    tab = open_page(document)
    canvas = tab.locator(MAP)
    tab.locator("#subwords").check()
    canvas.press("Control+End")
    assert cursor(tab) == (127, 127)
    assert agrees(tab, found.map("cross", 6, subwords=True))
    for key in "[[5":
        canvas.press(key)
    assert agrees(tab, found.map("cross", 4, 5, subwords=True))


# Draws another sentence over the one that is shown.
DRAW = """data => {
  const shows = [showWords, showAttention, showHeads, showPositions, showTree, showOcclusion, showEncoding];
  for (const show of shows) show(data);
}"""


def test_choice_of_the_reader_stays_when_another_sentence_is_drawn(
    open_page, document: str, inspection: Inspection, translator: Translator
):
    other = inspect(translator, "The bear likes 3 white rabbits.", name="toy")
    rotary = make(translator.tokenizers.source, dataclasses.replace(DEEP, positions="rotary", encoder_layers=1))
    shallow = inspect(rotary, SENTENCE, "개가 봐요.")
    tab = open_page(document)
    tab.evaluate(DRAW, page_data(other, None, None))
    assert agrees_at_start(tab, other.map("cross", 2))  # nothing was chosen yet
    tab.get_by_role("tab", name="Encoder self").click()
    tab.locator('#thumbnails button[data-layer="2"][data-head="1"]').click()
    tab.locator("#subwords").check()
    for found, model, layer in ((inspection, translator, 3), (shallow, rotary, 1), (other, translator, 3)):
        tab.evaluate(DRAW, page_data(found, occlusion(model.model, found), None))
        assert agrees_at_start(tab, found.map("encoder", layer, 2, subwords=True))
        assert tab.locator("#kinds [role=tab]").count() == 3
        assert tab.locator("#show option").count() == 6
        assert tab.locator("#source-words button").all_inner_texts() == [word.label for word in found.source.words[:-1]]
        assert tab.locator("#positions-table tbody tr").count() == len(found.positions)
        assert tab.locator("#tree-figure").is_visible() == (found.tree is not None)
        assert tab.locator("#not-encoded").is_visible()
        assert not tab.locator("#encoding-map").is_visible()
        tab.locator("#occlusion-map canvas.map").focus()
        assert f"without “{found.source.words[0].label}”" in tab.locator("#occlusion-map .readout").inner_text()
    tab.locator("#step").press("Home")
    assert tab.locator("#step-shown").inner_text() == f"1 of {other.tree.steps}"  # type: ignore[union-attr]


def agrees_at_start(tab: Any, expected: AttentionMap) -> bool:
    """Whether the large map is this one, by its first cell."""
    tab.locator(MAP).press("Control+Home")
    return agrees(tab, expected)


def test_linked_words_light_up_in_both_directions(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    weights = inspection.map("cross", inspection.alignment.layer, inspection.alignment.head).weights[:-1, :-1]  # type: ignore[union-attr]
    target, source = tab.locator("#target-words button"), tab.locator("#source-words button")

    def shades(words: Any) -> Tensor:
        script = "words => words.map(word => Number(word.style.getPropertyValue('--weight')))"
        return torch.tensor(words.evaluate_all(script), dtype=torch.float32)

    assert source.all_inner_texts() == ["The", "dog", "sees", "12", "cats."]
    for row in range(weights.size(0)):
        target.nth(row).hover()
        torch.testing.assert_close(shades(source), weights[row])
    source.nth(1).focus()
    torch.testing.assert_close(shades(target), weights[:, 1])
    assert not shades(source).any()  # only the other side
    best = inspection.target.words[int(weights[:, 1].argmax())].label
    assert tab.locator("#words-readout").inner_text().startswith(f"“dog” was attended to by: {best} ")
    source.nth(1).press("ArrowRight")
    assert tab.locator("#words-readout").inner_text().startswith("“sees”")


def test_heads_can_be_sorted_and_chosen(open_page, document: str, inspection: Inspection):
    tab = open_page(document)

    def sort() -> list[float]:
        tab.locator("#heads-table button[data-column=entropy]").click()
        return [float(text) for text in tab.locator("#heads-table tbody tr > :nth-child(2)").all_inner_texts()]

    values = sort()
    assert values == sorted(values, reverse=True) != sorted(values)
    assert sort() == sorted(values)
    assert tab.locator("#heads-table th[aria-sort=ascending]").count() == 1
    tab.get_by_role("button", name="Encoder self-attention 3.2").click()
    assert "layer 3 of 3, head 2 of 2" in tab.locator("#attention-map figcaption").inner_text()
    tab.locator(MAP).press("Home")
    assert agrees(tab, inspection.map("encoder", 3, 2))


def test_probabilities_are_those_of_the_model(open_page, document: str, inspection: Inspection):
    script = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    rows = open_page(document).locator("#positions-table tbody tr").evaluate_all(script)
    for (_, token, probability, rank, entropy, others, *_), place in zip(rows, inspection.positions, strict=True):
        assert (token, int(rank), others.count(" · ")) == (place.token, place.rank, 4)
        numbers = [float(probability), float(entropy)]
        assert numbers == pytest.approx([place.probability, place.entropy], abs=0.00501)


def test_search_can_be_followed_step_by_step(open_page, document: str, inspection: Inspection):
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


def test_search_is_first_shown_up_to_where_its_winner_ends(open_page, document: str, inspection: Inspection):
    tab, data = open_page(document), page_data(inspection, None, None)
    data["tree"]["path"] = data["tree"]["path"][:4]  # as if the winner had been finished early
    tab.evaluate(DRAW, data)
    assert tab.locator("#step-shown").inner_text() == f"3 of {data['tree']['steps']}" != "3 of 3"
    assert tab.locator("#tree-picture rect[stroke-width='3']").count() >= 4  # what is bold
    tab.locator("#step").press("End")
    assert tab.locator("#step-shown").inner_text() == f"{data['tree']['steps']} of {data['tree']['steps']}"


def test_loss_without_a_word_is_said(open_page, document: str, inspection: Inspection, translator: Translator):
    tab = open_page(document)
    lost = occlusion(translator.model, inspection)
    canvas = tab.locator("#occlusion-map canvas.map")
    canvas.press("ArrowDown")
    canvas.press("ArrowRight")
    told = tab.locator("#occlusion-map .readout").inner_text()
    start, before, after = re.fullmatch(r"(.*: )from (.*) to (.*)", told).groups()  # type: ignore[union-attr]
    assert start == f"“{lost.target[1]}” without “{lost.source[1]}”: "
    expected = [float(lost.probability[1]), float(lost.without[1, 1])]
    assert [float(before), float(after)] == pytest.approx(expected, rel=0.051)


def test_improbable_word_shows_what_it_loses(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    before, after = torch.tensor([0.004, 0.004, 0.8]), torch.tensor([[0.001, 0.004, 0.9]])
    data = page_data(inspection, Occlusion(["dog"], ["개", "가", "봐요"], before, after), None)
    tab.evaluate(DRAW, data)
    tab.locator("#occlusion-map summary").click()
    assert tab.locator("#occlusion-map tbody td").all_inner_texts() == ["0.75", "0.00", "−0.11"]
    tab.locator("#occlusion-map canvas.map").focus()
    assert tab.locator("#occlusion-map .readout").inner_text() == "“개” without “dog”: from 0.004 to 0.001"


def test_canvases_are_not_blank_and_the_greatest_weight_is_darkest(open_page, document: str, inspection: Inspection):
    tab = open_page(document)
    tab.locator("#subwords").check()
    canvas = tab.locator(MAP)
    left, top, cell = (float(canvas.get_attribute(f"data-{name}")) for name in ("left", "top", "cell"))
    seen = pixels(tab, MAP).mean(-1)
    weights = inspection.cross[1].mean(0)
    y, x = (top + (torch.arange(weights.size(0)) + 0.25) * cell), (left + (torch.arange(weights.size(1)) + 0.25) * cell)
    middle = seen[y.long()][:, x.long()]
    assert middle.std() > 5
    order = torch.corrcoef(torch.stack([middle.flatten(), weights.flatten()]))[0, 1]
    assert float(order) < -0.9  # the more, the darker
    assert pixels(tab, "#thumbnails button:nth-of-type(2) canvas").std() > 5
    assert pixels(tab, "#encoding-map canvas.map").std() > 5


def test_korean_is_one_click_away_and_first_in_a_korean_browser(open_page, document: str):
    tab = open_page(document)
    assert tab.locator("h1").inner_text() == "What the model attended to"
    assert all(tab.locator("[data-t]").all_text_contents())
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
    assert "위 (1행 1열)" in tab.locator(READOUT).inner_text()
    tab.get_by_role("button", name="English").click()
    assert tab.locator("h1").inner_text() == "What the model attended to"
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


def stands_out(tab: Any, dark: bool, *selectors: str) -> None:
    """Fail unless a page is dark, or light, and the first element of each selector has a contrast of 4.5 with it."""
    style = "selector => getComputedStyle(document.querySelector(selector))"
    ground = luminance(tab.evaluate(f"({style})('body').backgroundColor"))
    assert (ground < 0.1) == dark
    for selector in selectors:
        text = luminance(tab.evaluate(f"({style})('{selector}').color"))
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5, selector


def test_page_on_a_phone_scrolls_down_but_not_sideways(open_page, document: str):
    tab = open_page(document, width=320)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    tab.locator(MAP).focus()
    tab.locator(MAP).press("Control+End")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize(
    ("text", "translation"), [(HOSTILE, HOSTILE), (HOSTILE.partition(" ")[0], None)], ids=["given", "searched for"]
)
def test_page_keeps_hostile_text_as_text(open_page, translator: Translator, text: str, translation: str | None):
    found = inspect(translator, text, translation, name="<b>&\"'</script>")
    document = inspection_page(found, translator)
    assert document.count("</script>") == inspection_page(inspect(translator, "a", "b"), translator).count("</script>")
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
    expected = inspection.map("cross", 2)
    assert set(expected.columns) <= set(texts)
    caption = " ".join(" ".join(texts).split())
    for part in ("Cross-attention", "layer 2 of 2, mean of 2 heads", "model toy", "dragoman"):
        assert part in caption
    with Image.open(saved("#attention-map", "PNG")) as picture:
        assert picture.format == "PNG"
        assert picture.convert("RGB").getpixel((0, 0)) == (255, 255, 255)  # light, also from a dark page
    told = json.loads(saved("#attention-map", "JSON").read_text(encoding="utf-8"))
    assert told["rows"] == expected.rows
    assert float((torch.tensor(told["values"]) - expected.weights).abs().max()) < 0.02
    alone = saved("#attention-map", "HTML").read_text(encoding="utf-8")
    assert "default-src 'none'" in alone
    assert alone.count("<tr>") == 1 + len(expected.rows)
    assert "; layer 2 of 2, mean of 2 heads;" in alone.partition("<figcaption>")[2]
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
def test_page_can_be_made_of_every_kind_of_model(open_page, tokenizer: Tokenizer, config: Any, translation: str | None):
    translator = make(tokenizer, config)
    found = inspect(translator, SENTENCE, translation)
    tab = open_page(inspection_page(found, translator))
    assert tab.locator("#positions-table tbody tr").count() == len(found.positions)
    assert tab.locator("#tree-figure").is_visible() == (found.tree is not None)
    assert tab.locator("#attention").is_visible() == bool(len(found.cross))
    assert tab.locator('#kinds [role="tab"]').count() == sum(len(found.maps(kind)) > 0 for kind in KINDS)
    if len(found.cross):
        one = found.cross.size(1) == 1  # a mean of one head is that head
        tab.locator("#show").select_option("mean")
        caption = tab.locator("#attention-map figcaption").inner_text()
        assert ("of 1, head 1 of 1;" in caption, "mean of 2 heads;" in caption) == (one, not one)


# The command.


def test_inspect_html_writes_the_page_and_nothing_else(dragoman, trained: Path, tmp_path: Path):
    ran = dragoman("inspect", "-m", trained, SENTENCE, "--html", "new/page.html")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "new/page.html")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["page.html"]
    assert data_of((tmp_path / "new/page.html").read_text(encoding="utf-8"))["source"]["text"] == SENTENCE
