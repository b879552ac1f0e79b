"""Each cast that the router does not have counts once, whatever the router does with it, in whatever order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.process.call import Call
from rpcmq.core.process.casts import RETAINED_KINDS
from rpcmq.errors import Outcome
from rpcmq.wire import (
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    SEQUENCE_OF_KEY,
    Address,
    Flag,
    Kind,
    control,
    pack,
    size_of,
    with_payload,
)
from tests.core.process.calling import COMPUTE, OTHER, Process


class PlayedRouter:
    """A router that reads in order what ``process`` sends, and tells it of that when the test says so."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.boot, self.handle = 5, 7
        self.read = 0
        #: Sent and not read yet; what is still to be told of the messages read; casts that it has.
        self.unread: list[bytes] = []
        self.to_tell: list[bytes] = []
        self.has: dict[bytes, bytes] = {}
        self.connect()

    def connect(self, resumed: bool = False) -> None:
        """Welcome the process, and tell it again what it may not have heard."""
        uplink = self.process.uplink
        if uplink.ready:
            uplink.lost(0.0)
        self.unread = self.process.connect(
            boot=self.boot, handle=self.handle, resumed=resumed, received=self.read, tells_delivered=True
        )

    def restart(self) -> None:
        self.boot += 1
        self.read, self.to_tell, self.has = 0, [], {}
        self.connect()

    def restart_with_another_handle(self) -> None:
        self.handle += 1
        self.restart()

    def take(self) -> bytes | None:
        """Read the next message; return it if it is a cast or event."""
        self.unread += self.process.sent()
        if not self.unread:
            return None
        message = self.unread.pop(0)
        self.read += 1
        return message if message[KIND_AT] in RETAINED_KINDS else None

    def accept(self) -> None:
        if (message := self.take()) is not None:
            self.has[message[KEY]] = message
            if message[LOW_FLAGS_AT] & Flag.CONFIRM:
                self.to_tell.append(pack(Kind.CONFIRM, bytes(4), key=message[KEY]))

    def refuse(self, outcome: Outcome, **details: Any) -> None:
        if (message := self.take()) is not None:
            self.refuse_cast(message[KEY], outcome, **details)

    def refuse_cast(self, key: bytes, outcome: Outcome, **details: Any) -> None:
        body = {"outcome": outcome, "text": "why", "details": details}
        self.to_tell.append(control(Kind.ERROR, body, key=key))

    def refuse_late(self) -> None:
        """Refuse a cast that was held, and may have been acknowledged long ago."""
        if self.has:
            self.refuse_cast(self.has.popitem()[0], Outcome.OVERLOADED)

    def deliver(self) -> None:
        if self.has:
            self.to_tell.append(pack(Kind.DELIVERED, self.has.popitem()[0][SEQUENCE_OF_KEY]))

    def tell(self) -> None:
        for message in self.to_tell:
            self.process.router(message)
        self.to_tell = []

    def acknowledge(self) -> None:
        self.tell()
        self.process.router(pack(Kind.ACK, sequence=self.read))


def check_counts(process: Process) -> None:
    """Compare the counts with the messages there are."""
    casts, uplink = process.casts, process.uplink
    sent = {
        message[KEY]: message
        for message in chain(uplink.sent, uplink.outbox, uplink.held)
        if message[KIND_AT] in RETAINED_KINDS
    }
    queues = casts.refused.queues
    waiting = {key: message for queue in queues.values() for key, message in queue.waiting.items()}
    open_casts = sent | waiting | casts.returned
    assert (casts.open, casts.open_bytes) == (len(open_casts), sum(map(size_of, open_casts.values())))
    assert 0 <= casts.at_risk <= casts.open
    assert {key for queue in queues.values() for key in queue.offered} <= sent.keys()
    assert all(not queue.waiting.keys() & queue.offered.keys() for queue in queues.values())
    assert all(queue.casts == len(queue.waiting) + len(queue.offered) > 0 for queue in queues.values())
    assert casts.refused.casts == sum(queue.casts for queue in queues.values()) <= casts.open
    assert casts.refused.size_bytes == sum(queue.size_bytes for queue in queues.values()) <= casts.open_bytes


ROUTER: dict[str, Callable[[PlayedRouter], object]] = {
    "accept": PlayedRouter.accept,
    "full": lambda router: router.refuse(Outcome.OVERLOADED, limit_value=1),
    "draining": lambda router: router.refuse(Outcome.DRAINING),
    "no": lambda router: router.refuse(Outcome.NO_CONSUMER),
    "other format": lambda router: router.refuse(Outcome.PROTOCOL, accepts=2),
    "refuse late": PlayedRouter.refuse_late,
    "deliver": PlayedRouter.deliver,
    "tell": PlayedRouter.tell,
    "acknowledge": PlayedRouter.acknowledge,
}
CONNECTION: dict[str, Callable[[PlayedRouter], object]] = {
    "resume": lambda router: router.connect(resumed=True),
    "restart": PlayedRouter.restart,
    "other handle": PlayedRouter.restart_with_another_handle,
}
PROCESS = ["cast", "cast elsewhere", "event", "confirm", "cancel", "send", "wait", "drain", "lose"]
OFTEN = ["cast", "cast", "full", "full", "tell", "wait", "send", "deliver"]
ACTIONS = st.sampled_from([*PROCESS, *ROUTER, *CONNECTION, *OFTEN, *OFTEN, *OFTEN])


@given(st.lists(ACTIONS, min_size=40, max_size=100))
def test_at_every_moment_each_cast_that_the_router_does_not_have_counts_once(actions):
    process = Process()
    router = PlayedRouter(process)
    process.on_refused = lambda message, error: (
        with_payload(message, 2, b"in another format") if error.details else None
    )
    calls: list[Call] = []
    now = 0.0
    for action in actions:
        now += 0.07
        if action == "cast":
            process.cast()
        elif action == "cast elsewhere":
            process.cast(OTHER, payload=b"larger")
        elif action == "event":
            message = pack(Kind.PUBLISH, b"event", key=process.uplink.next_key(), format=1, address=COMPUTE)
            process.casts.send(message, COMPUTE)
        elif action == "confirm":
            calls.append(process.start(now, kind=Kind.CAST, flags=Flag.CONFIRM))
        elif action == "cancel" and calls:
            process.calls.cancel(calls.pop())
        elif action == "lose":
            router.unread = []
            process.uplink.lost(now)
        elif action in CONNECTION:
            CONNECTION[action](router)
        elif process.uplink.ready:
            if action == "send":
                router.unread += process.sent()
            elif action == "drain":
                process.router(control(Kind.DRAIN, {"text": "", "answer": True}), now)
            elif action in ROUTER:
                ROUTER[action](router)
        process.calls.tick(now)
        check_counts(process)
    check_it_comes_to_rest(process, router, now)


def check_it_comes_to_rest(process: Process, router: PlayedRouter, now: float) -> None:
    """Let a router that accepts everything take what there is."""
    router.restart()
    for _ in range(3):
        process.calls.tick(now := now + 1.0)
        router.unread += process.sent()
        while router.unread:
            router.accept()
        router.acknowledge()
        check_counts(process)
    assert (process.casts.open, process.casts.open_bytes, process.casts.at_risk) == (0, 0, 0)
    assert process.casts.refused.queues == {} and process.uplink.unacknowledged == 0


@pytest.mark.parametrize("outcome", [Outcome.OVERLOADED, Outcome.DRAINING])
def test_one_that_is_refused_counts_once_before_its_first_copy_is_acknowledged(outcome):
    process = Process()
    message = process.cast()
    process.sent()
    process.error(message[KEY], outcome)
    assert (process.casts.open, process.casts.open_bytes) == (1, size_of(message))
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (1, size_of(message))


def test_one_that_is_sent_in_another_format_counts_once_with_its_new_size():
    process = Process()
    message = process.cast()
    process.sent()
    process.on_refused = lambda message, error: with_payload(message, 2, bytes(1000))
    process.error(message[KEY], Outcome.PROTOCOL, accepts=2)
    (other,) = process.sent()
    assert (process.casts.open, process.casts.open_bytes) == (1, size_of(other))
    process.acknowledge()
    assert (process.casts.open, process.casts.open_bytes) == (0, 0)


def test_one_that_waits_in_another_format_counts_with_its_new_size():
    process = Process()
    message = process.cast()
    process.sent()
    process.error(message[KEY], Outcome.OVERLOADED)
    process.calls.tick(1.0)
    process.sent()
    process.on_refused = lambda message, error: with_payload(message, 2, bytes(1000))
    process.error(message[KEY], Outcome.PROTOCOL, accepts=2)
    (other,) = process.sent()
    process.error(message[KEY], Outcome.OVERLOADED)
    check_counts(process)
    assert process.casts.refused.size_bytes == size_of(other)


def test_a_refusal_gives_no_room_and_takes_none():
    process = Process()
    window: dict[str, Any] = {"casts": 3, "size_bytes": 1000, "total_bytes": 2000}
    messages = [process.cast() for _ in range(2)]
    process.sent()
    for message in messages:
        process.error(message[KEY], Outcome.OVERLOADED)
        assert process.casts.has_room(COMPUTE, **window), "two of three"
    assert process.casts.has_room(OTHER, **window)
    process.cast()
    assert not process.casts.has_room(COMPUTE, **window)
    assert process.casts.has_room(Address("third").encode(), **window), "none is on its way elsewhere"


def test_one_that_was_delivered_at_the_second_attempt_is_once_not_at_risk():
    process = Process()
    process.connect(tells_delivered=True)
    message, _ = process.cast(), process.cast()
    process.sent()
    process.error(message[KEY], Outcome.OVERLOADED)
    process.calls.tick(1.0)
    process.sent()
    process.router(pack(Kind.DELIVERED, message[KEY][SEQUENCE_OF_KEY]))
    assert (process.casts.open, process.casts.at_risk) == (2, 1), "the other may not have arrived"
    process.acknowledge()
    assert (process.casts.open, process.casts.at_risk) == (0, 0)
