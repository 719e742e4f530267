"""Corrections in the memory of a server: who may do what, what they change, and what a crash leaves of them."""

import contextlib
import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Answer, Running, open_remembering, running, started

from dragoman.data.tmx import read_tmx
from dragoman.errors import UsageError
from dragoman.memory import Memory
from dragoman.model_folder import read_model
from dragoman.server.keys import Key, digest
from dragoman.server.models import Models, parse_memories, parse_models
from dragoman.translation.translation import EXACT

pytest.importorskip("faiss")

TEXT, OTHER = "The dog sees 4 red cats.", "The dog sees 4 red horses."
BETTER = "개가 빨간 고양이 네 마리를 보는군요."
KEYS = [Key("one", digest("first")), Key("two", digest("second"))]
PAIRS = "/api/v1/memories/en/ko"
WITH_MEMORY = replace(CONFIG, memory=("memory",))


@pytest.fixture
def kept(remembering: Models) -> Iterator[Running]:
    with running(remembering, WITH_MEMORY) as started:
        yield started


@pytest.fixture
def keyed(remembering: Models) -> Iterator[Running]:
    with running(remembering, WITH_MEMORY, KEYS) as started:
        yield started


def translate(server: Running, *texts: str, key: str = "", **fields: Any) -> list[Any]:
    body = {"texts": list(texts), "source": "en", "target": "ko", **fields}
    answer = server.ask("POST", "/api/v1/translate", body, Authorization=f"Bearer {key}")
    assert answer.status == 200, answer
    return answer.json["translations"]


def add(server: Running, *pairs: tuple[str, str], key: str = "", **fields: Any) -> Answer:
    body = {"pairs": [{"text": text, "translation": translation} for text, translation in pairs], **fields}
    return server.ask("POST", PAIRS, body, Authorization=f"Bearer {key}")


def listed(server: Running, query: str = "", key: str = "") -> list[Any]:
    return server.ask("GET", f"{PAIRS}?{query}", Authorization=f"Bearer {key}").json["pairs"]


def test_correction_counts_for_the_next_request_and_is_forgotten(kept: Running):
    (before,) = translate(kept, TEXT)
    assert (before["memory"], before["flags"]) == ([], [])
    (pair,) = add(kept, (f" The  dog {TEXT[8:]}", BETTER)).json["pairs"]
    assert pair == {
        **{"number": 0, "text": TEXT, "translation": BETTER, "origin": "api", "by": "", "yours": True},
        "date": pair["date"],
    }
    after, near = translate(kept, TEXT, OTHER)
    assert (after["text"], after["flags"]) == (BETTER, [EXACT])
    assert after["memory"] == [{**pair, "line": 0, "similarity": 1.0}]
    assert 0.5 < near["memory"][0]["similarity"] < 1
    assert kept.translate(TEXT).json["translatedText"] == BETTER
    assert kept.ask("DELETE", f"{PAIRS}/0").status == 204
    assert translate(kept, TEXT) == [before]
    assert [kept.ask("DELETE", f"{PAIRS}/{number}").status for number in (0, 1, "x", "9" * 30)] == [404] * 4


def test_near_texts_are_searched_for_again_after_a_correction(kept: Running):
    """The control: what was found before is kept in the cache for as long as the memory stays as it is."""
    ours = next(iter(kept.service.models.by_pair.values()))
    scores = [translate(kept, OTHER)[0]["score"] for _ in range(2)]
    assert scores[0] == scores[1]
    add(kept, (TEXT, BETTER))
    assert len({row.version for row in ours.pool.cache.results}) == 1
    assert translate(kept, OTHER)[0]["score"] != scores[0]
    assert len({row.version for row in ours.pool.cache.results}) == 2


def test_words_name_the_pairs_that_speak_for_them(kept: Running):
    add(kept, (TEXT, BETTER), origin="manual.tmx:31")
    (after,) = translate(kept, TEXT, origins=True)
    assert len(after["origins"]) == len(BETTER.split())
    assert [word[0]["number"] for word in after["origins"]] == [0] * len(after["origins"])
    first = after["origins"][0][0]
    assert (first["origin"], first["text"], first["translation"]) == ("manual.tmx:31", TEXT, BETTER)
    assert 0 < first["share"] <= first["neighbours"] <= 1
    assert "origins" not in translate(kept, TEXT)[0]
    pair = kept.ask("GET", "/api/v1/models").json["pairs"][0]
    assert pair["memory"] == "all"


def test_pairs_are_listed_in_pages_edited_and_forgotten_by_origin(kept: Running):
    texts = [(f"text {number}", f"글 {number}") for number in range(7)]
    add(kept, *texts[:4], origin="a.tsv:1")
    add(kept, *texts[4:], origin="b.tsv")
    page = kept.ask("GET", f"{PAIRS}?count=5").json
    assert ([each["number"] for each in page["pairs"]], page["next"]) == ([0, 1, 2, 3, 4], 5)
    assert [each["number"] for each in listed(kept, "first=5")] == [5, 6]
    assert [each["number"] for each in listed(kept, "origin=a.tsv&contains=TEXT")] == [0, 1, 2, 3]
    assert [each["number"] for each in listed(kept, "contains=%EA%B8%80+6")] == [6]
    changed = kept.ask("PUT", f"{PAIRS}/4", {"text": "text 4", "translation": "다른 글"}).json
    assert (changed["number"], changed["origin"]) == (7, "b.tsv")
    assert kept.ask("PUT", f"{PAIRS}/4", {"text": "text 4", "translation": "또"}).status == 404
    assert kept.translate("text 4").json["translatedText"] == "다른 글"
    assert kept.ask("DELETE", f"{PAIRS}?origin=a.tsv").json == {"forgotten": 4}
    assert [each["number"] for each in listed(kept)] == [5, 6, 7]
    card = kept.ask("GET", "/api/v1/memories").json
    assert card == {"memories": [{"source": "en", "target": "ko", "pairs": 3, "counts": "all"}]}


def test_exported_files_have_all_pairs(kept: Running, tmp_path: Path):
    pairs = [("a < b & \x0b", '"ㄱ" >'), ("two", "둘")]
    add(kept, *pairs, origin="page")
    tsv = kept.ask("GET", f"{PAIRS}/export?format=tsv")
    assert tsv.body.decode() == 'a < b &\t"ㄱ" >\ntwo\t둘\n'
    tmx = kept.ask("GET", f"{PAIRS}/export")
    assert 'filename="en-ko.tmx"' in tmx.headers["content-disposition"]
    (tmp_path / "all.tmx").write_bytes(tmx.body)
    rows = list(read_tmx(str(tmp_path / "all.tmx"), None, print))
    assert [(row.source, row.target) for row in rows] == [("a < b &", '"ㄱ" >'), ("two", "둘")]
    assert b'<prop type="origin">page</prop>' in tmx.body


def test_wrong_pairs_are_refused_and_none_of_them_is_kept(kept: Running):
    for pairs in ([], [("a", "b"), (" ", "b")], [("a", "")], [("x" * 10_001, "b")], [("a", "b")] * 1001):
        assert add(kept, *pairs).status == 400
    assert kept.ask("POST", "/api/v1/memories/ko/en", {"pairs": [{"text": "a", "translation": "b"}]}).status == 404
    assert listed(kept) == []


def test_pairs_of_other_keys_stay_as_they_are(keyed: Running):
    assert add(keyed, (TEXT, BETTER)).status == 401
    (pair,) = add(keyed, (TEXT, BETTER), key="first").json["pairs"]
    assert (pair["origin"], pair["by"], pair["yours"]) == ("one", "one", True)
    assert [each["yours"] for each in listed(keyed, key="second")] == [False]
    head = {"Authorization": "Bearer second"}
    assert keyed.ask("DELETE", f"{PAIRS}/0", **head).status == 403
    assert keyed.ask("PUT", f"{PAIRS}/0", {"text": TEXT, "translation": "x"}, **head).status == 403
    assert keyed.ask("DELETE", f"{PAIRS}?origin=one", **head).json == {"forgotten": 0}
    assert translate(keyed, TEXT, key="second")[0]["text"] == BETTER  # all of them see it
    add(keyed, (TEXT, "둘째"), key="second")
    assert translate(keyed, TEXT, key="first")[0]["text"] == "둘째"
    assert keyed.ask("DELETE", f"{PAIRS}/0", Authorization="Bearer first").status == 204


def test_suggestion_counts_at_once_and_is_kept_for_a_training(remembering: Models, tmp_path: Path):
    body = {"q": f"{TEXT}\ntwo", "s": f"{BETTER}\n둘", "source": "en", "target": "ko"}
    with running(remembering, replace(WITH_MEMORY, suggestions=str(tmp_path / "files"))) as server:
        assert server.ask("POST", "/suggest", body).json == {"success": True}
        assert server.translate([TEXT, "two"]).json["translatedText"] == [BETTER, "둘"]
        assert [each["origin"] for each in listed(server)] == ["suggest", "suggest"]
    assert (tmp_path / "files" / "en-ko.tsv").read_text() == f"{TEXT}\t{BETTER}\ntwo\t둘\n"
    with running(remembering, WITH_MEMORY) as server:
        assert server.ask("GET", "/frontend/settings").json["suggestions"] is True
        assert server.ask("POST", "/suggest", {**body, "q": "three", "s": "셋"}).json == {"success": True}
        assert server.translate("three").json["translatedText"] == "셋"


def test_ctranslate2_uses_exact_matches_only_and_says_so(trained: Path, tmp_path: Path):
    pytest.importorskip("ctranslate2")
    models = open_remembering(trained, tmp_path / "memory", engine="ctranslate2")
    with running(models, replace(WITH_MEMORY, engine="ctranslate2")) as server:
        before = translate(server, OTHER)[0]
        add(server, (TEXT, BETTER))
        exact, near = translate(server, TEXT, OTHER)
        assert (exact["text"], near["text"], near["score"]) == (BETTER, before["text"], before["score"])
        assert server.ask("GET", "/api/v1/models").json["pairs"][0]["memory"] == "exact"
        body = {"texts": [TEXT], "source": "en", "target": "ko", "origins": True}
        assert "exact" in server.ask("POST", "/api/v1/translate", body).json["error"]["message"]
    models.close(5)


def test_flag_names_the_model_where_there_are_several(trained: Path):
    sources = parse_models([f"en-ko={trained}", f"ko-en={trained}"], None)
    (folder,) = {source.folder for source in sources}
    assert parse_memories(["m"], sources) == {folder: Path("m")}
    assert parse_memories(["ko-en=m"], sources) == {folder: Path("m")}
    others = [sources[0], sources[1]._replace(folder=Path("other"))]
    assert parse_memories(["en-ko=m", "ko-en=n"], others) == {folder: Path("m"), Path("other"): Path("n")}
    for texts, reason in (
        (["m"], "name a pair of one, as in en-ko=m"),
        (["en-de=m"], "no model for en-de"),
        (["en-ko=m", "en-ko=n"], "has a memory already"),
    ):
        with pytest.raises(UsageError, match=re.escape(reason)):
            parse_memories(texts, others)


# Many at once, and crashes.


CLIENTS, ROUNDS = 20, 5


def missed(server: Running) -> int:
    """Let clients correct and translate at once; return how many answers lacked what their client had just approved."""

    def work(client: int) -> int:
        wrong = 0
        for turn in range(ROUNDS):
            mine = f"{client} {turn} {TEXT}"
            assert add(server, (mine, f"{client} {turn} {BETTER}")).status == 201
            exact, _ = server.translate([mine, f"{mine[:-1]}?"]).json["translatedText"]
            wrong += exact != f"{client} {turn} {BETTER}"
        return wrong

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(work, range(CLIENTS)))


def test_clients_at_once_see_their_corrections_in_the_next_answer(kept: Running):
    assert missed(kept) == 0
    assert len(listed(kept, "count=1000")) == CLIENTS * ROUNDS


def test_servers_with_one_memory_see_what_the_other_learned(
    kept: Running, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The control: one that does not look does not."""
    models = open_remembering(trained, tmp_path / "memory")
    with running(models, WITH_MEMORY) as other:
        for number in range(20):
            assert (
                add((kept, other)[number % 2], (f"{number} {TEXT}", str(number))).json["pairs"][0]["number"] == number
            )
            assert (other, kept)[number % 2].translate(f"{number} {TEXT}").json["translatedText"] == str(number)
        served = next(iter(models.by_pair.values()))
        monkeypatch.setattr(served.translator.memory, "refresh", lambda: None)
        add(kept, (TEXT, BETTER))
        assert other.translate(TEXT).json["translatedText"] != BETTER
    models.close(5)


def test_processes_of_a_server_share_a_memory_that_is_tidied_meanwhile(dragoman, trained: Path, tmp_path: Path):
    """A command of another process writes new states and deletes the old ones; the next one makes them anew."""
    memory, more = tmp_path / "memory", tmp_path / "more.tsv"
    flags = ("--memory", str(memory), "--processes", "2", "--rate", "0")
    with started(trained, tmp_path / "log", *flags) as process, ThreadPoolExecutor(1) as pool:
        wrong = pool.submit(missed, process.server)
        for number in range(3):
            more.write_text(f"{number} more\tnoch {number}\n", encoding="utf-8")
            assert dragoman("remember", "-m", trained, more, "--out", memory, "--add").code == 0
        assert wrong.result() == 0
        assert len(listed(process.server, "count=1000")) == CLIENTS * ROUNDS + 3
        for number in range(3):
            for _ in range(6):  # whichever process answers
                assert process.server.translate(f"{number} more").json["translatedText"] == f"noch {number}"


def test_killed_server_has_lost_nothing_that_it_answered(trained: Path, tmp_path: Path):
    memory, answered = tmp_path / "memory", list[str]()

    def work(client: int, server: Running) -> None:
        with contextlib.suppress(OSError, HTTPException):
            for turn in range(10_000):
                if add(server, (f"{client} {turn} {TEXT}", BETTER)).status == 201:
                    answered.append(f"{client} {turn} {TEXT}")

    for _ in range(2):
        with started(trained, tmp_path / "log", "--memory", str(memory), "--rate", "0") as process:
            assert "remembers" in (tmp_path / "log").read_text()
            threads = [threading.Thread(target=work, args=(client, process.server)) for client in range(8)]
            before = len(answered)
            for thread in threads:
                thread.start()
            while len(answered) < before + 100:
                threads[0].join(0.01)
            os.kill(process.number, signal.SIGKILL)
            for thread in threads:
                thread.join()
    folder = (trained / "best").resolve()
    pairs = [pair.source for pair in Memory(memory, folder, *read_model(folder)).pairs if pair]
    assert set(answered) <= set(pairs)
    assert len(pairs) <= len(answered) + 2 * 8
