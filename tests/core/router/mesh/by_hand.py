"""Links between the routers of a virtual network, made without a handshake."""

from __future__ import annotations

from itertools import combinations, count

from rpcmq.core.router.actions import Dial
from rpcmq.core.router.mesh.neighbours import Identity, Neighbour
from rpcmq.core.router.model import Link
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.testing.router_host import RouterHost
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["end_link", "link_all", "link_routers", "neighbour_of"]

_numbers = count(1)


def link_routers(net: MeshNetwork, one: str, other: str) -> None:
    """Link two routers, which know nothing of each other."""
    here, there = net.hosts[one], net.hosts[other]
    route = b"dial:by-hand-%d" % next(_numbers)
    here.connections.dial(Dial(route, there.url))
    net.run()
    end = here.connections.ends[route]
    assert end is not None
    _add(net, here, there, route)
    _add(net, there, here, end.peer_route)
    net.run()


def _add(net: MeshNetwork, host: RouterHost, other: RouterHost, route: bytes) -> None:
    router = host.router
    link = Link(router.links.dirty, other.name, MESH_TYPE, 1 << 60 | next(_numbers), router.settings.router_id)
    link.handlers = router.mesh.handlers
    router.links.add(link)
    router.links.attach_route(net.now, link, route)
    router.links.connected(net.now, link)
    identity = Identity("rpcmq", other.name, other.router.settings.router_id, 0)
    router.mesh._up(net.now, Neighbour(identity, link), False)


def link_all(net: MeshNetwork) -> MeshNetwork:
    """Link each router to each other one."""
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
