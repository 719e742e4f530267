"""One word for each thing: docs/course/terms.md has the terms, and no Korean text uses another word for them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COURSE = ROOT / "docs" / "course"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (COURSE / "terms.md").read_text(encoding="utf-8").split("\n")
    if re.match(r"\| (?!English)[\w-]", line)
]
TEXTS = [
    ROOT / "README.ko.md",
    *COURSE.glob("*.ko.md"),
    *COURSE.glob("notebooks/*.ko.ipynb"),
    *(COURSE / name for name in ("transformer.py", "model.html")),
    *(file for ending in ("ko.po", "*.json", "*.html", "*.js") for file in (ROOT / "src").rglob(ending)),
]
REJECTED = re.compile("|".join(word for *_, words in ROWS if words != "–" for word in words.split(", ")))


@pytest.mark.parametrize("file", TEXTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_terms_are_those_of_the_table(file: Path):
    assert REJECTED.findall(file.read_text(encoding="utf-8")) == []


def test_terms_of_another_page_would_be_found():
    assert REJECTED.findall("밸류의 가중합, 마스크를 쓴 셀프 어텐션, 값") == ["밸류", "마스크를 쓴 셀프 어텐션"]
    assert len({term for english, korean, *_ in ROWS for term in (english, korean)}) == 2 * len(ROWS) > 80


def stop(page: str, number: str) -> str:
    """Return a stop of a tour on one line, in small letters."""
    text = (COURSE / page).read_text(encoding="utf-8")
    return " ".join(text.partition(f"\n## {number}. ")[2].partition("\n## ")[0].lower().split())


def test_terms_are_at_the_stops_that_explain_them():
    for english, korean, where, _ in ROWS:
        number = re.findall(r"\[(\d+)\]\(tour\.md#\1-", where)[0]
        for page, terms in (("tour.md", english), ("tour.ko.md", korean)):
            assert all(term.lower() in stop(page, number) for term in terms.split(", ")), (terms, page)
