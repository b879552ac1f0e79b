"""The requests that a neighbour has of this router, their owner: pseudo-consumers, one for each neighbour and group.

So a request that was offered to a neighbour is a delivery like any other, and streams, cancels, deadlines and the end
of a link work as they do with a process. A process names the consumer in what it says of a request; a neighbour names
one of its own, so that any tag on its link stands for the one pseudo-consumer there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.forwarded import Elsewhere
from rpcmq.core.router.mesh.places import Place, Tag
from rpcmq.core.router.model import Consumer, Link, Request, Topic
from rpcmq.wire import Address

__all__ = ["CopiesElsewhere", "OfferedWork"]

#: A neighbour's own credit is what counts: :class:`rpcmq.core.router.remotes.Remote`.
_UNLIMITED = 1 << 30
_ALL_FORMATS = 0xFF
_NOWHERE = Address("(another router)")


class OfferedWork:
    """The requests of this router at the neighbour ``link``.

    Attributes:
        whole: stands for all its consumers of topics and servers.
    """

    __slots__ = ("_groups", "_held", "_link", "whole")

    def __init__(self, link: Link) -> None:
        self._link = link
        self.whole = _pseudo_consumer(link, Tag.TOPIC)
        #: Copies of one message go to several groups under one key.
        self._groups: dict[Topic, Elsewhere] = {}
        #: Places for which nothing is offered, with the key of the first request that came back.
        self._held: dict[Place, bytes] = {}
        link.consumers = _AnyTag({Tag.TOPIC: self.whole})

    def hold(self, place: Place | None, key: bytes) -> None:
        """Offer nothing for ``place``, of which the request ``key`` came back, until :meth:`let_go`.

        Others that came back may still be to be read. If one of them were offered again before, its return would be
        taken for that of the new offer, and with it all that was offered after that, which has been started there.
        """
        if place is not None:
            self._held.setdefault(place, key)
            self.update(place)

    def let_go(self, place: Place, key: bytes) -> None:
        """Everything that came back with the request ``key`` was read."""
        if self._held.get(place) == key:
            del self._held[place]
            self.update(place)

    def update(self, place: Place) -> None:
        """Have the consumers of ``place`` there, as far as they are known, offered nothing while it is held."""
        remote = place.remotes.get(self._link)
        if remote is not None:
            remote.is_held = place in self._held

    def of(self, topic: Topic) -> Elsewhere:
        """The pseudo-consumer of messages to ``topic`` (a topic or a group)."""
        if not topic.group:
            return self.whole
        consumer = self._groups.get(topic)
        if consumer is None:
            consumer = self._groups[topic] = _pseudo_consumer(self._link, Tag.GROUP)
        return consumer

    def holder(self, request: Request) -> Elsewhere:
        """The pseudo-consumer of ``request``: a call, whose answer does not name the group, is with the topics'."""
        return self.whole if request.is_call else self.of(request.destination.topic)

    def having(self, key: bytes, group: Topic | None) -> Elsewhere:
        """The pseudo-consumer that has the message with ``key``, which is about ``group`` if not None."""
        if group is None:
            return self.whole
        consumer = self.of(group)
        call = self.whole.in_flight.get(key)
        is_call_to_it = key not in consumer.in_flight and call is not None and call.request.destination.topic is group
        return self.whole if is_call_to_it else consumer

    def copies(self) -> Iterator[Request]:
        """The copies for groups that the neighbour has: they are none of what the consumers of its link have."""
        for consumer in self._groups.values():
            yield from (delivery.request for delivery in consumer.in_flight.values())

    def all(self) -> list[Elsewhere]:
        """All pseudo-consumers."""
        return [self.whole, *self._groups.values()]


class CopiesElsewhere:
    """Iterates over the copies for groups that neighbours have, whose ``offered`` work is given by their links."""

    def __init__(self, offered: Mapping[BaseLink, OfferedWork]) -> None:
        self._offered = offered

    def __iter__(self) -> Iterator[Request]:
        for work in self._offered.values():
            yield from work.copies()


class _AnyTag(dict[int, Consumer]):
    """The consumers of a link, of which there is one, whatever tag is asked for."""

    def __missing__(self, tag: int) -> Consumer:
        return self[Tag.TOPIC]

    def get(self, tag: int, default: object = None) -> Consumer:
        return self[Tag.TOPIC]


def _pseudo_consumer(link: Link, tag: int) -> Elsewhere:
    topic = Topic(_NOWHERE)
    consumer = Elsewhere(link, tag, topic, _UNLIMITED)
    consumer.accepts = _ALL_FORMATS
    topic.ready.place(consumer)
    return consumer
