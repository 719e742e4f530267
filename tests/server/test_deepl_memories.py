"""What the clients of DeepL do with memories, with the real client."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import deepl
import pytest
from deepl_contract import ANSWERS
from serving import CONFIG, Running, running

from dragoman.server.deepl import memories
from dragoman.server.keys import Key, digest
from dragoman.server.models import Models

pytest.importorskip("faiss")

TEXT, BETTER = "The dog sees 4 red cats.", "개가 빨간 고양이 네 마리를 보는군요."
UNIT = '<tu><tuv xml:lang="{}"><seg>{}</seg></tuv><tuv xml:lang="{}"><seg>{}</seg></tuv></tu>'
TMX = '<tmx version="1.4"><header srclang="{}"/><body>{}</body></tmx>'


@pytest.fixture
def kept(remembering: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)
    monkeypatch.setattr("time.sleep", lambda seconds, sleep=time.sleep: sleep(min(seconds, 0.1)))
    config = replace(CONFIG, memory=("memory",), state=str(tmp_path / "state"))
    with running(remembering, config, [Key("one", digest("first")), Key("two", digest("second"))]) as started:
        yield started


@pytest.fixture
def client(kept: Running) -> deepl.DeepLClient:
    return deepl.DeepLClient("first", server_url=kept.url)


def write(path: Path, *pairs: tuple[str, str], languages: tuple[str, str] = ("en-US", "ko")) -> Path:
    units = [UNIT.format(languages[0], source, languages[1], target) for source, target in pairs]
    path.write_text(TMX.format(languages[0], "".join(units)), encoding="utf-8")
    return path


def test_imported_file_counts_and_is_listed_and_exported(client: deepl.DeepLClient, kept: Running, tmp_path: Path):
    (empty,) = client.list_translation_memories()
    languages = empty.source_language, empty.target_languages
    assert (empty.name, languages, empty.segment_count) == ("memory", ("en", ["ko"]), 0)
    pairs = [(TEXT, BETTER), ("two", "둘"), ("three", "")]
    job = client.import_translation_memory_from_filepath(write(tmp_path / "cats.tmx", *pairs), display_name="Cats")
    assert (job.ok, job.display_name, job.result.skipped_segment_count) == (True, "Cats", 1)
    assert job.result.translation_memory_id == empty.translation_memory_id
    memory = client.get_translation_memory(empty)
    assert (memory.segment_count, memory.creation_time <= memory.updated_time) == (2, True)
    result = client.translate_text(
        TEXT, source_lang="EN", target_lang="KO", translation_memory=memory, translation_memory_threshold=90
    )
    assert result.text == BETTER
    first = client.list_translation_memory_segments(memory, page_size=1)
    rest = client.list_translation_memory_segments(memory, page_size=1, page_cursor=first.next_page_cursor)
    assert [each.source_text for each in (*first, *rest)] == [TEXT, "two"]
    assert ([target.target_text for target in first.segments[0].targets], rest.next_page_cursor) == ([BETTER], None)
    for wanted, exact, count in (("dog", None, 1), ("DOG", None, 1), ("DOG", True, 0), ("보는", None, 1)):
        found = client.list_translation_memory_segments(memory, filter_text=wanted, filter_case_sensitive=exact)
        assert (len(found), found.segment_count) == (count, 2)
    exported = client.export_translation_memory_to_filepath(memory, tmp_path / "out.tmx")
    assert exported.translation_memory_id == memory.translation_memory_id
    content = (tmp_path / "out.tmx").read_text(encoding="utf-8")
    assert 'creationid="one"' in content
    assert '<prop type="origin">cats.tmx:1</prop>' in content
    # What another key has approved stays.
    deepl.DeepLClient("second", server_url=kept.url).delete_translation_memory(memory)
    assert client.get_translation_memory(memory).segment_count == 2
    client.delete_translation_memory(memory)
    assert client.get_translation_memory(memory).segment_count == 0
    assert {row for row in ANSWERS if "memories" in row[1]} <= kept.contract.seen.keys()


def test_memory_of_a_request_must_be_that_of_its_languages(client: deepl.DeepLClient, tmp_path: Path):
    (memory,) = client.list_translation_memories()
    for wrong, fields, reason in (
        ("a74d88fb-ed2a-4943-a664-a4512398b994", {}, "not found"),
        (memory, {"source_lang": None}, "source_lang"),
        (memory, {"source_lang": "KO", "target_lang": "EN-GB"}, "target_lang"),
    ):
        with pytest.raises(deepl.DeepLException, match=reason):
            client.translate_text(
                TEXT, **{"source_lang": "EN", "target_lang": "KO", **fields}, translation_memory=wrong
            )
    with pytest.raises(deepl.DeepLException, match="not found"):
        client.get_translation_memory("x")
    with pytest.raises(deepl.DeepLException, match="no such item"):
        client.get_translation_memory_job("x")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<tmx><body><tu>", "not a readable TMX file"),
        (TMX.format("de", UNIT.format("de", "ein", "fr", "un")), "no memory for de-fr"),
        (TMX.format("en", UNIT.format("en", "a", "ko", "b") * 4), "more than 3 pairs"),
    ],
)
def test_file_that_cannot_be_imported_fails_with_a_reason(
    client: deepl.DeepLClient, tmp_path: Path, content: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(memories, "MAX_IMPORT", 3)
    (tmp_path / "a.tmx").write_text(content)
    with pytest.raises(deepl.DeepLException, match=reason):
        client.import_translation_memory_from_filepath(tmp_path / "a.tmx")
    assert client.list_translation_memories()[0].segment_count == 0


def test_upload_must_be_what_was_announced_and_counts_once(client: deepl.DeepLClient, kept: Running, tmp_path: Path):
    content = write(tmp_path / "a.tmx", ("ko one", "en one"), languages=("en", "ko")).read_bytes()
    job = client.create_translation_memory_import("a.tmx", len(content))
    waiting = client.get_translation_memory_job(job.job_id)
    assert (waiting.status, bool(waiting.result.required_action)) == ("awaiting_input", True)
    with pytest.raises(deepl.DeepLException, match="length"):
        client.upload_translation_memory_file(job, content + b" ")
    for _ in range(2):
        client.upload_translation_memory_file(job, content)
    assert client.wait_until_translation_memory_job_done(job.job_id).ok
    assert client.list_translation_memories()[0].segment_count == 1
    other: Any = deepl.DeepLClient("second", server_url=kept.url)
    with pytest.raises(deepl.DeepLException, match="no such item"):
        other.get_translation_memory_job(job.job_id)
    with pytest.raises(deepl.DeepLException, match="content_length"):
        client.create_translation_memory_import("a.tmx", 1 << 30)
