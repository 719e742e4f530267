"""The site of the pages: all of them, as GitHub shows them; links lead somewhere, and nothing is asked of others."""

import functools
import http.server
import re
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from visiting import axe_problems

from dragoman.version import __version__

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))
from docs_site import build, source_pages  # noqa: E402

NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
LARGE = ("docs/course/tour.ko.html", "docs/serving.html", "docs/from-other-toolkits.html")
SEEN = ["index.html", *(pytest.param(page, marks=pytest.mark.slow) for page in LARGE)]


class Links(HTMLParser):
    """Collects what a page has to go to (`anchors`), what it links to (`targets`) and what it loads (`loaded`)."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.targets, self.loaded = {""}, list[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values.get("id", ""), values.get("name", "") if tag == "a" else ""}
        if tag == "a":
            self.targets += [values["href"]] if "href" in values else []
        elif values.get("rel") != "canonical":
            self.loaded += [values[name] for name in ("src", "href") if name in values]


def lost_links(folder: Path) -> list[tuple[str, str]]:
    """Return links of the pages of a folder that lead nowhere, and what is loaded from elsewhere, with the page."""
    pages = {page: Links(page.read_text(encoding="utf-8")) for page in folder.rglob("*.html")}
    lost = []
    for page, links in pages.items():
        for target in [*links.targets, *links.loaded]:
            url = urllib.parse.urlsplit(target)
            if url.scheme in ("http", "https") and target in links.targets:
                continue
            file = page.parent / urllib.parse.unquote(url.path) if url.path else page
            file = (file / "index.html" if file.is_dir() else file).resolve()
            anchors = pages[file].anchors if file in pages else {""}
            if url.scheme == "data" or (file.exists() and urllib.parse.unquote(url.fragment) in anchors):
                continue
            lost.append((str(page.relative_to(folder)), target))
    return lost


def address(page: Path) -> Path:
    return page.with_name("index.html") if page.name == "README.md" else page.with_suffix(".html")


def words(html: str) -> str:
    """Return the text of HTML without white space and the marks behind headings."""
    return "".join(unescape(re.sub(r"<[^>]*>", "", html)).replace("¶", "").split())


@pytest.fixture(scope="module")
def site(make_once: Callable[..., Path]) -> Path:
    pytest.importorskip("zensical")
    return make_once("site", build).resolve() / "html"


@pytest.fixture(scope="module")
def served(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_navigation_has_every_page_once():
    assert sorted(re.findall(r"(\S+\.md)$", NAV, re.MULTILINE)) == sorted(map(str, source_pages()))


def test_site_has_the_text_of_every_page_as_github_shows_it(site: Path):
    markdown = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    badge = r'<img src="http[^>]* alt="([^"]*)"[^>]*>'
    for page in source_pages():
        shown = (site / address(page)).read_text(encoding="utf-8")
        (article,) = re.findall(r"<article[^>]*>(.*?)</article>", shown, re.DOTALL)
        expected = re.sub(badge, r"\1", markdown.render((ROOT / page).read_text(encoding="utf-8")))
        assert words(article) == words(expected), page


def test_links_of_the_site_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path):
    assert lost_links(site) == []


def test_lost_links_are_seen_control(tmp_path: Path):
    text = '<a id="here" href="#here"></a><a href="https://example.org"></a><img src="data:,">'
    bad = ["#there", "other.html", "b.html#here", "https://example.org/a.png"]
    text += "".join(f'<a href="{url}"></a>' for url in bad[:3]) + f'<img src="{bad[3]}">'
    (tmp_path / "a.html").write_text(text)
    (tmp_path / "b.html").write_text("")
    assert [target for _, target in lost_links(tmp_path.resolve())] == bad


def test_site_says_its_version_and_the_language_of_its_pages(site: Path):
    for page in source_pages():
        head = (site / address(page)).read_text(encoding="utf-8")[:3000]
        assert f"dragoman {__version__}" in head
        assert f'<html lang="{"ko" if page.stem.endswith(".ko") else "en"}"' in head


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("page", SEEN)
def test_page_of_the_site_is_accessible_and_fits(served: str, open_tab: Callable[..., Any], page: str, width: int):
    for dark in (False, True):
        tab = open_tab(rf"GET ({re.escape(served)}/.*|data:.*)", width=width, dark=dark)
        tab.goto(f"{served}/{page}", wait_until="networkidle")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert axe_problems(tab) == []


@pytest.mark.parametrize("opened_as", ["file", "http"])
def test_search_answers_in_both_languages(site: Path, served: str, open_tab: Callable[..., Any], opened_as: str):
    start = urllib.parse.unquote(site.as_uri()) if opened_as == "file" else served
    tab = open_tab(rf"GET ({re.escape(start)}/.*|data:.*|about:srcdoc)")
    tab.goto(f"{start}/index.html", wait_until="networkidle")
    tab.keyboard.press("/")
    for query, answer in (("glossary", "How terms get into a translation"), ("잔차", "10. 피드포워드와 잔차 연결")):
        tab.locator("input[role=combobox]").fill(query)
        tab.locator("h1, h2, h3, a").filter(has_text=answer).first.wait_for()


def test_live_model_of_the_course_is_on_the_site(served: str, open_tab: Callable[..., Any]):
    tab = open_tab(rf"GET ({re.escape(served)}/.*|data:.*|blob:.*)")
    tab.goto(f"{served}/docs/course/index.html")
    tab.get_by_role("link", name="The Transformer on one page").click()
    tab.locator("svg").first.wait_for()


def test_build_stops_at_a_link_to_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("zensical")
    import docs_site

    monkeypatch.setattr(docs_site, "source_pages", lambda: [Path("docs/clusters.md")])
    monkeypatch.setattr(docs_site, "convert", lambda page: "# A\n\n[nowhere](#b)\n")
    with pytest.raises(subprocess.CalledProcessError):
        docs_site.build(tmp_path)
