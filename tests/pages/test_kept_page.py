"""What the page of `dragoman serve` keeps in the browser, and a glossary that is larger than what it can keep."""

import json
import random
import re
from typing import Any

import pytest
from playwright.sync_api import expect
from serving import Running, until
from test_live_page import OTHER, TEXT, answered, echo, fulfil
from visiting import BLOCKED, Visit

from dragoman.server.page import WEB
from dragoman.server.texts import MAX_TERMS
from dragoman.text.glossary import Glossary, parse_entry

AT_HOME = "#source=en&target=ko"
KEPT = "() => JSON.parse(localStorage.history ?? '[]').map(({ text, translation }) => [text, translation])"


def load_terms(page: Visit, lines: list[str]) -> None:
    file = {"name": "x.tsv", "mimeType": "text/plain", "buffer": "\n".join(lines).encode()}
    page.tab.locator("#open-terms").set_input_files(file)


# Without site data.


def test_page_without_site_data_translates_and_says_what_is_not_kept(visit, server: Running):
    page = visit(None)
    page.tab.add_init_script(BLOCKED)
    page.open(AT_HOME)
    page.type(TEXT)
    page.shows(answered(server, TEXT)[0])
    expect(page.tab.locator("#past")).to_be_hidden()
    page.tab.locator("#glossary > summary").click()
    load_terms(page, ["dog\t강아지"])
    expect(page.tab.locator("#terms-count")).to_have_text("(1)")
    page.tab.locator("#remember").click()
    expect(page.tab.locator("#remember")).not_to_be_checked()
    expect(page.tab.locator("#remember-fault")).to_contain_text("keeps nothing for this page")
    page.tab.get_by_role("button", name="Settings").click()
    page.tab.locator("#theme").select_option("dark")
    assert page.tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    page.tab.get_by_role("button", name="한국어").click()
    expect(page.tab.locator("#clear")).to_have_text("지우기")
    assert page.tab.evaluate("(() => { try { return localStorage; } catch { return 'blocked'; } })()") == "blocked"


# History.


def test_last_translations_come_back_and_can_be_cleared(visit, server: Running):
    page = visit(AT_HOME)
    tab = page.tab

    def keeps(*texts: str) -> None:
        expected = [[text, answered(server, text)[0]] for text in texts]
        until(lambda: tab.wait_for_timeout(50) or tab.evaluate(KEPT) == expected)

    page.type(TEXT)
    keeps(TEXT)
    page.type(f"{TEXT} {OTHER}")  # which goes on from it
    keeps(f"{TEXT} {OTHER}")
    page.type(OTHER)
    keeps(OTHER, f"{TEXT} {OTHER}")
    page.type("")
    page.open(AT_HOME)
    tab.locator("#past > summary").click()
    entries = tab.locator("#past-list button")
    expect(entries).to_have_count(2)
    entries.first.click()
    page.shows(answered(server, OTHER)[0])
    expect(tab.locator("#source")).to_have_value(OTHER)
    tab.locator("#past-clear").click()
    expect(entries).to_have_count(0)
    assert tab.evaluate("localStorage.history ?? null") is None
    tab.locator("#past-on").uncheck()
    page.type("The dog sees 3 cats.")
    tab.locator("#announcement", has_text="In Korean").wait_for(state="attached")
    tab.wait_for_timeout(1500)
    assert tab.evaluate("localStorage.history") == "off"


def test_door_is_closed_at_first_and_stays_as_it_was_left(visit):
    page = visit(None).open(AT_HOME, door=False)
    write = page.tab.locator("#write")
    expect(write).to_be_hidden()
    page.tab.locator("#door > summary").click()
    expect(write).to_be_visible()
    page.open(AT_HOME, door=False)
    expect(write).to_be_visible()


def test_tabs_are_changed_by_keys_and_keep_the_languages(visit):
    page = visit(AT_HOME)
    tab = page.tab
    tab.locator("#tab-text").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#tab-documents")).to_be_focused()
    for place, shown in (("#documents", True), ("#desk", False), ("#target-language", True), ("#glossary", True)):
        expect(tab.locator(place)).to_be_visible(visible=shown)
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator("#desk")).to_be_visible()
    expect(tab.locator("#documents")).to_be_hidden()


# A large glossary.

MANY = [f"term number {number}\tBegriff Nummer {number} aus einer langen Liste" for number in range(45_000)]


def test_terms_that_are_sent_are_those_that_the_text_has(visit):
    page = visit(AT_HOME)
    load_terms(page, [*MANY, "Dog\t강아지", "red  cats\t고양이", "horse\t말"])
    expect(page.tab.locator("#terms-count")).to_have_text("(45,003)", timeout=60_000)
    expect(page.tab.locator("#terms tbody tr")).to_have_count(200)
    page.type(f"{TEXT}\n{OTHER}")
    page.tab.locator("#output .word").first.wait_for()
    until(lambda: page.tab.wait_for_timeout(20) or all(page.lines()))
    first = page.asked[0]
    assert first["texts"] == [TEXT, OTHER]
    assert sorted(first["glossary"]) == ["Dog\t강아지", "red cats\t고양이"]
    page.tab.locator("#glossary > summary").click()
    page.tab.locator("#find-term").fill("horse")
    expect(page.tab.locator("#terms tbody tr")).to_have_count(1)


def test_glossary_that_does_not_fit_is_not_remembered_and_says_so(visit, server: Running):
    page = visit(AT_HOME)
    page.tab.locator("#glossary > summary").click()
    page.tab.locator("#remember").check()
    load_terms(page, ["dog\t강아지"])
    expect(page.tab.locator("#remember")).to_be_checked()
    assert "강아지" in page.stored()["glossary"]  # the control
    load_terms(page, [f"{line}, die in keinem Browser Platz hat, weil sie so viele Wörter hat" for line in MANY])
    expect(page.tab.locator("#remember")).not_to_be_checked()
    expect(page.tab.locator("#remember-fault")).to_contain_text("has no room")
    expect(page.tab.locator("#terms-count")).to_have_text("(45,001)", timeout=60_000)
    assert page.stored() == {}
    page.type(TEXT)
    page.shows(answered(server, TEXT, glossary=["dog\t강아지"])[0])


def test_glossary_of_more_terms_than_the_server_takes_is_refused(visit):
    (most,) = re.findall(r"const MOST_TERMS = ([\d_]+);", (WEB / "glossary.js").read_text(encoding="utf-8"))
    assert int(most) == MAX_TERMS
    page = visit(AT_HOME)
    page.tab.locator("#glossary > summary").click()
    load_terms(page, ["dog\t강아지"])
    load_terms(page, [f"x{number}\ty" for number in range(MAX_TERMS)])
    refused = "50,001 terms, and the server takes 50,000"
    expect(page.tab.locator("#terms-faults")).to_contain_text(refused, timeout=60_000)
    expect(page.tab.locator("#terms-count")).to_have_text("(1)")
    load_terms(page, [f"x{number}\ty" for number in range(MAX_TERMS - 1)])
    expect(page.tab.locator("#terms-count")).to_have_text("(50,000)", timeout=60_000)


LETTERS = [*"aBßéİςΣﬁK개가日本ー -.", "SS", "e\u0301", "무지", "\u00a0"]
SEARCH = """async ([lines, texts]) => {
  const { folded, Terms } = await import("/page/terms.js");
  const terms = new Terms(lines.map((line) => [folded(line.split("\\t")[0]), line]));
  return texts.map((text) => terms.within(text));
}"""


def test_terms_of_a_text_include_all_that_the_server_finds(visit):
    chance = random.Random(7)
    words = ["".join(chance.choices(LETTERS, k=chance.randint(1, 6))) for _ in range(600)]
    terms = list(dict.fromkeys(" ".join(word.split()) for word in words if word.strip()))[:300]
    lines = [f"{term}\tx\tany" for term in terms]
    texts = ["".join(chance.choices([*words, *LETTERS], k=12)) for _ in range(200)]
    glossary = Glossary([parse_entry(line, number) for number, line in enumerate(lines, start=1)])
    wanted = [{f"{match.entry.source}\tx\tany" for match in glossary.find(text)} for text in texts]
    found = visit(AT_HOME).tab.evaluate(SEARCH, [[parsed(line) for line in lines], texts])
    assert sum(map(len, wanted)) > 300
    assert [sorted(some - set(sent)) for some, sent in zip(wanted, found, strict=True) if some - set(sent)] == []
    assert max(map(len, found)) < len(lines) / 2  # the control: most are left out


def parsed(line: str) -> str:
    """A line whose term is written as the server has it."""
    return "\t".join([parse_entry(line, 1).source, *line.split("\t")[1:]])


@pytest.mark.slow
def test_key_press_with_a_large_glossary_is_quick_and_memory_stays(visit):
    """50 ms of script for a key, on two cores that do nothing else; the heap does not grow with lines times terms."""
    page = visit(AT_HOME)
    page.tab.route(
        "**/api/v1/translate", lambda route: fulfil(route, *map(echo, json.loads(route.request.post_data)["texts"]))
    )
    load_terms(page, MANY)
    expect(page.tab.locator("#terms-count")).to_have_text("(45,000)", timeout=60_000)
    press = """text => {
      const box = document.querySelector("#source");
      box.value = text;
      const began = performance.now();
      box.dispatchEvent(new InputEvent("input", { inputType: "insertText" }));
      return performance.now() - began;
    }"""
    heap = "performance.memory.usedJSHeapSize / 2 ** 20"
    times, heaps = [], []
    for number in range(5):
        text = "\n".join(f"{number} {line} has term number {line}." for line in range(100))
        times.append(page.tab.evaluate(press, text))
        page.shows(text)
        times.append(page.tab.evaluate(press, f"{text}x"))
        page.tab.wait_for_timeout(500)
        heaps.append(page.tab.evaluate(heap))
    rounded = [[round(value) for value in values] for values in (times, heaps)]
    print("key presses: {} ms; heap after each 100 lines: {} MiB".format(*rounded))
    assert sorted(times)[len(times) // 2] < 50
    assert heaps[-1] - heaps[0] < 40


# Words of which no term is offered.


@pytest.mark.parametrize(("word", "offered"), [("could", False), ("not", False), ("files", True)])
def test_term_is_offered_of_words_with_a_meaning(visit, word: str, offered: bool):
    page = visit(None)
    pairs = [{"source": "en", "target": "ko", "tag": "", "target_tag": ""}]

    def offer(route: Any) -> None:
        route.fulfill(json=route.fetch().json() | {"models": [{"pairs": pairs, "common": ["could"]}]})

    page.tab.route("**/api/v1/models", offer)
    text = "We could not files"
    known = {"alignment": [[number, number] for number in range(4)], "words": [], "others": []}
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(text, text="a b c d", **known)))
    page.open(AT_HOME)
    page.type(text)
    page.shows("a b c d")
    page.tab.locator("#output .word").nth(text.split().index(word)).click()
    page.tab.get_by_text(f"the model looked most at “{word}”").first.wait_for()
    expect(page.tab.locator("#always")).to_be_visible(visible=offered)
