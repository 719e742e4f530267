"""The page of a server with a memory: correct a translation, see it used, see where a word is from, forget the pair."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import expect
from serving import CONFIG, Running, running
from visiting import focus_word

from dragoman.server.keys import Key, digest
from dragoman.server.models import Models

pytest.importorskip("faiss")

TEXT, OTHER = "The dog sees 2 red cats.", "The cat likes 3 black bears."
BETTER, BEST = "개가 고양이 두 마리를 봐요.", "개가 빨간 고양이 두 마리를 봐요."


@pytest.fixture
def kept(remembering: Models) -> Iterator[Running]:
    with running(remembering, replace(CONFIG, memory=("memory",))) as started:
        yield started


def correct(tab, text: str) -> None:
    tab.locator("#better").fill(text)
    tab.locator("#suggestion-send").click()
    expect(tab.locator("#suggestion")).to_be_hidden()
    expect(tab.locator("#readout")).to_have_text("Thank you. It counts from now on.")


def test_correction_counts_at_once_names_itself_and_can_be_forgotten(visit, kept: Running):
    plain = kept.translate(TEXT).json["translatedText"]
    page = visit("#source=en&target=ko", at=kept)
    tab = page.tab
    page.type(f"{TEXT}\n{OTHER}")
    page.shows("\n".join(kept.translate([TEXT, OTHER]).json["translatedText"]))
    expect(tab.locator("#notes")).to_be_empty()
    tab.locator("#suggest").click()
    correct(tab, "\n".join([BETTER, kept.translate(OTHER).json["translatedText"]]))
    page.shows("\n".join(kept.translate([TEXT, OTHER]).json["translatedText"]))
    assert page.lines()[0] == BETTER
    expect(tab.locator("#notes")).to_contain_text("Line 1: From the memory, as it was approved (page, ")

    origin = tab.locator("#origin")
    focus_word(tab.locator("#output .word").nth(1))
    expect(origin).to_contain_text(f"As in “{TEXT}” → “{BETTER}” (page); share: ")
    origin.get_by_text("Correct this pair").click()
    expect(tab.locator("#corrected")).to_have_text(TEXT)
    expect(tab.locator("#better")).to_have_value(BETTER)
    correct(tab, BEST)
    expect(tab.locator("#output .line").first).to_have_text(BEST)
    assert [each["number"] for each in kept.ask("GET", "/api/v1/memories/en/ko").json["pairs"]] == [1]

    page.speak("ko")
    tab.locator("#output .word").nth(1).hover()
    expect(origin).to_contain_text(f"“{TEXT}” → “{BEST}”(page)에서 왔어요.")
    tab.locator("#output .word").nth(1).click()  # the way to the button leads over other words
    origin.get_by_text("이 번역 잊기").click()
    expect(origin).to_be_hidden()
    expect(tab.locator("#output .line").first).to_have_text(plain)
    assert kept.ask("GET", "/api/v1/memories/en/ko").json["pairs"] == []
    expect(tab.locator("#notes")).to_be_empty()


def test_pairs_of_others_have_no_buttons(visit, remembering: Models):
    with running(remembering, replace(CONFIG, memory=("memory",)), [Key(n, digest(n)) for n in ("a", "b")]) as server:
        body = {"pairs": [{"text": TEXT, "translation": BETTER}]}
        assert server.ask("POST", "/api/v1/memories/en/ko", body, Authorization="Bearer a").status == 201
        page = visit("#source=en&target=ko", at=server, expected=".*401.*")
        page.tab.locator("#key").fill("b")
        page.tab.locator("#key").press("Enter")
        page.type(TEXT)
        page.shows(BETTER)
        focus_word(page.tab.locator("#output .word").nth(1))
        expect(page.tab.locator("#origin")).to_contain_text("(a); share: ")
        expect(page.tab.locator("#origin button")).to_have_count(0)
