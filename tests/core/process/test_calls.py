from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.retained_casts import RetainedCasts
from rpcmq.core.process.uplink import Uplink, Welcome
from rpcmq.errors import CallError, CallTimeout, LinkLost, NoConsumer, Outcome, Overloaded
from rpcmq.wire import KEY, NO_TTL, Address, Flag, Kind, control, pack, parse, payload_of, size_of

COMPUTE = Address("compute").encode()
OTHER = Address("other").encode()


class Process:
    """A caller on an uplink whose router is played by the test."""

    def __init__(self) -> None:
        self.refused: list[tuple[bytes, CallError]] = []
        #: Makes the message that is sent in place of one that was refused for good.
        self.on_refused: Callable[[bytes, CallError], bytes | None] = lambda message, error: None
        self.uplink = Uplink({"identity": "api-1"}, self._welcomed, lambda *why: None)
        self.casts = Casts(self.uplink, self._on_refused)
        self.calls = Calls(self.uplink, self.casts)
        self.connect()

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self.calls.welcome(now, welcome)

    def _on_refused(self, message: bytes, error: CallError) -> bytes | None:
        self.refused.append((message, error))
        return self.on_refused(message, error)

    def connect(self, now: float = 0.0, **welcome: Any) -> list[bytes]:
        """(Re)connect; returns what is sent once the router has said WELCOME."""
        self.uplink.lost(now)
        self.uplink.connected(now)
        self.uplink.first_messages.clear()
        body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": 0, "resumed": False} | welcome
        self.router(control(Kind.WELCOME, body), now)
        return self.sent()

    def sent(self) -> list[bytes]:
        messages: list[bytes] = []
        while self.uplink.outbox:
            messages += self.uplink.batch()
            self.uplink.sent_batch()
        self.uplink.last_messages.clear()
        return messages

    def router(self, message: bytes, now: float = 0.0) -> None:
        self.uplink.receive(now, message)

    def start(self, now: float = 0.0, kind: int = Kind.REQUEST, flags: int = 0, timeout: float | None = 10.0) -> Call:
        call = Call("compute", flags, timeout)
        return self.calls.start(now, call, kind, b"payload", address=COMPUTE, method=b"m")

    def cast(self, address: bytes = COMPUTE, payload: bytes = b"p", flags: int = 0) -> bytes:
        message = pack(
            Kind.CAST, payload, key=self.uplink.next_key(), format=1, address=address, method=b"m", flags=flags
        )
        self.casts.send(message, address)
        return message

    def acknowledge(self) -> None:
        """The router has all that was sent."""
        self.router(pack(Kind.ACK, sequence=self.uplink._sent_base + self.uplink.unacknowledged))

    def error(self, key: bytes, outcome: Outcome, now: float = 0.0, **details: Any) -> None:
        body = {"outcome": outcome, "text": "why", "details": details}
        self.router(control(Kind.ERROR, body, key=key), now)

    def woken(self) -> list[Call]:
        return self.calls.take_changed()


@pytest.fixture
def process() -> Process:
    return Process()


def kinds(messages: list[bytes]) -> list[int]:
    return [message[5] for message in messages]


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


# --- streams ------------------------------------------------------------------------------------


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


# --- casts --------------------------------------------------------------------------------------


def test_casts_count_until_the_router_has_them(process):
    messages = [process.cast(payload=bytes(n)) for n in (1, 10, 100_000)]
    assert process.casts.open == 3
    assert process.casts.open_bytes == sum(map(size_of, messages))
    process.sent()
    process.router(pack(Kind.ACK, sequence=process.uplink._sent_base + 2))
    assert (process.casts.open, process.casts.open_bytes) == (1, size_of(messages[2]))
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)


def test_what_a_full_queue_refused_is_offered_again_in_order(process):
    first, second = process.cast(), process.cast()
    process.sent()
    process.error(first[16:36], Outcome.OVERLOADED, now=5.0)
    process.error(second[16:36], Outcome.OVERLOADED, now=5.0)
    process.acknowledge()
    assert list(process.casts.refused.queues) == [COMPUTE]
    third = process.cast()
    assert process.sent() == []
    elsewhere = process.cast(OTHER)
    assert process.sent() == [elsewhere]
    assert process.casts.open == 4
    process.acknowledge()
    assert process.casts.open == 3
    assert process.calls.next_deadline() == pytest.approx(5.1)
    process.calls.tick(5.05)
    assert process.sent() == []
    process.calls.tick(5.1)
    again = process.sent()
    assert [p[16:36] for p in again] == [p[16:36] for p in (first, second, third)]
    assert all(parse(p).flags & Flag.RESENT for p in again)
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)
    assert process.casts.refused.queues == {}


def test_the_router_is_asked_soon_what_it_has_of_casts_and_not_of_calls(process):
    process.start()
    process.sent()
    process.calls.tick(6.0)
    assert process.uplink.last_messages == []
    process.cast()
    assert process.sent()
    assert process.calls.next_deadline() <= 6.0
    process.calls.tick(6.0)
    assert [message[5] for message in process.uplink.last_messages] == [Kind.HEARTBEAT]
    assert process.calls.next_deadline() == pytest.approx(6.25)
    process.acknowledge()
    assert process.casts.open == 0 and process.calls.next_deadline() != pytest.approx(6.25)


def test_casts_that_a_consumer_has_are_not_at_risk_though_they_are_not_acknowledged():
    process = Process()
    process.connect(tells_delivered=True)
    messages = [process.cast() for _ in range(3)]
    process.sent()
    assert process.casts.at_risk == 3
    sequences = b"".join(message[28:36] for message in messages[:2])
    process.uplink.receive(5.0, pack(Kind.DELIVERED, sequences))
    assert process.casts.open == 3
    assert process.casts.at_risk == 1
    process.acknowledge()
    assert process.casts.at_risk == 0


def test_one_that_was_on_its_way_when_others_came_back_keeps_its_place(process):
    first = process.cast()
    process.sent()
    second = process.cast()
    process.sent()
    process.error(first[16:36], Outcome.OVERLOADED, now=5.0)
    third = process.cast()
    process.error(second[16:36], Outcome.OVERLOADED, now=5.0)
    process.calls.tick(5.1)
    assert [p[16:36] for p in process.sent()] == [p[16:36] for p in (first, second, third)]


WINDOW = {"casts": 3, "size_bytes": 1000, "total_bytes": 2000}


def test_a_full_queue_holds_up_the_casts_to_its_destination_and_no_others(process):
    has_room = process.casts.has_room
    messages = [process.cast() for _ in range(3)]
    assert not has_room(COMPUTE, **WINDOW) and not has_room(OTHER, **WINDOW), "nobody knows yet where they go"
    process.sent()
    for message in messages:
        process.error(message[16:36], Outcome.OVERLOADED, limit="queue.max_messages", limit_value=1)
    process.acknowledge()
    for now in (1.0, 2.0, 3.0):
        assert has_room(OTHER, **WINDOW) and not has_room(COMPUTE, **WINDOW)
        # Offered again, and refused again.
        process.calls.tick(now)
        again = process.sent()
        assert len(again) == 3
        assert has_room(OTHER, **WINDOW) and not has_room(COMPUTE, **WINDOW)
        for message in again:
            process.error(message[16:36], Outcome.OVERLOADED, now=now)
        process.acknowledge()
    queue = process.casts.refused.queues[COMPUTE]
    assert queue.details == {"limit": "queue.max_messages", "limit_value": 1}
    process.calls.tick(4.0)
    process.sent()
    process.acknowledge()
    assert has_room(COMPUTE, **WINDOW) and process.casts.refused.queues == {}
    assert (process.casts.open, process.casts.refused.casts, process.casts.refused.size_bytes) == (0, 0, 0)


@pytest.mark.parametrize(("casts", "size_bytes"), [(3, 1 << 20), (100, 3000)])
def test_casts_on_their_way_are_bounded_in_number_and_bytes(process, casts, size_bytes):
    bounds = {"casts": casts, "size_bytes": size_bytes, "total_bytes": 1 << 30}
    for _ in range(3):
        assert process.casts.has_room(COMPUTE, **bounds)
        process.cast(payload=bytes(1000))
    process.sent()
    assert not process.casts.has_room(COMPUTE, **bounds)
    process.acknowledge()
    assert process.casts.has_room(COMPUTE, **bounds)


def test_all_casts_together_are_bounded_in_bytes(process):
    messages = [process.cast(address, payload=bytes(900)) for address in (COMPUTE, COMPUTE, OTHER)]
    process.sent()
    for message in messages:
        process.error(message[16:36], Outcome.OVERLOADED)
    process.acknowledge()
    third = Address("third").encode()
    assert not process.casts.has_room(third, **WINDOW)
    assert process.casts.has_room(third, **WINDOW | {"total_bytes": 4000})


def test_one_that_is_said_twice_to_be_refused_counts_once(process):
    message = process.cast()
    process.sent()
    for _ in range(3):
        process.error(message[16:36], Outcome.OVERLOADED)
    process.acknowledge()
    process.calls.tick(1.0)
    assert len(process.sent()) == 1
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)


def test_a_cast_refused_for_good_is_handed_to_the_owner(process):
    message = process.cast()
    process.sent()
    process.error(message[16:36], Outcome.PROTOCOL, accepts=2)
    ((refused, error),) = process.refused
    assert refused == message and error.details["accepts"] == 2
    assert process.casts.counters == {"casts refused": 1}
    process.acknowledge()
    assert process.casts.open == 0


def test_the_owner_may_send_another_in_its_place(process):
    message = process.cast()
    process.sent()
    other = pack(Kind.CAST, b"other", key=message[16:36], address=COMPUTE)
    process.on_refused = lambda message, error: other
    process.error(message[16:36], Outcome.PROTOCOL)
    assert process.sent() == [other]
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "flags"), [(Kind.REQUEST, 0), (Kind.CAST, Flag.CONFIRM), (Kind.PUBLISH, Flag.CONFIRM)]
)
def test_what_was_cancelled_and_is_then_refused_is_not_offered_again(process, kind, flags):
    call = process.start(kind=kind, flags=flags)
    process.sent()
    process.calls.cancel(call)
    process.sent()
    process.error(call.key, Outcome.OVERLOADED, now=1.0)
    process.acknowledge()
    process.calls.tick(10.0)
    assert process.sent() == [] and process.casts.open == 0
    assert process.calls.counters == {"late errors": 1}


def test_an_error_about_an_unknown_cast_is_late(process):
    process.error(b"k" * 20, Outcome.OVERLOADED)
    assert process.calls.counters == {"late errors": 1} and process.refused == []


def test_while_disconnected_nothing_is_offered_and_nobody_is_woken_for_it(process):
    message = process.cast()
    process.sent()
    process.error(message[16:36], Outcome.OVERLOADED, now=5.0)
    process.acknowledge()
    process.uplink.lost(5.05)
    assert process.calls.next_deadline() is None
    process.calls.tick(6.0)
    assert process.uplink.outbox == []
    process.connect(7.0, resumed=True, received=1)
    process.calls.tick(7.0)
    assert [p[16:36] for p in process.sent()] == [message[16:36]]


# --- the link comes back ------------------------------------------------------------------------


def test_a_resumed_link_changes_nothing(process):
    call = process.start()
    message = process.cast()
    process.sent()
    assert process.connect(1.0, resumed=True, received=1) == [message]
    assert not call.done and process.casts.open == 1


def test_after_a_restart_of_the_router(process):
    call, idempotent, query = process.start(), process.start(flags=Flag.IDEMPOTENT), process.start(kind=Kind.QUERY)
    kept = process.cast()
    confirmed = process.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    process.sent()
    process.uplink.lost(1.0)
    unsent_call, unsent_cast = process.start(now=1.0), process.cast()
    again = process.connect(2.0, boot=6)
    assert isinstance(call.error, LinkLost) and "it may have run" in str(call.error)
    assert process.woken() == [call]
    by_key = {message[16:36]: parse(message).flags & Flag.RESENT for message in again}
    assert by_key == {
        kept[16:36]: Flag.RESENT,
        confirmed.key: Flag.RESENT,
        idempotent.key: 0,
        query.key: 0,
        unsent_call.key: 0,
        unsent_cast[16:36]: 0,
    }
    assert len(again) == 6
    assert set(process.calls.open) == {idempotent.key, query.key, confirmed.key, unsent_call.key}
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)


def test_a_cast_that_waits_for_its_confirmation_though_the_router_had_it_is_sent_again(process):
    confirmed = process.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    process.sent()
    process.acknowledge()
    (again,) = process.connect(2.0, boot=6)
    assert again[16:36] == confirmed.key and parse(again).flags & Flag.RESENT
    process.acknowledge()
    assert process.casts.open == 0
    process.router(pack(Kind.CONFIRM, key=confirmed.key))
    assert confirmed.answer is not None


def test_under_another_handle_calls_and_casts_go_on_with_new_keys(process):
    idempotent = process.start(flags=Flag.IDEMPOTENT)
    lost = process.start()
    kept, put_back = process.cast(), process.cast(OTHER)
    process.sent()
    process.error(put_back[16:36], Outcome.OVERLOADED, now=0.5)
    process.uplink.lost(1.0)
    unsent = process.start(now=1.0)
    again = process.connect(2.0, boot=6, handle=8)
    assert isinstance(lost.error, LinkLost)
    process.calls.tick(3.0)
    again += process.sent()
    origin = process.uplink.origin
    assert all(message[16:28] == origin for message in again)
    assert {message[28:36] for message in again} == {
        idempotent.key[12:],
        kept[28:36],
        put_back[28:36],
        unsent.key[12:],
    }
    for call in (idempotent, unsent):
        process.router(pack(Kind.REPLY, key=call.key))
        assert call.answer is not None
    process.calls.tick(1e6)
    assert process.calls.open == {}


def test_what_a_draining_router_gave_back_goes_to_its_next_life(process):
    call, message = process.start(), process.cast()
    process.sent()
    process.error(call.key, Outcome.DRAINING)
    process.error(message[16:36], Outcome.DRAINING)
    process.acknowledge()
    assert not call.done and process.casts.open == 1
    again = process.connect(2.0, boot=6)
    assert {p[16:36] for p in again} == {call.key, message[16:36]}
    process.router(pack(Kind.REPLY, key=call.key))
    assert call.answer is not None
    process.acknowledge()
    assert process.casts.open == 0


def test_a_call_that_expired_meanwhile_is_not_sent_again(process):
    call = process.start(flags=Flag.IDEMPOTENT, timeout=1.0)
    process.sent()
    process.uplink.lost(0.5)
    process.calls.tick(5.0)
    assert isinstance(call.error, CallTimeout)
    assert kinds(process.connect(6.0, boot=6)) in ([], [Kind.CANCEL])


ACTIONS = st.sampled_from(
    ["call", "idempotent", "cast", "confirm", "cancel", "ack", "reply", "refuse", "lose", "resume", "restart"]
)


@given(st.lists(ACTIONS, max_size=40), st.randoms(use_true_random=False))
def test_whatever_happens_each_call_is_either_open_or_done(actions, random):
    process = Process()
    now, received, calls = 0.0, 0, []
    for action in actions:
        now += 0.2
        if action in ("call", "idempotent"):
            calls.append(process.start(now, flags=Flag.IDEMPOTENT if action == "idempotent" else 0))
        elif action == "cast":
            process.cast()
        elif action == "confirm":
            calls.append(process.start(now, kind=Kind.CAST, flags=Flag.CONFIRM))
        elif action == "cancel" and calls:
            process.calls.cancel(calls.pop(random.randrange(len(calls))))
        elif action == "lose":
            process.uplink.lost(now)
        elif action in ("resume", "restart"):
            if process.uplink.ready:
                process.uplink.lost(now)
            resumed = action == "resume"
            received = process.uplink._sent_base if resumed else 0
            process.connect(now, resumed=resumed, received=received, boot=len(actions))
        elif process.uplink.ready:
            process.sent()
            if action == "ack":
                process.acknowledge()
            elif action == "reply" and calls:
                process.router(pack(Kind.REPLY, key=random.choice(calls).key))
            elif action == "refuse":
                refused = {key for queue in process.casts.refused.queues.values() for key in queue.waiting}
                keys = [p[16:36] for p in process.uplink.sent if p[16:36] not in refused]
                if keys:
                    process.error(random.choice(keys), Outcome.OVERLOADED, now)
        if process.uplink.ready:
            process.sent()
        process.calls.tick(now)
        assert all(call.done != (call.key in process.calls.open) for call in calls)


def test_what_a_full_queue_refused_goes_to_the_next_life_once_and_in_order(process):
    first, second = process.cast(), process.cast()
    process.sent()
    process.error(first[16:36], Outcome.OVERLOADED)
    process.error(second[16:36], Outcome.OVERLOADED)
    process.calls.tick(0.2)
    offered = process.sent()
    assert [message[16:36] for message in offered] == [first[16:36], second[16:36]]
    # Refused again; nothing of it is acknowledged, and a third waits behind them.
    process.error(first[16:36], Outcome.OVERLOADED)
    process.error(second[16:36], Outcome.OVERLOADED)
    third = process.cast()
    again = process.connect(now=1.0, boot=6)
    assert [message[16:36] for message in again] == [message[16:36] for message in (first, second, third)]
    assert all(parse(message).flags & Flag.RESENT for message in again)
    assert process.casts.open == 3
    process.calls.tick(2.0)
    assert process.sent() == [], "nothing is offered a second time"
    process.router(pack(Kind.ACK, sequence=3))
    assert process.casts.open == process.casts.open_bytes == 0


# --- casts kept for the router's next life ------------------------------------------------------


@pytest.fixture
def keeper() -> Process:
    """Its router says which casts need not be kept."""
    made = Process()
    made.connect(tells_delivered=True, boot=4)
    made.connect(tells_delivered=True, boot=5)
    return made


def delivered(process: Process, *messages: bytes) -> None:
    process.router(pack(Kind.DELIVERED, b"".join(message[28:36] for message in messages)))


def next_life(process: Process, **welcome: Any) -> list[bytes]:
    return process.connect(**{"tells_delivered": True, "boot": 6} | welcome)


def test_casts_that_the_router_had_are_offered_to_its_next_life(keeper):
    messages = [keeper.cast(payload=b"%d" % number) for number in range(3)]
    keeper.sent()
    keeper.acknowledge()
    delivered(keeper, messages[1])
    assert keeper.casts.open == 0
    again = next_life(keeper)
    assert [payload_of(message) for message in again] == [b"0", b"2"]
    assert all(message[7] & Flag.RESENT for message in again)
    assert keeper.casts.open == 2
    keeper.acknowledge()
    assert [payload_of(message) for message in next_life(keeper, boot=7)] == [b"0", b"2"], "and to the one after that"


def test_they_keep_their_place_among_those_that_it_had_not(keeper):
    for payload in (b"had", b"sent"):
        keeper.cast(payload=payload)
        if payload == b"had":
            keeper.sent()
            keeper.acknowledge()
    keeper.sent()
    keeper.uplink.lost(1)
    keeper.cast(payload=b"unsent")
    again = next_life(keeper)
    assert [payload_of(message) for message in again] == [b"had", b"sent", b"unsent"]
    assert [bool(message[7] & Flag.RESENT) for message in again] == [True, True, False]


@pytest.mark.parametrize(
    "welcome",
    [{"boot": 5}, {"router_id": 2}, {"handle": 8}, {"tells_delivered": False, "boot": 5}],
    ids=["the same life", "another router", "another handle", "the same life of an older router"],
)
def test_casts_that_a_router_has_that_may_live_are_not_sent_twice(keeper, welcome):
    keeper.cast()
    keeper.sent()
    keeper.acknowledge()
    assert next_life(keeper, **welcome) == []
    assert len(keeper.casts.retained) == 0, "nobody would say when it is delivered"


@pytest.mark.parametrize("boot", [5, 6], ids=["the same life", "the next life"])
def test_a_cast_that_a_consumer_has_is_not_sent_again_though_its_acknowledgement_was_lost(keeper, boot):
    """An ACK may come 5 s later than DELIVERED, and nobody may be left that would recognise the cast."""
    messages = [keeper.cast(payload=b"%d" % number) for number in range(3)]
    keeper.sent()
    delivered(keeper, messages[1])
    assert [payload_of(message) for message in next_life(keeper, boot=boot)] == [b"0", b"2"]
    assert keeper.casts.open == 2


def test_one_that_was_refused_for_good_is_not_sent_again_though_its_acknowledgement_was_lost(keeper):
    call = keeper.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    keeper.sent()
    keeper.error(call.key, Outcome.OVERLOADED)
    assert call.done
    assert next_life(keeper) == [], "its sender was told that it did not run"


def test_beyond_the_bounds_what_was_not_acknowledged_is_sent_again(keeper):
    keeper.casts.retained = RetainedCasts(1, 10_000)
    for number in range(3):
        keeper.cast(payload=b"%d" % number)
    keeper.sent()
    assert [payload_of(message) for message in next_life(keeper)] == [b"0", b"1", b"2"]


def test_fanouts_and_events_that_were_not_acknowledged_are_sent_again(keeper):
    keeper.cast(flags=Flag.FANOUT)
    keeper.casts.send(pack(Kind.PUBLISH, b"", key=keeper.uplink.next_key(), address=COMPUTE), COMPUTE)
    keeper.sent()
    assert kinds(next_life(keeper)) == [Kind.CAST, Kind.PUBLISH]


def test_what_waited_for_a_router_that_tells_more_than_the_last_is_kept(process):
    process.uplink.lost(1)
    process.cast()
    assert len(next_life(process)) == 1
    assert len(process.casts.retained) == 1
    assert len(next_life(process, boot=7)) == 1, "it has not been acknowledged"
    process.acknowledge()
    assert len(next_life(process, boot=8)) == 1, "nor delivered"


def test_what_is_sent_again_for_its_confirmation_is_kept(keeper):
    keeper.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    keeper.sent()
    keeper.acknowledge()
    assert len(next_life(keeper, boot=5)) == 1, "the same life: it has not been confirmed"
    assert len(next_life(keeper, boot=5)) == 1, "nor acknowledged"
    keeper.acknowledge()
    assert len(next_life(keeper, boot=6)) == 1


def test_who_waits_for_the_confirmation_is_confirmed_by_the_next_life(keeper):
    call = keeper.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    keeper.sent()
    keeper.acknowledge()
    (message,) = next_life(keeper)
    assert message[7] == Flag.CONFIRM | Flag.RESENT
    keeper.router(pack(Kind.CONFIRM, b"\0\0\0\1", key=call.key))
    assert call.done
    keeper.acknowledge()
    (message,) = next_life(keeper, boot=7)
    assert message[7] == Flag.RESENT, "nobody waits for it any more"


@pytest.mark.parametrize("is_acknowledged", [True, False])
def test_what_was_confirmed_cannot_be_refused_by_the_next_life_for_want_of_a_consumer(keeper, is_acknowledged):
    """The acknowledgement may come 5 s after the confirmation."""
    call = keeper.start(kind=Kind.CAST, flags=Flag.CONFIRM | Flag.MANDATORY)
    keeper.sent()
    keeper.router(pack(Kind.CONFIRM, b"\0\0\0\1", key=call.key))
    if is_acknowledged:
        keeper.acknowledge()
    (message,) = next_life(keeper)
    assert message[7] == Flag.RESENT
    keeper.error(message[16:36], Outcome.OVERLOADED)
    assert COMPUTE in keeper.casts.refused.queues, "it is offered again"


@pytest.mark.parametrize("outcome", [Outcome.NO_CONSUMER, Outcome.PROTOCOL, Outcome.DENIED])
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_a_cast_that_is_not_taken_is_not_kept(keeper, outcome, is_confirmed):
    key = keeper.start(kind=Kind.CAST, flags=Flag.CONFIRM).key if is_confirmed else keeper.cast()[16:36]
    keeper.sent()
    keeper.error(key, outcome)
    assert len(keeper.casts.retained) == 0


def test_one_that_a_full_queue_gave_back_is_offered_once(keeper):
    message = keeper.cast()
    keeper.sent()
    keeper.error(message[16:36], Outcome.OVERLOADED)
    keeper.acknowledge()
    assert len(next_life(keeper)) == 1


def test_one_whose_format_nobody_takes_is_sent_in_another_though_it_was_acknowledged(keeper):
    message = keeper.cast()
    keeper.sent()
    keeper.acknowledge()
    as_json = pack(Kind.CAST, b"as JSON", key=message[16:36], address=COMPUTE, method=b"m")
    keeper.on_refused = lambda message, error: as_json
    keeper.error(message[16:36], Outcome.PROTOCOL, accepts=2)
    assert [payload_of(message) for message in keeper.sent()] == [b"as JSON"]
    keeper.acknowledge()
    assert keeper.casts.open == 0
    assert [payload_of(message) for message in next_life(keeper)] == [b"as JSON"]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(Outcome.DENIED, "denied"), (Outcome.NO_CONSUMER, "no consumer"), (Outcome.PROTOCOL, "protocol")],
)
def test_what_is_refused_for_good_is_counted_and_not_kept(keeper, outcome, reason):
    message = keeper.cast()
    keeper.sent()
    keeper.error(message[16:36], outcome)
    keeper.acknowledge()
    assert [refused for refused, _ in keeper.refused] == [message], "the shell logs it"
    assert keeper.casts.losses.drops.totals == {"cast": {reason: 1}} and len(keeper.casts.retained) == 0
    assert next_life(keeper) == []


def test_one_that_is_taken_back_before_it_is_sent_is_not_kept(keeper):
    keeper.uplink.lost(1)
    keeper.calls.cancel(keeper.start(kind=Kind.CAST, flags=Flag.CONFIRM))
    assert next_life(keeper) == []


def test_a_router_that_does_not_say_what_is_delivered_is_offered_nothing_again(process):
    process.cast()
    process.sent()
    process.acknowledge()
    assert len(process.casts.retained) == 0
    assert process.connect(boot=6) == []


# --- a router that is stopped and started again -----------------------------------------------------


def drained(process: Process, now: float = 1.0) -> None:
    process.router(control(Kind.DRAIN, {"text": "bye"}), now=now)


def leave(process: Process, received: int, now: float = 2.0) -> None:
    process.router(control(Kind.REFUSED, {"reason": "draining", "text": "bye", "received": received}), now=now)


def test_of_calls_that_were_sent_only_those_that_were_read_are_lost_with_a_router_that_leaves(process):
    first, second, unread = (process.start() for _ in range(3))
    process.sent()
    drained(process)
    held = process.start()
    process.error(second.key, Outcome.DRAINING)
    leave(process, received=2)
    sent = process.connect(now=3.0, boot=6)
    assert isinstance(first.error, LinkLost) and "may have run" in str(first.error)
    assert [message[16:36] for message in sent] == [second.key, unread.key, held.key]
    assert not (second.done or unread.done or held.done)


def test_a_cast_that_was_not_read_is_not_called_one_that_was_sent_before(process):
    first, second = process.cast(), process.cast()
    process.sent()
    drained(process)
    third = process.cast()
    assert process.casts.open == 3
    leave(process, received=1)
    assert process.casts.open == 2
    assert process.connect(now=3.0, boot=6) == [second, third]
    assert first not in process.uplink.outbox


@pytest.mark.parametrize("is_back", [False, True])
def test_a_call_that_waits_for_a_router_to_come_back_times_out_and_says_that_it_did_not_run(process, is_back):
    given_back = process.start(now=0.0)
    process.sent()
    drained(process)
    process.error(given_back.key, Outcome.DRAINING)
    held = process.start(now=0.0)
    if is_back:
        leave(process, received=1)
    process.calls.tick(11.0)
    for call in (given_back, held):
        assert isinstance(call.error, CallTimeout)
        assert call.error.details["started"] == "no"
        assert str(call.error).endswith("; it did not run")
    assert process.connect(now=12.0, boot=6) == [] or not is_back


def test_a_call_that_waits_for_a_router_to_come_back_can_be_cancelled(process):
    drained(process)
    call = process.start()
    process.calls.cancel(call)
    assert process.uplink.held == [] and process.sent() == []
    process.uplink.lost(2.0)
    assert process.connect(now=3.0, boot=6) == []


def test_a_declaration_that_a_router_did_not_answer_is_made_again(process):
    call = process.start(kind=Kind.DECLARE)
    process.sent()
    process.uplink.lost(1.0)
    assert [message[16:36] for message in process.connect(now=2.0, boot=6)] == [call.key]


@pytest.mark.parametrize("flags", [0, Flag.IDEMPOTENT])
@pytest.mark.parametrize("handle", [7, 8])
def test_a_call_that_has_waited_here_is_sent_with_what_is_left_of_its_time(process, flags, handle):
    idempotent = process.start(now=0.0, flags=Flag.IDEMPOTENT, timeout=10.0)
    process.sent()
    drained(process, now=1.0)
    held = process.start(now=2.0, flags=flags, timeout=10.0)
    stream = process.start(now=2.0, flags=Flag.STREAM, timeout=10.0)
    endless = process.start(now=2.0, timeout=None)
    leave(process, received=1, now=3.0)
    sent = process.connect(now=6.0, boot=6, handle=handle)
    assert [parse(message).ttl for message in sent] == [4000, 6000, 10_000, NO_TTL]
    assert [message[16:36] for message in sent] == [call.key for call in (idempotent, held, stream, endless)]
    assert [call.message for call in (idempotent, held, stream, endless)] == sent


def test_what_a_router_with_a_lower_limit_does_not_take_is_not_offered_to_it_again_and_again():
    """Its libzmq cuts the connection for a frame beyond the limit, and the next one would be cut, too."""
    process = Process()
    small, large = bytes(100), bytes(100_000)
    process.cast(payload=large)
    process.cast(payload=small)
    call = Call("compute", Flag.IDEMPOTENT, 10.0)
    process.calls.start(0.0, call, Kind.REQUEST, large, address=COMPUTE, method=b"m")
    process.sent()
    again = process.connect(boot=6, max_message_bytes=50_000)
    assert [len(payload_of(message)) for message in again] == [100]
    ((message, error),) = process.refused
    assert len(payload_of(message)) == 100_000 and "message.max_bytes = 50000" in str(error)
    assert call.error is not None and "message.max_bytes = 50000" in str(call.error)
    assert process.casts.open == 1


def test_the_ttl_of_a_cast_does_not_run_down_at_its_sender(keeper):
    """The router counts it from when it receives the cast, and its next life anew."""
    keeper.uplink.lost(1.0)
    message = pack(Kind.CAST, b"p", key=keeper.uplink.next_key(), format=1, address=COMPUTE, method=b"m", ttl=5000)
    keeper.casts.send(message, COMPUTE)
    [sent] = keeper.connect(3600.0, resumed=True)
    assert parse(sent).ttl == 5000
    keeper.acknowledge()
    [again] = next_life(keeper, now=7200.0)
    assert (parse(again).sequence, parse(again).ttl) == (parse(sent).sequence, 5000)
