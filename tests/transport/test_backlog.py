"""The backlog that libzmq has read and the router has not: too much of it ends its connection, and no other."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import gevent
import pytest
from gevent import socket as gsocket

from rpcmq import Client, Service
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing import router as run_router
from rpcmq.testing.processes import RouterProcess
from rpcmq.transport.owned_sockets import received_bytes
from rpcmq.wire import Address, Detached, Kind, control, pack, payload_of
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

    def __init__(self, router: InProcessRouter | RouterProcess) -> None:
        host, port = router.url.removeprefix("tcp://").split(":")
        self._socket = gsocket.create_connection((host, int(port)))
        self._socket.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        ready = b"\x05READY\x0bSocket-Type" + len(b"DEALER").to_bytes(4) + b"DEALER"
        self._socket.sendall(b"\x04" + bytes([len(ready)]) + ready)
        # Before it has said so itself libzmq takes what comes for a part of the handshake, and ends it.
        answer = b""
        while b"READY" not in answer and (some := self._socket.recv(4096)):
            answer += some

    def send(self, frame: bytes, more: bool = False) -> None:
        """One frame; whether it is taken, which it is not any more once the connection is broken."""
        try:
            self._socket.sendall(bytes([2 | more]) + len(frame).to_bytes(8) + frame)
        except OSError:
            pass

    def empty(self, frames: int) -> int:
        """So many empty frames of a message that never ends, 2 bytes each; returns how many were taken."""
        some = b"\x01\x00" * 50_000
        for sent in range(0, frames, 50_000):
            try:
                self._socket.sendall(some)
            except OSError:
                return sent
        return frames

    def slowly(self, frame: bytes, more: bool = False, seconds: float = 1.0) -> None:
        """One frame, piece by piece."""
        whole = memoryview(bytes([2 | more]) + len(frame).to_bytes(8) + frame)
        for start in range(0, len(whole), MIB):
            self._socket.sendall(whole[start : start + MIB])
            gevent.sleep(seconds * MIB / len(whole))

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
        messages = [
            pack(Kind.PUBLISH, bytes(size), key=link.origin + bytes(8), format=1) for size in (1, 300, 90 * KIB)
        ]
        for count in (1, 2, 3):
            payloads = [bytes(payload_of(message)) for message in messages[:count] if isinstance(message, Detached)]
            frames = [b"".join(messages[:count]), *payloads]
            for left, frame in zip(range(len(frames) - 1, -1, -1), frames, strict=True):
                mallory.send(frame, more=bool(left))
                sent += len(frame)
        gevent.sleep(0.001)
        if batch % 10 == 0:
            look(router)
    eventually(lambda: link.read_bytes >= sent, 20)
    look(router)
    assert links.by_identity("mallory") is link and counted(router, "cut: too much unread") == 0


# --- what takes far more memory than it is on the network ------------------------------------------

HELLO = {"identity": "mallory", "queue_type": "roundrobin", "versions": [1]}
#: 40 MB of it, of which libzmq would make 1.3 GB.
EMPTY_FRAMES = 20_000_000


def peak_mib(router: RouterProcess) -> float:
    found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{router.pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


@pytest.mark.parametrize("on_a_link", [False, True])
def test_a_message_of_empty_frames_does_not_fill_the_memory(on_a_link: bool):
    with (
        RouterProcess(router_max_bytes="1GiB", router_recovery_seconds=0) as router,
        Client(router.url) as client,
        Service("compute", Compute(), client=client),
    ):
        mallory = Raw(router)
        if on_a_link:
            mallory.send(control(Kind.HELLO, HELLO))
        reason = "cut: took far more memory than it sent" if on_a_link else "cut: too much before HELLO"
        # Who is cut may be left with a connection that takes nothing more.
        sender = gevent.spawn(mallory.empty, EMPTY_FRAMES)
        eventually(lambda: client.query("summary")["counters"].get(reason), 30)
        assert client.call(None, "compute", message_of("add", a=1), timeout=20) == 1
        sender.kill()
        mallory.close()
        assert peak_mib(router) < 600
        assert client.process.connection.reconnects == 0


def test_messages_as_large_as_any_may_be_pass_however_slow_their_way_is():
    with RouterProcess(router_recovery_seconds=0, router_max_bytes="1GiB") as router, Client(router.url) as client:
        client.connect(10)
        most = client.process.uplink.max_message_bytes
        senders: list[gevent.Greenlet[..., None]] = []
        raws: list[Raw] = []
        for number in range(2):
            slow = Raw(router)
            raws.append(slow)
            slow.send(control(Kind.HELLO, HELLO | {"identity": f"slow-{number}"}))
            eventually(lambda: client.query("summary")["links"] == len(senders) + 2, 20, "it is welcome")
            message = pack(Kind.PUBLISH, bytes(most), key=bytes(20), format=1, address=Address("a").encode())
            assert isinstance(message, Detached)
            slow.send(bytes(message), more=True)
            senders.append(gevent.spawn(slow.slowly, bytes(payload_of(message)), seconds=3.0))
        gevent.joinall(senders, raise_error=True)
        # That it is refused, for its origin is not that link's, tells that it has come.
        eventually(lambda: sum(client.query("summary")["refused"].values()) == 2, 20, "both have come")
        assert not any("cut" in reason for reason in client.query("summary")["counters"])
        for slow in raws:
            slow.close()


def test_only_growth_that_nothing_explains_breaks_a_connection_and_its_link_stays(
    router: InProcessRouter, mallory: Raw, monkeypatch: pytest.MonkeyPatch
):
    watch, engine = router._embedded.shell._backlog, router._embedded.engine
    monkeypatch.setattr(watch, "_look", lambda: None)
    watch._timer.stop()
    mallory.send(control(Kind.HELLO, HELLO))
    link = eventually(lambda: engine.links.by_identity("mallory"), 20)
    assert link is not None
    mallory.endless(12)
    eventually(lambda: watch._unread(link.route or b"", link) >= 2 * MIB, 20)
    size = watch._size_before
    limit = max(engine.settings.router_max_bytes // 16, 64 * MIB)
    # As much as came, and as much again.
    watch.look(size + 6 * MIB)
    # What the engine holds explains as much.
    held = engine.memory.accounted_bytes
    monkeypatch.setattr(type(engine.memory), "accounted_bytes", held + limit)
    watch.look(size + 6 * MIB + 2 * limit)
    assert watch._unexplained < limit // 2 and counted(router, "cut: took far more memory than it sent") == 0
    watch.look(size + 7 * MIB + 3 * limit)
    assert counted(router, "cut: took far more memory than it sent") == 1
    eventually(lambda: link.route is None, 20)
    assert engine.links.by_identity("mallory") is link, "it may come back to it"
