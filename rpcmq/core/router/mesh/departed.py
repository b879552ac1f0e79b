"""Consumers that are gone with messages that they may have started, by the names of these; for some minutes.

One that is *lost* is gone for good. One that is *sought* may turn up at another router, or may have done so.
"""

from __future__ import annotations

from collections import OrderedDict

from rpcmq.core.router.mesh.fences import name_of
from rpcmq.core.router.model import Request
from rpcmq.wire.consumer_name import ConsumerName

__all__ = ["Departed"]

#: Seconds for which one is remembered for what it had, and most of these messages.
_REMEMBERED_SECONDS, _MOST = 600.0, 100_000


class Departed:
    """Knows who has left with which messages."""

    __slots__ = ("_lost", "_sought")

    def __init__(self) -> None:
        self._lost: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        #: As told by other routers, too.
        self._sought: OrderedDict[bytes, tuple[ConsumerName, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._lost) + len(self._sought)

    def lose(self, now: float, request: Request, identity: str) -> None:
        """The consumer ``identity`` is gone with ``request``."""
        self._lost[_name_of(request)] = identity, now
        if len(self._lost) > _MOST:
            self._lost.popitem(last=False)

    def lost(self, key: bytes, group: str) -> str:
        """The identity of the consumer that was lost with a message for a group, or none; empty if none was."""
        return self._lost.get(name_of(key, group), ("", 0.0))[0]

    def seek(self, now: float, key: bytes, group: str, name: ConsumerName) -> None:
        """The consumer ``name`` has left its router with a message for a group, or none."""
        self._sought[name_of(key, group)] = name, now
        if len(self._sought) > _MOST:
            self._sought.popitem(last=False)

    def sought(self, key: bytes, group: str) -> ConsumerName | None:
        """The consumer that has left its router with a message for a group, or none; None if none has."""
        return self._sought.get(name_of(key, group), (None, 0.0))[0]

    def expire(self, now: float) -> None:
        """Forget what is old."""
        for table in (self._lost, self._sought):
            while table and now - next(iter(table.values()))[1] >= _REMEMBERED_SECONDS:
                table.popitem(last=False)


def _name_of(request: Request) -> bytes:
    return name_of(request.key, request.destination.topic.group)
