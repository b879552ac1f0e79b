"""A router engine that records what it accepts, to whom it dispatches, and which link states it declares."""

from __future__ import annotations

from typing import Any, Protocol

from rpcmq.core.router.model import Delivery, Link, Request
from rpcmq.core.router.router import Router
from rpcmq.wire import KEY, KIND_AT, Kind

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


class WatchedRouter(Router):
    """The unmodified engine with an observer.

    Args:
        watch: is told what happens.
        rest: as for :class:`rpcmq.core.router.router.Router`.
    """

    def __init__(self, watch: Watch, *rest: Any) -> None:
        super().__init__(*rest)
        self._watch = watch
        #: Deliveries made while a message is being accepted: the acceptance is reported first.
        self._at_once: list[tuple[bytes, Link, int]] | None = None
        self.dispatch.deliveries.on_delivered = self._delivered
        self.dispatch.requests.on_recorded = self._recorded
        for kind in (Kind.REQUEST, Kind.CAST):
            self.kinds.handlers[kind] = self._accept

    def _accept(self, now: float, link: Link, message: bytes) -> None:
        """Report the acceptance of ``message`` by the dispatcher, then its immediate consequences."""
        requests = self.dispatch.requests
        number, said, key = requests.last_number, len(link.outbox), message[KEY]
        at_once: list[tuple[bytes, Link, int]] = []
        self._at_once = at_once
        try:
            self.dispatch.accept(now, link, message)
        finally:
            self._at_once = None
            refused = any(m[KIND_AT] == Kind.ERROR and m[KEY] == key for m in link.outbox[said:])
            if requests.last_number > number and not refused:
                self._watch.accepted(message)
            for delivered in at_once:
                self._watch.dispatched(*delivered)

    def _delivered(self, delivery: Delivery) -> None:
        delivered = delivery.request.message, delivery.consumer.link, delivery.attempt
        if self._at_once is None:
            self._watch.dispatched(*delivered)
        else:
            self._at_once.append(delivered)

    def _recorded(self, now: float, request: Request, outcome: int) -> None:
        if request.message[KIND_AT] == Kind.CAST:
            self._watch.settled(request.message, outcome)

    def _link_changed(self, now: float, link: Link) -> None:
        self._watch.declared(link)
        super()._link_changed(now, link)
