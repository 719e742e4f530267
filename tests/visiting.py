"""A tab of a browser with the page of a server, for the tests of that page."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

# Texts that run code, load something or leave the page where they are taken for markup or for code.
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<math><mtext></p><img src=x onerror=alert(1)>",
    "<style>@import '//evil.example/x.css'</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/>",
    "<form action=//evil.example/><button>x</button></form>",
    "<meta http-equiv=refresh content='0;url=//evil.example/'>",
    "<template><script>alert(1)</script></template>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "__proto__ constructor toString",
    "&lt;img src=x onerror=alert(1)&gt;",
    "<!--><img src=x onerror=alert(1)>-->",
    "<video><source onerror=alert(1)></video>",
    "<audio src=x onerror=alert(1)>",
    "<object data='javascript:alert(1)'></object>",
    "<embed src='javascript:alert(1)'>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<select autofocus onfocus=alert(1)></select>",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "</span></div></body><img src=x onerror=alert(1)>",
    """<noscript><p title="</noscript><img src=x onerror=alert(1)>">""",
    "<svg><a xlink:href='javascript:alert(1)'><text y=9>x</text></a></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<svg><foreignObject><img src=x onerror=alert(1)></foreignObject></svg>",
    "<x onpointerover=alert(1) tabindex=0 onfocus=alert(1)>x</x>",
    "<img/src=x/onerror=alert(1)>",
    "<IMG SRC=x OnErRoR=alert(1)>",
    "<script src=data:,alert(1)></script>",
    "<img src=x onerror=alert(1) alt=",
    "\\u003cscript\\u003ealert(1)\\u003c/script\\u003e",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "'-alert(1)-' \"-alert(1)-\" `-alert(1)-`",
    "data:text/html,<script>alert(1)</script>",
    "]]><script>alert(1)</script><![CDATA[",
    "<div style=position:fixed;inset:0;background:url(//evil.example/x)>x</div>",
)

AXE = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))
READY = """() => document.querySelector("#target-language").value
  || ["#trouble", "#sign-in"].some((place) => !document.querySelector(place).hidden)"""
# Makes a browser that blocks site data of one that does not.
BLOCKED = """for (const area of ["localStorage", "sessionStorage"]) {
  Object.defineProperty(window, area, { get() { throw new DOMException("blocked", "SecurityError"); } });
}"""
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

    def open(self, fragment: str = "", door: bool = True) -> "Visit":
        """Open the page, and with it the door to what is inside; wait until languages are known, or trouble is."""
        self.tab.goto(f"{self.url}/{fragment}")
        self.tab.wait_for_function(READY)
        if door:
            self.tab.evaluate("document.querySelector('#door').open = true")
        return self

    def speak(self, language: str) -> None:
        """Choose the language of the page, wherever the focus is."""
        self.tab.evaluate("language => document.querySelector(`[data-language=${language}]`).click()", language)

    def stored(self) -> dict[str, str]:
        """Return what the browser keeps beyond this tab, but for what was open and what was translated."""
        kept = dict(self.tab.evaluate("({...localStorage})"))
        return {name: text for name, text in kept.items() if name not in ("door", "history")}

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


def focus_word(word: Any) -> None:
    """Put the focus on a word of the translation, as the arrow keys do: one of them at a time can have it."""
    word.evaluate("word => { word.tabIndex = 0; word.focus(); }")


def axe_problems(tab: Any) -> list[str]:
    """Return what axe-core finds, each with its place; skip the test where it is not installed."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core, or name axe.min.js in AXE_CORE")
    if not tab.evaluate("'axe' in window"):
        tab.evaluate(AXE.read_text(encoding="utf-8"))
    report = tab.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [f"{violation['id']}: {violation['nodes'][0]['html']}" for violation in report["violations"]]
