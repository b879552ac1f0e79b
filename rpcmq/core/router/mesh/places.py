"""Places of work: topics, servers and groups, as routers name them to each other.

A message between routers names a topic or server by its address block, and a group by the same with the group's name
in the place of the server: groups have no servers, and servers no groups. :class:`Tag` says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.model import Delivery, Server, Topic
from rpcmq.core.router.remotes import NO_REMOTES, Remote
from rpcmq.wire import CONSUMER_AT, Address, address_of

__all__ = ["Place", "Places", "Tag", "address_of_place"]

Place = Topic | Server
#: Places of which it is remembered that a neighbour takes nothing for them.
_MAX_REFUSED = 10_000


class Tag:
    """The field ``consumer`` of a message between routers."""

    #: A topic, or a server of one.
    TOPIC: Final = 0
    GROUP: Final = 2


def address_of_place(place: Place) -> tuple[Address, int]:
    """The address that names ``place`` between routers, and its tag."""
    if isinstance(place, Server):
        return place.topic.address._replace(server=place.name), Tag.TOPIC
    if place.group:
        return place.address._replace(server=place.group), Tag.GROUP
    return place.address, Tag.TOPIC


class Places:
    """The topics, servers and groups of a router, with the neighbours that have consumers of each.

    Attributes:
        on_changed: called with (now, place, remote) when a neighbour has more or other consumers of a place.
        may_get: of neighbours that may not get everything: called with an address block, and whether it names a group.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.on_changed: list[Callable[[float, Place, Remote[Delivery]], None]] = []
        #: Neighbour -> the places that it has consumers of.
        self._of_links: dict[BaseLink, dict[Place, None]] = {}
        self.may_get: dict[BaseLink, Callable[[bytes, bool], bool]] = {}
        #: Neighbour -> the places for which it takes nothing from this router.
        self._refused: dict[BaseLink, dict[Place, None]] = {}

    def named_by(self, message: bytes) -> Place | None:
        """The place that ``message`` is about; None if this router knows none such.

        Raises:
            ProtocolError: the address is malformed.
        """
        address = Address.decode(address_of(message))
        is_group = message[CONSUMER_AT] == Tag.GROUP
        return self.find(address, is_group)

    def find(self, address: Address, is_group: bool = False) -> Place | None:
        """The place with ``address``; None if this router knows none such."""
        found = self._directory.lookup(address.exchange, address.topic, address.server if is_group else "")
        if found is None:
            return None
        topic, server = found
        if is_group or server is not None or not address.server:
            return server or topic
        return topic.servers.get(address.server)

    def group_of(self, message: bytes) -> Topic | None:
        """The group that ``message`` is about; None if it is about a topic or server, or this router knows none such.

        Raises:
            ProtocolError: the address is malformed.
        """
        if message[CONSUMER_AT] != Tag.GROUP:
            return None
        place = self.named_by(message)
        return place if isinstance(place, Topic) else None

    def refuse(self, now: float, place: Place, link: BaseLink) -> None:
        """The neighbour at ``link`` takes nothing for ``place`` from this router, whatever consumers it has."""
        refused = self._refused.setdefault(link, {})
        if len(refused) >= _MAX_REFUSED:
            refused.clear()
        refused[place] = None
        self.set_remote(now, place, link, 0, 0)

    def forget(self, link: BaseLink) -> None:
        """The neighbour at ``link`` is gone: forget what it refused."""
        self._refused.pop(link, None)
        self.may_get.pop(link, None)

    def _is_open(self, place: Place, link: BaseLink) -> bool:
        if place in self._refused.get(link, ()):
            return False
        may_get = self.may_get.get(link)
        if may_get is None:
            return True
        address, tag = address_of_place(place)
        return may_get(address.encode(), tag == Tag.GROUP)

    def set_remote(self, now: float, place: Place, link: BaseLink, consumers: int, capacity: int) -> None:
        """Note that the neighbour at ``link`` has so many consumers of ``place``, which take so much at once.

        None, if nothing for ``place`` may go there.
        """
        remote = place.remotes.get(link)
        if consumers and not self._is_open(place, link):
            consumers = capacity = 0
        if remote is None:
            if not consumers:
                return
            remote = Remote(link, consumers, capacity)
            place.remotes = {**place.remotes, link: remote}
            self._of_links.setdefault(link, {})[place] = None
        elif consumers:
            remote.consumers, remote.capacity = consumers, capacity
        else:
            remote.consumers = remote.capacity = 0
            place.remotes = {at: each for at, each in place.remotes.items() if at is not link} or NO_REMOTES
            if not place.remotes and not place.consumers:
                place.last_seen = place.left_at = now
            of_link = self._of_links[link]
            del of_link[place]
            if not of_link:
                del self._of_links[link]
        self.changed(now, place, remote)

    def of_link(self, link: BaseLink, limit: int) -> list[Place]:
        """At most ``limit`` of the places that the neighbour at ``link`` has consumers of."""
        return list(islice(self._of_links.get(link, ()), limit))

    def changed(self, now: float, place: Place, remote: Remote[Delivery]) -> None:
        """The neighbour of ``remote`` can take more, or less, for ``place`` than before."""
        for each in self.on_changed:
            each(now, place, remote)
