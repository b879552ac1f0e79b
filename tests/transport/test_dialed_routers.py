"""Connections that a router makes to others: they stand, carry a link, and end once, whatever becomes of the other."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Self

import gevent
import pytest
import zmq
from gevent.fileobject import FileObject

from rpcmq import Client, Service
from rpcmq.config import load_router_config
from rpcmq.core.router.actions import Answer, Dial, Disconnect
from rpcmq.core.router.model import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.turns import TURN_STEPS
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.transport import dialed_routers
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.owned_sockets import received_bytes
from rpcmq.wire import KIND_AT, Kind, body_of, control, pack, split
from tests.client.endpoints import Compute
from tests.keys import Folder

ROUTE = b"dial:1"
#: Of a connection that is refused.
REFUSED = b"dial:refused"
HELLO = control(Kind.HELLO, {"identity": "a", "queue_type": "roundrobin", "versions": [1]})
PING = pack(Kind.HEARTBEAT)


class Dialing(Router):
    """An engine that notes all that its shell says of dialed connections, and gives each a link at its WELCOME."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.told: list[tuple[str, bytes]] = []
        self.reasons: list[str] = []
        self.came: list[Kind] = []
        self._of_any = self.receive
        self.receive = self._of_dialed

    def connected(self, now: float, route: bytes) -> None:
        self.told.append(("connected", route))

    def lost(self, now: float, route: bytes, reason: str = "") -> None:
        super().lost(now, route, reason)
        self.told.append(("lost", route))
        self.reasons.append(reason)

    def _of_dialed(
        self, now: float, route: bytes, batch: bytes, payloads: Sequence[bytes | memoryview] = (), user: str = ""
    ) -> None:
        if not route.startswith(b"dial:"):
            self._of_any(now, route, batch, payloads, user)
            return
        messages = split(batch, payloads)
        self.came.extend(Kind(message[KIND_AT]) for message in messages)
        if route in self.links.routes:
            self._of_any(now, route, batch, payloads, user)
        elif messages[0][KIND_AT] == Kind.WELCOME:
            link = Link(self.links.dirty, "b", "mesh", len(self.told), 7)
            link.handlers = self.links.handlers
            self.links.add(link)
            self.links.attach_route(now, link, route)
            self.links.connected(now, link)


class DialingRouter:
    """A router with that engine, in this process."""

    def __init__(self, **settings: Any) -> None:
        flags = {"router.listen": "tcp://127.0.0.1:0", "router.recovery_seconds": 0.0}
        flags |= {name.replace("_", ".", 1): value for name, value in settings.items()}
        self.embedded = EmbeddedRouter(load_router_config(flags=flags), engine=Dialing)
        self.shell = self.embedded.shell
        engine = self.embedded.engine
        assert isinstance(engine, Dialing)
        self.engine = engine

    def act(self, *actions: Any) -> None:
        self.engine.actions.extend(actions)
        self.shell.wake()

    def dial(self, url: str, server_key: str = "", route: bytes = ROUTE) -> None:
        self.act(Dial(route, url, server_key))

    def connect(self, url: str, server_key: str = "", route: bytes = ROUTE) -> None:
        self.dial(url, server_key, route)
        eventually(lambda: ("connected", route) in self.engine.told, what="connected")

    def link(self, url: str, server_key: str = "") -> Link:
        """Connect, and have the connection carry a link."""
        self.connect(url, server_key)
        self.act(Answer(ROUTE, HELLO))
        eventually(lambda: ROUTE in self.engine.links.routes, what="a link")
        return self.engine.links.routes[ROUTE]

    @property
    def told(self) -> list[str]:
        return [event for event, _ in self.engine.told]

    def check_lost_once(self, why: str) -> None:
        eventually(lambda: "lost" in self.told, what="lost")
        reason = self.engine.reasons[-1]
        self.settle()
        assert self.told.count("lost") == 1
        assert why in reason
        self.check_nothing_left()

    def settle(self) -> None:
        """Have another connection refused: what was under way before is told by then."""
        self.dial("tcp://127.0.0.1:1", route=REFUSED)
        eventually(lambda: ("lost", REFUSED) in self.engine.told, what="the end of a refused connection")
        self.engine.told.remove(("lost", REFUSED))

    def check_nothing_left(self) -> None:
        dialed = self.shell._dialed
        assert not dialed.by_route and not dialed.ready
        assert ROUTE not in self.shell._connections.sockets
        eventually(lambda: not self.shell.unidentified.by_fd)


@pytest.fixture
def dialing() -> Iterator[Callable[..., DialingRouter]]:
    with ExitStack() as stack:

        def make(**settings: Any) -> DialingRouter:
            made = DialingRouter(**settings)
            stack.callback(made.embedded.close)
            stack.callback(lambda: check_wake_ups(made))
            return made

        yield make


def check_wake_ups(router: DialingRouter) -> None:
    assert router.shell.lost_wakeups == 0


@pytest.fixture
def a(dialing: Callable[..., DialingRouter]) -> DialingRouter:
    return dialing()


# --- a connection that stands ---------------------------------------------------------------------


def check_messages_go_both_ways(a: DialingRouter, link: Link) -> None:
    assert a.told == ["connected"]
    for _ in range(3):
        seen = a.engine.came.count(Kind.HEARTBEAT)
        link.send_last(PING)
        a.shell.wake()
        eventually(lambda seen=seen: a.engine.came.count(Kind.HEARTBEAT) > seen)  # type: ignore[misc]
    assert ROUTE in a.shell._connections.sockets
    assert not a.shell.unidentified.by_fd


def test_over_tcp(a, rpcmq_router):
    check_messages_go_both_ways(a, a.link(rpcmq_router.url))


def test_over_ipc(a, dialing, tmp_path):
    b = dialing(router_listen=f"ipc://{tmp_path}/b")
    check_messages_go_both_ways(a, a.link(b.embedded.url))


def test_over_a_host_name(a, rpcmq_router):
    check_messages_go_both_ways(a, a.link(rpcmq_router.url.replace("127.0.0.1", "localhost")))


def test_with_curve(dialing, tmp_path):
    folders = []
    for name in "ab":
        path = tmp_path / name
        path.mkdir()
        folders.append(Folder(path))
    mine, theirs = folders
    a = dialing(security_keys=str(mine))
    b = dialing(security_keys=str(theirs))
    from rpcmq.core.router.rights import EVERYTHING, Key

    theirs.authorise(Key("a", mine.router, (EVERYTHING,)))
    b.embedded.key_authenticator.look()
    check_messages_go_both_ways(a, a.link(b.embedded.url, theirs.router))
    assert b.engine.links.by_identity("a").key.name == "a"


def test_two_routers_that_dial_each_other(dialing):
    a, b = dialing(), dialing()
    a.link(b.embedded.url)
    b.connect(a.embedded.url)
    b.act(Answer(ROUTE, control(Kind.HELLO, {"identity": "b", "queue_type": "roundrobin", "versions": [1]})))
    eventually(lambda: ROUTE in b.engine.links.routes)
    assert a.told == b.told == ["connected"]


def test_the_engine_may_disconnect_and_hears_nothing_more_of_it(a, dialing):
    b = dialing()
    link = a.link(b.embedded.url)
    theirs = b.engine.links.by_identity("a")
    link.send_last(pack(Kind.GOODBYE))
    a.shell.wake()
    a.act(Disconnect(ROUTE))
    # What was sent before leaves first: its link ends, and is not away.
    eventually(lambda: theirs.state.value == "ended")
    a.settle()
    assert a.told == ["connected"]
    a.check_nothing_left()


def test_a_connection_whose_link_has_ended_is_cut_in_time(a, rpcmq_router):
    link = a.link(rpcmq_router.url)
    a.shell.unidentified._seconds = 0.1
    a.engine.links.end(0.0, link, "for the test")
    a.shell.wake()
    a.check_lost_once("connection was lost")
    assert a.engine.links.counters["cut: no HELLO in time"] == 1


def test_a_link_on_which_sending_raises_loses_its_connection(a, rpcmq_router):
    link = a.link(rpcmq_router.url)
    link.send_last(PING)
    link.last_messages.append("no bytes")
    a.shell.wake()
    a.check_lost_once("internal error while sending")
    assert link.route is None and link.state.value == "away"


# --- one that can't be had ------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:1", "ipc:///nonexistent/socket", "no url", "tcp://[::1]:1"])
def test_nobody_there(a, url):
    a.dial(url)
    a.check_lost_once("cannot connect to it" if url == "no url" else "nothing listens there")
    assert "connected" not in a.told


def test_one_who_says_nothing_is_given_up(a, monkeypatch):
    monkeypatch.setattr(dialed_routers, "_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        a.dial(f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        a.check_lost_once("no end of the handshake within")


def test_a_name_that_does_not_resolve(a):
    a.dial("tcp://nobody.invalid:7700")
    a.check_lost_once("'nobody.invalid' does not resolve")


def test_a_slow_look_up_stops_nobody(a, rpcmq_router, monkeypatch):
    """Libzmq looks names up in the thread that moves the messages of all connections."""
    asked: list[str] = []

    def slow(host: str, *args: object) -> list[Any]:
        asked.append(host)
        gevent.sleep(30)
        return []

    monkeypatch.setattr(dialed_routers, "getaddrinfo", slow)
    monkeypatch.setattr(dialed_routers, "_PATIENCE", 30)
    a.dial("tcp://slow.example:7700")
    with Client(a.embedded.url) as client, Service("compute", Compute(), client=client):
        eventually(lambda: asked == ["slow.example"])
        assert client.call(None, "compute", {"method": "add", "args": {"a": 1}}, timeout=20) == 1
        assert a.told == []
    a.act(Disconnect(ROUTE))
    eventually(lambda: not a.shell._dialed.by_route)
    monkeypatch.setattr(dialed_routers, "_PATIENCE", 0.1)
    a.dial("tcp://slow.example:7700")
    a.check_lost_once("was not looked up within 0.1 s")


def test_a_wrong_server_key(dialing, tmp_path):
    mine, theirs = tmp_path / "a", tmp_path / "b"
    mine.mkdir()
    theirs.mkdir()
    a, b = dialing(security_keys=str(Folder(mine))), dialing(security_keys=str(Folder(theirs)))
    a.dial(b.embedded.url, "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7")
    a.check_lost_once("its server_key may be another one")


def test_one_that_does_not_know_our_key(dialing, tmp_path):
    mine, theirs = tmp_path / "a", tmp_path / "b"
    mine.mkdir()
    theirs.mkdir()
    folder = Folder(theirs)
    a, b = dialing(security_keys=str(Folder(mine))), dialing(security_keys=str(folder))
    a.dial(b.embedded.url, folder.router)
    a.check_lost_once("does not accept the key")


def test_curve_at_one_side_only(dialing, tmp_path, rpcmq_router):
    mine = tmp_path / "a"
    mine.mkdir()
    folder = Folder(mine)
    a, plain = dialing(security_keys=str(folder)), dialing()
    a.dial(rpcmq_router.url, folder.router)
    a.check_lost_once("or it runs without CURVE")
    plain.dial(a.embedded.url)
    plain.check_lost_once("it may require CURVE")


def test_a_server_key_without_keys_of_our_own(a, rpcmq_router):
    a.dial(rpcmq_router.url, "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7")
    a.check_lost_once("set security.keys")


# --- the end of the other -------------------------------------------------------------------------


@pytest.mark.fault
def test_the_other_router_is_killed(a):
    with RouterProcess() as b:
        link = a.link(b.url)
        # What is sent to a process that reads nothing more is answered with a reset when that is killed.
        b.pause()
        for _ in range(100):
            link.send_last(PING)
        a.shell.wake()
        gevent.sleep(0.05)
        b.kill()
    a.check_lost_once("connection was lost")
    assert link.route is None
    a.engine.told.clear()
    with RouterProcess(b.url) as again:
        a.connect(again.url)


@pytest.mark.fault
@pytest.mark.long
def test_the_other_router_is_stopped(dialing):
    """Its host is silent: the heartbeats of ZMTP tell."""
    a = dialing(link_lost_seconds=4.0, link_unresponsive_seconds=1.0, link_heartbeat_seconds=0.5)
    with RouterProcess() as b:
        a.link(b.url)
        b.pause()
        a.check_lost_once("connection was lost")
        b.resume()


class Raw:
    """The socket of another router, by hand, on which ``a`` has a link; what it sends is not read for now."""

    def __init__(self, a: DialingRouter) -> None:
        self._shell = a.shell
        self._context = new_context()
        self._socket = socket = BatchSocket(self._context, zmq.ROUTER, max_bytes=1 << 26)
        socket.socket.bind("tcp://127.0.0.1:0")
        a.connect(socket.socket.last_endpoint.decode())
        a.act(Answer(ROUTE, HELLO))
        eventually(socket.readable)
        self._route = socket.receive()[0]
        self.send(control(Kind.WELCOME, {}))
        eventually(lambda: ROUTE in a.engine.links.routes)
        self.link = a.engine.links.routes[ROUTE]
        self._dialed = a.shell._dialed.by_route[ROUTE]
        watchdog, reader = self._dialed.watchdog, self._dialed.transport._reader
        assert watchdog is not None and reader is not None
        watchdog.stop()
        reader.stop()

    def send(self, *messages: bytes) -> None:
        self._socket.send(self._route, messages)

    def is_readable(self) -> bool:
        """Return whether something waits to be read, which is then noted as if its descriptor had told."""
        self._shell._dialed._note_ready(self._dialed)
        return self._shell._dialed.has_more()

    def arrived(self) -> int:
        """Bytes that have come and were not read."""
        return (received_bytes(self._dialed.fd) or 0) - self.link.read_bytes

    def close(self) -> None:
        self._socket.close(0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
        self._context.destroy(linger=0)


def test_what_came_before_the_end_is_read(a):
    """All of it, although the end is known before the first of it was read."""
    with Raw(a) as b:
        for _ in range(1000):
            b.send(pack(Kind.ALIVE))
        eventually(lambda: b.arrived() >= 1000 * len(pack(Kind.ALIVE)))
        b.close()
        a.check_lost_once("connection was lost")
        assert a.engine.came.count(Kind.ALIVE) == 1000


# --- fairness -------------------------------------------------------------------------------------

FLOOD = """
import sys
import zmq
from rpcmq.wire import KIND_AT, Address, Kind, control, pack, sequence_of, split
from rpcmq.transport.batches import BatchSocket, new_context

kind, url = sys.argv[1:]
socket = BatchSocket(new_context(), zmq.ROUTER if kind == "router" else zmq.DEALER, max_bytes=1 << 26)
if kind == "router":
    socket.socket.bind("tcp://127.0.0.1:0")
    print("bound to", socket.socket.last_endpoint.decode())
    socket.socket.poll()
    route = socket.receive()[0]
    socket.send(route, [control(Kind.WELCOME, {})])
else:
    socket.socket.connect(url)
    socket.send(b"", [control(Kind.HELLO, {"identity": "flood", "queue_type": "roundrobin", "versions": [1]})])
    socket.socket.poll()
    route = socket.receive()[0]
print("begins")
batch = [pack(Kind.PUBLISH, b"x" * 100, address=Address("a.b", "", "").encode(), key=bytes(20)) for _ in range(200)]
sent = acknowledged = 0
while True:
    # As much as a router lets wait, and no more: else it ends the link.
    while sent - acknowledged > 20_000 or socket.readable():
        socket.socket.poll()
        last = split(*socket.receive()[1:])[-1]
        if last[KIND_AT] == Kind.ACK:
            acknowledged = sequence_of(last)
    socket.send(route, batch)
    sent += len(batch)
"""


def flood(kind: str, url: str = "") -> Program:
    return Program([sys.executable, "-c", FLOOD, kind, url], name=kind)


@pytest.mark.fault
def test_a_flood_of_another_router_does_not_keep_processes_waiting(a):
    with Client(a.embedded.url) as client, Service("compute", Compute(), client=client), flood("router") as b:
        client.connect(20)
        link = a.link(b.expect("bound to (.*)")[1])
        eventually(lambda: link.received > 2000)
        for number in range(20):
            message = {"method": "add", "args": {"a": number}}
            assert client.call(None, "compute", message, timeout=20) == number
        received = link.received
        eventually(lambda: link.received > received + 2000)


@pytest.mark.fault
def test_a_flood_of_a_process_does_not_keep_other_routers_waiting(a, dialing):
    b = dialing()
    link = a.link(b.embedded.url)
    with flood("dealer", a.embedded.url) as process:
        process.expect("begins")
        flooding = eventually(lambda: a.engine.links.by_identity("flood"))
        eventually(lambda: flooding.received > 2000)
        check_messages_go_both_ways(a, link)
        received = flooding.received
        eventually(lambda: flooding.received > received + 2000)


def test_too_much_of_another_router_that_is_not_read_ends_the_link_and_the_connection(dialing):
    a = dialing(link_inbox_max_bytes=1 << 20)
    with Raw(a) as b:
        for _ in range(10):
            b.send(*[pack(Kind.ALIVE, b"x" * 1000)] * 1000)
        eventually(lambda: b.arrived() > 9 << 20)
        a.shell._backlog.look()
        assert b.link.state.value == "ended"
        a.check_lost_once("connection was lost")
        assert a.engine.links.counters["cut: too much unread"] == 1


@pytest.mark.parametrize(("steps", "most"), [(0, 64), (TURN_STEPS + 1, 1)])
def test_a_turn_of_other_routers_leaves_the_processes_theirs(a, steps, most, monkeypatch):
    """Also where each message of another router costs more than a turn has."""
    context = new_context()
    process = BatchSocket(context, zmq.DEALER, max_bytes=1 << 26)
    process.socket.connect(a.embedded.url)
    process.send(b"", [HELLO])
    eventually(lambda: a.engine.links.by_identity("a"))
    link = a.engine.links.by_identity("a")
    assert link is not None and link.route is not None
    fd, _ = a.shell._connections.sockets[link.route]
    seen: list[bytes] = []
    receive = a.engine.receive

    def costly(now: float, route: bytes, *rest: Any) -> None:
        seen.append(route)
        a.engine.turns.spent += steps
        receive(now, route, *rest)

    with Raw(a) as b:
        a.shell._io.stop()
        a.shell._again.stop()
        a.shell._watchdog.stop()
        a.shell._timer.stop()
        monkeypatch.setattr(a.engine, "receive", costly)
        for _ in range(500):
            b.send(pack(Kind.ALIVE))
            process.send(b"", [pack(Kind.ALIVE, key=link.origin + bytes(8))])
        eventually(lambda: b.arrived() >= 500 * len(pack(Kind.ALIVE)))
        eventually(lambda: (received_bytes(fd) or 0) > 500 * len(pack(Kind.ALIVE)))
        for turn in range(1, 4):
            eventually(lambda: a.shell._socket.readable() and b.is_readable())
            assert a.shell._has_more(0)  # as at the end of the wake-up before
            a.shell._turn()
            assert turn <= seen.count(ROUTE) <= most * turn
            assert turn <= sum(route == link.route for route in seen) <= most * turn
    process.close()
    context.destroy(linger=0)


# --- the ends of a router -------------------------------------------------------------------------


def test_a_router_that_drains_says_so_and_hangs_up(a, dialing):
    """Nobody else would end the connection: the other router has nothing more to say on it."""
    b = dialing()
    a.link(b.embedded.url)
    theirs = b.engine.links.by_identity("a")
    said: list[bytes] = []
    b.engine.receive = lambda now, route, batch, *rest: said.extend(split(batch))
    a.shell.finish_drain()
    a.check_lost_once("shutting down")
    eventually(lambda: theirs.route is None)
    assert [body_of(message)["reason"] for message in said if message[KIND_AT] == Kind.REFUSED] == ["draining"]


def test_a_router_that_has_drained_makes_no_connection(a, rpcmq_router):
    a.shell.finish_drain()
    a.dial(rpcmq_router.url)
    a.check_lost_once("shutting down")


def test_a_router_that_is_closed_closes_its_connections(dialing):
    a, b = DialingRouter(), dialing()
    link = a.link(b.embedded.url)
    theirs = b.engine.links.by_identity("a")
    link.send_last(pack(Kind.GOODBYE))
    a.embedded.close()
    eventually(lambda: theirs.state.value == "ended")
    assert a.told == ["connected"]


def test_a_child_leaves_the_connections_of_its_parent_alone(a, rpcmq_router):
    link = a.link(rpcmq_router.url)
    told, tells = os.pipe()
    if os.fork() == 0:
        try:
            # What the parent's loop was to read is not read here.
            link.send_last(PING)
            a.shell.wake()
            gevent.sleep(0.2)
            os.write(tells, " ".join(a.told).encode())
        finally:
            os._exit(0)
    os.close(tells)
    with FileObject(told) as said:
        assert said.read() == "connected"
    check_messages_go_both_ways(a, link)
