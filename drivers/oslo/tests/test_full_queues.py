"""A queue or mailbox that is full: what ``retry`` says is tried, the reason is told, and nothing is sent twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import oslo_messaging
import pytest
from endpoints import Endpoint
from oslo_messaging import MessageDeliveryFailure, MessagingTimeout
from processes import Router, eventually

from rpcmq_oslo import sending

Make = Callable[..., Any]
_ROOM = 3


@pytest.fixture(scope="module")
def router() -> Iterator[Router]:
    """A router whose queues have little room."""
    with Router(queue_max_messages=str(_ROOM)) as router:
        yield router


@pytest.fixture
def full(client: Make) -> Callable[[str], Any]:
    """Makes a client of a topic whose mailbox is full."""

    def full(topic: str) -> Any:
        caller = client(topic)
        for n in range(_ROOM):
            caller.cast({}, "tell", n=n)
        return caller

    return full


def is_told_the_reason(caller: Any) -> bool:
    """Return whether a call that waits for room ends with the reason, unless the router is held up at that moment."""

    def told() -> str:
        with pytest.raises(MessagingTimeout) as caught:
            caller.call({}, "tell", n=200)
        return str(caught.value)

    return any("queue.max_messages" in told() for _ in range(5))


@pytest.mark.parametrize("retry", [0, 2])
def test_after_its_attempts_the_reason_is_told(full: Make, serve: Make, retry: int) -> None:
    topic = f"counted-{retry}"
    caller = full(topic).prepare(retry=retry)
    text = rf"tell to openstack/{topic}: .*queue\.max_messages.*\(after {retry + 1} attempts\)"
    with pytest.raises(MessageDeliveryFailure, match=text):
        caller.cast({}, "tell", n=_ROOM)
    with pytest.raises(MessageDeliveryFailure, match=text):
        caller.prepare(timeout=60).call({}, "tell", n=_ROOM + 1)
    endpoint = Endpoint()
    serve(endpoint, topic=topic)
    eventually(lambda: len(endpoint.seen) == _ROOM)
    assert caller.call({}, "tell", n=100) == 100
    assert sorted(endpoint.seen) == [*range(_ROOM), 100]


@pytest.mark.parametrize("retry", [None, -1])
def test_without_a_number_it_waits_for_room_and_is_sent_once(
    full: Make, serve: Make, in_thread: Callable[..., Future[Any]], retry: int | None
) -> None:
    topic = f"patient-{retry}"
    caller = full(topic).prepare(retry=retry)
    casts = [in_thread(caller.cast, {}, "tell", n=_ROOM + n) for n in range(5)]
    call = in_thread(caller.prepare(timeout=60).call, {}, "tell", n=100)
    assert is_told_the_reason(caller.prepare(timeout=2))
    assert not any(each.done() for each in [*casts, call])
    endpoint = Endpoint()
    serve(endpoint, topic=topic)
    assert call.result(60) == 100
    for cast in casts:
        cast.result(60)
    eventually(lambda: len(endpoint.seen) == _ROOM + 6)
    assert sorted(endpoint.seen) == [*range(_ROOM + 5), 100]


def test_the_reason_is_told_also_by_a_process_that_wakes_late(full: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    caller = full("late").prepare(timeout=2)
    late = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: time.sleep(seconds + 3))
    monkeypatch.setattr(sending, "time", late)
    assert is_told_the_reason(caller)


def test_a_notification_to_a_full_mailbox(transport: Make) -> None:
    target = oslo_messaging.Target(topic="full.info")
    message = {"event_type": "e", "payload": {}}
    for _ in range(_ROOM):
        transport()._send_notification(target, {}, message, 2.0, retry=None)
    with pytest.raises(MessageDeliveryFailure, match=r"e to openstack/full:info: .*queue\.max_messages"):
        transport()._send_notification(target, {}, message, 2.0, retry=1)
