"""The unique keys of items that wait, in a SQLite store: there is one item of each."""

from __future__ import annotations

import apsw

from rpcmq.store.contract import Put, Release

__all__ = ["Uniques"]


class Uniques:
    """The table of unique keys."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def __contains__(self, put: Put) -> bool:
        """Return whether an item with the unique key of ``put``, which has one, waits."""
        query = "SELECT 1 FROM uniques WHERE queue = ? AND name = ?"
        return self._connection.execute(query, (put.lane.queue, put.unique)).get is not None

    def add(self, put: Put, number: int) -> None:
        """The item of ``put`` waits."""
        row = (put.lane.queue, put.unique, put.lane.priority, number)
        self._connection.execute("INSERT INTO uniques VALUES (?, ?, ?, ?)", row)

    def release(self, release: Release) -> None:
        """The item waits no more."""
        (queue, priority), number, unique = release
        if unique:
            delete = "DELETE FROM uniques WHERE queue = ? AND name = ? AND priority = ? AND number = ?"
            self._connection.execute(delete, (queue, unique, priority, number))
        else:
            delete = "DELETE FROM uniques WHERE queue = ? AND priority = ? AND number = ?"
            self._connection.execute(delete, (queue, priority, number))
