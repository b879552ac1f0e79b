"""Looks at the links between the routers of a virtual network."""

from __future__ import annotations

from itertools import permutations

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.members import Members
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.model import Link
from rpcmq.testing.mesh_network import MeshNetwork

__all__ = ["check_full_mesh", "link", "lose_power", "members_of", "neighbour", "neighbours", "problems", "told"]


def neighbours(net: MeshNetwork, name: str) -> dict[str, LinkState]:
    """The neighbours of a router, and the states of the links to them."""
    return {each.name: each.link.state for each in net.router_of(name).mesh.neighbours}


def neighbour(net: MeshNetwork, name: str, other: str) -> Neighbour:
    """The neighbour ``other`` of the router ``name``."""
    return next(each for each in net.router_of(name).mesh.neighbours if each.name == other)


def link(net: MeshNetwork, name: str, other: str) -> Link:
    """The link of the router ``name`` to ``other``."""
    return neighbour(net, name, other).link


def members_of(net: MeshNetwork, name: str) -> Members:
    """The part of a router that knows who is in the mesh."""
    return next(part for part in net.router_of(name).mesh.parts if isinstance(part, Members))


def check_full_mesh(net: MeshNetwork, *names: str) -> None:
    """Assert that each of the routers is linked to each other one, and to nobody else, and knows them."""
    for name in names:
        others = {other for other in names if other != name}
        assert neighbours(net, name) == dict.fromkeys(others, LinkState.ANSWERING), name
        known = {member.said.name for member in members_of(net, name).table if not member.said.left}
        assert known >= others, name
    for one, other in permutations(names, 2):
        ends = [end for end in net.hosts[one].connections.ends.values() if end is not None]
        peers = [end.peer for end in ends if end.peer is net.hosts[other].connections]
        assert len(peers) == 1, f"{len(peers)} connections between {one} and {other}"


def lose_power(net: MeshNetwork, name: str) -> None:
    """The host of a router goes, and nothing tells the other end of its connections."""
    ends = net.hosts[name].connections.ends
    for end in ends.values():
        assert end is not None
        end.incoming.kill()
    ends.clear()


def told(net: MeshNetwork, name: str, event: str) -> list[str]:
    """The log events of that kind of a router."""
    return [note.text for note in net.hosts[name].notes if note.event == event]


def problems(net: MeshNetwork, name: str) -> dict[str, str]:
    """The obstacles that a router knows: subject -> text."""
    rows = net.router_of(name).mesh.handshake.problems.rows(net.now)
    return {row["subject"]: row["text"] for row in rows}
