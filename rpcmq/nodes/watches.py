"""The topics that a plugged-in node watches."""

from __future__ import annotations

from collections.abc import Callable

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Delivery, Request, Topic
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.nodes.passage import Passage

__all__ = ["Watches"]

#: Topics that one node watches at a time.
_MAX_TOPICS = 1_000


class Watches:
    """Passes on what concerns the watched topics. While there are none the router calls nothing here.

    Args:
        links: of the router.
        passed: gets it.
    """

    def __init__(self, links: LinkTable, passed: Callable[[Passage], None]) -> None:
        self._links = links
        self._passed = passed
        self._roundrobin: RoundRobin | None = None
        self._topics: set[tuple[str, str]] = set()

    def meet(self, roundrobin: RoundRobin) -> None:
        """Get to know the node type of calls and casts."""
        self._roundrobin = roundrobin
        if self._topics:
            roundrobin.observers.add(self)

    def add(self, topic: str, exchange: str) -> None:
        """Watch a topic.

        Raises:
            ValueError: the node watches as many as it may.
        """
        if len(self._topics) >= _MAX_TOPICS:
            raise ValueError(f"{len(self._topics)} topics are watched; at most {_MAX_TOPICS} are allowed")
        self._topics.add((exchange, topic))
        if self._roundrobin is not None:
            self._roundrobin.observers.add(self)

    def remove(self, topic: str, exchange: str) -> None:
        """Watch a topic no more."""
        self._topics.discard((exchange, topic))
        if not self._topics and self._roundrobin is not None:
            self._roundrobin.observers.remove(self)

    def clear(self) -> None:
        """Watch nothing any more."""
        self._topics.clear()
        if self._roundrobin is not None:
            self._roundrobin.observers.remove(self)

    def _has(self, topic: Topic) -> bool:
        address = topic.address
        return (address.exchange, address.topic) in self._topics

    def delivered(self, now: float, delivery: Delivery) -> None:
        """See :class:`rpcmq.core.router.roundrobin.observers.Observer`."""
        if self._has(delivery.consumer.topic):
            self._passed(Passage(now, self._links, delivery.request, delivery))

    def answered(self, now: float, delivery: Delivery, message: bytes) -> None:
        """See :class:`rpcmq.core.router.roundrobin.observers.Observer`."""
        if self._has(delivery.consumer.topic):
            self._passed(Passage(now, self._links, delivery.request, delivery, message))

    def ended(self, now: float, request: Request, outcome: int) -> None:
        """See :class:`rpcmq.core.router.roundrobin.observers.Observer`."""
        if self._has(request.destination.topic):
            self._passed(Passage(now, self._links, request, request.delivery, None, outcome))
