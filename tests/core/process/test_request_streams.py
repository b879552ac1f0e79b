"""The streams of requests at both ends: credit, ends, bounds, and what a lost router does to them."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process import received_streams as bounds
from rpcmq.core.process.received_streams import ReceivedStream
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.core.process.task import Task
from rpcmq.errors import CallCancelled, CallTimeout, LinkLost
from rpcmq.wire import KEY, KIND_AT, Detached, Flag, Kind, pack, payload_of
from rpcmq.wire.stream_grant import grant_payload
from tests.core.process.calling import COMPUTE
from tests.core.process.calling import Process as Caller
from tests.core.process.serving import Process as Server


class Ends:
    """A caller and a consumer of one request with a stream; a router that passes on everything is between them."""

    def __init__(self, timeout: float = 10.0, flags: int = 0) -> None:
        self.caller, self.server = Caller(), Server()
        self.caller.connect(request_streams=True)
        self.server.register(credit=100)
        self.call = StreamingCall("compute", Flag.STREAM | flags, timeout)
        self.call.waiter = lambda: None
        self.caller.calls.start(
            0.0, self.call, Kind.REQUEST, b"args", format=5, address=COMPUTE, method=b"store"
        )  # fmt: skip
        self.caller.sent()
        task = self.server.deliver(format=5, flags=Flag.STREAM, key=self.call.key, ttl=int(timeout * 1000))
        assert task is not None
        self.task: Task = task

    @property
    def stream(self) -> ReceivedStream:
        """The consumer's end."""
        stream = self.server.serving.streams.of(self.task)
        assert stream is not None
        return stream

    def take(self) -> bytes | None:
        """The handler asks for an item."""
        message = self.server.serving.streams.take(self.stream)
        return None if message is None else bytes(payload_of(message))

    def send(self, payload: bytes, now: float = 0.0) -> None:
        """The caller sends an item."""
        self.caller.calls.streams.send_item(now, self.call, 0, payload)

    def pass_on(self, now: float = 0.0) -> list[int]:
        """Both get what the other one has sent; return the kinds."""
        kinds = []
        for sender, receiver in ((self.caller, self.server), (self.server, self.caller)):
            for message in sender.sent():
                kinds.append(message[KIND_AT])
                receiver.uplink.receive(now, message, [message.payload] if isinstance(message, Detached) else ())
        return kinds


def test_nothing_is_asked_for_before_the_handler_wants_it():
    ends = Ends()
    assert ends.pass_on() == [] and not ends.call.may_send and ends.task.format == 2
    assert ends.take() is None
    assert ends.pass_on() == [Kind.REQUEST_GRANT] and ends.call.may_send and ends.call.begun
    ends.send(b"first")
    ends.pass_on()
    assert ends.take() == b"first" and ends.take() is None
    ends.caller.calls.streams.end(0.0, ends.call)
    ends.pass_on()
    assert ends.stream.ended is not None


def test_the_window_is_granted_again_as_it_is_taken():
    ends = Ends()
    ends.take()
    ends.pass_on()
    granted = ends.call.granted_items
    assert granted == bounds.WINDOW_ITEMS and ends.call.granted_bytes == bounds.WINDOW_BYTES
    for _ in range(granted):
        ends.send(b"x")
    assert not ends.call.may_send
    ends.pass_on()
    for n in range(granted):
        ends.take()
        kinds = ends.pass_on()
        assert (kinds == [Kind.REQUEST_GRANT]) == (n % (granted // 2) == granted // 2 - 1)
    assert ends.call.granted_items == granted


@given(st.lists(st.tuples(st.booleans(), st.sampled_from((0, 1, 100_000, 300_000, 3_000_000))), max_size=60))
def test_whatever_is_sent_comes_in_order_and_within_the_window(steps: list[tuple[bool, int]]):
    ends, sent, taken = Ends(), deque[int](), []
    ends.take()
    ends.pass_on()
    for is_sent, size in [*steps, *[(True, 1), (False, 0)] * (len(steps) + 1)]:
        if is_sent and ends.call.may_send:
            ends.send(bytes(size))
            sent.append(size)
        elif not is_sent and (item := ends.take()) is not None:
            taken.append(len(item))
            assert sent.popleft() == taken[-1]
        ends.pass_on()
        stream = ends.stream
        assert stream.queued_bytes == sum(len(payload_of(m)) for m in stream.items)
        assert stream.queued_bytes + max(0, stream.size_credit) <= bounds.WINDOW_BYTES + 3_000_000
        assert len(stream.items) + stream.item_credit <= bounds.WINDOW_ITEMS
        assert (stream.item_credit, stream.size_credit) == (ends.call.granted_items, ends.call.granted_bytes)
        # Never stuck: with nothing to take there is always credit to send.
        assert stream.items or ends.call.may_send
    assert ends.server.uplink.discarded == {}


def test_all_streams_of_a_process_share_a_bound():
    server = Server()
    server.register(credit=200)
    tasks = [server.deliver(format=4, flags=Flag.STREAM) for _ in range(100)]
    granted = 0
    for task in tasks:
        assert task is not None
        stream = server.serving.streams.of(task)
        assert stream is not None
        server.serving.streams.take(stream)
        granted += stream.size_credit
    assert granted <= 3 * bounds.SHARED_BYTES + 100 * bounds.LEAST_WINDOW_BYTES


def test_the_handler_stops_and_the_sender_is_told():
    ends = Ends()
    ends.take()
    ends.pass_on()
    ends.send(b"x" * 1000)
    ends.pass_on()
    told: list[str] = []
    ends.call.on_change = lambda: told.append("changed")
    ends.server.serving.streams.stop(ends.stream)
    assert ends.stream.queued_bytes == 0 and ends.pass_on() == [Kind.REQUEST_STOP]
    assert ends.call.stopped and ends.call.is_over and not ends.call.done and told
    ends.server.serving.streams.stop(ends.stream)
    assert ends.pass_on() == []


def test_a_stop_before_anything_was_asked_for():
    ends = Ends()
    ends.server.serving.streams.stop(ends.stream)
    assert ends.pass_on() == [Kind.REQUEST_STOP] and ends.call.begun and ends.call.is_over


@pytest.mark.parametrize("end", ["cancelled", "answered"])
def test_a_task_that_ends_frees_what_has_come(end: str):
    ends = Ends()
    ends.take()
    ends.pass_on()
    ends.send(bytes(100_000))
    ends.pass_on()
    stream = ends.stream
    if end == "cancelled":
        ends.caller.calls.cancel(ends.call)
        ends.pass_on()
        assert not ends.task.is_wanted
    else:
        ends.server.serving.answer(0.0, ends.task, Kind.REPLY, 1, b"1")
        assert ends.server.serving.streams.open == {}
    assert stream.queued_bytes == 0 and not stream.items


def test_a_lost_session_frees_what_has_come():
    ends = Ends()
    ends.take()
    ends.pass_on()
    ends.send(bytes(100_000))
    ends.pass_on()
    stream = ends.stream
    ends.server.connect(boot=6)
    assert stream.queued_bytes == 0 and not ends.task.is_wanted


def test_what_was_not_granted_is_refused_and_breaks_the_stream():
    ends = Ends()
    ends.server.router(pack(Kind.REQUEST_ITEM, b"x", key=ends.call.key))
    assert ends.server.uplink.discarded == {"credit": 1} and not ends.stream.items
    ended = ends.stream.ended
    assert ended is not None and ended[KIND_AT] == Kind.CANCEL
    assert ends.server.serving.changed == [ends.task]


@pytest.mark.parametrize("fields", [{"key": b"k" * 20}, {"attempt": 3}, {"hops": 1}])
def test_items_of_another_request_or_attempt_are_counted(fields: dict[str, Any]):
    ends = Ends()
    ends.take()
    ends.server.router(pack(Kind.REQUEST_ITEM, b"x", **{"key": ends.call.key} | fields))
    assert ends.server.serving.counters == {"late items of requests": 1} and not ends.stream.items


def test_each_item_puts_off_the_deadline_of_its_task():
    ends = Ends(timeout=10.0)
    ends.take()
    ends.pass_on()
    ends.send(b"x", now=8.0)
    ends.pass_on(now=8.0)
    assert ends.task.ttl == 18.0


def test_items_and_grants_put_off_the_timeout_of_the_call():
    ends = Ends(timeout=10.0)
    ends.take()
    ends.pass_on(now=7.0)
    for now in (14.0, 21.0):
        ends.send(b"x", now=now)
        ends.caller.calls.tick(now)
        assert not ends.call.done
    for now in (26.0, 31.0, 31.6):
        ends.caller.calls.tick(now)
    assert isinstance(ends.call.error, CallTimeout)


def test_grants_for_what_has_ended_are_counted():
    caller = Caller()
    for kind in (Kind.REQUEST_GRANT, Kind.REQUEST_STOP):
        caller.router(pack(kind, grant_payload(1, 1), key=b"k" * 20))
    assert caller.calls.counters == {"late grants": 2}


def test_a_call_whose_iterable_has_failed_ends_here_and_is_cancelled_there():
    ends = Ends()
    ends.take()
    ends.pass_on()
    ends.caller.calls.streams.end(0.0, ends.call, 1, b"{}")
    ends.caller.calls.abandon(ends.call, CallCancelled("raised"))
    ends.caller.calls.abandon(ends.call, CallCancelled("again"))
    assert [m[KIND_AT] for m in ends.caller.sent()] == [Kind.REQUEST_END, Kind.CANCEL]
    assert str(ends.call.error) == "raised"


@pytest.mark.parametrize("begun", [True, False])
def test_after_a_restart_of_the_router_an_idempotent_request_is_sent_again_unless_its_stream_was_begun(begun: bool):
    ends = Ends(flags=Flag.IDEMPOTENT)
    if begun:
        ends.take()
        ends.pass_on()
        ends.send(b"gone")
    again = ends.caller.connect(boot=6, request_streams=True)
    if begun:
        assert again == [] and isinstance(ends.call.error, LinkLost) and "its stream under way" in str(ends.call.error)
    else:
        assert [m[KEY] for m in again if m[KIND_AT] == Kind.REQUEST] == [ends.call.key] and not ends.call.done


def test_what_is_asked_for_is_not_given_back():
    ends = Ends()
    ends.server.connect(boot=5, resumed=False, takes_back=True)
    task = ends.server.deliver(format=4, flags=Flag.STREAM)
    assert task is not None
    stream = ends.server.serving.streams.of(task)
    assert stream is not None
    ends.server.serving.streams.take(stream)
    assert not ends.server.serving.give_back(task)


def test_a_stream_belongs_to_a_call_only():
    server = Server()
    server.register(credit=10)
    for kind, flags in ((Kind.CAST, Flag.STREAM), (Kind.REQUEST, 0)):
        task = server.deliver(kind, format=4, flags=flags)
        assert task is not None and server.serving.streams.of(task) is None and task.format == 4
