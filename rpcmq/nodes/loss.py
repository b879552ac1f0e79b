"""The loss of a process that consumes, as a plugged-in node sees it."""

from __future__ import annotations

from collections.abc import Iterator

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link
from rpcmq.nodes.passage import Passage
from rpcmq.nodes.peer import Peer
from rpcmq.wire import Flag

__all__ = ["Loss"]


class Loss:
    """The loss of a process that consumes. It is about the present moment: keep what you read from it.

    Attributes:
        peer: the process.
        lost_at: when its connection was lost (monotonic seconds).
    """

    __slots__ = ("_link", "_links", "lost_at", "now", "peer")

    def __init__(self, now: float, links: LinkTable, link: Link, peer: Peer) -> None:
        self._link, self._links = link, links
        self.now = now
        self.peer = peer
        self.lost_at = link.since

    @property
    def silent_seconds(self) -> float:
        """The seconds for which nothing had been heard of it when its connection was lost."""
        return max(0.0, self.lost_at - self._link.heard)

    @property
    def description(self) -> dict[str, str]:
        """``host``, ``pid`` and ``program``, as far as the process has told them."""
        told = self._link.description
        return {name: str(told[name])[:200] for name in ("host", "pid", "program") if told.get(name)}

    @property
    def is_leaving(self) -> bool:
        """True if it had begun to leave, and took nothing new on one of its topics."""
        return any(consumer.stopping for consumer in self._link.consumers.values())

    @property
    def topics(self) -> dict[tuple[str, str], int]:
        """Exchange and topic of all that it consumes, and how many consumers each has, with those of this process."""
        topics = [consumer.topic for consumer in self._link.consumers.values()]
        return {
            (topic.address.exchange, topic.address.topic): len(topic.consumers)
            + sum(remote.consumers for remote in topic.remotes.values())
            for topic in topics
        }

    @property
    def count(self) -> int:
        """The number of calls and casts that it had."""
        return sum(len(consumer.in_flight) for consumer in self._link.consumers.values())

    def in_flight(self) -> Iterator[Passage]:
        """The calls and casts that it had and that somebody still waits for, but fanouts, which go to all."""
        for consumer in self._link.consumers.values():
            for delivery in consumer.in_flight.values():
                request = delivery.request
                if not request.has_ended and not request.flags & Flag.FANOUT:
                    yield Passage(self.now, self._links, request, delivery)
