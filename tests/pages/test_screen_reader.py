"""The page as a screen reader has it: Chromium's accessibility tree, state by state, and what live regions say.

`screen_reader.txt` is what it was when somebody last read it. After a change that is meant, write it anew and read it:
`HEARD=write pytest tests/pages/test_screen_reader.py`.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from serving import Running, until
from test_live_page import echo, fulfil
from visiting import Visit

RECORD = Path(__file__).with_name("screen_reader.txt")
WITHOUT_NAME = {"status", "alert", "list", "table", "textbox", "dialog", "main", "banner", "contentinfo"}
LEFT_OUT = {"InlineTextBox", "LineBreak", "generic", "LabelText", "ListMarker", "RootWebArea", "row", "cell"}
ONE_THING = {"image", "option"}  # what is in them is not read
NUMBER = re.compile(r"−?\d[\d.,]*\d|\d")
FOUND = re.compile(r"“[^“”]*[가-힣][^“”]*”")
STATES = ("level", "checked", "pressed", "expanded", "selected", "disabled")
TEXT = "Good bread."
KNOWN = {
    "segments": [{"source": [0, 11], "target": [0, 5]}],
    "alignment": [[0, 0], [1, 1]],
    "words": [["좋은", -0.7], ["빵.", -0.1], ["", 0.0]],
    "others": [0.3, 0.01],
    "flags": ["loop"],
    "alternatives": ["맛있는 빵."],
}

LISTEN = """() => {
  window.heard = [];
  const told = new Map();
  const seen = (region) => [...region.childNodes].map((node) => (node.ariaHidden ? "" : node.textContent)).join(" ");
  new MutationObserver(() => {
    for (const region of document.querySelectorAll("[role=status], [role=alert], [aria-live]")) {
      const text = region.checkVisibility() ? seen(region).replace(/\\s+/g, " ").trim() : "";
      if (text && text !== told.get(region)) window.heard.push(`${region.getAttribute("role") ?? "live"}: ${text}`);
      told.set(region, text);
    }
  }).observe(document, { childList: true, subtree: true, characterData: true, attributes: true });
}"""


def masked(text: str) -> str:
    """A text without what depends on the model that the tests train: numbers, and in figures what it wrote."""
    return NUMBER.sub("#", FOUND.sub("“…”", text) if re.search("toy|float32|→ “|rank", text) else text)


def described(node: dict[str, Any]) -> str:
    """The role, the name and the states of something, as it is read out."""
    role, name, value, more = (
        masked(" ".join(str(node.get(field, {}).get("value", "")).split()))
        for field in ("role", "name", "value", "description")
    )
    states = {state["name"]: state["value"].get("value") for state in node.get("properties", ())}
    told = [role.replace("StaticText", "text"), f"“{name}”" * bool(name)]
    for state in STATES:
        if states.get(state) not in (None, False, "false", ""):
            told.append(f"{state} {states[state]}".lower())
    if role != "StaticText":
        told += [f"value “{value}”" * bool(value), f"described by “{more}”" * (more not in ("", name))]
    return ", ".join(filter(None, told))


def tree(page: Visit, root: str, rows: bool) -> list[str]:
    """What a screen reader comes by in an element, in order; rows: also those of tables, below their headings."""
    session = page.tab.context.new_cdp_session(page.tab)
    found = session.send("Runtime.evaluate", {"expression": f"document.querySelector({root!r})"})["result"]["objectId"]
    number = session.send("DOM.describeNode", {"objectId": found})["node"]["backendNodeId"]
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    by_id = {node["nodeId"]: node for node in nodes}

    def children(node: dict[str, Any]) -> list[dict[str, Any]]:
        return [by_id[child] for child in node.get("childIds", ()) if child in by_id]

    def walk(node: dict[str, Any], above: str) -> Iterator[str]:
        role, name = (node.get(field, {}).get("value", "") for field in ("role", "name"))
        if role == "row" and not rows and "columnheader" not in [one["role"]["value"] for one in children(node)]:
            return
        shown = not node.get("ignored") and role not in LEFT_OUT and (name or role in WITHOUT_NAME)
        if shown and not (role == "StaticText" and name in above):
            yield described(node)
        for child in children(node) if role not in ONE_THING else ():
            yield from walk(child, name if shown else above)

    (start,) = [node for node in nodes if node.get("backendDOMNodeId") == number]
    return list(walk(start, ""))


def test_screen_reader_has_names_roles_and_live_texts_for_everything(visit: Any, server: Running):
    page = visit("#source=en&target=ko", expected="503")
    tab, parts, heard = page.tab, [], 0
    tab.evaluate(f"({LISTEN})()")
    keyboard = tab.keyboard

    def note(title: str, *roots: str, rows: bool = True) -> None:
        """Take down what was heard since the last time, and what is there now."""
        nonlocal heard
        live = tab.evaluate("window.heard")
        lines = [line for root in roots for line in tree(page, root, rows)]
        parts.append(
            "\n".join([f"# {title}", *(f"> {masked(one)}" for one in dict.fromkeys(live[heard:])), *lines, ""])
        )
        heard = len(live)

    def hear(text: str) -> None:
        until(lambda: tab.wait_for_timeout(20) or any(text in one for one in tab.evaluate("window.heard")[heard:]))

    note("The empty page", "header", "main", "footer")
    tab.route("**/api/v1/translate", lambda route: fulfil(route, echo(TEXT, text="좋은 빵.", **KNOWN)))
    page.type(TEXT)
    hear("In Korean")
    note("A text is translated, and has a loop", ".desk")
    tab.locator("#output .word").first.focus()
    hear("the model looked most at")
    note("The first word of the translation", "#output", "#readout")
    keyboard.press("ArrowRight")
    hear("No other word")
    note("The second word", "#output")
    keyboard.press("ArrowLeft")
    hear("the model looked most at")
    words = [{"word": "맛있는", "probability": 0.3, **echo(TEXT, text="맛있는 빵.")}]
    tab.route(
        "**/api/v1/alternatives", lambda route: route.fulfill(json={"words": words, "source": "en", "target": "ko"})
    )
    keyboard.press("Enter")
    tab.locator("#choices li button").first.wait_for()
    note("Other words for it", "#choices")
    scored = [{**KNOWN, "words": [["맛있는", first], ["빵.", -0.1], ["", 0.0]]} for first in (-0.7, -1.2)]
    tab.route(
        "**/api/v1/words",
        lambda route: route.fulfill(json={"translations": scored[: len(json.loads(route.request.post_data)["texts"])]}),
    )
    keyboard.press("Enter")
    hear("맛있는 빵.")
    hear("While writing “맛있는”")
    note("One of them is chosen", "#steps", "#output")
    keyboard.press("F2")
    tab.locator(".along textarea").wait_for()
    hear("빵.")
    note("Writing with autocomplete", ".along")
    keyboard.press("Escape")
    tab.locator("#source").press("Home")
    tab.locator("#without").click()
    tab.locator("#without-words td").first.wait_for()
    note("Without a word", "#without", "#without-panel")
    tab.locator("#without-close").click()
    for panel in ("alternatives", "glossary", "code"):
        tab.locator(f"#{panel} > summary").click()
    tab.locator("#add-term").click()
    tab.locator("#alternative-list tr").first.wait_for()
    hear("In Korean: 맛있는")
    note("Panels below", "#alternatives", "#glossary", "#code")
    tab.locator("#show-keys").click()
    note("Keyboard shortcuts", "#keys")
    keyboard.press("Escape")
    for panel in ("attention-panel", "heads", "positions", "tree", "occlusion", "encoding"):
        tab.locator(f"#{panel} > summary").click()
    for drawn in ("#tree-picture svg", "#occlusion-map canvas.map", "#encoding-map canvas.map", "#thumbnails button"):
        tab.locator(drawn).first.wait_for()
    tab.wait_for_function("() => !document.querySelector('#inside-status').textContent.trim()")
    tab.locator("#attention-map canvas.map").focus()
    note("Looking inside", "#inside", rows=False)
    tab.unroute("**/api/v1/translate")
    tab.route(
        "**/api/v1/translate",
        lambda route: route.fulfill(status=503, headers={"Retry-After": "9"}, json={"error": {"message": "busy"}}),
    )
    page.type("More.")
    hear("The server is busy")
    note("The server is busy", "#trouble")
    told = "\n".join(parts)
    if os.environ.get("HEARD") == "write":
        RECORD.write_text(told, encoding="utf-8")
    assert told.splitlines() == RECORD.read_text(encoding="utf-8").splitlines()
