"""Domains: topics that only one router's consumers serve."""

from __future__ import annotations

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind


def mesh() -> MeshNetwork:
    """Make routers a, b and c, of which b has a domain."""
    net = MeshNetwork(("a",), settings=Settings(recovery_seconds=0.0))
    net.add_router("b", mesh_domains=("volume.#", "image"))
    net.add_router("c")
    net.advance(2.0)
    return net


def test_requests_go_to_the_routers_own_consumers_and_wait_for_it_while_it_is_away() -> None:
    net = mesh()
    node, api = net.process("node", router="b"), net.process("api", router="c")
    node.register("volume.ssd")
    net.advance(1.0)
    call = api.request("volume.ssd", "make", ttl=60)
    node.reply(node.take(Kind.REQUEST), b"made")
    assert call.end.payload == b"made"
    net.hosts["b"].kill()
    net.advance(20.0)
    waits = api.request("volume.ssd", "later", ttl=200)
    net.advance(100.0)
    assert not waits.ends
    net.hosts["b"].start()
    node.connect()
    net.advance(3.0)
    node.register("volume.ssd", tag=7)
    net.advance(1.0)
    node.reply(node.take(Kind.REQUEST), b"late")
    assert waits.end.payload == b"late"


def test_a_consumer_elsewhere_is_refused_with_the_name_of_the_router_where_it_belongs() -> None:
    net = mesh()
    stray = net.process("stray", router="a")
    stray.register("image")
    refusal = next(message for message in stray.inbox if message.kind == Kind.ERROR)
    assert refusal.outcome == Outcome.PROTOCOL
    assert "domain of router 'b'" in refusal.body["text"] and "this one is 'a'" in refusal.body["text"]
    assert refusal.body["details"] == {"reason": "domain", "router": "b"}
    stray.register("images")
    assert any(message.kind == Kind.REGISTERED for message in stray.inbox)


def test_consumers_that_were_there_before_are_sent_away() -> None:
    net = MeshNetwork(("a",), settings=Settings(recovery_seconds=0.0))
    early = net.process("early", router="a")
    early.register("volume.ssd")
    net.add_router("b", mesh_domains=("volume.#",))
    net.advance(2.0)
    assert any("domain of router 'b'" in note.text for note in net.hosts["a"].notes)
    assert not net.router_of("a").directory.lookup("", "volume.ssd")[0].consumers  # type: ignore[index]


def test_the_domains_of_a_router_that_is_away_are_known_to_those_that_come_later() -> None:
    net = mesh()
    net.hosts["b"].kill()
    net.advance(10.0)
    net.add_router("d", peers=("a",))
    net.advance(3.0)
    stray = net.process("stray", router="d")
    stray.register("volume.ssd")
    assert any(message.kind == Kind.ERROR for message in stray.inbox)


def test_a_consumer_that_is_refused_is_told_where_to_go_as_soon_as_that_router_is_there() -> None:
    net = mesh()
    net.hosts["b"].kill()
    stray = net.process("stray", router="a")
    stray.register("image")
    assert stray.take(Kind.ERROR).body["details"] == {"reason": "domain"}
    net.hosts["b"].start()
    net.advance(3.0)
    stray.register("image", tag=9)
    assert stray.take(Kind.ERROR).body["details"] == {"reason": "domain", "router": "b"}
