"""Callers among each other: what one of them sends keeps no other one waiting, and is not shown to others."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Answer, Running, multipart, running, until

from dragoman.server import files
from dragoman.server.keys import Key, digest
from dragoman.server.models import Models
from dragoman.server.shares import Shares, Turns

TEXT = "The dog sees 4 red cats."
KEYS = [Key(name, digest(name)) for name in ("first", "second")]
DOCUMENTS = "/api/v1/documents"


def send(server: Running, text: str = TEXT, **headers: str) -> Answer:
    body, kind = multipart([("source", "en"), ("target", "ko")], {"a.txt": text})
    return server.ask("POST", DOCUMENTS, body, Content_Type=kind, **headers)


def at(address: str) -> dict[str, str]:
    return {"X_Forwarded_For": address}


def with_key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture
def behind_a_proxy(models: Models, tmp_path: Path) -> Iterator[Running]:
    """A server without keys, whose callers are told apart by the addresses that a proxy names."""
    config = replace(CONFIG, state=str(tmp_path), open=True, proxy=("127.0.0.1",))
    with running(models, config) as started:
        yield started


def test_document_without_keys_is_got_by_its_id_alone_and_not_listed(
    behind_a_proxy: Running, models: Models, tmp_path: Path
):
    """Many people may have one address. The controls: another id, and a key, which is of one caller."""
    server = behind_a_proxy
    sent = send(server, **at("10.0.0.1")).json
    path = f"{DOCUMENTS}/{sent['id']}"
    for address in ("10.0.0.1", "10.0.0.2"):
        assert server.ask("GET", DOCUMENTS, **at(address)).json == {"documents": []}
        assert server.ask("GET", path, **at(address)).json == sent
        assert server.ask("GET", f"{path}/content", **at(address)).status == 200
    assert server.ask("GET", f"{DOCUMENTS}/{'0' * 32}", **at("10.0.0.1")).status == 404
    assert server.ask("DELETE", path, **at("10.0.0.2")).status == 204
    assert server.ask("GET", path, **at("10.0.0.1")).status == 404
    with running(models, replace(CONFIG, state=str(tmp_path)), KEYS) as locked:
        path = f"{DOCUMENTS}/{send(locked, **with_key('first')).json['id']}"
        assert len(locked.ask("GET", DOCUMENTS, **with_key("first")).json["documents"]) == 1
        assert locked.ask("GET", DOCUMENTS, **with_key("second")).json == {"documents": []}
        for method in ("GET", "DELETE"):
            assert locked.ask(method, path, **with_key("second")).status == 404
        assert locked.ask("GET", path, **with_key("first")).status == 200


def test_document_of_deepl_without_keys_needs_its_secret_and_no_address(behind_a_proxy: Running):
    body, kind = multipart([("target_lang", "KO"), ("source_lang", "EN")], {"a.txt": TEXT})
    handle = behind_a_proxy.ask("POST", "/v2/document", body, Content_Type=kind, **at("10.0.0.1")).json
    path = f"/v2/document/{handle['document_id']}/result"
    for secret, status in (("", 404), ("0" * 64, 404), (handle["document_key"], 200), (handle["document_key"], 404)):
        assert behind_a_proxy.ask("POST", path, {"document_key": secret}, **at("10.0.0.2")).status == status


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Semaphore, list[str]]]:
    """Documents wait for so many permits, one for each block; and the callers in the order in which they got one."""
    may, order, translate_lines = threading.Semaphore(0), list[str](), files.translate_lines

    def step(call: Any, *task: Any) -> Any:
        assert may.acquire(timeout=30)
        order.append(call.caller.removeprefix("address "))
        return translate_lines(call, *task)

    monkeypatch.setattr(files, "translate_lines", step)
    monkeypatch.setattr(files, "PROMPT", 0.0)
    monkeypatch.setattr(files, "BLOCK", 2)
    yield may, order
    may.release(1000)
    until(lambda: not files.OWN)


def test_documents_have_a_quarter_of_the_places_for_each_caller(
    behind_a_proxy: Running, held_up: tuple[threading.Semaphore, list[str]]
):
    statuses = [send(behind_a_proxy, **at("10.0.0.1")).status for _ in range(files.MAX_WAITING // 4)]
    assert set(statuses) == {201}
    refused = send(behind_a_proxy, **at("10.0.0.1"))
    assert (refused.status, refused.headers["retry-after"]) == (429, "10")
    assert refused.json["error"]["message"] == "too many documents of yours are waiting"
    assert send(behind_a_proxy, **at("10.0.0.2")).status == 201


def test_documents_of_callers_take_turns_after_each_block(
    behind_a_proxy: Running, held_up: tuple[threading.Semaphore, list[str]], monkeypatch: pytest.MonkeyPatch
):
    """A short document behind three long ones of another caller waits for one block of theirs, not for all."""
    may, order = held_up
    monkeypatch.setattr(files, "TURNS", Turns(1))
    long, patient, hasty = "\n".join(TEXT.replace("4", str(number)) for number in range(8)), "10.0.0.1", "10.0.0.2"
    for _ in range(3):
        assert send(behind_a_proxy, long, **at(patient)).status == 201
    until(lambda: not files.TURNS.free and sum(map(len, files.TURNS.waiting.values())) == 2)
    short = send(behind_a_proxy, **at(hasty)).json["id"]
    until(lambda: hasty in str(files.TURNS.waiting))
    may.release(4)
    until(lambda: behind_a_proxy.ask("GET", f"{DOCUMENTS}/{short}").json["status"] == "done")
    assert order.index(hasty) <= 3
    may.release(20)
    until(lambda: not files.OWN)
    assert order.count(patient) == 12


def test_document_that_is_deleted_while_it_waits_gives_its_place_back(
    behind_a_proxy: Running, held_up: tuple[threading.Semaphore, list[str]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(files, "TURNS", Turns(1))
    monkeypatch.setattr(files, "PLACES", Shares(8))
    ids = [send(behind_a_proxy, **at("10.0.0.1")).json["id"] for _ in range(2)]
    until(lambda: not files.TURNS.free)
    assert send(behind_a_proxy, **at("10.0.0.1")).status == 429
    assert behind_a_proxy.ask("DELETE", f"{DOCUMENTS}/{ids[1]}").status == 204
    until(lambda: len(files.OWN) == 1)
    assert send(behind_a_proxy, **at("10.0.0.1")).status == 201
