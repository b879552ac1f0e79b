"""Hostile peers at a router with CURVE: strangers, thieves of bytes and keys that go beyond their rights.

All is refused before anything is decoded; honest peers come in meanwhile, nothing crashes and no descriptor is left.
What needs no keys is in test_hostile.py. The long test prints a line ``result {...}`` as the scenarios do.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

import gevent
import pytest
import zmq
from gevent import socket
from gevent.server import StreamServer

from rpcmq import Client, Service
from rpcmq.core.router.rights import Key
from rpcmq.errors import AccessDenied, RouterUnreachable, RpcError
from rpcmq.testing import eventually
from rpcmq.testing import router as run_router
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.curve import Curve, new_pair
from rpcmq.transport.key_files import curve_for, read_key_file
from rpcmq.wire import Address, Flag, Kind, control, json_bytes, pack
from tests.client.endpoints import Compute
from tests.client.endpoints import message as message_of
from tests.faults.running_code import send_pickles
from tests.keys import Folder, right
from tests.payload.hostile import RUNS_CODE
from tests.server.daemons import Daemon
from tests.server.daemons import router as router_daemon

pytestmark = [pytest.mark.integration, pytest.mark.fault]

#: Time that an honest process may need to be welcomed, whoever else is there (seconds); asserted by the long test.
WELCOMED = 1.0
#: The first bytes of a ZMTP 3.1 greeting that promises CURVE.
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\0" + bytes(31)
COMPUTE = Address("compute").encode()


class Site:
    """A router of its own process with keys, an honest service, and somebody who looks at the views."""

    def __init__(self, folder: Folder, daemon: Daemon, stack: ExitStack) -> None:
        self.folder = folder
        self.daemon = daemon
        self.url = daemon.url
        self.stack = stack
        self.handshakes: list[float] = []
        self.compute = Compute()
        self.ops = self.client("ops", right("admin", "#"))
        self.ops.connect(10)
        self.service = Service("compute", self.compute, client=self.client("node", right("serve", "compute.#")))
        self.service.start()
        stack.callback(self.service.stop, 1.0)
        self.web = self.folder.add("web", right("call,cast", "compute.#"))
        self.mallory = self.folder.add("mallory", right("call", "compute"))
        # Keys that were added are known when these are.
        with self.open(self.folder.add("last", right("call", "compute"))) as last:
            eventually(lambda: connects(last))

    def client(self, name: str, *rights: Any) -> Client:
        made = Client(self.url, key_file=self.folder.add(name, *rights), reconnect_max_seconds=0.2)
        eventually(lambda: connects(made))
        return self.stack.enter_context(made)

    def open(self, key_file: str | None, **settings: Any) -> Client:
        settings = {"router": self.url, "key_file": key_file, "reconnect_max_seconds": 0.2} | settings
        return Client(**settings)

    def honest(self) -> None:
        """An honest process is welcomed and has an answer; how long the first took is kept."""
        began = monotonic()
        with self.open(self.web) as client:
            client.connect(20)
            self.handshakes.append(monotonic() - began)
            assert add(client, 7) == 7

    def counted(self) -> dict[str, int]:
        summary = self.ops.query("summary")
        return {**summary["refused"], **summary["counters"]}

    def links(self) -> set[str]:
        return {row["key"] for row in self.ops.query("processes", timeout=10)["processes"]}

    @property
    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))

    def tcp(self, said: bytes = b"") -> Any:
        host, _, port = self.url.removeprefix("tcp://").rpartition(":")
        opened = socket.create_connection((host, int(port)), timeout=10)
        if said:
            opened.sendall(said)
        return opened

    def peer(self, curve: Curve | None) -> BatchSocket:
        """A ZeroMQ peer that sends what it likes."""
        made = BatchSocket(self.context, zmq.DEALER, max_bytes=1 << 20, curve=curve)
        made.socket.connect(self.url)
        return made

    @property
    def context(self) -> zmq.Context[Any]:
        if not hasattr(self, "_context"):
            self._context = new_context()
            self.stack.callback(self._context.destroy, linger=0)
        return self._context


def connects(client: Client) -> bool:
    try:
        client.connect(1.0)
    except RouterUnreachable:
        return False
    return True


def add(client: Client, a: int, timeout: float = 20) -> Any:
    return client.call(None, "compute", message_of("add", a=a), timeout=timeout)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = Folder(tmp_path_factory.mktemp("site"))
    flags = ["--keys", str(folder), "--link-handshake-seconds", "3", "--link-resume-seconds", "1"]
    flags += ["--link-heartbeat-seconds", "0.5", "--link-unresponsive-seconds", "2"]
    with router_daemon(*flags) as daemon, ExitStack() as stack:
        made = Site(folder, daemon, stack)
        made.honest()
        eventually(lambda: made.links() == {"ops", "node"})
        before = made.files
        yield made
        assert not [r for r in daemon.records if r["event"] == "internal error" or r["level"] == "error"]
        try:
            made.honest()
            eventually(lambda: made.links() == {"ops", "node"}, 30)
        except RpcError:
            pytest.fail(f"the router is gone: exit code {daemon.process.poll()}, its last words: {daemon.records[-3:]}")
        eventually(lambda: made.files <= before, 30)
        assert "internal error" not in made.counted()
        assert made.ops.process.connection.reconnects == made.service.client.process.connection.reconnects == 0


def refused(client: Client) -> None:
    with client, pytest.raises(RouterUnreachable):
        client.connect(0.5)


# --- who comes without a key, or with the wrong one ------------------------------------------------


def strangers(site: Site, count: int) -> None:
    """No key, a key that nobody authorised, and one that thinks another router is here."""
    public, elsewhere = site.folder.client("elsewhere", router=new_pair()[0])
    site.folder.authorise(Key("elsewhere", public, (right("call", "#"),)))
    nobody = site.folder.client("nobody")[1]
    before = site.counted()
    for _ in range(count):
        for key_file in (None, nobody, elsewhere):
            refused(site.open(key_file))
    after = site.counted()
    site.folder.revoke("elsewhere")
    for what in ("handshake: unknown key", "handshake failed: protocol"):
        assert after.get(what, 0) >= before.get(what, 0) + count
    assert site.links() == {"ops", "node"}


def test_strangers(site: Site):
    strangers(site, 1)
    site.honest()


# --- what was said before --------------------------------------------------------------------------


class Relay:
    """A TCP relay that keeps what processes say, and may change it on its way.

    Args:
        url: of the router.
        change: gets each piece on its way to the router.
    """

    def __init__(self, url: str, change: Callable[[bytes], bytes] = lambda data: data) -> None:
        host, _, port = url.removeprefix("tcp://").rpartition(":")
        self._target = host, int(port)
        self._change = change
        self._open: set[Any] = set()
        self.said: list[bytearray] = []
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = f"tcp://127.0.0.1:{self._server.server_port}"

    def _serve(self, near: Any, address: object) -> None:
        said = bytearray()
        self.said.append(said)
        with socket.create_connection(self._target, timeout=10) as far:
            far.settimeout(None)
            self._open |= {near, far}
            back = gevent.spawn(self._pass, far, near, lambda data: data)

            def heard(data: bytes) -> bytes:
                said.extend(data)
                return self._change(data)

            self._pass(near, far, heard)
            back.kill()
            self._open -= {near, far}

    def _pass(self, source: Any, sink: Any, change: Callable[[bytes], bytes]) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(change(data))
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._server.stop()
        for end in list(self._open):
            end.close()


@contextmanager
def relayed(url: str, change: Callable[[bytes], bytes] = lambda data: data) -> Iterator[Relay]:
    made = Relay(url, change)
    try:
        yield made
    finally:
        made.close()


def spoken_in_the_clear() -> bytes:
    """All that a process without keys says to a router without: its HELLO, a call, a farewell."""
    with (
        run_router() as plain,
        Service("compute", Compute(), router=plain.url),
        relayed(plain.url) as relay,
    ):
        with Client(relay.url, "web") as client:
            assert add(client, 1) == 1
        eventually(lambda: len(relay.said) == 1 and b"compute" in relay.said[0])
        return bytes(relay.said[0])


def spoken_under_a_key(site: Site) -> bytes:
    with relayed(site.url) as relay:
        with site.open(site.web, router=relay.url) as client:
            assert add(client, 1) == 1
        return bytes(relay.said[0])


def replay(site: Site, said: bytes) -> bytes:
    """Return the router's answer to ``said`` before it ends the connection."""
    heard = b""
    with site.tcp() as again:
        try:
            for at in range(0, len(said), 64):
                again.sendall(said[at : at + 64])
                gevent.sleep(0)
            while data := again.recv(4096):
                heard += data
        except (ConnectionError, BrokenPipeError):
            pass
    return heard


def replays(site: Site, count: int) -> None:
    clear, sealed = spoken_in_the_clear(), spoken_under_a_key(site)
    assert b'"identity"' in clear and b'"identity"' not in sealed
    connects = sum(row["connects"] for row in site.ops.query("keys")["keys"])
    for _ in range(count):
        for said in (clear, sealed, GREETING + clear):
            # A greeting, and at most a WELCOME of the CURVE handshake, which needs the secret to go on.
            assert b"router_id" not in replay(site, said)
    assert sum(row["connects"] for row in site.ops.query("keys")["keys"]) == connects


def test_replayed_bytes_of_a_session(site: Site):
    replays(site, 1)
    site.honest()


def test_a_hello_replayed_under_another_key(site: Site):
    with site.open(site.web, identity="web:victim") as victim:
        assert add(victim, 1) == 1
        known = victim.process.uplink.router
        assert known is not None
        thief = site.peer(curve_for(read_key_file(site.mallory, client=True)))
        body = {"identity": "web:victim", "queue_type": "roundrobin", "versions": [1], "received": 0}
        try:
            for own in ({}, {"token": known.token, "handle": known.handle}):
                thief.send(b"", [control(Kind.HELLO, body | own)])
                assert b"may not be identity" in heard(thief)
            # Its own name, and the victim's handle: a handle of its own is given.
            stolen = {"token": known.token, "handle": known.handle, "identity": "mallory"}
            thief.send(b"", [control(Kind.HELLO, body | stolen)])
            welcome = json.loads(heard(thief)[40:])
            assert welcome["handle"] != known.handle and not welcome["resumed"]
            # And what it then sends in the victim's name is not taken.
            origin = known.router_id.to_bytes(4) + known.handle.to_bytes(8)
            before = site.counted().get("origin", 0)
            message = pack(Kind.REQUEST, b"null", key=origin + bytes(8), format=1, address=COMPUTE, method=b"add")
            thief.send(b"", [message])
            eventually(lambda: site.counted().get("origin", 0) == before + 1)
        finally:
            thief.close()
        assert add(victim, 2) == 2 and victim.process.connection.reconnects == 0


def heard(peer: BatchSocket) -> bytes:
    eventually(peer.readable)
    return peer.receive()[1]


# --- what is changed on its way --------------------------------------------------------------------


def tampered(site: Site, connections: int) -> None:
    """Some bit of what an honest process says under its key is another when it comes to the router."""
    rng = Random(3)
    flipped = 0

    def change(data: bytes) -> bytes:
        nonlocal flipped
        if rng.random() < 0.5:
            return data
        flipped += 1
        changed = bytearray(data)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    site.compute.seen.clear()
    answered: list[int] = []
    with relayed(site.url, change) as relay:
        for number in range(connections):
            with site.open(site.web, router=relay.url, connect_timeout=0.3) as client:
                for turn in range(5):
                    value = 10_000 + 10 * number + turn
                    try:
                        client.call(None, "compute", message_of("note", value=value), timeout=0.5)
                    except RpcError:
                        break
                    answered.append(value)
                client.process.connection.close(0)
    assert flipped >= connections
    expected = {10_000 + 10 * number + turn for number in range(connections) for turn in range(5)}
    assert set(answered) <= set(site.compute.seen) <= expected
    assert len(site.compute.seen) == len(set(site.compute.seen))


def test_tampered_bytes(site: Site):
    tampered(site, 3)
    site.honest()


# --- who has a key, and goes beyond its rights -------------------------------------------------------


def beyond_rights(site: Site, count: int) -> None:
    before = site.counted()
    with site.open(site.mallory) as client:
        client.connect(10)
        acts: list[Callable[[], object]] = [
            lambda: client.call(None, "secret", message_of("add", a=1), timeout=10),
            lambda: client.call(None, "compute.node-7", message_of("add", a=1), timeout=10),
            lambda: client.call(None, "compute.#", message_of("add", a=1), timeout=10, direct=True),
            lambda: client.cast(None, "compute", message_of("note"), confirm=True),
            lambda: client.fanout_cast(None, "compute", message_of("note"), confirm=True),
            lambda: client.publish(None, "events", 1, confirm=True),
            lambda: client.subscribe("#", lambda *event: None),
            lambda: client.query("keys"),
            lambda: client.declare("compute"),
        ]
        for _ in range(count):
            for act in acts:
                with pytest.raises(AccessDenied, match="key 'mallory' has no right"):
                    act()
        assert add(client, 3) == 3, "and what it may do, it may"
    after = site.counted()
    for verb in ("call", "cast", "fanout", "publish", "subscribe", "serve", "admin"):
        assert after[f"denied {verb}"] >= before.get(f"denied {verb}", 0) + count
    assert not [t for t in site.ops.query("topics")["topics"] if "secret" in t["topic"] or "#" in t["topic"]]


def test_topics_and_verbs_that_no_right_covers(site: Site):
    beyond_rights(site, 2)


def test_connections_without_a_link_are_bounded_whatever_was_said_on_them(tmp_path: Path):
    """HELLO and then GOODBYE, or the link taken over by the next: neither keeps a connection that nobody counts."""
    folder = Folder(tmp_path)
    curve = curve_for(read_key_file(folder.add("mallory"), client=True))
    context = new_context()
    peers: list[BatchSocket] = []
    body: dict[str, Any] = {"identity": "mallory", "queue_type": "roundrobin", "versions": [1], "received": 0}
    try:
        with run_router(security_keys=str(folder), link_max_handshakes=10, security_max_links_per_key=1) as router:
            shell = router._embedded.shell
            for number in range(60):
                peer = BatchSocket(context, zmq.DEALER, max_bytes=1 << 20, curve=curve)
                peers.append(peer)
                peer.socket.connect(router.url)
                peer.send(b"", [control(Kind.HELLO, body)])
                body["token"] = json.loads(heard(peer)[40:])["token"]
                if number % 2:
                    peer.send(b"", [pack(Kind.GOODBYE)])
                    eventually(lambda: not router.query("processes")["processes"])
            counters = router.query("summary")["counters"]
            assert shell.handshakes <= 10 and counters["cut: too many handshakes"] >= 45
    finally:
        for peer in peers:
            peer.close()
        context.term()


# --- payloads, half-open handshakes, noise ----------------------------------------------------------


def pickles(site: Site, said: Callable[[], str]) -> None:
    with site.open(site.mallory) as client:
        send_pickles(client, "compute", "echo")
    assert "owned" not in said()


def test_pickles_that_try_to_run_code(site: Site, capfd: pytest.CaptureFixture[str]):
    pickles(site, lambda: "".join(capfd.readouterr()))


def half_open(site: Site, count: int) -> None:
    """``count`` connections that begin a CURVE handshake and say no more; honest ones come in meanwhile."""
    with ExitStack() as stack:
        for number in range(count):
            stack.enter_context(site.tcp(GREETING[: number % 65]))
            if number % (count // 4) == 0:
                site.honest()
        site.honest()


def test_half_open_handshakes(site: Site):
    half_open(site, 200)


def noise(site: Site, seconds: float) -> None:
    """Random bytes as raw TCP, after a greeting, and as messages under a key that is authorised."""
    rng = Random(4)
    curve = curve_for(read_key_file(site.mallory, client=True))
    hello = {"identity": "mallory:noise", "queue_type": "roundrobin", "versions": [1]}
    end, next_honest = monotonic() + seconds, 0.0
    while monotonic() < end:
        for start in (b"", GREETING, GREETING + b"\x04\xc8\x05HELLO\x01\x00"):
            try:
                with site.tcp(start + rng.randbytes(rng.randrange(1, 3000))) as raw:
                    raw.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the router has ended it in the middle
        peer = site.peer(curve)
        peer.send(b"", [control(Kind.HELLO, hello)])
        for _ in range(50):
            flags = rng.choice((0, Flag.FANOUT, Flag.CONFIRM, Flag.RESENT))
            address = rng.choice((b"", COMPUTE, rng.randbytes(9)))
            payload = rng.randbytes(rng.randrange(60))
            head = bytearray(pack(rng.choice(list(Kind)), payload, flags=flags, address=address))
            head[rng.randrange(len(head))] ^= rng.randrange(256)
            try:
                peer.send(b"", [bytes(head), json_bytes({}), rng.randbytes(40)][: rng.randrange(1, 4)])
            except zmq.Again:
                break
        gevent.sleep(0.005)
        peer.close()
        if monotonic() >= next_honest:
            site.honest()
            next_honest = monotonic() + seconds / 20


def test_random_bytes(site: Site):
    before = sum(site.counted().values())
    # Once, unless the machine is so busy that it comes to little.
    for _ in range(10):
        noise(site, 2.0)
        if sum(site.counted().values()) > before + 100:
            break
    assert sum(site.counted().values()) > before + 100


# --- with the figures of the table --------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(900)
def test_with_the_figures_of_the_table(site: Site, capfd: pytest.CaptureFixture[str]):
    began, before, files = monotonic(), site.counted(), site.files
    site.handshakes.clear()
    strangers(site, 20)
    replays(site, 50)
    tampered(site, 100)
    beyond_rights(site, 100)
    pickles(site, lambda: "".join(capfd.readouterr()))
    site.honest()
    half_open(site, 1000)
    noise(site, 60.0)
    eventually(lambda: site.files <= files, 60)
    after = site.counted()
    row = {
        "scenario": "hostile peers, CURVE",
        "seconds": round(monotonic() - began, 1),
        "violations": 0,
        "honest_handshakes": len(site.handshakes),
        "worst_honest_handshake_seconds": round(max(site.handshakes), 3),
        "half_open": 1000,
        "payloads_that_run_code": len(RUNS_CODE),
        "files_left": max(0, site.files - files),
        "refused": {what: count - before.get(what, 0) for what, count in after.items() if count != before.get(what, 0)},
    }
    with capfd.disabled():
        print("\nresult", json.dumps(row))
    assert max(site.handshakes) < WELCOMED
