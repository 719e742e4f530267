"""Many people who type at once into the page of one small server."""

import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ANIMALS, COLOURS, VERBS
from serving import Running, started, until
from test_live_page import answered

# Types texts letter by letter, and returns for each the milliseconds from its last key to its translation. Between two
# words it waits for longer than the page does, so that most of what the page asks for is given up by the next key.
TYPE = """async ([texts, gap, rest, pause]) => {
  const [box, desk, trouble] = ["#source", "#desk", "#trouble"].map((selector) => document.querySelector(selector));
  const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
  const done = () => new Promise((resolve) => {
    const going = () => desk.classList.contains("working") || !trouble.hidden; // a busy server is asked again
    const look = () => going() || (observer.disconnect(), resolve());
    const observer = new MutationObserver(look);
    for (const element of [desk, trouble]) observer.observe(element, { attributes: true });
    look();
  });
  const found = [];
  for (const text of texts) {
    box.value = "";
    let last = 0;
    for (const letter of text) {
      box.value += letter;
      box.dispatchEvent(new InputEvent("input", { inputType: "insertText", data: letter, bubbles: true }));
      last = performance.now();
      await sleep(letter === " " ? rest : gap);
    }
    await sleep(pause); // the timer of the page, which is of the same length, has fired before
    await done();
    found.push([performance.now() - last, document.querySelector("#output").textContent]);
  }
  return found;
}"""
START = "(given) => { window.typed = (%s)(given).then((found) => (window.found = found)); }"
# Pastes a text, of which the page asks for the first 2,000 characters at once, and clears it while they are translated.
LEAVE = """(text) => {
  const box = document.querySelector("#source");
  box.value = text;
  box.dispatchEvent(new InputEvent("input", { inputType: "insertFromPaste", bubbles: true }));
  setTimeout(() => { document.querySelector("#clear").click(); window.left = true; }, 30);
}"""
CANCELLED = 'dragoman_finished_total{outcome="cancelled"}'
PAUSE = 300  # milliseconds for which the page waits after a key


@pytest.fixture(scope="module")
def alone(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server in a process of its own, with the model of SERVED_MODEL, or else with the one of the tests."""
    model = Path(os.environ.get("SERVED_MODEL", trained))
    with started(model, tmp_path_factory.mktemp("log") / "log") as process:
        yield process.server


def texts_of(tab: int, count: int) -> list[str]:
    """Sentences that no other tab has."""
    animals, verbs, colours = list(ANIMALS), list(VERBS), list(COLOURS)
    return [
        f"The {animals[tab % 5]} {verbs[number % 4]} {2 + tab}{number} {colours[tab % 4]} {animals[number % 5]}s."
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("tabs", "texts", "lines", "gap", "rest", "limit"),
    [
        pytest.param(3, 2, 25, 5, 310, None, id="three"),
        pytest.param(20, 5, 250, 90, 340, 2.0, id="twenty", marks=pytest.mark.slow),
    ],
)
def test_tabs_that_type_at_once_do_not_wait_for_each_other(
    visit: Any,
    request: pytest.FixtureRequest,
    tabs: int,
    texts: int,
    lines: int,
    gap: int,
    rest: int,
    limit: float | None,
):
    # Where times are measured, nothing else runs in the process of the server.
    alone = request.getfixturevalue("server" if limit is None else "alone")
    pages = [visit("#source=en&target=ko", at=alone, expected="Failed to load resource") for _ in range(tabs)]
    for number, page in enumerate(pages):
        page.tab.evaluate(START % TYPE, [texts_of(number, texts), gap, rest, PAUSE])
    for page in pages:
        page.tab.wait_for_function("() => window.found", timeout=300_000)
    waits = []
    for number, page in enumerate(pages):
        for text, (milliseconds, shown) in zip(texts_of(number, texts), page.tab.evaluate("window.found"), strict=True):
            assert [shown] == answered(alone, text)
            waits.append(milliseconds / 1000)
    asked = sum(len(page.asked) for page in pages)
    assert asked > tabs * texts  # the control: some of what was asked for was given up
    waits.sort()
    p95 = waits[int(0.95 * (len(waits) - 1))]
    # Long texts, which everybody gives up.
    cancelled = alone.metric(CANCELLED)
    for number, page in enumerate(pages):
        page.tab.evaluate(LEAVE, "\n".join(f"{text} {line}" for line in range(lines) for text in texts_of(number, 10)))
    for page in pages:
        page.tab.wait_for_function("() => window.left", timeout=300_000)
    began = time.monotonic()
    until(lambda: not alone.metric("dragoman_in_flight"))
    gone = time.monotonic() - began
    print(
        f"{tabs} tabs, {len(waits)} texts, {asked} requests: from the last key to the translation, with the {PAUSE} ms "
        f"that the page waits, median {statistics.median(waits):.2f} s, p95 {p95:.2f} s, most {waits[-1]:.2f} s; what "
        f"{tabs} tabs gave up was gone after {gone:.2f} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    if limit is not None:
        assert p95 < limit
        assert gone < 1.0
        assert alone.metric(CANCELLED) > cancelled  # three tabs may be answered before they leave
