"""A router's engine that says what it takes, whom it gives it to, and of whom it thinks what: for a history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rpcmq.core.router.dispatch import Dispatch
from rpcmq.core.router.links import Link
from rpcmq.core.router.router import Router
from rpcmq.core.router.topics import Consumer, Pending
from rpcmq.wire import KEY, KIND_AT, NO_TTL, Kind

__all__ = ["Watch", "WatchedRouter"]


class Watch(Protocol):
    """Is told of each thing when it happens, and before anything of it leaves the router."""

    def accepted(self, part: bytes) -> None:
        """The call or cast ``part`` is the router's now: it is queued, or dispatched next."""

    def dispatched(self, part: bytes, link: Link, attempt: int) -> None:
        """The call or cast ``part`` goes to the process of ``link``."""

    def settled(self, part: bytes, outcome: int) -> None:
        """The cast ``part``, or this copy of it, has ended."""

    def declared(self, link: Link) -> None:
        """The process of ``link`` has another ``state``."""


class _Dispatch(Dispatch):
    """Tells its watch, first what it has taken, then what came of that at once."""

    watch: Watch
    #: What is dispatched while it is being accepted, which is told first.
    _at_once: list[Callable[[], None]] | None = None

    def accept(self, now: float, link: Link, part: bytes) -> None:
        number, said, key = self.last_number, len(link.outbox), part[KEY]
        at_once: list[Callable[[], None]] = []
        self._at_once = at_once
        try:
            super().accept(now, link, part)
        finally:
            self._at_once = None
            refused = any(m[5] == Kind.ERROR and m[16:36] == key for m in link.outbox[said:])
            if self.last_number > number and not refused:
                self.watch.accepted(part)
            for tell in at_once:
                tell()

    def _deliver(self, now: float, pending: Pending, consumer: Consumer, caster: Link | None = None) -> bool:
        if not super()._deliver(now, pending, consumer, caster):
            return False
        part, link, attempt = pending.message, consumer.link, pending.attempt
        if self._at_once is None:
            self.watch.dispatched(part, link, attempt)
        else:
            self._at_once.append(lambda: self.watch.dispatched(part, link, attempt))
        return True

    def record(self, now: float, pending: Pending, outcome: int, handler_us: int = NO_TTL) -> None:
        super().record(now, pending, outcome, handler_us)
        if pending.message[KIND_AT] == Kind.CAST:
            self.watch.settled(pending.message, outcome)


class WatchedRouter(Router):
    """The engine as it is, with somebody who looks on.

    Args:
        watch: is told what happens.
        rest: as for :class:`rpcmq.core.router.router.Router`.
    """

    dispatch_type = _Dispatch
    dispatch: _Dispatch

    def __init__(self, watch: Watch, *rest: Any) -> None:
        super().__init__(*rest)
        self.dispatch.watch = watch

    def _link_changed(self, now: float, link: Link) -> None:
        self.dispatch.watch.declared(link)
        super()._link_changed(now, link)
