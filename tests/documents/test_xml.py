"""XML of any kind: which texts it has, that names count as they are written, and that it comes back whole."""

import xml.etree.ElementTree as ET

import pytest
from growth import grows_too_fast, processor_seconds
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.documents import Document, Tags
from dragoman.documents import read_text as read
from dragoman.documents.html import html_passages
from dragoman.documents.xml import xml_passages


def read_text(text: str, form: str, tags: Tags = Tags(), lines: bool = False) -> Document:
    """The document in a string of XML or HTML."""
    return read(text, lambda text: (xml_passages if form == "xml" else html_passages)(text, tags, lines))


def names(*found: str) -> frozenset[str]:
    return frozenset(found)


@pytest.mark.parametrize(
    ("text", "tags", "texts"),
    [
        ("<doc><p>Hello</p><p>A <b>bold</b> word</p></doc>", Tags(), ["Hello", "A <b>bold</b> word"]),
        ("<p>Up</p><p>A <b>x</b></p>", Tags(outline=False), ["<p>Up</p><p>A <b>x</b></p>"]),
        ("<p>Up</p><p>A <b>x</b></p>", Tags(splitting=names("b")), ["Up", "A", "x"]),
        ("<p>Up</p><p>A <b>x</b></p>", Tags(outline=False, splitting=names("p")), ["Up", "A <b>x</b>"]),
        ("<p>Up</p><q>down</q>", Tags(non_splitting=names("p", "q")), ["<p>Up</p><q>down</q>"]),
        ("<p>Up</p><q>down</q>", Tags(ignored=names("q")), ["Up"]),
        ("<p>Up</p><Q>down</Q>", Tags(ignored=names("q")), ["Up", "down"]),  # the control: another name
        ('Value <x id="7"></x> is set', Tags(ignored=names("x")), ['Value <x id="1"/> is set']),
        ("Press <br/> or <BR></BR> now", Tags(), ["Press <br/> or <BR></BR> now"]),
        ("a &lt; b &product; c&#33;", Tags(), ['a < b <x id="1"/> c!']),
        ("<a><![CDATA[x > y]]></a> <!-- > --> <?a b?>", Tags(), []),
        ('<!DOCTYPE a [<!ENTITY l "lol]>"> <!-- ] --> <?b ]>?> ]><a>A dog</a>', Tags(), ["A dog"]),
        ("<!DOCTYPE a SYSTEM 'a[.dtd'><a>A dog</a>", Tags(), ["A dog"]),
        ("<!DOCTYPE a [<b><a>A dog</a>", Tags(outline=False), ["<!DOCTYPE a [<b><a>A dog</a>"]),  # not well-formed
        ("<script>Not code here</script><li>A<li>b</li></li>", Tags(), ["Not code here", "A<li>b</li>"]),
        ("<단어>말</단어>", Tags(), ["말"]),
        ("1 < 2 but a<b and </", Tags(), ["1 < 2 but a<b and </"]),
    ],
)  # fmt: skip
def test_texts_of_xml(text: str, tags: Tags, texts: list[str]):
    document = read_text(text, "xml", tags)
    assert document.texts == texts
    assert document.fill_text(document.texts) == text


def test_line_breaks_end_texts_where_they_are_said_to():
    text = "<p>One\ntwo <b>three\nfour</b></p>\n\nfive\n"
    assert read_text(text, "xml").texts == ["<p>One two <b>three four</b></p> five"]
    assert read_text(text, "xml", Tags(splitting=names("p"))).texts == ["One two <b>three four</b>", "five"]
    document = read_text(text, "xml", lines=True)
    assert document.texts == ["One", "two <b>three", "four", "five"]
    assert document.fill_text(list("WXYZ")) == "<p>W\nX<b>\nY</b></p>\n\nZ\n"
    assert read_text("a\nb<p>c", "html").texts == ["a b", "c"]
    assert read_text("a\nb<p>c", "html", lines=True).texts == ["a", "b", "c"]


def test_names_that_a_request_gives_count_in_pages_too():
    page = "<p>A <mark>name</mark> <span>here</span>"
    assert read_text(page, "html").texts == ["A <mark>name</mark> <span>here</span>"]
    assert read_text(page, "html", Tags(ignored=names("mark"))).texts == ['A <x id="1"/> <span>here</span>']
    assert read_text(page, "html", Tags(splitting=names("span"))).texts == ["A <mark>name</mark>", "here"]
    assert read_text("<p>a<p>b", "html", Tags(non_splitting=names("p"))).texts == ["a<p>b"]


PIECES = ["<a>", "</a>", "<b x='>'>", "</b>", "<c/>", "word ", "&amp;", "&foo;", "<!--", "-->", "\n", "{{x}}", "<", ">"]
KINDS = [
    Tags(),
    Tags(outline=False),
    Tags(ignored=names("a")),
    Tags(splitting=names("b")),
    Tags(non_splitting=names("a", "b")),
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.sampled_from(KINDS), st.booleans())
def test_xml_comes_back_whatever_it_is(text: str, tags: Tags, lines: bool):
    document = read_text(text, "xml", tags, lines)
    assert document.fill_text(document.texts) == text


def trees(depth: int = 3) -> st.SearchStrategy[str]:
    leaf = st.sampled_from(["word", "two words", " ", "&lt;", "<c/>", "<!-- a > -->", "\n"])
    inner = leaf if depth == 0 else st.one_of(leaf, trees(depth - 1))
    return st.builds(
        lambda name, children: f"<{name}>{''.join(children)}</{name}>",
        st.sampled_from(["a", "A", "b"]),
        st.lists(inner, max_size=4),
    )


@settings(max_examples=100)
@given(trees(), st.sampled_from(["x", "</a>", "<b>", "a & b <c/>", "]]>"]), st.sampled_from(KINDS), st.booleans())
def test_xml_stays_well_formed_whatever_the_translation(text: str, answer: str, tags: Tags, lines: bool):
    def shape(xml: str) -> object:
        return sorted((element.tag, tuple(element.attrib.items())) for element in ET.fromstring(xml).iter())

    document = read_text(text, "xml", tags, lines)
    assert shape(document.fill_text([answer] * len(document.texts))) == shape(text)


@pytest.mark.parametrize(
    "unit",
    [
        "<a>",
        "<a",
        "<a b='",
        "</a>",
        "<!--",
        "<![CDATA[",
        "<?",
        "<!a '",
        "<!DOCTYPE a [",
        "<!DOCTYPE a [<!--",
        "<!DOCTYPE a [<!b '>",
        "&a",
        "<a/>x",
        "a\n",
    ],
)
def test_time_grows_with_the_length(unit: str):
    def read_and_write(text: str) -> None:
        document = read_text(text, "xml", Tags(), True)
        document.fill_text(["x"] * len(document.texts))

    assert not grows_too_fast(lambda size: processor_seconds(lambda: read_and_write(unit * (size // len(unit)))), 2_000)
