"""A router engine that records what it accepts, to whom it dispatches, and which link states it declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rpcmq.core.router.model import Consumer, Link, Request
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.dispatch import Dispatch
from rpcmq.core.router.roundrobin.node import RoundRobin
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.router import NODE_TYPES, Router
from rpcmq.wire import KEY, KIND_AT, NO_TTL, Kind

__all__ = ["Watch", "WatchedRouter"]


class Watch(Protocol):
    """Observes each event when it happens, before anything about it leaves the router."""

    def accepted(self, message: bytes) -> None:
        """The call or cast ``message`` is the router's now: it is queued, or dispatched next."""

    def dispatched(self, message: bytes, link: Link, attempt: int) -> None:
        """The call or cast ``message`` goes to the process of ``link``."""

    def settled(self, message: bytes, outcome: int) -> None:
        """The cast ``message``, or this copy of it, has ended."""

    def declared(self, link: Link) -> None:
        """The process of ``link`` has another ``state``."""


class _Requests(RequestTable):
    """Tells its watch of casts that have ended."""

    __slots__ = ("watch",)
    watch: Watch

    def record(self, now: float, request: Request, outcome: int, handler_us: int = NO_TTL) -> None:
        super().record(now, request, outcome, handler_us)
        if request.message[KIND_AT] == Kind.CAST:
            self.watch.settled(request.message, outcome)


class _Deliveries(Deliveries):
    """Tells its watch what is dispatched, or keeps it to be told."""

    __slots__ = ("at_once", "watch")
    watch: Watch
    #: Dispatches made while a message is being accepted; the acceptance is reported first.
    at_once: list[Callable[[], None]] | None

    def deliver(self, now: float, request: Request, consumer: Consumer, caster: Link | None = None) -> bool:
        if not super().deliver(now, request, consumer, caster):
            return False
        message, link, attempt = request.message, consumer.link, consumer.in_flight[request.key].attempt
        if self.at_once is None:
            self.watch.dispatched(message, link, attempt)
        else:
            self.at_once.append(lambda: self.watch.dispatched(message, link, attempt))
        return True


class _Dispatch(Dispatch):
    """Reports to its observer: first the acceptance, then its immediate consequences."""

    __slots__ = ("watch",)
    watch: Watch
    requests_type = _Requests
    deliveries_type = _Deliveries
    requests: _Requests
    deliveries: _Deliveries

    def watched_by(self, watch: Watch) -> None:
        """Tell ``watch``."""
        self.watch = self.requests.watch = self.deliveries.watch = watch
        self.deliveries.at_once = None

    def accept(self, now: float, link: Link, message: bytes) -> None:
        number, said, key = self.requests.last_number, len(link.outbox), message[KEY]
        at_once: list[Callable[[], None]] = []
        self.deliveries.at_once = at_once
        try:
            super().accept(now, link, message)
        finally:
            self.deliveries.at_once = None
            refused = any(m[KIND_AT] == Kind.ERROR and m[KEY] == key for m in link.outbox[said:])
            if self.requests.last_number > number and not refused:
                self.watch.accepted(message)
            for tell in at_once:
                tell()


class _RoundRobin(RoundRobin):
    dispatch_type = _Dispatch


class WatchedRouter(Router):
    """The unmodified engine with an observer.

    Args:
        watch: is told what happens.
        rest: as for :class:`rpcmq.core.router.router.Router`.
    """

    node_types = (_RoundRobin, *(each for each in NODE_TYPES if each is not RoundRobin))

    def __init__(self, watch: Watch, *rest: Any) -> None:
        super().__init__(*rest)
        self._watch = watch
        dispatch = self.dispatch
        assert isinstance(dispatch, _Dispatch)
        dispatch.watched_by(watch)

    def _link_changed(self, now: float, link: Link) -> None:
        self._watch.declared(link)
        super()._link_changed(now, link)
