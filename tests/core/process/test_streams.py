"""Streams at their caller: items, grants and timeouts."""

from __future__ import annotations

import pytest

from rpcmq.core.process.call import Call
from rpcmq.errors import CallError, CallTimeout, LinkLost
from rpcmq.wire import Flag, Kind, pack, payload_of
from tests.core.process.calling import Process


def test_items_are_kept_in_order(process):
    call = process.start(flags=Flag.STREAM)
    messages = [pack(Kind.ITEM, bytes([n]), key=call.key) for n in range(3)]
    for message in messages:
        process.router(message)
    assert call.items == messages and process.woken() == [call] * 3 and not call.done


def test_of_a_stream_that_nobody_asked_for_the_last_item_is_kept(process):
    call = process.start()
    for n in range(3):
        process.router(pack(Kind.ITEM, bytes([n]), key=call.key))
    assert [payload_of(p) for p in call.items] == [b"\2"]


def test_items_that_nobody_asked_for_make_room_for_another_and_put_off_no_deadline(process):
    call = process.start(now=0.0, timeout=10.0)
    process.sent()
    for now in (3.0, 6.0, 9.0):
        process.router(pack(Kind.ITEM, key=call.key), now=now)
        process.calls.tick(now)
        (grant,) = process.sent()
        assert (grant[5], grant[16:36], payload_of(grant)) == (Kind.GRANT, call.key, (1).to_bytes(4))
    process.calls.tick(10.4)
    assert not call.done
    process.calls.tick(11.0)
    assert isinstance(call.error, CallTimeout)


def test_grants(process):
    call = process.start(flags=Flag.STREAM)
    process.sent()
    process.calls.grant(1.0, call, 8)
    (grant,) = process.sent()
    assert (grant[5], grant[16:36], payload_of(grant)) == (Kind.GRANT, call.key, (8).to_bytes(4))


def test_each_item_starts_the_time_of_the_next(process):
    call = process.start(now=0.0, flags=Flag.STREAM, timeout=10.0)
    call.waiter = lambda: None
    for now in range(0, 50, 9):
        process.router(pack(Kind.ITEM, key=call.key), now=float(now))
        process.calls.tick(float(now))
        assert not call.done
    process.calls.tick(54.0)
    process.calls.tick(55.4)
    assert not call.done
    process.calls.tick(56.0)
    assert isinstance(call.error, CallTimeout)


def run_until(process: Process, call: Call, now: float, limit: float) -> float:
    """Tick from ``now`` on when the engine wants it; returns when the call ended."""
    for _ in range(10):
        due = process.calls.next_deadline()
        assert due is not None
        now = max(now, due)
        assert now < limit, "the call has not ended"
        process.calls.tick(now)
        if call.done:
            return now
    raise AssertionError("the engine spins")


@pytest.mark.parametrize("connected", [True, False], ids=["silent router", "dead router"])
@pytest.mark.parametrize("timeout", [0.2, 10.0, 60.0])
def test_a_stream_ends_at_its_timeout_beside_a_router_that_says_nothing(process, connected, timeout):
    call = process.start(now=0.0, flags=Flag.STREAM, timeout=timeout)
    call.waiter = lambda: None
    process.sent()
    if not connected:
        process.uplink.lost(0.1)
    assert timeout <= run_until(process, call, 0.0, 100.0) <= timeout + 0.6
    assert isinstance(call.error, CallTimeout)


def test_a_later_item_of_a_stream_has_its_timeout_too(process):
    call = process.start(now=0.0, flags=Flag.STREAM, timeout=10.0)
    call.waiter = lambda: None
    process.sent()
    for now in (3.0, 11.0, 13.0):
        process.calls.tick(now)
        process.router(pack(Kind.ITEM, key=call.key), now=now)
    assert 23.0 <= run_until(process, call, 13.0, 100.0) <= 23.6


def test_a_stream_whose_caller_has_computed_has_its_timeout_from_then_on(process):
    call = process.start(now=0.0, flags=Flag.STREAM, timeout=10.0)
    process.sent()
    process.uplink.lost(0.1)
    for now in range(0, 40, 4):
        process.calls.tick(float(now))
    process.calls.grant(41.0, call, 0)  # as the iteration does when it goes on after that long
    call.waiter = lambda: None
    assert 51.0 <= run_until(process, call, 41.0, 100.0) <= 51.6


def test_a_stream_whose_caller_is_busy_does_not_time_out(process):
    call = process.start(now=0.0, flags=Flag.STREAM, timeout=10.0)
    process.sent()
    for now in range(0, 100, 3):
        process.calls.tick(float(now))
    assert not call.done
    grants = process.sent()
    assert len(grants) >= 9 and all(payload_of(g) == bytes(4) for g in grants)


def test_late_items_are_counted(process):
    process.router(pack(Kind.ITEM, key=b"k" * 20))
    assert process.calls.counters == {"late items": 1}


def test_a_stream_of_far_more_items_than_were_granted_ends(process):
    call = process.start(flags=Flag.STREAM)
    process.sent()
    for n in range(1000):
        process.router(pack(Kind.ITEM, bytes([n % 256]), key=call.key))
        assert len(call.items) <= 128
    assert isinstance(call.error, CallError) and "more items from" in str(call.error) and not call.items
    (cancel,) = process.sent()
    assert (cancel[5], cancel[16:36]) == (Kind.CANCEL, call.key)


def test_a_stream_of_which_a_grant_was_not_sent_yet_ends_with_its_router(process):
    call = process.start(flags=Flag.STREAM)
    process.sent()
    process.calls.grant(1.0, call, 8)
    process.connect(boot=6)
    assert isinstance(call.error, LinkLost)
