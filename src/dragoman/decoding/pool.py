"""Let many requests search with one engine at the same time.

Each request calls `search` of its own view of the pool from its own thread, as it would call an engine. The pool puts
rows of several requests into one batch, and equal rows are searched once.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from dragoman.config import SearchConfig
from dragoman.data.batches import Ids
from dragoman.data.tokenizer import EOS
from dragoman.decoding.engine import UNCONSTRAINED, Constraints, Engine, SteppedEngine
from dragoman.decoding.processors import Dropped
from dragoman.decoding.rows import Asked, Batch, Cache, Gone, Row, Search, Ticket, nearest_in_length
from dragoman.decoding.search import Hypothesis, Steps
from dragoman.decoding.torch_engine import max_batch_tokens

CLOSED = "the translation was stopped, because the program is ending"
KEPT = 0.9  # how much an earlier batch counts in the measured rate, compared with the next one


class View:
    """The engine that a request searches with. See `Engine`."""

    def __init__(self, pool: "Pool", ticket: Ticket):
        self.pool, self.ticket = pool, ticket
        self.max_positions = pool.engine.max_positions

    def __repr__(self) -> str:
        return repr(self.pool.engine)

    def search(
        self, sources: Sequence[Ids], config: SearchConfig, constraints: Sequence[Constraints] | None = None
    ) -> list[list[Hypothesis]]:
        """Search as `Engine.search` says; raise Late or Gone when the ticket says so, and Gone when the pool closes."""
        constraints = constraints or [UNCONSTRAINED] * len(sources)
        version = self.pool.version()
        rows = [Row(tuple(ids), config, rules, version) for ids, rules in zip(sources, constraints, strict=True)]
        return self.pool.search(self.ticket, rows)


class Pool:
    """One engine for many requests.

    It is the turn of the request that has waited longest for each token that it asks for (highest response ratio next,
    Brinch Hansen 1971): a short text goes ahead of a long list, which waits, but not for ever. To the row whose turn it
    is come those of requests of about the same size (see `Size.like`), with the same settings and nearest in length, as
    long as the sources have at most `tokens` tokens with padding. A batch begins at once if nothing runs, otherwise
    when a request has waited `gather` seconds for others to join it.

    A request waits for the end of a batch that is not far from its size (see `Size.near`), because going together is
    faster. Others go beside each other, so that a single text does not wait for a long list: a thread steps up to
    `batches` batches, which get equal shares of its time. Of bulk requests, one batch is searched at a time; it begins
    when nothing else is searched, and is stepped when there is no other batch.

    A row that nobody waits for any more goes on for `grace` seconds if no other one waits, because clients that give up
    ask again at once. Finished rows stay in a cache of `cache` bytes. `version` returns another number when the engine
    has learned something: what was searched for before is then searched for again.

    The rows are shared among `threads` threads. An engine without steps, such as CTranslate2, searches one batch at a
    time in each of them, and cannot be stopped within a batch.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        threads: int = 1,
        batches: int = 2,
        tokens: int = 2048,
        gather: float = 0.01,
        grace: float = 0.5,
        cache: int = 2**26,
        version: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.engine, self.tokens, self.gather, self.grace, self.clock = engine, tokens, gather, grace, clock
        self.version = version
        self.batches = batches if isinstance(engine, SteppedEngine) else 1
        self.lock = threading.Lock()  # guards all that follows
        self.changed = threading.Condition(self.lock)  # what threads without work wait for
        self.searches: dict[Search, None] = {}  # in the order in which they came
        self.asked: dict[Row, Asked] = {}  # without a result
        self.running: list[Batch] = []
        self.cache = Cache(cache)
        self.finished_tokens = self.spent_seconds = 0.0  # of the latest batches
        self.shared = 0.0  # seconds for which each of the batches beside each other has been stepped
        self.stamped, self.closed = clock(), False
        self.threads = [
            threading.Thread(target=self._decode, name=f"decoding {number}", daemon=True) for number in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def view(self, ticket: Ticket) -> Engine:
        """Return the engine that the request with this ticket searches with."""
        return View(self, ticket)

    def wait(self, tokens: float = math.inf) -> float:
        """Return about how many seconds a new request for so many tokens would wait for others.

        Each of these gets as much before the new one is answered, or all that it asks for; the rate is that of batches
        while others wait, or that of the fastest since. Bulk requests do not count, nor those that are over. 0
        before the first batch is finished.
        """
        with self.lock:
            asked_for = Counter[Search]()
            for asked in self.asked.values():
                for search in asked.searches:
                    if not (search.ticket.bulk or search.ticket.over):
                        asked_for[search] += asked.row.tokens
                        break
            ahead = sum(min(tokens, count) for count in asked_for.values())
            rate = len(self.threads) * self.finished_tokens / self.spent_seconds if self.spent_seconds else math.inf
            return ahead / rate

    def stalled(self) -> float:
        """Return for how many seconds there has been work and no step was finished; 0 without work.

        Infinity if a thread has ended, as it does when the pool is closed, and after an error of its own.
        """
        if not all(thread.is_alive() for thread in self.threads):
            return math.inf
        with self.lock:
            return self.clock() - self.stamped if self.searches else 0.0

    def close(self, timeout: float | None = None) -> None:
        """Finish what was asked for and end the threads; what is left after `timeout` seconds raises Gone.

        So do later searches.
        """
        with self.lock:
            self.closed = True
            self.changed.notify_all()
        end = math.inf if timeout is None else time.monotonic() + timeout
        for thread in self.threads:
            thread.join(None if timeout is None else max(0.0, end - time.monotonic()))
        with self.lock:
            for search in list(self.searches):
                self._leave(search)

    def search(self, ticket: Ticket, rows: Sequence[Row]) -> list[list[Hypothesis]]:
        """Return the hypotheses for each row; raise Late, Gone, and what the engine raises for one of them."""
        with self.lock:
            ticket.check()
            search = self._enter(ticket, rows)
            try:
                while search.open and not search.error:
                    ticket.check()
                    if search not in self.searches:
                        raise Gone(CLOSED)
                    search.changed.wait(min(ticket.left, threading.TIMEOUT_MAX))
            finally:
                self._leave(search)
        if search.error:
            raise search.error
        return [list(asked.hypotheses or ()) for asked in search.rows]

    def _enter(self, ticket: Ticket, rows: Sequence[Row]) -> Search:
        """Return a search that asks for the rows; raise Gone if the pool is closed. Needs the lock, as all below do."""
        if self.closed:
            raise Gone(CLOSED)
        search = Search(ticket, self.clock(), threading.Condition(self.lock))
        for row in rows:
            asked = self.asked.get(row)
            if asked is None:
                asked = Asked(row, hypotheses=self.cache.get(row))
                if asked.hypotheses is None:
                    self.asked[row] = asked
            search.add(asked)
        if not self.searches:
            self.stamped = self.clock()
        self.searches[search] = None
        self.changed.notify_all()
        return search

    def _leave(self, search: Search) -> None:
        """Forget a search, and its rows that no other one asks for, unless they are in a batch."""
        if search in self.searches:
            del self.searches[search]
            for asked in search.open:
                asked.searches.discard(search)
                asked.left = self.clock()
                if not asked.searches and not asked.started:
                    del self.asked[asked.row]
            search.changed.notify()
            self.changed.notify_all()

    def _decode(self) -> None:
        """Step batches in turn until the pool is closed. This is what a thread does; it takes the lock itself."""
        stepped: list[Batch] = []
        try:
            while batch := self._next(stepped):
                began, result = self.clock(), None
                try:
                    next(batch.steps)
                except StopIteration as end:
                    result = end.value
                except Exception as error:  # of one of its rows, or memory: it is theirs to hear of it
                    result = error
                with self.lock:
                    batch.step = self.clock() - began
                    batch.seconds += batch.step
                    if result is not None:
                        self._remove(batch, stepped)
                        if isinstance(result, Exception):
                            self._fail(batch, result)
                        else:
                            self._finish(batch, result)
        finally:  # whatever happens, nobody waits for a thread that is no more
            with self.lock:
                self.closed = True
                for search in list(self.searches):
                    self._leave(search)

    def _next(self, stepped: list[Batch]) -> Batch | None:
        """Wait for a batch to step; return it. stepped: those of this thread, to which a new one may be added.

        None when the pool is closed and nobody waits. Takes the lock itself.
        """
        with self.lock:
            while True:
                self.stamped = self.clock()
                for search in [search for search in self.searches if search.ticket.over]:
                    self._leave(search)
                self._drop(stepped)
                self._begin(stepped)
                if stepped:
                    batch = min([batch for batch in stepped if not batch.bulk] or stepped, key=lambda batch: batch.due)
                    stepped.remove(batch)
                    stepped.append(batch)  # the last among equals
                    self.shared = batch.start + batch.seconds
                    return batch
                if self.closed and not self.searches:
                    return None
                waiting = any(search.waiting for search in self.searches)
                self.changed.wait((self.gather or None) if waiting else None)

    def _drop(self, stepped: list[Batch]) -> None:
        """Drop the rows that nobody waits for any more, and batches without other rows."""
        others_wait = self.closed or any(search.waiting for search in self.searches)
        for batch in list(stepped):
            for sentence, asked in enumerate(batch.rows):
                over = others_wait or self.clock() - asked.left >= self.grace
                if over and not asked.searches and sentence not in batch.dropped.sentences:
                    batch.dropped.sentences.add(sentence)
                    del self.asked[asked.row]
            if len(batch.dropped.sentences) == len(batch.rows):
                batch.steps.close()
                self._remove(batch, stepped)

    def _begin(self, stepped: list[Batch]) -> None:
        """Begin a batch with the row whose turn it is and the rows nearest to it in length, of requests of its size.

        Begin none if there is no room, or if `gather` is not over while another batch is running. Bulk rows have a turn
        only when no others wait and no bulk batch is running.
        """
        waiting = [search for search in self.searches if search.waiting]
        eligible = [search for search in waiting if not search.ticket.bulk]
        if not eligible and not any(batch.bulk for batch in self.running):
            eligible = waiting
        now = self.clock()
        possible = [search for search in eligible if self._has_room(stepped, search)]
        turn = max(possible, key=lambda search: search.waited(now), default=None)
        if turn is None or (self.running and now - turn.since < self.gather):
            return
        first, config, size = next(iter(turn.waiting)), next(iter(turn.waiting)).row.config, turn.size(self.tokens)
        alike = [search for search in eligible if search is turn or search.size(self.tokens).like(size)]
        others = {asked: None for search in alike for asked in search.waiting}
        # Threads share what there is: with all of it in one batch, the others would have nothing to do.
        share = math.ceil((sum(len(batch.rows) for batch in self.running) + len(others)) / len(self.threads))
        tokens = min(self.tokens, max_batch_tokens(config))
        rows = nearest_in_length(first, others, tokens, share)
        for asked in rows:
            asked.started = True
            for search in asked.searches:
                del search.waiting[asked]
        sources, constraints = [list(asked.row.ids) for asked in rows], [asked.row.constraints for asked in rows]
        dropped = Dropped(EOS)
        if isinstance(self.engine, SteppedEngine):
            steps = self.engine.search_batch(sources, config, constraints, dropped=dropped)
        else:
            steps = one_step(self.engine, sources, config, constraints)
        batch = Batch(rows, steps, dropped, turn, size, self.shared)
        stepped.append(batch)
        self.running.append(batch)

    def _has_room(self, stepped: list[Batch], search: Search) -> bool:
        """Return whether a batch with the next row of a search may begin beside those of this thread."""
        if search.ticket.bulk:
            return not stepped
        others = [batch for batch in stepped if not batch.bulk]
        # Two batches of one request would take as long as one after the other, and leave no room for another request.
        return len(others) < self.batches and not any(
            batch.search is search or search.size(self.tokens).near(batch.size) for batch in others
        )

    def _remove(self, batch: Batch, stepped: list[Batch]) -> None:
        """Forget a batch, which is over; another one may begin."""
        stepped.remove(batch)
        self.running.remove(batch)
        self.changed.notify_all()

    def _finish(self, batch: Batch, results: list[list[Hypothesis]]) -> None:
        """Hand out the results of the rows of a batch, and measure how fast it was."""
        for sentence, (asked, hypotheses) in enumerate(zip(batch.rows, results, strict=True)):
            if sentence not in batch.dropped.sentences:
                asked.hypotheses = hypotheses
                self.cache.put(asked.row, hypotheses)
                self._settle(asked, None)
        # A batch of few rows, which begins at once where nothing waits, does not show what many rows would take.
        if any(search.waiting for search in self.searches):
            self.finished_tokens = KEPT * self.finished_tokens + batch.tokens
            self.spent_seconds = KEPT * self.spent_seconds + batch.seconds
        elif batch.tokens * self.spent_seconds >= self.finished_tokens * batch.seconds:  # it was faster
            self.finished_tokens, self.spent_seconds = batch.tokens, batch.seconds

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Search alone for each row of a batch that failed, so that others do not suffer from one; or fail a row."""
        for sentence, asked in enumerate(batch.rows):
            if sentence in batch.dropped.sentences:
                continue
            if len(batch.rows) == 1 or not asked.searches:
                self._settle(asked, error)
                continue
            asked.started, asked.alone = False, True
            for search in asked.searches:
                search.waiting[asked] = None

    def _settle(self, asked: Asked, error: Exception | None) -> None:
        """Tell all who ask for a row that its result is there, or why there is none."""
        del self.asked[asked.row]
        for search in list(asked.searches):
            search.open.discard(asked)
            search.error = search.error or error
            if error or not search.open:
                self._leave(search)


def one_step(engine: Engine, sources: list[Ids], config: SearchConfig, constraints: list[Constraints]) -> Steps:
    """Search with an engine that has no steps: all of it is one."""
    yield from ()
    return engine.search(sources, config, constraints)
