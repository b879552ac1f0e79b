"""A small store in memory before one that processes share."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.purge import Purge
from rpcmq.proxy.store.contract import Body, Purged, Store, StoreStatistics, Writer
from rpcmq.proxy.store.memory import MemoryBody, MemoryStore

__all__ = ["TieredStore"]


class TieredStore:
    """Finds in ``memory`` what was used of late, and in ``shared`` everything.

    What another process has stored, refreshed or purged in ``shared`` is not seen while ``memory`` has an answer: ask
    :meth:`find_shared` before a request goes to the origin, and give each purge to all processes.

    Args:
        is_remote: ``shared`` is a server that may be owed purges of which only other processes know. A disk of this
            host is owed some only while it is full, or fails.
    """

    def __init__(self, memory: MemoryStore, shared: Store, *, is_remote: bool = False) -> None:
        self.memory = memory
        self.shared = shared
        self.is_remote = is_remote
        #: Whether anything is looked up in ``shared``.
        self.reads_shared = True

    def find(self, key: str) -> Sequence[StoredResponse]:
        """Return the stored responses of ``key`` that memory has, or all where it has none."""
        # To read all variants for each request would be dear where clients have made many. One that memory lacks is
        # found before the origin is asked.
        return self.memory.find(key) or (self.shared.find(key) if self.reads_shared else ())

    def find_shared(self, key: str) -> Sequence[StoredResponse]:
        """Return all stored responses of ``key``, the latest first."""
        return (self.shared.find(key) if self.reads_shared else ()) or self.memory.find(key)

    def open(self, entry: StoredResponse) -> Body | None:
        """Open the body of ``entry``; a small one is in memory afterwards."""
        body = self.memory.open(entry) or self.shared.open(entry)
        if body is None or entry.body_size > self.memory.max_body or self.memory.has(entry):
            return body
        try:
            whole = b"".join(body.read(0, entry.body_size))
        except OSError:
            # It is damaged, and gone now: a miss.
            return None
        finally:
            body.close()
        self.memory.put(entry, whole)
        return MemoryBody(whole)

    def create(self, entry: StoredResponse) -> Writer | None:
        """Begin to store the response of ``entry`` in both."""
        writers = [writer for store in (self.shared, self.memory) if (writer := store.create(entry)) is not None]
        return _TieredWriter(writers) if writers else None

    def refresh(self, entry: StoredResponse) -> bool:
        """Give the stored response of ``entry`` a new head in both."""
        is_kept = self.memory.refresh(entry)
        return self.shared.refresh(entry) or is_kept

    def remove(self, key: str) -> int:
        """Remove all stored responses of ``key`` from both."""
        return max(self.memory.remove(key), self.shared.remove(key))

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        """Purge both."""
        self.memory.purge(purge)
        return self.shared.purge(purge, confirm=confirm)

    def owed(self) -> Sequence[Purge]:
        """Return the purges that the shared store has yet to take."""
        return self.shared.owed()

    def settle(self) -> None:
        """Try to have the shared store take them."""
        self.shared.settle()

    def news(self, known: Container[Purge]) -> Sequence[Purge]:
        """Return what others have purged in the shared store, and purge memory of it."""
        found = self.shared.news(known)
        for purge in found:
            self.memory.purge(purge)
        return found

    def maintain(self, now: float) -> Iterator[None]:
        """Maintain both."""
        yield from self.memory.maintain(now)
        yield from self.shared.maintain(now)

    def statistics(self) -> StoreStatistics:
        """Return the counters of the shared store; ``memory`` has its own."""
        return self.shared.statistics()

    def close(self) -> None:
        """Close both."""
        self.memory.close()
        self.shared.close()


class _TieredWriter:
    """Writes to several stores, as long as one of them takes it."""

    def __init__(self, writers: list[Writer]) -> None:
        self._writers = writers

    def write(self, chunk: bytes) -> bool:
        self._writers = [writer for writer in self._writers if writer.write(chunk)]
        return bool(self._writers)

    def commit(self) -> StoredResponse | None:
        entries = [writer.commit() for writer in self._writers]
        return next((entry for entry in entries if entry is not None), None)

    def abort(self) -> None:
        for writer in self._writers:
            writer.abort()
