"""Told of changes in a router's directory: it knows of other routers, whose topics these are, too."""

from __future__ import annotations

from rpcmq.core.router.model import Consumer, Server, Topic
from rpcmq.wire import Address

__all__ = ["DirectoryWatcher"]


class DirectoryWatcher:
    """Knows of no other router: every method does nothing. None of them is called for each message."""

    def made(self, now: float, place: Topic | Server) -> None:
        """``place`` was made, because it was addressed or is consumed."""

    def declared(self, now: float, place: Topic | Server) -> None:
        """``place`` is known in its own right, here, from now on."""

    def registered(self, now: float, consumer: Consumer) -> None:
        """``consumer`` was entered."""

    def unregistered(self, now: float, consumer: Consumer) -> None:
        """``consumer`` was taken out."""

    def forgotten(self, place: Topic | Server) -> None:
        """``place`` was forgotten."""

    def keeps(self, now: float, place: Topic | Server) -> bool:
        """Return whether ``place``, which nobody here has used for long, is still known elsewhere, and so must stay."""
        return False

    def find_alias(self, now: float, address: Address) -> Server | None:
        """Return the server elsewhere that the topic of ``address``, which is not known here, is the own topic of."""
        return None
