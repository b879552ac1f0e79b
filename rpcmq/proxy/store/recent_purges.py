"""Purges that count for responses which are still on their way into a store, or not yet removed from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.purge import Purge, PurgeKind

__all__ = ["RecentPurges"]


class RecentPurges:
    """The latest purges, found by what they are about. ``max_purges`` bounds them: older ones are forgotten.

    For a response whose request is older than a forgotten purge nobody can tell any more: :attr:`forgotten_at` is that
    time.
    """

    def __init__(self, purges: Iterable[Purge] = (), *, max_purges: int = 4096) -> None:
        self.forgotten_at = 0.0
        self._max_purges = max_purges
        self._by_value: dict[tuple[PurgeKind, str], list[Purge]] = {}
        self._prefixes: dict[str, list[Purge]] = {}
        self._order: dict[Purge, None] = {}
        for purge in purges:
            self.add(purge)

    def add(self, purge: Purge) -> None:
        """Add a purge."""
        if purge in self._order:
            return
        self._order[purge] = None
        if purge.kind is PurgeKind.PREFIX:
            self._prefixes.setdefault(purge.value, []).append(purge)
        else:
            self._by_value.setdefault((purge.kind, purge.value), []).append(purge)
        if len(self._order) > self._max_purges:
            self._forget(next(iter(self._order)))

    def discard(self, purge: Purge) -> None:
        """Drop a purge, which has been carried out, if it is there."""
        if purge in self._order:
            self._drop(purge)

    def applied_to(self, entry: StoredResponse) -> StoredResponse | None:
        """Return ``entry``, stale where a soft purge is about it; None: it is purged."""
        if not self._order:
            return entry
        for purge in self._about(entry):
            kept = purge.applied_to(entry)
            if kept is None:
                return None
            entry = kept
        return entry

    def may_be_stored(self, entry: StoredResponse) -> bool:
        """Return whether no purge came since the request of ``entry`` was sent that is, or may be, about it."""
        return entry.requested_at > self.forgotten_at and self.applied_to(entry) is entry

    def __contains__(self, purge: object) -> bool:
        return purge in self._order

    def __iter__(self) -> Iterator[Purge]:
        return iter(list(self._order))

    def __len__(self) -> int:
        return len(self._order)

    def _about(self, entry: StoredResponse) -> Iterator[Purge]:
        yield from self._by_value.get((PurgeKind.URL, entry.key), ())
        yield from self._by_value.get((PurgeKind.ALL, ""), ())
        for tag in entry.tags:
            yield from self._by_value.get((PurgeKind.TAG, tag), ())
        for prefix, purges in self._prefixes.items():
            if entry.key.startswith(prefix):
                yield from purges

    def _forget(self, purge: Purge) -> None:
        self._drop(purge)
        self.forgotten_at = max(self.forgotten_at, purge.at)

    def _drop(self, purge: Purge) -> None:
        del self._order[purge]
        if purge.kind is PurgeKind.PREFIX:
            kept, key = self._prefixes, purge.value
            kept[key].remove(purge)
            if not kept[key]:
                del kept[key]
            return
        purges = self._by_value[purge.kind, purge.value]
        purges.remove(purge)
        if not purges:
            del self._by_value[purge.kind, purge.value]
