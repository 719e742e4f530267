"""The panels of the live page that show what the model did: their numbers are those of `inspect`, for everybody."""

import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import gap
from PIL import Image
from playwright.sync_api import expect
from serving import CONFIG, Running, running, until
from visiting import Visit

from dragoman.inspection.inspect import inspect
from dragoman.inspection.inspection import Inspection
from dragoman.inspection.occlusion import occlusion
from dragoman.inspection.plots.positions import added_positions
from dragoman.server.models import open_models, parse_models
from dragoman.translation.translator import Translator

TEXT = "The dog sees 2 red cats."  # as in `inspected`
OTHER = "The cat likes 3 black bears."
PANELS = ("attention-panel", "heads", "positions", "tree", "occlusion", "encoding")
HALF = 1 / 510 + 1e-4  # and the four digits of a file


def start(visit: Any, text: str = TEXT, **options: Any) -> Visit:
    """The page with a translated text."""
    page = visit("#source=en&target=ko", **options)
    page.type(text)
    page.tab.locator("#output .word").nth(0).wait_for()
    until(lambda: page.tab.wait_for_timeout(20) or all(page.lines()))
    return page


def open_panels(page: Visit, *panels: str) -> None:
    for panel in panels:
        page.tab.locator(f"#{panel} > summary").click()
        settle(page)


def settle(page: Visit) -> None:
    """Wait until what was asked for is drawn."""
    done = (
        "() => document.querySelector('#inside.known') && !document.querySelector('#inside-status').textContent.trim()"
    )
    page.tab.wait_for_timeout(50)
    page.tab.wait_for_function(done)


# Keeps what would be saved, by the ends of the names: of many files from one tab, Chromium refuses some.
KEEP = """() => {
  window.kept ??= {};
  const make = URL.createObjectURL;
  let last = null;
  URL.createObjectURL = (blob) => make.call(URL, (last = blob));
  HTMLAnchorElement.prototype.click = function () { window.kept[this.download.split(".").at(-1)] = last; };
}"""
TAKE = """end => new Promise((resolve) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result.split(",")[1]);
  reader.readAsDataURL(window.kept[end]);
})"""


def saved(page: Visit, place: str, format: str) -> bytes:
    page.tab.evaluate(KEEP)
    page.tab.locator(place).get_by_role("button", name=f"Save {format}").click()
    page.tab.wait_for_function("end => window.kept[end]", arg=format.lower())
    content = base64.b64decode(page.tab.evaluate(TAKE, format.lower()))
    page.tab.evaluate("delete window.kept")
    return content


def values(page: Visit, place: str) -> torch.Tensor:
    return torch.tensor(json.loads(saved(page, f"{place} .save", "JSON"))["values"])


def test_panels_show_the_numbers_of_the_inspection(visit, inspected: Inspection, reopened: Translator):
    page = start(visit)
    requested: list[str] = []
    page.tab.on("request", lambda request: requested.append(request.url.rpartition("/")[2].partition("?")[0]))
    open_panels(page, *PANELS)
    loaded = [name for name in requested if name.endswith(".js")]
    asked = [name for name in requested if not name.endswith(".js")]
    assert sorted(asked) == ["attention", "inspect", "inspect", "occlusion", "positions"]  # each when it was needed
    assert sorted(loaded) == ["attention.js", "inside.js", "map.js", "signed.js", "tables.js", "tree.js"]
    page.tab.locator("#subwords").check()
    for kind in ("cross", "encoder", "decoder"):
        page.tab.locator(f"#tab-{kind}").click()
        settle(page)
        page.tab.locator('#thumbnails button[data-head="1"]').click()
        assert gap(values(page, "#attention-map"), inspected.maps(kind)[0, 1]) <= HALF
        for show, weights in (
            ("mean", inspected.weights(kind, 1)),
            ("max", inspected.weights(kind, 1, None, "max")),
            ("rollout", inspected.weights(kind, 1, None, "rollout")),
        ):
            page.tab.locator("#show").select_option(show)
            assert gap(values(page, "#attention-map"), weights) <= HALF
    asked = [name for name in requested if not name.endswith(".js")]
    assert sorted(asked) == ["attention"] * 3 + ["inspect"] * 2 + ["occlusion", "positions"]
    lost = occlusion(reopened.model, inspected)
    assert gap(values(page, "#occlusion-map"), lost.share.T) <= HALF
    expected = added_positions(reopened.model, 50)
    assert expected
    assert gap(values(page, "#encoding-map"), expected.table) <= float(expected.table.abs().max()) / 254 + 1e-4
    told = json.loads(saved(page, "#tree-save", "JSON"))
    assert inspected.tree
    assert [(node["token"], node["score"], node["fate"]) for node in told["nodes"]] == [
        (node.token, node.score, node.fate) for node in inspected.tree.nodes
    ]
    told = json.loads(saved(page, "#positions-save", "JSON"))
    assert [one["probability"] for one in told["positions"]] == [one.probability for one in inspected.positions]
    assert len(json.loads(saved(page, "#heads-save", "JSON"))["heads"]) == 6


def test_figures_are_saved_in_every_form_with_caption_and_table(visit, inspected: Inspection):
    from defusedxml.ElementTree import fromstring

    page = start(visit, dark=True)
    open_panels(page, *PANELS)
    places = "#attention-map .save, #heads-save, #positions-save, #tree-save, #occlusion-map .save, #encoding-map .save"
    for place in places.split(", "):
        svg = fromstring(saved(page, place, "SVG").decode())
        drawn = [element.text or "" for element in svg.iter("{http://www.w3.org/2000/svg}text")]
        told = json.loads(saved(page, place, "JSON"))
        parts = ["odel toy"] if "encoding" in place else ["odel toy", TEXT, "dragoman"]
        for part in parts:
            assert part in told["caption"]
            assert part in " ".join("".join(drawn).split())
        alone = saved(page, place, "HTML").decode()
        assert "default-src 'none'" in alone
        assert ("<script" in alone, "odel toy" in alone.partition("<figcaption>")[2]) == (False, True)
        nodes, winner = told.get("nodes", []), told.get("winner")
        shown = [one for one in nodes[1:] if one["step"] <= nodes[winner]["step"]]  # up to where the winner ends
        assert alone.count("<tr>") == 1 + len(told.get("rows") or told.get("heads") or told.get("positions") or shown)
        if place.startswith("#attention-map"):  # the numbers of the inspection, as a table and as boxes
            cells = re.findall(r"<td>([\d.]*)</td>", alone)
            expected = inspected.map("cross", inspected.alignment.layer, inspected.alignment.head or 1)
            assert (
                gap(torch.tensor([float(cell) for cell in cells if cell]), expected.weights.flatten()) <= HALF + 0.005
            )
            assert len(svg.findall("{http://www.w3.org/2000/svg}rect")) == 1 + expected.weights.numel()
        with Image.open(io.BytesIO(saved(page, place, "PNG"))) as picture:
            assert (picture.format, picture.convert("RGB").getpixel((0, 0))) == ("PNG", (255, 255, 255))


def test_inspection_is_saved_as_the_page_to_share(visit, server: Running):
    page = start(visit)
    open_panels(page, "heads")
    with page.tab.expect_download() as download:
        page.tab.locator("#save-inside").click()
    body = {"text": TEXT, "source": "en", "target": "ko"}
    assert Path(download.value.path()).read_bytes() == server.ask("POST", "/api/v1/page", body).body


def test_sentence_with_the_focus_is_shown_and_the_readers_choice_stays(visit, reopened: Translator):
    page = start(visit, f"{TEXT}\n{OTHER}")
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    shown = page.tab.locator("#inside-sentence")
    page.tab.locator("#output .line").nth(1).locator(".word").first.click()
    page.tab.wait_for_timeout(300)
    assert not [url for url in asked if "inspect" in url]  # nobody wants to know
    open_panels(page, "attention-panel", "tree")
    assert shown.inner_text().startswith(f"“{OTHER}” → ")
    page.tab.locator("#tab-encoder").click()
    settle(page)
    page.tab.locator('#thumbnails button[data-head="0"]').click()
    page.tab.locator("#subwords").check()
    page.tab.locator("#source").press("Control+Home")
    shown.filter(has_text=f"“{TEXT}” → ").wait_for()
    settle(page)
    assert page.tab.locator("#tab-encoder").get_attribute("aria-selected") == "true"
    first = values(page, "#attention-map")
    assert gap(first, inspect(reopened, TEXT).encoder[0, 0]) <= HALF
    page.type("The bear likes 3 white rabbits.")  # an edited text is followed
    shown.filter(has_text="“The bear likes 3 white rabbits.” → ").wait_for()
    settle(page)
    other = values(page, "#attention-map")
    assert gap(other, inspect(reopened, "The bear likes 3 white rabbits.").encoder[0, 0]) <= HALF
    assert first.shape != other.shape or gap(first, other) > HALF  # the control
    page.tab.locator("#heads > summary").click()
    page.tab.get_by_role("button", name="Cross-attention 1.2").click()
    settle(page)
    assert "Cross-attention; layer 1 of 1, head 2 of 2" in page.tab.locator("#attention-map figcaption").inner_text()


def test_attention_begins_with_what_links_words_at_the_word_that_was_clicked(visit, reopened: Translator):
    text = "The dog sees The cats."
    page = start(visit, text)
    found = inspect(reopened, text)
    assert found.alignment
    assert found.alignment.head
    cursor = page.tab.locator("#attention-map .readout")
    measured = page.tab.locator("#measured")
    assert not measured.is_visible()
    open_panels(page, "attention-panel")
    which = f"layer {found.alignment.layer}, head {found.alignment.head}"
    assert measured.inner_text().startswith(f"Words are linked by the attention of {which}. It finds ")
    assert page.tab.locator("#show").input_value() == "head"
    chosen = f"layer {found.alignment.layer} of 1, head {found.alignment.head} of 2"
    assert chosen in page.tab.locator("#attention-map figcaption").inner_text()
    assert cursor.inner_text() == ""  # no word was clicked
    weights = found.map("cross", found.alignment.layer, found.alignment.head)
    for number in (1, 0):
        page.tab.locator("#output .word").nth(number).click()
        column = int(weights.weights[number].argmax())
        expect(cursor).to_have_text(re.compile(rf"rank 1 of .*\(row {number + 1}, column {column + 1}\)$"))
    box = page.tab.locator("#source")
    box.evaluate("(box, at) => box.setSelectionRange(at, at)", text.rindex("The"))
    box.press("ArrowRight")  # in the second "The"
    row = int(weights.weights[:, 3].argmax())
    expect(cursor).to_have_text(re.compile(rf"→ “The”: .*\(row {row + 1}, column 4\)$"))
    page.tab.locator("#attention-map canvas.map").press("Control+Home")
    page.tab.locator("#tab-encoder").click()
    expect(cursor).to_have_text(re.compile(r"^“The” → .*\(row 4, column"))


def test_keyboard_leads_from_the_empty_page_to_an_exported_beam_tree(visit, inspected: Inspection):
    page = visit("#source=en&target=ko")
    keyboard = page.tab.keyboard
    focused = "(document.activeElement.textContent || document.activeElement.id).trim()"

    def tab_to(*names: str) -> None:
        for _ in range(60):
            keyboard.press("Tab")
            if page.tab.evaluate(focused) in names:
                return
        raise AssertionError(names)

    page.tab.locator("#source").focus()
    keyboard.type(TEXT)
    page.tab.locator("#output .word").first.wait_for()
    tab_to("Beam search")
    keyboard.press("Enter")
    settle(page)
    tab_to("step")
    keyboard.press("Home")
    assert page.tab.locator("#step-shown").inner_text() == f"1 of {inspected.tree.steps}"  # type: ignore[union-attr]
    keyboard.press("End")
    tab_to("Save JSON")
    with page.tab.expect_download() as download:
        keyboard.press("Enter")
    assert len(json.loads(Path(download.value.path()).read_bytes())["nodes"]) == len(inspected.tree.nodes)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def legs(trained: Path) -> Iterator[Running]:
    """A server that translates from English into German through Korean."""
    config = replace(CONFIG, pivot="ko", inspect_tokens=30)
    opened = open_models(config, parse_models([f"en-ko={trained}", f"ko-de={trained}"], "ko"))
    with running(opened, config) as started:
        yield started
    opened.close(5)


@pytest.mark.slow
def test_pivot_shows_either_model_and_says_what_differs(visit, legs: Running):
    page = visit("#source=en&target=de", at=legs, expected="400")
    page.type(TEXT)
    page.tab.locator("#output .word").first.wait_for()
    open_panels(page, "attention-panel")
    second = page.tab.get_by_label("Korean → German")
    second.check()
    settle(page)
    body = {"text": TEXT, "source": "en", "target": "de"}
    _, expected = legs.ask("POST", "/api/v1/inspect", body).json["inspections"]
    assert expected["inspection"]["source"]["text"] in page.tab.locator("#inside-sentence").inner_text()
    (weights,) = [one["inspection"]["heads"] for one in [expected]]
    assert weights
    page.type("dog " * 40)
    page.tab.get_by_text("this server inspects at most 30 on each side").wait_for()
    assert page.tab.get_by_role("button", name="Try again").count() == 0  # it would be refused again
    assert not page.tab.locator("#attention").is_visible()
    page.open("#source=en&target=ko")
    page.type("The {name} sees 4 red cats.")  # which a second search puts back
    page.tab.locator("#inside-sentence", has_text="The {name} sees").wait_for()
    open_panels(page, "tree")
    assert page.tab.locator("#inside-differs").inner_text().startswith("What you see is the plain search in float32")
    page.tab.get_by_label("look at the translation above instead").check()
    settle(page)
    assert page.lines()[0] in page.tab.locator("#inside-sentence").inner_text()
    assert not page.tab.locator("#tree-figure").is_visible()  # nothing was searched for
    page.tab.get_by_text("No search is recorded for this translation").wait_for()


@pytest.mark.parametrize(
    ("dark", "width", "language"), [pytest.param(False, 1100, "en-US", marks=pytest.mark.slow), (True, 320, "ko-KR")]
)
def test_axe_finds_nothing_in_the_panels(visit, dark: bool, width: int, language: str):
    page = start(visit, dark=dark, width=width, language=language)
    open_panels(page, *PANELS)
    for summary in page.tab.locator("#inside details details > summary").all():
        summary.click()
    assert page.problems() == []
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
    if language == "ko-KR":
        left = [text for text in page.tab.locator("#inside [data-t]").all_inner_texts() if text.isascii() and text]
        assert left == []
