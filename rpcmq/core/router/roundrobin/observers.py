"""Observers of calls and casts: told of what passes, while there are any. Without one they cost nothing.

What an observer raises is reported, and keeps no message from going on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rpcmq.core.router.model import Delivery, Request
from rpcmq.core.router.roundrobin.dispatch import Dispatch

__all__ = ["Observer", "Observers"]


class Observer(Protocol):
    """Gets to know what passes."""

    def delivered(self, now: float, delivery: Delivery) -> None:
        """A request was given to a consumer, here or at another router."""

    def answered(self, now: float, delivery: Delivery, message: bytes) -> None:
        """A consumer has answered a call that somebody waited for."""

    def ended(self, now: float, request: Request, outcome: int) -> None:
        """A request has ended otherwise than by an answer."""


class Observers:
    """The observers of the calls and casts of one router.

    Args:
        dispatch: tracks the calls and casts.
        guarded: runs a step; see :meth:`rpcmq.core.router.faults.FaultReporter.guarded`.
    """

    def __init__(self, dispatch: Dispatch, guarded: Callable[..., None]) -> None:
        self._requests = dispatch.requests
        self._deliveries = dispatch.deliveries
        self._guarded = guarded
        self._observers: list[Observer] = []
        #: The hooks that were there before the first observer.
        self._on_delivered: Callable[[Delivery], None] | None = None
        self._on_recorded: Callable[[float, Request, int], None] | None = None

    def add(self, observer: Observer) -> None:
        """Tell ``observer`` from now on."""
        requests, deliveries = self._requests, self._deliveries
        if not self._observers:
            self._on_delivered, deliveries.on_delivered = deliveries.on_delivered, self._delivered
            self._on_recorded, requests.on_recorded = requests.on_recorded, self._recorded
            requests.on_answered, requests.watches_answers = self._answered, True
        if observer not in self._observers:
            self._observers.append(observer)

    def remove(self, observer: Observer) -> None:
        """Tell ``observer`` nothing more."""
        if observer not in self._observers:
            return
        self._observers.remove(observer)
        if not self._observers:
            requests = self._requests
            self._deliveries.on_delivered, requests.on_recorded = self._on_delivered, self._on_recorded
            requests.on_answered, requests.watches_answers = None, requests.owes_answers

    def _delivered(self, delivery: Delivery) -> None:
        if self._on_delivered is not None:
            self._on_delivered(delivery)
        for observer in self._observers[:]:
            self._guarded(delivery.dispatched_at, observer.delivered, delivery)

    def _recorded(self, now: float, request: Request, outcome: int) -> None:
        if self._on_recorded is not None:
            self._on_recorded(now, request, outcome)
        for observer in self._observers[:]:
            self._guarded(now, observer.ended, request, outcome)

    def _answered(self, now: float, delivery: Delivery, message: bytes) -> None:
        for observer in self._observers[:]:
            self._guarded(now, observer.answered, delivery, message)
