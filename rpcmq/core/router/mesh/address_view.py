"""The addresses of the mesh as one router knows them, for ``rpcmq ls --view addresses``."""

from __future__ import annotations

from itertools import chain
from typing import Any

from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.mesh.own_addresses import key_of, places_of
from rpcmq.core.router.mesh.queue_servers import QueueServers
from rpcmq.core.router.view_rows import MAX_ROWS, SMALL, View, rows_of
from rpcmq.wire.interest import PlaceState, is_address, place_of_key

__all__ = ["addresses"]


def addresses(interest: Interest, own_name: str, servers: QueueServers) -> View:
    """Each address that is known to this router, with the number of its consumers at each router; and queue servers."""
    own: dict[bytes, int] = {}
    for number, topic in enumerate(list(interest.directory), 1):
        for place in places_of(topic):
            if place.registered_here or place.consumers:
                own[key_of(place)] = len(place.consumers)
        if not number % SMALL:
            yield
    rows: dict[bytes, dict[str, Any]] = {}
    total = 0
    table = interest.learner.table
    for number, key in enumerate(chain(own, (key for key in table if key not in own)), 1):
        # Where the table grows meanwhile one may come twice.
        if is_address(key) and key not in rows:
            states = table.states(key)
            # Of a router that has gone, rows may be left.
            if key in own or states:
                total += 1
                if total <= MAX_ROWS:
                    here = {own_name: own[key]} if key in own else {}
                    there = {link.identity: PlaceState.read(state).consumers for link, state in states.items()}
                    rows[key] = _row(key, here | there)
        if not number % SMALL:
            yield
    view = rows_of("addresses", [row for _, row in sorted(rows.items())], total)
    return view | {"queue_servers": servers.states(), "queue_servers_all": servers.are_all_known}


def _row(key: bytes, consumers: dict[str, int]) -> dict[str, Any]:
    address, group, _ = place_of_key(key)
    return {
        "exchange": address.exchange,
        "topic": address.topic,
        "server": address.server,
        "group": group,
        "consumers": consumers,
    }
