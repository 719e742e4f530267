"""A tab of a browser with the page of a server, for the tests of that page."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

AXE = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))
TRANSLATION = "[...document.querySelectorAll('#output .line')].map(line => line.textContent).join('\\n')"


class Visit:
    """A tab with the page, and what it has asked for."""

    def __init__(self, tab: Any, url: str):
        self.tab, self.url = tab, url
        self.asked: list[dict[str, Any]] = []
        tab.on("request", self._note)

    def _note(self, request: Any) -> None:
        if request.url.endswith("/api/v1/translate"):
            self.asked.append(json.loads(request.post_data))

    def open(self, fragment: str = "") -> "Visit":
        self.tab.goto(f"{self.url}/{fragment}")
        self.tab.wait_for_function(
            "() => document.querySelector('#target-language').value || !document.querySelector('#trouble').hidden"
        )
        return self

    def type(self, text: str) -> None:
        self.tab.locator("#source").fill(text)

    def shows(self, text: str) -> None:
        """Wait until the translation is this text."""
        self.tab.wait_for_function(f"text => {TRANSLATION} === text", arg=text)

    def lines(self) -> list[str]:
        return self.tab.locator("#output .line").all_text_contents()

    def texts(self) -> list[list[str]]:
        return [one["texts"] for one in self.asked if "alternatives" not in one and not one.get("alignment")]

    def problems(self) -> list[str]:
        """Return what axe-core finds in the tab."""
        return axe_problems(self.tab)


def axe_problems(tab: Any) -> list[str]:
    """Return what axe-core finds, each with its place; skip the test where it is not installed."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core, or name axe.min.js in AXE_CORE")
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]
