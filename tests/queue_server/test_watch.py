"""Whether the items of a queue move, and what they wait for."""

from __future__ import annotations

import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from rpcmq.errors import CallTimeout, NoConsumer
from rpcmq.queue_server.progress import Progress
from rpcmq.queue_server.watch import Watch
from rpcmq.store.contract import Lane, Maker, Position, Stored

ALARM = 60.0


class Queue:
    """A queue with so many items ready, and more that are on their way to workers."""

    def __init__(self, ready: int = 0, unbegun: int = 0) -> None:
        self.name, self.ready, self.running = "billing", ready, unbegun
        self.counters: Counter[str] = Counter()
        self.is_paused, self.is_draining, self.doubt = False, False, 0.0
        self.is_late = False
        self.policy = SimpleNamespace(concurrency=0, rate=2.5, alarm=ALARM)
        self.dispatcher = SimpleNamespace(unbegun=unbegun, awaits_worker=False, refusal="", progress=Progress(0.0))
        self.store = SimpleNamespace(problem="", lost="")
        self.answer: Exception | None = None
        self.pings = 0
        anything: Any = self
        self.watch = Watch(anything, anything.dispatcher, anything.store, anything)

    def is_over_rate(self, now: float) -> bool:
        return self.is_late

    def in_doubt(self, now: float) -> float:
        return max(0.0, self.doubt - now)

    def figures(self, now: float) -> dict[str, Any]:
        return {"ready": self.ready, "running": self.running, "is_paused": self.is_paused}

    def call(self, *args: Any, **options: Any) -> None:
        self.pings += 1
        if self.answer is not None:
            raise self.answer


def alarms(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "stands still" in record.getMessage()]


def test_a_queue_without_workers_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue(ready=10, unbegun=2)
    queue.answer = NoConsumer("nobody")
    with caplog.at_level(logging.WARNING, "rpcmq.queue"):
        for second in range(1, 2 + int(2 * ALARM)):
            row = queue.watch.observe(float(second))
            assert (row["ready"], row["running"]) == (12, 0)
            assert row["state"] == ("works" if second < 2 else "waits" if second <= ALARM else "stands still")
    text = "queue 'billing' stands still: 12 item(s) wait, none has moved for 60 s: no worker on queue billing"
    assert alarms(caplog) == [text, text.replace("60 s", "120 s")]


def test_the_setting_alarm_says_when_and_whether(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue(ready=10)
    with caplog.at_level(logging.WARNING, "rpcmq.queue"):
        queue.policy.alarm = 0.0
        for second in range(1, 200):
            assert queue.watch.observe(float(second))["state"] in ("works", "waits")
        assert alarms(caplog) == []
        queue.policy.alarm = 500.0
        states = [queue.watch.observe(float(second))["state"] for second in (500, 501)]
    assert states == ["waits", "stands still"] and len(alarms(caplog)) == 1


def test_items_that_have_died_are_told_of_together(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue()
    with caplog.at_level(logging.WARNING, "rpcmq.queue"):
        queue.counters.update(dead=2, rejected=1, failed=7, done=100)
        queue.watch.observe(1.0)
        queue.watch.observe(2.0)
        queue.counters.update(failed=1)
        queue.watch.observe(3.0)
    text = "queue 'billing': 2 item(s) died (attempts: 7 failed, 1 rejected): rpcmq queue dead billing"
    assert [record.getMessage() for record in caplog.records] == [text]


def test_items_that_were_not_tried_are_told_of_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue()
    with caplog.at_level(logging.WARNING, "rpcmq.queue"):
        queue.counters.update(dead=1, refused=1)
        queue.watch.observe(1.0)
        queue.counters.update(dead=2, refused=1, failed=3)
        queue.watch.observe(2.0)
        queue.counters.update(dead=5, expired=3, damaged=2)
        queue.watch.observe(3.0)
    shown = "rpcmq queue dead billing"
    assert [record.getMessage() for record in caplog.records] == [
        f"queue 'billing': 1 item(s) died (1 refused, whose id another item has): {shown}",
        f"queue 'billing': 2 item(s) died (attempts: 3 failed; 1 refused, whose id another item has): {shown}",
        f"queue 'billing': 5 item(s) died (3 expired; 2 damaged): {shown}",
    ]


def test_items_that_move_are_not_still() -> None:
    queue = Queue(ready=5, unbegun=1)
    queue.answer = NoConsumer("nobody")
    assert queue.watch.still(10.0) == 0
    assert queue.watch.still(15.0) == 5
    queue.dispatcher.progress.begun(14.0)
    assert queue.watch.still(15.0) == 1
    queue.ready = queue.dispatcher.unbegun = 0
    assert queue.watch.still(100.0) == 0 and queue.watch.why(100.0) == ""
    queue.ready = 1
    assert queue.watch.still(101.0) == 0, "it counts from when items wait"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"store.problem": "the disk is full"}, "the store does not answer: the disk is full"),
        ({"store.lost": "its file was removed"}, "its file was removed"),
        ({"is_paused": True}, "paused by an operator: rpcmq queue resume billing"),
        ({"dispatcher.refusal": "draining"}, "no router takes them: draining"),
        ({"dispatcher.unbegun": 1, "answer": NoConsumer("nobody")}, "no worker on queue billing"),
        ({"dispatcher.unbegun": 1, "answer": CallTimeout("late")}, "its workers are busy"),
        ({"is_late": True}, "as many begin as the queue's setting rate allows: 2.5 a second"),
        ({"policy.concurrency": 2, "running": 2}, "2 are worked at, as many as the queue's setting concurrency allows"),
        ({"doubt": 20.0}, "the queue server was killed, and workers may still have them: given again in 9 s"),
        ({}, "they wait for others that have the same key, or are read from the store"),
    ],
)
def test_the_reason_is_said(change: dict[str, Any], why: str) -> None:
    queue = Queue(ready=3)
    for name, value in change.items():
        of, _, attribute = name.rpartition(".")
        setattr(getattr(queue, of) if of else queue, attribute, value)
    queue.watch.still(1.0)
    assert queue.watch.why(11.0) == why


def test_workers_are_not_asked_more_than_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(unbegun=1)
    monkeypatch.setattr("rpcmq.queue_server.watch.monotonic", lambda: 11.0)
    queue.watch.still(1.0)
    assert queue.watch.why(11.0) == queue.watch.why(11.5) == "its workers are busy" and queue.pings == 1
    queue.watch.why(12.5)
    assert queue.pings == 2


def item(at: int, due: int = 0) -> Stored:
    return Stored(Position(due), Lane("billing", 0), 1, at, b"", Maker(1, 1), b"", b"")


def test_waiting_working_and_the_whole_are_told_apart() -> None:
    progress = Progress(0.0)
    progress.ended(10.0, 10_000, item(at=4_000), 2.0, False)  # waited 4 s, failed after 2 s
    progress.ended(15.0, 15_000, item(at=4_000, due=12_000), 1.0, True)  # due at 12 s, begun at 14 s
    times = progress.times()
    assert {name: each["count"] for name, each in times.items()} == {"waiting": 2, "working": 2, "whole": 1}
    assert [times[name]["max"] for name in ("waiting", "working", "whole")] == [4e6, 2e6, 11e6]
    assert times["waiting"]["sum"] == 6e6 and progress.moved == 15.0


def test_each_item_is_reported_unless_many_end() -> None:
    progress = Progress(0.0)
    assert all(progress.is_reported(number) for number in range(20))
    for _ in range(200):
        progress.ended(5.0, 5_000, item(at=4_000), 0.001, True)
    assert [number for number in range(17) if progress.is_reported(number)] == [0, 8, 16]
    progress.ended(6.0, 6_000, item(at=4_000), 0.001, True)
    assert progress.is_reported(1)
