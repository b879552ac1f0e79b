"""Direct calls: no router in between, and through the router where there can be no direct link."""

from __future__ import annotations

from time import monotonic
from typing import Any

import gevent
import gevent.socket
import pytest
import zmq

import rpcmq
from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.direct_links import EARLY_SECONDS, MAX_EARLY, DirectLink, DirectLinkTable
from rpcmq.core.process.task import Registration, Task
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import CallTimeout, LinkLost, Outcome, RouterUnreachable, UsageError
from rpcmq.testing import eventually
from rpcmq.transport.batches import BatchSocket, new_context
from rpcmq.transport.unidentified import UnidentifiedConnections
from rpcmq.wire import Address, Kind, body_of, control, pack
from rpcmq.wire.bodies import HelloBody
from tests.client.endpoints import Compute
from tests.client.endpoints import message as message_of


def calls_seen_by(router) -> int:
    return sum(row["calls"] for row in router.query("methods")["methods"])


def test_a_direct_call_does_not_pass_the_router(router, client, serve):
    serve(Compute(), direct=True)
    assert [client.call(None, "compute.node-7", message_of("add", a=i), direct=True) for i in range(50)] == [*range(50)]
    assert calls_seen_by(router) == 0
    assert not client.process.direct.fallbacks


def test_a_direct_call_that_may_be_tried_again_does_not_pass_the_router_either(router, client, serve):
    serve(Compute(), direct=True)
    assert client.call(None, "compute.node-7", message_of("add", a=1), direct=True, retry=3) == 1
    assert calls_seen_by(router) == 0


def test_a_direct_link_that_stands_does_not_need_the_router():
    compute = Compute()
    with rpcmq.testing.router() as router:
        service = rpcmq.Service("compute", compute, router=router.url, direct=True)
        service.start()
        client = rpcmq.Client(router.url, connect_timeout=0.3)
        client.connect(20)
        assert client.call(None, "compute", message_of("add", a=1), direct=True) == 1
    try:
        eventually(lambda: not client.process.connection.connected)
        assert [client.call(None, "compute", message_of("add", a=i), direct=True) for i in range(20)] == [*range(20)]
        with pytest.raises(RouterUnreachable):
            client.call(None, "other", message_of("add", a=1), direct=True)
    finally:
        client.close(0.0)
        service.stop(0.0)


def test_who_listens_beyond_this_host_without_keys_says_so(serve, monkeypatch, caplog):
    serve(Compute(), direct=True)
    assert "without CURVE" not in caplog.text
    monkeypatch.setattr("rpcmq.client.peer.local_host_towards", lambda url: "0.0.0.0")
    serve(Compute(), direct=True, host="node-8")
    assert "listening on tcp://0.0.0.0:" in caplog.text and "without CURVE: reachable from other hosts" in caplog.text


def test_many_who_call_at_once_share_one_link(client, serve):
    serve(Compute(), direct=True, concurrency=4)
    greenlets = [
        gevent.spawn(client.call, None, "compute", message_of("add", a=i), timeout=10, direct=True) for i in range(40)
    ]
    gevent.joinall(greenlets, timeout=20)
    assert [g.get() for g in greenlets] == [*range(40)]
    assert len(client.process.direct._peers.links) == 1


def test_an_exception_and_a_payload_of_its_own_frame_come_back_directly(client, serve):
    serve(Compute(), direct=True)
    with pytest.raises(ValueError, match="x"):
        client.call(None, "compute", message_of("fail"), direct=True)
    assert client.call(None, "compute", message_of("large"), direct=True) == bytes(100_000)
    assert not client.process.direct.fallbacks


def test_without_a_listening_consumer_the_router_is_used_and_says_why(router, client, serve, caplog, monkeypatch):
    service = serve(Compute())
    assert client.call(None, "compute", message_of("add", a=1), direct=True) == 1
    assert client.process.direct.fallbacks == {"'compute' has no peer socket": 1}
    assert calls_seen_by(router) == 1
    assert "no direct link to 'compute': 'compute' has no peer socket; calls go through the router" in caplog.text
    service.stop()
    serve(Compute(), direct=True)
    assert client.call(None, "compute", message_of("add", a=1), direct=True) == 1
    assert client.process.direct.fallbacks.total() == 2, "the next try is after a while"
    monkeypatch.setattr("rpcmq.client.peer.monotonic", lambda: monotonic() + 30.0)
    assert client.call(None, "compute", message_of("add", a=1), direct=True) == 1
    assert client.process.direct.fallbacks.total() == 2


def test_a_timeout_of_a_direct_call_says_who_had_it(client, serve):
    compute = Compute()
    service = serve(compute, direct=True)
    with pytest.raises(CallTimeout, match=r"\(direct\)") as caught:
        client.call(None, "compute", message_of("until_cancelled"), timeout=1.0, direct=True)
    assert caught.value.details["server"] == service.client.identity
    eventually(lambda: compute.ended == ["cancelled"])


def test_a_peer_that_goes_away_ends_its_calls_and_the_next_goes_on(client, serve):
    compute = Compute()
    first = serve(compute, direct=True)
    going = gevent.spawn(client.call, None, "compute", message_of("hold"), timeout=20, direct=True)
    assert compute.started.wait(20)
    first.client.process.direct.close()
    with pytest.raises(LinkLost, match="it may have run"):
        going.get(timeout=20)
    assert client.call(None, "compute", message_of("add", a=2), timeout=10, direct=True) == 2
    compute.go_on.set()


def test_progress_comes_on_a_direct_link(router, client, serve):
    class Reports:
        def copy(self, ctx: Any) -> str:
            request = rpcmq.current_request()
            assert request is not None
            request.progress(50)
            return "copied"

    serve(Reports(), direct=True)
    seen: list[int] = []
    assert client.call(None, "compute", message_of("copy"), direct=True, on_progress=seen.append) == "copied"
    assert seen == [50] and calls_seen_by(router) == 0


def test_signs_of_life_need_the_router(client, serve):
    serve(Compute(), direct=True)
    with pytest.raises(UsageError, match="sign_of_life"):
        client.call(None, "compute", message_of("add", a=1), direct=True, sign_of_life=1.0)


# --- the engine alone ----------------------------------------------------------------------------


def lone_peers() -> DirectLinkTable:
    uplink = Uplink(
        HelloBody(versions=(1,), identity="node", queue_type="roundrobin"),
        lambda now, welcome: None,
        lambda reason, text: None,
    )
    caller = Calls(uplink, Casts(uplink, lambda message, error: None))
    return DirectLinkTable("node", TaskTable(uplink, caller))


@pytest.mark.parametrize(
    ("identity", "ticket", "now"), [("api", "wrong", 0.0), ("mallory", "good", 0.0), ("api", "good", 31.0)]
)
def test_a_ticket_that_is_wrong_stolen_or_old_is_refused(identity, ticket, now):
    peers = lone_peers()
    peers.announce(0.0, "good", "api")
    peers.receive(now, b"r", control(Kind.HELLO, {"identity": identity, "ticket": ticket, "versions": [1]}))
    peers.refuse_unannounced(now + EARLY_SECONDS)
    assert peers.links == {}
    assert peers.refused == {"ticket": 1}
    (link,) = peers.dirty
    assert link.outbox[0][5] == Kind.REFUSED


def hello_of(ticket: str, identity: str = "api") -> bytes:
    return control(Kind.HELLO, {"identity": identity, "ticket": ticket, "versions": [1]})


def test_a_hello_that_overtakes_its_introduction_waits_for_it():
    peers = lone_peers()
    admitted: list[bytes] = []
    peers.on_admitted = admitted.append
    peers.receive(0.0, b"r", hello_of("good"))
    assert not peers.links and not peers.dirty and not admitted
    peers.refuse_unannounced(0.1)
    peers.announce(0.2, "good", "api")
    assert list(peers.links) == admitted == [b"r"] and not peers.refused
    assert body_of(peers.links[b"r"].outbox[0])["identity"] == "node"
    peers.refuse_unannounced(9.0)
    assert not peers.refused


def test_a_hello_that_overtook_the_introduction_of_another_is_refused():
    peers = lone_peers()
    peers.receive(0.0, b"r", hello_of("good", "mallory"))
    peers.announce(0.2, "good", "api")
    assert not peers.links and peers.refused == {"ticket": 1}


def test_a_connection_that_is_lost_before_its_introduction_leaves_nothing():
    peers = lone_peers()
    peers.receive(0.0, b"r", hello_of("good"))
    peers.lost(b"r", "connection lost")
    peers.announce(0.2, "good", "api")
    assert not peers.links and not peers.dirty


def test_hellos_that_wait_for_an_introduction_are_bounded():
    peers = lone_peers()
    for number in range(MAX_EARLY + 50):
        peers.receive(0.0, b"%d" % number, hello_of(f"t{number}"))
    # Another of a connection that waits, one that names the ticket of another, and a large one.
    peers.receive(0.0, b"0", hello_of("more"))
    peers.receive(0.0, b"x", hello_of("t1"))
    assert peers.refused == {"ticket": 52}
    peers.refuse_unannounced(EARLY_SECONDS)
    assert peers.refused == {"ticket": MAX_EARLY + 52}
    peers.receive(1.0, b"y", hello_of("t" * 3000))
    assert peers.refused == {"ticket": MAX_EARLY + 53}


@pytest.mark.own_hub
def test_an_introduction_that_comes_after_the_peer_costs_no_direct_link(router, client, serve, monkeypatch):
    monkeypatch.setattr("rpcmq.transport.peer_socket._HELLO_SECONDS", 2.0)
    looks = [0.0]
    close_expired = UnidentifiedConnections.close_expired

    def looked(self: UnidentifiedConnections, now: float) -> None:
        close_expired(self, now)
        looks.append(now)

    monkeypatch.setattr(UnidentifiedConnections, "close_expired", looked)
    service = serve(Compute(), direct=True)
    peers = service.client.process.direct._peers
    announce = peers.announce
    monkeypatch.setattr(peers, "announce", lambda now, *rest: gevent.spawn_later(0.2, late, *rest))

    def late(*rest: str) -> None:
        announce(monotonic(), *rest)
        service.client.process.direct.schedule()

    assert client.call(None, "compute", message_of("add", a=1), direct=True) == 1
    # Until it is looked for connections that have shown no ticket for so long.
    since = monotonic()
    eventually(lambda: looks[-1] > since + 2.0, 60)
    # The connection is not taken for one that showed no ticket.
    assert client.call(None, "compute", message_of("add", a=2), direct=True) == 2
    assert calls_seen_by(router) == 0 and not client.process.direct.fallbacks


def test_a_ticket_is_good_once():
    peers = lone_peers()
    peers.announce(0.0, "good", "api")
    hello = control(Kind.HELLO, {"identity": "api", "ticket": "good", "versions": [1]})
    peers.receive(1.0, b"one", hello)
    peers.receive(1.0, b"two", hello)
    peers.refuse_unannounced(1.0 + EARLY_SECONDS)
    assert list(peers.links) == [b"one"] and peers.refused == {"ticket": 1}
    assert body_of(peers.links[b"one"].outbox[0])["identity"] == "node"


@pytest.mark.parametrize("batch", [b"", b"\0" * 39, b"\xff" * 60, control(Kind.REGISTER, {})])
def test_whatever_a_stranger_sends_is_counted_and_nothing_else(batch):
    peers = lone_peers()
    peers.receive(0.0, b"r", batch)
    assert sum(peers.refused.values()) == 1
    assert peers.links == {} and peers.dirty == []


def test_calls_end_when_the_link_does_and_say_whether_they_left():
    peers = lone_peers()
    link = peers.connect(b"r", "node-7", "ticket")
    peers.receive(0.0, b"r", control(Kind.WELCOME, {"identity": "node-7", "handle": 5}))
    left, kept = Call("compute", 0, 5.0), Call("compute", 0, 5.0)
    for call in (left, kept):
        peers.start(link, call, b"", 1, b"\0\1\0c", b"m")
    peers.lost(b"r", "connection lost", unsent=[kept.message])
    assert [c.error.details["started"] for c in (left, kept) if c.error] == ["unknown", "no"]
    assert peers.changed == [left, kept] and link.calls == {}


# --- hostile peers -------------------------------------------------------------------------------


def introduced(peers: DirectLinkTable, topic: str = "compute") -> DirectLink:
    peers.announce(0.0, "good", "api", topic=topic)
    peers.receive(0.0, b"r", control(Kind.HELLO, {"identity": "api", "ticket": "good", "versions": [1]}))
    link = peers.links[b"r"]
    link.outbox.clear()
    return link


def served(peers: DirectLinkTable, *topics: str) -> None:
    for tag, topic in enumerate(topics):
        registration = Registration(tag, Address(topic), 10, "", lambda task: None)
        peers._tasks.registrations[tag] = registration


def ask(peers: DirectLinkTable, link: DirectLink, topic: str, **fields: Any) -> Any:
    """Make direct calls; return their answers, and the calls that were accepted."""
    address = Address(topic).encode()
    peers.receive(0.0, link.route, pack(Kind.REQUEST, key=link.next_key(), address=address, format=1, **fields))
    messages, link.outbox = link.outbox, []
    return [body_of(message)["outcome"] for message in messages], [
        task.registration.address.topic for task in drained(peers)
    ]


def drained(peers: DirectLinkTable) -> list[Task]:
    tasks, peers._tasks.delivered[:] = peers._tasks.delivered[:], []
    return tasks


def test_an_introduction_is_for_its_topic_and_no_other_of_the_same_process():
    peers = lone_peers()
    served(peers, "compute", "admin")
    link = introduced(peers)
    assert ask(peers, link, "compute") == ([], ["compute"])
    assert ask(peers, link, "admin") == ([Outcome.DENIED], [])


def test_who_was_called_does_not_call_back_on_the_link():
    peers = lone_peers()
    served(peers, "compute")
    link = peers.connect(b"r", "node-7", "ticket")
    peers.receive(0.0, b"r", control(Kind.WELCOME, {"identity": "node-7", "handle": 5}))
    link.outbox.clear()
    assert ask(peers, link, "compute") == ([Outcome.DENIED], [])


def test_a_caller_does_not_choose_whose_calls_its_are():
    peers = lone_peers()
    served(peers, "compute")
    link = introduced(peers)
    before = link.origin
    peers.receive(0.0, b"r", control(Kind.WELCOME, {"identity": "api", "handle": 77}))
    assert link.origin == before and peers.refused["welcome"] == 1


def test_a_second_hello_changes_nothing():
    peers = lone_peers()
    link = introduced(peers)
    peers.announce(0.0, "other", "api")
    peers.receive(0.0, b"r", control(Kind.HELLO, {"identity": "api", "ticket": "other", "versions": [1]}))
    assert peers.links[b"r"] is link and peers.refused["hello"] == 1


def test_tickets_are_bounded_for_each_caller_and_in_all(monkeypatch):
    monkeypatch.setattr("rpcmq.core.process.tickets.MAX_TICKETS", 40)
    peers = lone_peers()
    for number in range(1000):
        peers.announce(0.0, f"m{number}", "mallory", "M")
    assert len(peers._tickets) == 32
    for number in range(100):
        peers.announce(1.0, f"h{number}", f"honest-{number}", "H")
    assert len(peers._tickets) == 40 and peers.is_announced(1.0, "H")
    peers.revoked("H")
    peers.announce(100.0, "late", "mallory", "M")
    assert len(peers._tickets) == 1 and "late" in peers._tickets and not peers.is_announced(100.0, "H")


@pytest.mark.parametrize("url", ["inproc://zeromq.zap.01", "ipc:///run/secret.sock", "udp://10.0.0.1:1", "nonsense"])
def test_a_service_names_no_other_sockets_than_tcp_ones(client, url):
    client.connect(5)
    client.process.direct.listen()
    with pytest.raises(RouterUnreachable, match="no tcp"):
        client.process.direct._socket.connect(url, "node-7", "ticket")


@pytest.mark.parametrize(
    "place",
    [
        "slow.example:1", "localhost:1", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1:" + "9" * 5000, "*:1",
        ":1", "fe80::1:1:x", "10.0.0.1:1;10.0.0.2:2", "10.0.0.1:1\0x", "\ud800:1", "[10.0.0.1:1", "10.0.0.1:\u0661",
    ],
)  # fmt: skip
def test_nor_a_host_whose_name_would_be_looked_up_while_all_connections_wait(client, place):
    client.connect(5)
    client.process.direct.listen()
    with pytest.raises(RouterUnreachable, match="of an IP address and a port"):
        client.process.direct._socket.connect(f"tcp://{place}", "node-7", "ticket")


@pytest.mark.parametrize("place", ["127.0.0.1:1", "[::1]:1", "[fe80::1%lo]:65535"])
def test_addresses_of_both_kinds_are_connected_to(client, place):
    client.connect(5)
    client.process.direct.listen()
    assert client.process.direct._socket.connect(f"tcp://{place}", "node-7", "ticket").identity == "node-7"


@pytest.mark.own_hub
def test_a_peer_that_names_its_connection_like_one_of_ours_does_not_abort_the_process(client, serve):
    """Libzmq ends the process if a connection is given a name that a peer has chosen."""
    client.connect(5)
    host, _, port = client.process.direct.listen().removeprefix("tcp://").partition(":")
    context = new_context()
    hostile = [BatchSocket(context, zmq.DEALER, max_bytes=1000) for _ in range(3)]
    try:
        for number, each in enumerate(hostile):
            each.socket.routing_id = b"peer-%d" % number
            each.socket.connect(f"tcp://{host}:{port}")
            each.send(b"", [b"nothing"])
        eventually(lambda: sum(client.process.direct._peers.refused.values()) == 3)
        serve(Compute(), direct=True)
        assert client.call(None, "compute", message_of("add", a=1), timeout=10, direct=True) == 1
        assert not client.process.direct.fallbacks
    finally:
        for each in hostile:
            each.close()
        context.term()


def listener(service) -> tuple[str, int]:
    host, _, port = service.client.process.direct.listen().removeprefix("tcp://").rpartition(":")
    return host, int(port)


def test_connections_that_show_no_ticket_are_cut_and_keep_nobody_out(client, serve, monkeypatch):
    monkeypatch.setattr("rpcmq.transport.peer_socket._MAX_UNIDENTIFIED", 5)
    service = serve(Compute(), direct=True)
    peers = service.client.process.direct._peers
    opened = [gevent.socket.create_connection(listener(service)) for _ in range(30)]
    eventually(lambda: peers.refused["cut: too many handshakes"] >= 25)
    assert client.call(None, "compute", message_of("add", a=1), timeout=10, direct=True) == 1
    assert not client.process.direct.fallbacks
    for each in opened[:20]:
        with gevent.Timeout(30):
            while each.recv(100):
                pass
    # The link that was made is none of them, however many come after it.
    opened += [gevent.socket.create_connection(listener(service)) for _ in range(10)]
    eventually(lambda: peers.refused["cut: too many handshakes"] >= 35)
    assert client.call(None, "compute", message_of("add", a=2), timeout=10, direct=True) == 2
    assert len(peers.links) == 1
    for each in opened:
        each.close()


def test_connections_that_show_no_ticket_in_time_are_cut(serve, monkeypatch):
    monkeypatch.setattr("rpcmq.transport.peer_socket._HELLO_SECONDS", 0.3)
    service = serve(Compute(), direct=True)
    with gevent.socket.create_connection(listener(service)) as stranger, gevent.Timeout(30):
        while stranger.recv(100):
            pass
    assert service.client.process.direct._peers.refused["cut: no HELLO in time"] == 1


def test_direct_links_of_others_are_bounded():
    peers = lone_peers()
    peers.max_inbound = 2
    for number in range(4):
        peers.announce(0.0, f"t{number}", f"p{number}")
        hello = control(Kind.HELLO, {"identity": f"p{number}", "ticket": f"t{number}", "versions": [1]})
        peers.receive(0.0, b"%d" % number, hello)
    assert len(peers.links) == 2 and peers.refused == {"too many links": 2}
    assert body_of(peers.dirty[-1].outbox[0])["reason"] == "too-many-links"
    peers.lost(b"0", "gone")
    peers.announce(0.0, "again", "p9")
    peers.receive(0.0, b"9", control(Kind.HELLO, {"identity": "p9", "ticket": "again", "versions": [1]}))
    assert len(peers.links) == 2


def test_a_link_that_is_ended_here_leaves_no_connection(client, serve):
    service = serve(Compute(), direct=True)
    assert client.call(None, "compute", message_of("add", a=1), timeout=10, direct=True) == 1
    direct = service.client.process.direct
    (link,) = direct._peers.links.values()
    direct._socket.disconnect(link, "its key was revoked")
    eventually(lambda: not client.process.direct._peers.links)
    assert client.call(None, "compute", message_of("add", a=2), timeout=10, direct=True) == 2


def test_reasons_that_peers_can_choose_are_counted_within_bounds(client, monkeypatch):
    direct = client.process.direct

    def fail(address: bytes, name: str, timeout: float) -> None:
        raise RouterUnreachable(f"a reason of its own for {name}")

    monkeypatch.setattr(direct, "_make", fail)
    for number in range(300):
        assert direct.link_to(b"%d" % number, str(number), 1.0) is None
    assert len(direct.fallbacks) == 101 and direct.fallbacks.total() == 300
    assert direct.fallbacks["other reasons"] == 200
