"""The ids that users gave to items, remembered for a time.

An index over random ids is what makes a deep queue slow, so that it is kept small: one table for each period, and a
period is dropped as a whole when its ids need not be remembered any more.
"""

from __future__ import annotations

import apsw

from rpcmq.store.contract import Put

__all__ = ["Ids"]

#: Periods that are looked into for an id, at the most, but for the present one.
_PERIODS = 4


class Ids:
    """The ids of all queues.

    Args:
        kept: milliseconds for which an id is remembered, at the least.
    """

    def __init__(self, connection: apsw.Connection, kept: int) -> None:
        self._connection = connection
        self._kept = kept
        #: Period -> the time at which it began; the newest last.
        self._periods: dict[int, int] = dict(connection.execute("SELECT period, begins FROM periods ORDER BY period"))

    def digest_of(self, put: Put) -> bytes | None:
        """The digest of the item that has the id of ``put``; None: no item has it."""
        key = _key(put)
        for period in reversed(self._periods):
            query = f"SELECT digest FROM ids_{period} WHERE id = ?"
            for (digest,) in self._connection.execute(query, (key,)):
                return bytes(digest)
        return None

    def add(self, put: Put) -> None:
        """Remember the id of ``put``, in the transaction that puts it."""
        newest = next(reversed(self._periods), 0)
        if not newest or put.at >= self._periods[newest] + self._kept // _PERIODS:
            newest = self._begin(newest + 1, put.at)
        self._connection.execute(f"INSERT INTO ids_{newest} VALUES (?, ?)", (_key(put), put.digest))

    def _begin(self, period: int, at: int) -> int:
        self._connection.execute(f"CREATE TABLE ids_{period} (id BLOB PRIMARY KEY, digest BLOB NOT NULL) WITHOUT ROWID")
        self._connection.execute("INSERT INTO periods VALUES (?, ?)", (period, at))
        self._periods[period] = at
        ends = {each: self._periods.get(each + 1, at) for each in self._periods}
        for old in [each for each, end in ends.items() if each != period and end + self._kept < at]:
            self._connection.execute(f"DROP TABLE ids_{old}")
            self._connection.execute("DELETE FROM periods WHERE period = ?", (old,))
            del self._periods[old]
        return period


def _key(put: Put) -> bytes:
    return put.lane.queue.encode() + b"\0" + put.id
