"""The page of `dragoman serve` in a real browser: choosing another word, writing along, leaving a word out."""

import json
import math
from typing import Any

import pytest
from playwright.sync_api import expect
from serving import Running, until
from test_live_page import OTHER, TEXT, answered, echo, fulfil
from visiting import focus_word

AT_HOME = "#source=en&target=ko"


def steer(server: Running, path: str, **fields: Any) -> Any:
    """What the server answers below /api/v1."""
    return server.ask("POST", f"/api/v1/{path}", {"source": "en", "target": "ko", **fields}).json


def bare(word: str) -> str:
    return word.rstrip(".")


def test_other_word_is_chosen_gone_on_from_and_taken_back(visit, server: Running):
    page = visit(AT_HOME)
    page.type(f"{OTHER}\n{TEXT}")
    first, second = answered(server, OTHER, TEXT)
    page.shows(f"{first}\n{second}")
    tab, words = page.tab, second.split()
    others = steer(server, "translate", texts=[TEXT], others=True)["translations"][0]["others"]
    place = max(range(len(words) - 1), key=lambda number: others[number])
    assert others[place] >= 0.05
    prefix = "".join(f"{word} " for word in words[:place])
    found = steer(server, "alternatives", text=TEXT, prefix=prefix)["words"]
    expected = [one for one in found if one["word"] != bare(words[place])]
    line = tab.locator("#output .line").nth(1)
    focus_word(line.locator(".word").nth(place))
    tab.get_by_text("Another word may be likely here: Enter or a click checks.").first.wait_for()
    expect(line.locator(".word.choice")).to_have_count(sum(most >= 0.05 for most in others))
    tab.keyboard.press("Enter")
    choices = tab.locator("#choices li button")
    choices.first.wait_for()
    assert tab.locator("#choices-title").inner_text().startswith(f"Instead of “{bare(words[place])}” (")
    assert choices.locator("b").all_inner_texts() == [one["word"] for one in expected]
    assert choices.locator(".follows").all_inner_texts() == [one["text"] for one in expected]
    shown = [float(text.rstrip("%")) / 100 for text in choices.locator(".probability").all_inner_texts()]
    assert shown == pytest.approx([one["probability"] for one in expected], rel=0.051)
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("Enter")
    chosen = expected[0]
    page.shows(f"{first}\n{chosen['text']}")
    assert not tab.locator("#choices").is_visible()
    fixed = line.locator(".word.fixed").all_text_contents()
    assert len(fixed) == place + 1
    assert bare(fixed[-1]) == chosen["word"]
    focused = line.locator(".word").nth(place)
    assert focused.evaluate("word => word === document.activeElement")
    # Going on from there, with what the server says of a translation that it has not found itself.
    own = steer(server, "words", texts=[TEXT], translations=[chosen["text"]])["translations"][0]
    links = [source for source, target in own["alignment"] if target == place]
    linked = tab.locator("#mirror .line").nth(1).locator(".word.linked")
    until(lambda: tab.wait_for_timeout(20) or linked.all_text_contents() == [TEXT.split()[one] for one in links])
    crumbs = tab.locator("#steps li button")
    assert crumbs.all_inner_texts() == ["the model’s own", f"{bare(words[place])} → {chosen['word']}"]
    following = max(range(place + 1, len(own["others"])), key=lambda number: own["others"][number])
    if own["others"][following] >= 0.05:
        line.locator(".word").nth(following).click()
        choices.first.click()
        until(lambda: tab.wait_for_timeout(20) or crumbs.count() == 3)
        expect(line.locator(".word.fixed")).to_have_count(following + 1)
        tab.keyboard.press("Control+z")
        page.shows(f"{first}\n{chosen['text']}")
    crumbs.first.focus()
    tab.keyboard.press("Enter")
    page.shows(f"{first}\n{second}")
    assert focused.evaluate("word => word === document.activeElement")
    expect(tab.locator(".fixed")).to_have_count(0)
    assert not tab.locator("#steps").is_visible()


def test_word_without_likely_others_is_not_offered_and_says_so(visit):
    page = visit(AT_HOME)
    asked: list[str] = []
    page.tab.on("request", lambda request: asked.append(request.url))
    known = {
        "alignment": [[0, 0], [1, 1]],
        "words": [["하나", -0.1], ["둘", -0.1], ["", 0.0]],
        "others": [0.0499, 0.05],
    }
    known["segments"] = [{"source": [0, 3], "target": [0, 4]}]
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo("a b", text="하나 둘", **known)))
    words = [
        {"word": word, "probability": p, **echo("a b", text=f"하나 {word}")} for word, p in (("둘", 0.6), ("셋", 0.04))
    ]
    page.tab.route(
        "**/api/v1/alternatives", lambda route: route.fulfill(json={"words": words, "source": "en", "target": "ko"})
    )
    page.type("a b")
    page.shows("하나 둘")
    output = page.tab.locator("#output .word")
    output.first.focus()
    page.tab.get_by_text("No other word has a probability of 5% here.").first.wait_for()
    page.tab.keyboard.press("Enter")
    output.first.click()
    assert output.first.get_attribute("class").split().count("choice") == 0
    output.nth(1).click()
    page.tab.get_by_text("No other word reaches 5% here; these come nearest").wait_for()  # once it is known exactly
    assert page.tab.locator("#choices li b").all_inner_texts() == ["셋"]
    assert sum(url.endswith("/alternatives") for url in asked) == 1
    page.tab.locator("#choices").get_by_role("button", name="Close").click()
    assert not page.tab.locator("#choices").is_visible()
    assert output.nth(1).evaluate("word => word === document.activeElement")
    for _ in range(2):  # and again
        output.nth(1).click()
        page.tab.get_by_text("No other word reaches 5% here; these come nearest").wait_for()
        assert page.tab.locator("#choices li b").all_inner_texts() == ["셋"]
        page.tab.keyboard.press("Escape")
    page.speak("ko")
    expect(page.tab.locator("#readout")).to_contain_text("Enter를 누르면 확인해요")  # said again


def test_written_words_are_kept_and_the_continuation_follows(visit, server: Running):
    page = visit(AT_HOME)
    page.type(f"{TEXT} {OTHER}")
    first, second = answered(server, TEXT, OTHER)
    page.shows(f"{first} {second}")
    tab = page.tab
    focus_word(tab.locator("#output .sentence").nth(1).locator(".word").first)
    tab.keyboard.press("F2")
    box, rest = tab.get_by_label(f"Your translation of “{OTHER}”"), tab.locator(".along .rest")
    box.wait_for()
    assert rest.text_content() == second  # nothing is written yet
    start = "말"
    box.press_sequentially(start)
    (best,) = steer(server, "alternatives", text=OTHER, prefix=start, count=1)["words"]
    until(lambda: tab.wait_for_timeout(20) or start + rest.text_content() == best["text"])
    held: list[Any] = []
    tab.route("**/api/v1/alternatives", lambda route: held.append(route))
    tab.keyboard.press("Tab")
    word = best["text"].split()[0]
    assert box.input_value() == word
    tab.keyboard.press("End")
    assert box.input_value() == best["text"]
    assert held == []  # the model has said so already
    tab.keyboard.type(" 말")
    until(lambda: tab.wait_for_timeout(20) or held)
    tab.keyboard.press("Backspace")  # the request before is given up
    start = f"{best['text']} "
    until(lambda: tab.wait_for_timeout(20) or held[-1].request.post_data_json["prefix"] == start)
    tab.keyboard.press("Escape")
    held.pop().fulfill(json={"words": [{**best, "text": f"{best['text']} "}]})
    page.shows(f"{first} {best['text']} ")
    expect(tab.locator(".along")).to_have_count(0)
    expect(tab.locator("#output .sentence").nth(0).locator(".fixed")).to_have_count(0)
    expect(tab.locator("#output .sentence").nth(1).locator(".fixed")).to_have_count(len(best["text"].split()))
    for route in held:
        route.abort()
    tab.unroute("**/api/v1/alternatives")
    tab.keyboard.press("Control+z")
    page.shows(f"{first} {second}")


def test_continuation_follows_when_the_box_is_left_before_the_answer(visit, server: Running):
    page = visit(AT_HOME)
    page.type(TEXT)
    page.shows(*answered(server, TEXT))
    tab, held = page.tab, []
    tab.route("**/api/v1/alternatives", lambda route: held.append(route))
    tab.locator("#write").click()
    tab.locator(".along textarea").press_sequentially("말")
    until(lambda: tab.wait_for_timeout(20) or held)
    tab.locator("#write").click()
    expect(tab.locator(".along")).to_have_count(0)
    page.shows(*answered(server, TEXT))  # not the beginning alone
    (best,) = steer(server, "alternatives", text=TEXT, prefix="말", count=1)["words"]
    held[0].fulfill(json={"words": [best]})
    page.shows(best["text"])


def test_choice_stays_when_a_new_term_changes_nothing_there(visit):
    page = visit(AT_HOME)
    tab = page.tab

    def answer(route: Any) -> None:
        body = route.request.post_data_json
        forced = any(term.startswith("c") for term in body.get("glossary", []))
        fulfil(route, *(echo(text, text="a c" if forced else "a b") for text in body["texts"]))

    tab.route("**/api/v1/translate", answer)
    words = [
        {"word": "x", "probability": 0.5, "text": "a x", "score": -1, "flags": [], "terms_met": [], "terms_missed": []}
    ]
    tab.route("**/api/v1/alternatives", lambda route: route.fulfill(json={"words": words}))
    page.type("A hotel car.")
    page.shows("a b")
    tab.locator("#write").click()
    tab.locator(".along textarea").press_sequentially("a x")
    tab.keyboard.press("Escape")
    page.shows("a x")
    tab.locator("#glossary summary").click()
    changes = [("hotel", "a x"), ("car", "a c")]  # the second one changes the sentence
    for number, (term, shown) in enumerate(changes, start=1):
        tab.locator("#add-term").click()
        tab.get_by_label(f"Term {number}", exact=True).fill(term)
        tab.get_by_label(f"Translation of term {number}").fill("z")
        until(
            lambda term=term: (
                tab.wait_for_timeout(20) or any(f"{term}\tz" in one.get("glossary", []) for one in page.asked)
            )
        )
        expect(tab.locator("#desk.working")).to_have_count(0)  # the answer is there
        page.shows(shown)


def test_continuation_is_accepted_with_buttons_and_writing_ends_as_it_began(visit, server: Running):
    page = visit(AT_HOME, width=360)
    tab = page.tab
    page.type(TEXT)
    (first,) = answered(server, TEXT)
    page.shows(first)
    tab.locator("#write").click()
    box = tab.locator(".along textarea")
    tab.get_by_role("button", name="Next word").click()
    expect(box).to_have_value(first.split()[0])
    expect(box).to_be_focused()
    tab.get_by_role("button", name="All the rest").click()
    expect(box).to_have_value(first)
    expect(box).to_be_focused()
    expect(tab.get_by_role("button", name="Next word")).to_be_disabled()  # nothing follows
    expect(tab.locator("#write")).to_have_text("Done")
    tab.locator("#write").click()
    expect(tab.locator(".along")).to_have_count(0)
    expect(tab.locator("#write")).to_have_text("Write with autocomplete")
    page.shows(first)
    expect(tab.locator("#output .fixed")).to_have_count(len(first.split()))


def test_writing_along_begins_in_the_text_too(visit):
    page = visit(AT_HOME)
    page.type(f"{TEXT} {OTHER}")
    page.tab.locator("#output .sentence").nth(1).wait_for()
    page.tab.locator("#source").press("End")
    page.tab.keyboard.press("F2")
    expect(page.tab.get_by_label(f"Your translation of “{OTHER}”")).to_be_focused()  # where the caret is
    page.tab.keyboard.press("Escape")
    expect(page.tab.locator("#output .sentence").nth(1).locator(".word").first).to_be_focused()


def test_writing_with_the_button_begins_where_the_caret_was(visit):
    page = visit(AT_HOME)
    page.type(f"{TEXT}\n{OTHER}")
    page.tab.locator("#output .line").nth(1).locator(".word").first.wait_for()
    for place, text in ((len(TEXT) + 3, OTHER), (2, TEXT)):
        page.tab.locator("#source").evaluate(
            "(box, place) => (box.focus(), box.setSelectionRange(place, place))", place
        )
        page.tab.locator("#write").click()
        expect(page.tab.get_by_label(f"Your translation of “{text}”")).to_be_focused()
        page.tab.keyboard.press("Escape")


def test_writing_ends_at_the_word_where_it_began(visit):
    page = visit(AT_HOME)
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(TEXT, text="a b c")))
    page.type(TEXT)
    page.shows("a b c")
    word = page.tab.locator("#output .word").nth(1)
    focus_word(word)
    page.tab.keyboard.press("F2")
    page.tab.locator(".along textarea").wait_for()
    page.tab.keyboard.press("Escape")
    expect(word).to_be_focused()


def test_trail_has_only_what_still_stands(visit):
    page = visit(AT_HOME)
    tab = page.tab

    def answer(route: Any) -> None:
        start = json.loads(route.request.post_data)["prefix"]
        words = [{"word": start, "probability": 0.5, **echo(TEXT, text=f"{start} c")}]
        route.fulfill(json={"words": words, "source": "en", "target": "ko"})

    tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(TEXT, text="a b c")))
    tab.route("**/api/v1/alternatives", answer)
    page.type(TEXT)
    page.shows("a b c")
    for written in ("x", "x y", "z"):
        tab.locator("#write").click()
        tab.locator(".along textarea").fill(written)
        page.tab.wait_for_function("() => document.querySelector('.along .rest').textContent === ' c'")
        tab.keyboard.press("Escape")
        page.shows(f"{written} c")
        if written == "x y":
            expect(tab.locator("#steps li")).to_have_text(["the model’s own", "kept up to “x”", "kept up to “x y”"])
    expect(tab.locator("#steps li")).to_have_text(["the model’s own", "kept up to “z”"])
    tab.locator("#undo").click()
    page.shows("x y c")
    expect(tab.locator("#announcement")).to_have_text("Taken back. The sentence is now: x y c")
    expect(tab.locator("#steps li")).to_have_text(["the model’s own", "kept up to “x”", "kept up to “x y”"])
    # The request as code begins as it was written; without that, it has the lines alone.
    tab.locator("#code > summary").click()
    tab.get_by_label("JSON").check()
    code = tab.locator("#code-text")
    plain = {"texts": [TEXT], "source": "en", "target": "ko"}
    assert json.loads(code.text_content()) == {**plain, "prefix": ["x y "]}
    tab.locator("#undo").click()
    tab.locator("#undo").click()
    page.shows("a b c")
    assert json.loads(code.text_content()) == plain
    # What moves the caret stays in the box.
    tab.locator("#write").click()
    box = tab.locator(".along textarea")
    box.fill("xy")
    page.tab.wait_for_function("() => document.querySelector('.along .rest').textContent === ' c'")
    for key, caret in (("Home", 0), ("ArrowRight", 1), ("End", 2), ("End", 4)):
        box.press(key)
        assert box.evaluate("box => [document.activeElement === box, box.selectionStart]") == [True, caret]


def test_words_are_selected_with_the_mouse_from_any_one(visit, server: Running):
    page = visit(AT_HOME)
    page.tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(TEXT, text="some words of text")))
    page.type(TEXT)
    page.shows("some words of text")
    for number in range(3):
        word, after = (page.tab.locator("#output .word").nth(each).bounding_box() for each in (number, number + 1))
        page.tab.evaluate("getSelection().empty()")
        page.tab.mouse.move(word["x"] + 1, word["y"] + word["height"] / 2)
        page.tab.mouse.down()
        page.tab.mouse.move(after["x"] + 1, after["y"] + after["height"] / 2)
        page.tab.mouse.move(after["x"] + after["width"] - 1, after["y"] + after["height"] / 2)
        page.tab.mouse.up()
        selected = page.tab.evaluate("getSelection().toString()")
        assert selected == " ".join("some words of text".split()[number : number + 2])


def test_choice_stays_with_its_sentence_when_another_joins_its_line(visit, server: Running):
    page = visit(AT_HOME)
    tab = page.tab
    page.type(TEXT)
    first, second = answered(server, TEXT, OTHER)
    page.shows(first)
    tab.locator("#write").click()
    tab.locator(".along textarea").press_sequentially("말")
    (best,) = steer(server, "alternatives", text=TEXT, prefix="말", count=1)["words"]
    until(lambda: tab.wait_for_timeout(20) or "말" + tab.locator(".along .rest").text_content() == best["text"])
    tab.keyboard.press("Escape")
    chosen = best["text"]
    page.shows(chosen)
    page.type(f"{TEXT} {OTHER}")
    page.shows(f"{chosen} {second}")
    page.type(f"{OTHER} {TEXT}")
    page.shows(f"{second} {chosen}")
    expect(tab.locator("#output .sentence").nth(1).locator(".fixed")).to_have_count(1)
    expect(tab.locator("#steps li")).to_have_text(["the model’s own", "kept up to “말”"])
    tab.locator("#undo").click()
    page.shows(f"{second} {first}")
    page.type(f"{OTHER} {TEXT} {OTHER}")
    page.shows(f"{second} {first} {second}")  # what was taken back stays so


def test_press_on_what_moves_when_the_box_is_left_clicks(visit):
    page = visit(AT_HOME, width=390)
    tab = page.tab
    line = " ".join(["word"] * 40)
    tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(line)))
    page.type(line)
    page.shows(line)
    copy = tab.locator("#copy")
    tab.locator("#write").click()
    tab.locator(".along textarea").press_sequentially("word")
    tab.keyboard.press("Escape")  # from now on there is something to undo, whose place is kept
    tab.locator("#write").click()
    tab.locator(".along textarea").press_sequentially(" word")
    copy.evaluate("button => button.scrollIntoView({ block: 'center' })")
    below = copy.bounding_box()
    tab.mouse.click(below["x"] + below["width"] / 2, below["y"] + below["height"] / 2)
    expect(copy).to_have_text("Copied")
    expect(tab.locator(".along")).to_have_count(0)
    expect(tab.locator(".fixed")).to_have_count(2)  # what was written is kept
    assert tab.evaluate("navigator.clipboard.readText()") == line
    assert abs(copy.bounding_box()["y"] - below["y"]) > below["height"]  # the control: it has moved


def test_sentence_without_a_word_is_translated_beside_the_losses(visit, server: Running):
    page = visit(AT_HOME)
    page.type(TEXT)
    page.shows(answered(server, TEXT)[0])
    tab = page.tab
    assert not tab.locator("#without").is_visible()
    tab.locator("#source").press("End")
    tab.get_by_role("button", name="Try without “cats”").wait_for()
    at = TEXT.index("2") + 1
    tab.locator("#source").evaluate("(box, at) => box.setSelectionRange(at, at)", at)
    tab.keyboard.press("ArrowLeft")  # to the beginning of the word
    button = tab.get_by_role("button", name="Try without “2”")
    button.wait_for()
    button.press("Enter")
    shorter = TEXT.replace(" 2", "")
    (new,) = answered(server, shorter)
    panel = tab.locator("#without-panel")
    panel.get_by_text(new, exact=True).wait_for()
    assert tab.locator("#without-source").inner_text() == shorter
    (whole,) = answered(server, TEXT)
    both = steer(server, "words", texts=[TEXT, shorter], translations=[whole, whole])["translations"]
    with_it, without = ([math.exp(log_p) for word, log_p in one["words"] if word] for one in both)
    cells = [
        [float(text.replace("−", "-").removesuffix("%")) / 100 for text in row.locator("td").all_inner_texts()]
        for row in panel.locator("tbody tr").all()
    ]
    assert [row[2] for row in cells] == pytest.approx(
        [a - b for a, b in zip(with_it, without, strict=True)], abs=0.000501
    )
    assert panel.locator("tbody th").all_inner_texts() == whole.split()
    assert len({row[2] for row in cells}) > 1  # the control: the word matters
    tab.locator("#without-close").click()
    assert not panel.is_visible()
    for change in ("ko", "en"):
        button.click()
        panel.get_by_text(new, exact=True).wait_for()
        page.speak(change)  # what is shown is in the other language
        expect(panel).to_be_hidden()
        button = tab.get_by_role("button", name="“2” 빼 보기" if change == "ko" else "Try without “2”")
    assert page.stored() == {"language": "en"}


def test_axe_finds_nothing_in_steering_and_nothing_too_wide(visit, server: Running):
    page = visit(AT_HOME, width=320, dark=True, language="ko-KR")
    tab = page.tab

    def check() -> None:
        assert tab.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.problems() == []

    words = [
        {"word": word, "probability": p, **echo(TEXT, text=f"{word} 개")}
        for word, p in (("<b>개</b>", 0.6), ("곰", 0.3))
    ]
    tab.route(
        "**/api/v1/alternatives", lambda route: route.fulfill(json={"words": words, "source": "en", "target": "ko"})
    )
    page.type(TEXT)
    page.shows(answered(server, TEXT)[0])
    others = steer(server, "translate", texts=[TEXT], others=True)["translations"][0]["others"]
    place = max(range(len(others)), key=lambda number: others[number])
    tab.locator("#output .word").nth(place).click()
    tab.locator("#choices li button").first.wait_for()
    assert tab.locator("#choices b").all_text_contents() == ["<b>개</b>", "곰"]  # as it is, not as markup
    check()
    tab.keyboard.press("Enter")
    page.shows("<b>개</b> 개")
    tab.locator("#steps").wait_for()
    tab.locator("#source").press("End")
    tab.locator("#without").click()
    tab.locator("#without-words td").first.wait_for()
    tab.locator("#write").click()
    tab.locator(".along textarea").wait_for()
    check()
