"""Workers that several consumers share, in a shell played by the test and in both real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rpcmq.client.shared_workers import SharedWorkers
from rpcmq.core.process.task import Task
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.shell import ClientShell
from rpcmq.transport.thread_home import thread_home
from tests.from_threads import in_thread

#: Longest wait for anything (seconds).
LONG = 20.0


class Shell:
    """Runs what is to be run beside the loop, or in it, when the test says so."""

    def __init__(self) -> None:
        self.soon: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self.begun: list[Callable[[], None]] = []

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        self.soon.append((function, args))

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for function, args in soon:
            function(*args)


class Greenlets:
    """Workers whose handlers run until they first wait, as those of gevent do; the test ends them."""

    def __init__(self, handle: Callable[[Any], None]) -> None:
        self.handle = handle

    def start(self, item: Any) -> None:
        self.handle(item)

    def close(self) -> None:
        pass


class Handler:
    """Handlers as generators, so that the test decides when each of them ends."""

    def __init__(self, most: int) -> None:
        self.shell = Shell()
        self.shell.workers = lambda handle, most: Greenlets(handle)  # type: ignore[attr-defined]
        self.workers = SharedWorkers(self.shell, most)  # type: ignore[arg-type]


def test_tasks_beyond_the_limit_begin_in_the_order_in_which_they_came() -> None:
    made = Handler(1)
    order: list[str] = []
    shares: dict[str, Any] = {}

    def run(task: Any) -> None:
        order.append(task)
        if task == "a1":
            # While it runs, both routers deliver.
            shares["b"].start("b1")
            shares["a"].start("a2")
            shares["b"].start("b2")
            made.shell.turn()
            assert order == ["a1"]

    shares["a"], shares["b"] = made.workers.share(run), made.workers.share(run)
    shares["a"].start("a1")
    assert order == ["a1"]
    while made.shell.soon:
        made.shell.turn()
    assert order == ["a1", "b1", "a2", "b2"]


def order_with_a_late_task(shell: ClientShell) -> list[str]:
    """Start A, and B to F while it runs; a last task comes between its end and the turn in which B begins."""
    order: list[str] = []
    delivered, ended = shell.event(), shell.event()

    def run(task: Any) -> None:
        order.append(task)
        if task == "A":
            shell.call_soon(deliver)
            delivered.wait(LONG)
            shell.call_soon(share.start, "LATE")
        elif len(order) == 7:
            ended.set()

    def deliver() -> None:
        for task in "BCDEF":
            share.start(task)
        shell.call_soon(delivered.set)

    workers = SharedWorkers(shell, 1)
    share: Any = workers.share(run)
    shell.call_soon(share.start, "A")
    assert ended.wait(LONG)
    workers.close()
    return order


def test_a_task_that_comes_as_a_worker_ends_does_not_overtake_the_waiting_ones_in_gevent() -> None:
    assert order_with_a_late_task(GeventShell()) == [*"ABCDEF", "LATE"]


def test_a_task_that_comes_as_a_worker_ends_does_not_overtake_the_waiting_ones_in_threads() -> None:
    shell: Any = thread_home().shell
    assert in_thread(shell.inside, order_with_a_late_task, shell) == [*"ABCDEF", "LATE"]


def test_a_consumer_with_much_that_waits_keeps_no_other_from_its_turn() -> None:
    made = Handler(1)
    order: list[str] = []

    def run(task: Any) -> None:
        order.append(task)
        if task == "first":
            for n in range(5):
                flooded.start(f"much {n}")
            quiet.start("quiet")
        # What comes before the next task has begun does not go before it.
        flooded.start("late") if len(order) < 5 else None

    flooded: Any = made.workers.share(run)
    quiet: Any = made.workers.share(run)
    flooded.start("first")
    while made.shell.soon:
        made.shell.turn()
    assert order[:4] == ["first", "much 0", "quiet", "much 1"] and order[-1] == "late" and len(order) == 11


def test_no_more_are_begun_than_may_run_where_workers_begin_later() -> None:
    made = Handler(2)
    begun: list[Any] = []
    made.workers._workers.start = begun.append  # type: ignore[method-assign,assignment]
    share: Any = made.workers.share(lambda task: None)
    for n in range(5):
        share.start(n)
    assert [item.task for item in begun] == [0, 1]
    made.workers._work(begun[0])
    made.shell.turn()
    assert [item.task for item in begun] == [0, 1, 2]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_handler_that_raises_leaves_its_worker_to_the_next_task(error: type[BaseException]) -> None:
    made = Handler(1)
    order: list[Any] = []

    def run(task: Any) -> None:
        order.append(task)
        if task == 1:
            share.start(2)
            raise error

    share: Any = made.workers.share(run)
    with pytest.raises(error):
        share.start(1)
    made.shell.turn()
    assert order == [1, 2]


def test_what_waits_keeps_no_task_alive_that_has_ended() -> None:
    made = Handler(2)
    share = made.workers.share(lambda task: None)
    for _ in range(10):
        share.start(Task())
    assert not made.shell.soon
