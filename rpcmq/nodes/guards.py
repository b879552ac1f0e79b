"""The topics that a plugged-in node guards, and the losses that it is told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Request
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.nodes.passage import Passage

__all__ = ["Guards"]

#: Topics that one node guards at a time.
_MAX_TOPICS = 1_000
_Explanation = tuple[str, dict[str, Any]]


class Guards:
    """Asks a node about requests of the topics that it guards. While there are none the router calls nothing here.

    Args:
        links: of the router.
        stops: says of a request why no consumer may be given it; None: it may.
    """

    def __init__(self, links: LinkTable, stops: Callable[[Passage], _Explanation | None]) -> None:
        self._links = links
        self._stops = stops
        self._roundrobin: RoundRobin | None = None
        self._topics: set[tuple[str, str]] = set()

    def meet(self, roundrobin: RoundRobin) -> None:
        """Get to know the node type of calls and casts."""
        self._roundrobin = roundrobin
        if self._topics:
            roundrobin.gates.add(self)

    def add(self, topic: str, exchange: str) -> None:
        """Guard a topic.

        Raises:
            ValueError: the node guards as many as it may.
        """
        if len(self._topics) >= _MAX_TOPICS:
            raise ValueError(f"{len(self._topics)} topics are guarded; at most {_MAX_TOPICS} are allowed")
        self._topics.add((exchange, topic))
        if self._roundrobin is not None:
            self._roundrobin.gates.add(self)

    def remove(self, topic: str, exchange: str) -> None:
        """Guard the topic no more."""
        self._topics.discard((exchange, topic))
        if not self._topics and self._roundrobin is not None:
            self._roundrobin.gates.remove(self)

    def clear(self) -> None:
        """Guard nothing any more."""
        self._topics.clear()
        if self._roundrobin is not None:
            self._roundrobin.gates.remove(self)

    def stops(self, now: float, request: Request) -> _Explanation | None:
        """See :class:`rpcmq.core.router.roundrobin.gates.Gate`."""
        address = request.destination.topic.address
        if (address.exchange, address.topic) not in self._topics:
            return None
        return self._stops(Passage(now, self._links, request))
