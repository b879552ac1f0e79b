"""The truth about the addresses of each router of a virtual mesh, and the check that the others know just that."""

from __future__ import annotations

from typing import NamedTuple

from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.model import Server, Topic
from rpcmq.core.router.router import Router
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Address
from rpcmq.wire.bodies import MESH_TYPE
from rpcmq.wire.interest import PlaceState, is_address, place_of_key

__all__ = ["Known", "assert_known", "interest_of", "known", "places", "truth"]

#: Address and group.
Name = tuple[Address, str]


class Known(NamedTuple):
    """A router's consumers of an address."""

    consumers: int
    capacity: int
    registered: bool
    identities: frozenset[str]


def interest_of(net: MeshNetwork, router: str) -> Interest:
    """The part of ``router`` that knows addresses."""
    return next(part for part in net.router_of(router).mesh.parts if isinstance(part, Interest))


def places(router: Router) -> dict[Name, Topic | Server]:
    """All topics, groups and servers that ``router`` has."""
    found: dict[Name, Topic | Server] = {}
    for topic in router.directory:
        found[topic.address, topic.group] = topic
        if not topic.group:
            for name, server in topic.servers.items():
                if name:
                    found[topic.address._replace(server=name), ""] = server
    return found


def truth(router: Router) -> dict[Name, Known]:
    """The addresses that ``router`` has consumers for, or has had, counted from its directory."""
    found: dict[Name, Known] = {}
    for name, place in places(router).items():
        consumers = list(place.consumers)
        if consumers or place.registered_here:
            found[name] = Known(
                sum(c.link.route is not None for c in consumers),
                sum(c.granted for c in consumers if c.link.is_responsive),
                place.registered_here,
                frozenset(c.link.identity for c in consumers),
            )
    return found


def known(net: MeshNetwork, router: str, other: str) -> dict[Name, Known]:
    """The addresses of ``other`` as ``router`` knows them."""
    link = net.router_of(router).links.by_identity(other, MESH_TYPE)
    table = interest_of(net, router).learner.table
    found: dict[Name, Known] = {}
    for key in table:
        state = table.states(key).get(link) if link is not None and is_address(key) else None
        if state is not None:
            row = PlaceState.read(state)
            names = frozenset(n.identity for holding, n in table.names(key) if holding.link is link and holding.is_live)
            found[place_of_key(key)[:2]] = Known(row.consumers, row.capacity, row.registered, names)
    return found


def assert_known(net: MeshNetwork) -> None:
    """Assert that each router knows the addresses of those that it is linked to, and has them at its places."""
    for here, host in net.hosts.items():
        if not host.is_up:
            continue
        router = host.router
        errors = [note.text for note in host.notes if note.event == "internal error"]
        assert not errors, errors[0]
        linked = {n.link: truth(net.router_of(n.name)) for n in router.mesh.neighbours}
        for neighbour in router.mesh.neighbours:
            assert known(net, here, neighbour.name) == linked[neighbour.link], (here, neighbour.name)
        for name, place in places(router).items():
            there = {link: rows[name] for link, rows in linked.items() if name in rows}
            remotes = {link: (each.consumers, each.capacity) for link, each in place.remotes.items()}
            assert remotes == {k: (v.consumers, v.capacity) for k, v in there.items() if v.consumers}, (here, name)
            if any(each.registered for each in there.values()):
                assert place.registered, (here, name)
            if isinstance(place, Topic) and not place.group:
                groups = {n[1] for rows in linked.values() for n in rows if n[1] and n[0] == place.address}
                assert groups <= set(place.groups), (here, name)
        table = interest_of(net, here).learner.table
        assert not table.is_sweeping
