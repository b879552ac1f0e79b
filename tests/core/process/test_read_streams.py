"""Streams that answer calls, at both ends: grants in bytes as items are taken, and routers of an earlier version."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common.stream_credit import UNASKED_BYTES, UNASKED_ITEMS
from rpcmq.core.process.call import Call, taken_of
from rpcmq.core.process.received_streams import LEAST_WINDOW_BYTES, SHARED_BYTES, WINDOW_BYTES
from rpcmq.core.process.task import Task
from rpcmq.wire import FORMAT_AT, KEY, KIND_AT, Detached, Flag, Kind, flags_of, pack, payload_of
from rpcmq.wire.stream_grant import reply_grant_of
from tests.core.process.calling import COMPUTE
from tests.core.process.calling import Process as Caller
from tests.core.process.serving import Process as Server


class Ends:
    """A caller and a consumer of streams; routers that pass on everything are between them.

    Args:
        caller_knows, server_knows: whether the router of each takes grants in bytes.
    """

    def __init__(self, caller_knows: bool = True, server_knows: bool = True, streams: int = 1) -> None:
        self.caller, self.server = Caller(), Server()
        self.caller.connect(byte_credit=caller_knows)
        self.server.connect(byte_credit=server_knows)
        self.server.register(credit=10_000)
        self.calls, self.tasks = [], []
        for _ in range(streams):
            call = Call("compute", self.caller.calls.stream_flags, 10.0)
            call.waiter = lambda: None
            self.caller.calls.start(0.0, call, Kind.REQUEST, b"args", address=COMPUTE, method=b"list")
            (request,) = self.caller.sent()
            task = self.server.deliver(format=request[FORMAT_AT], flags=flags_of(request), key=call.key, ttl=10_000)
            assert task is not None
            self.calls.append(call)
            self.tasks.append(task)
        self.grants: list[bytes] = []

    def may_send(self, at: int = 0) -> bool:
        return self.server.serving.answered_streams.credit_of(self.tasks[at]).may_send

    def send(self, size: int, at: int = 0) -> None:
        self.server.serving.send_item(self.tasks[at], Kind.ITEM, 1, bytes(size))
        self.pass_on()

    def send_all(self, size: int, at: int = 0) -> int:
        """Send as many items as may be sent."""
        sent = 0
        while self.may_send(at):
            self.send(size, at)
            sent += 1
        return sent

    def take(self, at: int = 0) -> int | None:
        """The size of the next item, taken as a program does that waits for it if there is none."""
        call, reader = self.calls[at], self.caller.calls
        if not call.items:
            if reader.read_streams.is_worth_a_grant(call):
                reader.grant(0.0, call, *taken_of(call))
            self.pass_on()
            return None
        message = call.items.pop(0)
        if reader.read_streams.take(call, message):
            reader.grant(0.0, call, *taken_of(call))
        self.pass_on()
        return len(payload_of(message))

    def pass_on(self) -> None:
        for sender, receiver in ((self.server, self.caller), (self.caller, self.server)):
            for message in sender.sent():
                if message[KIND_AT] == Kind.GRANT:
                    self.grants.append(message)
                receiver.uplink.receive(0.0, message, [message.payload] if isinstance(message, Detached) else ())


def test_a_consumer_sends_items_and_bytes_unasked_and_says_that_it_counts_them():
    ends = Ends()
    assert ends.send_all(20_000) == -(-UNASKED_BYTES // 20_000)
    assert all(flags_of(item) & Flag.BYTE_CREDIT for item in ends.calls[0].items)
    assert Ends().send_all(1) == UNASKED_ITEMS


def test_once_something_large_is_taken_the_whole_window_is_granted():
    ends = Ends()
    assert ends.send_all(1 << 20) == 1
    assert ends.take() == 1 << 20
    assert ends.send_all(1 << 20) == WINDOW_BYTES >> 20
    assert len(ends.grants) == 1 and reply_grant_of(ends.grants[0]) == (1, WINDOW_BYTES + (1 << 20) - UNASKED_BYTES)


def test_small_items_are_granted_no_more_often_than_before():
    ends = Ends()
    for _ in range(64):
        ends.send(100)
        assert ends.take() == 100 and ends.take() is None
    assert [reply_grant_of(grant)[0] for grant in ends.grants] == [UNASKED_ITEMS // 2] * 8


@pytest.mark.parametrize(("caller_knows", "server_knows"), [(False, False), (False, True), (True, False)])
def test_beside_a_router_of_an_earlier_version_items_alone_are_counted(caller_knows, server_knows):
    ends = Ends(caller_knows, server_knows)
    assert ends.send_all(1 << 20) == UNASKED_ITEMS
    for _ in range(UNASKED_ITEMS):
        assert ends.take() == 1 << 20
    assert {len(payload_of(grant)) for grant in ends.grants} == {4} and ends.may_send()


def test_a_stream_that_was_started_before_its_router_was_known_does_without():
    caller = Caller()
    caller.uplink.lost(0.0)
    caller.uplink.router = None
    call = Call("compute", caller.calls.stream_flags, 10.0)
    caller.calls.start(0.0, call, Kind.REQUEST, b"args", address=COMPUTE, method=b"list")
    assert flags_of(call.message) & Flag.BYTE_CREDIT
    (request,) = (message for message in caller.connect(boot=9) if message[KIND_AT] == Kind.REQUEST)
    assert flags_of(request) == Flag.STREAM and request[KEY] == call.key


def test_a_stream_whose_client_has_waited_for_its_router_does_without_too():
    caller = Caller()
    caller.uplink.lost(0.0)
    caller.uplink.router = None
    flags = caller.calls.stream_flags
    caller.connect(boot=9)
    call = Call("compute", flags, 10.0)
    caller.calls.start(0.0, call, Kind.REQUEST, b"args", address=COMPUTE, method=b"list")
    assert flags & Flag.BYTE_CREDIT and call.flags == flags_of(call.message) == Flag.STREAM


def test_another_consumer_begins_with_what_it_may_send_unasked():
    ends = Ends()
    ends.send_all(1 << 20)
    while ends.take() is not None:
        pass
    for attempt in (1, 1):
        item = pack(Kind.ITEM, bytes(40_000), key=ends.calls[0].key, attempt=attempt, flags=Flag.BYTE_CREDIT)
        ends.caller.uplink.receive(0.0, item, [item.payload] if isinstance(item, Detached) else ())
        ends.grants.clear()
        assert ends.take() == 40_000
    # Of the first item it was granted the window; the second is part of that.
    assert ends.calls[0].taken is not None and ends.calls[0].taken.window_bytes == WINDOW_BYTES


def test_all_streams_of_a_process_share_a_bound():
    ends = Ends(streams=100)
    for _ in range(3):  # the first ones were granted more than their share is now
        for at in range(100):
            ends.send_all(10_000, at)
        for at in range(100):
            while ends.take(at) is not None:
                pass
    for at in range(100):
        ends.send_all(10_000, at)
    waiting = [sum(len(payload_of(item)) for item in call.items) for call in ends.calls]
    assert sum(waiting) <= max(SHARED_BYTES, 100 * (LEAST_WINDOW_BYTES + 10_000)) and min(waiting) > 0


def test_streams_that_have_ended_take_no_share():
    ends = Ends(streams=30)
    for at in range(30):
        ends.send_all(100_000, at)
        ends.take(at)
    for call in ends.calls[1:]:
        ends.caller.calls.cancel(call)
    for _ in range(100):
        ends.send_all(100_000)
        while ends.take() is not None:
            pass
    assert ends.send_all(100_000) * 100_000 >= 1_600_000  # items are 16 at most


@given(st.lists(st.tuples(st.booleans(), st.sampled_from((0, 1, 5_000, 70_000, 1_000_000))), max_size=80))
def test_whatever_is_sent_comes_in_order_within_the_window_and_never_stands_still(steps: list[tuple[bool, int]]):
    ends, sent = Ends(), deque[int]()
    for is_sent, size in [*steps, *[(True, 1), (False, 0)] * (len(steps) + 1)]:
        if is_sent and ends.may_send():
            ends.send(size)
            sent.append(size)
        elif not is_sent and (taken := ends.take()) is not None:
            assert sent.popleft() == taken
        assert sum(sent) <= WINDOW_BYTES + 1_000_000 and len(sent) <= 2 * UNASKED_ITEMS
        credit = ends.server.serving.answered_streams.credit_of(ends.tasks[0])
        assert credit.size_bytes <= WINDOW_BYTES and credit.items <= 2 * UNASKED_ITEMS
        if not sent:
            ends.take()  # waits
            assert ends.may_send()
    assert ends.server.uplink.discarded == {} and ends.caller.uplink.discarded == {}


def test_a_malformed_grant_changes_nothing():
    ends = Ends()
    task: Task = ends.tasks[0]
    for payload in (b"", b"123", b"12345", b"123456789"):
        ends.server.router(pack(Kind.GRANT, payload, key=task.key))
    assert ends.server.uplink.discarded == {"length": 4}
    credit = ends.server.serving.answered_streams.credit_of(task)
    assert (credit.items, credit.size_bytes) == (UNASKED_ITEMS, UNASKED_BYTES)
