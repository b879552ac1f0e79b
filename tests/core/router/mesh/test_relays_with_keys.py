"""Routers with keys that are not linked to each other directly."""

from __future__ import annotations

from rpcmq.config.peers import Peer
from rpcmq.core.router.rights import MESH_VERB, Key, Right
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from tests.core.router.mesh.topologies import linked_to, relayed_to


def key(name: str, topic: str = "#") -> Key:
    return Key(name, name.upper(), (Right(frozenset([MESH_VERB]), (topic,), ("*",)),))


def add(net: MeshNetwork, name: str, peer: str, *keys: Key, **limits: tuple[str, ...]) -> None:
    """Add a router that links to ``peer``, and that ``keys`` may link to."""
    tables = (Peer(f"inproc://{peer}", peer.upper(), **limits),) if peer else ()
    net.cut(name, peer)  # until it has its keys
    host = net.add_router(name, peers=[], mesh_peer=tables)
    host.user = name.upper()
    host.router.mesh.own.key = name.upper()
    host.router.set_authorized_keys(net.now, keys)
    net.heal()


def mesh(*known: str, topic: str = "#", **limits: tuple[str, ...]) -> MeshNetwork:
    """A line of a, b and c, where c has the keys of ``known``, and limits its link to b."""
    net = MeshNetwork((), Settings(recovery_seconds=0.0, mesh_dial="peers"))
    add(net, "a", "", key("b"), key("c"))
    add(net, "b", "a", key("a"), key("c"))
    add(net, "c", "b", *(key(name, topic) for name in known), **limits)
    net.advance(6.0)
    return net


def test_a_router_is_reached_over_others_if_its_key_may_link() -> None:
    net = mesh("a", "b")
    assert [linked_to(net, name) for name in "abc"] == [{"b", "c"}, {"a", "c"}, {"a", "b"}]
    assert relayed_to(net, "c") == {"a"}


def test_a_router_whose_key_may_not_link_is_not_reached_over_others_either() -> None:
    net = mesh("b")
    assert linked_to(net, "c") == {"b"} and "c" not in linked_to(net, "a")


def test_no_messages_of_others_pass_a_link_with_limits() -> None:
    for net in (mesh("a", "b", topic="compute"), mesh("a", "b", allow_in=("compute",))):
        assert linked_to(net, "c") == {"b"} and linked_to(net, "a") == {"b"}
        assert net.router_of("b").relayed.next_hop(3) is None or net.router_of("c").relayed.next_hop(1) is None
