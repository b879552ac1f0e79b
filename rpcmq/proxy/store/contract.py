"""The contract between the proxy and its stores."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.purge import Purge

__all__ = ["STEP_BYTES", "Body", "Purged", "Store", "StoreStatistics", "Writer"]

STEP_BYTES = 256 << 10
"""The most bytes that a store reads or writes at once: a file blocks the loop for no longer."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Counters of a store since it was opened, and its size now.

    Attributes:
        entries: stored responses, as far as the store knows without counting.
        size_bytes: bytes that they take.
        max_bytes: the bound of those; 0: the store has none of its own.
        hits, misses: look-ups that found something, and that found nothing.
        stored: bodies that were stored.
        evicted: stored responses that were removed to make room.
        removed: stored responses that were purged, or too old.
        failed: operations that the disk or the server failed; each was a miss, or a body that was not stored.
        corrupt: stored responses that were found damaged, and were removed.
        disk_full: times at which stored responses gave way because the disk was full, though the store was not.
        is_storing: whether the disk takes what is to be stored, as far as is known.
    """

    entries: int
    size_bytes: int
    max_bytes: int
    hits: int
    misses: int
    stored: int
    evicted: int
    removed: int
    failed: int
    corrupt: int
    disk_full: int = 0
    is_storing: bool = True


@dataclass(frozen=True, slots=True)
class Purged:
    """The effect of a purge.

    Attributes:
        count: stored responses that it was about; None: they were not counted.
        is_recorded: whether it outlasts this process: whoever opens the store from now on obeys it.
    """

    count: int | None
    is_recorded: bool = True


class Body(Protocol):
    """The body of a stored response, open for reading. One that is evicted meanwhile stays readable, or raises."""

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` (with) to ``stop`` (without), at most :data:`STEP_BYTES` at once.

        Raises:
            OSError: the store does not have them any more, or they are damaged; those that were yielded are not
            complete.
        """

    def close(self) -> None:
        """Let go of it. May be called again."""


class Writer(Protocol):
    """A body on its way into a store; nobody can see it before it is committed."""

    def write(self, chunk: bytes) -> bool:
        """Append ``chunk``; return whether the body can still be stored: go on without the writer if it cannot."""

    def commit(self) -> StoredResponse | None:
        """Make the whole body visible, in place of the one that the same variant had; return its entry.

        Returns None, and stores nothing, where the body does not have the ``body_size`` that its entry declares, or
        the store fails, or a purge of it came since the request was sent.
        """

    def abort(self) -> None:
        """Forget the body. May be called again, and after :meth:`commit`."""


class Store(Protocol):
    """Stored responses, found by key. No method raises for a store that fails: what it would have is not there, and is
    counted.

    A store belongs to one process: one that forks makes its own afterwards. Methods are called by one thread at a time.
    """

    def find(self, key: str) -> Sequence[StoredResponse]:
        """Return the stored responses of ``key``, all its variants, the latest first; purged ones are not among
        them.
        """

    def open(self, entry: StoredResponse) -> Body | None:
        """Open the body of ``entry``, as :meth:`find` returned it; None: it is not there any more, or another one
        is.
        """

    def create(self, entry: StoredResponse) -> Writer | None:
        """Begin to store the response of ``entry``; None: it cannot be stored."""

    def refresh(self, entry: StoredResponse) -> bool:
        """Give the stored response of that key and variant the head of ``entry``; its body stays. False: it is not
        there.
        """

    def remove(self, key: str) -> int:
        """Remove all stored responses of ``key``; return how many there were."""

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        """Remove, or make stale, what ``purge`` is about.

        Args:
            confirm: take the time that it needs to outlast a server that is killed.

        From its return on, nothing is served here that it is about, nor stored by a writer whose request was sent
        before. Doing it again does no harm. One that the disk or the server does not take is owed to it: this process
        obeys it, and so does another one that is given it.
        """

    def owed(self) -> Sequence[Purge]:
        """Return the purges that the disk or the server has yet to take, the oldest first."""

    def settle(self) -> None:
        """Try to have the disk or the server take the purges that are owed to it."""

    def news(self, known: Container[Purge]) -> Sequence[Purge]:
        """Return purges that other processes have had recorded since the last call, but for those that are ``known``.

        They count in memory from then on, for whoever was not told of them. The first call may return older ones.
        """

    def maintain(self, now: float) -> Iterator[None]:
        """Evict what has no room, drop what is too old, check what is there, at the time ``now`` of the wall clock.

        Call it each minute or so, and iterate over it: each step takes a few milliseconds at most. Of several
        processes with the same store one has something to do.
        """

    def statistics(self) -> StoreStatistics:
        """Return its counters."""

    def close(self) -> None:
        """Let go of all that is open."""
