"""The consumers of an address that other routers have, and how much of its work these take."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from rpcmq.core.router.base_link import BaseLink

__all__ = ["NO_REMOTES", "Remote", "Remotes"]

D = TypeVar("D")


class Remote(Generic[D]):
    """The consumers that a neighbour has of a topic, of one of its servers or of a group.

    Attributes:
        link: to the neighbour.
        consumers: their number.
        capacity: the number of requests that they take at once.
        offered: deliveries to them that have not ended, by key, in the order in which they were offered.
        room: the number that may still be offered, while the neighbour says so for each; None: up to ``capacity``.
        wanted: the number of requests that the neighbour knows to wait, and has not made room for.
        is_held: whether nothing is offered: what the neighbour has sent back was not all read.
    """

    __slots__ = ("capacity", "consumers", "is_held", "link", "offered", "room", "wanted")

    def __init__(self, link: BaseLink, consumers: int, capacity: int) -> None:
        self.link = link
        self.consumers = consumers
        self.capacity = capacity
        self.offered: dict[bytes, D] = {}
        self.room: int | None = None
        self.wanted = 0
        self.is_held = False

    @property
    def free(self) -> int:
        """The number of requests that may be offered now."""
        if self.is_held or not self.link.is_responsive or self.link.is_full:
            return 0
        return self.capacity - len(self.offered) if self.room is None else self.room


#: The neighbours that have consumers of an address, by their links.
Remotes = Mapping[BaseLink, Remote[D]]
#: Of most addresses.
NO_REMOTES: Remotes[Any] = MappingProxyType({})
