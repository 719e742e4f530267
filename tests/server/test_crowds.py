"""Many clients at once: each text gets the answer that it gets alone, and who leaves costs nothing."""

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from serving import CONFIG, Running, Slow, running, until

from dragoman.data.corpus import Pair
from dragoman.decoding.pool import Pool
from dragoman.decoding.processors import Dropped
from dragoman.server.models import Models

PATIENT = replace(CONFIG, deadline=600.0, max_wait=600.0, rate=0, characters=10**7)
HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
Request = dict[str, Any]
SETTINGS: list[Request] = [
    {},
    {},
    {"glossary": ["dog\t강아지", "cat\t야옹이"]},
    {"prefix": "말"},
    {"alternatives": 2},
    {"beam": 1},
    {"format": "html", "forbid": ["고양이"]},
]


def requests_of(pairs: Sequence[Pair], count: int, words: int) -> list[Request]:
    """Requests with a text of 1 to so many words each, some with wishes. Each text has its number in it."""
    chance = random.Random(5)
    vocabulary = [word for source, _ in pairs[:200] for word in source.split()]
    found: list[Request] = []
    for number in range(count):
        text = chance.choices(vocabulary, k=chance.choice([1, 2, 5, 10, chance.randint(1, words)]))
        text.insert(chance.randint(0, len(text)), f"{{n{number}}}")
        found.append({"texts": [" ".join(text)], "source": "en", "target": "ko", **chance.choice(SETTINGS)})
    return found


def ask(server: Running, request: Request) -> list[Any]:
    answer = server.ask("POST", "/api/v1/translate", request)
    assert answer.status == 200, answer
    return list(answer.json["translations"])


def alike(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Whether translations are equal, with all that is said of them. Scores may differ in their last digits."""

    def scores(translations: Sequence[Any]) -> list[float]:
        return [score for one in translations for score in (one["score"], *one["alternative_scores"])]

    def others(translations: Sequence[Any]) -> list[Any]:
        return [{**one, "score": 0, "alternative_scores": len(one["alternatives"])} for one in translations]

    return others(found) == others(expected) and scores(found) == pytest.approx(scores(expected), abs=1e-4)


def send(server: Running, path: str, request: Request) -> socket.socket:
    """Send a request, and do not wait for its answer."""
    body = json.dumps(request).encode()
    return server.connect(HEAD % (path.encode(), len(body)) + body)


def leave_at_random(server: Running, requests: Sequence[Request], over: threading.Event) -> int:
    """Ask for texts much like those of the requests, again and again, and leave at any step. Return how often."""
    chance, count = random.Random(6), 0
    while not over.is_set():
        others = [{**one, "texts": [f"{one['texts'][0]} dogs"]} for one in chance.choices(requests, k=8)]
        connections = [send(server, "/api/v1/translate", other) for other in others]
        for connection in connections:
            time.sleep(chance.random() * 0.02)
            connection.close()
        count += len(connections)
    return count


@pytest.fixture
def uncached(models: Models) -> Iterator[Models]:
    """Models that search for everything that is asked for, each time; what nobody waits for is dropped at once."""
    one = next(iter(models.by_pair.values()))
    with Pool(one.translator.engine, cache=0, grace=0) as pool:
        yield Models([replace(one, pool=pool)])


def drop_the_next_one(right: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that ends the sentence behind each one that nobody waits for."""

    def drop(self: Dropped, *step: Any) -> Any:
        other = Dropped(self.eos)
        other.sentences = {sentence + 1 for sentence in self.sentences}
        return right(other, *step)

    return drop


@pytest.mark.parametrize(
    ("count", "words", "wrong"),
    [
        pytest.param(14, 12, False, id="some"),
        pytest.param(14, 12, True, id="control: the wrong row is dropped", marks=pytest.mark.slow),
        pytest.param(1000, 150, False, id="a thousand", marks=pytest.mark.slow),
        pytest.param(1000, 150, True, id="control of a thousand", marks=pytest.mark.slow),
    ],
)
def test_text_gets_the_same_answer_alone_and_in_any_crowd(
    uncached: Models, pairs: Sequence[Pair], monkeypatch: Any, count: int, words: int, wrong: bool
):
    requests = requests_of(pairs, count, words)
    with running(uncached, PATIENT) as server, ThreadPoolExecutor(33) as threads:
        alone = [ask(server, request)[0] for request in requests]
        for number, one in enumerate(alone):  # each answer is its own
            assert f"{{n{number}}}" in one["text"]
        if wrong:
            monkeypatch.setattr(Dropped, "__call__", drop_the_next_one(Dropped.__call__))
        else:
            order = random.Random(7).sample(range(count), count)
            crowd = dict(zip(order, threads.map(lambda number: ask(server, requests[number])[0], order), strict=True))
            assert alike([crowd[number] for number in range(count)], alone)
            for wish in SETTINGS[1:]:
                own = [n for n, one in enumerate(requests) if {**one, **wish} == one and len(one) == 3 + len(wish)]
                for start in range(0, len(own), CONFIG.texts):
                    part = own[start : start + CONFIG.texts]
                    array = {**requests[part[0]], "texts": [requests[number]["texts"][0] for number in part]}
                    assert alike(ask(server, array), [alone[number] for number in part])
        over = threading.Event()
        leaving = threads.submit(leave_at_random, server, requests, over)
        try:
            for _ in range(10 if wrong else 1):
                beside = list(threads.map(lambda request: ask(server, request)[0], requests))
                if not alike(beside, alone):
                    break
        finally:
            over.set()
        assert leaving.result() > 10
        assert wrong != alike(beside, alone)
        until(lambda: server.metric("dragoman_in_flight") == 0)
        assert server.metric('dragoman_finished_total{outcome="cancelled"}') > 5


# --- Leaving, and time


def test_requests_of_fifty_clients_that_leave_are_not_computed(models: Models, pairs: Sequence[Pair]):
    chance, words = random.Random(8), [word for source, _ in pairs[:200] for word in source.split()]

    def long() -> Request:
        return {"q": " ".join(chance.choices(words, k=400)), "source": "en", "target": "ko"}

    with running(models, PATIENT) as server:
        server.translate("A dog.")
        connections = [send(server, "/translate", long()) for _ in range(50)]
        time.sleep(0.2)
        assert server.metric("dragoman_in_flight") > 0
        for connection in connections:
            connection.close()
        began = time.perf_counter()
        assert server.translate("A dog sees 7 cats.").status == 200
        next_one = time.perf_counter() - began
        until(lambda: server.metric("dragoman_in_flight") == 0)
        until(lambda: computed(0.2) < 0.02)
        print(f"the next answer after {next_one:.2f} s, nothing computed after {time.perf_counter() - began:.2f} s")
        assert server.metric("dragoman_accepted_total") == sum(
            server.metric(f'dragoman_finished_total{{outcome="{one}"}}') for one in ("ok", "failed", "cancelled")
        )


def computed(seconds: float) -> float:
    """Return how many seconds this process, with its server, computes within so many seconds."""
    before = time.process_time()
    time.sleep(seconds)
    return time.process_time() - before


def test_deadline_is_kept_and_equal_requests_are_searched_once(models: Models):
    one = next(iter(models.by_pair.values()))
    slow = Slow(one.translator.engine, 30, steps=300)
    with Pool(slow) as pool, running(Models([replace(one, pool=pool)]), replace(PATIENT, deadline=0.5)) as server:
        began = time.perf_counter()
        late = server.translate("A dog.")
        assert (late.status, "longer than 0.5 seconds" in late.json["error"]) == (503, True)
        assert time.perf_counter() - began >= 0.5
        assert slow.taken <= 5 + 2
    slow = Slow(one.translator.engine, 0.5, steps=5)
    with Pool(slow) as pool, running(Models([replace(one, pool=pool)]), PATIENT) as server:
        with ThreadPoolExecutor(20) as threads:
            answers = list(threads.map(lambda _: server.translate("A dog."), range(20)))
        assert {answer.body for answer in answers} == {answers[0].body}
        assert len(slow.searched) == 1
