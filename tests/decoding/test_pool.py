"""Many requests, one engine: each gets its own answer, in time, and nothing is searched for in vain."""

import itertools
import math
import random
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_transformer

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.decoding.engine import UNCONSTRAINED, Constraints
from dragoman.decoding.pool import Pool
from dragoman.decoding.processors import Dropped
from dragoman.decoding.rows import Cache, Gone, Late, Row, Ticket
from dragoman.decoding.search import Hypothesis, Steps, finish
from dragoman.decoding.torch_engine import TorchEngine
from dragoman.errors import DragomanError, UsageError
from dragoman.model import build
from dragoman.text.glossary import Entry, Glossary
from dragoman.translation.safeguards import Safeguards
from dragoman.translation.translator import Translator

WORDS, EOS = 12, 2
PLAIN = SearchConfig(extra_length=2)
Look = Callable[[list[Ids]], None]


def until(condition: Callable[[], Any]) -> None:
    """Wait until another thread has come so far."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "nothing has happened for 20 seconds"
        time.sleep(0.0005)


class Watched:
    """An engine whose steps are counted and looked at before they are taken."""

    def __init__(self, engine: Any, look: Look = lambda sources: None):
        self.engine, self.look, self.steps, self.batches = engine, look, 0, list[list[Ids]]()
        self.max_positions = None

    def search(self, *task: Any) -> list[list[Hypothesis]]:
        return self.engine.search(*task)

    def search_batch(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Any, observe: Any = None, dropped: Any = None
    ) -> Steps:
        self.batches.append(list(sources))
        steps = self.engine.search_batch(sources, config, constraints, dropped=dropped)
        while True:
            self.look(list(sources))
            self.steps += 1
            try:
                next(steps)
            except StopIteration as end:
                return end.value
            yield


class Echo:
    """An engine that gives back each source; a source takes as many steps as its first id says, or as a whole one."""

    max_positions = None

    def __init__(self, look: Callable[[], None] = lambda: None):
        self.look = look

    def search(self, sources: Sequence[Ids], config: SearchConfig, constraints: Any = None) -> list[list[Hypothesis]]:
        self.look()
        return [[Hypothesis(ids, 0.0)] for ids in sources]

    def search_batch(self, sources: Sequence[Ids], *task: Any, dropped: Dropped | None = None) -> Steps:
        assert dropped is not None
        for step in itertools.count(1):
            if not any(ids[0] > step for row, ids in enumerate(sources) if row not in dropped.sentences):
                return self.search(sources, PLAIN)
            yield
        raise AssertionError


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def tick(self, seconds: float) -> None:
        self.now = round(self.now + seconds, 6)


@pytest.fixture
def pools() -> Iterator[Callable[..., Pool]]:
    """Make pools, which are closed at the end. Nothing waits for others to come, unless asked for."""
    made: list[Pool] = []

    def make(engine: Any, **settings: Any) -> Pool:
        made.append(Pool(engine, **{"gather": 0, **settings}))
        return made[-1]

    yield make
    for pool in made:
        pool.close(timeout=10)
        assert not any(thread.is_alive() for thread in pool.threads)
        assert not pool.searches
        assert not pool.asked
        assert not pool.running


def ask(pool: Pool, ids: Ids, ticket: Ticket | None = None, config: SearchConfig = PLAIN) -> list[Hypothesis]:
    return pool.view(ticket or Ticket()).search([ids], config)[0]


# Each its own answer.

Case = tuple[Ids, SearchConfig, Constraints]


def cases(count: int = 200) -> list[Case]:
    """Sources of several lengths, often the same ones, with all kinds of settings."""
    chance = random.Random(1)
    settings = [
        PLAIN,
        SearchConfig(beam=1, extra_length=2),
        SearchConfig(beam=4, n_best=3, extra_length=2, no_repeat_ngram=2),
        SearchConfig(beam=4, beam_groups=2, n_best=2, extra_length=2),
        SearchConfig(temperature=1.0, n_best=2, extra_length=2),
    ]

    def words(most: int) -> tuple[int, ...]:
        return tuple(chance.randint(3, WORDS - 1) for _ in range(chance.randint(1, most)))

    sources = [words(6) for _ in range(count // 4)]
    found: list[Case] = []
    for number in range(count):
        config = settings[number % len(settings)]
        constraints = Constraints(
            prefix=words(3) if chance.random() < 0.3 else (),
            forbidden=(words(1), words(2)) if chance.random() < 0.3 else (),
        )
        found.append((list(chance.choice(sources)), config, constraints))
    return found


CASES = cases()


@pytest.fixture
def engine(seeded_double_precision: None) -> TorchEngine:
    """In double precision no two hypotheses are so close that the size of a batch decides between them."""
    model = build(tiny_transformer(share="none", max_length=64), WORDS).eval()
    with torch.no_grad():
        model.output.weight.mul_(2)
    return TorchEngine(model)


def tokens(found: list[Hypothesis]) -> list[Ids]:
    return [one.tokens for one in found]


ALONE: list[list[Ids]] = []  # the answers of the same model to each case, searched for once


@pytest.fixture
def alone(engine: TorchEngine) -> list[list[Ids]]:
    ALONE[:] = ALONE or [tokens(engine.search([ids], config, [own])[0]) for ids, config, own in CASES]
    return ALONE


def by_threads(pool: Pool, tickets: list[Ticket], order: list[int]) -> dict[int, list[Ids]]:
    """The answers to the cases, asked for by 32 threads; none for those whose ticket was cancelled."""
    found: dict[int, list[Ids]] = {}

    def translate(number: int) -> None:
        ids, config, own = CASES[number]
        try:
            found[number] = tokens(pool.view(tickets[number]).search([ids], config, [own])[0])
        except Gone:
            assert tickets[number].cancelled

    with ThreadPoolExecutor(32) as threads:
        list(threads.map(translate, order))
    return found


def test_requests_get_the_answer_that_they_get_alone(engine: TorchEngine, alone: list[list[Ids]], pools):
    order = random.Random(2).sample(range(len(CASES)), len(CASES))
    watched = Watched(engine)
    found = by_threads(pools(watched), [Ticket() for _ in CASES], order)
    assert [found[number] for number in range(len(CASES))] == alone
    assert len(watched.batches) < len(CASES) / 2  # many went together
    for config in dict.fromkeys(config for _, config, _ in CASES):  # as one array
        rows = [number for number, case in enumerate(CASES) if case[1] == config]
        ids, own = [CASES[row][0] for row in rows], [CASES[row][2] for row in rows]
        array = pools(engine, tokens=100, cache=0).view(Ticket()).search(ids, config, own)
        assert [tokens(each) for each in array] == [alone[row] for row in rows]


@pytest.mark.parametrize("wrong", [False, True], ids=["", "control: the wrong row is dropped"])
def test_others_are_the_same_when_some_leave(
    engine: TorchEngine, alone: list[list[Ids]], pools, wrong: bool, monkeypatch: pytest.MonkeyPatch
):
    tickets, chance, right = [Ticket() for _ in CASES], random.Random(3), Dropped.__call__
    leaving = chance.sample(range(len(CASES)), len(CASES) // 3)

    def drop_the_next_one(self: Dropped, *step: Any) -> Any:
        other = Dropped(self.eos)
        other.sentences = {sentence + 1 for sentence in self.sentences}
        return right(other, *step)

    if wrong:
        monkeypatch.setattr(Dropped, "__call__", drop_the_next_one)

    dropped: list[int] = []

    def look(sources: list[Ids]) -> None:
        for asked in (asked for batch in pool.running for asked in batch.rows):
            for search in list(asked.searches):
                number = tickets.index(search.ticket)
                if number in leaving and chance.random() < 0.3:
                    tickets[number].cancel()
        dropped.append(sum(len(batch.dropped.sentences) for batch in pool.running))

    pool = pools(Watched(engine, look), grace=0, cache=0)
    found = by_threads(pool, tickets, list(range(len(CASES))))
    assert sum(dropped) > 20
    assert len(found) < len(CASES)
    assert {*range(len(CASES))} - {*found} <= {*leaving}
    assert wrong != all(answer == alone[number] for number, answer in found.items())


@pytest.mark.parametrize("case", range(5))
def test_dropped_sentence_leaves_the_batch_whatever_it_has_to_contain(engine: TorchEngine, case: int):
    """The control: not dropped, it goes on for as many steps as its prefix has tokens."""
    config, both = CASES[case][1], [Constraints(), Constraints(prefix=(5,) * 18)]
    sources, counts = [[4], [5] * 30], []
    for drop in (False, True):
        dropped = Dropped(EOS)
        steps = Watched(engine)
        search = steps.search_batch(sources, config, both, dropped=dropped)
        next(search)
        dropped.sentences |= {1} if drop else set()
        found = finish(search)
        assert tokens(found[0]) == tokens(engine.search(sources[:1], config, both[:1])[0])
        counts.append(steps.steps)
    assert counts[1] <= config.extra_length + 3 < 18 <= counts[0]


def test_translators_of_several_requests_share_a_pool(trained: Path, pools):
    """Texts with terms, forbidden words and second searches, which the translator does by itself."""
    translator = Translator.load(trained, SearchConfig(extra_length=5))
    texts = [f"The {a} sees 5 red {b}s." for a, b in [("dog", "bear"), ("cat", "{x}"), ("dog", "cat")]]
    glossary = Safeguards(glossary=Glossary([Entry("dog", ("말",))]), forbidden=("고양이",))
    pool = pools(translator.engine)

    def translate(number: int) -> Any:
        own = translator.replace(engine=pool.view(Ticket()), safeguards=glossary if number % 2 else None)
        return own.translate(texts[number // 2], n_best=2)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(translate, range(2 * len(texts))))
    for number, one in enumerate(found):
        plain = translator.replace(safeguards=glossary if number % 2 else None)
        expected = plain.translate(texts[number // 2], n_best=2)
        assert (one.text, [other.text for other in one.alternatives], one.flags, one.retried) == (
            expected.text,
            [other.text for other in expected.alternatives],
            expected.flags,
            expected.retried,
        )


# Nothing twice, and nothing in vain.


def test_equal_rows_are_searched_for_once(pools):
    watched = Watched(Echo(), lambda sources: until(lambda: len(pool.searches) == 20))
    pool = pools(watched, cache=0)
    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(lambda _: ask(pool, [2, 7]), range(20)))
    assert [tokens(one) for one in found] == [[[2, 7]]] * 20
    assert watched.batches == [[[2, 7]]]
    watched.look = lambda sources: None
    ask(pool, [2, 7])  # without a cache it is searched for again
    assert len(watched.batches) == 2


def test_cache_keeps_results_as_long_as_there_is_room(pools):
    watched = Watched(Echo())
    pool = pools(watched)
    for _, number in itertools.product(range(3), range(5)):
        assert ask(pool, [1, number]) == [Hypothesis([1, number], 0.0)]
    assert len(watched.batches) == 5
    for config in (PLAIN, SearchConfig(extra_length=3)):  # with other settings it is another row
        ask(pool, [1, 0], config=config)
    assert len(watched.batches) == 6


def test_cache_stays_within_its_bytes():
    cache, chance, held = Cache(100_000), random.Random(1), 0
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(300):
        ids = tuple(chance.randint(300, 30_000) for _ in range(chance.choice([1, 10, 100])))
        row = Row(ids, SearchConfig(seed=number), Constraints(forbidden=(ids[:5], ids[5:9])))
        cache.put(row, [Hypothesis([id + 1 for id in ids], number / 3) for _ in range(chance.randint(1, 4))])
        assert cache.size <= cache.limit
        assert cache.get(row)
        held = max(held, len(cache.results))
    del row, ids
    assert tracemalloc.get_traced_memory()[0] - before <= cache.limit
    tracemalloc.stop()
    assert 10 < len(cache.results) <= held < 300
    cache = Cache(0)
    cache.put(Row((1,), PLAIN, UNCONSTRAINED), [])
    assert not cache.results


@pytest.mark.parametrize(("grace", "attempts", "searches"), [(0.5, 2, 1), (0, 6, 6)])
def test_client_that_asks_again_at_once_finds_its_search_in_progress(pools, grace, attempts, searches):
    """The model needs 12 seconds, the client waits for 10. The control: without the half second it gets nothing."""
    clock = Clock()

    def look(sources: list[Ids]) -> None:
        until(lambda: pool.searches)  # the client asks again within no time of the clock
        clock.tick(0.1)

    watched, found = Watched(Echo(), look), list[Any]()
    pool = pools(watched, grace=grace, clock=clock)
    while len(found) < 6 and [[120]] not in found:
        try:
            found.append(tokens(ask(pool, [120], Ticket(10, clock=clock))))
        except Late:
            found.append(None)
    assert (len(found), len(watched.batches)) == (attempts, searches)
    assert ([[120]] in found) == (grace > 0)


def test_batches_are_not_stepped_when_all_requests_have_left(pools):
    clock = Clock()
    tickets = [Ticket(clock=clock) for _ in range(8)]

    def look(sources: list[Ids]) -> None:
        if not clock.now:
            until(lambda: len(pool.searches) == 8)
        clock.tick(0.1)
        if clock.now == 0.5:
            for ticket in tickets:
                ticket.cancel()

    watched = Watched(Echo(), look)
    pool = pools(watched, clock=clock, batches=1)

    def translate(number: int) -> None:
        with pytest.raises(Gone):
            ask(pool, [100, number], tickets[number])

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(translate, range(8)))
    until(lambda: not pool.running)
    assert watched.steps <= 5 + 5 + 2  # those before, those of the half second
    assert not pool.asked
    assert pool.stalled() == 0


# In time.


def test_deadline_is_kept_within_two_steps(pools):
    clock = Clock()
    watched = Watched(Echo(), lambda sources: clock.tick(0.2))
    with pytest.raises(Late, match=r"0\.5 seconds"):
        ask(pools(watched, clock=clock, grace=0), [100], Ticket(0.5, clock=clock))
    assert 0.5 <= clock.now <= 0.5 + 2 * 0.2


def test_deadline_is_kept_while_a_step_takes_longer(pools):
    over = threading.Event()
    pool = pools(Watched(Echo(), lambda sources: over.wait(20)))
    with pytest.raises(Late):
        ask(pool, [1], Ticket(0.02))
    over.set()


@pytest.mark.parametrize("batches", [2, 1], ids=["", "control: one batch at a time"])
def test_single_text_does_not_wait_for_a_list(pools, batches: int):
    """On a clock on which a step takes 3 ms, and 1 ms more for each row. Texts of one length; one after the other."""
    clock, taken, began, over = Clock(), list[float](), threading.Event(), threading.Event()

    def look(sources: list[Ids]) -> None:
        began.set()
        until(lambda: len(pool.searches) == 2 or over.is_set())  # there is always one
        clock.tick(0.003 + 0.001 * len(sources))

    pool = pools(Watched(Echo(), look), batches=batches, tokens=50 * 3, clock=clock)
    with ThreadPoolExecutor(1) as threads:
        long = threads.submit(pool.view(Ticket()).search, [[40, number] for number in range(200)], PLAIN)
        long.add_done_callback(lambda _: over.set())
        began.wait(20)
        while not over.is_set():
            asked = clock.now
            ask(pool, [40, 1000 + len(taken)])
            taken.append(clock.now - asked)
        assert [tokens(own) for own in long.result()] == [[[40, number]] for number in range(200)]
    idle = 40 * 0.004
    if batches == 1:
        assert max(taken) > 10 * idle
        return
    assert max(taken) <= 2.5 * idle
    # Each had half of the time: four batches of 50 rows, and after each, the text that was searched meanwhile.
    assert clock.now <= 2 * 4 * 40 * 0.053 + 5 * idle


def test_texts_and_lists_go_with_their_like(pools):
    """A batch has rows of requests of its size alone: at most twice as many rows, at most twice as long."""
    watched, clock = Watched(Echo()), Clock()
    requests: list[tuple[list[Ids], bool]] = [
        ([[9] * 3], False),
        ([[1] * 5, [2] * 5, [3] * 5], False),
        ([[4] * 5], False),
        ([[5] * 5, [6] * 5], False),
        ([[7] * 11], False),
        ([[8] * 12], False),
    ]
    found = batches_of(pools(watched, batches=1, clock=clock), watched, requests, clock)
    assert found == [
        [[9] * 3],
        [[4] * 5, [5] * 5, [6] * 5, [7] * 11],
        [[8] * 12],
        [[1] * 5, [2] * 5, [3] * 5],
    ]


@pytest.mark.parametrize(("words", "batches"), [(14, 1), (15, 2)])
def test_texts_go_beside_each_other_when_one_is_eight_times_as_long(pools, words: int, batches: int):
    together: list[int] = []
    watched = Watched(Echo(), lambda _: together.append(len(pool.running)))
    pool = pools(watched)
    batches_of(pool, watched, [([[9]], False), ([[9] * words], False)])
    assert max(together) == batches


def batches_of(
    pool: Pool, watched: Watched, requests: list[tuple[list[Ids], bool]], clock: Clock | None = None
) -> list[list[Ids]]:
    """The batches of requests that came, one after the other, while the first batch of the first one was searched.

    On a clock, all come at the same time, and then a second goes by.
    """
    searching, all_came, look = pool.view(Ticket(bulk=requests[0][1])).search, threading.Event(), watched.look

    def wait(sources: list[Ids]) -> None:
        look(sources)
        assert all_came.wait(20)

    watched.look = wait
    with ThreadPoolExecutor(len(requests)) as threads:
        asked = [threads.submit(searching, requests[0][0], PLAIN)]
        until(lambda: watched.batches)
        for count, (sources, bulk) in enumerate(requests[1:], 2):
            asked.append(threads.submit(pool.view(Ticket(bulk=bulk)).search, sources, PLAIN))
            until(lambda count=count: len(pool.searches) == count)
        if clock:
            clock.tick(1)
        all_came.set()
        for future, (sources, _) in zip(asked, requests, strict=True):
            assert [tokens(own) for own in future.result()] == [[ids] for ids in sources]
    return watched.batches


def test_requests_take_turns_and_rows_of_similar_length_go_together(pools):
    watched, clock = Watched(Echo()), Clock()
    pool = pools(watched, batches=1, tokens=12, clock=clock)
    array: list[Ids] = [[1, 0, 0], [1] * 5, [1, 0, 1], [1, 2] * 2 + [1], [1, 0, 2], [1, 0, 3]]
    found = batches_of(pool, watched, [(array, False), ([[1, 5]], False), ([[1, 6], [1] * 4], False)], clock)
    assert found == [
        [[1, 0, 0], [1, 0, 1], [1, 0, 2]],  # three places of four tokens
        [[1, 5], [1, 6], [1, 0, 3]],  # the single text, with what is of its length
        [[1] * 4, [1] * 5],
        [[1, 2] * 2 + [1]],
    ]


@pytest.mark.parametrize(("came", "first"), [(7.0, "text"), (8.0, "list")])
def test_text_overtakes_a_list_that_waited_less_than_four_times_as_long(pools, came: float, first: str):
    """The list of four rows of a length comes at 0, the text at `came`, and the next turn is at 10."""
    clock, all_came = Clock(), threading.Event()
    watched = Watched(Echo(), lambda _: all_came.wait(20))
    pool = pools(watched, batches=1, clock=clock)
    rows = [[1, number] for number in range(4)]
    with ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(ask, pool, [1] * 40)]
        until(lambda: watched.batches)
        asked.append(threads.submit(pool.view(Ticket()).search, rows, PLAIN))
        until(lambda: len(pool.searches) == 2)
        clock.tick(came)
        asked.append(threads.submit(ask, pool, [1, 9]))
        until(lambda: len(pool.searches) == 3)
        clock.tick(10 - came)
        all_came.set()
        assert all(one.result() for one in asked)
    batches = {"list": rows, "text": [[1, 9]]}
    assert watched.batches[1:] == [batches.pop(first), *batches.values()]


def test_texts_of_one_length_wait_to_go_together(pools):
    """Beside each other they would be ready no sooner, and take more steps."""
    watched = Watched(Echo())
    found = batches_of(pools(watched), watched, [([[9, number]], False) for number in range(4)])
    assert found == [[[9, 0]], [[9, 1], [9, 2], [9, 3]]]
    assert watched.steps == 2 * 9


def test_documents_wait_for_others_and_run_one_batch_at_a_time(pools):
    running: list[int] = []
    steps: list[list[Ids]] = []

    def look(sources: list[Ids]) -> None:
        running.append(sum(batch.bulk for batch in pool.running))
        steps.append(sources)

    watched = Watched(Echo(), look)
    clock = Clock()
    pool = pools(watched, batches=2, tokens=6, clock=clock)
    document: list[Ids] = [[3, number] for number in range(6)]
    requests = [(document, True), ([[4, 8], [4, 9], [4, 10]], False), ([[4, 11]], False)]
    found = batches_of(pool, watched, requests, clock)
    assert found == [document[:2], [[4, 11], [4, 8]], [[4, 9], [4, 10]], document[2:4], document[4:]]
    assert max(running) == 1
    assert steps == [document[:2]] + [[[4, 11], [4, 8]]] * 4 + [[[4, 9], [4, 10]]] * 4 + [document[:2]] * 2 + [
        batch for batch in (document[2:4], document[4:]) for _ in range(3)
    ]


def test_document_that_a_request_waits_for_goes_on(pools):
    """The control: the rest of the document waits."""
    clock, order = Clock(), list[int]()

    def look(sources: list[Ids]) -> None:
        order.append(sources[0][0])
        until(lambda: len(pool.searches) == 3 or len(order) > 1)
        clock.tick(1)

    pool = pools(Watched(Echo(), look), tokens=10, clock=clock)
    with ThreadPoolExecutor(3) as threads:
        document = threads.submit(pool.view(Ticket(bulk=True)).search, [[9] * 30, [8] * 30], PLAIN)
        until(lambda: order)
        same = threads.submit(ask, pool, [9] * 30)
        until(lambda: len(pool.searches) == 2)
        other = threads.submit(ask, pool, [7] * 2)
        assert all(one.result() for one in (document, same, other))
    assert order[:4] == [9, 7, 9, 7]
    assert order[-8:] == [8] * 8


def test_others_may_join_while_something_runs(pools):
    """And where nothing runs, nobody waits for them."""
    clock, came = Clock(), threading.Event()

    def look(sources: list[Ids]) -> None:
        if clock.now == 0.003:
            until(lambda: len(pool.searches) == 2)
        if clock.now == 0.006:
            came.set()
            until(lambda: len(pool.searches) == 3)
        clock.tick(0.001)

    watched = Watched(Echo(), look)
    pool = pools(watched, gather=0.01, clock=clock)
    with ThreadPoolExecutor(3) as threads:
        first = threads.submit(ask, pool, [40] * 9)
        until(lambda: clock.now)
        second = threads.submit(ask, pool, [2, 0])
        came.wait(20)
        third = threads.submit(ask, pool, [2, 1])
        assert all(tokens(one.result()) for one in (first, second, third))
    assert watched.batches == [[[40] * 9], [[2, 0], [2, 1]]]


def test_wait_is_what_was_asked_for_over_the_measured_rate(pools):
    clock = Clock()
    watched = Watched(Echo(), lambda sources: clock.tick(0.25))
    pool = pools(watched, clock=clock, tokens=20)
    ask(pool, [4] * 9)  # ten tokens in a second
    assert pool.wait() == 0
    seen: list[float] = []

    def look(sources: list[Ids]) -> None:
        if not seen:
            until(lambda: len(pool.searches) == 2)
            seen.extend([pool.wait(), pool.wait(5), pool.stalled()])
            clock.tick(3)
            seen.append(pool.stalled())

    watched.look = look
    with ThreadPoolExecutor(2) as threads:
        request = threads.submit(ask, pool, [1] * 19)
        until(lambda: pool.searches)
        document = threads.submit(ask, pool, [1] * 29, Ticket(bulk=True))
        assert request.result()
        assert document.result()
    assert seen == [2, 0.5, 0, 3]


def test_rate_is_that_of_batches_while_others_wait(pools):
    """Single texts, which are searched at once, are slower, and say nothing about a crowd."""
    clock = Clock()
    watched = Watched(Echo(), lambda sources: clock.tick(0.5))
    pool = pools(watched, clock=clock, tokens=20, batches=1)

    def rate() -> float:
        return pool.finished_tokens / pool.spent_seconds

    ask(pool, [1] * 4)  # five tokens in a step of half a second
    assert rate() == 10
    pool.view(Ticket()).search([[1, number, 0, 0] for number in range(4)], PLAIN)  # four times as many
    assert rate() == 40
    ask(pool, [1] * 3)
    assert rate() == 40
    watched.look = lambda sources: clock.tick(2.0)  # now the machine is slow
    pool.view(Ticket()).search([[1, number, 1, 0] for number in range(12)], PLAIN)  # three batches of ten a second
    assert rate() == pytest.approx((0.9 * (0.9 * 20 + 20) + 20) / (0.9 * (0.9 * 0.5 + 2) + 2))  # the last one was alone


# Errors and the end.


def test_row_that_cannot_be_searched_for_fails_alone(pools):
    def look(sources: list[Ids]) -> None:
        if [1, 13] in sources:
            raise ValueError("13 is unlucky")

    pool = pools(Watched(Echo(), look), cache=0)
    until_all = threading.Barrier(5)

    def translate(number: int) -> Any:
        until_all.wait(20)
        try:
            return tokens(pool.view(Ticket()).search([[1, number], [1, 20 + number]], PLAIN)[0])
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(5) as threads:
        found = list(threads.map(translate, range(11, 16)))
    assert found == [[[1, 11]], [[1, 12]], "13 is unlucky", [[1, 14]], [[1, 15]]]


def test_dropped_row_that_is_asked_for_again_is_searched_for_again(pools):
    """While the batch that it was dropped from goes on, whose result for it means nothing."""
    left, stays, ticket, again = [6, 1], [6, 2], Ticket(), Ticket(20)
    steps, asking, threads = list[int](), list[Any](), ThreadPoolExecutor(4)

    def look(sources: list[Ids]) -> None:
        if sources == [[1]]:
            until(lambda: len(pool.searches) == 3)
        if left in sources and stays in sources:
            steps.append(len(steps))
            if len(steps) == 1:
                ticket.cancel()
            if len(steps) == 3:  # it was dropped after the first step
                asking.append(threads.submit(ask, pool, left, again))
                until(lambda: any(search.ticket is again for search in pool.searches))

    watched = Watched(Echo(), look)
    pool = pools(watched, grace=0, batches=1)
    with threads:
        first = threads.submit(ask, pool, [1])
        until(lambda: pool.running)
        cancelled, other = threads.submit(ask, pool, left, ticket), threads.submit(ask, pool, stays)
        with pytest.raises(Gone):
            cancelled.result(20)
        assert [tokens(task.result(20)) for task in (first, other)] == [[[1]], [stays]]
        assert tokens(asking[0].result(20)) == [left]
    assert watched.batches[-1] == [left]


def test_damaged_model_fails_for_who_asked_and_in_words(pools, engine: TorchEngine):
    with torch.no_grad():
        for parameter in engine.model.parameters():  # type: ignore[attr-defined]
            parameter.fill_(math.nan)
    for config in (PLAIN, SearchConfig(1)):
        with pytest.raises(DragomanError, match="its weights are damaged"):
            ask(pools(engine), [3, 4], config=config)


def test_errors_of_the_engine_reach_the_request_that_asked(pools):
    def fail() -> None:
        raise UsageError("no such setting")

    with pytest.raises(UsageError, match="no such setting"):
        pools(Echo(fail)).view(Ticket()).search([[3], [4]], PLAIN)


def test_engine_without_steps_searches_a_batch_in_each_of_its_threads(pools):
    together = threading.Barrier(2)
    echo = Echo(lambda: together.wait(20) and None)
    del_steps = type("Whole", (), {"max_positions": None, "search": echo.search})()
    pool = pools(del_steps, threads=2)
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(lambda number: tokens(ask(pool, [number])), range(2)))
    assert found == [[[0]], [[1]]]


@pytest.mark.parametrize(("threads", "sizes"), [(2, [5, 6]), (1, [11])])
def test_threads_share_the_rows(pools, threads: int, sizes: list[int]):
    """None has them all while another one has nothing to do. The control: one thread takes them all."""
    together, batches = threading.Barrier(threads), list[int]()

    def search(self: Any, sources: Sequence[Ids], *task: Any) -> list[list[Hypothesis]]:
        batches.append(len(sources))
        together.wait(20)
        return Echo().search(sources, PLAIN)

    whole = type("Whole", (), {"max_positions": None, "search": search})()
    sources: list[Ids] = [[number] for number in range(11)]
    found = pools(whole, threads=threads).view(Ticket()).search(sources, PLAIN)
    assert [tokens(one) for one in found] == [[ids] for ids in sources]
    assert sorted(batches) == sizes


def test_closing_finishes_what_was_asked_for_and_nothing_else(pools):
    started, go = threading.Event(), threading.Event()

    def look(sources: list[Ids]) -> None:
        started.set()
        go.wait(20)

    for timeout in (None, 0.02):
        started.clear()
        go.clear()
        pool = pools(Watched(Echo(), look))
        with ThreadPoolExecutor(2) as threads:
            accepted = threads.submit(ask, pool, [3])
            started.wait(20)
            closing = threads.submit(pool.close, timeout)
            until(lambda pool=pool: pool.closed)
            with pytest.raises(Gone, match="ending"):
                ask(pool, [4])
            if timeout:
                with pytest.raises(Gone, match="ending"):
                    accepted.result()
            go.set()
            closing.result()
            if not timeout:
                assert tokens(accepted.result()) == [[3]]
