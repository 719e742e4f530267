"""The notebooks of the course: both languages come from one source, run from top to bottom, and show what came out."""

import ast
import base64
import importlib.util
import io
import math
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from nbclient.exceptions import CellExecutionError
from PIL import Image
from test_page import stands_out

import dragoman

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "course" / "notebooks"
SOURCES = sorted(FOLDER.glob("*.py"))
LANGUAGES = ("en", "ko")


def load_script() -> ModuleType:
    """Import scripts/notebooks.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()


def written(source: Path, language: str) -> Any:
    return nbformat.read(source.with_suffix(SCRIPT.SUFFIXES[language]), as_version=4)


def contents(notebook: Any) -> list[tuple[str, str, str]]:
    """What a notebook has without its outputs."""
    return [(cell.id, cell.cell_type, cell.source) for cell in notebook.cells]


def texts(notebook: Any) -> str:
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def outputs(notebook: Any) -> list[Any]:
    return [output for cell in SCRIPT.code_cells(notebook) for output in cell.outputs]


def drawn(notebook: Any) -> list[Any]:
    """Return the outputs that have a picture."""
    return [output for output in outputs(notebook) if "image/png" in output.get("data", {})]


def described(notebook: Any) -> list[str]:
    """Return the text alternative of each picture."""
    return [output.metadata["image/png"]["alt"] for output in drawn(notebook)]


def decimals(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"\d+\.\d+", text)}


def printed(notebook: Any) -> str:
    """The text of all outputs; that of a picture is its name."""
    return "\n".join(output.get("text") or output.data["text/plain"] for output in outputs(notebook))


def test_notebooks_are_three_in_two_languages():
    expected = {source.with_suffix(suffix) for source in SOURCES for suffix in SCRIPT.SUFFIXES.values()}
    assert {*FOLDER.glob("*.ipynb")} == expected
    assert len(expected) == 6


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebooks_are_those_of_their_sources(source: Path, language: str):
    """If this fails: python scripts/notebooks.py."""
    notebook = written(source, language)
    assert contents(notebook) == contents(SCRIPT.build(source, language))
    nbformat.validate(notebook)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebooks_have_the_same_code_numbers_and_names_in_both_languages(source: Path):
    english, korean = (written(source, language) for language in LANGUAGES)
    assert SCRIPT.code_cells(english) == SCRIPT.code_cells(korean) != []
    one, other = (
        {*re.findall(r"`[^`]+`|\d+\.\d+", " ".join(texts(notebook).split()))} for notebook in (english, korean)
    )
    assert one == other
    sections = [len(re.findall("^## ", texts(notebook), re.MULTILINE)) for notebook in (english, korean)]
    assert sections[0] == sections[1] > 4


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebook_outputs_have_pictures_and_neither_errors_nor_local_paths(source: Path):
    shown = outputs(notebook := written(source, "en"))
    assert {output.output_type for output in shown} <= {"stream", "execute_result", "display_data"}
    assert [output for output in shown if output.get("name") == "stderr"] == []
    assert re.findall(r"(?:^|[\s'\"])/\w+|0x[0-9a-f]{6}|\x1b", printed(notebook)) == []
    assert "keep the cores busy" not in printed(notebook)  # written while the machine was quiet
    pictures = [base64.b64decode(output.data["image/png"]) for output in drawn(notebook)]
    assert len(pictures) >= 2
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert max(map(len, pictures)) < 100_000
    words = described(notebook)
    assert len({*words}) == len(words)
    assert min(map(len, words)) > 20
    for picture in pictures:  # on white, whatever the page's colour scheme
        assert Image.open(io.BytesIO(picture)).convert("RGBA").getpixel((0, 0)) == (255, 255, 255, 255)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_links_lead_to_files_and_say_where_they_lead(source: Path, language: str):
    links = re.findall(r"\[([^]]+)\]\(([^)]+)\)", texts(written(source, language)))
    assert [target for _, target in links if not (FOLDER / target).is_file()] == []
    assert not {words for words, _ in links} & {"here", "여기"}


def rendered(notebook: Any, **options: str) -> str:
    """Return the page that nbconvert makes, with empty scripts in place of those that it loads from elsewhere."""
    from nbconvert import HTMLExporter

    nothing = "data:text/javascript,"
    return HTMLExporter(require_js_url=nothing, mathjax_url=nothing, **options).from_notebook_node(notebook)[0]


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebooks_are_shown_on_a_phone_in_both_schemes_without_a_mouse(
    open_page: Any, source: Path, language: str, dark: bool
):
    """Colours of code and of prompts are Jupyter's. Lines of code are cut by nbconvert; Jupyter lets them scroll."""
    notebook = written(source, language)
    page = rendered(notebook, theme="dark" if dark else "light", language_code=language)
    tab = open_page(page, width=320, dark=dark, language=language)
    assert tab.evaluate("document.documentElement.lang") == language
    assert tab.evaluate("document.documentElement.scrollWidth") <= 320
    parts = "[...document.querySelectorAll(':not(.jp-CodeCell .jp-InputArea, .jp-CodeCell .jp-InputArea *)')]"
    assert tab.evaluate(f"{parts}.filter(part => part.scrollWidth > 320).map(part => part.outerHTML)") == []
    assert tab.evaluate("[...document.images].filter(image => image.naturalWidth > 300).length") == len(drawn(notebook))
    stands_out(tab, dark, *(f"main {name}" for name in ("h1", "h2", "p", "li", "p a", ".jp-OutputArea pre")))
    reached = []
    for _ in range(tab.locator("a, [tabindex]").count()):  # cells take the focus, too
        tab.keyboard.press("Tab")
        reached.append(tab.evaluate("document.activeElement.getAttribute('href')"))
    links = re.findall(r"\]\(([^)]+)\)", texts(notebook))
    assert list(dict.fromkeys(filter(None, reached))) == links != []


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_browser_finds_the_text_alternatives(open_page: Any, source: Path):
    """In the template `basic`, which keeps them; the default one of nbconvert does not."""
    tab = open_page(rendered(notebook := written(source, "en"), template_name="basic"))
    assert tab.evaluate("[...document.images].map(image => image.alt)") == described(notebook) != []


@pytest.mark.parametrize("language", LANGUAGES)
def test_numbers_of_the_texts_are_those_that_the_code_gives(language: str):
    """Texts about a model that was trained have none: its last digits depend on the machine."""
    numbers = {source.stem: decimals(texts(written(source, language))) for source in SOURCES}
    given = numbers.pop("attention-by-hand") - {round(math.e, 3)}
    assert given <= decimals(printed(written(FOLDER / "attention-by-hand.py", language)))
    assert len(given) >= 5
    assert set().union(*numbers.values()) == set()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebooks_use_public_names_of_dragoman_alone(source: Path):
    imported = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "dragoman":
            imported |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module in sys.stdlib_module_names
        elif isinstance(node, ast.Import):
            assert {name.name for name in node.names} <= {*sys.stdlib_module_names, "torch"}
    assert imported
    assert imported <= set(dragoman.__all__)


def run_here(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a notebook in an empty folder."""
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    notebook = SCRIPT.build(source, "en")
    SCRIPT.run(notebook, folder)
    return notebook


@pytest.mark.slow
def test_attention_by_hand_runs_and_gives_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    source = FOLDER / "attention-by-hand.py"
    assert printed(run_here(source, tmp_path, monkeypatch)) == printed(written(source, "en"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train-and-look", "what-a-head-does"])
def test_other_notebooks_run_and_their_assertions_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With a control: a model that has not learned."""
    source = FOLDER / f"{name}.py"
    shown, before = run_here(source, tmp_path, monkeypatch), written(source, "en")
    assert [sorted(output.get("data", {})) for output in outputs(shown)] == [
        sorted(output.get("data", {})) for output in outputs(before)
    ]
    untrained = tmp_path / f"{name}.py"
    untrained.write_text(re.sub(r"max_steps=\d+", "max_steps=1", source.read_text(encoding="utf-8")), encoding="utf-8")
    (tmp_path / "again").mkdir()
    with pytest.raises(CellExecutionError, match="AssertionError"):
        run_here(untrained, tmp_path / "again", monkeypatch)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_notebooks_install_dragoman_where_there_is_none(source: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    code = TransformerManager().transform_cell(SCRIPT.code_cells(written(source, "en"))[0].source)
    shell = SimpleNamespace(run_line_magic=lambda *words: asked.append(" ".join(words)))
    for installed in (object(), None):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, found=installed: found)
        exec(code, {"get_ipython": lambda: shell})
    assert asked == ['pip install --quiet "dragoman[plot]"']
