"""Readers take time in proportion to what they read, whatever it is: one unit, repeated inside a frame."""

from collections.abc import Callable, Iterator

import growth
import pytest
from fuzz.targets import targets
from growth import processor_seconds
from test_archives import docx, epub, odt

from dragoman.documents import read_document

SIZE = 64_000  # bytes of the first measurement
SLOWER = {"document.md": 4_000}  # bytes, where a reader takes a second for some 100 kB
# A cell of CSV has up to 131,072 characters; after a longer one, each line is a row, which takes longer for each byte.
SIZES = {**SLOWER, "corpus.csv": 32_000}

# Any format: marks, white space, characters that combine, and what Unicode and UTF-8 do not allow.
ANY = [
    *' \t\n\r\f\0\\/<>&"\'`[](){}!#*_~-+=|:;,.%$@0aé가',
    "\u0301\u0316", "\u1100\u1161", "\r\n", "a ", "a\n", "&amp;", "&#1;", "&a", "\\n", "\\\"", '""', "''", "--", "<!--",
    "-->", "<![CDATA[", "]]>", "<?", "<a", "</a", "<a>", "</a>", "<a></a>", "<a/>", "a=", "a='b' ", 'a="b" ', "[a]",
    "](a)", "![", "**a", "*a*", "> ", "- ", "1. ", "# ", "|a", "a|", "a.", "a:", "a,b\n", "a\tb\n", '"a",', '{"a":',
    "1:", "->", "\ud800",
]  # fmt: skip
UNITS: dict[str, list[str]] = {
    "corpus.po": ["# a\n", "#. a\n", "#: a:1\n", "#, a\n", '#| msgid "a"\n', '#~ msgid "a"\n', '"a"\n', 'msgid "a"\n',
                  'msgid "a"\nmsgstr "b"\n', 'msgstr[0] "a"\n', 'msgctxt "a"\n'],
    "corpus.tmx": ["<tu/>", "<tuv/>", "<tuv xml:lang='en'><seg>a</seg></tuv>", "<hi>a</hi>", "<seg>a</seg>", "<tu>"],
    "corpus.xlf": ["<segment/>", "<source>a</source>", "<g>a</g>", "<trans-unit>", "&#11;", "&"],
    "document.html": ["<b>", "<i></i>", "<b>a</b>", "<p>", "<p>a", "<li>a", "<br>", "<img alt=a>", "<div translate=no>",
                      "<td>", "<title>a</title>", "<script>", "</p>", "<b title=a>", "<?php ", "<b>1.</b>"],
    "document.md": ["a\n", "a\n\n", "a  \n", "a\\\n", "> a\n", "- a\n", "  - a\n", "| a ", "|a|\n", "|-", "[a]: b\n",
                    "[a](b) ", "[[", "]]", "![a](b) ", "**a** ", "_a_ ", "``", "<a@b.c>", "<b>", "~~a", "    a\n",
                    "```\n", "===\n", "<div>\n", "[^a]: b\n\n", "- [ ] a\n", "***", "*a_", "a**b",
                    # Of its dialects: blocks, lines without text, what stands in a sentence.
                    ":::a\n", ":::a b {", ":::a[", "::a[b]\n", ":::{a}\n", ":::{note}\n", "```{note}\n",
                    "```{note}\na\n```\n", ":a: b\n", "!!! a\n", "!!! a\n    b\n", "!!! a ", '=== "a"\n    b\n',
                    "/// a | b\n", "a\n: b\n", ": a\n", "[^a]:\n    b\n", "*[a]: b\n", "> [!a] b\n", "{.a}\n", "{.a ",
                    "{a='", "{:a", "{% a %} ", "{% raw %}\n", "{{< ", "(a)=\n", "+++\n", "% a\n", "\\[\n",
                    "\\begin{math}\n", "{/*\n", "{::comment}\n", "import 'a'\n", "export {\n\n ", "<Aa>\n", "<Aa\n",
                    "<Aa b={", "<Aa b='", "</Aa>", "<Aa/>\n", '<Aa title="b">\n', "[[a|", "[[a]]", "[a]{.b}", "[@a",
                    ":a[", "{a}`b", ":a:`b <", "{a.b(", "{a ?", "%%a", "\\(", "\\(a^", ":a:", "++a+", "++a ", "==a",
                    "== a", "^a", "~a", "[a][b]", "[a][]", "[a][^b]"],
    "document.srt": ["a\n", "- a\n", "<i>", "<i></i>", "{\\a}", "00:00:01,000 --> 00:00:02,000\n", "1\n",
                     "00:00:01,000 --> 00:00:02,000\na\n\n", "\n \n", "漢"],
    "document.po": ['msgid "a"\nmsgstr ""\n', 'msgstr[0] ""\n', "# a\n", "#, fuzzy\n", '"a"\n', '#~ msgid "a"\n'],
    "document.xliff": ["<g>", "<g></g>", "<g>a</g>", "<x/>", "<trans-unit><source>a</source></trans-unit>", "&#10;",
                       "<mrk mtype='seg'>a</mrk>", "<group/>"],
    "document.json": ['"a | b",', '"{n} ', '"a",', "[", '{"a":', '"\\u0061",', "1,"],
    "document.csv": ['"a""b",', "a\n", "=a,"],
    "document.ts": ["<message/>", "<message><source>a</source><translation/></message>", "<numerusform/>", "<byte/>",
                    "<message><source>a</source></message>"],
    "document.ftl": ["a = b\n", " b\n", "{ $a }", "{ a", '{ "a" }', " .a = b\n", "{ $a ->\n *[b] c\n}\n", "a = { A(\n",
                     "a = {\n", "# a\n", "-brand = a\n"],
    "document.yml": ["a: b\n", "- a\n", "- 'a'\n", "a: yes\n", "other: a\n", "  other: a\n", "? ", "{a: b},", "--- a\n",
                     "translation: a\n", "&a ", "!a ", "*a ", "|\n"],
    "document.xml": ["<b>a</b>", "<xliff:g>%d</xliff:g>", "<item>a</item>", "<item quantity='one'>%d a</item>",
                     "<string>a</string>", "\\u0041", "\\'", "<string>\\q</string>\n"],
    "document.properties": ["a=b\n", "\\u0041", "\\\n", "\\u", "{0}", "''", "a={0}\n", "{0,choice,"],
    "document.strings": ['"a"="b";', "/* a */", "// a\n", "/*", '\\"', "\\U0041", "a=b;"],
    "document.stringsdict": ["<key>a</key><string>b</string>", "<key>one</key><string>%d</string>", "<dict/>"],
    "document.resx": ["<data name='a'><value>a</value></data>", "<value>a</value>", "<data name='>>a'/>"],
    "document.xcstrings": ['"a":{},', '"a":{"localizations":{}},', '{"a":', "[", '"de":{"stringUnit":{"value":"a"}},'],
    "import.settings": ["a: b\n", "- a\n", " - a\n", "- 'a'\n"],
    "settings": ["a.", "a=1\n", "[a]\n", "[[a]]\n", "[a.", '"a".', "a=[", "{a=", "[[a.b]]\n", "# a\n", "'''"],
    "config": ['"a":1,', "[", '{"a":'],
    "glossary": ["a\tb\n", "# a\n", "a|", "a b\tc\n"],
}  # fmt: skip
UNITS["document.vtt"] = UNITS["document.srt"]
UNITS["document.ass"] = [
    "{\\i1}",
    "{",
    "{\\p1",
    "{\\p1}a",
    "\\N",
    "\\n- a",
    "\\h",
    "\nDialogue: ,,,,,,,,,a",
    ",",
    "Format: a,b\n",
]
UNITS["document.docx"] = [
    "<w:p>", "<w:r>", "<w:t>", "</w:t>", "<w:p/>", "<w:p><w:r><w:t>a</w:t></w:r></w:p>", "<w:r><w:t>a</w:t></w:r>",
    "<w:r><w:rPr><w:b/></w:rPr><w:t>a</w:t></w:r><w:r><w:t>a</w:t></w:r>", "<w:r><w:tab/></w:r>", "<w:proofErr/>",
    "<w:hyperlink><w:r><w:t>a</w:t></w:r></w:hyperlink>", "<w:sdt><w:sdtPr/><w:sdtContent/></w:sdt>", "<w:ins/>",
    *(f"<w:r><w:fldChar w:fldCharType='{state}'/></w:r>" for state in ("begin", "separate", "end")),
    "<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>HYPERLINK</w:instrText></w:r>"
    "<w:r><w:fldChar w:fldCharType='separate'/></w:r><w:r><w:t>a</w:t></w:r>",
    "<w:r><w:p><w:r><w:t>a</w:t></w:r></w:p></w:r>", "<w:p xmlns:w='a'/>", "<![CDATA[a]]>",
]  # fmt: skip
UNITS["document.odt"] = [
    "<text:p>", "<text:p>a</text:p>", "<text:span>a</text:span>", "<text:span/>", "<text:s/>", "<text:a>",
    "<text:note><text:p>a</text:p></text:note>", "<office:annotation><text:p>a</text:p></office:annotation>",
    "<![CDATA[a]]>", "<a xmlns:b='c'/>",
]  # fmt: skip
UNITS["document.epub"] = [*UNITS["document.html"], "<a/>", "<![CDATA[a]]>", "<title/>"]
# What stands around the units; @ is their place.
FRAMES: dict[str, list[str]] = {
    "corpus.tsv": ["@", "a@\tb@\n"],
    "corpus.two-files": ["@====@", "a\n@b\n====c\n@d\n"],
    "corpus.csv": ["source,target\n@", 'source,target\n"@",b\n'],
    "corpus.jsonl": ["@", '{"source": "@", "target": "b"}\n', '{"source": @', '{"source": "a", "target": "b", @}\n'],
    "corpus.tmx": [
        "@", "<tmx><body>@</body></tmx>", "<tmx><body><tu>@</tu></body></tmx>", "<tmx><!--@--></tmx>", "<tmx a='@'/>",
        "<tmx><body><tu><tuv lang='en'><seg>a@</seg></tuv><tuv lang='de'><seg>b@</seg></tuv></tu></body></tmx>",
    ],
    "corpus.xlf": [
        "@", "<xliff>@</xliff>", "<xliff><trans-unit>@</trans-unit></xliff>",
        "<xliff><trans-unit><source>a@</source><target>b@</target></trans-unit></xliff>",
    ],
    "corpus.po": ["@", 'msgid "a@"\nmsgstr "b@"\n', 'msgid "a"\n@\nmsgstr "b"\n', 'msgid "a"\nmsgstr "b"\n@',
                  "# @\n", "#, @\n"],
    "document.txt": ["@", "a@b\n"],
    "document.md": ["@", "a@b\n", "# a@\n", "a\n@b\n", "> @", "- @", "|a|b|\n|-|-|\n@", "[a@](b)\n", "```\n@\n```\n",
                    "---\n@\n---\n", ":::{note} a@\n", "!!! a\n    @\n", "a\n: @\n", "<Aa b='@'>\n", "<Aa>\n@\n</Aa>\n",
                    "```{note}\n@\n```\n", "$$\n@\n"],
    "document.html": ["@", "<p>a@b</p>", "<p title='@'>a</p>", "<p @", "<!--@-->", "<script>@</script>",
                      "<p><b>a@</b> b@", "<title>@"],
    "document.srt": ["@", "00:00:01,000 --> 00:00:02,000\na@b\n", "1\n00:00:01,000 --> 00:00:02,000 @\na\n"],
    "document.vtt": ["WEBVTT\n\n@", "WEBVTT\n\n00:01.000 --> 00:02.000\na@b\n", "WEBVTT\n\nNOTE @\n"],
    "document.ass": ["@", "[Events]\n@", "[Events]\nDialogue: ,,,,,,,,,a@b\n", "[Events]\nFormat: @\nDialogue: ,a\n"],
    "document.docx": ["@", "<w:p>@</w:p>", "<w:p><w:r><w:t>a@</w:t></w:r></w:p>",
                      "<w:p><w:r><w:t>a</w:t></w:r>@</w:p>"],
    "document.odt": ["@", "<text:p>a@b</text:p>", "<text:p>@</text:p>"],
    "document.epub": ["@", "<p>a@b</p>", "<p title='@'/>"],
    "document.po": ["@", 'msgid "a@"\nmsgstr ""\n', 'msgid "a"\n@msgstr ""\n', 'msgid "a"\nmsgstr ""\n@', "# @\n"],
    "document.xliff": [
        "@", "<xliff>@</xliff>", "<xliff><trans-unit><source>a@b</source></trans-unit></xliff>",
        "<xliff><!--@--></xliff>", "<xliff><trans-unit><source>a<!--@--></source></trans-unit></xliff>",
        "<b@:xliff xmlns:b@='u'><b@:segment><b@:source>a</b@:source></b@:segment></b@:xliff>",
        "<xliff a='@'/>", "<xliff @/>",
        "<xliff><trans-unit><source>a</source><target>@</target></trans-unit></xliff>",
    ],
    "document.json": ["@", '["a@b"]', '["a", @]', '{"@": "a"}'],
    "document.ts": [
        "@", "<TS>@</TS>", "<TS><message><source>a@b</source><translation>@</translation></message></TS>",
        "<TS a='@'/>",
        "<TS><message numerus='yes'><source>%n a@</source><translation>@</translation></message></TS>",
    ],
    "document.ftl": ["@", "a = b@\n", "a =\n    b@\n", "a = { @ }\n", "a = { $b ->\n@ *[c] d\n}\n",
                     "a = b\n .c = d@\n"],
    "document.yml": ["@", "a: b@\n", "a:\n  @", 'a: "@"\n', "a: '@'\n", "a: |\n  b@\n", "a: >\n  b@\n",
                     "[@]", "en:\n  @"],
    "document.csv": ["text\n@", 'text\n"@"\n', "@\n1\n"],
    "document.xml": [
        "@", "<resources>@</resources>", "<resources><string>a@b</string></resources>",
        "<resources xmlns:xliff='x'><string>a @b</string></resources>", '<resources><string>"a@b"</string></resources>',
        "<resources><plurals><item quantity='other'>a</item>@</plurals></resources>",
        "<resources><string><![CDATA[a@b]]></string></resources>",
        "<resources><string-array>@</string-array></resources>",
    ],
    "document.properties": ["@", "a=b@\n", "a@=b\n", "# @\n", "a={0}@b"],
    "document.strings": ["@", '"a" = "b@";', '"@" = "b";', "/*@*/", '"a" = @'],
    "document.stringsdict": [
        "<plist><dict>@</dict></plist>", "<plist><dict><key>a</key><string>b@c</string></dict></plist>",
        "<plist><dict><key>NSStringFormatSpecTypeKey</key><string/>@</dict></plist>",
    ],
    "document.resx": ["<root>@</root>", "<root><data name='a'><value>a@b</value></data></root>"],
    "document.xcstrings": [
        "@", '{"sourceLanguage":"en","strings":{@"b":{"localizations":{"de":{}}}}}',
        '{"sourceLanguage":"en","strings":{"b@":{"localizations":{"de":{}}}}}',
        '{"sourceLanguage":"en","strings":{"b":{"localizations":{@"de":{}}}}}',
    ],
    "glossary": ["@", "a\tb@\n", "a@\tb\n"],
    "import.settings": ["@", "a:\n@", "a: @\n", "a: [@]\n", "@: a\n"],
    "settings": ["@", "a@ = 1\n", 'a = "@"\n', "a = [@]\n", "[a@]\n", "a = @"],
    "config": ["@", '{"kind": "@"}', '{"@": 1}', "{@}"],
    "tokenizer": ["@", '{"model": {"vocab": {@}, "merges": []}}', '{"model": {"vocab": {}, "merges": [@]}}'],
    "manifest": ["@", '{"@": {}}', "{@}"],
    "state": ["@", '{"data": "@"}', "{@}"],
}  # fmt: skip


def inputs(name: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield what each input of a reader is called, its frame and its unit."""
    for frame in FRAMES[name]:
        for unit in [*ANY, *UNITS.get(name, [])]:
            yield f"{frame!r} with {unit!r}", (frame, unit)


def repeated(frame: str, unit: str, size: int) -> bytes:
    """Return a frame of about `size` bytes with as many units in it as fit."""
    each = unit.encode("utf-8", "surrogatepass")
    return frame.encode().replace(b"@", each * (size // len(each) // max(1, frame.count("@"))))


# How the main part of an archive is packed.
PACKED: dict[str, Callable[[bytes], bytes]] = {"document.docx": docx, "document.odt": odt, "document.epub": epub}


def seconds(name: str, data: bytes) -> float:
    """Return the time of the processor that it takes to read this, and to write a document with other texts."""
    kind, _, suffix = name.partition(".")
    data = PACKED.get(name, bytes)(data)

    def read_and_write() -> None:
        document = read_document(data, f".{suffix}", ("1",) if suffix == "csv" else ())
        document.fill(["x"] * len(document.texts))

    return processor_seconds(read_and_write if kind == "document" else lambda: targets()[name].read(data))


def grows_too_fast(name: str, frame: str, unit: str, size: int) -> bool:
    """Return whether reading takes far more than four times as long for four times as much."""
    return growth.grows_too_fast(lambda count: seconds(name, repeated(frame, unit, count)), size)


WORST = [
    ("corpus.tsv", "a@\tb@\n", "\""), ("corpus.csv", 'source,target\n"@",b\n', "a,b\n"),
    ("corpus.jsonl", '{"source": "@", "target": "b"}\n', "\\n"), ("corpus.tmx", "<tmx><!--@--></tmx>", "-"),
    ("corpus.xlf", "<xliff><trans-unit><source>a@</source><target>b@</target></trans-unit></xliff>", "漢\n"),
    ("corpus.po", "@", "# a\n"), ("corpus.po", "# @\n", "a"), ("document.txt", "a@b\n", " "),
    ("document.md", "[a@](b)\n", "["), ("document.md", "a@b\n", "*a*"), ("document.md", "# a@\n", "\\[\n"),
    ("document.md", "@", "```{note}\n"), ("document.md", "@", "<Aa b={"), ("document.md", "a@b\n", ":a["),
    ("document.html", "<p><b>a@</b> b@", "<i></i>"), ("document.html", "<p><b>a@</b> b@", "1:"),
    ("document.srt", "00:00:01,000 --> 00:00:02,000\na@b\n", " \u200f"), ("document.html", "<p><b>a@</b> b@", "漢\n"),
    ("document.srt", "@", "- a\n"), ("document.vtt", "WEBVTT\n\n@", "\n \n"), ("document.po", "@", "msgid \"a\"\n"),
    ("document.xliff", "<xliff><trans-unit><source>a@b</source></trans-unit></xliff>", "<g>a</g>"),
    ("document.xliff", "<xliff><trans-unit><source>a<!--@--></source></trans-unit></xliff>", "<![CDATA["),
    ("document.xliff", "<b@:xliff xmlns:b@='u'><b@:segment><b@:source>a</b@:source></b@:segment></b@:xliff>", "a"),
    ("document.ass", "[Events]\nDialogue: ,,,,,,,,,a@b\n", "{\\p1"),
    ("document.ass", "[Events]\nDialogue: ,,,,,,,,,a@b\n", " \\N"),
    ("document.docx", "<w:p><w:r><w:t>a</w:t></w:r>@</w:p>", UNITS["document.docx"][7]),
    ("document.docx", "<w:p><w:r><w:t>a</w:t></w:r>@</w:p>", UNITS["document.docx"][13]),
    ("document.docx", "<w:p><w:r><w:t>a</w:t></w:r>@</w:p>", UNITS["document.docx"][16]),
    ("document.docx", "<w:p>@</w:p>", "<w:r><w:p><w:r><w:t>a</w:t></w:r></w:p></w:r>"),
    ("document.odt", "<text:p>a@b</text:p>", "<text:note><text:p>a</text:p></text:note>"),
    ("document.odt", "<text:p>a@b</text:p>", "<text:s/>"), ("document.epub", "<p>a@b</p>", "<![CDATA[a]]>"),
    ("document.xml", "<resources><string>a@b</string></resources>", "<b>a</b>"),
    ("document.xml", "<resources><plurals><item quantity='other'>a</item>@</plurals></resources>",
     "<item quantity='one'>%d a</item>"),
    ("document.properties", "a=b@\n", "\\\n"), ("document.properties", "@", "a={0}\n"),
    ("document.strings", "@", "/*"), ("document.strings", "@", '"a"="b";'),
    ("document.stringsdict", "<plist><dict><key>NSStringFormatSpecTypeKey</key><string/>@</dict></plist>",
     "<key>one</key><string>%d</string>"),
    ("document.resx", "<root>@</root>", "<data name='a'><value>a</value></data>"),
    ("document.xcstrings", '{"sourceLanguage":"en","strings":{@"b":{"localizations":{"de":{}}}}}', '"a":{},'),
    ("document.json", "[@1]", '"{n, plural,",'), ("document.po", "@", 'msgid "{n, plural,"\nmsgstr ""\n\n'),
    ("document.json", "@", "["), ("document.csv", "@\n1\n", ","), ("glossary", "a\tb@\n", "\u0301\u0316"),
    ("tokenizer", "@", "["), ("manifest", "{@}", '"a":1,'), ("config", '{"kind": "@"}', "\\n"),
    ("import.settings", "a:\n@", "- a\n"), ("document.ts", "<TS>@</TS>", "<message><source>a</source></message>"),
    ("document.ftl", "a = b@\n", "\n b"), ("document.ftl", "@", "a = {\n"), ("document.yml", "[@]", "{a: b},"),
    ("document.yml", "a: |\n  b@\n", "\n  a"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "frame", "unit"), WORST)
def test_four_times_as_much_takes_four_times_as_long(name: str, frame: str, unit: str):
    size = {"document.md": 2_000, "import.settings": 80_000}.get(name, 20_000)
    assert not grows_too_fast(name, frame, unit, size)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "frame", "unit"), WORST)
def test_eight_megabytes_take_four_times_as_long_as_two(name: str, frame: str, unit: str):
    assert not grows_too_fast(name, frame, unit, 50_000 if name in SLOWER else 2_000_000)


def test_quadratic_time_is_seen(monkeypatch: pytest.MonkeyPatch):
    """The control for the tests above and below."""
    monkeypatch.setattr("test_linear.seconds", lambda name, data: (len(data) / 10_000) ** 2)
    assert grows_too_fast("corpus.tsv", "@", "a", 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMES)
def test_parsers_take_linear_time_for_any_input(name: str):
    size = SIZES.get(name, SIZE)
    assert [label for label, (frame, unit) in inputs(name) if grows_too_fast(name, frame, unit, size)] == []
