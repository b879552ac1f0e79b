"""A running router goes on for everybody else, whatever one connection makes it raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from rpcmq import Client, Service
from rpcmq.core.router.actions import LogEvent
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing import router as run_router
from rpcmq.transport.backlog import UNIDENTIFIED_BYTES
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.curve import Curve
from rpcmq.transport.key_files import curve_for, read_key_file
from rpcmq.wire import Kind, control, pack
from tests.client.endpoints import Compute
from tests.client.endpoints import message as message_of
from tests.keys import Folder, right

pytestmark = pytest.mark.integration


def add(client: Client, a: int) -> Any:
    return client.call(None, "compute", message_of("add", a=a), timeout=20)


@contextmanager
def dealer(url: str, curve: Curve | None = None) -> Iterator[BatchSocket]:
    """A connection that is no client's: what it sends is for the test to say."""
    context = new_context()
    socket = BatchSocket(context, zmq.DEALER, max_bytes=1 << 20, curve=curve)
    try:
        socket.socket.connect(url)
        yield socket
    finally:
        socket.close()
        context.destroy(linger=0)


def test_a_flood_of_hellos_that_cannot_be_encoded_holds_up_nobody(tmp_path: Path):
    """Each froze the router for half a second: 60 of them kept honest calls waiting for 30 s."""
    folder = Folder(tmp_path)
    web, own = folder.add("web"), read_key_file(folder.add("mallory", right("call", "compute")), client=True)
    with run_router(security_keys=str(folder)) as router:
        client = Client(router.url, key_file=web)
        with client, Service("compute", Compute(), client=client):
            assert add(client, 1) == 1
            body = {"identity": "mallory", "queue_type": "roundrobin", "versions": [1], "handle": 5, "token": "\ud800"}
            hello = control(Kind.HELLO, body)
            # What a connection may send before its HELLO is read: more, and it can be cut before it is answered.
            flood = UNIDENTIFIED_BYTES // (2 * len(hello))
            with ExitStack() as stack:
                sockets = [stack.enter_context(dealer(router.url, curve_for(own))) for _ in range(2000 // flood)]
                for socket in sockets:
                    for _ in range(flood):
                        socket.send(b"", [hello])
                for socket in sockets:
                    eventually(socket.readable, 20)
                for number in range(20):
                    assert add(client, number) == number
        router.check()


@pytest.fixture
def faulty() -> Iterator[InProcessRouter]:
    """A router with a defect, and a service and a caller that must not notice."""
    with run_router() as router, Client(router.url) as client, Service("compute", Compute(), client=client):
        assert add(client, 1) == 1
        yield router
        for number in range(3):
            assert add(client, number) == number
        assert router._embedded.engine.refused["internal error"] > 0


def test_a_link_whose_messages_cannot_be_sent(faulty: InProcessRouter):
    with Client(faulty.url, identity="mallory") as mallory:
        mallory.connect(10)
        link = faulty._embedded.engine.links.by_identity("mallory")
        assert link is not None
        link.send("not bytes")  # type: ignore[arg-type]
        faulty._embedded.shell.wake()
        eventually(lambda: faulty._embedded.engine.refused["internal error"], 20)
        # First it resumes its session; when that fails again it comes back with a new link.
        eventually(lambda: faulty._embedded.engine.links.by_identity("mallory") is not link, 20)
        eventually(lambda: faulty._embedded.engine.links.by_identity("mallory"), 20)


def test_an_action_that_raises_keeps_no_other_from_being_done(faulty: InProcessRouter, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    def on_note(note: LogEvent) -> None:
        if note.text == "first":
            raise ZeroDivisionError("a bug")
        seen.append(note.text)

    monkeypatch.setattr(faulty._embedded.shell, "_on_note", on_note)
    faulty._embedded.engine.actions.extend([LogEvent("test", "first", ""), LogEvent("test", "second", "")])
    faulty._embedded.shell.wake()
    eventually(lambda: "second" in seen, 20)


def test_a_message_that_raises_ends_its_own_link_only(faulty: InProcessRouter, monkeypatch: pytest.MonkeyPatch):
    whole = faulty._embedded.engine.links.control_message

    def control_message(now: float, link: Any, message: bytes) -> None:
        if link.identity == "mallory":
            raise ZeroDivisionError("a bug")
        whole(now, link, message)

    monkeypatch.setattr(faulty._embedded.engine.links, "control_message", control_message)
    with dealer(faulty.url) as socket:
        socket.send(b"", [control(Kind.HELLO, {"identity": "mallory", "queue_type": "roundrobin", "versions": [1]})])
        eventually(lambda: faulty._embedded.engine.links.by_identity("mallory"), 20)
        socket.send(b"", [pack(Kind.HEARTBEAT)])
        eventually(lambda: faulty._embedded.engine.links.by_identity("mallory") is None, 20)


def test_large_payloads_that_are_not_detached_do_not_lock_a_service_out():
    """Joined for their consumer they made a frame that its libzmq refuses, and the same again after each reconnect."""
    with (
        run_router() as router,
        Client(router.url) as client,
        Service("compute", Compute(), client=client),
        dealer(router.url) as socket,
    ):
        assert add(client, 1) == 1
        socket.send(b"", [control(Kind.HELLO, {"identity": "mallory", "queue_type": "roundrobin", "versions": [1]})])
        link = eventually(lambda: router._embedded.engine.links.by_identity("mallory"), 20)
        assert link is not None
        for batch in range(9):
            casts = []
            for number in range(7):
                key = link.origin + (7 * batch + number + 1).to_bytes(8)
                head = pack(Kind.CAST, b"", key=key, format=1, address=b"\0\7\0compute", method=b"add")
                size_bytes = 3 << 19
                casts.append((len(head) + size_bytes).to_bytes(4) + head[4:] + bytes(size_bytes))
            socket.send(b"", casts)
        eventually(lambda: router._embedded.engine.refused["length"] == 9, 20)
        for number in range(5):
            assert add(client, number) == number
        own = router._embedded.engine.links.by_identity(client.identity)
        assert own is not None and own.counters["connections lost"] == 0
        router.check()
