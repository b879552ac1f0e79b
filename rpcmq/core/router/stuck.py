"""Work that makes no progress: with a consumer that answers nothing, or waiting though a consumer has credit.

A handler that takes long is not stuck while its process answers others, or it sends items or signs of life.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rpcmq.core.router.links import LinkTable
from rpcmq.core.router.topics import Consumer, Pending, Topic
from rpcmq.wire import KIND_AT, Kind

if TYPE_CHECKING:
    from rpcmq.core.router.directory import Directory

__all__ = ["STUCK_SECONDS", "count_stuck", "stuck_rows"]

#: From here on a call or delivery without progress is called stuck.
STUCK_SECONDS = 10.0


def count_stuck(directory: Directory, now: float) -> int:
    """How many calls and deliveries have made no progress for :data:`STUCK_SECONDS`."""
    return sum(1 for _ in _stuck(directory, now))


def stuck_rows(directory: Directory, links: LinkTable, now: float) -> list[dict[str, Any]]:
    """A row for each call and delivery that has made no progress for :data:`STUCK_SECONDS`, the longest first."""
    rows = [_row(links, pending, since, now) for pending, since in _stuck(directory, now)]
    rows.sort(key=lambda row: -float(row["seconds"]))
    return rows


def _stuck(directory: Directory, now: float) -> Iterator[tuple[Pending, float]]:
    """Each with the time of its last progress."""
    for topic in directory:
        for consumer in topic.consumers:
            yield from _with(consumer, now - STUCK_SECONDS)
        yield from _waiting(topic, now - STUCK_SECONDS)


def _with(consumer: Consumer, limit: float) -> Iterator[tuple[Pending, float]]:
    if consumer.progressed_at > limit:
        return
    for pending in consumer.in_flight.values():
        # In the order in which they were dispatched, so the rest is younger.
        if pending.dispatched_at > limit:
            return
        yield pending, max(pending.dispatched_at, consumer.progressed_at)


def _waiting(topic: Topic, limit: float) -> Iterator[tuple[Pending, float]]:
    """What somebody could take. There must be none: it would be a fault of the router."""
    if not any(consumer.ready for consumer in topic.consumers):
        return
    queues = [(topic.queue, list(topic.consumers))]
    queues += [(server.queue, list(server.consumers)) for server in topic.servers.values()]
    queues += [(consumer.backlog, [consumer]) for consumer in topic.consumers]
    for queue, consumers in queues:
        if queue and any(consumer.ready for consumer in consumers):
            yield from ((p, p.received_at) for p in queue if p.received_at <= limit)


def _row(links: LinkTable, pending: Pending, since: float, now: float) -> dict[str, Any]:
    caller, consumer = links.by_origin(pending.key[:12]), pending.consumer
    return {
        "kind": "call" if pending.message[KIND_AT] == Kind.REQUEST else "cast",
        "caller": caller.identity if caller is not None else None,
        "topic": pending.destination.name,
        "method": pending.destination.method,
        "state": "queued" if consumer is None else "in flight",
        "server": consumer.link.identity if consumer is not None else None,
        "server_state": consumer.link.state.value if consumer is not None else None,
        "seconds": round(now - since, 3),
        "attempt": pending.attempt,
    }
