"""Calls of a process: their ends, deadlines and signs of life."""

from __future__ import annotations

import pytest

from rpcmq.core.process.call import Call
from rpcmq.errors import CallError, CallTimeout, LinkLost, NoConsumer, Outcome, Overloaded
from rpcmq.wire import KEY, NO_TTL, Flag, Kind, control, pack, parse, payload_of
from tests.core.process.calling import COMPUTE, Process, kinds

# --- calls --------------------------------------------------------------------------------------


def test_a_call_is_sent_with_all_about_it(process):
    call = process.start(flags=Flag.IDEMPOTENT, timeout=2.5)
    (message,) = process.sent()
    header = parse(message)
    assert (header.kind, header.flags, header.ttl) == (Kind.REQUEST, Flag.IDEMPOTENT, 2500)
    assert message[16:36] == call.key
    assert payload_of(message) == b"payload"
    assert process.calls.open == {call.key: call} and not call.done


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT, Kind.END, Kind.CONFIRM, Kind.ANSWER, Kind.REGISTERED])
def test_an_answer_ends_the_call(process, kind):
    call = process.start()
    answer = pack(kind, b"a", key=call.key)
    process.router(answer)
    assert call.done and call.answer == answer and call.error is None
    assert process.woken() == [call]
    assert process.calls.open == {}
    assert process.calls.next_deadline() is None


def test_a_second_answer_is_late(process):
    call = process.start()
    process.router(pack(Kind.REPLY, b"first", key=call.key))
    process.router(pack(Kind.REPLY, b"second", key=call.key))
    process.error(call.key, Outcome.TIMEOUT)
    assert payload_of(call.answer) == b"first"
    assert process.woken() == [call]
    assert process.calls.counters == {"late replies": 1, "late errors": 1}


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (Outcome.TIMEOUT, CallTimeout),
        (Outcome.NO_CONSUMER, NoConsumer),
        (Outcome.OVERLOADED, Overloaded),
        (Outcome.LINK_LOST, LinkLost),
        (Outcome.PROTOCOL, CallError),
        (99, CallError),
    ],
)
def test_an_error_of_the_router_ends_the_call(process, outcome, error):
    call = process.start()
    process.error(call.key, outcome, server="node-7")
    assert type(call.error) is error
    assert str(call.error) == "why"
    assert call.error.details == {"server": "node-7", "outcome": outcome}
    assert process.woken() == [call]


@pytest.mark.parametrize(
    ("body", "member"),
    [
        ({}, "outcome"),
        ({"outcome": "x"}, "outcome"),
        ({"outcome": 4, "details": 5}, "details"),
        ({"outcome": 4, "text": None}, "text"),
    ],
)
def test_a_malformed_error_ends_the_call_and_names_the_member(process, body, member):
    call = process.start()
    process.router(control(Kind.ERROR, body, key=call.key))
    assert isinstance(call.error, CallError) and member in str(call.error)
    assert call.error.details == {"outcome": Outcome.PROTOCOL}
    assert process.calls.counters["malformed errors"] == 1


@pytest.mark.parametrize("payload", [b"", b"[]", b"{", b"\xff", b"[" * 30_000])
def test_an_error_without_a_json_object_ends_the_call(process, payload):
    call = process.start()
    process.router(pack(Kind.ERROR, payload, format=1, key=call.key))
    assert isinstance(call.error, CallError) and "body" in str(call.error)


def test_a_cast_that_is_refused_with_a_malformed_error_is_reported_once(process):
    cast = process.cast()
    process.sent()
    process.router(control(Kind.ERROR, {"outcome": "full"}, key=cast[KEY]))
    ((_, error),) = process.refused
    assert "outcome" in str(error)


def test_a_call_that_the_router_forgets_ends_a_little_after_its_deadline(process):
    call = process.start(now=100.0, timeout=10.0)
    assert 110.0 < process.calls.next_deadline() < 111.0
    process.router(pack(Kind.HEARTBEAT), now=108.0)
    process.calls.tick(110.2)
    assert not call.done
    process.calls.tick(111.0)
    assert isinstance(call.error, CallTimeout)
    assert str(call.error) == "no answer within 10 s from 'compute'; the router was last heard 3.0 s ago"
    assert call.error.details["router_silent_seconds"] == 3.0
    assert call.error.details["waited_seconds"] == 11.0 and "started" not in call.error.details
    assert kinds(process.sent()) == [Kind.REQUEST, Kind.CANCEL]


def test_a_process_that_was_held_up_gives_the_router_its_time_to_explain(process):
    call = process.start(now=100.0, timeout=10.0)
    watched = Call("compute", 0, None)
    watched.silence = 12.0
    process.calls.start(100.0, watched, Kind.REQUEST, b"", address=COMPUTE)
    process.calls.tick(120.0)
    assert not (call.done or watched.done)
    assert 120.0 < process.calls.next_deadline() <= 121.0
    process.calls.tick(120.1)
    assert not (call.done or watched.done)
    process.error(call.key, Outcome.TIMEOUT, 120.2)
    assert str(call.error) == "why"
    # Not twice in a row: where there is never CPU enough, nothing would end.
    process.calls.tick(125.0)
    assert str(watched.error).startswith("no sign of life for 12 s")
    process.calls.tick(126.0)
    assert process.calls.next_deadline() is None


def test_a_call_without_connection_says_so(process):
    process.uplink.lost(99.0)
    call = process.start(now=100.0, timeout=1.0)
    process.calls.tick(102.0)
    assert (
        str(call.error) == "no answer within 1 s from 'compute': no connection to the router for 3.0 s; it did not run"
    )
    assert process.uplink.outbox == []


def test_a_call_that_is_made_without_connection_ends_at_its_deadline(process):
    process.uplink.lost(99.0)
    alone, connected_in_time = (process.start(now=100.0, timeout=timeout) for timeout in (1.0, 10.0))
    assert 101.0 <= process.calls.next_deadline() < 101.2
    process.calls.tick(101.2)
    assert isinstance(alone.error, CallTimeout) and not connected_in_time.done
    process.connect(now=105.0)
    process.calls.tick(110.2)
    assert not connected_in_time.done
    assert 110.5 <= process.calls.next_deadline() < 110.7
    process.error(connected_in_time.key, Outcome.TIMEOUT, 110.3)
    assert str(connected_in_time.error) == "why"


def test_a_call_whose_router_is_lost_ends_at_its_deadline(process):
    alone, connected_in_time = (process.start(now=100.0, timeout=timeout) for timeout in (1.0, 10.0))
    assert process.calls.next_deadline() >= 101.5
    process.uplink.lost(100.5)
    process.calls.tick(100.5)
    assert 101.0 <= process.calls.next_deadline() < 101.2
    process.calls.tick(101.2)
    assert isinstance(alone.error, CallTimeout) and not connected_in_time.done
    process.connect(now=105.0)
    process.calls.tick(110.2)
    assert not connected_in_time.done
    assert 110.5 <= process.calls.next_deadline() < 110.7
    process.error(connected_in_time.key, Outcome.TIMEOUT, 110.3)
    assert str(connected_in_time.error) == "why"


def test_a_call_with_neither_timeout_nor_answer_goes_on(process):
    call = process.start(timeout=None)
    assert parse(process.sent()[0]).ttl == NO_TTL
    process.calls.tick(1e9)
    assert not call.done and process.calls.next_deadline() is None


def test_a_cancelled_call_is_forgotten_and_the_router_told(process):
    call = process.start()
    process.sent()
    process.calls.cancel(call)
    (cancel,) = process.sent()
    assert (cancel[5], cancel[16:36]) == (Kind.CANCEL, call.key)
    process.calls.cancel(call)
    assert process.sent() == []
    process.router(pack(Kind.REPLY, key=call.key))
    assert process.woken() == [] and process.calls.counters == {"late replies": 1}


def test_a_call_that_was_never_sent_is_taken_back(process):
    process.uplink.lost(1.0)
    call, other = process.start(), process.start()
    process.calls.cancel(call)
    assert process.uplink.outbox == [other.message]


def test_a_confirmed_cast_that_was_never_sent_is_taken_back_out_of_the_window_too(process):
    process.uplink.lost(1.0)
    call = process.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    assert process.casts.open == 1
    process.calls.cancel(call)
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)


def test_closing_ends_all_calls(process):
    calls = [process.start() for _ in range(3)]
    process.calls.fail_all(LinkLost("closed"))
    assert [str(c.error) for c in calls] == ["closed"] * 3
    assert process.woken() == calls
    assert kinds(process.sent()) == [Kind.REQUEST] * 3 + [Kind.CANCEL] * 3


# --- signs of life ------------------------------------------------------------------------------


def watched(process: Process, now: float, timeout: float = 100.0) -> Call:
    call = Call("compute", 0, timeout)
    call.silence = 2.0
    return process.calls.start(now, call, Kind.REQUEST, b"", address=COMPUTE)


def test_silence_ends_a_watched_call(process):
    call = watched(process, 10.0)
    assert process.calls.next_deadline() == 12.0
    process.calls.tick(11.9)
    assert not call.done
    process.calls.tick(12.0)
    assert isinstance(call.error, CallTimeout) and "no sign of life for 2 s" in str(call.error)


def test_a_sign_of_life_gives_it_more_time(process):
    call = watched(process, 10.0)
    process.router(pack(Kind.ALIVE, key=call.key), now=11.5)
    assert process.woken() == [] and process.calls.next_deadline() == 13.5
    process.router(pack(Kind.ALIVE, b"half", key=call.key), now=13.0)
    assert process.woken() == [call] and [payload_of(p) for p in call.progress] == [b"half"]
    process.calls.tick(14.9)
    assert not call.done


def test_a_watched_call_that_ended_is_not_watched(process):
    call = watched(process, 10.0)
    process.router(pack(Kind.REPLY, key=call.key), now=11.0)
    process.calls.tick(50.0)
    assert call.error is None and process.calls.next_deadline() is None
