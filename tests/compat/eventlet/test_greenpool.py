from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest


def test_no_more_run_than_the_pool_is_large(eventlet: Any):
    pool = eventlet.GreenPool(2)
    running, most = [0], [0]

    def work(n: int) -> int:
        running[0] += 1
        most[0] = max(most[0], running[0])
        eventlet.sleep(0.001)
        running[0] -= 1
        return n

    threads = [pool.spawn(work, n) for n in range(6)]
    assert [thread.wait() for thread in threads] == list(range(6))
    assert most == [2]


def test_the_counts(eventlet: Any):
    pool = eventlet.GreenPool(2)
    gate = eventlet.Event()
    for _ in range(2):
        pool.spawn_n(gate.wait)
    waiting = eventlet.spawn(pool.spawn_n, gate.wait)
    eventlet.sleep(0)
    assert (pool.size, pool.running(), pool.free(), pool.waiting()) == (2, 2, 0, 1)
    gate.send()
    waiting.wait()
    pool.waitall()
    assert (pool.running(), pool.free(), pool.waiting()) == (0, 2, 0)


def test_waitall_waits_also_for_those_who_had_no_place_yet(eventlet: Any):
    pool = eventlet.GreenPool(1)
    done: list[int] = []

    def work(n: int) -> None:
        eventlet.sleep(0)
        done.append(n)

    def spawner() -> None:
        for n in range(3):
            pool.spawn_n(work, n)

    eventlet.spawn(spawner)
    eventlet.sleep(0)
    pool.waitall()
    assert done == [0, 1, 2]


def test_waitall_of_an_empty_pool_returns_and_one_inside_is_refused(eventlet: Any):
    pool = eventlet.GreenPool()
    pool.waitall()

    def inside() -> None:
        with pytest.raises(AssertionError):
            pool.waitall()

    pool.spawn(inside).wait()


@pytest.mark.parametrize("spawn", ["spawn", "spawn_n"])
def test_a_full_pool_runs_what_its_own_thread_spawns_at_once(eventlet: Any, spawn: str):
    pool = eventlet.GreenPool(1)
    seen: list[str] = []

    def outer() -> None:
        getattr(pool, spawn)(seen.append, "inner")
        seen.append("outer")

    pool.spawn(outer).wait()
    assert seen == ["inner", "outer"]


@pytest.mark.parametrize("spawn", ["spawn", "spawn_n"])
def test_errors_and_kills_give_the_place_back(eventlet: Any, spawn: str, capsys: pytest.CaptureFixture[str]):
    pool = eventlet.GreenPool(1)
    getattr(pool, spawn)(int, "boom")
    pool.waitall()
    assert "boom" in capsys.readouterr().err
    getattr(pool, spawn)(eventlet.sleep, 60)
    unbegun = next(iter(pool.coroutines_running))
    eventlet.kill(unbegun)
    getattr(pool, spawn)(eventlet.sleep, 60)
    eventlet.sleep(0)
    eventlet.kill(next(iter(pool.coroutines_running)))
    assert (pool.free(), pool.running()) == (1, 0)
    pool.waitall()


def test_resize(eventlet: Any):
    pool = eventlet.GreenPool(1)
    gate = eventlet.Event()
    pool.spawn_n(gate.wait)
    second = eventlet.spawn(pool.spawn_n, gate.wait)
    eventlet.sleep(0)
    pool.resize(2)
    second.wait()
    assert (pool.size, pool.free(), pool.running()) == (2, 0, 2)
    pool.resize(1)
    assert pool.free() == -1
    gate.send()
    pool.waitall()
    assert pool.free() == 1


def test_imap_and_starmap_keep_the_order(eventlet: Any):
    pool = eventlet.GreenPool(3)

    def slow(n: int, m: int) -> int:
        eventlet.sleep(0.001 * (5 - n))
        return n * m

    assert list(pool.imap(slow, range(5), [2] * 5)) == [0, 2, 4, 6, 8]
    assert list(pool.starmap(slow, [(1, 1), (2, 2)])) == [1, 4]
    assert list(pool.imap(None, "ab", "cd")) == [("a", "c"), ("b", "d")]
    assert list(pool.imap(slow, [], [])) == []


def test_imap_raises_where_its_results_are_read(eventlet: Any, capsys: pytest.CaptureFixture[str]):
    def broken() -> Iterator[str]:
        yield "1"
        raise KeyError("source")

    results = eventlet.GreenPool().imap(int, ["1", "x", "3"])
    assert next(results) == 1
    with pytest.raises(ValueError, match="x"):
        next(results)
    assert list(results) == [3]
    results = eventlet.GreenPool().imap(int, broken())
    assert next(results) == 1
    with pytest.raises(KeyError, match="source"):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_a_large_input_is_not_read_faster_than_it_is_used(eventlet: Any):
    read: list[int] = []

    def source() -> Iterator[int]:
        for n in range(1000):
            read.append(n)
            yield n

    results = eventlet.GreenPool(4).imap(str, source())
    assert next(results) == "0"
    eventlet.sleep(0.005)
    assert len(read) < 20


def test_a_pile_gives_results_in_the_order_of_spawning(eventlet: Any):
    pile = importlib.import_module("eventlet.greenpool").GreenPile(2)
    for n in range(4):
        pile.spawn(lambda n=n: eventlet.sleep(0.001 * (4 - n)) or n)
    assert list(pile) == [0, 1, 2, 3]
    pool = eventlet.GreenPool(1)
    pile = eventlet.GreenPile(pool)
    pile.spawn(int, "7")
    assert pile.next() == 7 and pile.pool is pool
