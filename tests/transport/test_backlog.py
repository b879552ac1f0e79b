"""What libzmq has read of a connection and the router has not: too much of it ends that connection, and no other."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import gevent
import pytest
from gevent import socket as gsocket

from rpcmq import Client, Service
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing import router as run_router
from rpcmq.transport.backlog import received_bytes
from rpcmq.wire import Detached, Kind, control, message, payload_of
from tests.client.endpoints import Compute
from tests.client.endpoints import message as message_of

KIB, MIB = 1 << 10, 1 << 20


def test_the_system_counts_what_has_come_on_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            assert received_bytes(other.fileno()) == 0
            one.sendall(b"x" * 1000)
            eventually(lambda: received_bytes(other.fileno()) == 1000)
            other.recv(500)
            assert received_bytes(other.fileno()) == 1000


def test_of_other_sockets_it_is_not_known():
    one, other = socket.socketpair()
    with one, other:
        assert received_bytes(one.fileno()) is None
    assert received_bytes(-1) is None


@pytest.fixture
def router() -> Iterator[InProcessRouter]:
    """A router, a service and a caller that must not notice."""
    with run_router(link_inbox_max_bytes=4 * MIB) as router:
        with Client(router.url) as client, Service("compute", Compute(), client=client):
            yield router
            for number in range(3):
                assert client.call(None, "compute", message_of("add", a=number), timeout=20) == number
            own = router._embedded.engine.links.by_identity(client.identity)
            assert own is not None and own.counters["connections lost"] == 0
        router.check()


class Raw:
    """Speaks ZMTP by hand: libzmq itself sends nothing of a message before its last frame."""

    def __init__(self, router: InProcessRouter) -> None:
        host, port = router.url.removeprefix("tcp://").split(":")
        self._socket = gsocket.create_connection((host, int(port)))
        self._socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        ready = b"\x05READY\x0bSocket-Type" + len(b"DEALER").to_bytes(4) + b"DEALER"
        self._socket.sendall(b"\x04" + bytes([len(ready)]) + ready)

    def send(self, frame: bytes, more: bool = False) -> None:
        """One frame; whether it is taken, which it is not any more once the connection is broken."""
        try:
            self._socket.sendall(bytes([2 | more]) + len(frame).to_bytes(8) + frame)
        except OSError:
            pass

    def endless(self, frames: int, size_bytes: int = 256 * KIB) -> None:
        """So many frames of one ZeroMQ message that never ends."""
        for _ in range(frames):
            self.send(bytes(size_bytes), more=True)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def mallory(router: InProcessRouter) -> Iterator[Raw]:
    raw = Raw(router)
    yield raw
    raw.close()


def counted(router: InProcessRouter, what: str) -> int:
    return int(router._embedded.engine.links.counters[what])


def look(router: InProcessRouter) -> None:
    """As it is done when the process has grown, which depends on what else is in it."""
    router._embedded.shell._backlog.look()


def test_a_message_that_never_ends_before_hello(router: InProcessRouter, mallory: Raw):
    mallory.endless(8)

    def is_cut() -> bool:
        look(router)
        return counted(router, "cut: too much before HELLO") == 1

    eventually(is_cut, 20)
    eventually(lambda: router._embedded.shell.handshakes == 0, 20)


def test_a_message_that_never_ends_on_a_link(router: InProcessRouter, mallory: Raw):
    mallory.send(control(Kind.HELLO, {"identity": "mallory", "queue_type": "roundrobin", "versions": [1]}))
    links = router._embedded.engine.links
    eventually(lambda: links.by_identity("mallory"), 20)
    mallory.endless(8)
    gevent.sleep(0.05)
    look(router)
    assert links.by_identity("mallory") is not None, "it may have so much on the way"
    mallory.endless(16)

    def is_cut() -> bool:
        look(router)
        return links.by_identity("mallory") is None

    eventually(is_cut, 20)
    assert counted(router, "cut: too much unread") == 1


def test_a_link_that_is_read_is_not_cut_whatever_it_sends(router: InProcessRouter, mallory: Raw):
    mallory.send(control(Kind.HELLO, {"identity": "mallory", "queue_type": "roundrobin", "versions": [1]}))
    links = router._embedded.engine.links
    link = eventually(lambda: links.by_identity("mallory"), 20)
    assert link is not None
    sent = 0
    for batch in range(60):
        # Of all sizes, and of several frames.
        parts = [
            message(Kind.PUBLISH, bytes(size), key=link.origin + bytes(8), format=1) for size in (1, 300, 90 * KIB)
        ]
        for count in (1, 2, 3):
            payloads = [bytes(payload_of(part)) for part in parts[:count] if isinstance(part, Detached)]
            frames = [b"".join(parts[:count]), *payloads]
            for left, frame in zip(range(len(frames) - 1, -1, -1), frames, strict=True):
                mallory.send(frame, more=bool(left))
                sent += len(frame)
        gevent.sleep(0.001)
        if batch % 10 == 0:
            look(router)
    eventually(lambda: link.read_bytes >= sent, 20)
    look(router)
    assert links.by_identity("mallory") is link and counted(router, "cut: too much unread") == 0
