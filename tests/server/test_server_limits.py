"""What the requests of strangers may cost a server, and what they may leave behind."""

import contextlib
import json
import os
import stat
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Answer, Gate, Running, multipart, running, until

from dragoman.documents import read_document
from dragoman.server import files, store
from dragoman.server.app import App
from dragoman.server.files import Results
from dragoman.server.keys import Key, caller_of, digest
from dragoman.server.models import Models
from dragoman.server.own import texts
from dragoman.server.reading import MAX_BODY, SMALL, Refusal, Room, Upload
from dragoman.server.shares import Shares
from dragoman.server.store import Store
from dragoman.server.texts import MAX_FORBIDDEN, MAX_TARGETS, MAX_TERMS
from dragoman.text.glossary import MAX_TERM_LENGTH

KEYS = [Key("one", digest("first")), Key("two", digest("second"))]
ENTRIES = {"name": "animals", "source_lang": "en", "target_lang": "ko", "entries": "dog\t개"}
FORM = (
    '--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n{text}\r\n'
    '--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
    '--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nko\r\n'
    '--x\r\nContent-Disposition: form-data; name="target_lang"\r\n\r\nko\r\n--x--\r\n'
)


def app_of(server: Running) -> App:
    app: App = server.contract.app
    return app


def upload(server: Running, path: str, text: str = "The dog sees 4 red cats.", key: str = "first") -> Answer:
    kind = {"Content_Type": "multipart/form-data; boundary=x"}
    scheme = "DeepL-Auth-Key" if path.startswith("/v2") else "Bearer"
    return server.ask("POST", path, FORM.format(text=text).encode(), Authorization=f"{scheme} {key}", **kind)


def make(server: Running, key: str = "first", **changes: str) -> Answer:
    return server.ask("POST", "/v2/glossaries", {**ENTRIES, **changes}, Authorization=f"DeepL-Auth-Key {key}")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def keeping(models: Models, state: Path) -> Iterator[Running]:
    """A server with keys and a folder."""
    with running(models, replace(CONFIG, state=str(state)), KEYS) as started:
        yield started


# --- Memory


HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


def test_large_requests_share_some_memory_and_small_ones_have_another(models: Models):
    """So do small ones that are never complete."""
    with running(models, CONFIG) as server:
        app, small, large = app_of(server), 8 * SMALL, 8 * SMALL
        app.room = Room(small, large)

        def held() -> tuple[int, int]:
            return small - app.room.small.left, large - app.room.large.left

        head = HEAD % (b"/translate", MAX_BODY)
        with server.connect(head + b"a" * (2 * SMALL)) as first:
            until(lambda: held() == (SMALL, SMALL))
            with server.connect(head + b"a" * (2 * SMALL)) as second:
                until(lambda: held() == (2 * SMALL, 2 * SMALL))
                assert server.translate("a " * SMALL).status == 503
                refused = server.translate("a" * SMALL)
                assert (refused.status, refused.json["error"]) == (503, "too many requests are being sent at once")
                second.close()
            until(lambda: held() == (SMALL, SMALL))
            assert server.translate("A dog.").status == 200
            refused = server.translate("a " * 2 * SMALL)
            assert (refused.status, refused.json["error"]) == (503, "too many large requests are being sent at once")
            first.close()
        until(lambda: held() == (0, 0))
        assert server.translate(["a"] * 20_000).status == 400  # read, and then refused
        assert held() == (0, 0)


@pytest.mark.parametrize("shared", [True, False])
def test_senders_without_a_key_leave_room_for_those_with_one(
    models: Models, state: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
):
    """A key may be in a form, so all of it is read first. The control: first come, first served."""
    if not shared:
        monkeypatch.setattr(Shares, "has_room", lambda self, holder, amount: amount <= self.left)
    with running(models, replace(CONFIG, state=str(state), rate=0), KEYS) as server, contextlib.ExitStack() as slow:
        app = app_of(server)
        app.room = Room(32 * SMALL, 32 * SMALL)
        for left in range(30, 22 if shared else -2, -2):
            slow.enter_context(server.connect(HEAD % (b"/translate_file", 10 << 20) + b"a" * (3 * SMALL)))
            until(lambda left=left: app.room.large.left == left * SMALL)
        form, kind = multipart([("source", "en"), ("target", "ko")], {"a.html": f"A dog.<!--{'x' * 4 * SMALL}-->"})
        statuses = [
            server.ask("POST", path, form, Content_Type=kind, **headers).status
            for path, headers in (
                ("/translate_file", {"Authorization": "Bearer first"}),
                ("/translate_file?api_key=first", {}),
                ("/api/v1/documents", {"Authorization": "Bearer first"}),
            )
        ]
        assert statuses == ([200, 200, 201] if shared else [503, 503, 503])


def test_file_is_read_while_it_is_sent(keeping: Running, state: Path, monkeypatch: pytest.MonkeyPatch):
    """A client that takes its file slowly costs no memory for the rest of it."""
    path = upload(keeping, "/translate_file").json["translatedFileUrl"].removeprefix(keeping.url)
    (file,) = state.glob("documents/*.result")
    content = os.urandom(16 << 20)
    file.write_bytes(content)
    assert keeping.ask("GET", path).body == content
    with keeping.connect(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) as slow:
        slow.recv(1)
        buffered = [each.transport.get_write_buffer_size() for each in keeping.server.server_state.connections]
        assert max(buffered) <= 4 * files.PIECE


# --- Threads


def test_documents_leave_threads_to_others(gated: tuple[Models, Gate], state: Path):
    models, gate = gated
    config = replace(CONFIG, state=str(state), requests=4)
    with running(models, config, KEYS) as server, ThreadPoolExecutor(3) as threads:
        send = partial(upload, server, "/translate_file")
        long = [threads.submit(send, "A dog likes 2 cats.")]
        until(lambda: app_of(server).bulk.left == 1)
        refused = [send()]  # the same caller, who must not have all of them
        long.append(threads.submit(send, "A dog likes 3 cats.", "second"))
        until(lambda: app_of(server).bulk.left == 0)
        refused += [send(key="first"), send(key="second")]
        assert [(answer.status, answer.headers["retry-after"]) for answer in refused] == [(503, "1")] * 3
        short = threads.submit(server.translate, "A dog.", api_key="first")
        until(lambda: app_of(server).busy == 3)
        gate.open.set()
        assert [each.result().status for each in (*long, short)] == [200] * 3
        assert (app_of(server).busy, app_of(server).bulk.left) == (0, 2)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_model_whose_thread_has_ended_makes_the_server_unready(gated: tuple[Models, Gate]):
    models, gate = gated
    with running(models, CONFIG) as server:
        assert server.ask("GET", "/health/ready").status == server.ask("GET", "/health/live").status == 200
        gate.fails = True
        gate.open.set()
        for _ in range(2):
            answer = server.translate("A dog.")
            assert (answer.status, "error" in answer.json) == (503, True)
        until(lambda: server.ask("GET", "/health/ready").status == server.ask("GET", "/health/live").status == 503)


def test_request_has_so_many_words_and_no_more(models: Models):
    """Each step of the search looks at all of them, and other requests wait for it."""
    with running(models, CONFIG) as server:

        def ask(**words: list[str]) -> int:
            fields = {"texts": ["A dog."], "source": "en", "target": "ko", **words}
            return server.ask("POST", "/api/v1/translate", fields).status

        words = [f"x{number}" for number in range(MAX_FORBIDDEN + 1)]
        assert (ask(forbid=words[1:]), ask(forbid=words)) == (200, 400)
        long = "x" * MAX_TERM_LENGTH
        assert (ask(forbid=[long]), ask(forbid=[f"{long}x"])) == (200, 400)
        most = "|".join(words[:MAX_TARGETS])
        assert (ask(glossary=[f"dog\t{most}"]), ask(glossary=[f"dog\t{most}|more"])) == (200, 400)
        terms = [f"y{number}\tz" for number in range(MAX_TERMS + 1)]
        assert (ask(glossary=terms[1:]), ask(glossary=terms)) == (200, 400)


def test_prefix_is_charged_for_each_text_that_has_it(models: Models, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(texts, "MAX_PREFIX", 10)
    with running(models, replace(CONFIG, characters=100)) as server:

        def ask(path: str, **fields: Any) -> int:
            return server.ask("POST", f"/api/v1/{path}", {"source": "en", "target": "ko", **fields}).status

        long = "말" * 10
        assert ask("translate", texts=["a"] * 10, prefix=long[1:]) == 200
        assert ask("translate", texts=["a"] * 10, prefix=long) == 413
        assert ask("translate", texts=["a"] * 10, prefix=[long] + [""] * 9) == 200
        assert ask("translate", texts=["a"] * 10, prefix=[long] * 10) == 413
        assert (
            ask("translate", texts=["a"], prefix=f"{long}말")
            == ask("alternatives", text="a", prefix=f"{long}말")
            == 400
        )
        assert ask("alternatives", text="a" * 90, prefix=long) == 200
        assert ask("alternatives", text="a" * 91, prefix=long) == 413


# --- What is kept


def test_state_folder_is_readable_by_the_user_of_the_server_alone(keeping: Running, state: Path):
    assert make(keeping).status == 201
    assert upload(keeping, "/translate_file").status == 200
    for folder in ("glossaries", "documents"):
        assert stat.S_IMODE((state / folder).stat().st_mode) == 0o700


def test_whoever_lists_their_glossaries_reads_no_others(keeping: Running, monkeypatch: pytest.MonkeyPatch):
    for _ in range(3):
        make(keeping, "second")
    make(keeping)
    read: list[Path] = []
    monkeypatch.setattr(store, "read_json", lambda file, *more: (read.append(file), json.loads(file.read_text()))[1])
    listed = keeping.ask("GET", "/v2/glossaries", Authorization="DeepL-Auth-Key first").json["glossaries"]
    assert len(listed) == len(read) == 1


def test_owner_has_so_much_and_no_more(keeping: Running, state: Path, monkeypatch: pytest.MonkeyPatch):
    identity = make(keeping).json["glossary_id"]
    (file,) = state.glob("glossaries/*.json")
    monkeypatch.setattr(store, "MAX_BYTES", file.stat().st_size + 100)
    assert make(keeping).status == 403
    assert make(keeping, "second").status == 201
    more = {"dictionaries": [{**ENTRIES, "entries": "cat\t" + "x" * 99}]}
    change = {"Authorization": "DeepL-Auth-Key first"}
    assert keeping.ask("PATCH", f"/v3/glossaries/{identity}", more, **change).status == 403
    assert keeping.ask("PATCH", f"/v3/glossaries/{identity}", {"name": "beasts"}, **change).status == 200
    assert keeping.ask("PATCH", f"/v3/glossaries/{identity}", {"name": "b" * 2000}, **change).status == 400


def test_rate_counts_what_is_kept_and_not_what_is_read(models: Models, state: Path):
    with running(models, replace(CONFIG, state=str(state), rate=1000), KEYS) as server:
        entries = "\n".join(f"dog{number}\t개" for number in range(80))
        assert make(server, entries=entries).status == 201
        refused = make(server, entries=entries)
        assert (refused.status, int(refused.headers["retry-after"]) > 1) == (429, True)
        assert server.ask("GET", "/v2/glossaries", Authorization="DeepL-Auth-Key first").status == 200


def test_glossary_changes_wait_for_each_other(keeping: Running, state: Path):
    """Be it another server with the same folder: both would read it before the other one has written it."""
    path, key = f"/v3/glossaries/{make(keeping).json['glossary_id']}", {"Authorization": "DeepL-Auth-Key first"}

    def add(number: int) -> int:
        change = {"dictionaries": [{**ENTRIES, "entries": f"dog{number}\t개"}]}
        return keeping.ask("PATCH", path, change, **key).status

    with ThreadPoolExecutor(8) as threads:
        with Store(state, "glossaries").locked():
            waiting = threads.submit(add, 0)
            time.sleep(0.1)
            assert not waiting.done()
        assert waiting.result() == 200
        assert set(threads.map(add, range(1, 40))) == {200}
    assert keeping.ask("GET", path, **key).json["dictionaries"][0]["entry_count"] == 41


def test_documents_are_gone_after_an_hour(keeping: Running, state: Path, monkeypatch: pytest.MonkeyPatch):
    """Even if nobody sends another one, which would have the old ones deleted."""
    path = upload(keeping, "/translate_file").json["translatedFileUrl"].removeprefix(keeping.url)
    handle = upload(keeping, "/v2/document").json
    asked = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    key = {"Authorization": "DeepL-Auth-Key first"}
    assert keeping.ask("GET", path).status == keeping.ask("POST", *asked, **key).status == 200
    monkeypatch.setattr(files, "KEPT", -1.0)
    assert keeping.ask("GET", path).status == keeping.ask("POST", *asked, **key).status == 404
    Results(state).sweep()
    assert list((state / "documents").iterdir()) == []


def test_document_that_waits_for_more_than_an_hour_is_not_lost(
    keeping: Running, state: Path, monkeypatch: pytest.MonkeyPatch
):
    go, translate_document = threading.Event(), files.translate_document
    monkeypatch.setattr(files, "PROMPT", 0.0)
    monkeypatch.setattr(files, "translate_document", lambda *task: go.wait(20) and translate_document(*task))
    handle, key = upload(keeping, "/v2/document").json, {"Authorization": "DeepL-Auth-Key first"}
    path, body = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    until(lambda: keeping.ask("POST", path, body, **key).json["status"] == "translating")
    with monkeypatch.context() as later:
        later.setattr(files, "KEPT", -1.0)
        for own in ({}, dict(files.OWN)):  # another process with the same folder sweeps it, too
            later.setattr(files, "OWN", own)
            Results(state).sweep()
            assert keeping.ask("POST", path, body, **key).json["status"] == "translating"
    go.set()
    until(lambda: not files.OWN)
    assert keeping.ask("POST", f"{path}/result", body, **key).status == 200


def test_long_text_is_refused_before_parsing_and_a_file_has_its_price(monkeypatch: pytest.MonkeyPatch):
    parsed = list[str]()
    monkeypatch.setattr(files, "MAX_CHARACTERS", 10)
    monkeypatch.setattr(
        files, "read_document", lambda *file, **languages: (parsed.append(file[1]), read_document(*file))[1]
    )
    for name in ("a.md", "a.txt"):
        assert files.open_document(Upload(name, "# 개와 고양이".encode()))[0].texts
        with pytest.raises(Refusal, match="11 characters are more than 10"):
            files.open_document(Upload(name, b"dogs\n\n\ncats"))
    assert files.open_document(Upload("a.html", b"<p>dogs</p>"))[0].texts == ["dogs"]  # most of it is markup
    assert parsed == [".md", ".txt", ".html"]
    assert [files.size_of(None, Upload("a.html", b"x" * size)) for size in (9, 11)] == [9, 10]


def test_lock_that_another_process_has_just_deleted_is_no_error(state: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "lock_file", lambda *_, **__: contextlib.nullcontext())
    assert not Results(state).is_waited_for("0" * 32)


def test_document_that_cannot_be_written_takes_no_place(keeping: Running, state: Path, monkeypatch: Any, capsys: Any):
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(Store, "write", fail)
        answer = upload(keeping, "/v2/document")
    assert answer.status == 503
    assert "No space left on device" in answer.json["message"]
    assert not files.OWN
    assert list((state / "documents").iterdir()) == []
    assert upload(keeping, "/v2/document").status == 200


# --- Who asks, and for what


@pytest.mark.parametrize("code", ["", "x", "engl", "e n", "../../etc", "x" * 10_000, "\u0130\u0130"])
def test_glossary_is_for_languages(keeping: Running, code: str):
    assert make(keeping, source_lang=code).status == make(keeping, target_lang=code).status == 400
    assert make(keeping, source_lang="EN-us").status == 201


def test_path_with_a_line_feed_behind_it_is_another_path(keeping: Running):
    assert keeping.ask("GET", "/languages").status == 200
    for path in ("/languages%0A", "/languages%00", "/languages%20", "/languages%0d%0a"):
        assert keeping.ask("GET", path).status == 404


def test_host_names_have_no_case(models: Models):
    with running(models, replace(CONFIG, host_name=("Translate.Example.org",))) as server:
        assert server.ask("GET", "/languages", Host="translate.example.ORG").status == 200


def test_caller_that_is_no_address_is_not_logged(models: Models, capsys: Any):
    assert caller_of("unknown") == caller_of("\x1b[2J") == caller_of("x" * 10_000) == "-"
    with running(models, replace(CONFIG, proxy=("127.0.0.1",))) as server:
        assert server.ask("GET", "/languages", X_Forwarded_For="\x1b[2J").status == 200
        for forged, written in (("8.8.8.8, 10.1.2.3", "address 10.1.2.3"), ("10.1.2.3, nobody", "address -")):
            server.ask("GET", "/languages", X_Forwarded_For=forged)
            time.sleep(0.05)
            assert capsys.readouterr().err.splitlines()[-1].endswith(written)
