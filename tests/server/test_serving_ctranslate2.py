"""The server with CTranslate2: whole batches, one in each replica, looked at before and after each."""

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from serving import CONFIG, Running, running, until

from dragoman.data.corpus import Pair
from dragoman.decoding.pool import Pool
from dragoman.errors import UsageError
from dragoman.inspection.inspect import inspect
from dragoman.runtime.threads import granted_cores
from dragoman.server.models import Models, Served, open_models, parse_models
from dragoman.translation.translator import Translator

pytest.importorskip("ctranslate2", reason="the CTranslate2 engine needs the extra `fast`")

REPLICAS = 2
FAST = replace(CONFIG, engine="ctranslate2", threads=None)


class Watched:
    """An engine without steps whose searches are noted, and wait until it is opened."""

    def __init__(self, engine: Any):
        self.engine, self.open = engine, threading.Event()
        self.max_positions = engine.max_positions
        self.batches: list[list[Any]] = []
        self.now = self.most = 0  # searches at the same time

    def search(self, sources: Sequence[Any], *task: Any) -> Any:
        self.batches.append(list(sources))
        self.now += 1
        self.most = max(self.most, self.now)
        assert self.open.wait(20)
        found = self.engine.search(sources, *task)
        self.now -= 1
        return found


@pytest.fixture(scope="module")
def served(trained: Path) -> Iterator[Served]:
    """A model that CTranslate2 translates with."""
    opened = open_models(replace(FAST, replicas=REPLICAS), parse_models([f"en-ko={trained}"], None))
    yield next(iter(opened.by_pair.values()))
    opened.close(5)


@contextlib.contextmanager
def watching(served: Served, *, is_open: bool = False, **config: Any) -> Iterator[tuple[Running, Watched]]:
    """A server whose searches can be watched."""
    watched = Watched(served.translator.engine)
    if is_open:
        watched.open.set()
    pool = Pool(watched, threads=REPLICAS)
    with pool, running(Models([replace(served, pool=pool)]), replace(FAST, **config)) as server:
        yield server, watched
        watched.open.set()


def test_replicas_are_as_many_as_cores_unless_the_settings_say_otherwise(trained: Path):
    sources = parse_models([f"en-ko={trained}"], None)
    cores = granted_cores()
    for settings, replicas, threads in (({}, cores, 1), ({"replicas": 3}, 3, 1), ({"threads": cores}, 1, cores)):
        models = open_models(replace(FAST, **settings), sources)  # type: ignore[arg-type]
        one = next(iter(models.by_pair.values()))
        engine: Any = one.translator.engine
        assert len(one.pool.threads) == replicas
        assert engine.translator.num_translators == replicas * threads
        models.close(5)
    with pytest.raises(UsageError, match="replicas works only with the engine ctranslate2"):
        replace(CONFIG, replicas=2)


@pytest.mark.slow
def test_batched_answers_are_those_of_texts_alone(served: Served, pairs: Sequence[Pair]):
    texts = [f"{source} {{n{number}}}" for number, (source, _) in enumerate(pairs[:40])]
    alone = {text: served.translator.translate(text).text for text in texts}
    assert len(set(alone.values())) == len(texts)  # else answers could change places unseen
    with watching(served, is_open=True, cache=0) as (server, watched), ThreadPoolExecutor(16) as threads:
        crowd = list(threads.map(lambda text: server.translate(text).json["translatedText"], texts * 2))
        assert server.translate(texts).json["translatedText"] == list(alone.values())
    assert crowd == [alone[text] for text in texts * 2]
    assert 1 < watched.most <= REPLICAS
    assert max(map(len, watched.batches)) > 1


def test_batch_has_at_most_2048_tokens_and_both_replicas_have_work(served: Served):
    words = ["dog", "cat", "bear", "horse", "rabbit"]
    texts = [" ".join(choice * 2) for choice in itertools.product(words, repeat=4)]  # 625
    with watching(served) as (server, watched), ThreadPoolExecutor(1) as threads:
        answer = threads.submit(server.translate, texts)
        until(lambda: watched.now == REPLICAS)
        watched.open.set()
        assert answer.result().status == 200
    sizes = [len(batch) * (1 + max(map(len, batch))) for batch in watched.batches]
    assert max(sizes) <= 2048
    assert sum(sizes) > 2 * 2048  # the control: two batches could not have had them all


def test_client_that_leaves_before_a_batch_begins_is_not_in_it(served: Served):
    with watching(served) as (server, watched):
        busy = [server.connect(post(f"The dog sees {name}.")) for name in ("cats", "dogs")[:REPLICAS]]
        until(lambda: watched.now == REPLICAS)
        leaving = [server.connect(post(f"The bear sees {name} horses.")) for name in ("red", "blue", "black")]
        staying = server.connect(post("The bear likes white rabbits."))
        until(lambda: server.metric("dragoman_in_flight") == REPLICAS + 4)
        for connection in leaving:
            connection.close()
        (pool,) = server.service.models.pools
        until(lambda: sum(search.ticket.cancelled for search in list(pool.searches)) == 3)
        assert len(watched.batches) == REPLICAS
        watched.open.set()
        for connection in (*busy, staying):
            assert b"200 OK" in connection.recv(1000)
            connection.close()
        assert sum(map(len, watched.batches)) == REPLICAS + 1
        until(lambda: server.metric("dragoman_in_flight") == 0)
        assert server.metric('dragoman_finished_total{outcome="cancelled"}') == 3


def post(text: str) -> bytes:
    """A request to translate a text."""
    body = f'{{"q":"{text}","source":"en","target":"ko"}}'
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def test_deadline_is_kept_although_a_batch_cannot_be_stopped(served: Served):
    with watching(served, deadline=0.3) as (server, watched):
        late = server.translate("The dog sees 2 cats.")
        assert (late.status, "longer than 0.3 seconds" in late.json["error"]) == (503, True)
        assert watched.now == 1  # it goes on
        watched.open.set()
        until(lambda: server.translate("The dog sees 3 cats.").status == 200)


def test_inspection_is_native_and_shows_the_served_translation(served: Served, trained: Path):
    text = "The dog sees 4 red cats."
    expected = inspect(Translator.load(trained, threads=1), text)
    with watching(served, is_open=True) as (server, _):
        body = {"text": text, "source": "en", "target": "ko"}
        (one,) = server.ask("POST", "/api/v1/inspect", body).json["inspections"]
        translated = server.translate(text).json["translatedText"]
    assert one["engine"] == "ctranslate2"
    assert one["inspection"]["tree"]["nodes"] == [asdict(node) for node in expected.tree.nodes]  # type: ignore[union-attr]
    assert one["translation"] == translated
    assert one["differs"] == (translated != expected.target.text)
