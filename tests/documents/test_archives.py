"""Archives: DOCX, ODT and EPUB. Only the parts whose texts change are other members of the ZIP."""

import io
import re
import struct
import zipfile
from collections.abc import Callable

import pytest

from dragoman.documents import Document, read_document
from dragoman.documents.archive import MAX_UNPACKED

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
MAIN = "word/document.xml"
ODF = "urn:oasis:names:tc:opendocument:xmlns"
CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
    '<rootfiles><rootfile full-path="in/book.opf"/></rootfiles></container>'
)
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf" xmlns:dc="http://purl.org/dc/elements/1.1/">
<metadata><dc:title>A book &amp; more</dc:title><dc:language>en-GB</dc:language><dc:creator>Ann</dc:creator></metadata>
<manifest><item id="b" href="two.xhtml"/><item id="a" href="a%20b/one.xhtml"/><item id="s" href="style.css"/>
<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/><item id="v" href="nav.xhtml" properties="nav"/>
</manifest><spine><itemref idref="a"/><itemref idref="b"/></spine></package>"""
NCX = """<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><docTitle><text>A book</text></docTitle>
<docAuthor><text>Ann</text></docAuthor><navMap><navPoint><navLabel><text>First</text></navLabel></navPoint></navMap>
</ncx>"""


def page(body: str) -> str:
    return (
        '<?xml version="1.0"?><html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">'
        f"<head><title/><script src='a.js'/></head><body>{body}</body></html>"
    )


LAST = page("<p>Last &#160;words</p>")


def within(before: str, body: str | bytes, after: str) -> bytes:
    return before.encode() + (body.encode() if isinstance(body, str) else body) + after.encode()


def packed(members: dict[str, str | bytes]) -> bytes:
    """Return a ZIP of these members."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return data.getvalue()


def docx(body: str | bytes, **others: str) -> bytes:
    """Return a DOCX file with this body, and with other parts: header='<w:p/>'."""
    overrides = "".join(
        f'<Override PartName="/word/{name}.xml" ContentType="{TYPE}.{name}{".main" * (name == "document")}+xml"/>'
        for name in ("document", *others)
    )
    names = f'xmlns:w="{WORD}" xmlns:r="r" xmlns:mc="mc"'
    return packed({
        "[Content_Types].xml": f"<Types>{overrides}</Types>",
        MAIN: within(f"<w:document {names}><w:body>", body, "</w:body></w:document>"),
        **{f"word/{name}.xml": f"<w:x {names}>{content}</w:x>" for name, content in others.items()},
        "word/media/a.png": b"\x89PNG\xff\x00",
    })  # fmt: skip


def odt(body: str | bytes, styles: str = "") -> bytes:
    """Return an ODT file with this body, and a header in its styles."""
    namespaces = {"text": "text:1.0", "office": "office:1.0", "svg": "svg-compatible:1.0", "draw": "drawing:1.0"}
    names = " ".join(f'xmlns:{prefix}="{ODF}:{name}"' for prefix, name in namespaces.items())
    return packed({
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": within(f"<office:document {names}>", body, "</office:document>"),
        "styles.xml": f"<office:styles {names}>{styles}</office:styles>",
        "META-INF/manifest.xml": "<manifest/>",
    })  # fmt: skip


def epub(last: str | bytes = LAST, **more: str) -> bytes:
    """Return an e-book with this last chapter, and with more members of its folder META-INF: encryption='<a/>'."""
    return packed({
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "in/book.opf": PACKAGE,
        "in/two.xhtml": last,
        "in/a b/one.xhtml": page('<h1>One<a id="x"/></h1><p>Some <b>bold</b> words<br/>here<![CDATA[<no>]]></p>'),
        "in/nav.xhtml": page("<nav><ol><li><a href='one.xhtml'>To one</a></li></ol></nav>"),
        "in/toc.ncx": NCX,
        "in/style.css": "p {}",
        **{f"META-INF/{name}.xml": content for name, content in more.items()},
    })  # fmt: skip


def run(text: str, properties: str = "") -> str:
    return f"<w:r>{properties and f'<w:rPr>{properties}</w:rPr>'}<w:t>{text}</w:t></w:r>"


def char(kind: str) -> str:
    return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'


def code(text: str) -> str:
    return f"<w:r><w:instrText> {text} </w:instrText></w:r>"


ARCHIVES = {
    ".docx": docx(
        f"<w:p><w:pPr><w:rPr><w:b/></w:rPr></w:pPr>{run('Hello ')}<w:proofErr/>{run('big', '<w:b/>')}</w:p>"
        f"<w:tbl><w:tc><w:p>{run('A cell')}</w:p></w:tc></w:tbl><w:p>{run('42')}</w:p>",
        header=f"<w:p>{run('Above')}</w:p>",
    ),
    ".odt": odt(
        '<text:h>Head</text:h><text:p>Some <text:span text:style-name="T">bold</text:span> text</text:p>',
        "<text:p>Page <text:page-number>1</text:page-number> of it</text:p>",
    ),
    ".epub": epub(),
}
ARCHIVE_TEXTS = {
    ".docx": ['Hello <g id="1">big</g>', "A cell", "Above"],
    ".odt": ["Head", 'Some <span id="1">bold</span> text', 'Page <x id="1"/> of it'],
    ".epub": [
        "A book & more", "A book", "First", "To one", "One", 'Some <b>bold</b> words<br/>here', "Last \xa0words",
    ],
}  # fmt: skip
archives = pytest.mark.parametrize("suffix", ARCHIVES)


def loud(text: str) -> str:
    """A translation that keeps tags."""
    return "".join(part if index % 2 else part.upper() for index, part in enumerate(re.split("(<[^<>]*>)", text)))


def translated(data: bytes, suffix: str, translate: Callable[[str], str] = loud) -> bytes:
    document = read_document(data, suffix)
    return document.fill([translate(text) for text in document.texts], "en", "de")


def member(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return archive.read(name).decode()


def refused(data: bytes, suffix: str) -> str:
    """Return why these bytes are no document; they come back."""
    document = read_document(data, suffix)
    assert (document.texts, document.readable, document.fill([])) == ([], False, data)
    return document.skipped[0].reason


# The ZIP.


@archives
def test_archive_with_unchanged_texts_is_the_same_bytes(suffix: str):
    document = read_document(ARCHIVES[suffix], suffix)
    assert document.texts == ARCHIVE_TEXTS[suffix]
    assert not document.skipped
    assert document.lines == [*range(1, len(document.texts) + 1)]
    assert document.fill(document.texts) == ARCHIVES[suffix]
    assert translated(ARCHIVES[suffix], suffix) != ARCHIVES[suffix]  # the control


@archives
def test_translations_in_an_archive_are_read_again(suffix: str):
    again = read_document(translated(ARCHIVES[suffix], suffix), suffix)
    assert again.texts == [*map(loud, ARCHIVE_TEXTS[suffix])]


class Pipe(io.BytesIO):
    """A file that cannot go back, for which zipfile writes the sizes after the data."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


def copied(data: bytes, file: io.BytesIO, *more: str) -> bytes:
    """Return a ZIP with the same members, odd dates and fields, and a comment; with more members of these names."""
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(file, "w") as target:
        target.comment = b"a comment"
        for info in source.infolist():
            info.extra, info.comment, info.date_time = struct.pack("<2H", 0xCAFE, 0), b"a note", (1999, 1, 2, 3, 4, 6)
            target.writestr(info, source.read(info))
        for name in more:
            target.writestr(name, "")
    return file.getvalue()


@archives
@pytest.mark.parametrize("file", [io.BytesIO, Pipe])
@pytest.mark.parametrize("before", [b"", b"junk"])
def test_other_members_stay_byte_for_byte(suffix: str, file: type[io.BytesIO], before: bytes):
    data = before + copied(ARCHIVES[suffix], file())
    document = read_document(data, suffix)
    filled = document.fill([document.texts[0].upper() + "!" * 99, *document.texts[1:]])
    old, new = (zipfile.ZipFile(io.BytesIO(each)) for each in (data, filled))
    assert (old.testzip(), new.testzip(), new.comment) == (None, None, b"a comment")
    changed = [name for name in old.namelist() if old.read(name) != new.read(name)]
    assert len(changed) == 1

    def raw(archive: zipfile.ZipFile, whole: bytes, index: int) -> bytes:
        ends = sorted([*(info.header_offset for info in archive.infolist()), archive.start_dir])
        start = archive.infolist()[index].header_offset
        return whole[start : ends[ends.index(start) + 1]]

    for index, (info, other) in enumerate(zip(old.infolist(), new.infolist(), strict=True)):
        if info.filename in changed:
            assert (info.date_time, info.extra, info.comment) == (other.date_time, other.extra, other.comment)
            assert not other.flag_bits & 8
        else:
            assert raw(old, data, index) == raw(new, filled, index)
            assert {name: getattr(info, name) for name in info.__slots__ if name != "header_offset"} == {
                name: getattr(other, name) for name in info.__slots__ if name != "header_offset"
            }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-30], "not DOCX (File is not a zip file)"),
        (lambda data: data.replace(b"PK\x03\x04", b"PK\x03\x05", 1), "not DOCX (a header is damaged)"),
        (lambda data: data.replace(b"word/document.xml", b"word/d0cument.xml", 1), "directory 'word/document.xml'"),
        (lambda data: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + data, "it is encrypted, or an old .doc"),
        (lambda data: b"", "not DOCX (File is not a zip file)"),
        (lambda data: packed({"a": "b"}), "it has no [Content_Types].xml"),
        (lambda data: packed({"[Content_Types].xml": "<Types/>"}), "not DOCX (there is no text in it)"),
        (lambda data: with_field(data, 8, 1), "is encrypted"),
        (lambda data: with_field(data, 10, 12), "compressed in an unusual way"),
        (lambda data: with_field(data, 24, 0xFFFFFFFF, "<L"), "ZIP64 is not supported"),
        (lambda data: with_field(data, 16, 7, "<L"), "Bad CRC-32"),
    ],
)
def test_damaged_archive_is_not_readable(change: Callable[[bytes], bytes], reason: str):
    assert reason in refused(change(ARCHIVES[".docx"]), ".docx")


def with_field(data: bytes, place: int, value: int, form: str = "<H") -> bytes:
    """Return a ZIP with another value in the record of its first member."""
    changed = bytearray(data)
    struct.pack_into(form, changed, data.index(b"PK\x01\x02") + place, value)
    return bytes(changed)


def test_members_with_one_name_are_refused():
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = copied(ARCHIVES[".docx"], io.BytesIO(), "word/media/a.png")
    assert refused(data, ".docx") == "not DOCX (two members are called 'word/media/a.png')"


def test_archive_that_unpacks_to_too_much_is_refused():
    bomb = docx(f"<w:p>{run('a')}</w:p>{' ' * MAX_UNPACKED}")
    assert len(bomb) < 1 << 20
    assert refused(bomb, ".docx") == "not DOCX (its texts are more than 64 MiB)"


def test_part_with_entities_or_wrong_bytes_is_left_alone():
    main, other = f"<w:p>{run('A text')}</w:p>", f"<w:p>{run('Above')}</w:p>"
    good = docx(main, header=other)
    assert read_document(good, ".docx").texts == ["A text", "Above"]  # the control
    document = read_document(docx(main, header=f"{other}&a;"), ".docx")
    assert document.texts == ["A text"]
    assert document.skipped[0].reason.startswith("word/header.xml: undefined entity")
    bad = packed({"[Content_Types].xml": member(good, "[Content_Types].xml"), MAIN: b"<a>\xff</a>"})
    assert "word/document.xml: with bytes that are not UTF-8" in refused(bad, ".docx")
    declared = packed({
        "[Content_Types].xml": member(good, "[Content_Types].xml"),
        MAIN: '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>',
    })  # fmt: skip
    assert refused(declared, ".docx") == "word/document.xml: declares XML entities: left untranslated"


def test_signature_and_parts_that_are_left_alone_are_named():
    signed = packed({"_xmlsignatures/sig1.xml": "", "word/charts/chart1.xml": "", **contents(ARCHIVES[".docx"])})
    assert [reason for _, reason in read_document(signed, ".docx").skipped] == [
        "it is signed: the signature will not be that of the translation",
        "1 of its parts (charts, diagrams or objects): left untranslated",
    ]


def contents(data: bytes) -> dict[str, str | bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# DOCX.


def word(*paragraphs: str) -> Document:
    return read_document(docx("".join(f"<w:p>{paragraph}</w:p>" for paragraph in paragraphs)), ".docx")


def filled(document: Document, *translations: str) -> str:
    """Return what is in the first paragraph."""
    text = member(document.fill([*translations]), MAIN)
    return text.partition("<w:body><w:p>")[2].rpartition("</w:p></w:body>")[0]


def new_run(text: str, properties: str = "") -> str:
    return run(text, properties).replace("<w:t>", '<w:t xml:space="preserve">')


def test_runs_that_look_the_same_are_one_text():
    document = word(
        run("Hel", '<w:lang w:val="en"/>') + "<w:proofErr/>" + run("lo ") + run("big", "<w:b/>") + run(" ", "<w:i/>")
        + run("old", "<w:b/>") + run(" world")
    )  # fmt: skip
    assert document.texts == ['Hello <g id="1">big old</g> world']
    first = new_run("Du ", '<w:lang w:val="en"/>')
    assert filled(document, 'Du <g id="1">alte</g> &') == f"{first}{new_run('alte', '<w:b/>')}" + first.replace(
        "Du ", " &amp;"
    )


def test_usual_look_of_a_paragraph_is_no_tag():
    document = word(run("A", "<w:b/>") + run(" long sentence", "<w:i/>"))
    assert document.texts == ['<g id="1">A</g> long sentence']
    assert filled(document, "Ein Satz") == new_run("Ein Satz", "<w:i/>")


def test_marks_in_a_paragraph_stay_once():
    tab, note = "<w:r><w:tab/></w:r>", '<w:r><w:rPr><w:v/></w:rPr><w:footnoteReference w:id="2"/></w:r>'
    mark = '<w:bookmarkStart w:id="1"/>'
    document = word("<w:pPr><w:jc/></w:pPr>" + mark + run("1.") + tab + run("One") + note + run(" two"))
    assert document.texts == ['1.<x id="1"/>One<x id="2"/> two']
    new = filled(document, 'zwei <x id="2"/> 1.<x id="1"/>')
    assert new == f"<w:pPr><w:jc/></w:pPr>{mark}{new_run('zwei ')}{note}{new_run(' 1.')}{tab}"
    lost = filled(document, "zwei")
    assert lost == f"<w:pPr><w:jc/></w:pPr>{mark}{new_run('zwei')}{tab}{note}"


def test_links_insertions_and_controls_are_pairs():
    look = '<w:rStyle w:val="Link"/>'
    link = f'<w:hyperlink r:id="1">{run("site", look)}</w:hyperlink>'
    control = f"<w:sdt><w:sdtPr><w:a/></w:sdtPr><w:sdtContent>{run('box')}</w:sdtContent></w:sdt>"
    document = word(
        run("The ") + link + run(" or ") + control + run(" and ") + f"<w:ins>{run('new')}</w:ins>" + run(".")
    )
    assert document.texts == [
        'The <hyperlink id="1">site</hyperlink> or <sdt id="2">box</sdt> and <ins id="3">new</ins>.'
    ]
    new = filled(document, '<sdt id="2">x</sdt><ins id="3">y</ins> <hyperlink id="1">z</hyperlink>')
    assert new == (
        f"<w:sdt><w:sdtPr><w:a/></w:sdtPr><w:sdtContent>{new_run('x')}</w:sdtContent></w:sdt><w:ins>{new_run('y')}</w:ins>"
        f'{new_run(" ")}<w:hyperlink r:id="1">{new_run("z", look)}</w:hyperlink>'
    )


def test_deleted_words_are_left_alone():
    gone = "<w:del><w:r><w:delText>gone</w:delText></w:r></w:del>"
    document = word(run("A ") + gone + run("word"), f"<w:del>{run('a')}</w:del>")
    assert document.texts == ['A <x id="1"/>word']
    assert gone in filled(document, "Ein Wort")


def test_fields_are_left_alone_but_for_links():
    number = char("begin") + code("PAGE") + char("separate") + run("three") + char("end")
    begin = char("begin") + code('HYPERLINK "a"') + char("separate")
    document = word(run("Page ") + number + run(" of ") + begin + run("the book") + number + char("end") + run("."))
    assert document.texts == ['Page <x id="1"/> of <link id="2">the book<x id="3"/></link>.']
    stays = number.replace("<w:t>", '<w:t xml:space="preserve">')
    assert filled(document, '<link id="2"><x id="3"/>Buch</link>, <x id="1"/>') == (
        f"{begin}{stays}{new_run('Buch')}{char('end')}{new_run(', ')}{stays}"
    )


def test_table_of_contents_has_texts():
    first = char("begin") + code("TOC") + char("separate")
    document = word(first + run("One") + "<w:r><w:tab/></w:r>" + run("1"), run("Two") + char("end"))
    assert document.texts == ['One<x id="1"/>1', "Two"]
    assert filled(document, "Eins", "Zwei").startswith(first + new_run("Eins"))


def test_field_that_does_not_end_is_left_alone():
    document = word(run("A word") + char("begin") + code("IF") + run("hidden"), run("hidden") + char("end"))
    assert document.texts == ["A word", "hidden"]


def test_text_box_has_texts_of_its_own():
    box = f"<w:txbxContent><w:p>{run('Inside')}</w:p></w:txbxContent>"
    branches = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    both = f"<w:r><mc:AlternateContent>{branches}</mc:AlternateContent></w:r>"
    document = word(run("Out") + both + run("side"))
    assert document.texts == ['Out<x id="1"/>side', "Inside", "Inside"]
    inner = both.replace(run("Inside"), new_run("I"))
    assert filled(document, 'O<x id="1"/>', "I", "I") == new_run("O") + inner


def test_other_prefixes_mean_the_same():
    data = docx(f"<w:p>{run('A')}{run('word', '<w:b/>')}</w:p>")
    text = member(data, MAIN).replace("w:", "ns0:").replace("xmlns:w", "xmlns:ns0")
    other = packed({**contents(data), MAIN: text})
    assert read_document(other, ".docx").texts == read_document(data, ".docx").texts
    assert "<ns0:r><ns0:rPr><ns0:b/></ns0:rPr><ns0:t " in member(translated(other, ".docx"), MAIN)
    default = packed({**contents(data), MAIN: text.replace("ns0:", "").replace(":ns0", "")})
    assert read_document(default, ".docx").texts == read_document(data, ".docx").texts


# ODT.


def test_odt_inlines_and_notes():
    body = "<text:note-body><text:p>A note</text:p></text:note-body>"
    note = f"<text:note><text:note-citation>1</text:note-citation>{body}</text:note>"
    document = read_document(
        odt(
            "<text:tracked-changes><text:p>Old</text:p></text:tracked-changes><text:p>A<text:s/>b"
            f"<text:soft-page-break/>c{note}<office:annotation><text:p>Remark</text:p></office:annotation>"
            " <text:a href='x'>link</text:a><text:span/> d<!-- e --> f</text:p>"
            "<draw:frame><svg:desc>A picture</svg:desc></draw:frame>"
        ),
        ".odt",
    )
    assert document.texts == [
        'A<x id="1"/>bc<x id="2"/><x id="3"/> <a id="4">link</a><x id="5"/> d<x id="6"/> f', "A note", "A picture",
    ]  # fmt: skip
    text = member(document.fill([document.texts[0].replace("link", "<l>"), "Eine", "B"]), "content.xml")
    assert "<text:a href='x'>&lt;l&gt;</text:a><text:span/> d<!-- e --> f" in text
    assert "<text:p>Old</text:p>" in text
    assert "<text:p>Eine</text:p>" in text


def test_odt_that_is_encrypted_is_refused():
    data = packed({**contents(ARCHIVES[".odt"]), "META-INF/manifest.xml": "<manifest:encryption-data/>"})
    assert refused(data, ".odt") == "not ODT (it is encrypted: save it without a password)"
    assert refused(ARCHIVES[".epub"], ".odt") == "not ODT (it has no META-INF/manifest.xml)"


# EPUB.


def test_language_of_a_book_is_that_of_its_translation():
    data = translated(ARCHIVES[".epub"], ".epub")
    assert "<dc:language>de</dc:language>" in member(data, "in/book.opf")
    assert 'xml:lang="de" lang="de"' in member(data, "in/two.xhtml")


def test_chapter_stays_xhtml():
    data = translated(ARCHIVES[".epub"], ".epub", lambda text: loud(text) + " <p> & \0")
    assert "<b>BOLD</b> WORDS<br/>HERE &lt;p&gt; &amp; \ufffd<![CDATA[<no>]]></p>" in member(data, "in/a b/one.xhtml")
    assert "<title/><script src='a.js'/>" in member(data, "in/a b/one.xhtml")


def test_encrypted_chapters_are_named():
    document = read_document(epub(encryption='<a><CipherReference URI="in/a%20b/one.xhtml"/></a>'), ".epub")
    assert document.texts == [text for text in ARCHIVE_TEXTS[".epub"] if text not in ARCHIVE_TEXTS[".epub"][4:6]]
    assert document.skipped == [(0, "in/a b/one.xhtml: encrypted: left untranslated")]
