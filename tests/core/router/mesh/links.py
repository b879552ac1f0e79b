"""Links between the routers of a virtual network."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from rpcmq.core.router.model import Link
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["end_link", "link_all", "link_routers", "neighbour_of", "two_routers"]


def link_routers(net: MeshNetwork, one: str, other: str) -> None:
    """Wait until two routers are linked, each has heard the other, and no other one carries the link any more."""
    for _ in range(20):
        net.advance(2.5)
        if is_direct(net, one, other) and is_direct(net, other, one):
            return
    raise AssertionError(f"{one} and {other} do not find each other")


def is_direct(net: MeshNetwork, router: str, other: str) -> bool:
    """Return whether the link of ``router`` to ``other`` has a connection of its own, and answers."""
    node = net.router_of(router)
    link = node.links.by_identity(other, MESH_TYPE)
    return link is not None and link.is_responsive and not node.mesh.neighbours.by_link[link].is_relayed


def link_all(net: MeshNetwork) -> MeshNetwork:
    """Wait until each router is linked to each other one."""
    for one, other in combinations(net.hosts, 2):
        link_routers(net, one, other)
    return net


def neighbour_of(net: MeshNetwork, router: str, other: str) -> Link:
    """Return the link of ``router`` to ``other``."""
    link = net.router_of(router).links.by_identity(other, MESH_TYPE)
    assert link is not None
    return link


def end_link(net: MeshNetwork, one: str, other: str) -> None:
    """End the link between two routers at both ends; what is in transit is lost."""
    net.reset(one, other)
    for here, there in ((one, other), (other, one)):
        net.router_of(here).links.end(net.now, neighbour_of(net, here, there), "connection lost")
    net.run()


def two_routers() -> Iterator[MeshNetwork]:
    """Routers a and b, of which b may be hostile; when the test is over, neither has had an internal error."""
    made = MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0))
    link_routers(made, "a", "b")
    yield made
    for host in made.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []
