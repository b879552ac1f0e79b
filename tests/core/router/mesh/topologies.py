"""Meshes whose routers are not each linked to each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise

from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork

__all__ = ["line", "linked_to", "mesh_of", "relayed_to", "ring"]


def mesh_of(
    names: str, connections: Iterable[str], engine: Callable[..., Router] = Router, **settings: float
) -> MeshNetwork:
    """Routers that connect to those that are named: "ba" has b connect to a."""
    made = Settings(recovery_seconds=0.0, mesh_dial="peers", **settings)  # type: ignore[arg-type]
    net = MeshNetwork((), made, engine=engine)
    connections = list(connections)
    for name in names:
        net.add_router(name, peers=[each[1] for each in connections if each[0] == name])
    net.advance(4.0)
    for name in names:
        assert linked_to(net, name) == set(names) - {name}
    return net


def line(names: str, engine: Callable[..., Router] = Router) -> MeshNetwork:
    """Routers each of which connects to the one before."""
    return mesh_of(names, [other + one for one, other in pairwise(names)], engine)


def ring(names: str) -> MeshNetwork:
    """The same, and the last one to the first one, too."""
    return mesh_of(names, [names[place] + names[place - 1] for place in range(len(names))])


def linked_to(net: MeshNetwork, name: str) -> set[str]:
    """The names of the routers that ``name`` has links to that answer."""
    return {each.name for each in net.router_of(name).mesh.neighbours if each.is_usable}


def relayed_to(net: MeshNetwork, name: str) -> set[str]:
    """Those of them that others carry the messages to."""
    return {each.name for each in net.router_of(name).mesh.neighbours if each.is_usable and each.is_relayed}
