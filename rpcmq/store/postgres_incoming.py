"""Items that users put in transactions of their own: they come into a table of the store, and its owners take them up.

Transactions do not commit in the order of their places, so no place is ever "the last one seen". Yet whoever looks from
the first one on reads past all rows that are gone and that another session's snapshot still holds, hours of them
beside a dump. So it looks from a place that is some seconds old, and now and then from the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

import psycopg

from rpcmq.store.contract import Incoming, Lane, Maker
from rpcmq.store.postgres_rows import bounded
from rpcmq.store.postgres_session import NOW

__all__ = ["IncomingTable"]

#: The place from which it looks is so old at the least, and it looks from the first one so often (seconds).
_SETTLED = 10.0
_COLUMNS = "place, queue, priority, at, due, expires, id, producer, counter, digest, series, message, unique_key"


class IncomingTable:
    """The table ``rpcmq.incoming``, which all owners share."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        #: The place after which a look begins, that of one after the next turn, and the last that was seen.
        self._after = self._next_after = self._seen = 0
        self._turn = monotonic()

    def read(self, most: int, most_bytes: int) -> list[Incoming]:
        """See :meth:`rpcmq.store.contract.Store.read_incoming`."""
        source = f"(SELECT *, {NOW} AS read_at FROM rpcmq.incoming) AS incoming WHERE place > %s"
        query = bounded(f"{_COLUMNS}, read_at", source, "place", "message")
        found: list[Incoming] = []
        for row in self._connection.execute(query, (self._begin(), most, most_bytes)):
            place, queue, priority, at, due, expires, id, producer, counter, digest, series, message, unique, now = row
            lane, maker = Lane(queue, priority), Maker(producer, counter)
            found.append(Incoming(place, lane, at, due, expires, id, maker, digest, series, message, unique, now))
        if found:
            self._seen = max(self._seen, found[-1].place)
        return found

    def _begin(self) -> int:
        if monotonic() - self._turn < _SETTLED:
            return self._after
        self._turn = monotonic()
        self._after, self._next_after = self._next_after, self._seen
        return 0

    def claim(self, places: Sequence[int]) -> set[int]:
        """Return the ``places`` that no other owner takes; they are ours until the end of the transaction."""
        query = "SELECT place FROM rpcmq.incoming WHERE place = ANY(%s) ORDER BY place FOR UPDATE SKIP LOCKED"
        return {place for (place,) in self._connection.execute(query, (list(places),))} if places else set()

    def remove(self, places: Sequence[int]) -> None:
        """Remove items that were claimed."""
        if places:
            self._connection.execute("DELETE FROM rpcmq.incoming WHERE place = ANY(%s)", (list(places),))
