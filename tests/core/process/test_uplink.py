from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common import illegal_events
from rpcmq.core.common.illegal_events import IllegalEvent
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.uplink_states import OWN_EVENTS, TRANSITIONS, UplinkState
from rpcmq.core.process.welcome import Welcome
from rpcmq.wire import Flag, Kind, body_of, control, pack, parse, split
from rpcmq.wire.bodies import HelloBody

HELLO = HelloBody(versions=(1,), identity="api-1", queue_type="roundrobin", role="process", accepts=("json",))


class End:
    """An uplink and what it said."""

    def __init__(self) -> None:
        self.welcomes: list[Welcome] = []
        self.refusals: list[tuple[str, str]] = []
        self.received: list[bytes] = []
        self.acknowledged: list[bytes] = []
        self.uplink = Uplink(
            HELLO, lambda now, welcome: self.welcomes.append(welcome), lambda *why: self.refusals.append(why)
        )
        self.uplink.on_acknowledged = self.acknowledged.extend
        self.uplink.handle(Kind.REPLY, lambda now, message: self.received.append(message))

    def sent(self) -> list[bytes]:
        """Take the messages that the shell would send now."""
        uplink = self.uplink
        messages = uplink.first_messages[:]
        uplink.first_messages.clear()
        if uplink.ready:
            while uplink.outbox:
                messages += uplink.batch()
                uplink.batch_was_sent()
            messages += uplink.last_messages
            uplink.last_messages.clear()
        return messages

    def welcome(self, now: float = 1.0, **values: Any) -> None:
        body = {"router_id": 1, "boot": 5, "handle": 7, "token": "t", "received": 0, "resumed": False} | values
        self.uplink.receive(now, control(Kind.WELCOME, body))


@pytest.fixture
def end() -> End:
    return End()


@pytest.fixture
def ready(end: End) -> End:
    end.uplink.connected(0.0)
    end.sent()
    end.welcome()
    return end


def test_a_link_begins_with_hello(end):
    end.uplink.connected(0.0)
    (hello,) = end.sent()
    assert parse(hello).kind == Kind.HELLO
    assert HelloBody.of(hello) == replace(HELLO, answers_drain=True)


def test_nothing_else_is_sent_before_the_welcome(end):
    end.uplink.send(pack(Kind.CAST))
    end.uplink.connected(0.0)
    assert [p[5] for p in end.sent()] == [Kind.HELLO]
    assert not end.uplink.ready
    end.welcome()
    assert end.uplink.ready
    assert [w.resumed for w in end.welcomes] == [False]


def test_keys_name_router_handle_and_sequence(ready):
    first, second = ready.uplink.next_key(), ready.uplink.next_key()
    assert first == b"\0\0\0\1" + (7).to_bytes(8) + (1).to_bytes(8)
    assert second[:12] == first[:12] and second[12:] == (2).to_bytes(8)


def test_after_a_break_it_asks_for_its_session(ready):
    ready.uplink.receive(2.0, pack(Kind.REPLY) + pack(Kind.REPLY))
    ready.uplink.lost(3.0)
    ready.uplink.connected(4.0)
    (hello,) = ready.sent()
    body = body_of(hello)
    assert {k: body[k] for k in ("token", "handle", "boot", "received")} == {
        "token": "t",
        "handle": 7,
        "boot": 5,
        "received": 2,
    }


def test_a_resumed_session_sends_the_rest_again_in_order(ready):
    messages = [pack(Kind.CAST, sequence=n) for n in range(5)]
    for message in messages[:4]:
        ready.uplink.send(message)
    assert ready.sent() == messages[:4]
    ready.uplink.lost(3.0)
    ready.uplink.send(messages[4])
    ready.uplink.connected(4.0)
    ready.sent()
    ready.welcome(5.0, resumed=True, received=2)
    assert ready.acknowledged == messages[:2]
    assert ready.sent() == messages[2:]
    assert ready.welcomes[-1].resumed


def test_a_new_session_gives_back_what_was_under_way(ready):
    messages = [pack(Kind.CAST, sequence=n) for n in range(3)]
    ready.uplink.send(messages[0])
    ready.uplink.send(messages[1])
    ready.sent()
    ready.uplink.receive(2.0, pack(Kind.REPLY))
    ready.uplink.lost(3.0)
    ready.uplink.send(messages[2])
    ready.uplink.connected(4.0)
    ready.sent()
    ready.welcome(5.0, boot=6)
    welcome = ready.welcomes[-1]
    assert (welcome.resumed, welcome.same_handle) == (False, True)
    assert (welcome.sent, welcome.unsent) == (messages[:2], messages[2:])
    assert (ready.uplink.received, ready.uplink.outbox) == (0, [])


def test_another_handle_is_told(ready):
    ready.uplink.lost(2.0)
    ready.uplink.connected(3.0)
    ready.welcome(4.0, handle=8)
    assert not ready.welcomes[-1].same_handle
    assert ready.uplink.next_key()[4:12] == (8).to_bytes(8)


def test_heartbeats_are_sent_while_ready_and_tell_what_was_received(ready):
    uplink = ready.uplink
    ready.welcome(1.0)
    assert uplink.next_deadline() == 1.0 + 5.0
    uplink.receive(2.0, pack(Kind.REPLY))
    uplink.tick(5.9)
    assert ready.sent() == []
    uplink.tick(6.0)
    (heartbeat,) = ready.sent()
    assert (heartbeat[5], parse(heartbeat).sequence) == (Kind.HEARTBEAT, 1)
    assert uplink.next_deadline() == 11.0
    uplink.lost(7.0)
    assert uplink.next_deadline() is None


def test_heartbeats_go_on_while_the_router_drains(ready):
    ready.uplink.receive(2.0, control(Kind.DRAIN, {"text": "bye"}))
    assert ready.uplink.state is UplinkState.DRAINING and ready.uplink.ready
    ready.uplink.tick(6.0)
    assert [p[5] for p in ready.sent()] == [Kind.HEARTBEAT]


def test_the_welcome_sets_the_pace(end):
    end.uplink.connected(0.0)
    end.welcome(1.0, heartbeat_seconds=0.5, unresponsive_seconds=1.5, max_message_bytes=99)
    assert end.uplink.next_deadline() == 1.5
    assert end.uplink.max_message_bytes == 99
    assert end.uplink.silent_seconds(2.5) == 0.0
    assert end.uplink.silent_seconds(2.6) == pytest.approx(1.6)


def test_a_router_that_says_anything_is_not_silent(ready):
    assert ready.uplink.silent_seconds(13.1) > 12.0
    ready.uplink.receive(13.2, pack(Kind.REPLY))
    assert ready.uplink.silent_seconds(20.0) == 0.0
    ready.uplink.lost(21.0)
    assert ready.uplink.silent_seconds(100.0) == 0.0


@pytest.mark.parametrize("kind", [Kind.ACK, Kind.HEARTBEAT])
def test_acknowledgements_are_reported(ready, kind):
    messages = [pack(Kind.CAST, sequence=n) for n in range(3)]
    for message in messages:
        ready.uplink.send(message)
    ready.sent()
    ready.uplink.receive(2.0, pack(kind, sequence=2))
    assert ready.acknowledged == messages[:2]
    ready.uplink.receive(2.0, pack(kind, sequence=3))
    assert ready.acknowledged == messages


def test_what_was_received_is_acknowledged_in_time(ready):
    for n in range(127):
        ready.uplink.receive(2.0, pack(Kind.REPLY, sequence=n))
    assert ready.sent() == []
    ready.uplink.receive(2.0, pack(Kind.REPLY))
    (ack,) = ready.sent()
    assert (ack[5], parse(ack).sequence) == (Kind.ACK, 128)


def test_an_acknowledgement_can_be_asked_for_once_at_a_time(ready):
    uplink = ready.uplink
    uplink.ask_acknowledgement()
    assert ready.sent() == []
    uplink.send(pack(Kind.CAST))
    uplink.ask_acknowledgement()
    uplink.ask_acknowledgement()
    assert [p[5] for p in ready.sent()] == [Kind.CAST, Kind.HEARTBEAT]
    uplink.ask_acknowledgement()
    assert ready.sent() == []
    uplink.receive(2.0, pack(Kind.HEARTBEAT))
    uplink.ask_acknowledgement()
    assert [p[5] for p in ready.sent()] == [Kind.HEARTBEAT]
    uplink.receive(2.0, pack(Kind.HEARTBEAT, sequence=1))
    uplink.ask_acknowledgement()
    assert ready.sent() == []


def test_an_acknowledgement_that_was_asked_for_before_a_break_is_asked_for_again(ready):
    ready.uplink.send(pack(Kind.CAST))
    ready.uplink.ask_acknowledgement()
    ready.sent()
    ready.uplink.lost(2.0)
    ready.uplink.connected(3.0)
    ready.welcome(4.0, resumed=True)
    ready.sent()
    ready.uplink.ask_acknowledgement()
    assert [p[5] for p in ready.sent()] == [Kind.HEARTBEAT]


def test_a_refusal_is_passed_on(end):
    end.uplink.connected(0.0)
    end.uplink.receive(1.0, control(Kind.REFUSED, {"reason": "identity-taken", "text": "no"}))
    assert end.refusals == [("identity-taken", "no")]


def test_goodbye(ready):
    ready.uplink.send(pack(Kind.CAST))
    ready.sent()
    ready.uplink.close()
    assert [p[5] for p in ready.uplink.last_messages] == [Kind.GOODBYE]
    assert not ready.uplink.ready


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "truncated"),
        (b"short", "truncated"),
        (pack(Kind.REPLY)[:-1], "truncated"),
        (pack(Kind.REPLY).replace(b"\0\0\0\x28\1", b"\0\0\0\x29\1", 1), "length"),
        (pack(Kind.REPLY).replace(b"\0\0\0\x28\1", b"\0\0\0\x28\2", 1), "version"),
        (pack(Kind.GOODBYE), "kind"),
        (pack(0x0F), "kind"),
        (pack(0xFF), "kind"),
        (pack(Kind.CAST), "kind"),
        (pack(Kind.ACK, sequence=99), "ack"),
        (pack(Kind.WELCOME, b"nonsense"), "body"),
        (control(Kind.WELCOME, {"router_id": 1}), "body"),
        (control(Kind.REFUSED), "body"),
    ],
)
def test_bad_messages_are_counted_and_not_used(ready, bad, reason):
    before = ready.uplink.state
    ready.uplink.receive(2.0, bad)
    assert ready.uplink.discarded == {reason: 1}
    assert ready.uplink.state is before
    ready.uplink.receive(2.0, pack(Kind.REPLY))
    assert len(ready.received) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"router_id": -1},
        {"router_id": 1 << 32},
        {"handle": 1 << 64},
        {"handle": "x"},
        {"token": None},
        {"heartbeat_seconds": "soon"},
        {"heartbeat_seconds": 0},
        {"unresponsive_seconds": None},
        {"unresponsive_seconds": float("nan")},
        {"lost_seconds": 0},
        {"lost_seconds": "never"},
        {"max_message_bytes": float("inf")},
        {"max_message_bytes": -1},
        {"max_message_bytes": True},
        {"router_id": True},
        {"boot": True},
        {"handle": True},
        {"received": False},
        {"heartbeat_seconds": True},
        {"heartbeat_seconds": "5"},
        {"lost_seconds": 10**400},
        {"recovery_seconds": True},
    ],
)
def test_an_impossible_welcome_is_not_used(end, wrong):
    end.uplink.connected(0.0)
    end.welcome(**wrong)
    assert end.uplink.discarded == {"body": 1}
    assert not end.uplink.ready and end.welcomes == []


def test_a_session_that_cannot_be_resumed_is_given_up_with_the_next_hello(ready):
    ready.uplink.send(pack(Kind.CAST))
    ready.sent()
    ready.uplink.lost(2.0)
    ready.uplink.connected(3.0)
    ready.sent()
    ready.welcome(4.0, resumed=True, received=99)
    assert not ready.uplink.ready
    assert ready.uplink.discarded == {"ack": 1}
    ready.uplink.lost(5.0)
    ready.uplink.connected(6.0)
    (hello,) = ready.sent()
    assert "token" not in body_of(hello)
    ready.welcome(7.0)
    assert ready.uplink.ready
    assert len(ready.welcomes[-1].sent) == 1


# --- states -------------------------------------------------------------------------------------

EVENTS = {event for _, event in TRANSITIONS}
ILLEGAL = sorted(
    ((state, event) for state in UplinkState for event in EVENTS if (state, event) not in TRANSITIONS), key=str
)


def in_state(state: UplinkState) -> End:
    end = End()
    if state is not UplinkState.DOWN:
        end.uplink.connected(0.0)
    if state in (UplinkState.READY, UplinkState.DRAINING, UplinkState.CLOSED):
        end.welcome()
    if state is UplinkState.DRAINING:
        end.uplink.receive(2.0, control(Kind.DRAIN, {}))
    if state is UplinkState.CLOSED:
        end.uplink.close()
    assert end.uplink.state is state
    return end


def happens(end: End, event: str) -> None:
    uplink = end.uplink
    if event == "welcome":
        end.welcome(3.0)
    elif event == "close":
        uplink.close()
    elif event in OWN_EVENTS:
        getattr(uplink, event)(3.0)
    else:
        body = {
            "drain": control(Kind.DRAIN, {}),
            "refused": control(Kind.REFUSED, {}),
            "message": pack(Kind.REPLY),
        }
        uplink.receive(3.0, body[event])


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=str)
def test_a_legal_event_leads_to_the_state_of_the_table(state: UplinkState, event: str) -> None:
    end = in_state(state)
    happens(end, event)
    assert end.uplink.state is TRANSITIONS[state, event] and not end.uplink.discarded


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=str)
def test_an_illegal_event_changes_nothing_and_is_never_nothing(
    state: UplinkState, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = in_state(state)
    received, refusals, welcomes = end.uplink.received, end.refusals[:], end.welcomes[:]
    if event in OWN_EVENTS:
        with pytest.raises(IllegalEvent, match=f"{event} while it is {state.value}"):
            happens(end, event)
        illegal_events.raised.clear()
        # In production it is counted, and reported once.
        monkeypatch.setattr(illegal_events, "_strict", False)
        errors: list[Exception] = []
        end.uplink.on_error = errors.append
        happens(end, event)
        happens(end, event)
        assert list(end.uplink.illegal.counts.values()) == [3] and len(errors) == 0
    else:
        happens(end, event)
        assert end.uplink.discarded == {"state": 1}
    assert end.uplink.state is state
    assert (end.uplink.received, end.refusals, end.welcomes) == (received, refusals, welcomes)


def test_an_illegal_event_is_reported_the_first_time_in_production(end, monkeypatch):
    monkeypatch.setattr(illegal_events, "_strict", False)
    errors: list[Exception] = []
    end.uplink.on_error = errors.append
    end.uplink.connected(0.0)
    end.uplink.connected(1.0)
    end.uplink.connected(2.0)
    assert [str(error) for error in errors] == ["uplink: connected while it is greeting"]
    assert end.uplink.illegal.counts == {"uplink: connected while it is greeting": 2}


def test_a_batch_that_was_not_given_cannot_have_been_sent(ready):
    ready.uplink.send(pack(Kind.CAST))
    with pytest.raises(IllegalEvent):
        ready.uplink.batch_was_sent()
    illegal_events.raised.clear()
    assert len(ready.uplink.outbox) == 1 and ready.uplink.unacknowledged == 0


@given(st.lists(st.binary(max_size=100), max_size=5), st.lists(st.binary(max_size=10), max_size=3))
def test_no_bytes_from_the_router_raise(batches, payloads):
    end = End()
    end.uplink.connected(0.0)
    end.welcome()
    for batch in batches:
        end.uplink.receive(1.0, batch, payloads)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 255),
            st.binary(max_size=60),
            st.integers(0, 0xFFFF),
            st.binary(min_size=20, max_size=20),
            st.binary(max_size=20),
        ),
        max_size=8,
    )
)
def test_no_well_formed_message_from_the_router_raises(fields):
    end = End()
    end.uplink.connected(0.0)
    end.welcome()
    for kind, payload, flags, key, address in fields:
        message = pack(kind, payload, flags=flags & ~1, key=key, address=address)
        assert split(message) == [message]
        end.uplink.receive(1.0, message)


# --- a router that shuts down ---------------------------------------------------------------------


def drain(end: End, **body: Any) -> None:
    end.uplink.receive(2.0, control(Kind.DRAIN, {"text": "bye"} | body))


#: Kind and flags of what waits for the router's next life, and of what is sent while it shuts down.
WAITING = [
    (Kind.REQUEST, 0),
    (Kind.REQUEST, Flag.IDEMPOTENT | Flag.STREAM),
    (Kind.CAST, 0),
    (Kind.CAST, Flag.CONFIRM),
    (Kind.CAST, Flag.NESTED),
    (Kind.PUBLISH, 0),
]
PASSING = [
    (Kind.REQUEST, Flag.NESTED),
    (Kind.CAST, Flag.NESTED | Flag.CONFIRM),
    (Kind.PUBLISH, Flag.CONFIRM),
    (Kind.REPLY, 0),
    (Kind.FAULT, 0),
    (Kind.ITEM, 0),
    (Kind.END, 0),
    (Kind.GRANT, 0),
    (Kind.CANCEL, 0),
    (Kind.SETTLE, 0),
    (Kind.EVENT_CREDIT, 0),
    (Kind.QUERY, 0),
]


def test_what_begins_something_waits_for_the_next_life_of_a_router_that_shuts_down(ready):
    before = [pack(kind, b"1", flags=flags) for kind, flags in WAITING + PASSING]
    after = [pack(kind, b"2", flags=flags) for kind, flags in WAITING + PASSING]
    for message in before:
        ready.uplink.send(message)
    drain(ready)
    for message in after:
        ready.uplink.send(message)
    cut = len(WAITING)
    assert ready.sent() == before[cut:] + after[cut:]
    assert ready.uplink.held == before[:cut] + after[:cut]
    ready.uplink.lost(3.0)
    ready.uplink.connected(4.0)
    ready.welcome(4.0, boot=6)
    assert ready.welcomes[-1].unsent == before[:cut] + after[:cut]
    assert ready.uplink.held == []
    ready.uplink.send(before[0])
    assert ready.sent() == [before[0]], "it was sent to the next life"


def test_a_router_that_asks_is_told_that_nothing_new_is_under_way_any_more(ready):
    ready.sent()
    ready.uplink.receive(2.0, pack(Kind.REPLY))
    message = pack(Kind.REPLY, b"mine")
    ready.uplink.send(message)
    drain(ready, answer=True)
    assert ready.sent() == [message, pack(Kind.DRAIN, sequence=1)]


def test_a_router_that_does_not_ask_is_told_nothing(ready):
    ready.sent()
    drain(ready)
    assert ready.sent() == []


def test_what_a_router_has_not_read_when_it_leaves_was_never_sent(ready):
    messages = [pack(Kind.REQUEST, bytes([n])) for n in range(5)]
    for message in messages:
        ready.uplink.send(message)
    ready.sent()
    ready.uplink.receive(2.0, pack(Kind.ACK, sequence=1))
    drain(ready)
    ready.uplink.receive(3.0, control(Kind.REFUSED, {"reason": "draining", "text": "bye", "received": 3}))
    assert ready.refusals == [("draining", "bye")]
    assert ready.acknowledged == messages[:3]
    assert ready.uplink.state is UplinkState.DOWN and ready.sent() == []
    ready.uplink.connected(4.0)
    ready.welcome(4.0, boot=6)
    assert (ready.welcomes[-1].sent, ready.welcomes[-1].unsent) == ([], messages[3:])


@pytest.mark.parametrize("received", [-1, 3, 1 << 70, "2", None, True])
def test_an_impossible_count_of_a_router_that_leaves_changes_nothing(ready, received):
    ready.uplink.send(pack(Kind.REQUEST))
    ready.sent()
    ready.uplink.receive(3.0, control(Kind.REFUSED, {"reason": "draining", "text": "bye", "received": received}))
    assert ready.refusals == [("draining", "bye")]
    assert ready.uplink.unacknowledged == 1


@pytest.mark.parametrize("seconds", [3e6, 1e300, 10**300])
def test_of_a_welcome_no_more_is_believed_than_a_router_can_be_set_to(end, seconds):
    end.uplink.connected(0.0)
    times = ("heartbeat_seconds", "unresponsive_seconds", "lost_seconds", "recovery_seconds")
    end.welcome(max_message_bytes=10**30, **dict.fromkeys(times, seconds))
    uplink = end.uplink
    assert uplink.ready
    assert (uplink.unresponsive_seconds, uplink.lost_seconds, uplink.recovery_seconds) == (86_400, 86_400, 3600)
    assert uplink.max_message_bytes == 1 << 30 and uplink.next_deadline() == 1.0 + 3600


def test_a_welcome_with_an_endless_time_is_malformed(end):
    end.uplink.connected(0.0)
    end.welcome(lost_seconds=float("inf"))
    assert not end.uplink.ready and end.uplink.discarded["body"] == 1
