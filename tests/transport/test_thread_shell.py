"""The shell of a plain thread: its loop, its lock, its waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rpcmq.errors import UsageError
from rpcmq.testing import InProcessRouter
from rpcmq.transport.thread_home import thread_home
from rpcmq.transport.thread_parking import Parking
from rpcmq.transport.thread_shell import ThreadShell
from rpcmq.transport.thread_workers import ThreadWorkers
from tests.from_threads import in_thread
from tests.transport.test_shell import talk

#: Longest wait for anything (seconds).
LONG = 20.0


@pytest.fixture
def shell() -> ThreadShell:
    """The one of this process: its thread ends with that."""
    shell = thread_home().shell
    assert isinstance(shell, ThreadShell)
    return shell


def test_a_connection_runs_in_a_plain_thread(router: InProcessRouter, shell: ThreadShell) -> None:
    assert in_thread(shell.inside, talk, router.url, shell)


def test_it_calls_soon_later_and_again_in_one_thread_that_holds_the_lock(shell: ThreadShell) -> None:
    calls: list[tuple[str, int, bool]] = []

    def note(name: str) -> None:
        calls.append((name, threading.get_ident(), shell.is_current))

    with shell.monitor.lock:
        shell.call_soon(note, "stopped").stop()
        shell.call_soon(note, "soon")
        again = shell.call_every(0.001, lambda: note("again"))
        done = shell.event()
        shell.call_later(0.05, done.set)
        assert done.wait(LONG)
        again.stop()
        names = [name for name, _, _ in calls]
        assert names[0] == "soon" and "stopped" not in names and names.count("again") > 2
        assert len({ident for _, ident, _ in calls} | {threading.get_ident()}) == 2
        assert all(held for _, _, held in calls)


def test_an_exception_ends_neither_the_loop_nor_the_turn(shell: ThreadShell, capsys: Any) -> None:
    with shell.monitor.lock:
        done = shell.event()
        shell.call_soon(lambda: 1 / 0)
        shell.call_soon(done.set)
        assert done.wait(LONG)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_at_the_end_of_a_turn_nobody_has_the_lock_and_a_failure_ends_nothing(shell: ThreadShell, capsys: Any) -> None:
    calls: list[tuple[str, bool]] = []
    done = threading.Event()

    def fail() -> None:
        raise ValueError("at the end")

    def at_end(name: str) -> None:
        calls.append((name, shell.is_current))

    def turn() -> None:
        shell.call_at_end_of_turn(fail)
        shell.call_at_end_of_turn(at_end, "first")
        shell.call_at_end_of_turn(done.set)
        calls.append(("turn", shell.is_current))

    shell.call_from_any_thread(turn)
    assert done.wait(LONG)
    assert calls == [("turn", True), ("first", False)]
    assert "ValueError: at the end" in capsys.readouterr().err


def test_the_loop_cannot_wait_and_others_can(shell: ThreadShell) -> None:
    said: list[tuple[bool, bool]] = []
    with shell.monitor.lock:
        assert shell.can_wait and shell.may_wait
        done = shell.event()
        shell.call_soon(lambda: said.append((shell.can_wait, shell.may_wait)))
        shell.call_soon(done.set)
        assert done.wait(LONG)
    assert said == [(False, False)]
    assert shell.can_wait and not shell.may_wait and not shell.is_current


def test_who_waits_lets_others_in(shell: ThreadShell) -> None:
    with shell.monitor.lock:
        came = shell.event()
        shell.spawn(came.set)
        assert came.wait(LONG) and shell.is_current
        assert not shell.event().wait(0.01) and shell.is_current


def test_a_thread_that_was_resumed_before_it_waits_does_not_wait(shell: ThreadShell) -> None:
    with shell.monitor.lock:
        resume, park = shell.parking()
        resume()
        resume()
        park()


def test_nobody_parks_without_the_lock(shell: ThreadShell) -> None:
    _, park = shell.parking()
    with pytest.raises(UsageError, match="forked"):
        park()


def test_stopped_timers_are_not_kept_until_they_are_due(shell: ThreadShell) -> None:
    with shell.monitor.lock:
        for _ in range(10_000):
            shell.call_later(3600.0, lambda: None).stop()
        assert len(shell._loop._timers) < 500


def test_items_put_in_are_drained_in_their_order(shell: ThreadShell) -> None:
    taken: list[int] = []

    def take_all() -> None:
        assert shell.is_current
        while inbox.waiting:
            taken.append(inbox.waiting.popleft())
        if len(taken) == 4000:
            done.set()

    with shell.monitor.lock:
        inbox, done = shell.new_inbox(take_all), shell.event()

    def put(first: int) -> None:
        for n in range(first, first + 1000):
            inbox.put(n)

    putting = [threading.Thread(target=put, args=(first,)) for first in range(0, 4000, 1000)]
    for thread in putting:
        thread.start()
    for thread in putting:
        thread.join(LONG)
    with shell.monitor.lock:
        assert done.wait(LONG)
    assert sorted(taken) == list(range(4000))
    assert all(own == sorted(own) for own in ([n for n in taken if n // 1000 == part] for part in range(4)))


def test_a_lock_is_held_across_waits(shell: ThreadShell) -> None:
    inside: list[int] = []
    most: list[int] = []

    def run(lock: Any, ended: Callable[[], object]) -> None:
        with lock:
            inside.append(1)
            most.append(len(inside))
            shell.sleep(0.005)
            inside.pop()
        ended()

    with shell.monitor.lock:
        lock, events = shell.lock(), [shell.event() for _ in range(5)]
        for event in events:
            shell.spawn(run, lock, event.set)
        assert all(event.wait(LONG) for event in events)
    assert most == [1] * 5


def test_workers_are_reused_and_never_too_many(shell: ThreadShell) -> None:
    running: list[int] = []
    seen: list[tuple[int, int]] = []
    with shell.monitor.lock:
        done = shell.event()

        def handle(item: int) -> None:
            running.append(item)
            assert len(running) <= 3
            shell.sleep(0.002)
            running.remove(item)
            seen.append((item, threading.get_ident()))
            if len(seen) == 40:
                done.set()

        workers: ThreadWorkers[int] = ThreadWorkers(handle, 3, shell.spawn, shell.new_parking)
        for item in range(40):
            workers.start(item)
        assert done.wait(LONG)
        workers.close()
    assert sorted(item for item, _ in seen) == list(range(40))
    assert len({ident for _, ident in seen}) <= 3


def test_where_no_more_threads_can_be_had_those_there_are_go_on_with_the_rest(shell: ThreadShell) -> None:
    threads: list[int] = []

    def spawn(*work: Any) -> None:
        if len(threads) == 2:
            raise RuntimeError("can't start new thread")
        threads.append(1)
        shell.spawn(*work)

    seen: list[int] = []
    with shell.monitor.lock:
        done = shell.event()

        def handle(item: int) -> None:
            shell.sleep(0.002)
            seen.append(item)
            if len(seen) == 10:
                done.set()

        workers: ThreadWorkers[int] = ThreadWorkers(handle, 5, spawn, shell.new_parking)
        for item in range(10):
            workers.start(item)
        assert done.wait(LONG)
        workers.close()
    assert sorted(seen) == list(range(10))


def test_items_are_begun_in_their_order_also_where_there_is_no_thread_for_some(shell: ThreadShell) -> None:
    seen: list[int] = []
    spawned: list[int] = []

    def spawn(*work: Any) -> None:
        if spawned:
            raise RuntimeError("can't start new thread")
        spawned.append(1)
        shell.spawn(*work)

    with shell.monitor.lock:
        done = shell.event()

        def handle(item: int) -> None:
            seen.append(item)
            shell.sleep(0.001)
            if len(seen) == 10:
                done.set()

        workers: ThreadWorkers[int] = ThreadWorkers(handle, 3, spawn, shell.new_parking)
        for item in range(10):
            workers.start(item)
        assert done.wait(LONG)
        workers.close()
    assert seen == list(range(10))


def test_handlers_that_do_not_wait_follow_one_another_in_one_thread(shell: ThreadShell) -> None:
    """A thread was woken for each of them, which cost three times as much as the call."""
    resumed: list[int] = []

    class CountedParking(Parking):
        __slots__ = ()

        def resume(self) -> None:
            resumed.append(1)
            super().resume()

    with shell.monitor.lock:
        everything = list(range(8))
        seen: list[int] = []
        all_wait, done = shell.event(), shell.event()

        def handle(item: int) -> None:
            seen.append(item)
            if sorted(seen) == everything:
                all_wait.set()
            if not all_wait.is_set():
                all_wait.wait()
            if len(seen) == 100:
                done.set()

        workers: ThreadWorkers[int] = ThreadWorkers(handle, 8, shell.spawn, lambda: CountedParking(shell.monitor))
        # While handlers wait others are begun beside them.
        for item in everything:
            workers.start(item)
        assert all_wait.wait(LONG)
        resumed.clear()
        for item in range(8, 100):
            workers.start(item)
        assert len(resumed) <= 1
        assert done.wait(LONG)
        assert len(resumed) < 20
        workers.close()


def test_where_no_thread_can_be_had_at_all_that_is_an_error(shell: ThreadShell) -> None:
    def spawn(*work: Any) -> None:
        raise RuntimeError("can't start new thread")

    workers: ThreadWorkers[int] = ThreadWorkers(print, 5, spawn, shell.new_parking)
    with pytest.raises(RuntimeError, match="can't start"):
        workers.start(1)


def test_a_host_name_that_does_not_resolve_is_told(shell: ThreadShell) -> None:
    told: list[str] = []
    with shell.monitor.lock:
        done = shell.event()

        def on_failure(text: str) -> None:
            told.append(text)
            done.set()

        shell.check_name("tcp://no-such-host.invalid:7700", on_failure)
        assert done.wait(LONG)
    assert "'no-such-host.invalid'" in told[0]
