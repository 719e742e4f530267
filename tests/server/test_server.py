"""The server itself: who may ask, what it takes in, that each answer is its own, and that it stays up."""

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Ran
from serving import CONFIG, Answer, Gate, Running, running, until

from dragoman.config import ComputeType, SearchConfig, read_toml, update
from dragoman.config.languages import parse_pair
from dragoman.config.serve import ServeConfig
from dragoman.data.corpus import Pair
from dragoman.decoding.rows import Late
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.inference.products import supported_types
from dragoman.runtime.threads import ALL_BUT_AMX
from dragoman.server import app as server_app
from dragoman.server import protocol, run
from dragoman.server.keys import MAX_CALLERS, Key, Rates, add_key, caller_of, digest, find_key, read_keys
from dragoman.server.languages import find_language, name_of
from dragoman.server.models import Models, Served, open_models, parse_models
from dragoman.server.reading import MAX_BODY, MAX_DEPTH
from dragoman.server.table import ROUTES
from dragoman.text.languages import read_languages
from dragoman.training.average import average
from dragoman.translation.translator import Translator

SECRET = "correct horse battery staple"
KEYS = [Key("weblate", digest("another")), Key("tests", digest(SECRET))]


@pytest.fixture(scope="module")
def locked(models: Models) -> Iterator[Running]:
    """A server that asks for keys."""
    with running(models, CONFIG, KEYS) as started:
        yield started


# --- Starting


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a model"),
        (["-m", "nowhere"], "no such model folder"),
        (["-m", "{run}"], "does not record its languages"),
        (["-m", "en-ko={run}", "-m", "en-ko={run}"], "two models for en-ko"),
        (["-m", "en-ko={run}", "--pivot", "de"], "--pivot de"),
        (["-m", "en-ko={run}", "--host", "0.0.0.0"], "--api-keys FILE, or --open"),
        (["-m", "en-ko={run}", "--api-keys", "none.json"], "none.json: no such file"),
        (["-m", "en-ko={run}", "--beam", "9"], "above max_beam 8"),
        (["-m", "en-ko={run}", "--host-name", "https://example.org"], "give the name alone"),
        (["-m", "en-ko={run}", "--allow-origin", "example.org"], "an origin is like https://example.org"),
        (["-m", "en-ko={run}", "--allow-origin", "https://example.org/"], "without a path"),
        (["-m", "en-ko={run}", "--proxy", "caddy"], "give an IP address"),
        (["-m", "en-ko={run}", "--state", __file__], "test_server.py: not a folder"),
        (["-m", "en-ko={run}", "--suggestions", __file__], "test_server.py: not a folder"),
        (["-m", "en-ko={run}", "--state", f"{__file__}/x"], "test_server.py/x: cannot be made: Not a directory"),
        (["serve.json"], "ends in .toml"),
        (["--new-key", "me"], "--api-keys FILE"),
    ],
)
def test_wrong_settings_are_refused_before_anything_listens(dragoman: Any, trained: Path, arguments: Any, message: str):
    ran: Ran = dragoman("serve", *[argument.format(run=trained) for argument in arguments])
    assert ran.code == 2
    assert message in ran.err


def test_taken_port_and_unknown_tag_are_errors(dragoman: Any, trained: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran: Ran = dragoman("serve", "-m", f"en-ko={trained}", "--port", other.getsockname()[1])
        assert (ran.code, "cannot listen" in ran.err) == (1, True)
    ran = dragoman("serve", "-m", f"en-ko={trained}:xx", "--port", 0)
    assert (ran.code, "cannot serve en-ko" in ran.err) == (1, True)


def test_settings_in_a_file_are_those_of_flags(tmp_path: Path):
    file = tmp_path / "serve.toml"
    file.write_text('model = ["en-ko=runs/a", "runs/b"]\nbeam = 2\nopen = true\nhost_name = "example.org"\n')
    read = update(ServeConfig(), read_toml(file), str(file))
    assert read == ServeConfig(model=("en-ko=runs/a", "runs/b"), beam=2, open=True, host_name=("example.org",))
    file.write_text("beams = 2\n")
    with pytest.raises(UsageError, match="did you mean 'beam'"):
        update(ServeConfig(), read_toml(file), str(file))


@pytest.mark.parametrize("text", ["en", "en-", "english-german", "en_de", "EN-DE", "en-de-fr-it", "en-de\n"])
def test_language_pairs_that_are_none_are_refused(text: str):
    with pytest.raises(UsageError, match="not a language pair"):
        parse_pair(text)
    assert parse_pair("zh-Hant-pt-BR") == ("zh-Hant", "pt-BR")


def test_model_records_its_languages_and_averages_keep_them(tmp_path: Path, corpus: tuple[str, str]):
    from conftest import run_config, run_training

    run_training(replace(run_config(corpus, tmp_path / "run", max_steps=2, validate_every=1), languages="en-ko"))
    resumed = replace(run_config(corpus, tmp_path / "run", max_steps=4, validate_every=1), languages=None)
    run_training(resumed)  # without --languages, they stay
    log = tmp_path / "run" / "train.log"
    assert "languages" not in log.read_text()
    assert read_languages(tmp_path / "run" / "last") == ("en", "ko")
    average([tmp_path / "run" / "best"], tmp_path / "mean")
    for folder in (tmp_path / "run", tmp_path / "mean"):
        (source,) = parse_models([str(folder)], None)
        assert source.pair == ("en", "ko")
    file = tmp_path / "mean" / "languages.json"
    file.write_text('{"source": "en"}')
    with pytest.raises(DragomanError, match="does not name two languages"):
        read_languages(tmp_path / "mean")
    run_training(replace(resumed, languages="en-de", training=replace(resumed.training, max_steps=6)))
    assert "checkpoints record the languages en-de from now on, instead of en-ko" in log.read_text()
    assert read_languages(tmp_path / "run" / "last") == ("en", "de")


@pytest.mark.parametrize(
    ("code", "served", "found"),
    [
        ("de", ["de", "en"], "de"),
        ("DE", ["de", "en"], "de"),
        ("pt_br", ["pt", "pt-BR"], "pt-BR"),
        ("pt-PT", ["pt", "pt-BR"], "pt"),
        ("pt", ["pt-BR"], "pt-BR"),
        ("pb", ["pt-BR", "pt"], "pt-BR"),
        ("zt", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("zh-TW", ["zh-Hans", "zh-Hant"], "zh-Hant"),
        ("EN-US", ["en", "de"], "en"),
        ("fr", ["en", "de"], None),
        ("", ["en", "de"], None),
        ("d", ["en", "de"], None),
    ],
)
def test_languages_are_found_by_the_codes_that_clients_write(code: str, served: list[str], found: str | None):
    assert find_language(code, served) == found


def test_languages_have_names():
    assert [name_of(code) for code in ("de", "zh-Hant", "xx")] == ["German", "Chinese (Traditional)", "xx"]


# --- Keys and rates


def test_key_is_shown_once_and_stored_as_a_digest(dragoman: Any, tmp_path: Path):
    file = tmp_path / "keys.json"
    first: Ran = dragoman("serve", "--api-keys", file, "--new-key", "weblate")
    second = add_key(file, "other")
    assert "restart a running server" in first.err
    assert first.out.strip() not in file.read_text()
    assert len(first.out.strip()) >= 43  # 256 bits
    keys = read_keys(file)
    assert [key.name for key in keys] == ["weblate", "other"]
    assert find_key(keys, first.out.strip()) == keys[0]
    assert find_key(keys, second) == keys[1]
    for wrong in (first.out.strip()[:-1], "", "é", "\udcff", keys[0].sha256):
        assert find_key(keys, wrong) is None
    with pytest.raises(UsageError, match="already"):
        add_key(file, "other")
    assert file.stat().st_mode & 0o077 == 0
    file.write_text('{"keys": [{"name": "a", "sha256": "x"}]}')
    with pytest.raises(UsageError, match="not a file of keys"):
        read_keys(file)


def test_rates_are_exact_and_remember_no_more_callers_than_they_say():
    now = [0.0]
    rates = Rates(lambda: now[0])
    assert rates.take("a", 60, 60) == 0
    assert rates.take("a", 30, 60) == 30
    now[0] = 29.5
    assert rates.take("a", 30, 60) == 1
    now[0] = 30
    assert rates.take("a", 30, 60) == 0
    assert rates.take("b", 600, 60) == 0  # more than a bucket holds: from a full one
    now[0] = 31
    assert rates.take("b", 1, 60) == 540
    for number in range(2 * MAX_CALLERS):
        rates.take(str(number), 1, 60)
    ticking = Rates(itertools.count(0.0, 1e-6).__next__)  # no clock stands still
    assert ticking.take("a", 60, 60) == 0
    assert ticking.take("a", 1, 60) == 1
    assert len(rates.buckets) == MAX_CALLERS
    assert "a" not in rates.buckets


def test_one_customer_has_one_network():
    assert caller_of("2001:db8::1") == caller_of("2001:db8::ffff:2") != caller_of("2001:db8:0:1::1")
    assert caller_of("::ffff:10.0.0.1") == caller_of("10.0.0.1") != caller_of("10.0.0.2")


def test_routes_ask_for_a_key_as_their_table_says(locked: Running):
    for route in ROUTES:
        for secret in ("", "wrong", "wröng", SECRET):
            headers = {"Authorization": route_key(route, secret)} if secret else {}
            status = locked.ask(route.method, re.sub(r"\{\w+\}", "x", route.path), **headers).status
            if route.access == "anyone" or secret == SECRET:
                assert status not in (401, 403), route
            else:
                assert status == (route.dialect.wrong_key if secret else route.dialect.no_key)[0], (route, secret)
            assert status < 500


def route_key(route: Any, secret: str) -> str:
    """The header that a dialect reads a key from."""
    scheme = "DeepL-Auth-Key" if "DeepL" in route.dialect.no_key[1] else "Bearer"
    return f"{scheme} {secret}".encode().decode("latin-1")


@pytest.mark.parametrize("path", ["//translate", "/translate/", "/./translate", "/%2e/translate", "/x/../translate"])
def test_other_spellings_of_a_path_lead_nowhere(locked: Running, path: str):
    assert locked.ask("POST", path, {"q": "x", "source": "en", "target": "ko"}).status == 404


def test_greedy_caller_waits_and_others_do_not(models: Models):
    with running(models, replace(CONFIG, rate=100), KEYS) as server:
        assert server.translate("x" * 90 + ".", api_key=SECRET).status == 200
        refused = server.translate("y" * 60, api_key=SECRET)
        assert refused.status == 429
        assert 25 <= int(refused.headers["retry-after"]) <= 31
        assert server.translate("y" * 60, api_key="another").status == 200


# --- Reading


def test_body_may_be_as_large_as_the_limit_and_no_larger(server: Running):
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    for size in (MAX_BODY - 1, MAX_BODY):
        assert server.ask("POST", "/translate", b"x=" + b"a" * (size - 2), **form).status == 400  # no q
    length = f"Content-Length: {MAX_BODY + 1}"
    # Refused before it is sent: who sends it all the same may meet a closed connection.
    with server.connect(f"POST /translate HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n".encode()) as connection:
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_chunked_body_is_refused_as_soon_as_it_is_too_large(server: Running):
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with server.connect(head) as connection:
        sent = 0
        while sent < 200 << 20:
            try:
                connection.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
                sent += 0x10000
            except OSError:
                break
        assert sent < 16 << 20  # the limit, and what was on its way


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Encoding": "gzip"}, 415),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "multipart/form-data"}, 400),
        ({"Content_Type": "multipart/form-data; boundary=x; charset=utf-7"}, 415),
        ({"Content_Type": "multipart/form-data; boundary=x"}, 400),
        ({"Content_Length": "-1"}, 400),
        ({"Content_Length": "9" * 15}, 413),
    ],
)
def test_bodies_of_other_kinds_are_refused(server: Running, headers: dict[str, str], status: int):
    # What comes behind headers that are no HTTP meets a closed connection, and the system may reset it.
    body = b"" if headers.get("Content_Length") == "-1" else b"q=x"
    assert server.ask("POST", "/translate", body, **headers).status == status


HOSTILE = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"q"',
    b'{"q": NaN}',
    b'{"q": 1e999}',
    b'{"q": ' + b"9" * 5000 + b"}",
    b"[" * 100_000,
    b'{"q": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"q": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}",
    b'{"q": "\\ud800", "source": "en", "target": "ko"}',
    b'{"q": "\xff", "source": "en", "target": "ko"}',
    b'{"q": 123, "source": "en", "target": "ko"}',
    b'{"q": [[]], "source": "en", "target": "ko"}',
    b'{"q": [1], "source": "en", "target": "ko"}',
    b'{"q": [], "source": "en", "target": "ko"}',
    b'{"q": "", "source": "en", "target": "ko"}',
    b'{"q": "x", "source": {}, "target": "ko"}',
    b'{"q": "x", "source": "en", "target": "zz"}',
    b'{"q": "x", "source": "en", "target": "ko", "alternatives": "x"}',
    b'{"q": "x", "source": "en", "target": "ko", "alternatives": null}',
    b'{"q": "x", "source": "en", "target": "ko", "alternatives": -1}',
    b'{"q": "x", "source": "en", "target": "ko", "alternatives": 10000}',
    b'{"q": "x", "source": "en", "target": "ko", "alternatives": 99999999999999999999999}',
    b'{"q": "x", "source": "en", "target": "ko", "format": "docx"}',
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_bodies_of_any_bytes_do_not_make_the_server_fail(server: Running, body: bytes):
    answer = server.ask("POST", "/translate", body, Content_Type="application/json")
    assert answer.status == 400
    assert answer.json["error"]


@pytest.mark.parametrize(
    "text", ["\0", "a\0b", "\ufeff", "\u2028", " \n\n ", "🙂🙂", "\u202eabc", "x" * 5000, "ha" * 500]
)
def test_texts_of_any_kind_are_answered(server: Running, text: str):
    """The control for the test above: what is a text is no error."""
    answer = server.translate(text)
    assert answer.status == 200
    if not any(map(str.isalpha, text)):
        assert answer.json == {"translatedText": text}


def test_wrong_paths_and_methods_get_errors_in_the_form_of_their_api(server: Running):
    assert server.ask("GET", "/nowhere").json == {"error": "there is nothing at this path"}
    assert server.ask("GET", "/api/v1/nowhere").json["error"]["message"] == "there is nothing at this path"
    wrong = server.ask("GET", "/translate")
    assert (wrong.status, wrong.headers["allow"]) == (405, "OPTIONS, POST")
    head = server.ask("HEAD", "/languages")
    assert (head.status, head.body) == (200, b"")


HOSTS = {
    "localhost": True,
    "LOCALHOST:80": True,
    "127.0.0.1": True,
    "192.168.1.7:5000": True,
    "[::1]:5000": True,
    "translate.example.org": True,
    "evil.example": False,
    "localhost.evil.example": False,
    "x/?": False,
    "": False,
    "localhost@evil.example": False,
    "127.0.0.1.evil.example": False,
}


def test_host_names_that_are_not_ours_are_refused(models: Models):
    with running(models, replace(CONFIG, host_name=("translate.example.org",))) as server:
        assert {host: server.ask("GET", "/languages", Host=host).status == 200 for host in HOSTS} == HOSTS


def test_pages_of_other_origins_are_refused_unless_they_are_allowed(models: Models, server: Running):
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "chrome-extension://abc"):
        answer = server.ask("POST", "/translate", b"", Origin=origin)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers
    assert server.ask("GET", "/languages", Origin=server.url).status == 200
    with running(models, replace(CONFIG, allow_origin=("chrome-extension://*", "http://[::1]:3000"))) as other:
        assert other.ask("OPTIONS", "/translate", Origin="http://[::1]:3000").status == 204
        assert other.ask("OPTIONS", "/translate", Origin="http://[::2]:3000").status == 403
        answer = other.ask("OPTIONS", "/translate", Origin="chrome-extension://abc")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "chrome-extension://abc")
        assert "access-control-allow-credentials" not in answer.headers
        assert other.ask("OPTIONS", "/translate", Origin="http://evil.example").status == 403


def test_neither_text_nor_key_nor_address_of_a_request_is_written_down(locked: Running, capsys: Any):
    number = locked.translate("a very secret text", api_key=SECRET).headers["x-request-id"]
    locked.ask("POST", f"/translate?q=secret&api_key={SECRET.replace(' ', '+')}&source=en&target=zz")
    locked.ask("GET", "/a-secret-path")
    until(lambda: "404" in (capsys.readouterr().err or "404"))
    locked.translate("a very secret text", api_key=SECRET, target="ko")
    time.sleep(0.05)
    written = capsys.readouterr().err
    metrics = locked.ask("GET", "/metrics", Authorization=f"Bearer {SECRET}").body.decode()
    assert len(number) == 32
    assert "POST /translate 200" in written
    assert "key tests" in written
    assert 'route="/translate"' in metrics
    for leaked in ("secret", SECRET, digest(SECRET)):
        assert leaked not in written + metrics
    assert len([line for line in metrics.splitlines() if not line.startswith("#")]) < 200


# --- Many at once


def test_answers_to_concurrent_requests_are_not_mixed_up(server: Running, models: Models, pairs: Sequence[Pair]):
    """Alone, in a crowd in random order, and as a list."""
    # A placeholder comes back in the answer for its own text.
    texts = [f"{source} {{n{number}}}" for number, (source, _) in enumerate(pairs[:20])]
    translator = next(iter(models.by_pair.values())).translator
    expected = {text: one.text for text, one in zip(texts, translator.translate(texts), strict=True)}
    assert len(set(expected.values())) == len(texts)  # else answers could change places unseen
    crowd = [text for text in texts for _ in range(2)]
    random.Random(1).shuffle(crowd)
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda text: server.translate(text).json["translatedText"], crowd))
    assert answers == [expected[text] for text in crowd]
    assert server.translate(texts).json["translatedText"] == list(expected.values())


@pytest.mark.parametrize("name", ["auto", *supported_types()[1:]])
def test_native_engine_serves_in_each_type_what_it_translates_alone(
    trained: Path, pairs: Sequence[Pair], name: ComputeType
):
    texts = [f"{source} {{n{number}}}" for number, (source, _) in enumerate(pairs[:12])]
    translator = Translator.load(trained, SearchConfig(beam=CONFIG.beam), compute_type=name, threads=1)
    alone = {text: translator.translate(text).text for text in texts}
    assert len(set(alone.values())) == len(texts)  # else answers could change places unseen
    config = replace(CONFIG, compute_type=name)
    models = open_models(config, parse_models([f"en-ko={trained}"], None))
    assert f"{translator.engine!r}, beam 4" in run.describe(config, models, "http://localhost:5000")
    with running(models, config) as server, ThreadPoolExecutor(16) as threads:
        crowd = list(threads.map(lambda text: server.translate(text).json["translatedText"], texts * 2))
    assert run.resolved_type(config) == translator.engine.compute_type  # type: ignore[attr-defined]
    (served,) = models.by_pair.values()
    inspected = models.native_engine(served)
    models.close(5)
    assert crowd == [alone[text] for text in texts * 2]
    assert name != "int8" or "in int8" in repr(translator.engine)
    # What is looked into is the search in float32, whatever the server computes in.
    assert inspected.compute_type == "float32"
    assert (inspected is served.translator.engine) == (served.translator.engine.compute_type == "float32")


@pytest.mark.parametrize("name", supported_types())
def test_amx_is_left_out_by_servers_in_int8_alone(trained: Path, monkeypatch: pytest.MonkeyPatch, name: ComputeType):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    app = run.open_app(replace(CONFIG, model=(f"en-ko={trained}",), compute_type=name))
    chosen = os.environ.pop("ONEDNN_MAX_CPU_ISA", None)
    app.service.models.close(5)
    assert chosen == (ALL_BUT_AMX if name == "int8" else None)


@pytest.mark.parametrize("patience", [1.0, None])
def test_searches_have_the_patience_of_the_server(trained: Path, monkeypatch: Any, patience: float | None):
    asked = []
    search = TorchEngine.search_batch

    def search_batch(self: Any, sources: Any, config: Any, *more: Any, **others: Any) -> Any:
        asked.append(config.patience)
        return search(self, sources, config, *more, **others)

    opened = open_models(replace(CONFIG, patience=patience), parse_models([f"en-ko={trained}"], None))
    monkeypatch.setattr(TorchEngine, "search_batch", search_batch)
    with running(opened, CONFIG) as server:
        assert server.translate("The dog").status == 200
    opened.close(5)
    assert asked == [patience] * len(asked) != []


def test_client_that_leaves_is_not_translated_for(gated: tuple[Models, Gate]):
    models, gate = gated
    with running(models, CONFIG) as server:
        body = b'{"q":"A long text that nobody waits for.","source":"en","target":"ko"}'
        head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += b"Content-Length: %d\r\n\r\n"
        connections = [server.connect(head % len(body) + body) for _ in range(5)]
        until(lambda: server.metric("dragoman_in_flight") == 5)
        open_connections = server.server.server_state.connections
        until(lambda: len(open_connections) == 5)  # those that asked for metrics are closed
        for connection in connections:
            connection.close()
        until(lambda: not open_connections)  # the server knows that they have left
        gate.open.set()
        until(lambda: server.metric("dragoman_in_flight") == 0)
        assert server.metric('dragoman_finished_total{outcome="cancelled"}') == 5
        assert server.translate("A dog likes cats.").status == 200
        counts = [server.metric(f'dragoman_finished_total{{outcome="{one}"}}') for one in ("ok", "failed", "cancelled")]
        assert server.metric("dragoman_accepted_total") == sum(counts) == 6


def test_requests_unanswered_when_the_server_ends_get_an_error(
    gated: tuple[Models, Gate], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(run, "NOTICE", 0.0)
    models, gate = gated
    with running(models, replace(CONFIG, grace=1.0)) as server, ThreadPoolExecutor(1) as threads:
        late = threads.submit(server.translate, "A dog likes cats.")
        until(lambda: server.metric("dragoman_in_flight") == 1)
        server.server.handle_exit(signal.SIGTERM, None)
        answer = late.result(60)
        gate.open.set()
    assert (answer.status, answer.json) == (503, {"error": "the server is stopping"})
    assert "x-request-id" in answer.headers
    assert "Traceback" not in (written := capfd.readouterr().err)
    assert re.search(rf"{answer.headers['x-request-id']} POST /translate 503 ", written)


def test_late_answers_are_errors_and_a_full_server_says_so_at_once(gated: tuple[Models, Gate]):
    models, gate = gated
    with running(models, replace(CONFIG, deadline=0.4, requests=1)) as server, ThreadPoolExecutor(1) as threads:
        late = threads.submit(server.translate, "A dog likes cats.")
        until(lambda: server.metric("dragoman_in_flight") == 1)
        refused = server.translate("A cat.")
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert late.result().status == 503
        assert "longer than 0.4 seconds" in late.result().json["error"]
        gate.open.set()
        until(lambda: server.translate("A dog.").status == 200)


def test_server_that_would_make_wait_too_long_refuses(gated: tuple[Models, Gate], monkeypatch: pytest.MonkeyPatch):
    models, gate = gated
    gate.open.set()
    with running(models, replace(CONFIG, max_wait=4)) as server:
        monkeypatch.setattr(models, "wait", lambda characters: 9.5)
        refused = server.translate("A dog.")
        assert (refused.status, refused.headers["retry-after"]) == (503, "6")
        monkeypatch.setattr(models, "wait", lambda characters: 3.9)
        assert server.translate("A dog.").status == 200


def test_long_list_does_not_keep_others_out(gated: tuple[Models, Gate]):
    """The control: another list of that length would wait for it, and is refused."""
    models, gate = gated
    pool = models.pools[0]
    long = [f"A dog sees {number} cats." for number in range(200)]
    with running(models, replace(CONFIG, max_wait=4)) as server, ThreadPoolExecutor(2) as threads:
        pool.finished_tokens, pool.spent_seconds = 100.0, 1.0
        first = threads.submit(server.translate, long)
        until(lambda: pool.searches)
        assert models.wait() > 4
        assert server.translate([f"{text} Yes." for text in long]).status == 503
        single = threads.submit(server.translate, "A dog sees a cat.")
        until(lambda: len(pool.searches) == 2 or single.done())
        gate.open.set()
        assert (single.result().status, first.result().status) == (200, 200)


def test_model_that_is_stuck_makes_the_server_unready_and_then_dead(server: Running, monkeypatch: Any):
    for stalled, ready, live in ((0, 200, 200), (6, 503, 200), (61, 503, 503)):
        monkeypatch.setattr(server.service.models, "stalled", lambda stalled=stalled: stalled)
        assert server.ask("GET", "/health/ready").status == ready
        assert server.ask("GET", "/health/live").status == live


def test_unexpected_error_says_nothing_of_the_text(server: Running, monkeypatch: Any, capsys: Any):
    def fail(*_: Any) -> None:
        raise ValueError("secret text")

    monkeypatch.setattr(Served, "translator_for", fail)
    answer = server.translate("secret text")
    assert (answer.status, answer.json) == (500, {"error": "internal server error"})
    written = capsys.readouterr().err
    assert "ValueError in fail" in written
    assert "secret" not in written
    monkeypatch.setattr(Served, "translator_for", lambda *_: (_ for _ in ()).throw(Late("too late")))
    assert server.translate("x").status == 503


# --- Slow clients


def test_slow_clients_are_cut_off_and_others_are_not(models: Models, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 2.0)
    monkeypatch.setattr(server_app, "BODY_SECONDS", 2.0)
    head = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with running(models, CONFIG) as server:
        began = time.monotonic()
        silent, headers = server.connect(), server.connect(b"GET /languages HTTP/1.1\r\nHost: loc")
        body = server.connect(head + b"Content-Length: 100\r\n\r\n{")
        again = server.connect(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += again.recv(1000)
        assert b"200 OK" in answer
        again.sendall(b"GET /he")  # the next one on this connection
        for _ in range(3):  # a byte now and then does not help
            time.sleep(0.3)
            for connection in (headers, body):
                connection.sendall(b"x")
        assert server.ask("GET", "/health").status == 200
        assert b"408" in body.recv(1000)
        for connection in (silent, headers, again):
            with connection, contextlib.suppress(ConnectionResetError):
                assert connection.recv(1000) == b""
        assert time.monotonic() - began < 8


# --- Stopping


def test_clients_that_have_connected_may_ask_although_the_server_stops(models: Models, monkeypatch: pytest.MonkeyPatch):
    """Also where the server has not accepted the connection yet. The control is a client that does not ask."""
    monkeypatch.setattr(protocol, "FIRST_SECONDS", 2.0)
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with running(models, CONFIG) as server:
        loop, (listening,) = server.server.loop, server.server.servers
        assert loop
        early, silent = server.connect(), server.connect()
        until(lambda: len(server.server.server_state.connections) == 2)
        loop.call_soon_threadsafe(loop.remove_reader, listening.sockets[0].fileno())
        time.sleep(0.2)
        waiting = server.connect(request)
        time.sleep(0.2)
        assert len(server.server.server_state.connections) == 2
        server.server.should_exit = True
        until(lambda: not listening.is_serving())
        early.sendall(request)
        for connection in (early, waiting):
            assert b"200 OK" in connection.recv(1000)
        assert silent.recv(1000) == b""


def test_server_that_is_stopped_answers_what_it_has_accepted(trained: Path, tmp_path: Path):
    """A real process, as it is started by hand; its exit code is 0."""
    command = [sys.executable, "-m", "dragoman", "serve", "-m", f"en-ko={trained}", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            check_stopping(process)
        finally:
            process.kill()


def check_stopping(process: subprocess.Popen[str]) -> None:
    """Ask the server in a process, from four threads, until it is gone."""
    assert process.stderr
    printed: list[str] = []
    while not (printed and "health/ready" in printed[-1]):
        printed.append(process.stderr.readline())
        assert printed[-1], printed
    assert "en-ko: " in printed[0]
    assert re.search(r"open http://127\.0\.0\.1:\d+ in a browser", printed[1])
    assert [line.split()[0] for line in printed[-3:]] == ["curl"] * 3
    server = Running(int(re.findall(r"127\.0\.0\.1:(\d+)", printed[-1])[0]), None, None)  # type: ignore[arg-type]
    answers: list[Answer] = []
    readiness: list[int] = []

    def ask(number: int) -> None:
        with contextlib.suppress(ConnectionRefusedError, ConnectionResetError):  # it listens no more
            while True:
                answers.append(server.translate(f"A dog likes {number + len(answers)} red cats."))
                readiness.append(server.ask("GET", "/health/ready").status)

    threads = [threading.Thread(target=ask, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(answers) > 5)
    process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    process.stderr.read()
    assert process.wait(10) == 0
    assert {answer.status for answer in answers} == {200}
    assert set(readiness) == {200, 503}
    assert {answer.headers.get("connection") for answer in answers} == {None, "close"}
