"""The times of a queue's oldest items, as far as they are in memory or cheap to ask for."""

from __future__ import annotations

from collections.abc import Iterable

from rpcmq.core.queue.port import Items, StorePort
from rpcmq.store.contract import Lane, Position, Stored

__all__ = ["Ages"]


class Ages:
    """Asks the store for the oldest items of ``queue`` where nothing of them is in memory; answers the next time."""

    def __init__(self, queue: str, store: StorePort) -> None:
        self._queue = queue
        self._store = store
        #: Milliseconds of the wall clock; None: it is being asked for; 0: not known.
        self._ready: int | None = 0
        self._dead: int | None = 0

    def ready(self, count: int, in_memory: Iterable[Stored], priorities: Iterable[int]) -> int:
        """The time at which the oldest of ``count`` ready items was put; 0: not known yet, or there is none.

        Args:
            in_memory: the next item of each lane.
        """
        if not count:
            return 0
        first = min((item.at for item in in_memory), default=0)
        if first:
            if self._ready:
                self._ready = 0  # it is outdated; one that is being asked for is not asked for twice
            return first
        if self._ready == 0:
            self._ready = None
            for priority in priorities:
                self._store.read(Lane(self._queue, priority), 0, 1, 1, self._know_ready)
        return self._ready or 0

    def _know_ready(self, items: Items) -> None:
        times = [item.at for item in items if isinstance(item, Stored)]
        self._ready = min([*times, *([self._ready] if self._ready else [])], default=self._ready or 0)

    def dead(self, count: int) -> int:
        """The time at which the first of ``count`` dead items died; 0: not known yet, or there is none."""
        if not count:
            self._dead = 0
        elif self._dead == 0:
            self._dead = None
            self._store.read_dead(self._queue, Position(), 1, 1, self._know_dead)
        return self._dead or 0

    def _know_dead(self, items: Items) -> None:
        self._dead = items[0].position.due if items else 0

    def forget_dead(self) -> None:
        """One of the dead is not there any more."""
        if self._dead:
            self._dead = 0
