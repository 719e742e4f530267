"""Accelerators: what is one and what is none, and that each is on a letter of its own where that is possible."""

import itertools
import re

import pytest
from growth import grows_too_fast, processor_seconds
from hypothesis import given
from hypothesis import strategies as st

from dragoman.text.accelerators import MARKERS, MENU, Accelerator, convention, find, place
from dragoman.text.assignment import assign

# The text, its words and its letter.
MARKED = [
    ("&File", "File", "F"), ("_File", "File", "F"), ("~File", "File", "F"), ("E&xit", "Exit", "x"),
    ("E_xit", "Exit", "x"), ("E~xit", "Exit", "x"), ("E&XIT", "EXIT", "X"), ("&1 Window", "1 Window", "1"),
    ("Save _As...", "Save As...", "A"), ("Find ne_xt:", "Find next:", "x"), ("Move u&p", "Move up", "p"),
    ("Save && &Quit", "Save & Quit", "Q"), ("Search & &Replace", "Search & Replace", "R"), ("&&&File", "&File", "F"),
    ("a__b _File", "a_b File", "F"), ("文件(&F)", "文件", "F"), ("Open(_O)...", "Open...", "O"),
    ("열기 (~O)…", "열기…", "O"), ("打开（&O）:", "打开:", "O"), ("<b>_File</b>", "<b>File</b>", "F"),
    ("&nbsp;R&un", "&nbsp;Run", "u"),
    ("_Open %(file_name)s", "Open %(file_name)s", "O"), ("Show &qBittorrent", "Show qBittorrent", "q"),
    ("&Файл", "Файл", "Ф"), ("_Αρχείο", "Αρχείο", "Α"), ("&קובץ", "קובץ", "ק"), ("Image~Map", "ImageMap", "M"),
]  # fmt: skip
LITERAL = [
    "Fish &amp; chips", "&nbsp;", "R&D", "Q&A", "q&a", "AT&T", "R&Ds are here", "A & B", "Drag&Drop", "A&1", "?a=1&b=2",
    "https://example.org/?a=1&b=2", "http://example.org/a_b", "snake_case", "my_file.txt", "_blank", "__init__",
    "utf_8", "MAX_SIZE", "My_File", "Open %(file_name)s", "{my_name}", "Set file_name to a path.",
    "call open_file(path)", "_emphasis_", "Use foo_bar and baz_qux", "~/path", "~5", "A~Z", "월~금", "%s&Name", "&",
    "_", "~", "", "100 &", "A&", "Use &name= here", "Drop off_on_off here",
]  # fmt: skip


def marker_of(text: str) -> str:
    return next(marker for marker in MARKERS if re.search(rf"{marker}{marker}|{marker}\w", text.replace("&nbsp;", "")))


def in_menu(*texts: str) -> list[str]:
    """Return texts with accelerators, as translations of "&File", "&Edit", "&View", "&Help", "&File", ..."""
    sources = itertools.cycle(["&File", "&Edit", "&View", "&Help"])
    return place(texts, [find(next(sources), "&") for _ in texts])


@pytest.mark.parametrize(("text", "words", "letter"), MARKED)
def test_accelerator_is_found_and_taken_out(text: str, words: str, letter: str):
    marker = marker_of(text)
    assert find(text, marker) == Accelerator(words, marker, letter)


@pytest.mark.parametrize("text", LITERAL)
def test_literal_marker_is_no_accelerator(text: str):
    assert [find(text, marker) for marker in MARKERS] == [None] * 3
    assert convention([text]) == ""


@pytest.mark.parametrize("marker", MARKERS)
def test_texts_with_several_marks_are_left_alone(marker: str):
    assert find(f"{marker}Open or {marker}save", marker) is None
    assert find(f"{marker}Open or save", marker)


def test_accelerator_is_found_only_in_a_file_that_has_the_marker():
    assert find("&File", "") is find("&File", "_") is None


@pytest.mark.parametrize("shortcut", ["\tCtrl+O", "\\tCtrl+Shift+O", "\tF3", "\tCtrl++", "\tDel", "\tStrg+Alt+Entf"])
def test_shortcut_after_a_tab_comes_back(shortcut: str):
    for text, result in (("&Open", "Ö&ffnen"), ("Open", "Öffnen"), ("A && B", "A && B")):
        accelerator = find(text + shortcut, "&")
        assert accelerator
        assert accelerator.shortcut == shortcut
        translation = result.replace("&&", "\0").replace("&", "").replace("\0", "&")
        assert place([translation], [accelerator]) == [result + shortcut]


@pytest.mark.parametrize("text", ["Name\tValue", "a\tb", "C:\\temp", "\t"])
def test_texts_after_a_tab_are_no_shortcut(text: str):
    assert find(text, "") is None


@pytest.mark.parametrize(
    ("marker", "texts"),
    [
        ("&", ["&File", "E&xit", "R&D", "Save"]),
        ("_", ["_File", "Save _As", "E_xit", "my_file", "Cut & paste"]),
        ("~", ["~Datei", "~Ansicht", "~5"]),
        ("_", ["파일(_F)", "열기(_O)"]),
        ("", ["R&D is _here_.", "See my_file.", "A & B", "Use ~/path."]),
        ("", ["snake_case", "_File", "foo_bar"]),
        ("", ["Find ne_xt"]),
        ("", []),
    ],
)
def test_convention_of_a_file_is_what_most_of_its_texts_show(marker: str, texts: list[str]):
    assert convention(texts) == convention(reversed(texts)) == marker


@pytest.mark.parametrize(
    ("source", "translation", "result"),
    [
        ("&Print", "Seite Print", "Seite &Print"),  # the same letter
        ("&File", "das Menü", "das &Menü"),  # a capital at the beginning of a word
        ("&File", "über den Rand", "über den &Rand"),
        ("&File", "öffnen", "ö&ffnen"),  # a consonant, and without an accent
        ("&File", "jagen", "jage&n"),  # no letter that is narrow or descends
        ("&File", "1 öl", "1 &öl"),  # a digit last
        ("&File", "123", "&123"),
        ("&File", "Файл", "&Файл"),
        ("&File", "Αρχείο", "&Αρχείο"),
        ("&File", "ملف", "&ملف"),
        ("&File", "קובץ", "&קובץ"),
        ("&File", "e\u0301te\u0301", "e\u0301&te\u0301"),
        ("&File", "파일", "파일(&F)"),
        ("&Open...", "열기...", "열기(&O)..."),
        ("&Name:", "名前：", "名前(&N)："),
        ("&HTML", "HTML로 저장", "HTML로 저장(&H)"),
        ("&Файл", "파일", "파일(&A)"),
        ("&Open %s", "%s", "%s (&O)"),
        ("&Open <b>%s</b>", "<b>%s</b> {name} öffnen", "<b>%s</b> {name} ö&ffnen"),
        ("_Open %(a_b)s", "%(a_b)s_Ö öffnen", "%(a_b)s__Ö ö_ffnen"),
        ("Save && &Quit", "Sichern & Quittieren", "Sichern && &Quittieren"),
        ("A && B", "C & D &amp; &nbsp;", "C && D &amp; &nbsp;"),
    ],
)
def test_accelerator_is_placed_on_the_best_letter(source: str, translation: str, result: str):
    marker = marker_of(source)
    assert place([translation], [find(source, marker)]) == [result]


def test_letters_in_a_menu_differ():
    assert in_menu("Fa", "Fb", "F") == ["F&a", "F&b", "&F"]
    assert in_menu("파일", "편집", "보기", "도움말", "폴더") == [
        "파일(&F)",
        "편집(&E)",
        "보기(&V)",
        "도움말(&H)",
        "폴더(&A)",
    ]


def test_letters_of_entries_translated_before_are_left_to_them():
    assert place(["Datei"], [find("&File", "&")], taken="D") != place(["Datei"], [find("&File", "&")]) == ["&Datei"]
    assert place(["D"], [find("&File", "&")], taken="D") == ["&D"]


def test_texts_without_an_accelerator_stay():
    assert place(["R&D", "A & B"], [None, None]) == ["R&D", "A & B"]


WORDS = st.text("abDÖß éяФ파1&_~<%", min_size=1, max_size=8)


@given(st.lists(st.tuples(WORDS, st.sampled_from("fEx1")), max_size=8), st.sampled_from(MARKERS))
def test_placed_accelerator_has_the_words_and_one_mark(entries: list[tuple[str, str]], marker: str):
    accelerators = [Accelerator("Fix", marker, letter) for _, letter in entries]
    for (words, _), result in zip(entries, place([words for words, _ in entries], accelerators), strict=True):
        plain = result.replace(2 * marker, "\0")
        assert plain.count(marker) == 1
        assert plain[plain.index(marker) + 1].isalnum()
        bracketed = re.compile(rf" ?\({marker}[A-Z1-9]\)")
        assert bracketed.sub("", plain).replace(marker, "").replace("\0", marker) == words


ROWS = st.lists(st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), min_size=1), max_size=4)


@given(ROWS)
def test_assignment_is_the_best_of_all(rows: list[dict[str, int]]):
    def value(letters: tuple[str, ...]) -> tuple[int, int]:
        """Return how many letters there are, and what rows with a letter of their own cost."""
        return -len(set(letters) - {""}), sum(row[letter] for row, letter in zip(rows, letters, strict=True) if letter)

    choices = itertools.product(*(["", *row] for row in rows))
    unique = [each for each in choices if len([*filter(None, each)]) == len({*filter(None, each)})]
    letters = assign(rows)
    assert -len(set(letters)) == min(map(value, unique))[0]
    if len(set(letters)) == len(rows):
        assert value(tuple(letters)) == min(map(value, unique))


def test_rows_without_a_letter_left_share_the_one_used_least():
    assert sorted(assign([{"a": 0, "b": 1}] * 4)) == ["a", "a", "b", "b"]
    assert assign([{"a": 0}, {"a": 0, "b": 9}, {"b": 0}, {"b": 0, "a": 1}], taken="a") == ["a", "b", "b", "b"]


@pytest.mark.parametrize("unit", ["a_", "&", "a&b ", "\t", "(&F)", " ", "a", "~/a", "\\tCtrl+", "파", "<"])
def test_long_texts_take_linear_time(unit: str):
    def seconds(size: int) -> float:
        text = unit * (size // len(unit))

        def run() -> None:
            convention([text])
            place([text], [Accelerator("File", "&", "F")])
            for marker in MARKERS:
                find(text, marker)

        return processor_seconds(run)

    assert not grows_too_fast(seconds, 10_000)


def test_long_menus_take_linear_time():
    letters = [chr(code) for code in range(0x400, 0x500)]

    def seconds(size: int) -> float:
        texts = ["".join(letters[row % 200 : row % 200 + 40]) for row in range(size)]
        return processor_seconds(lambda: place(texts, [Accelerator("File", "&", "F")] * size))

    assert not grows_too_fast(seconds, 4 * MENU)
