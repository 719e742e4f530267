"""Texts that try to run, in every place of the pages where a text of others comes in: inert, and shown as they are."""

import html
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
from playwright.sync_api import expect
from serving import CONFIG, Running, running_copying, until
from visiting import HOSTILE, Visit, focus_word

from dragoman.server.models import Models

NAME = " ".join(HOSTILE)  # of the model
FOLDERS = [text.replace("/", "∕") for text in HOSTILE]  # no folder has a slash in its name
MADE = "img, iframe, object, embed, video, audio, base, style, marquee, math, foreignObject, animate, svg svg, svg a"
PANELS = ("attention-panel", "heads", "positions", "tree", "occlusion", "encoding")


class Hostile(NamedTuple):
    """A server whose model copies, and has a hostile name; and where it keeps documents."""

    server: Running
    state: Path


@pytest.fixture(scope="module")
def hostile(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    folder = tmp_path_factory.mktemp("hostile")
    for name in FOLDERS:
        (folder / "runs" / name).mkdir(parents=True)
        step = {"event": "step", "step": 1, "seconds": 1.0, "loss": 1.0, "rate": 0.1, "gradient_norm": 1.0}
        (folder / "runs" / name / "metrics.jsonl").write_text(json.dumps(step) + "\n")
    config = replace(CONFIG, state=str(folder / "state"), runs=str(folder / "runs"))
    with running_copying(models, config, NAME) as started:
        yield Hostile(started, folder / "state")


@pytest.fixture
def page(visit: Any, hostile: Hostile, capfd: pytest.CaptureFixture[str]) -> Iterator[Visit]:
    """The page of that server. Nothing of a text is in an address, in a cookie, or in the server's log."""
    found = visit("#source=en&target=ko", at=hostile.server, expected="429")  # fifty documents wait their turn
    asked: list[str] = []
    found.tab.on("request", lambda request: asked.append(unquote(request.url)))
    yield found
    assert found.tab.locator(MADE).count() == 0
    assert found.tab.locator("script").count() == 3
    assert found.stored() == {}
    assert found.tab.evaluate("[Object.keys(sessionStorage).join(), document.cookie]") in (["text", ""], ["", ""])
    assert found.tab.evaluate("indexedDB.databases().then(all => all.length)") == 0
    assert found.tab.evaluate("caches.keys().then(all => all.length)") == 0
    log = capfd.readouterr().err
    assert "200" in log  # the control
    for told in (log, unquote(found.tab.url), *asked):
        assert not any(word in told for word in ("alert", "evil", "__proto__"))


def test_hostile_texts_are_fifty_and_would_run(chromium: Any):
    assert len(set(HOSTILE)) == 50
    tab = chromium.new_page()
    ran: list[str] = []
    tab.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
    tab.set_content("".join(f"<div>{text}</div>" for text in HOSTILE[2:9]))
    until(lambda: tab.wait_for_timeout(20) or len(ran) > 3)
    tab.close()


def test_hostile_texts_in_a_text_and_its_translation(page: Visit):
    tab = page.tab
    page.type("\n".join(HOSTILE))
    page.shows("\n".join(HOSTILE))
    tab.locator("#alternatives > summary").click()
    expect(tab.locator("#alternative-list td > span").first).to_have_text(" ".join(HOSTILE))
    tab.locator("#code > summary").click()
    for form in ("Python", "JSON", "curl"):
        tab.get_by_label(form).check()
    assert json.loads(tab.locator("#code-text").inner_text().partition("-d '")[2].replace("'\\''", "'")[:-1])[
        "texts"
    ] == [*HOSTILE]
    word = tab.locator("#output .line").nth(2).locator(".word")
    word.first.hover()
    tab.get_by_text(f"While writing “{word.first.inner_text()}”, the model looked most at").first.wait_for()
    tab.locator("#notes").get_by_text("It looks like a copy").first.wait_for()
    tab.locator("#write").click()
    tab.keyboard.type(HOSTILE[2])
    assert tab.locator(".along textarea").input_value() == HOSTILE[2]
    tab.keyboard.press("Escape")
    tab.locator("#steps li").nth(1).wait_for()
    page.type(HOSTILE[2])
    expect(tab.locator("#announcement")).to_have_text(re.compile(re.escape(f"In Korean: {HOSTILE[2]}")))  # read out


def test_hostile_texts_in_what_a_server_says_of_a_translation(page: Visit):
    flags = [f"{what} {text}" for text in HOSTILE for what in ("lost", "no")]
    known = {"flags": flags, "terms_met": HOSTILE, "alternatives": HOSTILE, "segments": [], "terms_missed": []}
    says = {"text": "x", "source": "en", "score": -1.0, "alternative_scores": [-2.0] * 50, **known}
    page.tab.route("**/api/v1/translate", lambda route: route.fulfill(json={"translations": [says], "target": "ko"}))
    page.tab.locator("#alternatives > summary").click()
    page.type("x")
    expect(page.tab.locator("#alternative-list td > span")).to_have_text(["x", *HOSTILE])
    notes = page.tab.locator("#notes li").all_text_contents()
    assert [text for text in HOSTILE if f"“{text}” is missing. Show" not in notes] == []
    assert notes[-1] == f"Terms used: {', '.join(HOSTILE)}"


@pytest.mark.slow
def test_hostile_texts_in_every_panel_and_the_name_of_the_model(page: Visit):
    tab = page.tab
    text = f"Text {HOSTILE[2]} and {HOSTILE[4]}."
    page.type(text)
    page.shows(text)
    for panel in PANELS:
        tab.locator(f"#{panel} > summary").click()
    done = (
        "() => document.querySelector('#inside.known') && !document.querySelector('#inside-status').textContent.trim()"
    )
    tab.wait_for_function(done)
    tab.locator("#tree-picture svg").wait_for()
    assert text in tab.locator("#inside-differs").inner_text()
    tab.get_by_label("look at the translation above instead").check()
    tab.locator("#inside-sentence", has_text=f"“{text}” → “{text}”").wait_for()
    for summary in tab.locator("#inside details[open] details > summary").all():
        if summary.is_visible():
            summary.click()
    assert NAME in tab.locator("#attention-map figcaption").inner_text()
    assert tab.locator("#positions-table th[scope=row]", has_text="<").count() > 2
    for name in ("SVG", "HTML"):
        with tab.expect_download() as download:
            tab.locator("#attention-map").get_by_role("button", name=name).click()
        saved = Path(download.value.path()).read_text(encoding="utf-8")
        assert html.unescape(saved).count("<script>alert(1)</script>") > 2  # the name
        assert "<script" not in saved


def test_hostile_texts_in_a_glossary(page: Visit):
    tab = page.tab
    tab.locator("#glossary > summary").click()
    lines = "".join(f"{text}\t{text}|x\n" for text in HOSTILE)  # with one form it would be a name
    tab.locator("#open-terms").set_input_files({"name": "x.tsv", "mimeType": "text/plain", "buffer": lines.encode()})
    fields = tab.locator("#terms tbody input")
    expect(fields).to_have_count(100)
    assert fields.evaluate_all("fields => fields.map(field => field.value)") == [
        shown for text in HOSTILE for shown in (text, f"{text}|x")
    ]
    page.type("\n".join(HOSTILE))
    expect(tab.locator("#output .word").first).to_be_visible()  # none is a term here: each is a tag, code or an address
    tab.locator("#source").evaluate("(box, end) => (box.focus(), box.setSelectionRange(0, end))", len(HOSTILE[0]))
    word = tab.locator("#output .word").first
    focus_word(word)
    word.evaluate("word => getSelection().selectAllChildren(word)")
    expect(tab.locator("#add-term")).to_have_text(f"Always translate “{HOSTILE[0]}” as “{word.inner_text()}”")


class Texts(HTMLParser):
    """The texts of the paragraphs of a document."""

    def __init__(self, document: str):
        super().__init__()
        self.found: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        assert tag in ("html", "body", "p"), tag
        self.found += [""] * (tag == "p")

    def handle_data(self, data: str) -> None:
        if self.found:
            self.found[-1] += data.strip("\n")


DROP = """([names, content]) => {
  const dataTransfer = new DataTransfer();
  for (const name of names) dataTransfer.items.add(new File([content], name));
  for (const type of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
  }
}"""


@pytest.mark.slow
def test_hostile_texts_in_a_document_and_its_name(page: Visit, hostile: Hostile, open_page: Any):
    tab = page.tab
    paragraphs = "".join(f"<p>{html.escape(text)}</p>\n" for text in HOSTILE)
    tab.evaluate(DROP, [[f"{text}.html" for text in HOSTILE], f"<html><body>\n{paragraphs}</body></html>"])
    items = tab.locator("#document-list > li")
    expect(items).to_have_count(50)
    assert items.locator("b").all_text_contents() == [f"{text}.html" for text in HOSTILE]
    expect(items.get_by_role("button", name="Save")).to_have_count(50, timeout=60_000)
    with tab.expect_download() as download:
        items.nth(2).get_by_role("button", name="Save").click()
    assert not set("<>/\\\"'") & set(download.value.suggested_filename)
    saved = Path(download.value.path()).read_text(encoding="utf-8")
    assert Texts(saved).found == list(HOSTILE)
    assert open_page(saved).locator("p").all_text_contents() == list(HOSTILE)
    assert all(path.resolve().is_relative_to(hostile.state) for path in hostile.state.rglob("*"))


def test_hostile_texts_in_the_name_of_a_run(visit: Any, hostile: Hostile):
    page = visit(None, at=hostile.server)
    page.tab.goto(f"{page.url}/runs")
    names = page.tab.locator("#runs tbody th")
    expect(names).to_have_count(50)
    assert sorted(names.all_text_contents()) == sorted(FOLDERS)
    for box in page.tab.locator("#runs input:not(:checked)").all()[:4]:
        box.check()
    expect(page.tab.locator("#sampled option")).to_have_count(8)
    page.tab.locator("#curves summary").first.click()
    expect(page.tab.locator("#curves th", has_text="<").first).to_be_visible()
    assert page.tab.locator(MADE).count() == 0
    assert page.tab.locator("script").count() == 3
