"""The page of `dragoman serve` in a real browser, against a real server: what people do, and what never happens."""

import contextlib
import hashlib
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from serving import CONFIG, Gate, Running, running, running_copying, until
from visiting import focus_word

from dragoman.inspection.page import EXPORT, IMPORT, page_script
from dragoman.server.keys import Key
from dragoman.server.models import Models, open_models, parse_models
from dragoman.server.page import INSPECTION, WEB, document, parts, parts_of, strings
from dragoman.server.reading import MAX_VALUES

TEXT = "The dog sees 2 red cats."
OTHER = "The cat likes 3 black bears."


# The files.


def test_served_files_are_those_in_the_pages_to_share(server: Running):
    script = page_script("page") + page_script("history")
    own = {file.name for file in [*WEB.glob("*.js"), *WEB.glob("*.css")]}
    shared = {file.name for file in [*INSPECTION.glob("*.js"), *INSPECTION.glob("*.css")]}
    assert own <= parts().keys() <= own | shared
    assert not own & shared
    assert {"map.js", "attention.js", "tree.js", "theme.css", "figures.css"} <= parts().keys()
    for name, content in parts().items():
        answer = server.ask("GET", f"/page/{name}")
        assert answer.body == content == ((WEB if name in own else INSPECTION) / name).read_bytes()
        kind = {".js": "text/javascript", ".css": "text/css"}[Path(name).suffix]
        assert answer.headers["content-type"].startswith(kind)
        if name in shared and name.endswith(".js"):
            assert EXPORT.sub("", IMPORT.sub("", content.decode())) in script
    for name in ("nothing.js", "page.js", "page.html", "strings.json", "..%2fpage.py", "%2e%2e/page.py"):
        assert server.ask("GET", f"/page/{name}").status == 404


def test_live_page_is_small_and_asks_for_its_files_only(server: Running):
    answer = server.ask("GET", "/")
    html = answer.body.decode()
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    for name in ("index", "runs"):
        first, later = parts_of(name), parts_of(name, later=True)
        assert sum(map(len, first.values())) < 140_000
        assert len(document(name).encode()) + sum(map(len, first.values())) < 195_000
        assert sum(map(len, later.values())) - sum(map(len, first.values())) < 60_000
    for name in ("inside", "attention", "map", "tree"):  # only for those who look inside
        assert f"{name}.js" in parts_of("index", later=True).keys() - parts_of("index").keys()
        assert f"page/{name}.js" not in html
    assert not re.search(r"\son\w+=|\sstyle=", html)
    assert not re.search(r"https?:", html)
    code = "".join(content.decode() for name, content in parts().items() if (WEB / name).exists())
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?:", code)


def test_live_page_has_its_texts_in_both_languages():
    own = [json.loads((WEB / f"{name}.json").read_text(encoding="utf-8")) for name in ("strings", "runs")]
    english, korean = (own[0][language] | own[1][language] for language in ("en", "ko"))
    assert not own[0]["en"].keys() & own[1]["en"].keys()
    places = [{key: set(re.findall(r"\{\d\}", text)) for key, text in texts.items()} for texts in (english, korean)]
    assert places[0] == places[1]
    everything = json.loads(strings("index"))["ko"] | json.loads(strings("runs"))["ko"]
    assert [text for text in everything.values() if "니다" in text] == []  # one tone, that of our other Korean texts
    assert english["key-list"].count("\n") == korean["key-list"].count("\n")
    code = "".join(file.read_text(encoding="utf-8") for file in WEB.glob("*.js"))
    used = set(re.findall(r"""\bt\("([^"]+)\"""", code))
    html = "".join(file.read_text(encoding="utf-8") for file in WEB.glob("*.html"))
    used |= set(re.findall(r'data-(?:t|label)="([^"]+)"', html))
    assert used <= json.loads(strings("runs"))["en"].keys()  # with those of the figures
    for key in english.keys() - used:
        assert f"t(`{key.split('.')[0]}." in code or f'"{key}"' in code, key


# In the browser.

# Drops a file with a text; true where the page lets the browser open it in its place.
DROP = """text => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([text], "x<b>.txt"));
  const options = { dataTransfer, bubbles: true, cancelable: true };
  const events = ["dragover", "drop"].map((type) => new DragEvent(type, options));
  return events.map((event) => document.body.dispatchEvent(event)).some(Boolean);
}"""


def answered(server: Running, *texts: str, **fields: Any) -> list[str]:
    """The translations that the server gives."""
    body = {"texts": list(texts), "source": "en", "target": "ko", **fields}
    return [one["text"] for one in server.ask("POST", "/api/v1/translate", body).json["translations"]]


def test_typed_text_is_translated_and_only_new_lines_are_asked_for(visit, server: Running):
    page = visit("#source=en&target=ko")
    first, second = answered(server, TEXT, OTHER)
    page.type(TEXT)
    page.shows(first)
    page.type(f"{TEXT}\n\n{OTHER}\n{TEXT}")
    page.shows(f"{first}\n\n{second}\n{first}")
    assert page.texts() == [[TEXT], [OTHER]]
    page.tab.locator("#source").press("Control+Enter")
    page.type("")
    page.shows("")
    page.type(TEXT)
    page.tab.locator("#source").press("Control+Enter")  # at once, and from memory
    page.shows(first)
    assert page.texts() == [[TEXT], [OTHER]]


def test_language_is_detected_and_languages_are_swapped(visit, trained: Path):
    pytest.importorskip("py3langid")
    opened = open_models(CONFIG, parse_models([f"en-ko={trained}", f"ko-en={trained}"], None))
    with running(opened, CONFIG) as both:
        page = visit("", at=both)
        tab = page.tab
        assert tab.locator("#swap").is_disabled()  # nothing is known yet
        assert tab.locator("#source-language option").all_inner_texts() == ["Detect language", "English", "Korean"]
        expect(tab.locator("#target-language")).to_have_value("en")  # as the page is
        page.type(TEXT)  # nobody wants English from English, unless they say so
        expect(tab.locator("#target-language")).to_have_value("ko")
        page.shows(answered(both, TEXT)[0])
        page.type("")
        tab.locator("#target-language").select_option("ko")
        page.type(TEXT)
        (new,) = answered(both, TEXT)
        page.shows(new)
        assert re.fullmatch(r"English, \d+ % sure", tab.locator("#detected").inner_text())
        half = f"{' ' * (1998 - len(TEXT))}😀"  # half of it is in the part of the text that is looked at
        page.type(f"{TEXT}\n{half}")
        page.shows(f"{new}\n{half}")
        page.type(TEXT)
        page.shows(new)
        assert tab.evaluate("[document.querySelector('#source').lang, document.querySelector('#output').lang]") == [
            "en", "ko",
        ]  # fmt: skip
        tab.locator("#swap").click()
        page.shows(answered(both, new, source="ko", target="en")[0])
        assert tab.locator("#source").input_value() == new
        assert tab.url.endswith("#source=ko&target=en")
        korean = "개가 빨간 고양이 두 마리를 봐요."
        tab.locator("#source-language").select_option("auto")
        tab.locator("#target-language").select_option("ko")
        page.type(korean)
        page.shows(korean)
        tab.get_by_text("This text is in Korean already.").wait_for()
        with tab.expect_download() as download:
            tab.locator("#save").click()
        assert Path(download.value.path()).read_text(encoding="utf-8") == korean
        page.open("#source=ko&target=en")  # as the reader of a link does who has the page open
        page.shows(answered(both, korean, source="ko", target="en")[0])
        assert tab.locator("#source-language").input_value() == "ko"
    opened.close(5)


def test_older_answer_never_replaces_a_newer_one(visit):
    page = visit("#source=en&target=ko")
    held: list[Any] = []

    def answer(route: Any) -> None:
        (text,) = json.loads(route.request.post_data)["texts"]
        if text == "old":
            held.append(route)
        else:
            fulfil(route, echo(text))

    page.tab.route("**/api/v1/translate", answer)
    page.type("old")
    until(lambda: page.tab.wait_for_timeout(20) or held)
    page.type("new")
    page.shows("new")
    with contextlib.suppress(Exception):  # its request was aborted
        fulfil(held[0], echo("old"))
    page.tab.wait_for_timeout(100)
    assert page.lines() == ["new"]
    assert not page.tab.locator("#desk").evaluate("desk => desk.classList.contains('working')")


def echo(line: str, **known: Any) -> dict[str, Any]:
    """A translation as the server gives it, which is the text unless something else is said."""
    segments = [{"source": [0, len(line)], "target": [0, len(line)]}]
    answer = {"text": line, "source": "en", "score": -1.0, "flags": [], "terms_met": [], "alternatives": []}
    answer["alternative_scores"] = [-2.0 for _ in known.get("alternatives", ())]
    return {**answer, "terms_missed": [], "segments": segments, **known}


def fulfil(route: Any, *translations: dict[str, Any]) -> None:
    route.fulfill(json={"translations": list(translations), "target": "ko"})


def test_translation_of_another_text_is_not_copied(visit):
    page = visit("#source=en&target=ko")
    page.type(TEXT)
    page.tab.locator("#output .word").first.wait_for()
    expect(page.tab.locator("#copy")).to_be_enabled()
    held: list[Any] = []
    page.tab.route("**/api/v1/translate", lambda route: held.append(route))
    page.type(OTHER)
    until(lambda: page.tab.wait_for_timeout(20) or held)
    for button in ("#copy", "#save"):
        expect(page.tab.locator(button)).to_be_disabled()
    fulfil(held[0], echo(OTHER))
    for button in ("#copy", "#save"):
        expect(page.tab.locator(button)).to_be_enabled()


def test_sentences_belong_together_on_both_sides(visit, server: Running):
    page = visit("#source=en&target=ko")
    page.type(f"{TEXT} {OTHER}\n{OTHER}")
    output = page.tab.locator("#output")
    output.locator(".line").nth(1).locator(".word").first.wait_for()
    assert output.locator(".sentence").count() == page.tab.locator("#mirror .sentence").count() == 3

    def looked(root: str) -> list[str]:
        return page.tab.locator(f"{root} .sentence.looked").all_text_contents()

    output.locator(".sentence").nth(1).locator(".word").first.hover()
    assert looked("#mirror") == [OTHER]
    assert looked("#output") == [output.locator(".sentence").nth(1).text_content()]
    # By keyboard: one stop for Tab, then arrows.
    page.tab.locator("#probabilities, #copy").first.focus()
    word = output.locator("[tabindex='0']")
    assert word.count() == 1
    word.focus()
    assert looked("#mirror") == [TEXT]
    page.tab.keyboard.press("End")
    assert looked("#mirror") == [OTHER]
    page.tab.keyboard.press("ArrowUp")
    assert output.locator(".sentence").nth(1).locator(".word").first.evaluate("word => word === document.activeElement")
    page.tab.keyboard.press("Enter")
    body = {"texts": [OTHER], "source": "en", "target": "ko", "others": True}
    if server.ask("POST", "/api/v1/translate", body).json["translations"][0]["others"][0] >= 0.05:
        page.tab.locator("#choices li button").first.wait_for()
        page.tab.keyboard.press("Escape")
        page.tab.locator("#choices").wait_for(state="hidden")
    output.locator(".sentence").first.locator(".word").first.hover()
    assert looked("#mirror") == [OTHER]  # pinned
    page.tab.keyboard.press("Escape")
    assert looked("#mirror") == []
    # From the source: by mouse and by caret.
    box = page.tab.locator("#mirror .word").first.bounding_box()
    page.tab.mouse.move(box["x"] + 3, box["y"] + 3)
    assert looked("#output") == [output.locator(".sentence").first.text_content()]
    page.tab.locator("#source").press("Control+End")
    assert looked("#output") == [output.locator(".sentence").nth(2).text_content()]


def test_characters_outside_of_the_basic_plane_do_not_shift_what_is_shaded(visit):
    page = visit("#source=en&target=ko")
    text, new = "😀 One. 🎉🎉 Two.", "하나 😀. 🎉🎉 둘."
    segments = [{"source": [0, 6], "target": [0, 5]}, {"source": [7, 14], "target": [6, 11]}]
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(text, text=new, segments=segments)))
    page.type(text)
    page.shows(new)
    assert page.tab.locator("#output .sentence").all_text_contents() == ["하나 😀.", "🎉🎉 둘."]
    assert page.tab.locator("#mirror .sentence").all_text_contents() == ["😀 One.", "🎉🎉 Two."]


def test_faults_are_said_in_words_and_lead_to_their_place(visit):
    page = visit("#source=en&target=ko")
    flags = ["loop", "lost {name}", "no brake pad"]
    page.tab.route(
        "**/api/v1/translate",
        lambda route: fulfil(
            route, echo("a", parts=3), echo("b b b", flags=flags, terms_met=["dog"], terms_missed=["brake pad"])
        ),
    )
    page.type("a\nb")
    notes = page.tab.locator("#notes li")
    notes.first.wait_for()
    assert notes.all_inner_texts() == [
        "Line 2 It repeats itself.",
        "Line 2 “{name}” is missing.",
        "Line 2 The term “brake pad” is not translated as the glossary says. Glossary",
        "Add another form of the translation to the glossary, after |, or choose other words in the sentence.",
        "Line 1: A sentence was too long for the model: it was translated in parts, which may not fit together.",
        "Terms used: dog",
    ]
    words = page.tab.locator("#output .flagged .word")
    for number in (0, 1):  # the first one, then the one that had the focus
        notes.first.locator("button").click()
        expect(words.nth(number)).to_be_focused()
        focus_word(words.nth(1))
    page.tab.unroute("**/api/v1/translate")
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo("c", flags=["loop"])))
    page.type("c")
    expect(notes).to_have_text(["It repeats itself. Show"])


def test_term_warning_is_about_its_sentence_and_leads_to_its_word(visit):
    page = visit("#source=en&target=ko")
    text, new = "One cat. Two category, a cat, and two dogs.", "하나 고양이. 둘 분류와 고양이 그리고 개."
    segments = [{"source": [0, 8], "target": [0, 7]}, {"source": [9, 43], "target": [8, 25]}]
    known = {
        "text": new,
        "segments": segments,
        "alignment": [[1, 1], [4, 4], [5, 4], [8, 6]],
        "words": [],
        "others": [],
    }
    expected = {  # the sentences that are underlined, and the word that is shown
        "no dogs": ([1], 6),
        "no a cat": ([1], 4),
        "no cat": ([0, 1], 1),
        "no and": ([1], 2),  # linked with no word: the first one of its sentence
        "has 고양이 그": ([1], 4),
        "lost {x}": ([0, 1], 0),  # it is nowhere
        "loop": ([0, 1], 0),
    }
    lines = [text + "!" * number for number in range(len(expected))]
    flags = dict(zip(lines, expected, strict=True))

    def answer(route: Any) -> None:
        texts = json.loads(route.request.post_data)["texts"]
        fulfil(route, *(echo(line, flags=[flags[line]], **known) for line in texts))

    page.tab.route("**/api/v1/translate", answer)
    page.type("\n".join(lines))
    page.shows("\n".join([new] * len(lines)))
    underlined = "all => all.flatMap((one, number) => (one.classList.contains('flagged') ? [number] : []))"
    for number, (sentences, word) in enumerate(expected.values()):
        line = page.tab.locator("#output .line").nth(number)
        assert line.locator(".sentence").evaluate_all(underlined) == sentences
        page.tab.locator("#notes li").nth(number).get_by_text(f"Line {number + 1}").click()
        expect(line.locator(".word").nth(word)).to_be_focused()


def test_term_is_sent_with_the_text_and_kept_only_if_asked(visit):
    page = visit("#source=en&target=ko")
    page.type(TEXT)
    page.tab.locator("#output .word").first.wait_for()
    page.tab.locator("#source").evaluate("box => (box.focus(), box.setSelectionRange(4, 7))")
    page.tab.locator("#output .word").first.dblclick()
    page.tab.locator("#glossary summary").click()
    button = page.tab.locator("#add-term")
    assert button.inner_text().startswith("Always translate “dog” as “")
    button.click()
    page.tab.get_by_label("Translation of term 1").fill("강아지|")  # another form is about to be written
    until(lambda: page.tab.wait_for_timeout(20) or ["dog\t강아지"] in [one.get("glossary") for one in page.asked])
    page.tab.wait_for_function("() => document.querySelector('#notes').textContent.includes('dog')")  # met or missed
    answer = lambda route: fulfil(route, echo(TEXT, text="강아지", terms_met=["cat"]))  # noqa: E731
    page.tab.route("**/api/v1/translate", answer)
    page.tab.locator("#add-term").click()
    page.tab.get_by_label("Term 2", exact=True).fill("cat")
    page.tab.get_by_label("Translation of term 2").fill("고양이|강아지")
    page.tab.get_by_text("Terms used: cat → 강아지").wait_for()
    page.tab.unroute("**/api/v1/translate")
    page.tab.get_by_role("button", name="Remove term 2").click()
    assert page.stored() == {}
    page.tab.locator("#remember").check()
    assert json.loads(page.stored()["glossary"]) == {"en-ko": [["dog", "강아지|", "match"]]}
    page.open()
    expect(page.tab.locator("#terms-count")).to_have_text("(1)")
    page.tab.locator("#glossary summary").click()
    with page.tab.expect_download() as download:
        page.tab.locator("#save-terms").click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == "dog\t강아지\n"
    page.tab.get_by_role("button", name="Remove term 1").click()
    page.tab.locator("#open-terms").set_input_files(
        {"name": "x.tsv", "mimeType": "text/plain", "buffer": "cat\t고양이|냥이\tany\n\nbad\n".encode()}
    )
    page.tab.get_by_label("Translation of term 1").wait_for()
    assert page.tab.get_by_label("Translation of term 1").input_value() == "고양이|냥이"
    page.tab.locator("#open-terms").set_input_files(
        {"name": "y.tsv", "mimeType": "text/plain", "buffer": "dog\t개\ncat\t냥\n".encode()}
    )
    page.tab.get_by_label("Translation of term 2").wait_for()  # a term that is there gets the new translation
    terms = [page.tab.get_by_label(f"Translation of term {number}").input_value() for number in (1, 2)]
    assert terms == ["냥", "개"]
    page.tab.locator("#remember").uncheck()
    assert page.stored() == {}


def test_term_that_costs_much_says_so_and_shows_the_sentence_without(visit):
    page = visit("#source=en&target=ko")
    scores = {"dear": -5.5, "cheap": -4.5}

    def answer(route: Any) -> None:
        body = json.loads(route.request.post_data)
        terms = [line.split("\t")[0] for line in body["glossary"]]
        met = [[term for term in terms if term in line] for line in body["texts"]]
        found = [
            echo(line, text=f"말 {line}" if own else line, terms_met=own, score=scores[line] if own else -1.0)
            for line, own in zip(body["texts"], met, strict=True)
        ]
        fulfil(route, *found)

    page.tab.route("**/api/v1/translate", answer)
    page.tab.locator("#glossary summary").click()
    for number, term in enumerate(scores, start=1):
        page.tab.locator("#add-term").click()
        page.tab.get_by_label(f"Term {number}", exact=True).fill(term)
        page.tab.get_by_label(f"Translation of term {number}").fill("말")
    page.type("cheap\ndear")
    unlikely = "Line 2 The model finds dear → 말 unlikely here. Read the sentence again. Glossary"
    notes = page.tab.locator("#notes li")
    expect(notes).to_have_text([f"{unlikely}Without it: dear", "Terms used: cheap → 말, dear → 말"])
    page.type("cheap")
    expect(notes).to_have_text(["Terms used: cheap → 말"])


def test_term_is_made_of_the_word_that_was_clicked(visit):
    page = visit("#source=en&target=ko")
    tab = page.tab
    known = {"segments": [{"source": [0, 11], "target": [0, 5]}], "alignment": [[0, 0], [1, 1]]}

    def answer(route):
        text = "귀한 빵." if json.loads(route.request.post_data).get("glossary") else "좋은 빵."
        fulfil(route, echo("Good bread.", text=text, **known))

    tab.route("**/api/v1/translate", answer)
    page.type("Good bread.")
    page.shows("좋은 빵.")
    button = tab.locator("#always")
    expect(button).to_be_hidden()
    tab.locator("#output .word").nth(1).click()
    expect(button).to_have_text("Always translate “bread” as “빵”")
    tab.locator("#choices li button").first.wait_for()  # or it would take the focus later
    tab.keyboard.press("Escape")
    tab.locator("#source").press("Home")  # into a word of the text, whose translation is for the reader to write
    expect(button).to_have_text("Always translate “Good” as …")
    # What is said and what is offered are about one word; the offers go with what is typed.
    out = tab.get_by_role("button", name="Try without “Good”")
    tab.locator("#code > summary").hover()  # away from the word that was clicked
    tab.locator("#output .word").nth(1).hover()
    expect(tab.locator("#readout")).to_contain_text("“빵.”")
    expect(button).to_be_hidden()
    tab.locator("#code > summary").hover()
    expect(button).to_be_visible()
    expect(tab.locator("#readout")).to_have_text("")
    expect(out).to_be_visible()
    tab.locator("#source").press("x")
    expect(button).to_be_hidden()
    expect(out).to_be_hidden()
    tab.locator("#source").press("Backspace")
    page.shows("좋은 빵.")
    tab.locator("#source").press("Home")
    out.wait_for()
    focus_word(tab.locator("#output .word").nth(1))
    expect(out).to_be_hidden()
    tab.locator("#source").press("Home")
    expect(button).to_have_text("Always translate “Good” as …")
    button.click()
    expect(tab.get_by_label("Translation of term 1")).to_be_focused()
    tab.keyboard.type("맛있는")
    sent = lambda terms: until(lambda: tab.wait_for_timeout(20) or terms in [one.get("glossary") for one in page.asked])  # noqa: E731
    sent(["Good\t맛있는"])
    page.shows("귀한 빵.")  # words that are drawn anew would lose the focus
    focus_word(tab.locator("#output .word").nth(1))
    tab.keyboard.press("ArrowLeft")
    expect(button).to_have_text("Always translate “Good” as “귀한”")
    button.press("Enter")
    sent(["Good\t귀한"])
    expect(tab.locator("#terms tbody tr")).to_have_count(1)
    expect(button).to_have_text("Undo: “Good” is now always “귀한”")  # in the same place
    expect(button).to_be_focused()
    button.press("Enter")
    expect(tab.get_by_label("Translation of term 1")).to_have_value("맛있는")
    expect(button).to_be_hidden()
    page.type("")
    expect(button).to_be_hidden()


def test_new_term_takes_only_what_is_selected_and_still_stands(visit):
    page = visit("#source=en&target=ko")
    tab = page.tab
    tab.route(
        "**/api/v1/translate", lambda route: fulfil(route, *map(echo, json.loads(route.request.post_data)["texts"]))
    )
    page.type("one two")
    page.shows("one two")
    tab.locator("#glossary summary").click()
    source, button = tab.locator("#source"), tab.locator("#add-term")
    source.press("Control+a")
    tab.locator("#output .word").first.dblclick()
    expect(button).to_have_text("Always translate “one two” as “one”")
    page.speak("ko")
    page.speak("en")
    expect(button).to_have_text("Always translate “one two” as “one”")  # still selected
    source.press("Control+a")
    tab.keyboard.type("three")
    page.shows("three")
    expect(button).to_have_text("Add a term")
    button.click()
    assert [field.input_value() for field in tab.locator("#terms tbody input").all()] == ["", ""]


def test_lines_that_are_no_terms_are_named_and_the_others_kept(visit):
    page = visit("#source=en&target=ko")
    tab = page.tab
    tab.locator("#glossary summary").click()
    lines = ["# ours", "dog\t개\tany", "no tab", "", "cat\t고양이|", "a\tb\texact\td", "red\t빨간\tmaybe"]
    lines += ["bear\t곰", "x" * 201 + "\tx", "dog\t강아지"]
    buffer = ("\ufeff" + "\r\n".join(lines)).encode()
    tab.locator("#open-terms").set_input_files({"name": "x.tsv", "mimeType": "text/plain", "buffer": buffer})
    expect(tab.locator("#terms-faults p")).to_have_text("Terms taken: 2. Lines left out: 6")
    assert tab.locator("#terms-faults li").all_inner_texts() == [
        "Line 3: no tab between the term and its translation",
        "Line 5: the term or a translation is empty",
        "Line 6: more than three columns",
        "Line 7: “maybe” is not a rule for upper and lower case: match, exact, any",
        "Line 9: more than 200 characters",
        "Line 10: “dog” is on line 2 already",
    ]
    fields = tab.locator("#terms tbody input")
    assert [field.input_value() for field in fields.all()] == ["dog", "개", "bear", "곰"]
    tab.locator("#open-terms").set_input_files({"name": "no.tsv", "mimeType": "text/plain", "buffer": b"\n"})
    expect(tab.locator("#terms-faults p")).to_have_text("Terms taken: 0. Lines left out: 0")
    tab.locator("#add-term").click()  # an empty row does not stay beside lines that are pasted into it
    tab.evaluate("navigator.clipboard.writeText('cat\\t고양이\\nhound')")
    fields.last.press("Control+v")  # lines do not become one term
    expect(tab.locator("#terms-faults li")).to_have_text(["Line 2: no tab between the term and its translation"])
    expect(tab.locator("#add-term")).to_be_focused()  # the field that had the focus is gone
    assert [field.input_value() for field in fields.all()] == ["dog", "개", "bear", "곰", "cat", "고양이"]
    tab.evaluate("navigator.clipboard.writeText('cat\\t야옹이')")
    fields.first.press("Control+v")  # which term has another translation now is said
    expect(tab.locator("#terms-faults li")).to_have_text(
        ["“cat” was translated as “고양이”, and is now translated as “야옹이”."]
    )
    tab.evaluate("navigator.clipboard.writeText('hound')")
    fields.first.press("Control+a")
    fields.first.press("Control+v")
    assert fields.first.input_value() == "hound"
    twice = tab.locator("#terms-twice")
    expect(twice).to_have_text("")
    tab.get_by_label("Term 3", exact=True).fill(" bear")  # of what is typed, too, one entry counts
    expect(twice).to_have_text("Line 3: “bear” is on line 2 already.")
    tab.get_by_label("Translation of term 3").fill("")  # not written yet
    expect(twice).to_have_text("")


def test_terms_are_compared_once_for_each_key(visit):
    tab = visit("#source=en&target=ko").tab
    tab.evaluate(
        """() => {
          const { normalize } = String.prototype;
          window.compared = 0;
          String.prototype.normalize = function (...how) { compared += 1; return normalize.apply(this, how); };
        }"""
    )
    count, target = 150, tab.get_by_label("Translation of term 1", exact=True)
    terms = "".join(f"x{number}\ty\n" for number in range(count))
    tab.locator("#glossary summary").click()
    for wanted in ("y", "z"):  # the second time, all are there already
        file = {"name": "x.tsv", "mimeType": "text/plain", "buffer": terms.replace("y", wanted).encode()}
        tab.locator("#open-terms").set_input_files(file)
        expect(target).to_have_value(wanted)
    assert count < tab.evaluate("compared") < 20 * count
    tab.evaluate("compared = 0")
    target.press("a")
    expect(tab.locator("#desk.working")).to_have_count(0)
    assert tab.evaluate("compared") < 10  # only the one that was changed


def test_notes_move_nothing_below_the_boxes(visit):
    page = visit("#source=en&target=ko", width=1280)
    place = "document.querySelector('#alternatives').getBoundingClientRect().top + scrollY"
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo("a b", flags=["loop"], terms_met=["dog"])))
    notes = page.tab.locator("#notes li")
    for width in (1280, 390):
        page.type("")
        page.tab.mouse.move(0, 0)
        expect(notes).to_have_count(0)
        page.tab.set_viewport_size({"width": width, "height": 800})
        before = page.tab.evaluate(place)
        page.type("a b")
        expect(notes).to_have_count(2)
        assert page.tab.evaluate(place) == pytest.approx(before, abs=1)
        page.tab.locator("#output .word").first.hover()
        page.tab.get_by_text("The model’s attention links “a” with no word.").wait_for()
        assert page.tab.evaluate(place) == pytest.approx(before, abs=1)


def test_live_page_without_documents_says_how_to_turn_them_on(visit):
    page = visit("#source=en&target=ko")
    assert page.tab.evaluate(DROP, TEXT) is False
    page.tab.get_by_text("dragoman serve … --state FOLDER").wait_for()
    assert page.tab.locator("#documents > :visible").count() == 1
    expect(page.tab.locator("#tab-documents")).to_have_attribute("aria-selected", "true")


def test_cleared_text_comes_back_and_an_impossible_swap_is_hidden(visit, server: Running):
    page = visit("#source=en&target=ko")
    page.type(TEXT)
    page.shows(answered(server, TEXT)[0])
    page.tab.locator("#clear").click()
    page.shows("")
    assert page.tab.locator("#source").input_value() == ""
    page.tab.keyboard.press("Control+z")
    page.shows(answered(server, TEXT)[0])
    assert page.tab.locator("#source").input_value() == TEXT
    page.tab.locator("#output .word").first.focus()
    page.tab.keyboard.press("Control+z")  # of the translation, nothing is left to take back
    assert page.tab.locator("#source").input_value() == TEXT
    expect(page.tab.locator("#swap")).to_be_hidden()


def test_terms_that_are_met_and_missed_are_told_apart(visit, models: Models):
    with running_copying(models, CONFIG, "copies") as copying:
        page = visit("#source=en&target=ko", at=copying)
        page.tab.locator("#glossary summary").click()
        terms = {"name": "x.tsv", "mimeType": "text/plain", "buffer": b"dog\tdog|hound\nred cats\tfelines\n"}
        page.tab.locator("#open-terms").set_input_files(terms)
        page.type(TEXT)
        page.shows(TEXT)
        missed = "The term “red cats” is not translated as the glossary says. Show Glossary"
        expect(page.tab.locator("#notes li")).to_have_text(
            ["It looks like a copy of the text. Show", missed, re.compile("^Add another form"), "Terms used: dog → dog"]
        )
        assert page.tab.locator("#output .flagged").count() == 1
        page.tab.locator("#glossary summary").click()  # which opens again
        page.tab.get_by_role("button", name="Glossary").click()
        expect(page.tab.get_by_label("Translation of term 2")).to_be_focused()
        assert page.tab.locator("#glossary").evaluate("part => part.open")


def test_early_steps_before_languages_are_known_are_not_lost(visit):
    held: list[Any] = []
    page = visit(None)
    page.tab.route("**/api/v1/models", lambda route: held.append(route))
    page.tab.goto(f"{page.url}/#source=en&target=ko")
    page.type(TEXT)
    page.tab.wait_for_timeout(600)  # longer than the pause after the last key
    assert page.tab.locator("#glossary").is_hidden()  # a term belongs to two languages
    assert page.tab.locator("#trouble").is_hidden()
    held.pop().continue_()
    page.tab.locator("#output .word").first.wait_for()
    assert page.tab.locator("#glossary").is_visible()


def test_request_as_code_is_the_one_that_is_sent(visit, server: Running):
    page = visit("#source=en&target=ko")
    text = 'It\'s "2" cats.\n\\n $HOME `x`'
    page.type(text)
    page.tab.locator("#output .word").first.wait_for()
    page.tab.locator("#code summary").click()
    shown = page.tab.locator("#code-text", has_text="curl")
    shown.wait_for()  # the panel is filled once it is open
    curl = shown.inner_text()
    shown = page.tab.locator("#code-text")
    page.tab.get_by_label("JSON").check()
    body = json.loads(shown.inner_text())
    assert body == {"texts": text.split("\n"), "source": "en", "target": "ko"}
    assert f"'{server.url}/api/v1/translate'" in curl
    assert json.loads(curl.partition("-d '")[2].removesuffix("'").replace("'\\''", "'")) == body
    page.tab.get_by_label("Python").check()
    code = shown.inner_text()
    printed: list[str] = []
    exec(compile(code, "page", "exec"), {"print": printed.append})  # what people paste
    assert printed == answered(server, *body["texts"])
    page.tab.locator("#copy-code").click()
    assert page.tab.evaluate("navigator.clipboard.readText()") == code


def test_other_translations_are_listed_when_asked_for(visit, server: Running):
    page = visit("#source=en&target=ko")
    page.type(TEXT)
    page.tab.locator("#output .word").first.wait_for()
    page.tab.locator("#alternatives summary").click()
    page.tab.locator("#alternative-list tbody tr").first.wait_for()
    body = {"texts": [TEXT], "source": "en", "target": "ko", "alternatives": 7}
    (found,) = server.ask("POST", "/api/v1/translate", body).json["translations"]
    rows = page.tab.locator("#alternative-list tbody tr")
    assert rows.locator("span").all_text_contents() == [found["text"], *found["alternatives"]]
    scores = [float(text.replace("−", "-")) for text in rows.locator("td:nth-child(3)").all_text_contents()]
    assert scores == pytest.approx([found["score"], *found["alternative_scores"]], abs=0.00501)
    assert scores == sorted(scores, reverse=True)
    page.speak("ko")
    expect(page.tab.locator("#alternative-list th")).to_have_text(["순위", "번역문", "점수", "복사"])


def test_words_belong_together_as_the_server_aligns_them(visit, server: Running):
    page = visit("#source=en&target=ko")
    page.type(f"{OTHER}\n{TEXT}")
    (new,) = answered(server, TEXT)
    page.shows(f"{answered(server, OTHER)[0]}\n{new}")
    body = {"texts": [TEXT], "source": "en", "target": "ko", "alignment": True}
    links = server.ask("POST", "/api/v1/translate", body).json["translations"][0]["alignment"]
    roots = [page.tab.locator(f"{root} .line").nth(1).locator(".word") for root in ("#mirror", "#output")]
    texts = [TEXT.split(), new.split()]
    assert [root.all_text_contents() for root in roots] == texts
    linked = "words => words.flatMap((word, number) => (word.classList.contains('linked') ? [number] : []))"

    def wait_for(expected: list[list[int]]) -> None:
        until(lambda: page.tab.wait_for_timeout(20) or [root.evaluate_all(linked) for root in roots] == expected)

    for number in range(len(texts[1])):  # from the translation
        roots[1].nth(number).hover()
        wait_for([[source for source, target in links if target == number], [number]])
    for number in range(len(texts[0])):  # from the text
        box = roots[0].nth(number).bounding_box()
        page.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        wait_for([[number], sorted(target for source, target in links if source == number)])
    _, target = links[0]
    focus_word(roots[1].nth(target))
    words = "”, “".join(texts[0][one] for one, other in links if other == target)
    page.tab.get_by_text(f"While writing “{texts[1][target]}”, the model looked most at “{words}”.").first.wait_for()
    assert sum("alignment" in one for one in page.asked) == 1  # for the line that was looked at, once


def test_probabilities_are_numbers_of_the_model(visit, server: Running):
    page = visit("#source=en&target=ko")
    page.type(TEXT)
    page.tab.locator("#output .word").first.wait_for()
    page.tab.locator("#probabilities").check()
    expect(page.tab.locator("#readout")).to_contain_text("the other words share the rest")
    body = {"texts": [TEXT], "source": "en", "target": "ko", "word_scores": True}
    words = server.ask("POST", "/api/v1/translate", body).json["translations"][0]["words"]
    expected = [math.exp(log_p) for word, log_p in words if word]
    page.tab.wait_for_function("() => document.querySelector('#output .word').style.getPropertyValue('--doubt')")
    shown = page.tab.locator("#output .word").evaluate_all(
        "words => words.map(word => [word.style.getPropertyValue('--doubt'), word.dataset.probability ?? ''])"
    )
    assert [1 - float(doubt) for doubt, _ in shown] == pytest.approx(expected, abs=0.00501)
    assert [bool(number) for _, number in shown] == [probability < 0.9 for probability in expected]
    assert [float(number) for _, number in shown if number] == pytest.approx(
        [probability for probability in expected if probability < 0.9], abs=0.00501
    )


def test_documents_are_dropped_translated_saved_and_deleted(visit, gated: tuple[Models, Gate], tmp_path: Path):
    models, gate = gated
    gate.open.set()
    with running(models, replace(CONFIG, state=str(tmp_path))) as keeping:
        page = visit("#source=en&target=ko", at=keeping, expected="Failed to load resource")
        tab = page.tab
        tab.evaluate(DROP, f"{TEXT}\n\n{OTHER}\n")
        item = tab.locator("#document-list > li")
        item.get_by_text("translated; texts: 2").wait_for()
        asks = "dispatchEvent(new Event('beforeunload', { cancelable: true }))"  # false: whoever leaves loses something
        assert not tab.evaluate(asks)
        assert item.locator("b").all_inner_texts() == ["x<b>.txt"]
        tab.route("**/api/v1/documents/*/content", lambda route: route.abort())
        item.get_by_role("button", name="Save").click()
        expect(item).to_contain_text("The server does not answer. Try again in a moment.")
        tab.unroute("**/api/v1/documents/*/content")
        with tab.expect_download() as download:
            item.get_by_role("button", name="Save").click()
        assert download.value.suggested_filename == "x_b__ko.txt"
        expected = "{}\n\n{}\n".format(*answered(keeping, TEXT, OTHER))
        assert Path(download.value.path()).read_text(encoding="utf-8") == expected
        item.get_by_text("saved, and deleted on the server").wait_for()
        assert tab.evaluate(asks)
        expect(tab.locator("#document")).to_be_focused()  # the button is gone
        until(lambda: not list(tmp_path.glob("documents/*.json")))
        # One of which something is wrong, with the lines.
        faults = [{"line": 0, "flag": "all of it"}, {"line": 7, "flag": "loop"}]
        done = {"id": "x", "name": "odd.txt", "status": "done", "texts": 2, "translated": 2, "faults": faults}
        tab.route("**/api/v1/documents", lambda route: route.fulfill(status=201, json=done))
        tab.route("**/api/v1/documents/x", lambda route: route.fulfill(status=204))
        tab.evaluate(DROP, TEXT)
        item.nth(1).locator("li").first.wait_for()
        assert item.nth(1).locator("li").all_inner_texts() == ["all of it", "Line 7: It repeats itself."]
        page.speak("ko")
        korean = "저장했고, 서버에서는 지웠어요"
        expect(item.nth(0)).to_have_text(f"x<b>.txt  {korean} 제거")
        expect(item.nth(1).locator("button")).to_have_text(["저장", "삭제"])
        expect(item.nth(1).locator("li").nth(1)).to_contain_text("7번째 줄: ")
        page.speak("en")
        expect(item.nth(1).locator("button")).to_have_text(["Save", "Delete"])
        tab.unroute("**/api/v1/documents")
        item.nth(1).get_by_role("button", name="Delete").click()
        # One that takes long, and is cancelled; one that is no document.
        gate.open.clear()
        many = "".join(f"The dog sees {number} red cats.\n" for number in range(200))
        tab.locator("#document").set_input_files(
            {"name": "long.txt", "mimeType": "text/plain", "buffer": many.encode()}
        )
        tab.get_by_text("of 200 texts").wait_for()
        assert len(list(tmp_path.glob("documents/*.json"))) == 1
        tab.get_by_role("button", name="Cancel").and_(tab.locator("li button")).click()
        until(lambda: not list(tmp_path.glob("documents/*.json")))
        expect(item).to_have_count(1)
        item.get_by_role("button", name="Remove").click()
        expect(item).to_have_count(0)
        refused = "The server cannot use this file: not JSON (a key in quotes is missing)"
        for name, content, message in (
            ("no.txt", b"", "The file is empty."),
            ("no.txt", b" ", "The file is empty."),
            ("no.json", b"{", refused),
        ):
            tab.locator("#document").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})
            expect(item.last).to_contain_text(f"{name}  {message}")
            expect(item.last.get_by_role("button")).to_have_text(["Remove"])
        assert tab.evaluate(asks)
        tab.locator("#document").set_input_files({"name": "no.doc", "mimeType": "text/plain", "buffer": b"x"})
        expect(item.last).to_contain_text("no.doc  Documents of this kind are not translated. Formats: .txt .html")
        # What could not be sent can be sent again.
        tab.route("**/api/v1/documents", lambda route: route.abort())
        tab.locator("#document").set_input_files({"name": "b.txt", "mimeType": "text/plain", "buffer": b"A dog."})
        expect(item.last).to_contain_text("b.txt  The server does not answer.")
        tab.unroute("**/api/v1/documents")
        gate.open.set()
        count = item.count()
        item.last.get_by_role("button", name="Try again").click()
        expect(item.last).to_contain_text("translated; texts: 1")
        assert item.count() == count


def test_document_is_asked_for_again_after_no_answer(visit, models: Models, tmp_path: Path):
    with running(models, replace(CONFIG, state=str(tmp_path))) as keeping:
        tab = visit("#source=en&target=ko", at=keeping, expected="Failed to load resource").tab
        tab.evaluate("() => { const wait = setTimeout; window.setTimeout = (then, time) => wait(then, time / 20); }")
        begun = {"id": "x", "name": "a.txt", "status": "queued", "texts": 2, "translated": 0, "faults": []}
        busy = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"error": {"message": "busy"}}}
        answers = iter([None, busy, {"json": {**begun, "status": "done"}}])
        tab.route("**/api/v1/documents", lambda route: route.fulfill(status=201, json=begun))
        tab.route(
            "**/api/v1/documents/x", lambda route: route.fulfill(**found) if (found := next(answers)) else route.abort()
        )
        tab.evaluate(
            """() => {
              window.said = [];
              const list = document.querySelector("#document-list");
              const note = () => said.push(list.querySelector("span")?.textContent);
              new MutationObserver(note).observe(list, { childList: true, subtree: true });
            }"""
        )
        tab.evaluate(DROP, TEXT)
        tab.get_by_text("translated; texts: 2").wait_for()
        passing = ["The server does not answer. Try again in a moment.", "The server is busy."]
        said = list(dict.fromkeys(tab.evaluate("said")))
        assert said == ["sending …", "0 of 2 texts", *passing, "translated; texts: 2"]


def test_document_goes_with_a_glossary_of_many_terms(visit, models: Models, tmp_path: Path):
    with running(models, replace(CONFIG, state=str(tmp_path))) as keeping:
        tab = visit("#source=en&target=ko", at=keeping).tab
        terms = [*(f"x{number}\ty" for number in range(MAX_VALUES)), "dog\t강아지"]
        file = {"name": "x.tsv", "mimeType": "text/plain", "buffer": "\n".join(terms).encode()}
        tab.locator("#open-terms").set_input_files(file)
        expect(tab.locator("#terms-count")).to_have_text(f"({len(terms):,})")
        tab.evaluate(DROP, TEXT)
        tab.get_by_text("translated; texts: 1").wait_for()
        (file,) = tmp_path.glob("documents/*.result")
        content = keeping.ask("GET", f"/api/v1/documents/{file.stem}/content").body
        assert content.decode() == answered(keeping, TEXT, glossary=["dog\t강아지"])[0] != answered(keeping, TEXT)[0]


# When something goes wrong.


def test_busy_server_is_asked_again_when_it_says(visit, server: Running):
    page = visit("#source=en&target=ko", expected="503")
    times = []

    def refuse_once(route: Any) -> None:
        times.append(1)
        if len(times) == 1:
            route.fulfill(status=503, headers={"Retry-After": "2"}, json={"error": {"message": "busy"}})
        else:
            route.continue_()

    page.tab.route("**/api/v1/translate", refuse_once)
    page.type(TEXT)
    page.tab.get_by_text("again in 2 s").wait_for()
    assert page.tab.locator("#trouble").inner_text().startswith("The server is busy.")
    page.shows(answered(server, TEXT)[0])
    assert not page.tab.locator("#trouble").is_visible()


def test_long_text_appears_bit_by_bit_and_goes_on_after_a_refusal(visit):
    page = visit("#source=en&target=ko", expected="503")
    lines = [f"{number} {'word ' * 120}end." for number in range(9)]
    asked: list[list[str]] = []

    def answer(route: Any) -> None:
        asked.append(json.loads(route.request.post_data)["texts"])
        if len(asked) == 2:
            route.fulfill(status=503, headers={"Retry-After": "1"}, json={"error": {"message": "late"}})
        else:
            fulfil(route, *map(echo, asked[-1]))

    page.tab.route("**/api/v1/translate", answer)
    page.type("\n".join(lines))
    page.tab.get_by_text("The server is busy.").wait_for()
    assert page.lines() == lines[:3] + [""] * 6
    page.shows("\n".join(lines))
    assert asked == [lines[:3], lines[3:6], lines[3:6], lines[6:]]


def test_request_that_takes_too_long_says_what_to_do(visit):
    page = visit("#source=en&target=ko", expected="503")
    message = "the translation took longer than 30 seconds: send fewer or shorter texts"
    answer = {"status": 503, "headers": {"Retry-After": "1"}, "json": {"error": {"message": message}}}
    page.tab.route("**/api/v1/translate", lambda route: route.fulfill(**answer))
    page.type(TEXT)
    page.tab.get_by_text("Shorten the text or the glossary").wait_for()
    assert page.tab.get_by_role("button", name="Try again").is_visible()
    assert not page.tab.get_by_text("again in").is_visible()  # it would be as late again


def test_text_stays_without_a_server_and_is_translated_later(visit, server: Running):
    page = visit("#source=en&target=ko", expected="ERR_FAILED")
    page.type(f"{OTHER}\n{OTHER}")
    old, new = answered(server, OTHER, TEXT)
    page.shows(f"{old}\n{old}")
    page.tab.route("**/api/v1/translate", lambda route: route.abort())
    page.type(f"{OTHER}\n{TEXT}")
    page.tab.get_by_text("The server does not answer.").wait_for()
    assert page.lines() == [old, old]
    assert page.tab.locator("#output .line.stale").count() == 1  # the one that belongs to another text
    expect(page.tab.locator("#copy")).to_be_disabled()
    page.tab.unroute("**/api/v1/translate")
    page.tab.get_by_role("button", name="Try again").click()
    page.shows(f"{old}\n{new}")
    assert page.tab.locator("#output .line.stale").count() == 0
    expect(page.tab.locator("#copy")).to_be_enabled()


def test_panels_without_a_server_say_so_and_can_be_tried_again(visit):
    page = visit("#source=en&target=ko", expected="ERR_FAILED")
    tab = page.tab
    page.type(TEXT)
    word = tab.locator("#output .word").first
    word.wait_for()
    for path in ("api/v1/translate", "page/inside.js?*"):
        tab.route(f"**/{path}", lambda route: route.abort())
    for panel in ("#alternatives", "#heads"):
        tab.locator(f"{panel} summary").click()
    again = tab.get_by_role("button", name="Try again")
    expect(again).to_have_count(2)
    with tab.expect_event("requestfailed"):
        word.hover()
    tab.unroute_all()
    again.first.click()
    expect(tab.locator("#alternative-list tbody tr").first).to_be_visible()
    again.click()
    expect(tab.locator("#heads-table tbody tr").first).to_be_visible()
    expect(again).to_have_count(0)
    assert tab.locator("#readout").inner_text() == ""  # not that the word is linked with none
    word.hover()
    expect(tab.locator("#readout")).to_contain_text(re.compile("looked most at|links"))


def test_text_that_is_too_long_is_not_sent(visit):
    page = visit("#source=en&target=ko")
    page.type("😀" * 100_001)
    page.tab.get_by_text("The text has 100,001 characters").wait_for()
    assert page.tab.locator("#count.warning").is_visible()
    assert page.asked == []


def test_api_key_lasts_for_the_tab_or_longer_if_asked(visit, models: Models):
    with running(models, CONFIG, [Key("me", hashlib.sha256(b"secret").hexdigest(), 0)]) as locked:
        page = visit(None, at=locked, expected="40")
        page.open("#source=en&target=ko", door=False)
        tab = page.tab
        expect(tab.locator("#desk")).to_be_hidden()  # without a key, nothing there is of use
        field = tab.get_by_label("This server needs a key.")
        expect(field).to_be_focused()
        assert page.problems() == []
        field.fill("wrong")
        field.press("Enter")
        field = tab.get_by_label("The server does not accept this key.")
        field.fill("secret")
        field.press("Enter")
        page.type(TEXT)
        tab.locator("#output .word").first.wait_for()
        kept = "[localStorage, sessionStorage].map((area) => area.getItem('key'))"
        assert tab.evaluate(kept) == [None, "secret"]
        assert "secret" not in tab.evaluate("location.href + document.cookie")
        page.open("#source=en&target=ko")  # again, with the text
        tab.locator("#output .word").first.wait_for()
        assert tab.locator("#source").input_value() == TEXT
        tab.get_by_role("button", name="Settings").click()
        tab.get_by_role("button", name="Sign out").click()
        tab.locator("#key-remember").check()
        tab.locator("#key").fill("secret")
        tab.locator("#key").press("Enter")
        tab.locator("#output .word").first.wait_for()
        assert tab.evaluate(kept) == ["secret", None]
        tab.evaluate("sessionStorage.clear()")
        page.open("#source=en&target=ko")
        page.type(TEXT)
        tab.locator("#output .word").first.wait_for()
        other = {"status": 403, "json": {"error": {"message": "there are 1000 already"}}}  # which no key would change
        tab.route("**/api/v1/translate", lambda route: route.fulfill(**other))
        page.type(OTHER)
        expect(tab.locator("#trouble")).to_have_text("there are 1000 already")


# Nothing leaves, nothing runs.


def test_text_is_in_no_address_cookie_or_log(visit, capfd: pytest.CaptureFixture[str]):
    page = visit("#source=en&target=ko")
    page.type("The secret dog sees 2 cats.")
    page.tab.locator("#output .word").first.wait_for()
    assert page.stored() == {}
    assert page.tab.evaluate("Object.keys(sessionStorage)") == ["text"]
    assert page.tab.evaluate("document.cookie") == ""
    assert page.tab.evaluate("indexedDB.databases().then(all => all.length)") == 0
    assert "secret" not in page.tab.url
    log = capfd.readouterr().err
    assert "/api/v1/translate 200" in log  # the control
    assert "secret" not in log
    page.tab.locator("#copy-link").click()
    link = page.tab.evaluate("navigator.clipboard.readText()")
    assert "#" in link.partition("secret")[0]  # in the fragment, which no server sees
    other = visit(None)
    other.open(link.partition("/#")[2].join(["#", ""]))
    other.tab.locator("#output .word").first.wait_for()
    assert other.tab.locator("#source").input_value() == "The secret dog sees 2 cats."
    assert "secret" not in other.tab.url


def test_link_with_languages_that_the_server_lacks_says_so(visit):
    page = visit("#source=fr&target=ko&text=The+dog+sees+2+cats.")
    page.tab.locator("#output .word").first.wait_for()
    notes = page.tab.locator("#notes")
    expect(notes).to_contain_text("The link asks for French, which")
    page.speak("ko")
    expect(notes).to_contain_text("링크에 지정된 프랑스어")
    control = visit("#source=en&target=ko&text=The+dog+sees+2+cats.")
    control.tab.locator("#output .word").first.wait_for()
    expect(control.tab.locator("#notes")).not_to_contain_text("The link")


# For everybody.


def test_live_page_has_languages_themes_and_korean(visit):
    page = visit("", language="ko-KR")
    assert page.tab.locator("html").get_attribute("lang") == "ko"
    assert page.tab.locator("#target-language option").all_inner_texts() == ["한국어"]
    left = [
        text
        for text in page.tab.locator("[data-t]").all_inner_texts()
        if re.search("[A-Za-z]{3}", text) and not re.search("[가-힣]", text)
    ]
    assert left == ["API"]
    page.tab.get_by_role("button", name="설정").click()
    page.tab.get_by_role("button", name="English").click()
    assert page.tab.locator("#clear").text_content() == "Clear"
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.tab.evaluate(ground) == "rgb(255, 255, 255)"
    page.tab.locator("#theme").select_option("dark")
    assert page.tab.evaluate(ground) == "rgb(20, 23, 26)"
    page.open()
    assert page.tab.evaluate(ground) == "rgb(20, 23, 26)"
    assert page.tab.locator("html").get_attribute("lang") == "en"
    assert page.stored() == {"theme": "dark", "language": "en"}


def test_announcements_wait_until_nobody_types(visit, server: Running):
    page = visit("#source=en&target=ko")
    said, (new,) = page.tab.locator("#announcement"), answered(server, TEXT)
    page.type(TEXT)
    page.shows(new)
    assert said.text_content() == ""
    until(lambda: page.tab.wait_for_timeout(50) or said.text_content())
    assert said.text_content().strip() == f"In Korean: {new}"


def test_keyboard_reaches_everything_on_the_live_page(visit):
    page = visit("#source=en&target=ko")
    focused = """() => {
      const { id, dataset, className, tagName } = document.activeElement;
      return id || dataset.language || className.split(" ")[0] || tagName;
    }"""
    names: list[str] = []
    while not names or (names[-1] != "BODY" and len(names) < 40):
        page.tab.keyboard.press("Tab")
        names.append(page.tab.evaluate(focused))
        if names[-1] == "source":
            page.tab.keyboard.type(TEXT)
            page.tab.locator("#output .word").first.wait_for()
    assert names[: names.index("SUMMARY")] == [
        *["show-settings", "tab-text", "source-language", "target-language", "source", "clear", "word"],
        *["save", "copy"],
    ]
    assert names.count("word") == 1  # one stop, however many there are
    page.tab.locator("#show-keys").focus()
    page.tab.keyboard.press("?")
    assert page.tab.locator("#keys").is_visible()
    page.tab.keyboard.press("Escape")
    assert page.tab.evaluate(focused) == "show-keys"


def test_better_translation_is_kept_by_a_server_that_takes_them(visit, models: Models, tmp_path: Path):
    with running(models, replace(CONFIG, suggestions=str(tmp_path))) as taking:
        page = visit("#source=en&target=ko", at=taking, expected="ERR_FAILED")
        page.type(f"{TEXT}\n{OTHER}")
        page.tab.locator("#output .word").first.wait_for()
        page.tab.locator("#suggest").click()
        assert page.tab.locator("#better").input_value() == "\n".join(answered(taking, TEXT, OTHER))
        assert page.tab.locator("#corrected").inner_text() == f"{TEXT}\n{OTHER}"
        page.tab.locator("#better").fill(" \n")
        assert page.tab.locator("#suggestion-send").is_disabled()
        page.tab.locator("#better").fill("하나\n둘")
        page.tab.locator("#suggest").click()  # again: what was written stays
        page.type(OTHER)  # the suggestion is for the text that was there
        page.shows(*answered(taking, OTHER))
        page.tab.locator("#suggestion-copy").click()
        assert page.tab.evaluate("navigator.clipboard.readText()") == "하나\n둘"
        with page.tab.expect_request("**/suggest") as sent:
            page.tab.locator("#suggestion [type=submit]").dblclick()
        assert sent.value.post_data_json["original"] == "\n".join(answered(taking, TEXT, OTHER))
        page.tab.get_by_text("Thank you.").first.wait_for()
        page.shows("둘")  # what was corrected is shown, and stays so
        expect(page.tab.locator("#notes")).to_have_text("Corrected by you.")
        page.type(f"{TEXT}\n{OTHER}")
        page.shows("하나\n둘")
        page.type(OTHER)
        # What could not be sent is not sent later, by itself, and not after a cancel.
        page.tab.route("**/suggest", lambda route: route.abort())
        page.tab.locator("#suggest").click()
        expect(page.tab.locator("#suggestion-send")).to_be_disabled()  # nothing is changed
        page.tab.locator("#better").fill("셋")
        page.tab.locator("#suggestion [type=submit]").click()
        page.tab.get_by_text("The server does not answer.").wait_for()
        expect(page.tab.locator("#trouble button")).to_have_count(0)
        page.tab.locator("#suggestion-cancel").click()
        expect(page.tab.locator("#trouble")).to_be_hidden()
        assert (tmp_path / "en-ko.tsv").read_text(encoding="utf-8") == f"{TEXT}\t하나\n{OTHER}\t둘\n"
    assert not visit("#source=en&target=ko").tab.locator("#suggest").is_visible()  # the control


def test_live_page_in_a_narrow_window_scrolls_down_but_not_sideways(visit):
    page = visit("#source=en&target=ko", width=320)
    page.type(f"{TEXT} {'x' * 200}\n{OTHER}")
    page.tab.locator("#output .word").first.wait_for()
    for panel in ("alternatives", "glossary", "code"):
        page.tab.locator(f"#{panel} > summary").click()
    page.tab.locator("#add-term").click()
    page.tab.locator("#alternative-list tr").first.wait_for()
    for width in (320, 700):
        page.tab.set_viewport_size({"width": width, "height": 800})
        assert page.tab.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]


@pytest.mark.parametrize(("target", "right"), [("he", True), ("ar", True), ("ko", False)])
def test_translation_runs_as_its_language_does(visit, target: str, right: bool):
    page = visit(None)
    pair = {"source": "en", "target": target, "glossary": True, "alignment": False, "word_scores": False, "tags": []}

    def offer(route: Any) -> None:
        route.fulfill(json=route.fetch().json() | {"pairs": [pair], "models": []})

    page.tab.route("**/api/v1/models", offer)
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo("שלום עולם."), echo("Hello.")))
    page.open(f"#source=en&target={target}")
    page.type("שלום עולם.\nHello.")
    page.shows("שלום עולם.\nHello.")
    edges = """lines => lines.map(line => {
      const range = document.createRange();
      range.selectNodeContents(line);
      return range.getBoundingClientRect().left - line.getBoundingClientRect().left > 50;
    })"""
    assert page.tab.locator("#mirror .line").evaluate_all(edges) == [True, False]  # each as it begins
    assert page.tab.locator("#output .line").evaluate_all(edges) == [right, right]
    assert page.tab.locator("#output").get_attribute("lang") == target


@pytest.mark.parametrize(
    ("dark", "width", "language"),
    [
        *(
            pytest.param(dark, width, language, marks=pytest.mark.slow)
            for dark, width, language in itertools.product((False, True), (320, 1100), ("en-US", "ko-KR"))
            if (dark, width, language) != (False, 320, "ko-KR")
        ),
        (False, 320, "ko-KR"),
    ],
)
def test_axe_finds_nothing_in_the_live_page(visit, dark: bool, width: int, language: str):
    page = visit("#source=en&target=ko", dark=dark, width=width, language=language)
    assert page.problems() == []
    page.type(f"{TEXT}\n{OTHER}")
    page.tab.locator("#output .word").first.wait_for()
    for panel in ("alternatives", "glossary", "code", "past"):
        page.tab.locator(f"#{panel} > summary").click()
    page.tab.locator("#add-term").click()
    page.tab.locator("#output .word").first.hover()
    assert page.problems() == []
    page.tab.locator("#show-keys").click()
    assert page.problems() == []
    page.tab.keyboard.press("Escape")
    page.tab.locator("#show-settings").click()
    assert page.problems() == []
    page.tab.keyboard.press("Escape")
    page.tab.locator("#tab-documents").click()
    assert page.problems() == []
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= width
