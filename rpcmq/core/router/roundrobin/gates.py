"""Gates: they say of calls and casts that no consumer may be given them. Without one they cost nothing."""

from __future__ import annotations

from typing import Protocol

from rpcmq.core.router.model import Request
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.explain import Explanation

__all__ = ["Gate", "Gates"]


class Gate(Protocol):
    """Stops requests before they are given to a consumer."""

    def stops(self, now: float, request: Request) -> Explanation | None:
        """The reason for which no consumer may be given ``request``; None: it may. Raises nothing."""


class Gates:
    """The gates of one router: a request goes on if none of them stops it."""

    def __init__(self, deliveries: Deliveries) -> None:
        self._deliveries = deliveries
        self._gates: list[Gate] = []

    def add(self, gate: Gate) -> None:
        """Ask ``gate`` from now on."""
        if gate not in self._gates:
            self._gates.append(gate)
        self._deliveries.gate = self._stops

    def remove(self, gate: Gate) -> None:
        """Ask ``gate`` no more."""
        if gate in self._gates:
            self._gates.remove(gate)
        if not self._gates:
            self._deliveries.gate = None

    def _stops(self, now: float, request: Request) -> Explanation | None:
        for gate in self._gates[:]:
            why = gate.stops(now, request)
            if why is not None:
                return why
        return None
