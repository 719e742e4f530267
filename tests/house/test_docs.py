"""README and docs speak of things that exist."""

import json
import re
from pathlib import Path

import pytest
from test_flags import FLAGS

from dragoman.cli import COMMANDS
from dragoman.demo.phrasebook import templates
from dragoman.version import __version__

ROOT = Path(__file__).parents[2]
OURS = "dragoman"  # the column of its figures
PACKAGE = ROOT / "src" / "dragoman"
FRONT = [*ROOT.glob("*.md"), PACKAGE / "README.md"]
PAGES = [*FRONT, *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:^    |`|-m )dragoman ([a-z]+)((?:[^`\n]|\\\n)*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^):#]*)(?:#([^)]+))?\)")


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def read(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def commands() -> list[tuple[str, str, list[str]]]:
    """Return (page, command, its flags) for every command line on the pages."""
    return [
        (page, name, sorted(set(re.findall(r"(?<!\S)--?[a-z][a-z0-9.-]*", rest))))
        for page in names(PAGES)
        for name, rest in COMMAND.findall(re.sub(r" --\S+\.NAME", "", read(page)))  # a flag of the reader's
    ]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page: of its headings, as GitHub makes them, and those of an HTML page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^    .*$", "", text, flags=re.MULTILINE), re.MULTILINE)
    ids = re.findall(r' id="([\w-]+)"', text) if text.startswith("<!") else []
    return {*ids, *(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)}


def test_pages_show_every_command():
    assert {name.split()[0] for _, name, _ in commands()} >= set(COMMANDS)


def test_commands_and_flags_on_the_pages_exist():
    for page, command, flags in commands():
        assert set(flags) <= {"-h", "--help", *FLAGS[command].split()}, (page, command)


@pytest.mark.parametrize("page", names(PAGES))
def test_links_lead_somewhere(page: str):
    for target, anchor in LINK.findall(re.sub(r"`[^`\n]*`", "", read(page))):  # `POSITIONS[...](...)` is code
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(read(file)), (target, anchor)


def test_files_and_names_of_the_table_from_paper_to_code_exist():
    text = read("docs/paper-to-code.md")
    code = "\n".join(file.read_text(encoding="utf-8") for file in PACKAGE.rglob("*.py"))
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (PACKAGE / name).exists(), name
    for name in re.findall(r"`([A-Z]\w+|[a-z]+_[a-z_]+)`", text):
        assert re.search(rf"\b{name}\b", code), name


@pytest.mark.parametrize("page", [page for page in names(PAGES) if not page.startswith("CHANGELOG")])
def test_dotted_names_on_the_pages_can_be_imported(page: str):
    """`dragoman.data.spec.parse_corpora(words)` is a module and a name in it."""
    for dotted in set(re.findall(r"`(dragoman\.[\w.]+\w)\(", read(page))):
        module, _, name = dotted.rpartition(".")
        assert hasattr(__import__(module, fromlist=[name]), name), dotted
    for module, imported in re.findall(r"^(?:    )?from (dragoman[\w.]*) import ([\w, ]+)$", read(page), re.MULTILINE):
        for name in imported.split(", "):
            assert hasattr(__import__(module, fromlist=[name]), name), (module, name)


def test_map_of_the_code_has_every_folder_of_the_package():
    table = read("src/dragoman/README.md").split("## Folders")[1].split("\n## ")[0]
    shown = set(re.findall(r"^\| `(\w+)/` \|", table, re.MULTILINE))
    assert shown == {folder.name for folder in PACKAGE.iterdir() if [*folder.glob("*.py"), *folder.glob("*.toml")]}


def numbers(text: str, row: str) -> list[str]:
    """Return the numbers of a table's row, without spreads and ratios."""
    (line,) = [line for line in text.split("\n") if line.startswith(f"| {row} ")]
    cells = [cell.strip(" *") for cell in line.removeprefix(f"| {row}").split(" | ")]
    return re.findall(r"(?<![\w.,])\d[\d,]+(?=[ *;]|$)", " ; ".join(re.sub(r" ± \d+ %", "", cell) for cell in cells))


def measured(file: str, *columns: str) -> dict[tuple[str, ...], dict[str, str]]:
    """Return the rows of a result by the cells of some columns; cells without their spreads."""
    result = json.loads(read(f"benchmarks/results/{file}"))
    rows = [dict(zip(result["columns"], row, strict=True)) for row in result["rows"]]
    return {
        tuple(row[column] for column in columns): {name: cell.split(" ±")[0] for name, cell in row.items()}
        for row in rows
    }


def test_comparison_has_the_speeds_of_the_results():
    comparison = read("docs/comparison.md")
    training = measured("2026-11-29-zen-5-training-1-thread.json", "model", "precision", "toolkit")
    rows = [(OURS, "float32"), (OURS, "bfloat16"), ("Marian", "float32"), ("JoeyNMT", "float32")]
    later_turns = [training["base", precision, toolkit]["later turns"] for toolkit, precision in rows]
    assert numbers(comparison, "training, `base`, one CPU thread, tokens/s") == later_turns
    decoding = measured("2026-11-30-avx2-decoding-1-thread.json", "")
    shown = (OURS, f"{OURS} int8", "Marian", "CTranslate2", "CTranslate2 int8")
    for batch, row in (
        (32, "decoding, batch 32, one CPU thread, tokens/s, beam 4 and greedy"),
        (1, "the same, one sentence at a time"),
    ):
        searches = [decoding[(f"beam {beam}, batch {batch}",)] for beam in (4, 1)]
        assert numbers(comparison, row) == [search[name] for name in shown for search in searches]


def test_readme_is_short():
    assert read("README.md").count("\n") <= 110


def lines_to_type(page: str) -> set[str]:
    """Return the commands that a page shows, without comments."""
    shown = re.findall(r"^    ((?:dragoman|make|source|cd) .*)$|`((?:dragoman|make|pip) [^`]*)`", page, re.MULTILINE)
    return {re.split(r"\s+#|\s{3,}", indented or code)[0].strip() for indented, code in shown}


def test_korean_readme_has_only_commands_of_english_pages_and_links_back():
    english = [page for page in names(PAGES) if not page.endswith(".ko.md")]
    assert lines_to_type(read("README.ko.md")) <= set[str]().union(*(lines_to_type(read(page)) for page in english))
    assert "](README.ko.md)" in read("README.md")
    assert "](README.md)" in read("README.ko.md")


def test_changelog_begins_with_this_version():
    first = next(line for line in read("CHANGELOG.md").split("\n") if line.startswith("## "))
    assert first.split()[1] == __version__


def test_sentences_to_try_are_of_patterns_that_the_demo_knows():
    """The words "A sentence." stand for one of the reader's own."""
    pages = [*map(read, names(PAGES)), *(file.read_text(encoding="utf-8") for file in PACKAGE.glob("commands/**/*.py"))]
    example = r"""(?:dragoman (?:translate|inspect) -m |Translator\.load\(")([^\s"]+)(?:"\),)? "([^"]+)\""""
    tried = re.findall(example, "\n".join(pages))
    assert {model for model, _ in tried} >= {"runs/mine", "runs/demo-en-ko"}
    patterns = [re.sub(r"\\\{.*?\\\}", ".+", re.escape(template["en"])) for template in templates()]
    for model, sentence in tried:
        known = any(re.fullmatch(pattern, sentence) for pattern in patterns)
        assert known or sentence == "A sentence." or model == "runs/try", (model, sentence)
