"""The traces of messages that a router of a mesh may have while they are under way, and not once all have ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rpcmq.core.router.mesh.adoption import Adoption
from rpcmq.core.router.mesh.forwarding import Forwarding
from rpcmq.core.router.mesh.hosting import Hosting
from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.model import Server, Topic
from rpcmq.core.router.router import Router
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["unrest"]


def unrest(router: Router) -> list[str]:
    """The traces of messages in ``router``, each in words; none if it is at rest."""
    return [*_of_links(router), *_of_places(router), *_of_parts(router)]


def _of_links(router: Router) -> Iterator[str]:
    for link in router.links:
        # What is owed to another router is bounded: of callers that have gone from there it is never told.
        owed = 0 if link.queue_type == MESH_TYPE else len(link.owed)
        tables = {"calls": len(link.calls), "owed": owed, "held": len(link.held), "outbox": len(link.outbox)}
        for name, count in tables.items():
            if count:
                yield f"link of {link.identity}: {count} {name}"


def _of_places(router: Router) -> Iterator[str]:
    for topic in router.directory:
        places: list[Topic | Server] = [topic, *topic.servers.values()]
        for place in places:
            name = f"{topic.address}{'#' + topic.group if topic.group else ''}"
            if place.queue:
                yield f"{name}: {len(place.queue)} wait"
            for remote in place.remotes.values():
                for what in ("offered", "room", "wanted"):
                    if getattr(remote, what):
                        yield f"{name}: {what} {getattr(remote, what)} at {remote.link.identity}"
        for consumer in (*topic.consumers, *topic.leaving):
            name = f"consumer {consumer.link.identity} of {topic.address}"
            if consumer.in_flight:
                yield f"{name}: {len(consumer.in_flight)} in flight"
            elif consumer in topic.consumers and consumer.credit != consumer.granted and not consumer.link.is_full:
                yield f"{name}: credit {consumer.credit} of {consumer.granted}"


def _of_parts(router: Router) -> Iterator[str]:
    for part in router.mesh.parts:
        if isinstance(part, Forwarding):
            for work in part._work.values():
                for consumer in work.all():
                    if consumer.in_flight:
                        yield f"{len(consumer.in_flight)} with router {consumer.link.identity}"
        elif isinstance(part, Hosting):
            rooms = part._rooms
            tables: dict[str, Mapping[Any, Any]]
            tables = {"refusing": part._refusing, "tickets": rooms._tickets, "rooms": rooms.kept}
            for name, table in tables.items():
                if any(table.values()):
                    yield f"hosting: {name} {table}"
        elif isinstance(part, Adoption):
            if part._asked or part._questions or len(part._queue):
                yield f"adoption: {len(part._asked)} asked, {len(part._questions)} questions, {len(part._queue)} wait"
        elif isinstance(part, Interest) and part._unknown:
            yield f"interest: {len(part._unknown)} consumers that nobody knows"
