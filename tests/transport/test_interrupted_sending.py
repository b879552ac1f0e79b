"""A signal's handler raises while a session is sent, acknowledged or resumed: each message arrives once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, cast

import pytest

from rpcmq.core.common.session import BATCH_MESSAGES, Session
from rpcmq.transport.batches import BatchSocket, flush_session
from rpcmq.wire import SEQUENCE, Kind, pack, size_of
from tests.core.interrupts import is_interrupted

#: The files in whose code the signals come.
FILES = ("batches.py", "session.py")


class Interrupt(Exception):
    """As a handler of SIGALRM may raise it."""


class Peer:
    """The socket, and the other end of the session."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def send(self, route: bytes, messages: Sequence[bytes], has_detached: bool | None = None) -> int:
        self.received += [int.from_bytes(message[SEQUENCE]) for message in messages]
        return sum(map(size_of, messages))


class Scene:
    """A session with messages in three batches that were sent, and more to send than one batch takes."""

    def __init__(self) -> None:
        self.session, self.peer = Session([]), Peer()
        self.queued = 0
        for messages in (2, 3, 4):
            self.queue(messages)
            self.flush()
        self.queue(BATCH_MESSAGES + 5)

    def queue(self, messages: int) -> None:
        for _ in range(messages):
            self.queued += 1
            self.session.send(pack(Kind.CAST, sequence=self.queued))

    def flush(self) -> None:
        flush_session(cast(BatchSocket, self.peer), self.session, b"")

    def acknowledge_one(self) -> None:
        self.session.acknowledged(2)

    def acknowledge_several(self) -> None:
        self.session.acknowledged(5)

    def resume(self) -> None:
        """Both ends go on where the peer has lost some of what was sent."""
        assert self.session.can_resume(6)
        self.session.resume(6)


@pytest.mark.parametrize(
    "operation",
    [
        Scene.flush,
        Scene.acknowledge_one,
        Scene.acknowledge_several,
        Scene.resume,
    ],
)
def test_whenever_a_signal_comes_a_resumption_goes_on_where_the_peer_is(operation: Callable[[Scene], Any]) -> None:
    for step in count():
        scene = Scene()
        session, peer = scene.session, scene.peer
        interrupted = is_interrupted(step, partial(operation, scene), FILES, Interrupt, each_instruction=False)
        if interrupted:
            session.receiving_was_interrupted()
        assert session.unacknowledged == len(session.sent)
        assert session.sent_bytes <= sum(map(size_of, session.sent)), "unknown where sending was interrupted"
        if operation is Scene.resume:
            del peer.received[6:]
        assert session.can_resume(len(peer.received)), f"after step {step}"
        session.resume(len(peer.received))
        scene.flush()
        assert peer.received == list(range(1, scene.queued + 1)), f"after step {step}"
        assert session.sent_bytes == sum(map(size_of, session.sent))
        session.acknowledged(scene.queued)
        assert not session.sent and not session.sent_bytes
        if not interrupted:
            break
    assert step > 1
