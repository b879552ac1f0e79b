"""Unfinished work of a router: awaited during a drain, reported when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rpcmq.core.router.model import Request, Topic
from rpcmq.core.router.router import Router
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import ORIGIN_OF_KEY, size_of

__all__ = ["UnfinishedWork", "leftovers", "under_way"]


@dataclass
class UnfinishedWork:
    """Work that is lost or returned if the router stops now.

    Attributes:
        casts: (queue, number, bytes, how many of them their senders keep for its next life) of the casts that wait, by
            topic, server's topic or consumer.
        calls: calls not ended; their callers learn from the lost connection.
        events: published events that subscribers have not taken.
        unsent: messages for processes that are away or too slow, replies among them.
    """

    casts: list[tuple[str, int, int, int]] = field(default_factory=list)
    calls: int = 0
    events: int = 0
    unsent: int = 0

    def totals(self) -> dict[str, int]:
        """Number of items of each sort."""
        return {
            "casts": sum(count for _, count, *_ in self.casts),
            "calls": self.calls,
            "events": self.events,
            "unsent messages": self.unsent,
        }


def under_way(router: Router) -> bool:
    """Return whether any work is in progress: calls, casts with consumers, events and outgoing messages."""
    if router.in_flight or router.pubsub.held:
        return True
    for link in router.links:
        if link.held or link.inbox or (link.route is not None and (link.outbox or link.last_messages)):
            return True
        if link.window is not None and link.window.queue and link.is_responsive:
            return True
    return any(queue and consumed for topic in router.directory for queue, consumed in _queues(topic))


def leftovers(router: Router) -> UnfinishedWork:
    """Return the unfinished work of ``router`` at this moment."""
    left = UnfinishedWork(calls=router.in_flight, events=router.pubsub.held)
    for topic in router.directory:
        for queue, _ in _queues(topic):
            casts = [each for each in queue if not each.is_call]
            if casts:
                kept = sum(each.kept and router.links.by_origin(each.key[ORIGIN_OF_KEY]) is not None for each in casts)
                left.casts.append((queue.name, len(casts), sum(size_of(each.message) for each in casts), kept))
    for link in router.links:
        left.unsent += len(link.outbox)
        if link.window is not None:
            left.events += len(link.window.queue)
    return left


def _queues(topic: Topic) -> Iterator[tuple[Queue[Request], bool]]:
    """Yield each queue of ``topic``, and whether it has consumers."""
    yield topic.queue, any(not consumer.stopping for consumer in topic.consumers)
    for server in topic.servers.values():
        yield server.queue, any(not consumer.stopping for consumer in server.consumers)
    for consumer in topic.consumers:
        yield consumer.backlog, not consumer.stopping
