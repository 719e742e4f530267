"""Strings of apps: what each format means is read, and what is written means the same to another reader of it."""

import json
import plistlib
import re
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree

import pytest

from dragoman.documents import Document, read_document
from dragoman.documents.messages import NUMBER
from dragoman.errors import UsageError
from dragoman.text import verbatim


def read(text: str, suffix: str, target: str = "", encoding: str = "utf-8", **options: Any) -> Document:
    return read_document(text.encode(encoding), suffix, source="en", target=target, **options)


def filled(text: str, suffix: str, answers: Mapping[str, str] | Callable[[str], str], target: str = "") -> str:
    """Return a document with these answers to its texts, whatever is not among them as it was."""
    document = read(text, suffix, target)
    assert document.fill(document.texts) == text.encode()
    answer = answers if callable(answers) else lambda text: answers.get(text, text)
    return document.fill([answer(text) for text in document.texts]).decode()


def android(content: str) -> str:
    return f'<resources xmlns:xliff="urn:x"><string name="a">{content}</string></resources>'


def as_aapt(content: str) -> str:
    """Read the content of a string as Android's tool does, by its rules alone."""
    text = "".join(ElementTree.fromstring(f"<a>{content}</a>").itertext())
    read, quoted, at = "", False, 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "\\":
            code = text[at : at + 5] if text[at] == "u" else text[at]
            at += len(code)
            read += chr(int(code[1:], 16)) if len(code) == 5 else {"n": "\n", "t": "\t"}.get(code, code)
        elif character == '"':
            quoted = not quoted
        elif character.isspace() and not quoted:
            read += "" if not read.strip(" ") or read.endswith("\1") else "\1"
        else:
            assert character != "'" or quoted, "an apostrophe without a backslash"
            read += character
    return read.strip("\1").replace("\1", " ")


@pytest.mark.parametrize(
    "text",
    [
        "It's",
        '"Q"',
        "@home now",
        "?what now",
        "a & b < c",
        "back\\slash",
        "a  b",
        "tab\there",
        "50% of 'a' @b ?c",
        "ä 😀",
    ],
)
@pytest.mark.parametrize("content", ["Hello", '"Hello"', "<![CDATA[Hello]]>", "\n   Hello\n  "])
def test_android_string_means_what_the_translation_says(content: str, text: str):
    written = filled(android(content), ".xml", {"Hello": text})
    (string,) = ElementTree.fromstring(written)
    assert read(written, ".xml").texts == text.split("\n")
    if "CDATA" not in content:
        match = re.search(r'<string name="a">(.*)</string>', written, re.DOTALL)
        assert match
        assert as_aapt(match[1]) == text
    else:
        assert re.sub(r"\\(.)", r"\1", string.text or "") == text


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (r"a\'b\"c\nd\te\@f\?g\\h\u0041", ["a'b\"c", "d\te@f?g\\hA"]), ("a\n   b", ["a b"]), ('"a\n b"', ["a", "b"]),
        ("a &lt;b&gt;c&lt;/b&gt; &#38;", ["a <b>c</b> &"]), ("a <b>c</b>", ["a <b>c</b>"]), ("@string/a", []),
        ("?attr/a", []), ("?a", []), ("@null", []), ("@home sweet", ["@home sweet"]), ("%d%%", ["%d%%"]), ("", []),
        ("a <xliff:g id='i'>%1$s</xliff:g> b", ["a <g>%1$s</g> b"]),
        ("a <xliff:g id='i'>Acme</xliff:g> b", ['a <x id="1"/> b']), (r"\ud83d\ude00 a", ["😀 a"]),
        ("&lt;b&gt; <b>c</b>", ['<b> <b id="1">c</b>']), ("<![CDATA[<b class=\"x\">a</b>]]>", ['<b class="x">a</b>']),
    ],
)  # fmt: skip
def test_android_texts_are_what_the_app_shows(content: str, texts: list[str]):
    document = read(android(content), ".xml")
    assert document.texts == texts
    assert not document.skipped


def test_end_of_a_cdata_section_is_written_as_two():
    written = filled(android("<![CDATA[Hello]]>"), ".xml", {"Hello": "a ]]> b"})
    assert ElementTree.fromstring(written)[0].text == "a ]]> b"
    assert [line for line, _ in read(written, ".xml").skipped] == [1]


@pytest.mark.parametrize("content", [r"a\qb", 'a "b', "a <![CDATA[b]]>", r"a\u12"])
def test_android_string_that_is_unclear_is_left_and_named(content: str):
    document = read(android(content), ".xml")
    assert document.texts == []
    assert [line for line, _ in document.skipped] == [1]


def test_android_string_whose_tag_is_lost_stays():
    text = android("a <b>c</b> <xliff:g id='i'>%1$s</xliff:g>")
    assert filled(text, ".xml", lambda text: "D") == text
    assert (
        filled(text, ".xml", lambda text: "<g>%1$s</g> <b>D</b>").count("<xliff:g id='i'>%1$s</xliff:g> <b>D</b>") == 1
    )


@pytest.mark.parametrize("attribute", ['translatable="false"', 'tools:ignore="X, MissingTranslation"'])
def test_android_strings_that_are_not_for_translators_stay(attribute: str):
    text = f'<resources xmlns:tools="x"><string name="a" {attribute}>A</string><string name="b">B</string></resources>'
    assert read(text, ".xml").texts == ["B"]
    whole = f'<resources xmlns:tools="x" {attribute}><string name="b">B</string></resources>'
    assert (read(whole, ".xml").texts, len(read(whole, ".xml").skipped)) == ([], 1)


def test_xml_of_another_kind_is_refused_with_what_works():
    document = read("<TS><context/></TS>", ".xml")
    assert not document.readable
    assert ".xlf" in document.skipped[0].reason
    assert "its root is 'TS'" in document.skipped[0].reason


FORMS = {"ru": ["one", "few", "many", "other"], "ko": ["other"], "ar": ["zero", "one", "two", "few", "many", "other"]}
PLURALS: dict[str, tuple[str, Callable[[str], dict[str, str]]]] = {
    ".xml": (
        '<resources><plurals name="n">\n  <item quantity="one">%d file</item>\n  <item quantity="other">%d files</item>'
        "\n</plurals></resources>",
        lambda text: {item.attrib["quantity"]: item.text or "" for item in ElementTree.fromstring(text)[0]},
    ),
    ".stringsdict": (
        "<plist><dict><key>n</key><dict><key>NSStringLocalizedFormatKey</key><string>%#@v@</string><key>v</key><dict>"
        "<key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string><key>one</key><string>%d file"
        "</string><key>other</key><string>%d files</string></dict></dict></dict></plist>",
        lambda text: {
            key: value
            for key, value in plistlib.loads(text.encode())["n"]["v"].items()
            if key != "NSStringFormatSpecTypeKey"
        },
    ),
    ".xcstrings": (
        json.dumps(
            {
                "sourceLanguage": "en",
                "strings": {
                    "n": {
                        "localizations": {
                            "en": {
                                "variations": {
                                    "plural": {
                                        form: {"stringUnit": {"state": "new", "value": text}}
                                        for form, text in (("one", "%d file"), ("other", "%d files"))
                                    }
                                }
                            }
                        }
                    }
                },
            }
        ),
        lambda text: {
            form: unit["stringUnit"]["value"]
            for localization in [
                language for code, language in json.loads(text)["strings"]["n"]["localizations"].items() if code != "en"
            ]
            for form, unit in localization["variations"]["plural"].items()
        },
    ),
}


@pytest.mark.parametrize("target", FORMS)
@pytest.mark.parametrize("suffix", PLURALS)
def test_app_plurals_are_those_of_the_target(suffix: str, target: str):
    text, forms = PLURALS[suffix]
    written = filled(text, suffix, lambda text: text.replace("file", "FILE"), target)
    assert list(forms(written)) == FORMS[target]
    assert {value.lower() for value in forms(written).values()} <= {"%d file", "%d files"}


@pytest.mark.parametrize(("suffix", "text"), [
    (".xml", '<resources><plurals name="n"><item quantity="other">%d files</item></plurals></resources>'),
    (".stringsdict", PLURALS[".stringsdict"][0].replace("<key>one</key><string>%d file</string>", "")),
    (".xcstrings", re.sub(r'"one": .*?\}\}, ', "", PLURALS[".xcstrings"][0])),
])  # fmt: skip
def test_app_plural_of_one_form_gets_those_of_the_target(suffix: str, text: str):
    written = filled(text, suffix, lambda text: text.replace("file", "FILE"), "ru")
    assert list(PLURALS[suffix][1](written)) == FORMS["ru"]
    assert read(written, suffix, "ru").readable


def test_stringsdict_words_beside_a_variable_are_a_text():
    text = PLURALS[".stringsdict"][0]
    assert "%#@v@" not in read(text, ".stringsdict").texts
    assert "In %#@v@" in read(text.replace("%#@v@", "In %#@v@"), ".stringsdict").texts


# Java.


def as_java(text: str) -> dict[str, str]:
    """Read .properties by the rules of java.util.Properties alone."""
    pairs, lines = {}, re.split(r"\r\n|\r|\n", text)
    while lines:
        line = lines.pop(0).lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while re.search(r"(?<!\\)(?:\\\\)*\\$", line) and lines:
            line = line[:-1] + lines.pop(0).lstrip(" \t\f")
        match = re.fullmatch(r"((?:\\.|[^\\:= \t\f])*)[ \t\f]*[:=]?[ \t\f]*(.*)", line, re.DOTALL)
        assert match
        pairs[as_java_text(match[1])] = as_java_text(match[2])
    return pairs


def as_java_text(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(match[2], match[2])

    text = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", character, text)
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize(
    "text", ["It's", "a = b: c# d!", "back\\slash", "no \\u0041", "ä 한 😀", "tab\there", "x" * 300]
)
@pytest.mark.parametrize("line", ["k=Hello", "k : Hello", "k Hello", "k=\\\n   Hel\\\n  lo", r"k=H\u0065llo"])
def test_properties_mean_what_the_translation_says(line: str, text: str):
    written = filled(f"# c\n{line}\nz=1", ".properties", {"Hello": text})
    assert as_java(written) == {"k": text, "z": "1"}
    assert written.isascii()


@pytest.mark.parametrize(
    ("data", "written"),
    [
        (b"a=b", b"a=\\u00e9\\ud55c"), ("a=b\nc=é".encode(), "a=é한\nc=é".encode()),
        ("a=b\nc=é".encode("latin-1"), "a=é\\ud55c\nc=é".encode("latin-1")),
        (b"\xef\xbb\xbfa=b\nc=\xc3\xa9", b"\xef\xbb\xbfa=\xc3\xa9\xed\x95\x9c\nc=\xc3\xa9"),
    ],
)  # fmt: skip
def test_properties_are_written_in_the_encoding_of_the_file(data: bytes, written: bytes):
    document = read_document(data, ".properties")
    assert document.fill(["é한" if text == "b" else text for text in document.texts]) == written


@pytest.mark.parametrize(
    ("text", "texts", "written"),
    [
        ("a=It''s {0}", ["It's {0}"], "a=L''X {0}"), ("a=Is {0}", ["Is {0}"], "a=L''X {0}"),
        ("a=It's {0}", ["It's {0}"], "a=L'X {0}"), ("a=It's", ["It's"], "a=L'X {0}"),
    ],
)  # fmt: skip
def test_apostrophes_of_message_format_are_doubled_where_it_reads_them(text: str, texts: list[str], written: str):
    assert read(text, ".properties").texts == texts
    assert filled(text, ".properties", lambda text: "L'X {0}") == written


def test_properties_with_choices_and_quotes_are_left_and_named():
    document = read("a=b\nc={0,choice,0#no|1#one}\nd='{'x''s {0}", ".properties")
    assert document.texts == ["b"]
    assert [line for line, _ in document.skipped] == [2, 3]


# Apple.


def as_apple(string: str) -> str:
    """Read a quoted string as Foundation does."""
    letters = {"n": "\n", "t": "\t", "r": "\r"}

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else letters.get(match[2], match[2])

    return re.sub(r"\\(?:U([0-9a-fA-F]{4})|(.))", character, string[1:-1], flags=re.DOTALL)


@pytest.mark.parametrize("text", ["It's", 'say "it"', "back\\slash", "tab\there", "ä 한 😀", "%1$@ of %d"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("value", ['"Hello"', "Hello", r'"H\U0065llo"', r'"H\145llo"', "'Hello'"])
def test_strings_mean_what_the_translation_says(value: str, encoding: str, text: str):
    document = read(f'/* "c" */ "k"\t= {value} ;// x', ".strings", encoding=encoding)
    written = document.fill([text]).decode(encoding)
    match = re.fullmatch(r'/\* "c" \*/ "k"\t= (".*") ;// x', written, re.DOTALL)
    assert match
    assert as_apple(match[1]) == text


def test_strings_of_several_lines_keep_how_these_end():
    assert filled('"a" = "one\\ntwo";\n"b" = "three\nfour";', ".strings", str.upper) == (
        '"a" = "ONE\\nTWO";\n"b" = "THREE\nFOUR";'
    )


def test_strings_with_unclear_escapes_are_left_and_named():
    document = read('"a" = "b";\n"c" = "\\u00e9t";\n"d" = "\\351t";', ".strings")
    assert (document.texts, [line for line, _ in document.skipped]) == (["b"], [2, 3])


def test_plist_as_strings_is_read():
    assert read(
        '<?xml version="1.0"?>\n<plist><dict><key>a</key><string>b</string></dict></plist>', ".strings"
    ).texts == ["b"]


# .NET.


def resx(content: str) -> str:
    return f"<root>{content}</root>"


@pytest.mark.parametrize("text", ["a & b < c", "]]>", 'say "it\'s"', "ä 한 😀", "{0:d} of {1}"])
def test_resx_means_what_the_translation_says(text: str):
    written = filled(resx('<data name="a"><value>Hello</value></data>'), ".resx", {"Hello": text})
    assert ElementTree.fromstring(written)[0][0].text == text


def test_resx_texts_of_a_designer_are_what_is_shown():
    names = ["label.Text", "label.Name", "$this.Text", "$this.ImageKey", "box.Items1", "Error.NotFound", "plain"]
    data = "".join(f'<data name="{name}"><value>{name}</value></data>' for name in names)
    assert read(resx(data), ".resx").texts == names  # the control
    designed = data + '<data name="&gt;&gt;label.Name"><value>label</value></data>'
    assert read(resx(designed), ".resx").texts == ["label.Text", "$this.Text", "box.Items1", "plain"]


# String Catalogs.


def catalog(strings: Any, indent: int | None = 2) -> str:
    value = {"sourceLanguage": "en", "strings": strings, "version": "1.0"}
    return json.dumps(value, indent=indent, separators=(",", " : "), ensure_ascii=False)


def unit(state: str, value: str) -> dict[str, Any]:
    return {"stringUnit": {"state": state, "value": value}}


@pytest.mark.parametrize("indent", [2, 4, None])
@pytest.mark.parametrize(
    "string",
    [
        {}, {"comment": "c"}, {"localizations": {}}, {"localizations": {"de": unit("translated", "X")}},
        {"localizations": {"en": unit("translated", "Hello"), "zu": unit("translated", "X")}},
        {"localizations": {"ru": unit("new", "")}}, {"shouldTranslate": True},
        {"localizations": {"en": {"variations": {"device": {"mac": unit("new", "Hello"), "other": unit("new", "A")}}}}},
    ],
)  # fmt: skip
def test_catalog_gets_what_a_language_lacks(string: Any, indent: int | None):
    text = catalog({"Hello": string, "z": {"shouldTranslate": False}}, indent)
    written = json.loads(filled(text, ".xcstrings", str.upper, "ru"))
    given = written["strings"]["Hello"]["localizations"].pop("ru")
    device = {"variations": {"device": {"mac": unit("translated", "HELLO"), "other": unit("translated", "A")}}}
    assert given == (device if "device" in str(string) else unit("translated", "HELLO"))
    before = json.loads(text)
    before["strings"]["Hello"].setdefault("localizations", {}).pop("ru", None)
    assert written == before


def test_catalog_is_written_as_xcode_writes_it():
    text = catalog({"Hello": {"comment": "c", "localizations": {"zu": unit("translated", "X")}}})
    new = catalog(
        {"Hello": {"comment": "c", "localizations": {"ru": unit("translated", "HELLO"), "zu": unit("translated", "X")}}}
    )
    assert filled(text, ".xcstrings", str.upper, "ru") == new


def test_catalog_counts_what_is_left():
    ru = {"review": "needs_review", "done": "translated"}
    strings: dict[str, Any] = {key: {"localizations": {"ru": unit(state, "X")}} for key, state in ru.items()}
    strings |= {"old": {"extractionState": "stale"}, "no": {"shouldTranslate": False}, "new": {}}
    strings["half"] = {
        "localizations": {
            "ru": {"variations": {"device": {"mac": unit("new", ""), "other": unit("translated", "X")}}},
        }
    }
    document = read(catalog(strings), ".xcstrings", "ru")
    assert document.texts == ["new"]
    assert document.left == {"translated before": 1, "partly translated": 1, "to be reviewed": 1, "stale": 1}


def test_unsure_translations_of_a_catalog_are_to_be_reviewed():
    document = read(catalog({"Hello": {}}), ".xcstrings", "ru")
    written = json.loads(document.fill(["X"], unsure=[0]))
    assert written["strings"]["Hello"]["localizations"]["ru"] == unit("needs_review", "X")


def test_catalog_is_filled_in_its_only_other_language_or_says_why_not():
    strings: dict[str, Any] = {"a": {}, "b": {"localizations": {"pt-BR": unit("translated", "X")}}}
    assert read(catalog(strings), ".xcstrings").texts == ["a"]
    assert '"pt-BR"' in read(catalog(strings), ".xcstrings", "pt_br").fill(["X"]).decode()
    strings["c"] = {"localizations": {"ru": unit("translated", "X")}}
    document = read(catalog(strings), ".xcstrings")
    assert (document.texts, document.readable) == ([], True)
    assert "pt-BR, ru" in document.skipped[0].reason
    assert read(catalog(strings), ".xcstrings", "en").texts == []


# All of them.


@pytest.mark.parametrize(
    ("suffix", "text", "line"),
    [
        (".xml", "<resources>\n<string>a</resources>", 2), (".xml", "", 0), (".properties", "a=b\nc=\\u12", 2),
        (".strings", '"a" = "b";\n"c" = "d"\n"e" = "f";', 3), (".strings", '\n"a" = "b', 2), (".strings", "/* a", 1),
        (".strings", '"a" = ;', 1), (".stringsdict", "<plist>\n<dict>", 2), (".stringsdict", "<dict/>", 0),
        (".resx", "<root>\n\n<data></root>", 3), (".xcstrings", '{\n"a" 1}', 2), (".xcstrings", "{}", 1),
        (".xcstrings", '{"sourceLanguage": "en", "strings": {}', 1), (".xcstrings", "[]", 1),
        (".resx", '<!DOCTYPE root [<!ENTITY e "a">]><root>&e;</root>', 0),
    ],
)  # fmt: skip
def test_strings_of_apps_that_are_damaged_are_named_with_the_line(suffix: str, text: str, line: int):
    document = read(text, suffix, "ru")
    assert (document.readable, document.texts) == (False, [])
    assert [each.line for each in document.skipped] == [line]
    assert document.fill([]) == text.encode()


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".xml", '<resources><string name="a">A</string><string name="b">B</string></resources>'),
        (".properties", "a=A\nb=B"), (".strings", '"a"="A";"b"="B";'),
        (".stringsdict", "<plist><dict><key>a</key><string>A</string><key>b</key><string>B</string></dict></plist>"),
        (".resx", '<root><data name="a"><value>A</value></data><data name="b"><value>B</value></data></root>'),
        (".xcstrings", catalog({"a": {}, "b": {}})),
    ],
)  # fmt: skip
def test_keys_choose_strings_of_apps(suffix: str, text: str):
    assert [each.lower() for each in read(text, suffix, "ru", keys=("b",)).texts] == ["b"]
    assert len(read(text, suffix, "ru").texts) == 2
    with pytest.raises(UsageError, match="no text under the key 'x'"):
        read(text, suffix, "ru", keys=("x",))


def test_android_plural_has_the_tags_of_its_source_form():
    """Russian says 21 songs with the form 'one', which is made of 'other' where 'one' names no number."""
    items = '<item quantity="one">One song</item><item quantity="other"><b>%1$d</b> songs</item>'
    data = f'<resources><plurals name="q">{items}</plurals></resources>'.encode()
    document = read_document(data, ".xml", source="en", target="ru")
    filled = document.fill([f"[{text}]" for text in document.texts]).decode()
    assert filled.count("<b>%1$d</b>") == 4
    assert "&lt;" not in filled


def test_android_placeholder_is_alone_in_its_element():
    data = b'<resources xmlns:xliff="x"><string name="a">Take <xliff:g id="c">%1$d</xliff:g> seats</string></resources>'
    document = read_document(data, ".xml")
    assert document.texts == ["Take <g>%1$d</g> seats"]
    filled = document.fill(["Nimm <g>etwa %1$d Sitze</g>"]).decode()
    assert '>Nimm etwa <xliff:g id="c">%1$d</xliff:g> Sitze<' in filled
    document.fill(["Nimm <g>etwas</g>"])
    assert "its placeholders are not all in" in document.refused[0].reason


def test_variable_of_a_string_catalog_is_kept_and_said():
    assert [each.text for each in verbatim.find("There are %arg people")] == ["%arg"]
    assert NUMBER.fullmatch("%arg")
