"""Draw the pictures of the README and of docs/page.md: the page of a server, in the system's Chromium.

$ python scripts/page_pictures.py en-ko=runs/demo-en-ko docs/images page
$ python scripts/page_pictures.py en-ko=runs/demo-en-ko docs/images
$ python scripts/page_pictures.py en-he=runs/en-he docs/images page-hebrew  # scripts/hebrew_phrases.py makes its pairs
"""

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import sync_playwright

PORT = 5731
OF_DEMO = "My cousin is arriving from Vietnam on Saturday at 8:35 AM."
TEXT = f"{OF_DEMO}\nI would like to make an appointment for Thursday at 4:20 PM."
# Nearly sentences of the demo, so that some words have alternatives.
UNSURE = "I want to make an appointment for Thursday at 4:20 PM.\nWe are arriving from Vietnam on Saturday at 8:35 AM."
TO_HEBREW = "The train to Vietnam leaves at 8:35 AM.\nWe are flying to Japan on March 5, 2027."
LEFT_OUT = "Vietnam"
BY_NAME = {"page", "page-hebrew"}  # pictures that are drawn only by name
SIZES = {
    "page": {"viewport": {"width": 1040, "height": 866}, "color_scheme": "light"},
    "page-light": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "light"},
    "page-dark": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "dark"},
    "page-phone": {"viewport": {"width": 360, "height": 760}, "color_scheme": "light"},
    "page-korean": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "dark", "locale": "ko-KR"},
    "page-hebrew": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "light"},
    "page-words": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "light"},
    "page-open": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "light"},
    "page-runs": {"viewport": {"width": 1040, "height": 1010}, "color_scheme": "light"},
    "page-inside": {"viewport": {"width": 1040, "height": 640}, "color_scheme": "light"},
}


@contextlib.contextmanager
def serving(model: str) -> Iterator[str]:
    """Serve a model, and show the runs beside it, until the block ends; yield the address."""
    runs = Path(model.rpartition("=")[2]).parent
    command = [sys.executable, "-m", "dragoman", "serve", "-m", model, "--runs", str(runs), "--port", str(PORT)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{PORT}"
    try:
        for _ in range(300):
            with contextlib.suppress(OSError):
                urlopen(f"{address}/health/ready").close()
                break
            time.sleep(0.2)
        yield address
    finally:
        server.kill()
        server.wait()


def prepare(tab: Any, name: str) -> None:
    """Bring the page into the state that a picture shows."""
    if name == "page-runs":
        tab.goto(f"{tab.url}runs")
        tab.locator("#samples li").first.wait_for()
        return
    if name in ("page", "page-open", "page-inside"):
        tab.locator("#door > summary").click()
    tab.locator("#source").fill({"page": OF_DEMO, "page-words": UNSURE, "page-hebrew": TO_HEBREW}.get(name, TEXT))
    tab.locator("#output .word").first.wait_for()
    tab.wait_for_function("() => !document.querySelector('.working')")
    words = tab.locator("#output .word")
    if name == "page-open":
        tab.locator("#glossary > summary").click()
        tab.locator("#add-term").click()
        tab.get_by_label("Term 1", exact=True).fill("Vietnam")
        tab.get_by_label("Translation of term 1").fill("월남")
        tab.wait_for_function("() => document.querySelector('#notes').textContent")
        tab.locator("#code > summary").click()
        tab.locator("#alternatives > summary").click()
        tab.locator("#alternative-list tr").first.wait_for()
    elif name == "page-inside":
        for panel, drawn in (("attention-panel", "#thumbnails button"), ("tree", "#tree-picture svg")):
            tab.locator(f"#{panel} > summary").click()
            tab.locator(drawn).first.wait_for()
    elif name == "page-words":
        words.first.focus()
        tab.locator("#output .choice").first.wait_for()
        tab.locator("#output .choice").first.click()
        tab.locator("#choices li").first.wait_for()
    elif name == "page":
        place = OF_DEMO.index(LEFT_OUT)
        tab.locator("#source").evaluate("(box, place) => box.setSelectionRange(place + 1, place + 1)", place)
        tab.locator("#source").press("ArrowLeft")
        tab.locator("#without").click()
        tab.locator("#without-words td").first.wait_for()
        tab.locator("#output .word", has_text="베트남").hover()
        tab.locator("#mirror .word.linked").first.wait_for()
    else:
        words.nth(1 if name == "page-hebrew" else 2).hover()
        tab.locator("#output .word.linked").wait_for()
        tab.wait_for_timeout(500)


def main(model: str, folder: str, *names: str) -> None:
    """Write pictures into a folder: those of these names, or all of docs/page.md."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with serving(model) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name in names or [name for name in SIZES if name not in BY_NAME]:
            context = browser.new_context(device_scale_factor=2, reduced_motion="reduce", **SIZES[name])
            tab = context.new_page()
            tab.goto(address)
            prepare(tab, name)
            path = Path(folder) / f"{name}.png"
            if name == "page-inside":
                tab.locator("#inside").screenshot(path=path)
            else:
                tab.screenshot(path=path, full_page=name == "page-open")
            Image.open(path).convert("RGB").quantize(96, dither=Image.Dither.NONE).save(path, optimize=True)
            context.close()
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
