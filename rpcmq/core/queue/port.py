"""The requests of a queue to its store, whose answers come later, and in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rpcmq.store.contract import Change, Damaged, Lane, Position, Stored, Verdict

__all__ = ["Items", "StorePort"]

Items = Sequence[Stored | Damaged]


class StorePort(Protocol):
    """A store that is asked by messages; see :class:`rpcmq.store.contract.Store` for each request."""

    @property
    def waits_for(self) -> str:
        """The reason for which nothing is answered at present; empty: nothing is the matter."""

    def apply(self, changes: Sequence[Change], then: Callable[[list[Verdict]], object]) -> None:
        """Make ``changes`` durable, and call ``then`` when they are."""

    def read(self, lane: Lane, after: int, most: int, most_bytes: int, then: Callable[[Items], object]) -> None:
        """Read items that are ready."""

    def read_due(self, now: int, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]) -> None:
        """Read items that are due."""

    def next_due(self, after: Position, then: Callable[[int], object]) -> None:
        """Ask for the time of the next postponed item."""
