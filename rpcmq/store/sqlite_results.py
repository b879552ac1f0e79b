"""The results of items in a SQLite store, kept until their time is over, each with a checksum."""

from __future__ import annotations

import apsw

from rpcmq.store.contract import KEPT_OVERHEAD, Expire, Keep, Lane
from rpcmq.store.sqlite_file import is_whole, row_checksum, rows_of

__all__ = ["Results"]

_SIZE = f"coalesce(sum(length(CAST(value AS BLOB)) + {KEPT_OVERHEAD}), 0)"


class Results:
    """The table of results."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def sizes(self) -> dict[str, int]:
        """The bytes of the results of each queue."""
        return dict(self._connection.execute(f"SELECT queue, {_SIZE} FROM results GROUP BY queue"))

    def keep(self, keep: Keep) -> None:
        """Keep a result."""
        lane, number, until, value = keep
        crc = row_checksum((lane.priority, number, until), value)
        self._connection.execute("REPLACE INTO results VALUES (?, ?, ?, ?, ?, ?)", (*lane, number, until, value, crc))

    def expire(self, expire: Expire) -> int:
        """Forget results whose time is over; return their bytes."""
        queue, until = expire
        ((size,),) = rows_of(self._connection, f"SELECT {_SIZE} FROM results WHERE queue = ? AND until <= ?", *expire)
        if size:
            self._connection.execute("DELETE FROM results WHERE queue = ? AND until <= ?", (queue, until))
        return int(size)

    def find(self, lane: Lane, number: int) -> bytes:
        """The result of an item; empty: none is kept, or it is damaged."""
        query = "SELECT until, value, crc FROM results WHERE queue = ? AND priority = ? AND number = ?"
        for until, value, crc in rows_of(self._connection, query, *lane, number):
            if is_whole(crc, (lane.priority, number, until), value):
                return bytes(value)
        return b""
