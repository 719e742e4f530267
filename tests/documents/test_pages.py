"""Web pages: which language they say they are in, and the attributes that readers see or hear."""

import pytest

from dragoman.documents import read_document

PAGE = '<html lang="en-US" dir="ltr"><p lang=en>One <i lang="en">big</i> <b lang="fr">mot</b></p><p>Two</p></html>'


def translated(page: str, source: str = "", target: str = "") -> str:
    document = read_document(page.encode(), ".html")
    return document.fill(
        [text.replace("One", "Eins").replace("Two", "Zwei") for text in document.texts], source, target
    ).decode()


@pytest.mark.parametrize(
    ("source", "target", "direction"), [("en", "de", "ltr"), ("", "de", "ltr"), ("en", "ar", "rtl")]
)
def test_page_says_the_language_of_its_translation(source: str, target: str, direction: str):
    words = PAGE.replace("One", "Eins").replace("Two", "Zwei")
    expected = (
        words.replace('"en-US"', f'"{target}"').replace("lang=en", f"lang={target}").replace('"en"', f'"{target}"')
    )
    assert translated(PAGE, source, target) == expected.replace('"ltr"', f'"{direction}"')
    assert translated(PAGE) == words  # the control


def test_page_that_says_no_direction_gets_one_from_right_to_left():
    assert translated("<html><p>One", "en", "fa") == '<html dir="rtl"><p>Eins'
    assert translated("<html><p>One", "en", "de") == "<html><p>Eins"
    assert translated('<html lang="ar" dir=rtl><p>One', "ar", "de") == '<html lang="de" dir=ltr><p>Eins'


@pytest.mark.parametrize(
    "page",
    [
        '<p lang="fr">One</p>', '<p>One</p><p lang="en" translate="no">A</p>', '<p>One</p><code lang="en">a</code>',
        '<p dir="ltr">One</p>', '<p title="One" lang>a</p>',
    ],
)  # fmt: skip
def test_other_languages_and_what_is_not_translated_keep_theirs(page: str):
    assert translated(page, "en", "ar") == page.replace("One", "Eins")


def test_page_without_a_translation_keeps_its_language():
    document = read_document(PAGE.encode(), ".html")
    assert document.fill(document.texts, "en", "de") == PAGE.encode()


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ('<nav aria-label="Main menu"><a href="#" aria-hidden="no">7</a></nav>', ["Main menu"]),
        ('<meta name="description" content="A page"><meta property="og:title" content="One">', ["A page", "One"]),
        ('<meta name="keywords" content="a"><meta name="author" content="Zorg">', []),
        ("<input type=submit value=Send><input type='button' value='Go on'>", ["Send", "Go on"]),
        ('<input value="Zorg"><input type="hidden" value="a">', []),
        ('<textarea placeholder="Write here">mine</textarea><svg aria-label="A dog"><text>a</text></svg>',
         ["Write here", "A dog"]),
        ('<iframe title="A map" src="a"></iframe><video aria-label="A film" translate="no"></video>', ["A map"]),
        ('<select><optgroup label="Fruit"><option label="An apple" value="apple">7</select>', ["Fruit", "An apple"]),
        ('<code title="x">y</code><kbd aria-label="z">c</kbd><div label="a">7</div>', []),
        ('<p aria-label="第一\n行">7</p>', ["第一行"]),
    ],
)  # fmt: skip
def test_attributes_that_readers_see_or_hear_are_texts(page: str, texts: list[str]):
    document = read_document(page.encode(), ".html")
    assert document.texts == texts
    assert document.fill([f"X{text}" for text in texts]).decode().count("X") == len(texts)
