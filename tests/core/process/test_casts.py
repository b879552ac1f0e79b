"""Casts at their sender: its window, full queues and refusals."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.wire import Address, Flag, Kind, pack, parse, size_of
from tests.core.process.calling import COMPUTE, OTHER, Process


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


@pytest.mark.parametrize("tells_delivered", [False, True])
@pytest.mark.parametrize("kind", [Kind.CAST, Kind.PUBLISH])
def test_what_the_router_has_confirmed_is_not_at_risk_though_it_is_not_acknowledged(kind, tells_delivered):
    process = Process()
    process.connect(tells_delivered=tells_delivered)
    confirmed, given_up = process.start(kind=kind, flags=Flag.CONFIRM), process.start(kind=kind, flags=Flag.CONFIRM)
    process.sent()
    assert process.casts.at_risk == 2
    process.router(pack(Kind.CONFIRM, bytes(4), key=confirmed.key))
    process.calls.cancel(given_up)
    assert (process.casts.open, process.casts.at_risk) == (2, 1)
    process.sent()
    process.acknowledge()
    assert (process.casts.open, process.casts.at_risk, process.casts._confirmed) == (0, 0, set())
    late = pack(Kind.CONFIRM, bytes(4), key=given_up.key)
    process.router(late)
    assert process.casts._confirmed == set(), "nothing is remembered of what was acknowledged"


def test_what_the_former_life_of_a_router_has_confirmed_is_at_risk_in_the_next(process):
    call = process.start(kind=Kind.PUBLISH, flags=Flag.CONFIRM)
    process.sent()
    process.router(pack(Kind.CONFIRM, bytes(4), key=call.key))
    assert process.casts.at_risk == 0
    process.connect(boot=9)
    assert process.casts.at_risk == process.casts.open == 1


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
