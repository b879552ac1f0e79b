"""Casts retained by their sender, and offered to the router's next life."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.process.retained_casts import RetainedCasts
from rpcmq.errors import Outcome
from rpcmq.wire import Flag, Kind, control, pack, parse, payload_of
from tests.core.process.calling import COMPUTE, Process, kinds


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


def test_at_another_router_what_the_former_one_had_is_left_behind_and_the_rest_sent(keeper):
    """Routers that were given no ids have the same one."""
    lost: list[str] = []
    keeper.casts.losses.on_loss = lost.append
    for payload in (b"had", b"delivered", b"had too"):
        message = keeper.cast(payload=payload)
        keeper.sent()
        if payload == b"delivered":
            delivered(keeper, message)
    keeper.acknowledge()
    keeper.cast(payload=b"sent")
    keeper.sent()
    keeper.uplink.lost(1)
    keeper.cast(payload=b"unsent")
    again = next_life(keeper, url="tcp://b:1")
    assert [payload_of(message) for message in again] == [b"sent", b"unsent"]
    assert keeper.casts.counters["casts left behind"] == 2
    assert [text.partition(" are held by the former router only")[0] for text in lost] == [
        "2 casts waiting for a consumer"
    ]
    keeper.acknowledge()
    again = next_life(keeper, url="tcp://b:1", boot=7)
    assert [payload_of(message) for message in again] == [b"sent", b"unsent"], "to the next life of the present one"
    keeper.acknowledge()
    assert next_life(keeper, url="", boot=8) == [], "the first one has forgotten this process, whatever its boot"


@pytest.mark.parametrize("received", [None, 2], ids=["unfinished", "in order"])
def test_what_a_router_had_that_has_shut_down_in_order_goes_to_another_one(keeper, received):
    messages = [keeper.cast(payload=payload) for payload in (b"had", b"delivered")]
    keeper.sent()
    keeper.acknowledge()
    keeper.router(control(Kind.DRAIN, {"text": "bye", "answer": False}))
    delivered(keeper, messages[1])
    body = {"reason": "draining", "text": "bye"} | ({} if received is None else {"received": received})
    keeper.router(control(Kind.REFUSED, body))
    again = next_life(keeper, url="tcp://b:1", boot=4, handle=9)
    assert [payload_of(message) for message in again] == ([] if received is None else [b"had"])
    keeper.acknowledge()
    assert next_life(keeper, url="tcp://c:1", boot=5) == [], "b may live"


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
