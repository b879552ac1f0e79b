"""Items on their way to workers, and back."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import gevent
import pytest

from rpcmq.client.queue.messages import Message
from rpcmq.client.queue.protocol import WORKERS
from rpcmq.client.told_call import call_and_tell
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.work_queue import Given
from rpcmq.errors import RouterUnreachable
from rpcmq.queue_server import dispatcher as dispatcher_module
from rpcmq.queue_server.dispatcher import _WINDOW, Dispatcher
from rpcmq.store.contract import Lane, Maker, Position, Stored
from rpcmq.testing import eventually

_MESSAGE = Message(b"charge", 0, b"{}").to_bytes()


@pytest.fixture
def client_shell() -> str:
    """A queue server lives in gevent."""
    return "gevent"


class Queue:
    """A queue that writes down how its items have ended."""

    def __init__(self, items: int, message: bytes = _MESSAGE, id: bytes = b"") -> None:
        self.name, self.policy = "billing", Policy()
        item = Stored(Position(), Lane("billing", 0), 1, 1, id, Maker(1, 1), b"", b"")
        self.waiting = deque(Given(item, (1, count), 1, message, b"", 0.0) for count in range(1, items + 1))
        self.given: dict[Any, Given] = {}
        self.ends: list[tuple[str, Any]] = []

    def take(self, now: float) -> Given | None:
        if not self.waiting:
            return None
        given = self.waiting.popleft()
        self.given[given.fence] = given
        return given

    @property
    def ready(self) -> int:
        return len(self.waiting)

    def wall(self, now: float) -> int:
        return int(now * 1000)

    def done(self, fence: Any, result: bytes = b"", now: float = 0.0) -> None:
        self.ends.append(("done", self.given.pop(fence)))

    def failed(self, now: float, fence: Any, worker: str, text: str, again: Any = None) -> None:
        self.ends.append((text, self.given.pop(fence, None)))

    def not_begun(self, fence: Any) -> None:
        self.ends.append(("not begun", None))
        self.waiting.appendleft(self.given.pop(fence))


class Worker:
    """Answers what it is told to."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.goes_on = gevent.event.Event()
        self.begun = 0

    def charge(self, ctx: Any, order: Any) -> Any:
        self.begun += 1
        assert self.goes_on.wait(20)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def dispatching(client: Any, queue: Queue) -> Dispatcher:
    anything: Any = queue
    dispatcher = Dispatcher(anything, client, "a", lambda: gevent.spawn(dispatcher.pump))
    client.connect()
    dispatcher.pump()
    return dispatcher


DONE = ("done", "", None, 0, b"", 0.0)


def test_items_are_given_as_a_window_allows_and_are_done(client, serve):
    worker = Worker(DONE)
    serve(worker, "billing", exchange=WORKERS, concurrency=500)
    queue = Queue(3 * _WINDOW)
    dispatcher = dispatching(client, queue)
    eventually(lambda: worker.begun == _WINDOW)
    assert len(queue.given) == dispatcher.unbegun == _WINDOW
    worker.goes_on.set()
    eventually(lambda: len(queue.ends) == 3 * _WINDOW)
    assert {end for end, _ in queue.ends} == {"done"}
    assert dispatcher.unbegun == 0
    assert dispatcher.stop(10)


@pytest.mark.parametrize("answer", [None, 17, (), ("done", "", None, 0, b"", "soon"), ("?",) * 9, ValueError("no")])
def test_an_item_comes_back_whatever_its_worker_answers(client, serve, answer):
    worker = Worker(answer)
    worker.goes_on.set()
    serve(worker, "billing", exchange=WORKERS)
    queue = Queue(1)
    dispatcher = dispatching(client, queue)
    eventually(lambda: queue.ends)
    assert queue.ends[0][0] != "done"
    assert not queue.given
    assert dispatcher.unbegun == 0


@pytest.mark.parametrize("message", [b"", b"\x00", b"\xff\xff", b"\x02\x09\xff\xfe"])
def test_an_item_that_is_none_stops_no_other(client, serve, message):
    """As somebody has written it into the database."""
    worker = Worker(("failed", "UnknownMethod", None, 0, b"", 0.0))
    worker.goes_on.set()
    serve(worker, "billing", exchange=WORKERS)
    queue = Queue(3, message, b"\xff")
    dispatching(client, queue)
    eventually(lambda: len(queue.ends) == 3)
    assert not queue.given


def test_an_item_with_too_large_an_answer_has_failed_with_that_reason_and_is_not_offered_for_ever(client, serve):
    worker = Worker(("done", "", None, 0, bytes(2 << 20), 0.0))
    worker.goes_on.set()
    serve(worker, "billing", exchange=WORKERS)
    queue = Queue(1)
    dispatcher = dispatching(client, queue)
    eventually(lambda: queue.ends)
    ((text, _),) = queue.ends
    assert re.search(r"answered with 2\d{6} bytes, and 1114112 are the most for the answer of a worker", text)
    assert dispatcher.unbegun == 0 and dispatcher.refusal == ""


def test_a_stop_waits_for_what_runs(client, serve):
    worker = Worker(DONE)
    serve(worker, "billing", exchange=WORKERS)
    queue = Queue(1)
    dispatcher = dispatching(client, queue)
    eventually(lambda: worker.begun == 1)
    assert not dispatcher.stop(0.05)
    stopping = gevent.spawn(dispatcher.stop, 10)
    worker.goes_on.set()
    assert stopping.get(timeout=10)


def test_an_item_that_cannot_be_sent_has_not_failed(client, serve, monkeypatch):
    worker = Worker(DONE)
    worker.goes_on.set()
    serve(worker, "billing", exchange=WORKERS)
    errors: list[Exception] = [RouterUnreachable("nobody is there")]

    def call_or_raise(*args: Any, **options: Any) -> None:
        if errors and options:
            raise errors.pop()
        call_and_tell(*args, **options)

    monkeypatch.setattr(dispatcher_module, "call_and_tell", call_or_raise)
    queue = Queue(1)
    dispatcher = dispatching(client, queue)
    eventually(lambda: dispatcher.refusal == "nobody is there")
    eventually(lambda: len(queue.ends) == 2)
    assert [end for end, _ in queue.ends] == ["not begun", "done"]
    assert dispatcher.refusal == ""


def test_an_item_whose_worker_has_not_begun_it_has_not_failed(client, serve):
    worker = Worker(("failed", "the lease is over", None, 0, b"", 0.0, "w", False))
    worker.goes_on.set()
    serve(worker, "billing", exchange=WORKERS)
    queue = Queue(1)
    dispatcher = dispatching(client, queue)
    eventually(lambda: worker.begun)
    worker.answer = DONE
    eventually(lambda: len(queue.ends) == 2)
    assert [end for end, _ in queue.ends] == ["not begun", "done"]
    assert dispatcher.unbegun == 0


def test_an_item_that_its_worker_takes_for_expired_is_looked_at_again_at_once(client, serve, monkeypatch):
    worker = Worker(("failed", "nobody wants it any more", 0.0, 0, b"", 0.0, "w", False))
    worker.goes_on.set()
    serve(worker, "billing", exchange=WORKERS)
    queue = Queue(1)
    # Else it is offered again after the test.
    monkeypatch.setattr(dispatcher_module, "_PAUSE", 1e6)
    dispatching(client, queue)
    eventually(lambda: worker.begun > 1)
    worker.answer = DONE
    eventually(lambda: queue.ends and queue.ends[-1][0] == "done")
    assert {end for end, _ in queue.ends[:-1]} == {"not begun"}


def test_without_a_worker_no_item_is_on_its_way(client, serve):
    queue = Queue(3)
    dispatcher = dispatching(client, queue)
    assert dispatcher.awaits_worker
    client.query("summary")  # the ping has come to the router
    assert not queue.given and dispatcher.unbegun == 0
    worker = Worker(DONE)
    worker.goes_on.set()
    service = serve(worker, "billing", exchange=WORKERS)
    eventually(lambda: len(queue.ends) == 3)
    service.stop()
    queue.waiting.extend(Queue(2).waiting)
    dispatcher.pump()
    eventually(lambda: dispatcher.awaits_worker)
    assert not queue.given and dispatcher.unbegun == 0
    assert [end for end, _ in queue.ends[3:]] == ["not begun", "not begun"]
    serve(worker, "billing", exchange=WORKERS)
    eventually(lambda: len(queue.ends) == 7)
    assert [end for end, _ in queue.ends[5:]] == ["done", "done"]
