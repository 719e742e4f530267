"""Shares and turns: however much some ask for, there is something for others."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import until

from dragoman.decoding.rows import Gone, Ticket
from dragoman.server.shares import Shares, Turns

ASKS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40), st.booleans()), max_size=60)


@given(st.integers(0, 200), ASKS)
def test_shares_add_up_and_leave_some_for_others(size: int, asks: list[tuple[str, int, bool]]):
    shares, held = Shares(size), Counter[str]()
    for holder, amount, gives in asks:
        if gives:
            amount = min(amount, held[holder])
            shares.give_back(holder, amount)
            held[holder] -= amount
        elif shares.take(holder, amount):
            held[holder] += amount
            before = held[holder] - amount
            assert not amount or not before or 3 * held[holder] <= shares.left
        else:
            assert amount > 0
            assert amount > shares.left or held[holder]
        assert shares.left == size - held.total() >= 0
        assert shares.held == +held


@pytest.mark.parametrize("size", [32, 256, 2048])
def test_shares_give_a_quarter_to_one_and_less_to_the_next(size: int):
    shares, counts = Shares(size), []
    for holder in "abc":
        counts.append(0)
        while shares.take(holder, 1):
            counts[-1] += 1
    assert counts[0] == size // 4
    assert counts == sorted(counts, reverse=True)
    assert shares.left > size // 3
    assert all(shares.take(f"new {number}", 1) for number in range(shares.left))  # whoever has nothing yet
    assert not shares.take("late", 1)
    shares.give_back("a", 1)
    assert shares.take("late", 1)


def test_turns_go_round_by_caller_and_by_age():
    """The first caller has asked for all of its turns before the others come; the control is the order of asking."""
    turns, order = Turns(1), list[str]()
    asked = [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2"), ("c", "c1")]

    def work(caller: str, name: str, ticket: Ticket) -> None:
        with turns.turn(caller, ticket):
            order.append(name)

    with ThreadPoolExecutor(len(asked)) as threads, turns.turn("x", Ticket()):
        for caller, name in asked:
            count = sum(map(len, turns.waiting.values()))
            threads.submit(work, caller, name, Ticket())
            until(lambda count=count: sum(map(len, turns.waiting.values())) == count + 1)
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert order != [name for _, name in asked]
    assert (turns.free, turns.waiting) == (1, {})


def test_turn_that_nobody_waits_for_any_more_holds_nobody_up():
    turns, cancelled, got = Turns(1), Ticket(), threading.Event()

    def wait(ticket: Ticket) -> None:
        with turns.turn("a", ticket):
            got.set()

    with ThreadPoolExecutor(2) as threads:
        with turns.turn("x", Ticket()):
            left = threads.submit(wait, cancelled)
            until(lambda: turns.waiting)
            stays = threads.submit(wait, Ticket())
            cancelled.cancel()
            began = time.monotonic()
            with pytest.raises(Gone):
                left.result(10)
            assert time.monotonic() - began < 5
            assert not got.is_set()
        stays.result(10)
    assert (turns.free, turns.waiting) == (1, {})


def test_turns_are_so_many_at_a_time_and_end_with_an_error():
    turns, inside, most = Turns(3), Counter[str](), 0

    def work(number: int) -> None:
        nonlocal most
        with turns.turn(str(number % 4), Ticket()):
            inside["now"] += 1
            most = max(most, inside["now"])
            time.sleep(0.005)
            inside["now"] -= 1
            raise ValueError

    with ThreadPoolExecutor(20) as threads:
        futures = [threads.submit(work, number) for number in range(40)]
    assert {type(future.exception()) for future in futures} == {ValueError}
    assert (most, turns.free, turns.waiting) == (3, 3, {})
