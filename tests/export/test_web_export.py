"""The exported page in a browser: it says what the model says in Python, and asks its own folder only."""

import contextlib
import functools
import http.server
import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import save_random, signed_again, tiny_transformer
from packages import npm_packages
from visiting import axe_problems

from dragoman import Tokenizer, export_model
from dragoman.config import SearchConfig
from dragoman.data.tokenizer import EOS, RESERVED
from dragoman.data.tokenizers import Tokenizers
from dragoman.export.run import TARGETS
from dragoman.export.target import Exported
from dragoman.export.web import PAGE
from dragoman.model_folder import read_model
from dragoman.text.tags import DefaultTags

pytest.importorskip("onnx", reason="exports need the extra `onnx`")
pytest.importorskip("onnxruntime", reason="exports need the extra `onnx`")

GREEDY = SearchConfig(beam=1)


class Quiet(http.server.SimpleHTTPRequestHandler):
    """The server of `python -m http.server`, without its log."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def page(trained: Path, corpus: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported page, without packages. Not to be changed: copy it."""
    folder = tmp_path_factory.mktemp("web") / "page"
    export_model(trained, "web", folder, test=[corpus[1]])
    return folder


@pytest.fixture(scope="module")
def installed(
    page: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Path], Path]:
    """Return a function that gives a folder the packages, as `npm install` in it does."""
    packages = npm_packages(
        {"package.json": (page / "package.json").read_bytes()}, "install", request.config, tmp_path_factory
    )

    def install(folder: Path) -> Path:
        (folder / "node_modules").symlink_to(packages / "node_modules")
        return folder

    return install


class Tab:
    """A tab with an exported page."""

    def __init__(self, tab: Any):
        self.tab = tab

    def wait_until_ready(self) -> None:
        self.tab.locator("#translate:enabled").wait_for(timeout=120_000)

    def translate(self, text: str) -> list[str]:
        self.tab.locator("#source").fill(text)
        self.tab.locator("#source").press("Control+Enter")
        return self.result()

    def result(self) -> list[str]:
        self.tab.locator("#output[aria-busy=false]").wait_for(timeout=300_000)
        return self.tab.locator("#output p").all_text_contents()

    def status(self) -> str:
        return self.tab.locator("#status").text_content()


@pytest.fixture
def visit(open_tab: Callable[..., Any]) -> Iterator[Callable[..., Tab]]:
    """Serve a folder and open the page in it, which asks its own server only, and that for nothing but its files."""

    def open_folder(folder: Path, **look: Any) -> Tab:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.callback(server.server_close)
        servers.callback(server.shutdown)
        address = f"http://127.0.0.1:{server.server_port}/"
        tab = open_tab(rf"GET ({re.escape(address)}[\w/@.-]*|data:,)", **look)
        servers.callback(tab.close)  # before its server goes: what it still loads would fail
        tab.goto(address)
        return Tab(tab)

    with contextlib.ExitStack() as servers:
        yield open_folder


def words_in_python(model: Path, page: Path, texts: list[str]) -> list[str]:
    """Return what the exported graphs say in Python."""
    native, (tokenizer, _) = read_model(model)
    engine = TARGETS["web"].open(page, Exported(native, Tokenizers.from_tokenizer(tokenizer), DefaultTags()), "int8")
    return [tokenizer.decode(best.tokens) for (best,) in engine.search(tokenizer.encode_sources(texts), GREEDY)]


def test_web_page_translates_as_python_does(visit, installed, page: Path, trained: Path, pairs, tmp_path: Path):
    """By keyboard alone: Tab leads to the text, to the button, to the copy."""
    folder = installed(Path(shutil.copytree(page, tmp_path / "page")))
    tab = visit(folder)
    tab.wait_until_ready()
    assert tab.status() == "Ready."
    texts = [source for source, _ in pairs[:3]]
    keyboard = tab.tab.keyboard
    for _ in range(2):
        keyboard.press("Tab")
    keyboard.insert_text(f"{texts[0]}\n\n{texts[1]}")
    keyboard.press("Tab")
    keyboard.press("Enter")
    expected = words_in_python(trained, page, texts)
    assert tab.result() == [expected[0], "", expected[1]]
    assert tab.status().startswith("Done in ")
    keyboard.press("Tab")
    keyboard.press("Enter")
    tab.tab.get_by_text("Copied.").wait_for()
    assert tab.tab.evaluate("navigator.clipboard.readText()") == f"{expected[0]}\n\n{expected[1]}"
    assert tab.translate(f"  {texts[2]} ") == expected[2:]
    assert len(set(expected)) > 1


@pytest.mark.slow
def test_web_page_says_the_words_of_python_200_times(
    visit, installed, page: Path, trained: Path, pairs, tmp_path: Path
):
    folder = installed(Path(shutil.copytree(page, tmp_path / "page")))
    texts = [source for source, _ in pairs]
    assert len(texts) == 200
    began = time.perf_counter()
    tab = visit(folder)
    tab.wait_until_ready()
    tab.translate(texts[0])
    print(f"first translation after {time.perf_counter() - began:.1f} s")
    assert tab.translate("\n".join(texts)) == words_in_python(trained, page, texts)
    print(tab.status())


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.slow), True])
def test_page_is_narrow_dark_and_korean_where_people_are(visit, installed, page: Path, dark: bool, tmp_path: Path):
    folder = installed(Path(shutil.copytree(page, tmp_path / "page")))
    tab = visit(folder, width=320, dark=dark, language="ko-KR")
    tab.wait_until_ready()
    tab.translate("The dog sees 4 red cats.")
    assert re.fullmatch(r"\d+\.\d초 만에 번역했습니다\.", tab.status())
    width = tab.tab.locator("html").evaluate("one => [one.scrollWidth, one.lang, getComputedStyle(one).colorScheme]")
    assert width == [320, "ko", "dark" if dark else "light"]
    tab.tab.locator("#language").select_option("en")
    assert tab.status().startswith("Done in ")
    assert tab.tab.title() == "Translate"
    assert axe_problems(tab.tab) == []


@pytest.mark.slow
def test_page_offers_tags_and_names_a_line_that_is_too_long(visit, installed, pairs, tmp_path: Path):
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair), vocabulary=400, tags=["de", "ko"])
    config = tiny_transformer(positions="learned", max_length=20, encoder_layers=2, share="none", output_bias=True)
    # No bytes: of those that are no text, the two libraries show different ones as U+FFFD.
    model = save_random(config, tokenizer, tmp_path / "model", never=slice(EOS + 1, len(RESERVED)))
    (model / DefaultTags.RECORD).write_text(DefaultTags("ko").as_json())
    signed_again(model)
    folder = tmp_path / "page"
    export_model(model, "web", folder, compute_type="float32")
    tab = visit(installed(folder))
    tab.wait_until_ready()
    assert tab.tab.locator("#tag").input_value() == "ko"
    said = {}
    for tag in ("", "de", "ko"):
        tab.tab.locator("#tag").select_option(tag)
        (said[tag],) = tab.translate("a dog")
        native, _ = read_model(model)
        engine = TARGETS["web"].open(
            folder, Exported(native, Tokenizers.from_tokenizer(tokenizer), DefaultTags()), "float32"
        )
        ((best,),) = engine.search([tokenizer.encode("a dog", tag)], GREEDY)
        assert said[tag] == tokenizer.decode(best.tokens)
    assert len(set(said.values())) == 3
    tab.translate("a dog\n" + "a dog " * 20)
    assert re.fullmatch(r"Line 2 is too long: \d+ tokens, at most 20\. Divide it\.", tab.status())
    tab.tab.locator("#language").select_option("ko")
    assert tab.status().startswith("2번째 줄이 너무 길어")


def test_web_page_without_packages_or_model_says_what_to_do(visit, installed, page: Path, tmp_path: Path):
    tab = visit(page, expected="404")
    tab.tab.get_by_text("Two packages are missing. Run “npm install”").wait_for()
    folder = installed(Path(shutil.copytree(page, tmp_path / "page")))
    (folder / "onnx" / "encoder_model_int8.onnx").unlink()
    tab = visit(folder, expected="404")
    tab.tab.get_by_text("The model could not be loaded: onnx/encoder_model_int8.onnx: 404").wait_for()
    assert tab.tab.locator("#translate").is_disabled()


def test_web_page_has_its_texts_in_both_languages():
    script, document = ((PAGE / name).read_text("utf-8") for name in ("translate.js", "index.html"))
    catalogue = re.search(r"const TEXTS = \{\n(.+?)\n\};", script, re.DOTALL)[1]
    texts: dict[str, dict[str, str]] = {}
    for language, block in re.findall(r"  (\w\w): \{\n(.+?)\n  \},", catalogue, re.DOTALL):
        texts[language] = dict(re.findall(r'^    (\w+): "(.+)",$', block, re.MULTILINE))
    assert set(texts) == {"en", "ko"}
    places = [{name: sorted(re.findall(r"\{\w+\}", text)) for name, text in block.items()} for block in texts.values()]
    assert places[0] == places[1]
    assert all(re.search("[가-힣]", text) for text in texts["ko"].values())
    named = {*re.findall(r'data-text="(\w+)"', document), *re.findall(r'(?:say|text|Problem)\("(\w+)"', script)}
    assert named | {"failed", "broken", "loading"} == set(texts["en"])
    assert len(named) > 15


def test_web_folder_pins_its_packages_and_is_checked_in_int8(page: Path):
    package = json.loads((page / "package.json").read_text("utf-8"))
    assert set(package["dependencies"]) == {"@huggingface/tokenizers", "onnxruntime-web"}
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in package["dependencies"].values())
    assert "int8 on" in (page / "README.md").read_text("utf-8")
    assert {file.name for file in (page / "onnx").iterdir()} == {
        "encoder_model_int8.onnx",
        "decoder_model_merged_int8.onnx",
    }
