"""A store in the memory of one process: the small tier before a shared one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.purge import Purge, PurgeKind
from rpcmq.proxy.store.contract import STEP_BYTES, Purged, StoreStatistics
from rpcmq.proxy.store.counters import Counters
from rpcmq.proxy.store.recent_purges import RecentPurges

__all__ = ["MemoryBody", "MemoryStore"]

#: Entries that one step of the maintenance looks at.
_STEP = 200


@dataclass(slots=True)
class _Item:
    entry: StoredResponse
    body: bytes
    size: int


class MemoryStore:
    """Stored responses in memory; what was used least recently has to go where the room ends.

    Args:
        max_bytes: bound of bodies and heads together.
        max_body: larger bodies are not stored.
        max_variants: most responses of one key.
    """

    def __init__(self, max_bytes: int, *, max_body: int = 1 << 20, max_variants: int = 64) -> None:
        self._max_bytes = max_bytes
        self.max_body = max_body
        self._max_variants = max_variants
        self._keys: OrderedDict[str, OrderedDict[str, _Item]] = OrderedDict()
        self._size = 0
        self._entries = 0
        self._counters = Counters()
        self._purges = RecentPurges()

    def find(self, key: str) -> Sequence[StoredResponse]:
        """Return the stored responses of ``key``, the latest first."""
        variants = self._keys.get(key)
        if variants is None:
            self._counters.misses += 1
            return ()
        self._keys.move_to_end(key)
        self._counters.hits += 1
        if len(variants) == 1:
            return [item.entry for item in variants.values()]
        return [item.entry for item in reversed(variants.values())]

    def open(self, entry: StoredResponse) -> MemoryBody | None:
        """Return the body of ``entry``; None: it is not there."""
        item = self._item(entry)
        return None if item is None else MemoryBody(item.body)

    def has(self, entry: StoredResponse) -> bool:
        """Return whether the body of ``entry`` is there."""
        return self._item(entry) is not None

    def create(self, entry: StoredResponse) -> _MemoryWriter | None:
        """Begin to store the response of ``entry``."""
        return _MemoryWriter(self, entry)

    def put(self, entry: StoredResponse, body: bytes) -> StoredResponse | None:
        """Store a whole response; None: it has no room, or was purged while it came."""
        whole = entry.with_body_size(len(body))
        size = len(body) + whole.memory_size
        if entry.body_size not in (-1, len(body)) or not self._purges.may_be_stored(entry):
            return None
        if len(body) > self.max_body or size > self._max_bytes:
            return None
        self._drop(entry)
        variants = self._keys.setdefault(entry.key, OrderedDict())
        variants[entry.variant] = _Item(whole, body, size)
        self._keys.move_to_end(entry.key)
        self._size += size
        self._entries += 1
        self._counters.stored += 1
        while len(variants) > self._max_variants:
            self._evict(entry.key)
        self._make_room()
        return whole

    def refresh(self, entry: StoredResponse) -> bool:
        """Give the stored response with that body the head of ``entry``."""
        item = self._item(entry)
        if item is None or not self._purges.may_be_stored(entry):
            return False
        size = len(item.body) + entry.memory_size
        self._size += size - item.size
        item.entry, item.size = entry.with_body_size(len(item.body)), size
        self._make_room()
        return True

    def remove(self, key: str) -> int:
        """Remove all stored responses of ``key``."""
        items = self._items(key)
        for item in items:
            self._drop(item.entry)
        self._counters.removed += len(items)
        return len(items)

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        """Remove, or make stale, what ``purge`` is about."""
        self._purges.add(purge)
        keys = [purge.value] if purge.kind is PurgeKind.URL else list(self._keys)
        meant = [item for key in keys for item in self._items(key) if purge.is_about(item.entry)]
        for item in meant:
            kept = purge.applied_to(item.entry)
            if kept is None:
                self._drop(item.entry)
                self._counters.removed += 1
            else:
                item.entry = kept
        return Purged(len(meant))

    def owed(self) -> Sequence[Purge]:
        """Return none: memory takes each purge at once."""
        return ()

    def settle(self) -> None:
        """Do nothing: nothing is owed."""

    def news(self, known: Container[Purge]) -> Sequence[Purge]:
        """Return none: memory is shared with nobody."""
        return ()

    def maintain(self, now: float) -> Iterator[None]:
        """Remove what is too old."""
        for number, key in enumerate(list(self._keys), 1):
            for item in self._items(key):
                if item.entry.useless_at <= now:
                    self._drop(item.entry)
                    self._counters.removed += 1
            if number % _STEP == 0:
                yield

    def statistics(self) -> StoreStatistics:
        """Return its counters."""
        return self._counters.statistics(self._entries, self._size, self._max_bytes)

    def close(self) -> None:
        """Forget everything."""
        self._keys.clear()
        self._size = self._entries = 0

    def _item(self, entry: StoredResponse) -> _Item | None:
        variants = self._keys.get(entry.key)
        item = None if variants is None else variants.get(entry.variant)
        return item if item is not None and item.entry.body_id == entry.body_id else None

    def _items(self, key: str) -> list[_Item]:
        variants = self._keys.get(key)
        return [] if variants is None else list(variants.values())

    def _make_room(self) -> None:
        while self._size > self._max_bytes and self._keys:
            self._evict(next(iter(self._keys)))

    def _evict(self, key: str) -> None:
        self._drop(next(iter(self._keys[key].values())).entry)
        self._counters.evicted += 1

    def _drop(self, entry: StoredResponse) -> None:
        variants = self._keys.get(entry.key)
        item = None if variants is None else variants.pop(entry.variant, None)
        if variants is None or item is None:
            return
        self._size -= item.size
        self._entries -= 1
        if not variants:
            del self._keys[entry.key]


class MemoryBody:
    """A body in memory."""

    def __init__(self, body: bytes) -> None:
        self.whole = body

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``stop``."""
        for position in range(start, min(stop, len(self.whole)), STEP_BYTES):
            yield self.whole[position : min(position + STEP_BYTES, stop)]

    def close(self) -> None:
        """Do nothing: memory needs no closing."""


class _MemoryWriter:
    def __init__(self, store: MemoryStore, entry: StoredResponse) -> None:
        self._store = store
        self._entry = entry
        self._room = store.max_body
        self._chunks: list[bytes] | None = []

    def write(self, chunk: bytes) -> bool:
        self._room -= len(chunk)
        if self._chunks is None or self._room < 0:
            self.abort()
            return False
        self._chunks.append(chunk)
        return True

    def commit(self) -> StoredResponse | None:
        chunks, self._chunks = self._chunks, None
        return None if chunks is None else self._store.put(self._entry, b"".join(chunks))

    def abort(self) -> None:
        self._chunks = None
