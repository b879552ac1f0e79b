"""The time that a put takes counts for the delay and the expiry of its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rpcmq.client.queue import puts
from rpcmq.client.queue.protocol import PutAnswer, Record
from rpcmq.client.queue.puts import Producer
from rpcmq.client.queue.records import unpack_records
from rpcmq.client.queue.steps import End, Pause, next_step
from rpcmq.errors import CallTimeout, NoConsumer
from rpcmq.payload import Codec, Format
from rpcmq.transport.gevent_shell import GeventShell


def record(delay: float = 0.0, expires: float = 0.0) -> Record:
    return Record(b"", 1, b"", 0, delay, expires, b"", "charge", int(Format.JSON), b"body")


class World:
    """A queue server that is not there at first, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.offered: list[list[tuple[float, float]]] = []
        monkeypatch.setattr(puts, "monotonic", lambda: self.now)

    def put(self, records: list[Record], *answers: tuple[float, Any]) -> None:
        """Put ``records``; each question of the client is answered after so many seconds."""
        left = list(answers)
        step = next_step(steps := Producer(Codec(), GeventShell()).put("billing", records, 60.0))
        while not isinstance(step, End):
            answer, error = None, None
            if isinstance(step, Pause):
                self.now += step.seconds
            else:
                seconds, answer = left.pop(0)
                self.now += seconds
                self._note(step.message)  # type: ignore[union-attr]
                if isinstance(answer, Exception):
                    answer, error = None, answer
            step = next_step(steps, answer, error)
        assert not left

    def _note(self, message: Mapping[str, Any]) -> None:
        if message["method"] == "put":
            found = unpack_records(message["args"]["records"])
            self.offered.append([(each.delay, each.expires) for each in found])


PUT = (0.0, list(PutAnswer("", [1], [])))


def test_a_put_that_is_answered_at_once_is_offered_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.put([record(delay=60.0, expires=5.0)], (0.05, "here"), PUT)
    assert world.offered == [[(60.0, 5.0)]]


def test_what_it_has_waited_for_a_queue_server_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    both = (0.0, list(PutAnswer("", [1, 2], [])))
    world.put([record(delay=60.0, expires=5.0), record()], (3.0, "here"), both)
    assert world.offered == [[(57.0, 2.0), (0.0, 0.0)]]


def test_what_an_answer_has_taken_that_never_came_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    lost = CallTimeout("no answer", {})
    world.put([record(expires=25.0)], (0.0, "here"), (20.0, lost), PUT)
    assert world.offered[0] == [(0.0, 25.0)]
    assert world.offered[1][0][1] == pytest.approx(5.0, abs=0.1)


def test_one_whose_time_is_over_meanwhile_expires_and_is_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    world.put([record(delay=2.0, expires=5.0)], (0.0, NoConsumer("nobody", {})), (30.0, "here"), PUT)
    ((delay, expires),) = world.offered[0]
    assert 0 < delay < 0.01 and 0 < expires < 0.01
