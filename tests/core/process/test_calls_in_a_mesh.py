"""A sender of calls and casts that goes on at another router of its mesh: what it sends again there, and how."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.process.mesh_moves import for_next_owner
from rpcmq.errors import CallTimeout, LinkLost, Outcome
from rpcmq.wire import KEY, LOW_FLAGS_AT, SEQUENCE, STAMP, Flag, Kind, pack, with_stamp
from rpcmq.wire.mesh_bodies import RoutersBody
from tests.core.process.calling import Process, kinds

MESH = {"mesh": "east", "routers": [{"name": "a", "urls": ["tcp://a:1"]}], "adopts": True}


class Sender(Process):
    """A process at router a of a mesh."""

    def __init__(self, **mesh: Any) -> None:
        super().__init__()
        self.mesh = MESH | mesh
        self.connect(url="a", boot=6, mesh=self.mesh, tells_delivered=True)

    def move(self, url: str = "b", **welcome: Any) -> list[bytes]:
        """Go on at another router; return what is sent there."""
        says: dict[str, Any] = {"boot": self.uplink.received + ord(url), "mesh": self.mesh, "tells_delivered": True}
        return self.connect(url=url, **says | welcome)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_a_call_in_flight_is_asked_for_by_the_next_router(sender: Sender) -> None:
    call = sender.start()
    (first,) = sender.sent()
    (again,) = sender.move()
    assert call.error is None
    assert again[KEY] == first[KEY] == call.key
    assert first[STAMP] == b"\0\0" and again[STAMP] == b"\1\0"
    assert again[LOW_FLAGS_AT] & Flag.RESENT
    sender.router(pack(Kind.REPLY, b"done", key=call.key))
    assert call.answer is not None


def test_each_router_that_has_it_can_be_told_from_the_ones_before(sender: Sender) -> None:
    sender.start()
    sender.sent()
    stamps = [sender.move(url)[0][STAMP] for url in "bca"]
    assert stamps == [b"\1\0", b"\2\0", b"\3\0"]


def test_the_next_life_of_the_same_router_asks_too(sender: Sender) -> None:
    call = sender.start()
    sender.sent()
    (again,) = sender.move("a", boot=99)
    assert call.error is None and again[STAMP] == b"\1\0"


def test_the_next_life_of_a_router_that_reaches_nobody_yet_is_to_ask_those_that_were_known() -> None:
    """It says that it adopts nothing, for it knows nobody who could have anything."""
    alone: dict[str, Any] = MESH | {"adopts": False}
    sender = Sender(routers=[{"name": name, "urls": [f"tcp://{name}:1"]} for name in "abc"])
    call = sender.start()
    sender.sent()
    for moves in (1, 2):
        (again,) = sender.move("a", boot=98 + moves, mesh=alone)
        assert call.error is None and again[STAMP] == bytes((moves, 0))
        sender.router(RoutersBody.parse(alone).message())
        assert sender.uplink.moves.is_adopted


def test_its_remaining_time_goes_along(sender: Sender) -> None:
    sender.start(now=0.0, timeout=10.0)
    sender.sent()
    sender.uplink.lost(4.0)
    (again,) = sender.connect(4.0, "b", boot=7, mesh=sender.mesh)
    assert int.from_bytes(again[12:16]) == 6000


@pytest.mark.parametrize(
    "welcome",
    [{"mesh": MESH | {"adopts": False}}, {"mesh": MESH | {"mesh": "west"}}, {"mesh": {}}, {"handle": 8}],
    ids=["no adoption", "another mesh", "no mesh", "another origin"],
)
def test_where_nobody_asks_for_it_a_call_that_may_have_run_ends(sender: Sender, welcome: dict[str, Any]) -> None:
    call = sender.start()
    sender.sent()
    assert sender.move(**welcome) == []
    assert isinstance(call.error, LinkLost)


def test_a_stream_that_may_have_begun_ends(sender: Sender) -> None:
    call = sender.start(flags=Flag.STREAM)
    sender.sent()
    assert sender.move() == []
    assert isinstance(call.error, LinkLost)


def test_an_idempotent_call_says_that_it_has_a_later_owner(sender: Sender) -> None:
    """Nobody asks for it, but its former owner may have it still."""
    sender.start(flags=Flag.IDEMPOTENT)
    sender.sent()
    (again,) = sender.move()
    assert again[LOW_FLAGS_AT] & Flag.RESENT and again[STAMP] == b"\1\0"


def test_a_call_that_was_not_sent_or_not_accepted_is_new_to_the_next_router(sender: Sender) -> None:
    given_back = sender.start()
    sender.sent()
    sender.error(given_back.key, Outcome.DRAINING)
    sender.uplink.lost(1.0)
    unsent = sender.start()
    messages = {message[KEY]: message for message in sender.move()}
    assert set(messages) == {given_back.key, unsent.key}
    assert all(not m[LOW_FLAGS_AT] & Flag.RESENT and m[STAMP] == b"\0\0" for m in messages.values())


def test_a_call_that_was_asked_for_and_given_back_is_asked_for_again(sender: Sender) -> None:
    call = sender.start()
    sender.sent()
    sender.move("b")
    sender.error(call.key, Outcome.DRAINING)
    (again,) = sender.move("c")
    assert again[STAMP] == b"\2\0" and again[LOW_FLAGS_AT] & Flag.RESENT


def test_calls_that_no_router_has_can_be_ended_and_did_not_run_if_none_ever_had_them(sender: Sender) -> None:
    passed_on, given_back, moved = sender.start(timeout=None), sender.start(timeout=None), sender.start(timeout=None)
    sender.sent()
    sender.error(given_back.key, Outcome.DRAINING)
    sender.calls.expire_not_accepted(1.0)
    assert given_back.error is not None and given_back.error.details["started"] == "no"
    assert passed_on.error is moved.error is None
    sender.move("b")
    sender.sent()
    # The first router may have passed it on.
    sender.error(moved.key, Outcome.DRAINING)
    unsent = sender.start(timeout=None)
    sender.uplink.lost(2.0)
    sender.calls.expire_not_accepted(3.0)
    assert unsent.error is not None and unsent.error.details["started"] == "no"
    assert isinstance(moved.error, CallTimeout) and "started" not in moved.error.details
    assert passed_on.error is None


def test_casts_that_no_consumer_has_go_along(sender: Sender) -> None:
    first, second, third = sender.cast(), sender.cast(), sender.cast()
    sender.sent()
    sender.acknowledge()
    sender.router(pack(Kind.DELIVERED, second[SEQUENCE]))
    again = sender.move()
    assert kinds(again) == [Kind.CAST, Kind.CAST]
    assert [m[KEY] for m in again] == [first[KEY], third[KEY]]
    assert all(m[STAMP] == b"\1\0" and m[LOW_FLAGS_AT] & Flag.RESENT for m in again)
    assert sender.casts.counters["casts left behind"] == 0
    assert [m[STAMP] for m in sender.move("c")] == [b"\2\0", b"\2\0"]


def test_without_adoption_casts_are_left_behind_and_counted() -> None:
    sender = Sender(adopts=False)
    sender.cast()
    sender.sent()
    sender.acknowledge()
    assert sender.move() == []
    assert sender.casts.counters["casts left behind"] == 1


def test_a_confirmed_cast_is_asked_for_and_its_waiter_told(sender: Sender) -> None:
    call = sender.start(kind=Kind.CAST, flags=Flag.CONFIRM)
    sender.sent()
    sender.acknowledge()
    (again,) = sender.move()
    assert again[STAMP] == b"\1\0" and again[LOW_FLAGS_AT] & Flag.RESENT
    sender.router(pack(Kind.CONFIRM, (1).to_bytes(4), key=call.key))
    assert call.answer is not None


def test_an_event_is_marked_and_has_no_owner() -> None:
    event = for_next_owner(pack(Kind.PUBLISH, b"e"))
    assert event[LOW_FLAGS_AT] & Flag.RESENT and event[STAMP] == b"\0\0"


def test_after_255_routers_they_are_told_apart_no_more() -> None:
    message = with_stamp(pack(Kind.REQUEST, b"r"), b"\xff\0")
    assert for_next_owner(message)[STAMP] == b"\xff\0"


def test_a_call_that_255_routers_had_ends(sender: Sender) -> None:
    call = sender.start()
    sender.sent()
    call.message = with_stamp(call.message, b"\xff\0")
    assert sender.move() == []
    assert isinstance(call.error, LinkLost)


# --- a router that drains --------------------------------------------------------------------


def test_the_router_is_needed_for_what_it_has_taken(sender: Sender) -> None:
    moves = sender.uplink.moves
    assert not moves.has_work
    call = sender.start()
    sender.sent()
    assert moves.has_work
    sender.router(pack(Kind.REPLY, b"done", key=call.key))
    assert not moves.has_work
    cast = sender.cast()
    sender.sent()
    assert moves.has_work, "no consumer has it"
    sender.router(pack(Kind.DELIVERED, cast[SEQUENCE]))
    assert not moves.has_work


def test_the_router_is_not_needed_for_what_it_has_not_taken(sender: Sender) -> None:
    call = sender.start()
    sender.sent()
    sender.router(pack(Kind.DRAIN, b'{"text": "", "answer": true}', format=1))
    sender.error(call.key, Outcome.DRAINING)
    sender.start()
    assert not sender.uplink.moves.has_work
