"""How sure the model is, on the page: shades of words, a legend that says what they are, and what to read first."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from serving import CONFIG, Running, running
from visiting import focus_word

from dragoman.server.models import Models
from dragoman.translation.translator import Translator

TEXTS = ["The dog sees 4 red cats.", "Bear the rabbit red.", "The cat likes 3 black bears."]
SENTENCES = " ".join(TEXTS[:2])


def asked(server: Running, *texts: str) -> list[dict[str, Any]]:
    """What the server says of texts and their words."""
    body = {"texts": texts, "source": "en", "target": "ko", "word_scores": True}
    return server.ask("POST", "/api/v1/translate", body).json["translations"]


def doubts(page: Any) -> list[float]:
    """How unsure the words of the translation are, as their lines show it."""
    read = "words => words.map(word => Number(word.style.getPropertyValue('--doubt')))"
    return page.tab.locator("#output .word").evaluate_all(read)


@pytest.mark.parametrize("measured", [True, False])
def test_words_are_shaded_by_confidence_where_the_model_knows_it(
    visit, sure_server: Running, server: Running, measured: bool
):
    at, limit = (sure_server, 0.5) if measured else (server, 0.9)
    label, korean = (
        ("How sure the model is of each word", "단어별 확신도")
        if measured
        else ("The model’s probability", "단어별 모델 확률")
    )
    (known,) = asked(at, SENTENCES)
    values = known["word_confidences"] if measured else [math.exp(log_p) for word, log_p in known["words"] if word]
    page = visit("#source=en&target=ko", at=at)
    page.type(SENTENCES)
    page.shows(known["text"])
    box, legend = page.tab.locator("#probabilities"), page.tab.locator("#readout")
    expect(page.tab.locator("#probabilities-label")).to_have_text(label)
    expect(page.tab.locator(".with-probabilities, .unsure")).to_have_count(0)  # before somebody asks
    box.check()
    expect(page.tab.locator("#output .unsure")).to_have_count(sum(value < limit for value in values))
    assert doubts(page) == pytest.approx([1 - value for value in values], abs=0.006)
    expect(legend).to_contain_text("stand where a good translation" if measured else "the other words share the rest")
    expect(box).to_have_attribute("title", legend.inner_text())
    page.speak("ko")
    expect(page.tab.locator("#probabilities-label")).to_have_text(korean)
    expect(box).to_have_attribute("title", legend.inner_text())


def test_least_sure_sentences_are_listed_first(visit, sure_server: Running, sure_model: Path):
    alone = Translator.load(sure_model, threads=1)
    page = visit("#source=en&target=ko", at=sure_server)
    page.type(f"{SENTENCES}\n{TEXTS[2]}\n12")
    expected = sorted((alone.translate(text).confidence, alone.translate(text).text, text) for text in TEXTS)
    reading = page.tab.locator("#reading")
    reading.wait_for()
    assert reading.get_attribute("open") is None
    reading.locator("summary").click()
    rows = reading.locator("li button")
    assert [row.partition(" ")[2] for row in rows.all_inner_texts()] == [text for _, text, _ in expected]
    shares = [float(row.partition("%")[0]) / 100 for row in rows.all_inner_texts()]
    assert shares == pytest.approx([sure for sure, *_ in expected], rel=0.051)
    for number, (_, text, _) in enumerate(expected):
        rows.nth(number).click()
        sentence = page.tab.evaluate("document.activeElement.closest('#output .sentence').textContent")
        assert sentence == text
    page.speak("ko")
    assert reading.locator("summary").inner_text() == "먼저 읽을 것"


def test_list_is_hidden_where_nothing_is_to_be_chosen(visit, server: Running, sure_server: Running):
    for at, text, hidden in ((sure_server, SENTENCES, False), (sure_server, TEXTS[0], True), (server, SENTENCES, True)):
        page = visit("#source=en&target=ko", at=at)
        page.type(text)
        page.shows(asked(at, text)[0]["text"])
        assert page.tab.locator("#reading").is_hidden() == hidden


def test_sentences_of_the_reader_have_no_confidence(visit, sure_server: Running):
    page = visit("#source=en&target=ko", at=sure_server)
    more = [*TEXTS, "Red red red.", "4 dogs", "A rabbit, the bear and 7 of the cats."]
    unsure = [sum(value < 0.5 for value in each["word_confidences"]) for each in asked(sure_server, *more)]
    second = max((1, 3, 4, 5), key=unsure.__getitem__)  # which one it is, is a matter of last bits
    texts = [more[0], more[second], more[2]]
    (known,) = asked(sure_server, "\n".join(texts))
    page.type("\n".join(texts))
    page.shows(known["text"])
    page.tab.locator("#probabilities").check()
    page.tab.locator("#reading summary").click()
    rows = page.tab.locator("#reading li")
    assert rows.count() == 3
    focus_word(page.tab.locator("#output .word").first)
    page.tab.keyboard.press("F2")
    page.tab.locator("#output textarea").fill("고양이")
    page.tab.keyboard.press("Enter")
    page.tab.locator("#steps").wait_for()
    assert rows.count() == 2
    line = page.tab.locator("#output .line")
    expect(line.nth(1).locator(".unsure")).to_have_count(unsure[second])
    assert unsure[second] > 0
    assert line.nth(0).locator(".unsure").count() == 0


def test_text_that_is_left_out_has_a_note(visit, sure_models: Models):
    with running(sure_models, replace(CONFIG, min_confidence=1.0)) as strict:
        page = visit("#source=en&target=ko", at=strict)
        page.type(TEXTS[0])
        page.tab.get_by_text(
            "Unlike the texts that the model has learned from: check it, or write it yourself."
        ).wait_for()
        assert page.lines() == [""]
        assert page.problems() == []


@pytest.mark.parametrize("dark", [False, True])
def test_page_with_confidences_is_accessible(visit, sure_server: Running, dark: bool):
    page = visit("#source=en&target=ko", at=sure_server, dark=dark)
    page.type("\n".join(TEXTS))
    page.tab.locator("#reading summary").click()
    page.tab.locator("#probabilities").check()
    page.tab.locator("#output .unsure").first.wait_for()
    assert page.problems() == []
