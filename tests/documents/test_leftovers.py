"""Small things that catalogues, books and word processors' files keep, lose, or say of themselves."""

import io
import json
import re
import zipfile

import pytest
from test_apps import filled
from test_archives import ARCHIVES, docx

from dragoman.documents import read_document
from dragoman.documents.document import Skipped


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"en": {"a": "Hello"}, "de": {"a": "Hallo"}}', "texts in 2 languages"),
        ('{"a": {"en": "Hello", "de": "Hallo"}, "b": {"en": "Bye", "de": "Ade"}}', "texts in 2 languages"),
        ('{"name": "x", "version": "1", "scripts": {"test": "run it"}}', "configuration (npm)"),
        ('{"compilerOptions": {"target": "es6"}}', "configuration (TypeScript)"),
        ('{"openapi": "3.0", "info": {"title": "Shop"}}', "configuration (OpenAPI)"),
        ('{"languages": {"en": "English", "de": "German"}}', ""),
        ('{"en": {"a": "Hello"}}', ""),
        ('{"id": {"text": "Name"}, "no": "No results"}', ""),
        ('[{"name": "x", "version": "1"}]', ""),
    ],
)
def test_json_that_is_no_catalogue_in_one_language_is_refused(text: str, says: str):
    document = read_document(text.encode(), ".json")
    assert (document.readable, bool(document.texts)) == (not says, not says)
    assert says in "".join(reason for _, reason in document.skipped)


def test_keys_of_configuration_can_be_chosen():
    data = b'{"name": "x", "version": "1", "scripts": {"a": "b"}, "description": "A tool"}'
    assert read_document(data, ".json", ("description",)).texts == ["A tool"]


def test_sides_of_vue_are_texts_of_their_own():
    text = {"a": "no apples | one apple | {n} apples", "b": "car | cars", "c": "a | b | c | d | e | f | g", "d": "x"}
    document = read_document(json.dumps(text).encode(), ".json")
    assert document.texts == ["no apples", "one apple", "{n} apples", "car", "cars", text["c"], "x"]
    new = json.loads(document.fill([each.swapcase() for each in document.texts]))
    assert new["a"] == "NO APPLES | ONE APPLE | {N} APPLES"
    without = json.dumps({"b": "Home | Shop", "d": "{n} files"}).encode()
    assert read_document(without, ".json").texts == ["Home | Shop", "{n} files"]


@pytest.mark.parametrize(("target", "said"), [("ru", True), ("de", False), ("fr", False), ("ko", True)])
def test_old_plurals_of_i18next_are_reported_where_forms_differ(target: str, said: bool):
    data = b'{"a": "x",\n"item": "an item", "item_plural": "{{count}} items", "lone_plural": "y"}'
    document = read_document(data, ".json", source="en", target=target)
    assert [line for line, _ in document.skipped] == [2] * said
    assert len(document.texts) == 4


XML = """<resources>
  <plurals name="a">
    <!-- for one -->
    <item quantity="one">%d file</item>
    <!-- for many -->
    <item quantity="other">%d files</item>
  </plurals>
</resources>
"""
YAML = 'en:\n  a:\n    one: "%{count} file"  # for one\n    # for many\n    other: "%{count} files"\n'


@pytest.mark.parametrize(("suffix", "text"), [(".xml", XML), (".yml", YAML)])
@pytest.mark.parametrize("target", ["ru", "de", "ar", "ko"])
def test_comments_between_plural_forms_are_not_repeated(suffix: str, text: str, target: str):
    new = filled(text, suffix, str.swapcase, target)
    count = int(target != "ko" or suffix == ".xml")
    assert [new.count(comment) for comment in ("for one", "for many")] == [count, count]
    document = read_document(new.encode(), suffix)
    assert document.readable
    assert document.skipped == []


def test_package_of_a_book_says_its_new_language_everywhere():
    with zipfile.ZipFile(io.BytesIO(ARCHIVES[".epub"])) as book:
        name = next(name for name in book.namelist() if name.endswith(".opf"))
        package = book.read(name).decode()
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(ARCHIVES[".epub"])) as book, zipfile.ZipFile(changed, "w") as out:
        for item in book.infolist():
            data = book.read(item)
            if item.filename == name:
                data = (
                    package.replace("<package", '<package xml:lang="en-GB"')
                    .replace("<dc:title", '<dc:title xml:lang="fr"')
                    .encode()
                )
            out.writestr(item, data)
    document = read_document(changed.getvalue(), ".epub")
    with zipfile.ZipFile(io.BytesIO(document.fill([text.swapcase() for text in document.texts], "en", "de"))) as book:
        new = book.read(name).decode()
    assert '<package xml:lang="de"' in new
    assert '<dc:title xml:lang="fr"' in new


@pytest.mark.parametrize("word", ["new ", ""])
def test_insertion_of_which_no_word_is_left_is_dropped(word: str):
    runs = [f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>' for text in ("A ", "very ", "old dog.")]
    document = read_document(docx(f'<w:p>{runs[0]}<w:ins w:id="1">{runs[1]}</w:ins>{runs[2]}</w:p>'), ".docx")
    (text,) = document.texts
    new = document.fill([re.sub("very ?", word, text.replace("dog", "cat"))])
    with zipfile.ZipFile(io.BytesIO(new)) as archive:
        body = archive.read("word/document.xml").decode()
    assert "cat" in body
    assert ("<w:ins" in body, "</w:ins>" in body) == (bool(word), bool(word))


@pytest.mark.parametrize(
    ("flags", "source", "translation", "is_kept"),
    [
        ("c-format", "%d of %s", "%d von %s", True),
        ("c-format", "%d of %s", "%s von %d", False),  # the program would read a number as an address
        ("python-format", "%(n)d of %(all)s", "%(all)s von %(n)d", True),
        ("python-brace-format", "{n} of {all}", "{all} von {n}", True),
        ("c-format", "%d%% of %s", "%%%d von %s", True),
        ("c-format", "%<PRIu64> files", "Dateien", False),
        ("c-format", "%d of %s", "%d von", False),
        ("c-format", "%1$s of %2$-5ld", "%2$-5ld von %1$s", True),
        ("c-format", "50%% of %s", "50% von %s", False),  # "% v" is no directive of C, but msgfmt refuses it
        ("python-format", "%(name)s", "%(Name)s", False),
        ("python-brace-format, no-wrap", "{n} files", "{n} Dateien", True),
        ("python-brace-format", "{n} files", "Dateien", False),
        ("kde-format", "%1 of %2", "%2 von %1", True),
        ("kde-format", "%1 of %12", "%1 von %2", False),
        ("qt-format", "%L1 of %n", "%n von %L1", True),
        ("qt-format", "%L1 files", "%1 Dateien", False),
        ("java-format", "{0} of {1,number}", "{1,number} von {0}", True),
        ("java-format", "the file {0}", "l'objet {0}", False),  # which would show {0}
        ("java-format", "'{'a'}' and {0}", "{0} und '{'a'}'", True),
        ("java-format", "the file {0}", "l''objet {0}", True),
        ("java-printf-format", "%1$tY of %2$s", "%2$s von %1$tY", True),
        ("java-printf-format", "%b of %,d", "%,d von %b", False),
        ("boost-format", "%1% of %|2$5d|", "%|2$5d| von %1%", True),
        ("boost-format", "%1% of %s", "von %s", False),
        ("ruby-format", "%<n>d of %{all}", "%{all} von %<n>d", True),
        ("ruby-format", "%<n>d of %<all>d", "%<all>d von %<n>d", True),
        ("ruby-format", "%{n} files", "%{m} Dateien", False),
        ("lua-format", "%q of %d", "%d von %q", False),
        ("perl-brace-format", "{n} files", "Dateien", False),
        ("javascript-format", "%j of %d", "%d von %j", False),
        ("no-c-format", "100% sure", "sicher", True),
        ("", "%d of %s", "%d von", True),
    ],
)
def test_flags_of_a_message_decide_what_its_translation_must_have(
    flags: str, source: str, translation: str, is_kept: bool
):
    catalogue = f'#, {flags}\nmsgid "{source}"\nmsgstr ""\n'
    document = read_document(catalogue.encode(), ".po")
    refused: list[Skipped] = []
    document.changes([translation], refused=refused)
    assert [reason for _, reason in refused] == ([] if is_kept else [refused[0].reason])
    assert is_kept or "other directives" in refused[0].reason
    assert (f'"{translation}"' in document.fill([translation]).decode()) == is_kept
    assert f'"{translation}"' in document.fill([translation], unsure={0}).decode()  # fuzzy: somebody reviews it
