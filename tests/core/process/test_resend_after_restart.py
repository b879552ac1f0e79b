"""Calls and casts over the loss of a link and the end of a router."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.call import Call
from rpcmq.errors import CallTimeout, LinkLost, Outcome
from rpcmq.wire import NO_TTL, Flag, Kind, control, pack, parse, payload_of
from tests.core.process.calling import COMPUTE, OTHER, Process, kinds

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
