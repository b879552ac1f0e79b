"""The other routers, as subscriptions concern them: in a mesh, its part for events; else there are none."""

from __future__ import annotations

from typing import Protocol

from rpcmq.core.router.model import Link
from rpcmq.core.router.pubsub.subscriber import NeighbourSubscriber

__all__ = ["NoOtherRouters", "OtherRouters", "Pattern"]

#: An exchange and a pattern.
Pattern = tuple[bytes, bytes]


class OtherRouters(Protocol):
    """Told of the patterns that processes of this router have."""

    def wanted(self, now: float, pattern: Pattern) -> None:
        """A first process has subscribed to ``pattern``."""

    def unwanted(self, now: float, pattern: Pattern) -> None:
        """No process is subscribed to ``pattern`` any more."""

    def ended(self, now: float, link: Link, subscriber: NeighbourSubscriber) -> None:
        """The ``link`` of another router has ended, and ``subscriber`` counts the events that it did not get."""

    def confirm(self, now: float, link: Link, pattern: Pattern, answer: bytes) -> None:
        """Send ``answer`` to ``link`` once events for ``pattern`` come from everywhere."""


class NoOtherRouters:
    """This router is the only one: its subscribers get all there is."""

    def wanted(self, now: float, pattern: Pattern) -> None:
        """See :class:`OtherRouters`."""

    def unwanted(self, now: float, pattern: Pattern) -> None:
        """See :class:`OtherRouters`."""

    def ended(self, now: float, link: Link, subscriber: NeighbourSubscriber) -> None:
        """See :class:`OtherRouters`."""

    def confirm(self, now: float, link: Link, pattern: Pattern, answer: bytes) -> None:
        """See :class:`OtherRouters`."""
        link.send(answer)
