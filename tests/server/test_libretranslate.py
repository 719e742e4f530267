"""What the clients of LibreTranslate send and get, with real clients."""

import json
import os
import resource
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import libretranslatepy
import pytest
from deep_translator import LibreTranslator
from serving import CONFIG, Running, multipart, running
from translate import Translator as TranslateClient

from dragoman.server.detection import Detector
from dragoman.server.models import Models

TEXT = "The dog sees 4 red cats."


@pytest.fixture(scope="module")
def alone(models: Models) -> str:
    """How the model translates TEXT without a server."""
    return next(iter(models.by_pair.values())).translator.translate(TEXT).text


def test_body_forms_get_the_same_answer(server: Running, alone: str):
    fields = {"q": TEXT, "source": "en", "target": "ko"}
    form, kind = multipart(fields.items())
    answers = [
        server.ask("POST", "/translate", fields),
        server.ask("POST", "/translate", urlencode(fields), Content_Type="application/x-www-form-urlencoded"),
        server.ask("POST", "/translate", form, Content_Type=kind),
        server.ask("POST", f"/translate?{urlencode(fields)}"),
        server.ask("POST", "/translate", {**fields, "api_key": "", "apiKey": "x", "secret": "y", "target": "KO"}),
    ]
    assert [answer.json for answer in answers] == 5 * [{"translatedText": alone}]


def test_clients_of_others_are_answered(server: Running, alone: str):
    client = libretranslatepy.LibreTranslateAPI(server.url + "/", "no key")
    assert client.translate(TEXT, "en", "ko") == alone
    assert {language["code"] for language in client.languages()} == {"en", "ko"}
    assert client.detect("개가 빨간 고양이 4마리를 봐요.")[0]["language"] == "ko"
    with pytest.raises(Exception, match="400"):
        client.translate(TEXT, "en", "zz")
    assert (
        TranslateClient(
            provider="libre", from_lang="en", to_lang="ko", secret_access_key="", base_url=server.url + "/"
        ).translate(TEXT)
        == alone
    )
    deep = LibreTranslator(source="en", target="ko", api_key="no key", custom_url=server.url + "/")
    assert deep.translate(TEXT) == alone


def test_list_is_answered_by_a_list_of_the_same_length(server: Running, alone: str):
    texts = [TEXT, "", " ", "7", TEXT + "\n\n" + TEXT, TEXT]
    answer = server.translate(texts).json["translatedText"]
    assert answer == [alone, "", " ", "7", alone + "\n\n" + alone, alone]
    form = urlencode([("q", TEXT), ("q", "8"), ("source", "en"), ("target", "ko")])
    answer = server.ask("POST", "/translate", form, Content_Type="application/x-www-form-urlencoded")
    assert answer.json == {"translatedText": [alone, "8"]}
    assert server.ask("POST", "/translate", {"q": ["a|b"], "source": "en", "target": "ko"}).json != answer.json


def test_lines_and_blank_lines_stay(server: Running, alone: str):
    text = f"\n  {TEXT}  \r\n\r\n-- 42 --\n\t{TEXT}"
    assert server.translate(text).json["translatedText"] == f"\n  {alone}  \r\n\r\n-- 42 --\n\t{alone}"


def test_markup_stays_and_text_in_it_is_escaped(server: Running, alone: str):
    text = f"<p title='7'>{TEXT}</p><!-- a --><script>var dog = 1 < 2</script><code>dog</code> &lt;b&gt;"
    answer = server.translate(text, format="html").json["translatedText"]
    assert answer.startswith(f"<p title='7'>{alone}</p><!-- a --><script>var dog = 1 < 2</script><code>dog</code>")
    assert "<b>" not in answer
    assert server.translate("<b>" + TEXT + "</b>", format="text").json["translatedText"].count("<b>") == 1
    assert server.translate("<meta charset=utf-16>" + TEXT, format="html").json["translatedText"].endswith(alone)


def test_alternatives_are_others_than_the_translation_and_each_other(server: Running, alone: str):
    answer = server.translate(TEXT, alternatives=3).json
    assert answer["translatedText"] == alone
    assert 1 <= len(answer["alternatives"]) <= 3
    assert len({alone, *answer["alternatives"]}) == len(answer["alternatives"]) + 1
    several = server.translate([TEXT, "7"], alternatives=3).json["alternatives"]
    assert several == [answer["alternatives"], []]
    most = CONFIG.max_beam - 1
    assert server.translate(TEXT, alternatives=most).status == 200
    assert server.translate(TEXT, alternatives=most + 1).json["error"].endswith(f"<= {most}")


def test_language_of_each_text_is_detected(server: Running, alone: str):
    korean = "개가 빨간 고양이 4마리를 봐요."
    one = server.translate(TEXT, source="auto").json
    assert one["translatedText"] == alone
    assert one["detectedLanguage"]["language"] == "en"
    assert 50 < one["detectedLanguage"]["confidence"] <= 100
    both = server.translate([korean, TEXT, "42"], source="auto").json
    assert both["translatedText"] == [korean, alone, "42"]
    assert [found["language"] for found in both["detectedLanguage"]] == ["ko", "en", "en"]
    assert both["detectedLanguage"][2]["confidence"] == 0
    assert server.ask("POST", "/detect", {"q": "🙂"}).json == [{"confidence": 0.0, "language": "en"}]


def test_language_is_that_of_the_words_and_not_of_the_markup(server: Running, alone: str):
    english = f"<p lang='ko' title='개'>{TEXT}</p>"
    korean = '<p class="btn btn-primary">개가 <a href="/the/red/cats" target="_blank" onclick="save()">봐요</a></p>'
    assert server.translate(korean, source="auto").json["detectedLanguage"]["language"] == "en"  # as text
    for text, language in ((english, "en"), (korean, "ko")):
        found = server.translate(text, source="auto", format="html").json
        assert found["detectedLanguage"]["language"] == language
        body = {"texts": [text], "target": "ko", "format": "html"}
        (one,) = server.ask("POST", "/api/v1/translate", body).json["translations"]
        assert (one["source"], one["text"]) == (language, found["translatedText"])
        body = {"text": [text], "target_lang": "KO"}
        for form in ("html", "xml"):
            (one,) = server.ask("POST", "/v2/translate", {**body, "tag_handling": form}).json["translations"]
            assert one["detected_source_language"] == language.upper()
    assert server.translate("<b>7</b>", source="auto", format="html").json["detectedLanguage"]["confidence"] == 0


def test_varieties_are_detected_as_what_is_served():
    detector = Detector(["pt-BR", "zh-Hant", "zh-Hans", "en", "xx"])
    assert detector.rank("A senhora não está em casa hoje.")[0].language == "pt-BR"
    assert detector.rank("今天天氣很好，我們去公園走走。")[0].language.startswith("zh")
    assert detector.rank("A senhora não está em casa hoje.", {"en"})[0].language == "en"
    assert detector.rank("A senhora não está em casa hoje.", {"xx"}) == [("xx", 0.0)]


def test_server_without_detection_asks_for_the_language(models: Models):
    with running(models, CONFIG) as server:
        server.service.detector = None
        assert server.translate(TEXT, source="auto").json["error"] == (
            "this server detects no languages: name the source language"
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: q: expected array of length >= 1"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"target": ""}, "Invalid request: missing target parameter"),
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "ko", "target": "en"}, "English (en) is not available as a target language from Korean (ko)"),
        ({"alternatives": "x"}, "Invalid request: alternatives: expected int, got str"),
        ({"q": ["a"] * (CONFIG.texts + 1)}, f"exceeds text limit ({CONFIG.texts})"),
    ],
)
def test_errors_say_what_is_wrong(server: Running, changes: dict[str, Any], message: str):
    answer = server.translate(**{"q": "x", **changes})
    assert answer.status == 400
    assert message in answer.json["error"]


def test_texts_of_the_same_language_stay(server: Running):
    assert server.translate(TEXT, target="en").json == {"translatedText": TEXT}
    assert server.translate("개", source="ko").json == {"translatedText": "개"}


def test_server_describes_itself(server: Running):
    assert server.ask("GET", "/languages", b"api_key=x", Content_Type="application/x-www-form-urlencoded").json == [
        {"code": "en", "name": "English", "targets": ["en", "ko"]},
        {"code": "ko", "name": "Korean", "targets": ["ko"]},
    ]
    settings = server.ask("GET", "/frontend/settings").json
    assert settings["language"]["target"] == {"code": "ko", "name": "Korean"}
    assert settings["supportedFilesFormat"] == []
    assert server.ask("GET", "/health").json == {"status": "ok"}


def test_corrections_become_a_corpus(models: Models, server: Running, tmp_path: Path):
    assert server.ask("POST", "/suggest", {"q": "a", "s": "b", "source": "en", "target": "ko"}).status == 403
    with running(models, replace(CONFIG, suggestions=str(tmp_path / "new"))) as other:
        for q, s, source in (
            (TEXT, "개\t가", "auto"),
            ("one dog\r\ntwo cats", "개\n고양이", "en"),
            ("one\ntwo", "하나", "en"),
        ):
            answer = other.ask("POST", "/suggest", {"q": q, "s": s, "source": source, "target": "ko"})
            assert answer.json == {"success": True}
        assert other.ask("POST", "/suggest", {"q": "a", "s": "b", "source": "en", "target": "en"}).status == 400
        for texts, missing in (({"q": "a"}, "s"), ({"q": "a", "s": " \n "}, "s"), ({"q": "\t", "s": "b"}, "q")):
            answer = other.ask("POST", "/suggest", {**texts, "source": "en", "target": "ko"})
            assert (answer.status, answer.json["error"]) == (400, f"Invalid request: missing {missing} parameter")
    lines = (tmp_path / "new" / "en-ko.tsv").read_text(encoding="utf-8").splitlines()
    pairs = [tuple(line.split("\t")) for line in lines]
    assert pairs == [(TEXT, "개 가"), ("one dog", "개"), ("two cats", "고양이"), ("one two", "하나")]


def test_correction_with_its_original_keeps_what_was_changed(models: Models, tmp_path: Path):
    """The control sends no original: then all lines are kept."""
    texts, original, corrected = "one dog\n\ntwo cats\nsix", "개\n\n고양이\n육", "개\n\n고양이 둘\n육"
    with running(models, replace(CONFIG, suggestions=str(tmp_path))) as server:

        def suggest(q: str, s: str, **fields: str) -> tuple[bool, list[str]]:
            (tmp_path / "en-ko.tsv").unlink(missing_ok=True)
            answer = server.ask("POST", "/suggest", {"q": q, "s": s, "source": "en", "target": "ko", **fields})
            kept = (tmp_path / "en-ko.tsv").read_text(encoding="utf-8") if (tmp_path / "en-ko.tsv").exists() else ""
            return answer.json["success"], kept.splitlines()

        changed = ["two cats\t고양이 둘"]
        assert suggest(texts, corrected, original=original) == (True, changed)
        assert suggest(texts, corrected) == (True, ["one dog\t개", *changed, "six\t육"])
        assert suggest(texts, corrected, original="개") == (True, ["one dog\t개", *changed, "six\t육"])
        assert suggest(texts, f" {original} ", original=original) == (False, [])
        assert suggest("one\ntwo", "하나", original=" 하나\n") == (False, [])
        assert suggest("one\ntwo", "하나", original="둘") == (True, ["one two\t하나"])
        assert suggest("one\n ", " \n하나") == (False, [])


def test_list_in_a_form_may_be_written_as_json(server: Running, alone: str):
    """As older clients send it. In JSON, which has its own lists, it is a text, as is what only looks like a list."""
    form = {"Content_Type": "application/x-www-form-urlencoded"}

    def translate(q: str, **fields: str) -> Any:
        body = urlencode({"q": q, "source": "en", "target": "ko", **fields})
        return server.ask("POST", "/translate", body, **form).json["translatedText"]

    several = json.dumps([TEXT, "7"])
    assert translate(several) == [alone, "7"] == server.translate([TEXT, "7"]).json["translatedText"]
    assert translate(json.dumps([TEXT])) == [alone]
    query = urlencode({"q": several, "source": "en", "target": "ko"})
    assert server.ask("POST", f"/translate?{query}").json["translatedText"] == [alone, "7"]
    as_text = server.translate(several).json["translatedText"]
    assert isinstance(as_text, str)
    for text in ("[7]", "[]", '["7"', '["7", 7]', '[["7"]]', ' ["7"]'):
        assert translate(text) == server.translate(text).json["translatedText"]
    detected = server.ask("POST", "/detect", urlencode({"q": json.dumps(["개", "고양이가"])}), **form).json
    assert detected == server.ask("POST", "/detect", {"q": ["개", "고양이가"]}).json
    most = server.service.config.texts
    body = urlencode({"q": json.dumps(["a"] * (most + 1)), "source": "en", "target": "ko"})
    assert server.ask("POST", "/translate", body, **form).status == 400


def test_limit_of_characters_says_that_it_counts_all_texts(server: Running):
    most = server.ask("GET", "/frontend/settings").json["charLimit"]
    refused = server.translate(["a" * (most - 5), "b" * 6])
    assert refused.status == 413
    assert refused.json["error"] == (
        f"all texts of a request together may have {most:,} characters, and these have {most + 1:,}"
    )


# --- Extensions, and the description of it all


def test_extensions_get_what_they_expect(server: Running, alone: str):
    marked = "The dog {0} sees <b0>4</b0> cats."
    body = {"source_lang": "auto", "target_lang": "ko", "text_list": [TEXT, "", marked]}
    first, blank, third = server.ask("POST", "/extensions/immersive", body).json["translations"]
    assert (first, blank["text"]) == ({"detected_source_lang": "en", "text": alone}, "")
    assert all(third["text"].count(mark) == 1 for mark in ("{0}", "<b0>", "</b0>"))
    one = server.ask("POST", "/extensions/kiss", {"text": TEXT, "from": "auto", "to": "ko"}).json
    assert one == {"text": alone, "src": "en"}
    several = server.ask("POST", "/extensions/kiss", {"texts": [TEXT, "7"], "from": "en", "to": "ko"}).json
    assert several == {"translations": [{"text": alone, "src": "en"}, {"text": "7", "src": "en"}]}
    assert server.ask("POST", "/extensions/kiss", {"from": "en", "to": "ko"}).status == 400
    answer = server.ask("POST", "/deeplx", {"text": TEXT, "source_lang": "EN", "target_lang": "KO"}).json
    assert (answer["code"], answer["data"], answer["source_lang"], answer["target_lang"]) == (200, alone, "EN", "KO")
    assert answer["alternatives"]
    wrong = server.ask("POST", "/deeplx", {"text": TEXT, "target_lang": "ZZ"})
    assert (wrong.status, wrong.json) == (400, {"code": 400, "message": "ZZ is not supported"})


def test_suggestion_that_cannot_be_written_leaves_no_half_line(models: Models, tmp_path: Path):
    """The disk is full after some of the line: here, a file may not grow further."""
    file, most = tmp_path / "en-ko.tsv", 4 << 20
    written = b"a\tb\n" * (most // 4 - 1000)
    file.write_bytes(written)
    truncated = []

    def note(path: Any, size: int) -> None:
        truncated.append(file.stat().st_size - size)
        truncate(path, size)

    truncate, before = os.truncate, resource.getrlimit(resource.RLIMIT_FSIZE)
    fields = {"q": "dog " * 2000, "s": "x", "source": "en", "target": "ko"}
    with running(models, replace(CONFIG, suggestions=str(tmp_path))) as server, pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "truncate", note)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            answer = server.ask("POST", "/suggest", fields)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (answer.status, "No space left" in answer.json["error"]) == (503, True)
        assert file.read_bytes() == written
        assert truncated == [4000]  # the control: a part of it was there
        assert server.ask("POST", "/suggest", fields).json == {"success": True}
    assert file.read_bytes() == written + f"{('dog ' * 2000).strip()}\tx\n".encode()
