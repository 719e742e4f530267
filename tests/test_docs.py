"""README and docs speak of things that exist."""

import re
from pathlib import Path

import pytest

from dragoman.cli import COMMANDS, main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"(?:^    |`)dragoman (benchmark [a-z-]+|[a-z]+)([^`\n]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def commands() -> list[tuple[str, str, list[str]]]:
    """(page, command, its flags), of every command line on the pages."""
    found = []
    for page in PAGES:
        for name, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
            found.append((page.name, name, re.findall(r"(?<!\S)--?[a-z][a-z.-]*", rest)))
    return found


def test_the_pages_show_every_command():
    assert {name.split()[0] for _, name, _ in commands()} >= set(COMMANDS)


@pytest.mark.parametrize(("page", "name", "flags"), commands())
def test_commands_and_flags_on_the_pages_exist(page, name, flags, capsys):
    assert name.split()[0] in COMMANDS, page
    with pytest.raises(SystemExit) as end:
        main([*name.split(), "--help"])
    assert end.value.code == 0
    words = set(re.findall(r"--?[a-z][a-z.-]*", capsys.readouterr().out))
    assert set(flags) <= words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_files_and_names_of_the_table_from_paper_to_code_exist():
    text = (ROOT / "docs" / "paper-to-code.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "dragoman"
    code = "\n".join(file.read_text(encoding="utf-8") for file in package.rglob("*.py"))
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (package / name).exists(), name
    for name in re.findall(r"`([A-Z]\w+|[a-z]+_[a-z_]+)`", text):
        assert re.search(rf"\b{name}\b", code), name
