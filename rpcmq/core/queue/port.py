"""The requests of a queue to its store, whose answers come later, and in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rpcmq.store.contract import Change, Damaged, Found, Incoming, Lane, Position, Put, Recovered, Stored, Verdict

__all__ = ["Items", "StorePort"]

Items = Sequence[Stored | Damaged]


class StorePort(Protocol):
    """A store that is asked by messages; see :class:`rpcmq.store.contract.Store` for each request."""

    #: Called when the store was opened again, before it answers what it had not answered then.
    on_reopened: Callable[[], object]

    @property
    def waits_for(self) -> str:
        """The reason for which nothing is answered at present; empty: nothing is the matter."""

    def apply(self, changes: Sequence[Change], then: Callable[[list[Verdict]], object]) -> None:
        """Make ``changes`` durable, and call ``then`` when they are."""

    def read(self, lane: Lane, after: int, most: int, most_bytes: int, then: Callable[[Items], object]) -> None:
        """Read items that are ready."""

    def read_due(
        self, lane: Lane, now: int, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]
    ) -> None:
        """Read items that are due."""

    def read_incoming(self, most: int, most_bytes: int, then: Callable[[Sequence[Incoming]], object]) -> None:
        """Read incoming items."""

    def next_due(self, lane: Lane, after: Position, then: Callable[[int], object]) -> None:
        """Ask for the time of the next postponed item."""

    def read_dead(
        self, queue: str, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]
    ) -> None:
        """Read items that are dead."""

    def find(self, lane: Lane, number: int, then: Callable[[Found | None], object]) -> None:
        """Look for one item."""

    def result(self, lane: Lane, number: int, then: Callable[[bytes], object]) -> None:
        """Ask for a result."""

    def known(self, puts: Sequence[Put], then: Callable[[list[Verdict]], object]) -> None:
        """Ask which items were put before."""

    def recount(self, then: Callable[[Recovered], object]) -> None:
        """Ask for the numbers of items."""
