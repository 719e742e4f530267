"""What the clients of DeepL send and get, with the real client."""

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import deepl
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from deepl_contract import ANSWERS, check
from jsonschema import ValidationError
from serving import CONFIG, Answer, Running, Slow, multipart, running, until

from dragoman.decoding.pool import Pool
from dragoman.decoding.rows import Gone
from dragoman.documents import read_text
from dragoman.documents.plain import paragraph_passages
from dragoman.server import files
from dragoman.server.keys import Key, digest
from dragoman.server.models import Models
from dragoman.server.shares import Shares
from dragoman.server.table import ROUTES

TEXT = "The dog sees 4 red cats."
KEYS = [Key("one", digest("first")), Key("two", digest("second"))]


@pytest.fixture(scope="module")
def server(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with keys and a folder."""
    deepl.http_client.max_network_retries = 0
    with running(models, replace(CONFIG, state=str(tmp_path_factory.mktemp("state"))), KEYS) as started:
        yield started


@pytest.fixture(scope="module")
def client(server: Running) -> deepl.DeepLClient:
    return deepl.DeepLClient("first", server_url=server.url)


@pytest.fixture(scope="module")
def alone(models: Models) -> str:
    """How the model translates TEXT without a server."""
    return next(iter(models.by_pair.values())).translator.translate(TEXT).text


def ask(server: Running, method: str, path: str, body: Any = None, key: str = "first", **headers: str) -> Answer:
    return server.ask(method, path, body, Authorization=f"DeepL-Auth-Key {key}", **headers)


def translate(server: Running, **fields: Any) -> Any:
    answer = ask(server, "POST", "/v2/translate", {"text": [TEXT], "source_lang": "EN", "target_lang": "KO", **fields})
    assert answer.status == 200, answer
    assert len(answer.headers["x-trace-id"]) in (32, 36)  # Ray gives numbers of its own
    return answer.json["translations"]


def test_client_translates_texts(client: deepl.DeepLClient, alone: str):
    one = client.translate_text(TEXT, target_lang="KO")
    assert (one.text, one.detected_source_lang, one.billed_characters) == (alone, "EN", len(TEXT))
    several = client.translate_text([TEXT, "7", ""], source_lang="en", target_lang="ko", formality="prefer_more")
    assert [found.text for found in several] == [alone, "7", ""]
    for split in ("0", "1", "nonewlines"):
        assert client.translate_text(TEXT, target_lang="KO", split_sentences=split).text == alone
    with pytest.raises(deepl.DeepLException, match="target_lang"):
        client.translate_text(TEXT, target_lang="ZZ")
    with pytest.raises(deepl.DeepLException, match="formality"):
        client.translate_text(TEXT, target_lang="KO", formality="more")


def test_client_lists_languages_and_its_use(client: deepl.DeepLClient, server: Running):
    assert [(one.code, one.name) for one in client.get_source_languages()] == [("EN", "English")]
    assert [(one.code, one.supports_formality) for one in client.get_target_languages()] == [("KO", False)]
    before = client.get_usage().character.count
    client.translate_text("Eight ch", target_lang="KO")
    assert client.get_usage().character.count == before + 8
    assert not client.get_usage().any_limit_reached
    assert ask(server, "GET", "/v3/languages?resource=translate_text").json[1]["usable_as_target"]
    assert [one.source_lang for one in client.get_glossary_languages()] == ["en"]


def test_markup_of_deepl_texts_stays(client: deepl.DeepLClient, server: Running, alone: str):
    html = client.translate_text(f"<p>{TEXT}</p>", target_lang="KO", tag_handling="html").text
    assert html == f"<p>{alone}</p>"
    xml = client.translate_text(
        f"<s>{TEXT}</s><K>dog</K>\n<code>dog</code>", target_lang="KO", tag_handling="xml", ignore_tags=["code", "K"],
        splitting_tags=["s"],
    ).text  # fmt: skip
    assert xml == f"<s>{alone}</s><K>dog</K>\n<code>dog</code>"
    for form in ("html", "xml"):
        how = {"tag_handling": form, "ignore_tags": "K", "splitting_tags": "S", "non_splitting_tags": "P"}
        (one,) = translate(server, text=[f"<S>{TEXT}</S><K>dog</K>"], **how)
        assert one["text"] == f"<S>{alone}</S><K>dog</K>"
    (one,) = translate(server, text=['The dog <x id="7"></x> sees &amp; 4 cats.'], tag_handling="xml", ignore_tags="x")
    assert one["text"].count('<x id="7"></x>') == 1
    assert one["tag_handling_version"] == "v1"


def test_paragraphs_are_texts_where_line_breaks_count_as_spaces():
    document = read_text("one\ntwo\n\n  three\n", paragraph_passages)
    assert document.texts == ["one two", "three"]
    assert document.fill_text(["EINS", "DREI"]) == "EINS\n\n  DREI\n"


def test_forms_of_the_other_client_are_read(server: Running, alone: str):
    fields = [
        ("text", TEXT),
        ("text", "7"),
        ("target_lang", "KO"),
        ("preserve_formatting", "1"),
        ("split_sentences", "1"),
    ]
    answer = ask(
        server, "POST", "/v2/translate", urlencode(fields), Content_Type="application/x-www-form-urlencoded"
    ).json["translations"]
    assert [one["text"] for one in answer] == [alone, "7"]
    php = urlencode([("text[]", TEXT), ("target_lang", "ko")])
    answer = ask(server, "POST", "/v2/translate", php, Content_Type="application/x-www-form-urlencoded")
    assert answer.json["translations"][0]["text"] == alone
    body = ask(server, "GET", "/v2/languages", b"type=target", Content_Type="application/x-www-form-urlencoded").json
    assert (
        body
        == ask(server, "GET", "/v2/languages?type=target").json
        == [{"language": "KO", "name": "Korean", "supports_formality": False}]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": []}, "Parameter 'text' not specified"),
        ({"target_lang": ""}, "Value for 'target_lang' not supported."),
        ({"source_lang": "KO", "target_lang": "EN"}, "ko cannot be translated into en"),
        ({"style_id": "x"}, "'style_id' is not supported"),
        ({"custom_instructions": ["be brief"]}, "'custom_instructions' is not supported"),
        ({"glossary_id": 32 * "0"}, "no such item"),
        ({"glossary_id": "../../etc/passwd"}, "no such item"),
        ({"glossary_id": "a", "source_lang": None}, "needs the parameter 'source_lang'"),
        ({"glossary_id": "a", "glossary_ids": ["b"]}, "exclude each other"),
        ({"tag_handling": "markdown"}, "tag_handling"),
    ],
)
def test_deepl_errors_have_messages(server: Running, changes: dict[str, Any], message: str):
    body = {"text": ["x"], "source_lang": "EN", "target_lang": "KO", **changes}
    answer = ask(server, "POST", "/v2/translate", body)
    assert answer.status in (400, 404)
    assert message in answer.json["message"]


def test_deepl_key_is_needed(server: Running):
    with pytest.raises(deepl.AuthorizationException):
        deepl.Translator("wrong", server_url=server.url).get_usage()
    assert server.ask("POST", "/v2/translate", {"text": ["x"], "target_lang": "KO"}).status == 403
    assert server.ask("GET", "/v2/nowhere").json == {"message": "there is nothing at this path"}


def test_faster_models_are_greedy_search(server: Running):
    (fast,) = translate(server, model_type="latency_optimized")
    (good,) = translate(server, model_type="quality_optimized")
    assert (fast["model_type_used"], good["model_type_used"]) == ("latency_optimized", "quality_optimized")
    assert "model_type_used" not in translate(server)[0]
    greedy = next(iter(server.service.models.by_pair.values())).translator.translate(TEXT, beam=1).text
    assert fast["text"] == greedy


def test_glossaries_of_both_generations_are_kept_and_used(client: deepl.DeepLClient, server: Running, alone: str):
    first = client.create_glossary("animals", "EN", "KO", {"dog": "개들", "cat": "야옹이"})
    assert (first.name, first.entry_count, first.ready) == ("animals", 2, True)
    assert client.get_glossary_entries(first) == {"dog": "개들", "cat": "야옹이"}
    assert [one.glossary_id for one in client.list_glossaries()] == [first.glossary_id]
    bound = client.translate_text(TEXT, source_lang="EN", target_lang="KO", glossary=first).text
    assert bound != alone
    assert "개들" in bound
    assert client.translate_text(TEXT, source_lang="EN", target_lang="KO").text == alone

    second = client.create_multilingual_glossary(
        "more",
        [
            MultilingualGlossaryDictionaryEntries("EN", "KO", {"horse": "망아지"}),
            MultilingualGlossaryDictionaryEntries("KO", "EN", {"말": "horse"}),
        ],
    )
    assert [one.entry_count for one in second.dictionaries] == [1, 1]
    assert len(client.list_multilingual_glossaries()) == 2
    assert len(client.list_glossaries()) == 1  # the other one has two dictionaries
    client.update_multilingual_glossary_dictionary(
        second, MultilingualGlossaryDictionaryEntries("EN", "KO", {"dog": "멍멍이"})
    )
    found = client.get_multilingual_glossary_entries(second, "EN", "KO").dictionaries[0].entries
    assert found == "horse\t망아지\ndog\t멍멍이"
    client.replace_multilingual_glossary_dictionary(
        second, MultilingualGlossaryDictionaryEntries("EN", "KO", {"dog": "멍멍이"})
    )
    assert client.get_multilingual_glossary_entries(second, "EN", "KO").dictionaries[0].entries == "dog\t멍멍이"
    client.update_multilingual_glossary_name(second, "fewer")
    client.delete_multilingual_glossary_dictionary(second, source_lang="KO", target_lang="EN")
    assert client.get_multilingual_glossary(second.glossary_id).name == "fewer"
    both = [second.glossary_id, first.glossary_id]  # the one in front counts most
    assert "개들" not in translate(server, glossary_ids=both)[0]["text"]
    assert "개들" in translate(server, glossary_ids=both[::-1])[0]["text"]

    stranger = deepl.DeepLClient("second", server_url=server.url)
    assert stranger.list_multilingual_glossaries() == []
    for unreachable in (stranger.get_glossary, stranger.delete_glossary):
        with pytest.raises(deepl.GlossaryNotFoundException):
            unreachable(first.glossary_id)
    client.delete_glossary(first)
    client.delete_multilingual_glossary(second)
    assert client.list_multilingual_glossaries() == []
    assert list(Path(server.service.config.state or "", "glossaries").iterdir()) == []


@pytest.mark.parametrize(
    ("entries", "form", "status"),
    [
        ("dog\t개\n\ncat\t고양이", "tsv", 201),
        ('"dog, big","개"', "csv", 201),
        ("dog", "tsv", 400),
        ("dog\t개\tx", "tsv", 400),
        ("dog\t", "tsv", 400),
        ("dog\t개\ndog\t개들", "tsv", 400),
        ("", "tsv", 400),
        ("d" * 300 + "\t개", "tsv", 400),
        ('"dog,개', "csv", 400),
    ],
)
def test_glossary_entries_are_checked(server: Running, entries: str, form: str, status: int):
    body = {"name": "x", "source_lang": "en", "target_lang": "ko", "entries": entries, "entries_format": form}
    answer = ask(server, "POST", "/v2/glossaries", body)
    assert answer.status == status
    if status == 201:
        assert ask(server, "DELETE", f"/v2/glossaries/{answer.json['glossary_id']}").status == 204


def test_server_without_a_folder_keeps_nothing_and_says_so(models: Models):
    with running(models, CONFIG) as server:
        assert server.ask("GET", "/v2/glossaries").json == {"glossaries": []}
        body = {"name": "x", "source_lang": "en", "target_lang": "ko", "entries": "a\tb"}
        answer = server.ask("POST", "/v2/glossaries", body)
        assert answer.status == 403
        assert "--state" in answer.json["message"]


def test_deepl_routes_answer_within_the_contract(server: Running):
    """Answers of all other tests are held to it, too. The control: whatever is changed in one of them is noticed."""
    assert set(ANSWERS) == {(one.method, one.path) for one in ROUTES if one.path.startswith(("/v2/", "/v3/"))}
    server.contract.seen.clear()
    pair = {"source_lang": "en", "target_lang": "ko"}
    terms = {**pair, "entries": "dog\t개", "entries_format": "tsv"}
    translate(server, model_type="latency_optimized", tag_handling="xml", show_billed_characters=True)
    body, kind = multipart([("target_lang", "KO")], {"a.txt": TEXT})
    document = ask(server, "POST", "/v2/document", body, Content_Type=kind).json
    key = {"document_key": document["document_key"]}
    one = ask(server, "POST", "/v2/glossaries", {"name": "one", **terms}).json["glossary_id"]
    many = ask(server, "POST", "/v3/glossaries", {"name": "many", "dictionaries": [terms]}).json["glossary_id"]
    for method, path, fields in (
        ("GET", "/v2/languages", None),
        ("POST", "/v2/languages", {"type": "target"}),
        ("GET", "/v2/usage", None),
        ("POST", f"/v2/document/{document['document_id']}", key),
        ("POST", f"/v2/document/{document['document_id']}/result", key),
        ("GET", "/v2/glossary-language-pairs", None),
        ("GET", "/v2/glossaries", None),
        ("GET", f"/v2/glossaries/{one}", None),
        ("GET", f"/v2/glossaries/{one}/entries", None),
        ("GET", "/v3/glossaries", None),
        ("GET", f"/v3/glossaries/{many}", None),
        ("PATCH", f"/v3/glossaries/{many}", {"name": "more"}),
        ("GET", f"/v3/glossaries/{many}/entries?{urlencode(pair)}", None),
        ("PUT", f"/v3/glossaries/{many}/dictionaries", terms),
        ("DELETE", f"/v3/glossaries/{many}/dictionaries?{urlencode(pair)}", None),
        ("DELETE", f"/v3/glossaries/{many}", None),
        ("DELETE", f"/v2/glossaries/{one}", None),
        ("GET", "/v3/languages?resource=translate_text", None),
        ("GET", "/v3/languages/resources", None),
    ):
        ask(server, method, path, fields)
    others = {row for row in ANSWERS if "/translation_memories" in row[1]}  # of test_deepl_memories.py
    until(lambda: set(server.contract.seen) == set(ANSWERS) - others)  # an answer is looked at after it was sent
    changed = 0
    for (method, path), answer in server.contract.seen.items():
        status, schema = ANSWERS[method, path]
        headers = {"x-trace-id": "x", "content-type": "application/json"}
        for wrong in variants(json.loads(answer)) if schema else ():
            with pytest.raises(ValidationError):
                check(method, path, status, headers, json.dumps(wrong).encode())
            changed += 1
        with pytest.raises(AssertionError, match="status"):
            check(method, path, 202, headers, answer)
        with pytest.raises(AssertionError, match="Trace"):
            check(method, path, status, {}, answer)
    assert changed > 100
    assert server.contract.broken == []


def variants(value: Any) -> Iterator[Any]:
    """Yield an answer with null in the place of each of its parts, and with a field too many in each object."""
    yield None
    if isinstance(value, dict):
        yield {**value, "unknown": 1}
    for key, part in list(
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        for wrong in variants(part):
            copy = value.copy()
            copy[key] = wrong
            yield copy


def test_documents_are_uploaded_asked_for_and_fetched_once(client: deepl.DeepLClient, server: Running, alone: str):
    handle = client.translate_document_upload(f"{TEXT}\n\n7\n".encode(), target_lang="KO", filename="../../a b.txt")
    status = client.translate_document_wait_until_done(handle)
    assert (status.done, status.billed_characters) == (True, len(TEXT))
    fetched = ask(server, "POST", f"/v2/document/{handle.document_id}/result", {"document_key": handle.document_key})
    assert fetched.body.decode() == f"{alone}\n\n7\n"
    assert fetched.headers["content-disposition"] == "attachment; filename*=UTF-8''a_b.txt"
    with pytest.raises(deepl.DeepLException, match="no such item"):
        client.translate_document_get_status(handle)
    assert list(Path(server.service.config.state or "", "documents").iterdir()) == []


def test_documents_of_others_are_not_shown(client: deepl.DeepLClient, server: Running, tmp_path: Path):
    page = tmp_path / "page.html"
    page.write_text(f"<p>{TEXT}</p>")
    with page.open("rb") as file:
        handle = client.translate_document_upload(file, source_lang="EN", target_lang="KO")
    path, body = f"/v2/document/{handle.document_id}/result", {"document_key": handle.document_key}
    assert ask(server, "POST", path, body, key="second").status == 404
    assert ask(server, "POST", path, {"document_key": "é"}).status == 404
    assert server.ask("GET", f"/download_file/{handle.document_id}.page.html").status == 404
    assert ask(server, "POST", path, body).body.startswith(b"<p>")
    for name, message in (
        ("a.doc", "not supported: .*save it as .docx"),
        ("a.txt", "empty file"),
    ):
        with pytest.raises(deepl.DeepLException, match=message):
            client.translate_document_upload(b" ", target_lang="KO", filename=name)


def test_document_of_a_stopped_server_is_an_error_at_once(
    client: deepl.DeepLClient, server: Running, monkeypatch: pytest.MonkeyPatch
):
    go, translated = threading.Event(), files.translate_document

    def wait(*task: Any) -> bytes:
        go.wait(20)
        return translated(*task)

    monkeypatch.setattr(files, "PROMPT", 0.0)
    monkeypatch.setattr(files, "translate_document", wait)
    handle = client.translate_document_upload(TEXT, source_lang="EN", target_lang="KO", filename="a.txt")
    path, body = f"/v2/document/{handle.document_id}", {"document_key": handle.document_key}
    until(lambda: ask(server, "POST", path, body).json["status"] == "translating")
    assert ask(server, "POST", f"{path}/result", body).status == 503
    monkeypatch.setattr(files, "PLACES", Shares(0))
    with pytest.raises(deepl.TooManyRequestsException):
        client.translate_document_upload(TEXT, source_lang="EN", target_lang="KO", filename="a.txt")
    files.OWN.clear()  # as another process sees it
    assert ask(server, "POST", path, body).json["status"] == "translating"  # for the first one has a lock
    results = Path(server.service.config.state or "", "documents")
    go.set()
    until(lambda: client.translate_document_get_status(handle).done)
    with ThreadPoolExecutor(4) as threads:  # one of them gets it
        found = list(threads.map(lambda _: ask(server, "POST", f"{path}/result", body).status, range(4)))
    assert sorted(found) == [200, 404, 404, 404]
    assert list(results.iterdir()) == []

    def stop(*_: Any) -> None:
        raise Gone("stopped")

    monkeypatch.setattr(files, "translate_document", stop)
    monkeypatch.setattr(files, "PLACES", Shares(32))
    handle = client.translate_document_upload(TEXT, source_lang="EN", target_lang="KO", filename="a.txt")
    until(lambda: not files.OWN)
    (record,) = results.glob("*.json")
    for written in ({}, {"status": "translating"}):  # the second: there was no time to write what happened
        record.write_text(json.dumps(json.loads(record.read_text()) | written))
        status = client.translate_document_get_status(handle)
        assert (status.ok, status.error_message) == (False, files.LOST)
    record.unlink()
    monkeypatch.setattr(files, "MAX_CHARACTERS", 3)
    with pytest.raises(deepl.DeepLException, match="in a document"):
        client.translate_document_upload(TEXT, target_lang="KO", filename="a.txt")


def test_language_with_varieties_is_one_source(models: Models):
    (one,) = models.by_pair.values()
    pairs = [one.pair._replace(source=code) for code in ("zh-Hant", "zh", "en")]
    served = [replace(one, source=one.source._replace(pair=pair)) for pair in pairs]
    with running(Models(served), CONFIG) as several:
        listed = ask(several, "GET", "/v2/languages?type=source").json
    assert [one["language"] for one in listed] == ["EN", "ZH"]


def test_deepl_contract_holds_beyond_what_the_client_uses(server: Running, alone: str):
    assert "billed_characters" not in translate(server)[0]
    assert translate(server, show_billed_characters=True)[0]["billed_characters"] == len(TEXT)
    assert ask(server, "POST", "/v2/languages", {"type": "target"}).json[0]["language"] == "KO"
    assert ask(server, "GET", "/v3/languages?resource=voice").status == 400
    assert {one["name"] for one in ask(server, "GET", "/v3/languages/resources").json} == {
        "translate_text", "translate_document", "glossary",
    }  # fmt: skip
    page = f"<p>{TEXT}</p><p>{TEXT}</p>"
    assert translate(server, text=[page], tag_handling="xml")[0]["text"] == f"<p>{alone}</p><p>{alone}</p>"
    parts = {"target_lang": "KO", "style_id": "x"}
    body = "".join(f'--X\r\nContent-Disposition: form-data; name="{a}"\r\n\r\n{b}\r\n' for a, b in parts.items())
    body += '--X\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nx\r\n--X--\r\n'
    refused = ask(server, "POST", "/v2/document", body, Content_Type="multipart/form-data; boundary=X")
    assert (refused.status, "'style_id'" in refused.json["message"]) == (400, True)


def test_files_of_libretranslate_are_fetched_by_their_address(server: Running, alone: str):
    body = "\r\n".join(
        [
            *("--x", 'Content-Disposition: form-data; name="file"; filename="/etc/my page.html"', "", f"<p>{TEXT}</p>"),
            *("--x", 'Content-Disposition: form-data; name="source"', "", "auto"),
            *("--x", 'Content-Disposition: form-data; name="target"', "", "ko"),
            *("--x", 'Content-Disposition: form-data; name="api_key"', "", "first", "--x--", ""),
        ]
    ).encode()
    answer = server.ask("POST", "/translate_file", body, Content_Type="multipart/form-data; boundary=x")
    url = answer.json["translatedFileUrl"]
    assert url.startswith(server.url + "/download_file/")
    assert url.endswith(".my_page_ko.html")
    fetched = server.ask("GET", url.removeprefix(server.url))
    assert fetched.body.decode() == f"<p>{alone}</p>"
    assert fetched.headers["content-disposition"].startswith("attachment")
    for path in ("/download_file/x", "/download_file/..%2f..%2fetc%2fpasswd", f"/download_file/{32 * '0'}.txt"):
        assert server.ask("GET", path).status == 404
    settings = server.ask("GET", "/frontend/settings").json
    assert ".html" in settings["supportedFilesFormat"]


@pytest.mark.slow
@pytest.mark.parametrize("grace", [0.5, 0.0])
def test_repeated_request_is_not_searched_for_again(models: Models, monkeypatch: pytest.MonkeyPatch, grace: float):
    """All times are a twentieth of theirs: a search needs 12 seconds, the client gives up after 10 and asks again.

    The control: without grace, the search begins anew each time.
    """
    monkeypatch.setattr(deepl.http_client, "min_connection_timeout", 0.5)
    monkeypatch.setattr(deepl.http_client._BackoffTimer, "BACKOFF_INITIAL", 0.05)
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 5)
    timer, wait = deepl.http_client._BackoffTimer, deepl.http_client._BackoffTimer.sleep_until_deadline
    if not grace:  # else a client may ask again before the step is over after which its search would be dropped
        monkeypatch.setattr(timer, "sleep_until_deadline", lambda own: (time.sleep(0.2), wait(own)))
    one = next(iter(models.by_pair.values()))
    slow = Slow(one.translator.engine, 0.6)
    with Pool(slow, grace=grace) as pool, running(Models([replace(one, pool=pool)]), CONFIG) as server:
        client = deepl.Translator("no key", server_url=server.url)
        found = None
        with contextlib.suppress(deepl.ConnectionException):
            found = client.translate_text(TEXT, source_lang="EN", target_lang="KO")
        if grace:
            assert found
            assert len(slow.searched) == len({*slow.searched})  # a faulty translation is searched for twice
        else:
            assert len(slow.searched) > len({*slow.searched})
