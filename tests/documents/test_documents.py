"""Documents: with their own texts they are the same bytes; with others, only the texts differ."""

import contextlib
import csv
import io
import json
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from html.parser import HTMLParser
from itertools import islice, pairwise
from pathlib import Path

import defusedxml.ElementTree
import polib
import pytest
import yaml
from fluent.syntax import FluentParser
from growth import grows_too_fast, processor_seconds
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from test_archives import ARCHIVES

from dragoman.documents import SUFFIXES, read_document
from dragoman.documents.csv import read_rows
from dragoman.documents.document import Skipped
from dragoman.documents.html import TEXT_ATTRIBUTES, tokens
from dragoman.documents.subtitles import wrap
from dragoman.errors import DragomanError, UsageError
from dragoman.text.verbatim import find, remove

TXT = "Hello\r\n\r\n  A second line \t\n---\n42\n!?\nLast"
HTML = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>Salt &amp; pepper</title><style>p {color: red}</style>
<script>if (a < b) document.write("<p>text</p>");</script></head>
<body class="wide"><!-- A comment -->
<h1>
  Two
  lines </h1>
<p>Hello <b>big</b> <img src=a.png alt="A dog"> world &lt;3 <code title="x">x = y</code>!&nbsp;</p>
<p translate="no">Zorg <b>Inc</b></p>
<ul><li><a href="/?a=1&amp;b" title='To "it"'>Home</a><li>Not closed<li><i class="icon"></i> With icon</ul>
<p>A <span translate=no>B</span> C<div>Inside</div> <input placeholder=Name disabled>
<pre>keep <b>this</b></pre><textarea>and this</textarea><svg><text>and this</text></svg>
<p>Use &lt;b&gt; for <b>bold</b><table><tr><td>One<td>2 &amp; <i>3</i></table></body></html>
"""
MD = r"""---
title: Front
---
# Title *here* #

A **bold** `code`, a [link](http://x.y "t") and
<b>html</b> &amp; \*stars\*  
after a break ![a picture](a.png)

- [x] a task
- item _two_
  more [ref] and [other][ref]

> first
> second

| one | a \| b |
|-----|--------|
| **x** | `code` |

    indented

```
fenced
```
<div>
block
</div>

1. a number

Setext
======

[^1]: A footnote.

[ref]: http://a.b 'title'
"""  # noqa: W291
SRT = """1
00:00:01,000 --> 00:00:02,500
Hello there my friend,
<i>how are you</i> today?

2
00:00:03,000 --> 00:00:04,000 X1:0
- One
- Two

3
00:00:05,000 --> 00:00:06,000
{\\an8}Before

and after an empty line
"""
VTT = """WEBVTT - A title

NOTE
A note

STYLE
::cue { color: red }

intro
00:01.000 --> 00:02.000 align:start
<v Bob>Salt &amp; pepper
in two lines

00:03.000 --> 00:04.000
At <00:03.500>last
"""
ASS = r"""[Script Info]
Title: No text

[V4+ Styles]
Format: Name, Fontname
Style: Default,Arial

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:00.00,0:00:00.00,Default,,0,0,0,,A note
Dialogue: 0,0:00:01.00,0:00:02.50,Default,Bob,0,0,0,,{\an8}Hello there my friend,\Nhow are {\i1}you{\i0} today?
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,- One\N- Two
Dialogue: 0,0:00:05.00,0:00:06.00,Default,,0,0,0,,{\p1}m 0 0 l 100 0 100 100{\p0}
"""
PO = r"""# A comment
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=3; plural=(n%10==1 && n%100!=11 ? 1 : n==0 ? "
"0 : 2);\n"

#: a.py:3
msgid "Hello"
msgstr ""

#, fuzzy, python-format
msgid "A guess"
msgstr ""

#, python-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid ""
"Line one\n"
"  line \"two\"\n"
msgstr ""

#~ msgid "Old"
#~ msgstr ""

msgctxt "menu"
msgid "Done"
msgstr "Fertig"
"""
JSON = r"""{"title": "A \"t\u00e9xt\"", "n": [1, -2.5e3, null, true],
 "body": ["One\n\n  two", {"id": "q-1", "title" : "Inner"}], "empty": {}, "list": []}"""
ARB = """{
  "@@locale": "en",
  "bye": "Good bye",
  "hello": "Hello {name}",
  "@hello": {"description": "A greeting", "placeholders": {"name": {"example": "Ann"}}},
  "files": "{count, plural, =0 {No files} one {{count} file} other {{count} files}}"
}
"""
CSV = """id,text,note
1,"Hello, ""you""
two lines", A note
2, Hello ,
3,=SUM(A1:A9),"x,y"
4
5,,"last"

6,42,end
"""

XLF = """<?xml version="1.0" encoding="UTF-8"?>
<!-- <source>no text</source> -->
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a>b" source-language="en"><body>
  <trans-unit id="1">
    <source>Salt &amp; <g id="1">pepper</g> &lt;3 <ph id="2">&lt;br/&gt;</ph> here</source>
  </trans-unit>
  <trans-unit id='2'><source>Hello</source><target state="new"/><alt-trans><target>x</target></alt-trans></trans-unit>
  <trans-unit id="3"><source>Copied</source><target state='needs-translation' id="t">Copied</target></trans-unit>
  <trans-unit id="4"><source>Done</source><target>Fertig</target></trans-unit>
  <trans-unit id="5" translate="no"><source>Left</source></trans-unit>
  <group translate="no"><trans-unit id="6"><source>Left</source></trans-unit></group>
  <trans-unit id="7" approved="yes"><source>Left</source><target/></trans-unit>
  <trans-unit id="8"><source>One. Two.</source>
    <seg-source><mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk></seg-source></trans-unit>
  <trans-unit id="9"><source><x id="1"/> 42 <mrk mtype="protected">Zorg</mrk></source></trans-unit>
  <trans-unit id="10" xml:space="preserve"><source> First line
 second <![CDATA[<b>]]> line&#10;third</source></trans-unit>
</body></file></xliff>
"""
XLIFF = """<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de">
<x:file id="f">
  <x:unit id="1"><x:notes><x:note>No text</x:note></x:notes>
    <x:segment id="s">
      <x:source>
        Hello
        <x:pc id="1">big</x:pc> <x:ph id="2"/>world, <x:sc id="3"/>dear<x:ec startRef="3"/> all</x:source>
    </x:segment>
    <x:ignorable><x:source> </x:source></x:ignorable>
    <x:segment state="initial"><x:source>Again</x:source><x:target></x:target></x:segment>
    <x:segment state="final"><x:source>Done</x:source><x:target>Fertig</x:target></x:segment>
  </x:unit>
  <x:unit id="2" translate="no"><x:segment><x:source>Left</x:source></x:segment></x:unit>
</x:file></x:xliff>
"""

ANDROID = r"""<?xml version="1.0" encoding="utf-8"?>
<!-- <string name="no">no text</string> -->
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <string name="seat">It\'s your seat.\nAre you <b>\"Bob\"</b> &amp;\u0020co?</string>
    <string name="quoted">
        "It's  here"
    </string>
    <string name="link"><![CDATA[A <a href="x">link</a> & more]]></string>
    <string name="user">Hi <xliff:g id="name" example="Bob">%1$s</xliff:g>, of <xliff:g id="b">Acme</xliff:g></string>
    <string name="left" translatable="false">Left</string><string name="alias">@string/seat</string>
    <string-array name="days"><item>Monday</item><item>@string/seat</item></string-array>
    <plurals name="files">
        <!-- of a folder -->
        <item quantity="one">%d file</item>
        <item quantity="other">%d files</item>
    </plurals>
    <color name="red">#f00</color>
</resources>
"""
PROPERTIES = r"""# A comment
! Another
title = It's \u0041 title
greeting:It''s {0}\, \
    again
two\ words Two\n\
    lines
empty=
"""
STRINGS = r"""/* "no" = "text"; */
"seat" = "Your \"seat\"\nis \U0041";
// "no" = "text";
CFBundleName = Name ;
"%d of %@" = "%d of %@ now";
"""
STRINGSDICT = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>files</key>
	<dict>
		<key>NSStringLocalizedFormatKey</key>
		<string>%#@files@</string>
		<key>files</key>
		<dict>
			<key>NSStringFormatSpecTypeKey</key>
			<string>NSStringPluralRuleType</string>
			<key>one</key>
			<string>%d &amp; file</string>
			<key>other</key>
			<string>%d files</string>
		</dict>
	</dict>
	<key>width</key>
	<dict>
		<key>NSStringVariableWidthRuleType</key>
		<dict>
			<key>20</key>
			<string>Short</string>
		</dict>
	</dict>
</dict>
</plist>
"""
RESX = """<?xml version="1.0" encoding="utf-8"?>
<root>
  <resheader name="version"><value>left</value></resheader>
  <data name="seat" xml:space="preserve">
    <value>Salt &amp; pepper
  in two lines</value>
    <comment>No text</comment>
  </data>
  <data name="&gt;&gt;label.Name" xml:space="preserve"><value>label</value></data>
  <data name="label.Text" xml:space="preserve"><value>A label</value></data>
  <data name="label.ImageKey" xml:space="preserve"><value>left</value></data>
  <data name="size" type="System.Drawing.Size"><value>left</value></data>
</root>
"""
XCSTRINGS = """{
  "sourceLanguage" : "en",
  "strings" : {
    "" : {

    },
    "Hello" : {
      "comment" : "No text"
    },
    "files %lld" : {
      "localizations" : {
        "en" : {
          "variations" : {
            "plural" : {
              "one" : {
                "stringUnit" : {
                  "state" : "new",
                  "value" : "%d file"
                }
              },
              "other" : {
                "stringUnit" : {
                  "state" : "new",
                  "value" : "%d files"
                }
              }
            }
          }
        }
      }
    },
    "key" : {
      "localizations" : {
        "de" : {
          "stringUnit" : {
            "state" : "new",
            "value" : ""
          }
        },
        "en" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "A \\"text\\""
          }
        }
      }
    },
    "Left" : {
      "shouldTranslate" : false
    },
    "Done" : {
      "localizations" : {
        "de" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "Fertig"
          }
        }
      }
    }
  },
  "version" : "1.0"
}
"""

TS = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE TS>
<TS version="2.1">
<context>
    <name>Main</name>
    <message>
        <location filename="a.cpp" line="3"/>
        <source>Don&apos;t open &quot;%1&quot; &lt;b&gt;now&lt;/b&gt;</source>
        <comment>No text</comment>
        <translation type="unfinished"></translation>
    </message>
    <message numerus="yes">
        <source>%n file(s)</source>
        <translation type="unfinished">
            <numerusform></numerusform>
            <numerusform></numerusform>
        </translation>
    </message>
    <message><source>Esc<byte value="x1b"/> key
second line </source><translation/></message>
    <message><source>Done</source><translation>Fertig</translation></message>
    <message><source>Left</source><translation type="vanished"></translation></message>
</context>
</TS>
"""
FTL = """### A comment
hello = Hello, { $name }!
-account = Account
emails = { $count ->
    [one] One email
   *[other] { $count } emails
} for { "{" }you{ "}" }
about =
    A sentence of
    two lines
    .title = The title
    .accesskey = T
"""
YAML = """# A comment
en:
  hello: Hello %{name}!   # kept
  "no": 'It''s "no"'
  anchor: &a "A \\"text\\"\\nof two"
  alias: *a
  count: 12
  files:
    one: One file
    other: "%{count} files"
  lines: |
    First

      second
  folded: >-
    Third
    goes on
  list: [yes it is, "x: y"]
"""

FIXTURES = {
    ".txt": TXT,
    ".html": HTML,
    ".md": MD,
    ".srt": SRT,
    ".vtt": VTT,
    ".ass": ASS,
    ".po": PO,
    ".json": JSON,
    ".arb": ARB,
    ".csv": CSV,
    ".xlf": XLF,
    ".xliff": XLIFF,
    ".ts": TS,
    ".ftl": FTL,
    ".yml": YAML,
    ".xml": ANDROID,
    ".properties": PROPERTIES,
    ".strings": STRINGS,
    ".stringsdict": STRINGSDICT,
    ".resx": RESX,
    ".xcstrings": XCSTRINGS,
}
TEXTS = {
    ".txt": ["Hello", "A second line", "Last"],
    ".html": [
        "Salt & pepper", "Two lines", 'Hello <b>big</b> <img src=a.png alt="A dog"> world <3 <x id="1"/>!', "A dog",
        'To "it"', "Home", "Not closed", "With icon", 'A <x id="1"/> C', "Inside", "Name",
        'Use <b> for <b id="1">bold</b>', "One",
    ],
    ".md": [
        "Title <em>here</em>",
        "A <strong>bold</strong> `code`, a <a>link</a> and <b>html</b> & *stars*", "after a break <img>a picture</img>",
        "a task", "item <em>two</em> more <a>ref</a> and <a>other</a>", "first second", "one", "a | b", "x",
        "a number", "Setext", "A footnote.",
    ],
    ".srt": ["Hello there my friend, <i>how are you</i> today?", "- One", "- Two", "Before", "and after an empty line"],
    ".vtt": ["Salt & pepper in two lines", 'At <x id="1"/>last'],
    ".ass": ['Hello there my friend, how are <x id="1"/>you<x id="2"/> today?', "- One", "- Two"],
    ".po": ["Hello", "0 files", "%d files", "1 file", "%d file", "2 files", "Line one", 'line "two"'],
    ".arb": ["Good bye", "Hello {name}", "No files", "1 file", "{count} file", "2 files", "{count} files"],
    ".json": ['A "téxt"', "One", "two", "q-1", "Inner"],
    ".csv": ['Hello, "you"', "two lines", "Hello"],
    ".xlf": [
        'Salt & <g id="1">pepper</g> <3 <x id="2"/> here', "Hello", "Copied", "One.", "Two.", "First line",
        'second <x id="1"/> line', "third",
    ],
    ".ts": [
        'Don\'t open "%1" <b>now</b>', "1 file", "%n file", "2 files", "%n files", 'Esc<x id="x1b"/> key',
        "second line",
    ],
    ".ftl": [
        "Hello, {$name}!", "Account", "One email for {you}", "2 emails for {you}", "{$count} emails for {you}",
        "A sentence of two lines", "The title",
    ],
    ".yml": [
        "Hello %{name}!", 'It\'s "no"', 'A "text"', "of two", "One file", "2 files", "%{count} files", "First",
        "second", "Third goes on", "yes it is", "x: y",
    ],
    ".xliff": ['Hello <pc id="1">big</pc> <x id="2"/>world, <sc id="3">dear</sc> all', "Again"],
    ".xml": [
        "It's your seat.", 'Are you <b>"Bob"</b> & co?', "It's  here", 'A <a href="x">link</a> & more',
        'Hi <g>%1$s</g>, of <x id="1"/>', "Monday", "1 file", "%d file", "2 files", "%d files",
    ],
    ".properties": ["It's A title", "It's {0}, again", "Two", "lines"],
    ".strings": ['Your "seat"', "is A", "Name", "%d of %@ now"],
    ".stringsdict": ["1 & file", "%d & file", "2 files", "%d files", "Short"],
    ".resx": ["Salt & pepper", "in two lines", "A label"],
    ".xcstrings": ["Hello", "1 file", "%d file", "2 files", "%d files", 'A "text"'],
}  # fmt: skip
PLACEHOLDER = re.compile(r"(<[^<>]*>|`[^`]*`|%d)")
# What the formats are made of, so that random documents are not all without texts.
FRAGMENTS = re.findall(r"\s+|[^\s\w]+|\w+", "".join(FIXTURES.values()))
LINES = [line for text in FIXTURES.values() for line in text.splitlines(keepends=True)]
formats = pytest.mark.parametrize("suffix", FIXTURES)
ALIASES = {".htm", ".markdown", ".mdx", ".pot", ".resw", ".ssa", ".yaml"}  # of suffixes with a fixture
broken = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(str.encode),
    st.lists(st.sampled_from(FRAGMENTS), max_size=40).map(lambda parts: "".join(parts).encode()),
    st.lists(st.sampled_from(LINES), max_size=12).map(lambda parts: "".join(parts).encode()),
    st.tuples(st.lists(st.sampled_from(LINES), max_size=12), st.binary(max_size=3), st.integers(0, 99)).map(
        lambda part: "".join(part[0]).encode()[: part[2]] + part[1] + "".join(part[0]).encode()[part[2] :]
    ),
)
answers = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from([*FRAGMENTS, "<b>", "</b>", "<script>", "&lt;", '<x id="1"/>', "-->"]), max_size=9).map(
        "".join
    ),
)


def loud(text: str) -> str:
    """A translation that keeps placeholders."""
    return "".join(part if index % 2 else part.upper() for index, part in enumerate(PLACEHOLDER.split(text)))


def translated(data: bytes, suffix: str, translate: Callable[[str], str] = loud) -> bytes:
    document = read_document(data, suffix)
    return document.fill([translate(text) for text in document.texts])


def fixture(suffix: str) -> bytes:
    return FIXTURES[suffix].encode()


# The same bytes.


@formats
@pytest.mark.parametrize("form", ["utf-8", "utf-8-sig", "utf-16", "crlf", "cr", "latin-1", "cut", "nul"])
def test_document_with_unchanged_texts_is_the_same_bytes(suffix: str, form: str):
    text = FIXTURES[suffix]
    data = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "cr": text.replace("\n", "\r").encode(),
        "latin-1": text.replace("e", "é").encode("latin-1"),
        "cut": text.encode()[: len(text) * 2 // 3],
        "nul": text.replace("e", "\0").encode(),
    }.get(form) or text.encode(form)
    document = read_document(data, suffix, ("2",) if suffix == ".csv" else ())  # a column, whatever its name became
    assert document.fill(document.texts) == data


@settings(max_examples=150, deadline=None)
@given(data=broken, suffix=st.sampled_from(SUFFIXES), answer=answers)
@example(b'<a title="x>', ".html", "a")
@example(b"\xff\xfe<\x00", ".html", "a")
@example(b"- - - a\n\t|b\n", ".md", "a")
@example(b'["\\ud800", "a"]', ".json", "a")
@example(b'msgid "a"\nmsgstr ""\nmsgstr "', ".po", "a")
@example(b'a;"b\n', ".csv", 'a;"b')
@example(b"a;b\n", ".csv", 'a;"b')
def test_document_of_any_bytes_comes_back_and_takes_any_translation(data: bytes, suffix: str, answer: str):
    document = read_document(data, suffix, ("1",) if suffix == ".csv" else ())
    assert document.fill(document.texts) == data
    assert all(text == text.strip() and any(map(str.isalpha, text)) for text in document.texts)
    document.fill([answer] * len(document.texts))


def test_line_that_tells_excel_the_delimiter_stays_above_the_table():
    data = b"sep=;\nid,a;text\n1;one, two\n"
    document = read_document(data, ".csv", ())
    assert document.texts == ["one, two"]
    assert document.fill(["A;B"]) == b'sep=;\nid,a;text\n1;"A;B"\n'
    with pytest.raises(UsageError, match="no column 'text'"):  # the control
        read_document(data.removeprefix(b"sep=;\n").replace(b",", b",,"), ".csv", ())


@formats
def test_document_with_other_texts_is_not_the_same_bytes_control(suffix: str):
    """The control for the tests above."""
    assert translated(fixture(suffix), suffix) != fixture(suffix)
    with pytest.raises(UsageError, match=r"99 translations for a document with \d+ texts: give one for each"):
        read_document(fixture(suffix), suffix).fill(["only one"] * 99)


def real_files(suffix: str, count: int = 40) -> list[Path]:
    """Files that others have written and that happen to be installed beside this package."""
    found = (path for path in Path(sysconfig.get_path("purelib")).rglob(f"*{suffix}") if path.stat().st_size < 200_000)
    return list(islice(found, count))


def test_formats_have_a_fixture_and_their_suffix_on_the_page():
    """Many of these tests go through all formats that have a fixture."""
    assert FIXTURES.keys() == TEXTS.keys() == {*SUFFIXES} - {*ARCHIVES} - ALIASES
    page = Path(__file__).parents[2] / "docs" / "documents.md"
    table = re.findall(r"^\| (`\..*?) \|", page.read_text(), re.MULTILINE)
    assert {*re.findall(r"\.\w+", " ".join(table))} == {*SUFFIXES} - {".txt"}


@pytest.mark.parametrize("suffix", [".html", ".po", ".md", ".txt", ".json"])
def test_real_files_come_back(suffix: str):
    files = real_files(suffix)
    if not files:
        pytest.skip(f"no installed package has a {suffix} file")
    for path in files:
        data = path.read_bytes()
        document = read_document(data, suffix)
        assert document.fill(document.texts) == data, path


# Only the text is other.


@formats
def test_texts_are_those_that_a_reader_sees(suffix: str):
    assert read_document(fixture(suffix), suffix).texts == TEXTS[suffix]
    assert not read_document(fixture(suffix), suffix).skipped


def test_cue_without_its_times_is_named():
    """The control is the number of a cue, and a number in its text."""
    good = "1\n00:00:01,000 --> 00:00:02,000\nOne.\n\n2\n00:00:03,000 --> 00:00:04,000\n5\napples\n"
    assert not read_document(good.encode(), ".srt").skipped
    before, after = (
        "1\n00:00:01,000 -> 00:00:02,000\nOne.\n\n",
        "\n3\nnot a time\nTwo.\n\n4\n00:x --> 00:05,000\nThree.\n",
    )
    document = read_document((before + good + after).encode(), ".srt")
    assert document.skipped == [
        (2, "not a time: '00:00:01,000 -> 00:00:02,000'; left as it is"),
        (15, "not a time: 'not a time'; read as text"),
        (19, "not a time: '00:x --> 00:05,000'; left as it is"),
    ]
    assert document.texts[-2:] == ["3 not a time Two.", "Three."]


@pytest.mark.parametrize(
    ("suffix", "data", "line", "readable"),
    [
        (".srt", "", 0, False), (".srt", "garbage\n", 0, False), (".srt", "1\n00:01 -> 00:02\nOne.\n", 2, False),
        (".vtt", "", 0, False), (".vtt", "WEBVTTX\n", 0, False), (".vtt", "WEBVTT\n\nNOTE a\n", 0, True),
        (".ass", "", 0, False), (".ass", "[Script Info]\n", 0, False), (".ass", "[Events]\n", 0, True),
        (".po", "", 0, False), (".po", "# a comment\n", 0, False), (".po", "a\n", 1, False),
    ],
)  # fmt: skip
def test_document_without_cues_or_messages_is_not_in_its_format(suffix: str, data: str, line: int, readable: bool):
    """The control is WebVTT, of which the header is enough."""
    document = read_document(data.encode(), suffix)
    assert (document.texts, document.readable, [one.line for one in document.skipped]) == ([], readable, [line])


@pytest.mark.parametrize("suffix", [".txt", ".html", ".md", ".srt", ".vtt", ".ass", ".json", ".csv"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_translations_are_read_again_as_they_were_given(suffix: str, end: str):
    data = FIXTURES[suffix].replace("\n", end).encode()
    before, after = (read_document(document, suffix).texts for document in (data, translated(data, suffix)))
    assert [text.lower() for text in after] == [text.lower() for text in before]
    assert after != before


class Page(HTMLParser):
    """Everything that a page has besides its texts."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[object, ...]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        rest = [(name, value) for name, value in attrs if name not in TEXT_ATTRIBUTES or tag == "code"]
        self.found.append((tag, *sorted(rest, key=str), *sorted(name for name, _ in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.found.append(("/", tag))

    def handle_comment(self, data: str) -> None:
        self.found.append(("!", data))


def rendered(markdown: str) -> Counter[tuple[object, ...]]:
    """The elements that a Markdown document becomes, and what is code; a footnote is no definition of a link."""
    html = MARKDOWN.render(markdown.replace("[^", r"\[^"))
    return Counter([*Page(html).found, *((code,) for code in re.findall(r"<code>.*?</code>", html, re.DOTALL))])


def blanked(value: object) -> object:
    """JSON with all its strings empty."""
    if isinstance(value, dict):
        return {key: blanked(inner) for key, inner in value.items()}
    return [blanked(inner) for inner in value] if isinstance(value, list) else "" if isinstance(value, str) else value


def structure(data: bytes, suffix: str) -> object:
    """What no translation may change."""
    text = data.decode()
    match suffix:
        case ".txt":
            return [line.endswith("\r") for line in text.split("\n")]
        case ".html":
            return Counter(Page(text).found)
        case ".md":
            return rendered(text)
        case ".po":
            messages = polib.pofile(text)
            old = [
                (m.msgid, m.msgid_plural, m.msgctxt, m.obsolete, m.flags, m.comment, m.linenum > 0) for m in messages
            ]
            return messages.metadata, old, [m.msgstr for m in messages if m.fuzzy or m.obsolete or m.msgctxt]
        case ".json" | ".arb":
            return blanked(json.loads(data))
        case ".ts":
            elements = [*defusedxml.ElementTree.fromstring(data).iter()]
            kept = [(each.tag, "".join(each.itertext())) for each in elements if each.tag in ("source", "comment")]
            return kept, Counter(each.tag for each in elements if each.tag != "byte"), "Fertig" in text
        case ".ftl":
            found = []  # the messages, their attributes, and the variables in them
            for entry in FluentParser().parse(text).body:
                written = text[entry.span.start : entry.span.end]
                found.append((type(entry), {*re.findall(r"^ *\.?[\w-]+ =|\$\w+", written, re.MULTILINE)}))
            return found
        case ".yml":
            return blanked(yaml.safe_load(data))
        case ".xlf" | ".xliff":
            kept = []  # for each unit, whether its target is empty or has the tags of its source
            for unit in defusedxml.ElementTree.fromstring(data).iter():
                source, split, target = (unit.find(f"{{*}}{name}") for name in ("source", "seg-source", "target"))
                if source is not None and target is not None:
                    before, after = (
                        sorted(tag.tag for tag in [*side.iter()][1:])
                        for side in (source if split is None else split, target)
                    )
                    kept.append(not after or before == after)
            bare = re.sub(r"\s*<(x:|)target(?:\s[^>]*?)?(?:/>|>.*?</\1target>)", "", text, flags=re.DOTALL)
            return re.sub(r' state(-qualifier)?="[a-z-]*"', "", bare), all(kept)
        case ".csv":
            rows = list(csv.reader(io.StringIO(text, newline="")))
            return [len(rows), [[*row[:1], *row[2:], "\n" in "".join(row)] for row in rows]]
    lines = [*text.split("\n"), ""]
    return [line for line, after in pairwise(lines) if "-->" in line + after or not line.strip()]


@settings(max_examples=150, deadline=None)
@given(suffix=st.sampled_from(sorted(FIXTURES)), given=st.lists(answers, min_size=1, max_size=5))
@example(".html", ["</p><script>x</script>"])
@example(".html", ["</b>A<b>", "<b>"])
@example(".md", ["# a", "- b", "1. c", "> d", "```", "---", "| a |"])
@example(".md", ["[a](b) <b> `c` **d** __e__ ~~f~~ ![g](h) &amp; \\", "===", "[^2]: x", "+ y", "<div>"])
@example(".srt", ["9\n00:00:09,000 --> 00:00:10,000\n\nnew"])
@example(".srt", ["00:00:09,000 --> 00:00:10,000"])
@example(".vtt", ["a\n\n00:09.000 --> 00:10.000\nnew & <b>"])
@example(".po", ['a"b\\', 'x\nmsgid "y"'])
@example(".json", ['a", "b": "c', "\\"])
@example(".csv", ['a","b\n', "a,b", "a\rb"])
@example(".ts", ["</translation>", "&amp;", "%n <b>"])
@example(".ftl", ["{ $x }", "}\n[a] = b", ".a = b", "*[other] c"])
@example(".yml", ["a: b", "- no", "yes", "*a #b", "'\"\\\\"])
@example(".xlf", ["</target><x/>", '</g> <x id="2"/> <g id="1">', "<![CDATA["])
def test_structure_is_the_same_whatever_the_translation(suffix: str, given: list[str]):
    document = read_document(fixture(suffix), suffix)
    filled = document.fill([given[index % len(given)] for index in range(len(document.texts))])
    assert structure(filled, suffix) == own_structure(suffix)


@cache
def own_structure(suffix: str) -> object:
    """The structure of a fixture, which it has in capitals, too."""
    own = structure(fixture(suffix), suffix)
    assert structure(translated(fixture(suffix), suffix), suffix) == own
    return own


@pytest.mark.parametrize(
    ("suffix", "answer"),
    [
        (".txt", "a\nb\r\n"), (".html", "<b>"), (".html", "</p><p>"), (".md", "**a** `b`"), (".md", "\n\n# a"),
        (".srt", "a\n\nb"), (".vtt", "\n\n1:00 --> 2:00\n"), (".po", 'a"\n#~ msgid "b'), (".json", 'a", "b'),
        (".csv", 'a,"b'), (".xlf", "</target><target>"), (".xliff", "<a>"), (".ts", "</translation><message>"),
        (".ftl", "{ $x }"), (".yml", 'x", "y'),
    ],
)  # fmt: skip
def test_structure_is_not_the_same_where_translations_are_just_put_in(suffix: str, answer: str):
    """The control for the tests above."""
    document = read_document(fixture(suffix), suffix)
    passage = document.passages[-1]
    put = document.original[: passage.start + 1] + answer + document.original[passage.end - 1 :]
    with contextlib.suppress(ValueError, OSError, SyntaxError):  # it is not even that format any more
        assert structure(put.encode(), suffix) != structure(fixture(suffix), suffix)


@formats
def test_blank_translation_leaves_the_text(suffix: str):
    assert translated(fixture(suffix), suffix, lambda text: " \n") == fixture(suffix)


@pytest.mark.parametrize(
    ("suffix", "text", "answer"),
    [
        (".po", 'msgid "%d son"\nmsgstr ""\n', "%d"), (".html", "<p>Say <b>hello</b></p>", "<b></b>."),
        (".md", "Use `code` here", "`code`"), (".json", '["Hello", "{name} sees"]', "{name}"),
        (".srt", "1\n00:00:01,000 --> 00:00:02,000\n<i>Hi</i> you\n", "-"),
    ],
)  # fmt: skip
def test_translation_that_lost_all_words_leaves_the_text(suffix: str, text: str, answer: str):
    assert translated(text.encode(), suffix, lambda text: answer) == text.encode()
    assert translated(text.encode(), suffix, lambda text: f"{answer} 7") != text.encode()  # the control


# Bytes and characters.


@pytest.mark.parametrize("form", ["utf-8", "utf-8-sig", "utf-16"])
def test_translation_is_written_in_the_encoding_of_the_document(form: str):
    assert translated("<p>a</p>".encode(form), ".html", lambda text: "ß한").decode(form) == "<p>ß한</p>"


def test_unwritable_characters_become_references_or_errors():
    page = '<meta charset="iso-8859-1"><p>d\xe9j\xe0'.encode("latin-1")
    assert read_document(page, ".html").texts == ["déjà"]
    assert translated(page, ".html", lambda text: "là 한") == page.replace(b"d\xe9j\xe0", b"l\xe0 &#54620;")
    catalogue = PO.replace("UTF-8", "ISO-8859-1").encode()
    assert b'"\xdf"' in translated(catalogue, ".po", lambda text: "ß")
    with pytest.raises(DragomanError, match="in ISO-8859-1, which cannot represent '한' \\(U\\+D55C\\): convert it"):
        translated(catalogue, ".po", lambda text: "한")


def test_texts_with_undecodable_bytes_are_left_and_reported():
    document = read_document(b"one\ntw\xff\xfeo\nthree\nfo\xffur\n", ".txt")
    assert document.texts == ["one", "three"]
    assert [(skipped.line, "2 texts from here on" in skipped.reason) for skipped in document.skipped] == [(2, True)]
    assert document.fill(["ONE", "THREE"]) == b"ONE\ntw\xff\xfeo\nTHREE\nfo\xffur\n"


def test_half_a_character_in_a_translation_does_not_reach_the_document():
    assert translated(b"a", ".txt", lambda text: "\ud800b\udcff") == "\ufffdb\ufffd".encode()


# Web pages.


class Places(HTMLParser):
    """Where tags begin, by the parser of the library, and how long they are."""

    def __init__(self, page: str):
        super().__init__()
        self.starts = [0, *(match.end() for match in re.finditer("\n", page))]
        self.found: list[tuple[str, int, int]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        line, column = self.getpos()
        self.found.append((tag, self.starts[line - 1] + column, len(self.get_starttag_text() or "")))


def test_tags_are_found_where_the_parser_of_the_library_finds_them():
    for page in [HTML, *(path.read_text(encoding="utf-8", errors="replace") for path in real_files(".html", 10))]:
        ours = [token for token in tokens(page) if token.name not in ("", "!") and not token.closing]
        assert [(token.name, token.start, token.end - token.start) for token in ours] == Places(page).found


@given(broken)
def test_tokens_are_all_of_the_page(data: bytes):
    page = data.decode("utf-8", "replace")
    spans = [(token.start, token.end) for token in tokens(page)]
    assert "".join(page[start:end] for start, end in spans) == page
    assert all(end == start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        ("Hallo <b>Welt</b>", "Hallo <b>Welt</b>"), ("<b>Welt</b>, hallo", "<b>Welt</b>, hallo"),
        ("Hallo <i>Welt</i> & <b>co</b>", "Hallo &lt;i&gt;Welt&lt;/i&gt; &amp; <b>co</b>"),
        ("<b>a</b> <b>b</b>", "<b>a</b> &lt;b&gt;b&lt;/b&gt;"), ("Hallo Welt", "Hallo Welt<b></b>"),
        ("Hallo </b>Welt<b>", "Hallo Welt<b></b>"), ("Hallo <B>Welt</B>", "Hallo &lt;B&gt;Welt&lt;/B&gt;<b></b>"),
    ],
)  # fmt: skip
def test_tags_of_the_text_stay_tags_and_all_others_are_words(answer: str, written: str):
    assert translated(b"<p>Hello <b>world</b></p>", ".html", lambda text: answer) == f"<p>{written}</p>".encode()


def test_attributes_inside_a_sentence_are_texts_of_their_own():
    page = b"<p>A <a href=x title='to it'>link</a> and <img alt=dog src=\"y\"> more</p>"
    document = read_document(page, ".html")
    sentence = "A <a href=x title='to it'>link</a> and <img alt=dog src=\"y\"> more"
    assert document.texts == [sentence, "to it", "dog"]
    put = document.fill([sentence.replace("link", "LINK"), 'it\'s "so"', 'a "dog" & <cat>'])
    assert put == (
        b"<p>A <a href=x title='it&#39;s \"so\"'>LINK</a> and "
        b'<img alt="a &quot;dog&quot; &amp; &lt;cat&gt;" src="y"> more</p>'
    )
    assert document.fill([sentence, "to it", "cat"]) == page.replace(b"alt=dog", b'alt="cat"')


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("<p translate=no>a<p>b", ["b"]), ("<div translate=no><div>a</div>b</div>c", ["c"]),
        ("<div translate=no>a<p translate=yes>b</p>c</div>d", ["b", "d"]), ("<ul><li translate=no>a<li>b</ul>", ["b"]),
        ("<pre>a</pre><code>b</code><kbd>c</kbd>d", ["d"]), ("<title>a <b>b</b></title>c", ["a <b>b</b>", "c"]),
        ("a</nothing>b", ["a</nothing>b"]), ("<!-- <p>a</p> -->b<!-->c<!--d", ['b<x id="1"/>c']),
        ("<?php echo '<b>' . $a->b ?>a", ["a"]), ("<script>a</script >b<style>c", ["b"]),
        ("<p {% if a > b %}class='c'{% endif %}>d<br <?= e->f ?> />g", ['d<x id="1"/>g']), ("<p {% if a>b", ["b"]),
        ("a < b, c &lt;d&gt;", ["a < b, c <d>"]), ("<p>a\n\t b&nbsp;c&nbsp;</p>", ["a b\xa0c"]),
        ("<b>2.</b> a", ["a"]), ("<b>•</b> <i>[<u>3</u>]</i> a", ["a"]), ("<b>2</b> a", ["<b>2</b> a"]),
        ('<a title="x>y">a</a> b', ['<a id="1">a</a> b', "x>y"]),
    ],
)  # fmt: skip
def test_html_texts_of_a_page(page: str, texts: list[str]):
    assert read_document(page.encode(), ".html").texts == texts


# Markdown.


@pytest.mark.parametrize(
    ("text", "answer", "written"),
    [
        ("a *b* c", "X <em>y</em> z", "X *y* z"), ("a **b** c", "no tags", "a **b** c"),
        ("a **b**c", "<strong>\u201cx\u201d</strong>y", "<strong>\u201cx\u201d</strong>y"),
        ("see [b](c)", "<a>y</a> x", "[y](c) x"), ("see [b]\n\n[b]: c", "x <a>y</a>", "x [y][b]\n\n[b]: c"),
        ("a", "1. x * y_z [w] <v> `u`", "1\\. x \\* y_z \\[w\\] \\<v> \\`u\\`"),
        ("a\n===", "# x", "\\# x\n==="), ("> a\n> b", "x y", "> x y"),
        ("a [^1] b", 'x <x id="1"/> y', "x [^1] y"), ("a <http://b.c> d", 'x <x id="1"/>', "x <http://b.c>"),
        ("a `b  c`\n d [e](f\n'g')", "x `b c` <a>y</a>", "x `b  c` [y](f 'g')"),
        ("a", "- x", "\\- x"), ("# a", "2. x", "# 2. x"), ("a\n===", "2. x", "2\\. x\n==="),
        ("> ## a ##", "- x", "> ## - x ##"),
        ("## a", "# x", "## # x"), ("- # a\n- b", "1) x", "- # 1) x\n- 1\\) x"), ("![](a) b", "2. x", "![](a) 2. x"),
        ("|a|\n|-|\n|b|", "2. x", "|2. x|\n|-|\n|2. x|"), ("a|b\n-|-\nc|d", "+ x", "\\+ x|+ x\n-|-\n\\+ x|+ x"),
        ("|a|b|\n|-|-|\n|c|d \\| e|", "x | y", "|x \\| y|x \\| y|\n|-|-|\n|x \\| y|x \\| y|"),
    ],
)  # fmt: skip
def test_translations_are_written_as_markdown(text: str, answer: str, written: str):
    assert translated(text.encode(), ".md", lambda _: answer) == written.encode()


@pytest.mark.parametrize(
    ("text", "texts", "written"),
    [
        (r"A $x_1 * y_2$ *b* $\alpha<5$.", ['A <x id="1"/> <em>b</em> <x id="2"/>.'], r"A $x_1 * y_2$ *B* $\alpha<5$."),
        ("a $$b\nc$$ d", ['a <x id="1"/> d'], "A $$b c$$ D"),
        ("a\n$$\nb\n+ c\n- d\n= e\n$$\nf", ["a", "f"], "A\n$$\nb\n+ c\n- d\n= e\n$$\nF"),
        ("> $$\n> + a\n> $$\n> b", ["b"], "> $$\n> + a\n> $$\n> B"),
        ("$$a$$\n\n$a$ b 5", ["b 5"], "$$a$$\n\n$a$ B 5"),
        # Prices are none, nor is what does not end.
        ("a $5 or b$ and c $6", ["a $5 or b$ and c $6"], "A $5 OR B$ AND C $6"),
        (r"a \$b\$ us$c$ d", ["a $b$ us$c$ d"], r"A \$B\$ US$C$ D"),
        ("$$\na\n\nb", ["$$ a", "b"], "$$ A\n\nB"),
        ("$$a$$ b\n\n$$\nc$$ d", ["b", "d"], "$$a$$ B\n\n$$\nc$$ D"),
    ],
)  # fmt: skip
def test_formulas_of_markdown_stay(text: str, texts: list[str], written: str):
    document = read_document(text.encode(), ".md")
    assert document.texts == texts
    tags_or_words = re.compile("<[^>]*>|[^<]+")
    upper = [
        tags_or_words.sub(lambda found: found[0] if found[0][0] == "<" else found[0].upper(), one) for one in texts
    ]
    assert document.fill(upper).decode() == written


@pytest.mark.parametrize(
    ("text", "shown", "answer", "written"),
    [
        ("Press <kbd>Ctrl</kbd> now", 'Press <x id="1"/> now', 'Nun <x id="1"/> x', "Nun <kbd>Ctrl</kbd> x"),
        ("A <b>b</b> <samp>*c*\nd</samp>, <var>e</var> f", 'A <b>b</b> <x id="1"/>, <x id="2"/> f',
         '<b>Y</b> <x id="2"/> <x id="1"/> z', "<b>Y</b> <var>e</var> <samp>*c* d</samp> z"),
        ('A <span translate="no">B <span>c</span></span> d', 'A <x id="1"/> d', 'X <x id="1"/>',
         'X <span translate="no">B <span>c</span></span>'),
        ('A <span class="x NoTranslate">B <span>c</span></span> d', 'A <x id="1"/> d', 'X <x id="1"/>',
         'X <span class="x NoTranslate">B <span>c</span></span>'),
        ("A <code>b", "A <code>b", "X <code>y", "X <code>y"),
    ],
)  # fmt: skip
def test_elements_that_pages_leave_alone_are_left_in_markdown_too(text: str, shown: str, answer: str, written: str):
    assert read_document(text.encode(), ".md").texts == [shown]
    assert translated(text.encode(), ".md", lambda _: answer) == written.encode()


STATEMENTS = ["{% if a < b && c %}", "{# a *b* & <c> #}", "<% x | y %>", "<%= a['b'] %>", "<?php $a->b['c'] ?>",
              "{{ a | b('<c>') }}", "{{ name }}"]  # fmt: skip


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize(("suffix", "frame"), [(".html", "<p>{}</p>\n"), (".md", "{}\n"), (".txt", "{}\n")])
def test_statements_of_templates_come_through_unchanged(suffix: str, frame: str, statement: str):
    """In a sentence they are placeholders or not shown at all; what stands alone is not touched."""
    page = frame.format(f"One {statement} two {statement} three")
    document = read_document(page.encode(), suffix)
    (text,) = document.texts
    placeholders = [placeholder.text for placeholder in find(text)]
    assert len(placeholders) == 2
    assert "<x" in placeholders[0] or set(placeholders) == {statement}
    loud = text.replace("One", "EINS").replace("two", "ZWEI").replace("three", "DREI")
    assert document.fill([loud]).decode() == frame.format(f"EINS {statement} ZWEI {statement} DREI")
    alone = read_document(frame.format(statement).encode(), suffix)
    assert not any(map(str.isalpha, remove("".join(alone.texts))[0]))


FRAMES = [
    "a", "# a", "## a ##", "a\n---", "a *b*\n-----", "a\n===", "- a\n- b", "> a\n> b", "1. a\n   b\n2. c",
    "a  \nb\\\nc", "| a | b |\n|---|---|\n| c | d |", "a [b](c) `d|e` d", "**a**", "- [ ] a", "> a\n> ---",
    "- a\n  ---",
]  # fmt: skip
NASTY = [
    "|", "a | b", "| a |", "#", "##", "-", "--", "---", "+", "*", "1.", "2)", ">", "===", "=", "~~~", "```", "|-|",
    ":-", "[", "]:", "[x]:", "[^1]:", "[ ]", "<b>", "<!--", "<?", "</p>", "&", "&#124;", "\\", "\\|", "_", "__", "***",
    "!", "![", "(c)", "$$", ":", "a", "b c", "{%", "%}", "{{ a | b }}",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(NASTY), min_size=1, max_size=4).map(" ".join), min_size=1, max_size=3))
@example(["A | B"])
def test_markdown_structure_survives_any_words(words: list[str]):
    """Each kind of block, with others around it; what is compared is the order of elements, too."""
    data = "\n\n".join(FRAMES).encode()
    document = read_document(data, ".md")
    filled = document.fill([words[index % len(words)] for index in range(len(document.texts))]).decode()
    for before, after in zip(FRAMES, filled.split("\n\n"), strict=True):
        assert elements(after) == known_elements(before), after
    assert elements(filled) == known_elements(data.decode())


MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def elements(markdown: str) -> list[object]:
    """The elements of a page that are no markup inside a sentence, in order."""
    html = MARKDOWN.render(markdown)
    return [found for found in Page(html).found if found[-1] not in ("em", "strong")]


known_elements = cache(elements)  # of what is the same in all examples


# Subtitles.


@pytest.mark.parametrize(
    ("text", "count", "lines"),
    [
        ("one two three four", 2, ["one two", "three four"]), ("你好世界。再见", 2, ["你好世", "界。再见"]),
        ("<i>one two</i> three four", 2, ["<i>one two</i>", "three four"]),
        ("one two three four five six", 3, ["one two", "three four", "five six"]),
    ],
)  # fmt: skip
def test_cue_has_lines_of_similar_length(text: str, count: int, lines: list[str]):
    assert wrap(text, count) == lines


@given(st.lists(st.text("abc", min_size=1, max_size=9), min_size=1, max_size=30), st.integers(1, 6))
def test_cue_keeps_its_number_of_lines_if_it_has_the_words(words: list[str], count: int):
    lines = wrap(" ".join(words), count)
    assert len(lines) == min(count, len(words))
    assert " ".join(lines) == " ".join(words)


def test_translated_cue_has_the_line_ends_of_the_file():
    data = b"1\r\n00:00:01,000 --> 00:00:02,000\r\none two\r\nthree\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\nlast"
    assert translated(data, ".srt", lambda text: "a b c d") == (
        data.replace(b"one two\r\nthree", b"a b\r\nc d").replace(b"last", b"a b c d")
    )


@pytest.mark.parametrize(
    ("cue", "texts"),
    [
        ("- One two,\nthree\n- Four\nfive", ["- One two, three", "- Four five"]),
        ("<i>- One two\nthree</i>\n<i>– Four</i>", ["- One two three", "– Four"]),
        ("One two\n- Three", ["One two", "- Three"]), ("- One two\nthree", ["- One two three"]),
        ("One - two\nthree", ["One - two three"]),
    ],
)  # fmt: skip
def test_speakers_of_a_cue_are_separate_texts(cue: str, texts: list[str]):
    """So the dashes stay at the beginning of the same lines."""
    data = f"1\n00:00:01,000 --> 00:00:02,000\n{cue}\n".encode()
    assert read_document(data, ".srt").texts == texts
    before, after = (text.decode().splitlines() for text in (data, translated(data, ".srt")))
    assert after != before
    assert [line.lower() for line in after] == [line.lower() for line in before]


# Catalogues.


def test_exactly_the_missing_messages_are_filled():
    before, after = (polib.pofile(text.decode()) for text in (fixture(".po"), translated(fixture(".po"), ".po")))
    missing = {message.msgid for message in before.untranslated_entries() if not message.obsolete}
    assert missing == {"Hello", "%d file", 'Line one\n  line "two"\n'}
    for old, new in zip(before, after, strict=True):
        if old.msgid not in missing:
            assert old == new
    filled = {message.msgid: message for message in after}
    assert filled["Hello"].msgstr == "HELLO"
    assert filled["%d file"].msgstr_plural == {0: "%d FILES", 1: "%d FILE", 2: "%d FILES"}
    assert filled['Line one\n  line "two"\n'].msgstr == 'LINE ONE\n  LINE "TWO"\n'


def test_real_catalogues_lack_nothing_after_translation():
    files = real_files(".po")
    if not files:
        pytest.skip("no installed package has a .po file")
    for path in files:
        text = path.read_text(encoding="utf-8")
        missing = [message for message in polib.pofile(text) if not (message.translated() or message.fuzzy)]
        left = polib.pofile(translated(path.read_bytes(), ".po", lambda text: f"x {text}").decode())
        assert bool(read_document(path.read_bytes(), ".po").texts) <= bool(missing)
        assert not [message for message in left.untranslated_entries() if any(map(str.isalpha, message.msgid))]


@pytest.mark.parametrize(
    ("catalogue", "texts", "line"),
    [
        ('msgid "a"\nmsgstr "\nmsgid "b"\nmsgstr ""\n', None, 2),
        ('msgid "a" "b"\nmsgstr ""\n\nmsgid "c"\nmsgstr ""\n', None, 1),
        ('nonsense\nmsgid "a"\nmsgstr ""\nmsgid "b"\nmsgstr ""\n', None, 1),
        ('msgid "a"\nmsgstr ""\n\nnonsense\n\nmsgid "b"\nmsgstr ""\n', None, 4),
        ('msgid "a"\nmsgstr ""\n\nmsgid "b\nmsgstr ""\n\nmsgid "c"\nmsgstr ""\n', None, 4),
        ('msgid "a"\nmsgstr[0] ""\nmsgid_plural "b"\nmsgstr[1] "c"\n', ["a"], 0),
        ('#, fuzzy\n#~ msgid "a"\n#~ msgstr ""\n\nmsgid "b"\nmsgstr ""\n', ["b"], 0),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n', ["b"], 0),
    ],
)
def test_catalogue_with_a_line_that_is_not_po_is_refused(catalogue: str, texts: list[str] | None, line: int):
    document = read_document(catalogue.encode(), ".po")
    assert (document.texts, document.readable) == (texts or [], texts is not None)
    assert [skipped.line for skipped in document.skipped] == [line] * bool(line)


# JSON.


def test_json_lines_are_told_from_json_with_other_text_after_it():
    for text, hint in (('{"a": "b"}\n{"a": "c"}\n', True), ('{"a": "b"}\n}', False)):
        (skipped,) = read_document(text.encode(), ".json").skipped
        assert skipped.line == 2
        assert skipped.reason.startswith("not JSON (text after its end")
        assert (".jsonl" in skipped.reason) == hint


def test_json_texts_are_the_values_of_the_chosen_keys():
    document = read_document(fixture(".json"), ".json", ("title", "body"))
    assert document.texts == ['A "téxt"', "One", "two", "Inner"]
    put = json.loads(document.fill(['"\u00df"', "EINS", "ZWEI", "DRIN"]))
    assert put["title"] == '"\u00df"'
    assert put["body"] == ["EINS\n\n  ZWEI", {"id": "q-1", "title": "DRIN"}]
    partly = read_document(fixture(".json"), ".json", ("nothing", "title"))
    assert (partly.texts, partly.skipped[0].reason) == (['A "téxt"', "Inner"], "no text under the key 'nothing'")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"title": "A", "body": ["B"], "id": 3}', "'titel'; did you mean 'title'? texts are under title, body"),
        (b'["A"]', "no key in the document has a text"),
    ],
)
def test_document_without_any_of_the_chosen_keys_is_refused(data: bytes, says: str):
    with pytest.raises(UsageError, match=re.escape(says)):
        read_document(data, ".json", ("titel",))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.sampled_from([None, 0, 2, "\t"]), st.booleans())
def test_strings_are_those_that_the_library_reads(value: object, indent: int | str | None, ascii_only: bool):
    def spoken(value: object) -> list[str]:
        if isinstance(value, str):
            return [line.strip() for line in value.split("\n") if any(map(str.isalpha, line)) and "\0" not in value]
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
        return [text for part in inner for text in spoken(part)]

    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert read_document(data, ".json").texts == [text for text in spoken(value) if "\0" not in text]


@given(st.text('[]{}",: \n1ae\\truefalsnulINFy-.', max_size=14))
@example("[1,]")
@example('{"a" 1}')
@example("[" * 99_999)
@example('{"a":' * 9_999 + "1" + "}" * 9_999)
def test_invalid_json_is_left_and_reported(text: str):
    try:
        json.loads(text)
        whole = True
    except RecursionError:
        return
    except ValueError:
        whole = False
    document = read_document(text.encode(), ".json")
    assert whole == document.readable == (not document.skipped)
    assert whole or not document.texts


# XLIFF.


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_of_any_system_stay(end: str):
    text = end.join(["The dog.", "", " A cat. ", "7", "Bears"])
    assert read_document(text.encode(), ".txt").texts == ["The dog.", "A cat.", "Bears"]
    assert translated(text.encode(), ".txt", str.upper).decode() == text.upper()


def test_text_in_cdata_sections_is_reported_and_stays():
    unit = "<trans-unit id='1'><source>{}</source>{}</trans-unit>\n"
    units = [
        unit.format("A dog.", ""),
        unit.format("<![CDATA[<b>A</b> cat.]]>", ""),
        unit.format("<g id='1'><![CDATA[bears]]> x</g>", ""),
        unit.format("<![CDATA[Done.]]>", "<target>Fertig.</target>"),
    ]
    content = f"<xliff version='1.2'><file><body>\n{''.join(units)}</body></file></xliff>"
    document = read_document(content.encode(), ".xlf")
    assert document.texts == ["A dog.", "x"]
    assert document.skipped == [(3, "2 CDATA sections with text from here on: left untranslated")]


def test_missing_targets_are_written_with_their_tags_and_state():
    before, after = XLF.split("\n"), translated(XLF.encode(), ".xlf").decode().split("\n")
    state, qualifier = review = 'state="needs-review-translation"', 'state-qualifier="mt-suggestion"'
    tag = f"<target {' '.join(review)}>"
    assert [line for line in after if line not in before] == [
        f'    {tag}SALT &amp; <g id="1">PEPPER</g> &lt;3 <ph id="2">&lt;br/&gt;</ph> HERE</target>',
        f"  <trans-unit id='2'><source>Hello</source>{tag}HELLO</target>"
        "<alt-trans><target>x</target></alt-trans></trans-unit>",
        f'  <trans-unit id="3"><source>Copied</source><target {state} id="t" {qualifier}>COPIED</target></trans-unit>',
        '    <seg-source><mrk mtype="seg" mid="0">One.</mrk> <mrk mtype="seg" mid="1">Two.</mrk></seg-source>',
        f'    {tag}<mrk mtype="seg" mid="0">ONE.</mrk> <mrk mtype="seg" mid="1">TWO.</mrk></target></trans-unit>',
        f" second <![CDATA[<b>]]> line&#10;third</source>{tag} FIRST LINE",
        " SECOND <![CDATA[<b>]]> LINE&#10;THIRD</target></trans-unit>",
    ]
    assert not read_document(XLF.encode(), ".xlf").skipped  # there is no word in its CDATA section
    assert translated(XLIFF.encode(), ".xliff").decode() == XLIFF.replace(
        '<x:segment id="s">', '<x:segment id="s" state="translated">'
    ).replace(
        " all</x:source>\n",
        ' all</x:source>\n      <x:target>\n        HELLO <x:pc id="1">BIG</x:pc> <x:ph id="2"/>WORLD, '
        '<x:sc id="3"/>DEAR<x:ec startRef="3"/> ALL</x:target>\n',
    ).replace(
        '<x:segment state="initial"><x:source>Again</x:source><x:target></x:target>',
        '<x:segment state="translated"><x:source>Again</x:source><x:target>AGAIN</x:target>',
    )


UNIT = "<trans-unit><source>a</source></trans-unit>"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (f"<xliff>{UNIT}</xliff>", ""), (f'<!DOCTYPE xliff SYSTEM "x.dtd"><xliff>{UNIT}</xliff>', ""),
        (f'<!DOCTYPE xliff [<!ENTITY e "a">]><xliff>{UNIT}&e;</xliff>', "declares XML entities"),
        (f"<xliff>{UNIT}", "not XLIFF (no element found"), (f"<tmx>{UNIT}</tmx>", "not XLIFF (its root is 'tmx')"),
        (f"<xliff>{'<a>' * 100}{UNIT}{'</a>' * 100}</xliff>", "not XLIFF (elements nested more than 100 deep)"),
        ("", "not XLIFF (no element found"), (f"<xliff>{UNIT}\udcff</xliff>", "not XLIFF ("),
    ],
)  # fmt: skip
def test_xliff_is_plain_xml(data: str, reason: str):
    document = read_document(data.encode("utf-8", "surrogateescape"), ".xlf")
    assert document.texts == ([] if reason else ["a"])
    assert document.readable == (not reason)
    assert [skipped.reason[: len(reason)] for skipped in document.skipped] == [reason] * bool(reason)


# CSV.


@settings(max_examples=200)
@given(
    st.lists(st.lists(st.text(',;"\r\n\t=a\u2028 ', max_size=6), min_size=1, max_size=3), max_size=4),
    st.sampled_from(",;\t"),
)
def test_cells_are_those_that_the_library_reads(rows: list[list[str]], delimiter: str):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows(rows)
    cells = [[cell.text for cell in row] for row in read_rows(file.getvalue(), delimiter)]
    assert [row for row in cells if row != [""]] == [
        row for row in csv.reader(io.StringIO(file.getvalue(), newline=""), delimiter=delimiter) if row and row != [""]
    ]


@pytest.mark.parametrize(
    ("table", "keys", "texts"),
    [
        ("Source,Target\na,\nb,B\nc,\n", (), ["a", "c"]), ("id;source;target\n1;a;b\n", (), []),
        ("a,b\nc,d\n", ("b",), ["d"]), ("a,b\nc,d\n", ("2", "1"), ["a", "b", "c", "d"]),
        ('text,b\n"a\n', (), []), ('text\n"a"b\n', (), []),
    ],
)  # fmt: skip
def test_columns_are_chosen_by_their_names_or_numbers(table: str, keys: tuple[str, ...], texts: list[str]):
    assert sorted(read_document(table.encode(), ".csv", keys).texts) == texts


def test_bilingual_table_is_filled_and_columns_that_it_lacks_are_named():
    table = b'id,source,target\r\n1,"a ""b""",\r\n2,c,d\r\n3,e\r\n'
    assert translated(table, ".csv", str.upper) == table.replace(b'"a ""b""",', b'"a ""b""","A ""B"""')
    with pytest.raises(UsageError, match="several columns are called 'text'"):
        read_document(b"text,text\n1,2\n", ".csv")
    with pytest.raises(UsageError, match=r"has a, b; name the column 'text', or use columns 'source' and 'target'$"):
        read_document(b"a,b\n1,2\n", ".csv")
    with pytest.raises(UsageError, match=r"no column 'c'; the first row has a, b$"):
        read_document(b"a,b\n1,2\n", ".csv", ["c"])
    with pytest.raises(UsageError, match="no column 'text'; the first row has 'a, b', c;"):
        read_document(b'"a, b",c\n1,2\n', ".csv")


def test_rows_without_a_cell_to_fill_are_left_and_counted():
    def skipped(table: bytes) -> list[Skipped]:
        return read_document(table, ".csv").skipped

    assert skipped(b"source,target\na,\nb\n\nc\nd,D\n") == [
        Skipped(3, "2 rows from here on without a target column: left untranslated")
    ]
    # The controls: blank lines, and rows without a text.
    assert skipped(b"source,target\na,\n\nb,\n") == skipped(b"id,text\n1\n2,a\n") == []


def test_document_is_read_from_bytes_alone():
    with pytest.raises(UsageError, match=r"takes bytes, such as Path\(name\)\.read_bytes\(\), not str"):
        read_document("a", ".md")  # type: ignore[arg-type]


# All of them.


def test_suffixes_ignore_case_and_unknown_ones_are_wrong_usage():
    assert all(read_document(b"", suffix.upper()).texts == [] for suffix in SUFFIXES)
    with pytest.raises(UsageError, match=r"unknown document suffix '\.log': expected one of \.txt, .*\.json"):
        read_document(b"", ".log")
    with pytest.raises(UsageError, match=r"unknown document suffix '\.doc': .* save it as \.docx"):
        read_document(b"", ".doc")
    with pytest.raises(UsageError, match=r"keys are for \.md, .* only, not for \.html"):
        read_document(b"", ".html", ("title",))


DEEP = {
    ".html": [
        "<b>",
        "<div>x",
        "<!--",
        "<a title='",
        "</b>a",
        "<i></b>",
        "&nbsp;",
        "<img alt=x>a",
        "< ",
        "<%",
        "{%",
        "<a {%",
        "{{<",
    ],
    ".md": ["> ", "- ", "[", "![a](", "*a ", "`", "<b>", "|a", "a\n", "{%", "{# a", "{{|"],
    ".srt": ["00:00:01,000 --> 00:00:02,000\na\n\n", "<i>", "- a\n"],
    ".vtt": ["00:01.000 --> 00:02.000\n<v a>b\n\n"],
    ".po": ['msgid "a"\nmsgstr ""\n', '"a"\n', "\\", '"'],
    ".json": ["[", '{"a":', '["a",'],
    ".csv": ['text\n"a""', "text\n", 'text\n"'],
    ".txt": ["a", " ", "a\n"],
    ".xlf": ["<a>", "<xliff>", "<", "<!--", '<a b="'],
    ".xml": ["<resources>", "<string>", "<", "<!--"],
    ".properties": ["a=b\n", "\\", "\\u", "a\\\n", "\\u0041", " ", "{0"],
    ".strings": ['"a"="b";', "/*", '"a', "/**/", "//\n", "\\", "a"],
    ".stringsdict": ["<dict>", "<key>"],
    ".resx": ["<data>", "<value>"],
    ".xcstrings": ["[", '{"a":', '{"strings":'],
    ".ts": ["<message>", "<TS>", "<"],
    ".ftl": ["a = {", "a = { $a ->\n *[a] ", "a = b\n", " ", "a = ", "-"],
    ".yml": ["[", "{a: ", "- ", "? ", "a: b\n", "&a ", "a: |\n", "a: *a\n"],
}


@pytest.mark.parametrize("half", ["\\udc80", "\\ud800"])
def test_half_a_character_stays_escaped_in_json(half: str):
    """Written as it is, it would be a byte that is not UTF-8."""
    data = translated(f'["ä\\n{half}", "b"]'.encode(), ".json", str.upper)
    assert json.loads(data) == json.loads(f'["Ä\\n{half}", "B"]')
    assert data.decode().isascii() or "Ä" not in data.decode()


CUE = "00:01.000 --> 00:02.000\n"
LONG = [  # suffix, what stands around, the unit that is repeated
    (".srt", CUE + "a{}b\n", " "), (".srt", CUE + "a <{}\n", "b"), (".srt", CUE + "a {{\\{}\n", "b"),
    (".srt", "{}\n", "1:"), (".vtt", CUE + "a{}b\n", " "), (".vtt", CUE + "a &#{};\n", "1"),
    (".html", "<p>a &#{};</p>", "1"), (".html", "<p title='a &#{};'>b</p>", "1"), (".html", "<p {}", "a"),
    (".html", "<p>a &{};</p>", "b"), (".md", "a &#{};\n", "1"), (".txt", "a{}b\n", " "),
    (".po", 'msgid "a"\nmsgstr ""\n{}', '"b"\n'), (".po", 'msgid ""\n{}msgstr ""\n', '"b"\n'),
    (".json", '["a{}"]', " "), (".json", '["a", 1{}]', "0"),
    (".xml", "<resources><string>a{}b</string></resources>", "<b>a</b>"),
    (".xml", '<resources><string>"a{}b"</string></resources>', " "),
    (".xml", "<resources><plurals>{}</plurals></resources>", "<item quantity='one'>a</item>"),
    (".properties", "a=b{}\n", "\\u0041"), (".properties", "a={{0}}{}\n", "'"), (".properties", "a=b{}", " \\\n"),
    (".strings", '"a"="{}";', "\\n"), (".strings", "{}", "/* */"),
    (".resx", "<root>{}</root>", "<data name='a'><value>a</value></data>"),
    (".xcstrings", '{{"sourceLanguage":"en","strings":{{"b":{{"localizations":{{"de":{{}}}}}}{}}}}}', ',"a":{}'),
    (".ts", "<TS><message numerus='yes'><source>a</source><translation>{}</translation></message></TS>",
     "<numerusform/>"), (".ts", "<TS>{}</TS>", "<message><source>a</source></message>"),
    (".ftl", "a = b{}\n", "\n c"), (".ftl", "a = b{}\n", "{{ $c }}"),
    (".ftl", "a = {{ $b ->\n{}  *[c] d\n }}", "  [one] a\n"),
    (".yml", "a:{}\n", " b"), (".yml", "a: |{}\n", "\n  b"), (".yml", "a: >{}\n", "\n\n  b"),
    (".yml", "[{}]", "{{other: b, few: c}},"),
]  # fmt: skip


def test_message_in_a_thousand_forms_does_not_multiply_the_catalogue():
    """Languages have up to six forms, and each is a translation of the whole message."""
    forms = "".join(f'msgstr[{number}] ""\n' for number in range(1000))
    data = f'msgid "a"\nmsgid_plural "{"b" * 1000}"\n{forms}'.encode()
    texts = read_document(data, ".po").texts
    assert sum(map(len, texts)) <= len(data)


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "frame", "unit"), LONG)
def test_time_for_one_long_part_grows_with_its_length(suffix: str, frame: str, unit: str):
    assert not grows_too_fast(lambda count: seconds(suffix, frame.format(unit * count)), 10_000)


def seconds(suffix: str, text: str) -> float:
    """Return the time to read a document and to write it, with its own texts, which give the same bytes, and others."""

    def read_and_write() -> None:
        document = read_document(text.encode(), suffix)
        assert document.fill(document.texts) == text.encode()
        document.fill(["x"] * len(document.texts))

    return processor_seconds(read_and_write)


@pytest.mark.parametrize(("suffix", "unit"), [(suffix, unit) for suffix, units in DEEP.items() for unit in units])
def test_deep_and_long_documents_come_back(suffix: str, unit: str):
    """Neither a limit of recursion nor quadratic time stands in their way."""
    assert not grows_too_fast(lambda count: seconds(suffix, unit * count), 300 if suffix == ".md" else 1_250)
