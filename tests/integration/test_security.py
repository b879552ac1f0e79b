"""CURVE on real sockets: who gets in, who is cut off, and what strangers can do to those who are in."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import gevent
import pytest
from gevent import socket as gsocket

from rpcmq import Client, Service
from rpcmq.core.router.rights import Key
from rpcmq.errors import AccessDenied, ConfigError, LinkLost, Overloaded, RouterUnreachable
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing import router as run_router
from rpcmq.transport.connection import Connection
from rpcmq.transport.key_files import read_key_file
from tests.client.endpoints import Compute, message
from tests.keys import Folder, right

pytestmark = pytest.mark.integration


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def secure(folder: Folder) -> Iterator[InProcessRouter]:
    with run_router(security_keys=str(folder)) as router:
        yield router
        router.check()


@pytest.fixture
def connect(secure: InProcessRouter) -> Iterator[Callable[..., Client]]:
    with ExitStack() as stack:

        def connect(**own: Any) -> Client:
            # A process that is refused tries again, at the latest after so long.
            settings: dict[str, Any] = {
                "router": secure.url,
                "connect_timeout": 5.0,
                "reconnect_max_seconds": 0.1,
            } | own
            return stack.enter_context(Client(**settings))

        yield connect


@pytest.fixture
def serve(connect: Callable[..., Client]) -> Iterator[Callable[..., Service]]:
    with ExitStack() as stack:

        def serve(key_file: str, topic: str = "compute", **settings: Any) -> Service:
            service = Service(topic, Compute(), host="node-7", client=connect(key_file=key_file), **settings)
            service.start()
            stack.callback(service.stop, 1.0)
            return service

        yield serve


def add(client: Client, a: int, **options: Any) -> Any:
    return client.call(None, "compute", message("add", a=a), timeout=10, **options)


def refused(client: Client, expected: str) -> None:
    """The router does not take it, and says why as soon as it has read the keys that were just written."""

    def says_why() -> object:
        try:
            client.connect(1.0)
        except RouterUnreachable as error:
            assert re.search(expected, str(error)), str(error)
            return True
        return False

    eventually(says_why)


def counters(router: InProcessRouter) -> dict[str, int]:
    summary = router.query("summary")
    return {**summary["refused"], **summary["counters"]}


def links(router: InProcessRouter) -> set[str]:
    return {row["key"] for row in router.query("processes")["processes"]}


# --- who gets in ----------------------------------------------------------------------------------


def test_those_with_keys_talk_and_everything_is_encrypted_by_default(folder, secure, connect, serve):
    serve(folder.add("node"))
    client = connect(key_file=folder.add("web"))
    assert add(client, 7) == 7
    assert client.identity.startswith("web:")
    assert links(secure) == {"node", "web"}


def test_no_key(secure, connect):
    refused(connect(), r"handshake with tcp://.* failed: .*key_file")
    eventually(lambda: counters(secure).get("handshake failed: protocol"))
    assert secure.query("processes")["processes"] == []


def test_a_key_that_is_not_authorised(folder, secure, connect):
    refused(connect(key_file=folder.client("mallory")[1]), r"handshake .* failed: the router does not accept the key")
    assert counters(secure)["handshake: unknown key"] >= 1
    assert secure.query("processes")["processes"] == []


def test_another_router_s_key(folder, secure, connect):
    public, path = folder.client("web", router=Folder(folder.path.parent / "clients").router)
    folder.authorise(Key("web", public))
    refused(connect(key_file=path), r"handshake .* failed: .*`router` in our key_file may not be its key")


def test_a_client_with_keys_does_not_talk_to_a_router_without(folder):
    with run_router() as plain, Client(plain.url, key_file=folder.add("web")) as client:
        refused(client, r"handshake .* failed: .*it runs without CURVE")


def test_a_key_file_that_others_can_read_is_refused_by_the_client(folder, secure):
    path = folder.add("web")
    os.chmod(path, 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Client(secure.url, key_file=path)


def test_a_key_that_has_expired_is_refused_and_one_that_expires_is_cut_off(folder, secure, connect):
    soon = datetime.now(UTC) + timedelta(seconds=6)
    folder.add("old", until=datetime.now(UTC) - timedelta(days=1))
    late = folder.add("soon", until=soon)
    client = connect(key_file=late)
    client.connect(5.0)
    eventually(lambda: not links(secure))
    refused(client, "does not accept the key")
    old = connect(key_file=str(folder.path.parent / "clients" / "old.key"))
    refused(old, "does not accept the key")
    assert counters(secure)["handshake: expired key"] >= 1


# --- whose identity -------------------------------------------------------------------------------


def test_nobody_can_claim_the_identity_of_another_key(folder, secure, connect, serve):
    serve(folder.add("node"))
    thief = connect(key_file=folder.add("web"), identity="node:compute")
    refused(thief, "key 'web' may not be identity 'node:compute'")
    assert secure.query("keys")["keys"] and links(secure) == {"node"}


def test_an_identity_that_two_keys_may_have_belongs_to_who_has_it(folder, secure, connect):
    first = connect(key_file=folder.add("a", identities=("shared",)), identity="shared")
    first.connect()
    refused(connect(key_file=folder.add("b", identities=("shared",)), identity="shared"), "in use by a live process")
    assert links(secure) == {"a"}


# --- rights ---------------------------------------------------------------------------------------


def test_a_call_without_the_right_says_verb_topic_and_key(folder, secure, connect, serve):
    serve(folder.add("node"))
    client = connect(key_file=folder.add("web", right("call", "image.#")))
    with pytest.raises(AccessDenied, match="key 'web' has no right to call 'compute'") as caught:
        add(client, 1)
    assert {k: caught.value.details[k] for k in ("verb", "topic", "key")} == {
        "verb": "call",
        "topic": "compute",
        "key": "web",
    }
    for act in (
        lambda: client.cast(None, "compute", message("add", a=1), confirm=True),
        lambda: client.fanout_cast(None, "compute", message("add", a=1), confirm=True),
        lambda: client.publish(None, "events.a", 1, confirm=True),
        lambda: client.subscribe("#", lambda *event: None),
        lambda: client.query("summary"),
        lambda: client.declare("compute"),
    ):
        with pytest.raises(AccessDenied):
            act()


def test_who_may_not_serve_is_told_at_start(folder, secure, connect):
    service = Service("compute", Compute(), client=connect(key_file=folder.add("web", right("call", "#"))))
    with pytest.raises(AccessDenied, match="serve 'compute'"):
        service.start()


def test_too_many_messages_are_overload_that_says_when_to_come_again(folder, secure, connect, serve):
    serve(folder.add("node"))
    client = connect(key_file=folder.add("web", messages_per_second=5.0))
    with pytest.raises(Overloaded, match="more than 5 messages a second") as caught:
        [add(client, number) for number in range(50)]
    assert 0 < caught.value.details["retry_after"] <= 0.2


def test_casts_beyond_the_rate_all_arrive_in_order(folder, secure, connect):
    taken: list[int] = []

    class Sink:
        def put(self, ctx: Any, a: int) -> None:
            taken.append(a)

    with Service("sink", Sink(), client=connect(key_file=folder.add("node"))):
        client = connect(key_file=folder.add("web", messages_per_second=30.0))
        for number in range(60):
            client.cast(None, "sink", message("put", a=number))
        eventually(lambda: len(taken) == 60, 20)
    assert taken == [*range(60)]
    assert counters(secure)["too fast"] > 0


def test_connections_of_a_key_are_bounded(folder, secure, connect):
    path = folder.add("web", max_links=2)
    for _ in range(2):
        connect(key_file=path).connect()
    refused(connect(key_file=path), "key 'web': link limit reached")


# --- keys that go ---------------------------------------------------------------------------------


def test_a_revoked_key_is_cut_off_while_connected_and_comes_back_when_authorised(folder, secure, connect, serve):
    service = serve(folder.add("node"))
    client = connect(key_file=folder.add("web"))
    going = gevent.spawn(client.call, None, "compute", message("hold"), timeout=30)
    assert service.endpoint.started.wait(20)
    folder.revoke("node")
    with pytest.raises(LinkLost, match="revoked"):
        going.get(timeout=20)
    assert links(secure) == {"web"}
    refused(service.client, "does not accept the key")
    service.endpoint.go_on.set()
    keys = read_key_file(service.client.config.key_file, client=True)
    folder.authorise(Key("node", keys.public, (right("serve,call", "compute.#"),)))
    eventually(lambda: links(secure) == {"web", "node"})
    assert add(client, 3) == 3


def test_the_process_of_a_revoked_key_is_told_so_at_once(folder, secure, connect, serve, caplog):
    """Not after the timeout, and not that the router was away."""
    service = serve(folder.add("node"))
    path = folder.add("web")
    client = connect(key_file=path)
    going = gevent.spawn(client.call, None, "compute", message("hold"), timeout=300)
    assert service.endpoint.started.wait(20)
    folder.revoke("web")
    with pytest.raises(AccessDenied, match="does not accept the key of our key_file: it was revoked") as raised:
        going.get(timeout=20)
    assert raised.value.details["started"] == "unknown"
    for verb in (client.call, client.cast, client.fanout_cast):
        with pytest.raises(AccessDenied, match="revoked"):
            verb(None, "compute", message("add", a=1), timeout=300)
    with pytest.raises(RouterUnreachable, match="revoked"):
        client.connect(0.1)
    assert len([r for r in caplog.records if r.levelname == "ERROR" and "revoked" in r.getMessage()]) == 1
    service.endpoint.go_on.set()
    folder.authorise(Key("web", read_key_file(path, client=True).public, (right("call", "compute.#"),)))
    eventually(lambda: "web" in links(secure), 20)
    # The router has it before its process has read the welcome.
    client.connect(20)
    assert add(client, 3) == 3, "it may come back"


def test_a_call_that_found_the_connection_open_just_before_its_key_was_rejected_is_told(
    folder, secure, connect, serve, monkeypatch
):
    """Not after its timeout."""
    serve(folder.add("node"))
    client = connect(key_file=folder.add("web"))
    assert add(client, 1) == 1
    folder.revoke("web")

    def is_denied() -> bool:
        try:
            add(client, 1)
        except AccessDenied:
            return True
        return False

    eventually(is_denied)
    monkeypatch.setattr(Connection, "check_open", lambda self: None)
    with pytest.raises(AccessDenied, match="does not accept the key of our key_file: it was revoked"):
        client.call(None, "compute", message("add", a=1), timeout=300)


def test_narrower_rights_hold_for_those_who_are_connected(folder, secure, connect, serve):
    serve(folder.add("node"))
    path = folder.add("web")
    client = connect(key_file=path)
    assert add(client, 1) == 1
    folder.authorise(Key("web", read_key_file(path, client=True).public, (right("call", "image"),)))

    def no_more() -> bool:
        try:
            add(client, 1)
        except AccessDenied:
            return True
        return False

    eventually(no_more)


# --- direct links ---------------------------------------------------------------------------------


def calls_seen_by(router: InProcessRouter) -> int:
    return sum(row["calls"] for row in router.query("methods")["methods"])


def test_direct_links_are_encrypted_too_and_pass_no_router(folder, secure, connect, serve):
    serve(folder.add("node"), direct=True)
    client = connect(key_file=folder.add("web"))
    assert [add(client, number, direct=True) for number in range(20)] == [*range(20)]
    assert calls_seen_by(secure) == 0 and not client.process.direct.fallbacks


def peer_port(service: Service) -> int:
    return int(service.client.process.direct.listen().rpartition(":")[2])


def test_a_peer_listener_takes_nobody_whom_the_router_has_not_announced(folder, secure, connect, serve):
    """An authorised key is not enough, nor is none at all: only an introduction is."""
    service = serve(folder.add("node"), direct=True)
    url = f"tcp://127.0.0.1:{peer_port(service)}"
    node = read_key_file(service.client.config.key_file, client=True).public
    public, path = folder.client("sneaky", router=node)
    folder.authorise(Key("sneaky", public, (right("call", "#"),)))
    with Client(url, key_file=path, connect_timeout=5.0) as sneaky:
        refused(sneaky, "does not accept the key")
    with Client(url, connect_timeout=5.0) as plain:
        refused(plain, "handshake")


def test_a_direct_link_ends_with_the_key_of_its_peer(folder, secure, connect, serve):
    service = serve(folder.add("node"), direct=True)
    client = connect(key_file=folder.add("web"))
    assert add(client, 1, direct=True) == 1
    assert len(service.client.process.direct._peers.links) == 1
    folder.revoke("web")
    eventually(lambda: not service.client.process.direct._peers.links)


def test_rights_hold_for_direct_links(folder, secure, connect, serve):
    serve(folder.add("node"), direct=True)
    client = connect(key_file=folder.add("web", right("call", "image")))
    with pytest.raises(AccessDenied, match="call 'compute'"):
        add(client, 1, direct=True)


# --- strangers ------------------------------------------------------------------------------------


def port_of(router: InProcessRouter) -> int:
    return int(router.url.rpartition(":")[2])


def half_open(port: int, said: bytes = b"") -> gsocket.socket:
    opened = gsocket.create_connection(("127.0.0.1", port), timeout=5)
    if said:
        opened.sendall(said)
    return opened


#: The first bytes of a ZMTP 3.1 greeting that promises CURVE, and then says no more.
GREETING = b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + b"\0" + bytes(31)


def test_honest_peers_come_in_while_handshakes_hang(folder, secure, connect, serve):
    serve(folder.add("node"))
    port = port_of(secure)
    hanging = [half_open(port, GREETING[: number % 65]) for number in range(200)]
    try:
        eventually(lambda: secure._embedded.shell.handshakes >= 200)
        client = connect(key_file=folder.add("web"))
        eventually(lambda: try_connect(client))
        assert add(client, 5) == 5
    finally:
        for each in hanging:
            each.close()
    eventually(lambda: secure._embedded.shell.handshakes == 0)


def try_connect(client: Client) -> bool:
    try:
        client.connect(1.0)
    except RouterUnreachable:
        return False
    return True


def test_the_oldest_of_too_many_handshakes_are_cut(folder):
    with run_router(security_keys=str(folder), link_max_handshakes=20) as router:
        hanging = [half_open(port_of(router), GREETING) for _ in range(60)]
        try:
            eventually(lambda: counters(router).get("cut: too many handshakes", 0) >= 40)
            assert router._embedded.shell.handshakes <= 20
            with Client(router.url, key_file=folder.add("web"), reconnect_max_seconds=0.1) as client:
                eventually(lambda: try_connect(client))
        finally:
            for each in hanging:
                each.close()


@pytest.mark.parametrize("is_secure", [True, False])
def test_who_never_says_hello_is_cut_off(folder, is_secure):
    settings: dict[str, Any] = {"security_keys": str(folder)} if is_secure else {}
    with run_router(link_handshake_seconds=0.5, **settings) as router:
        silent = half_open(port_of(router), GREETING if is_secure else b"")
        with gevent.Timeout(30):
            while silent.recv(1000):
                pass  # the router's greeting, and then the end
        silent.close()
        eventually(lambda: router._embedded.shell.handshakes == 0)


def test_an_authenticated_connection_that_never_says_hello_is_cut_off(folder):
    import zmq

    from rpcmq.transport.batches import BatchSocket, new_context
    from rpcmq.transport.key_files import curve_for

    keys = read_key_file(folder.add("web"), client=True)
    with run_router(security_keys=str(folder), link_handshake_seconds=0.5) as router:
        context = new_context()
        silent = BatchSocket(context, zmq.DEALER, max_bytes=1 << 20, curve=curve_for(keys))
        monitor = silent.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        silent.socket.connect(router.url)
        try:
            eventually(lambda: monitor.poll(0) and counters(router).get("cut: no HELLO in time") == 1)
        finally:
            silent.socket.disable_monitor()
            monitor.close()
            silent.close()
            context.term()


def test_random_bytes_at_the_port_change_nothing(folder, secure, connect, serve):
    serve(folder.add("node"))
    client = connect(key_file=folder.add("web"))
    assert add(client, 1) == 1
    random = Random(5)
    port = port_of(secure)
    for round_ in range(60):
        data = random.randbytes(random.randrange(1, 3000))
        if round_ % 3 == 0:
            data = GREETING + data
        try:
            with half_open(port, data) as stranger:
                stranger.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # cut off in the middle of it
    assert add(client, 2) == 2
    assert client.process.connection.reconnects == 0
    eventually(lambda: secure._embedded.shell.handshakes == 0)
    assert links(secure) == {"node", "web"}


def test_a_message_beyond_the_largest_cuts_only_its_sender(folder):
    with (
        run_router(security_keys=str(folder), message_max_bytes=1024) as router,
        Client(router.url, key_file=folder.add("node")) as good,
        Client(router.url, key_file=folder.add("bad"), reconnect_max_seconds=0.1) as bad,
    ):
        good.connect()
        bad.connect()
        bad.process.uplink.max_message_bytes = 1 << 30  # it does not care what the router says
        bad.cast(None, "compute", message("add", a=bytes(18 << 20)))
        eventually(lambda: bad.process.connection.reconnects > 0)
        assert good.process.connection.reconnects == 0
        bad.process.uplink.abandon()
        bad.close(0)
