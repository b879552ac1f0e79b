"""The engines that a connection drives: its uplink, and what a process runs on that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rpcmq.core.process.uplink import Uplink

__all__ = ["DrivenEngines", "Engine"]


class Engine(Protocol):
    """An engine driven by a connection, beside its uplink."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds); None if nothing is due."""

    @property
    def casts_at_risk(self) -> int:
        """Casts and events that the router may not have, those that wait among them."""


class DrivenEngines:
    """``uplink`` and the ``engines`` on it.

    Args:
        on_error: called with what :meth:`tick` of one of them has raised; the others are ticked all the same.
    """

    __slots__ = ("_engines", "_on_error", "_uplink")

    def __init__(self, uplink: Uplink, engines: Sequence[Engine], on_error: Callable[[Exception], None]) -> None:
        self._uplink = uplink
        self._engines = engines
        self._on_error = on_error

    def tick(self, now: float) -> None:
        """Have all do what is due."""
        ticks: list[Callable[[float], object]] = [self._uplink.tick, *(engine.tick for engine in self._engines)]
        for tick in ticks:
            try:
                tick(now)
            except Exception as error:
                self._on_error(error)

    def next_deadline(self) -> float | None:
        """The first time at which one of them has something to do; None if none has."""
        due = self._uplink.next_deadline()
        for engine in self._engines:
            deadline = engine.next_deadline()
            if deadline is not None and (due is None or deadline < due):
                due = deadline
        return due

    @property
    def casts_at_risk(self) -> int:
        """Casts and events that the router may not have."""
        return sum(engine.casts_at_risk for engine in self._engines)

    @property
    def has_more(self) -> bool:
        """Whether messages may not have reached the router. Without a connection only casts count."""
        uplink = self._uplink
        if uplink.ready and (uplink.outbox or uplink.unacknowledged):
            return True
        return self.casts_at_risk > 0
