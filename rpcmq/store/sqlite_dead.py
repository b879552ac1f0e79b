"""The dead items of a SQLite store: whole rows, apart from the segments, which are dropped as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from rpcmq.store.contract import Damaged, Lane, Maker, Position, Stored
from rpcmq.store.sqlite_file import is_whole, row_checksum, rows_of

__all__ = ["Dead"]

_ROW = "place, queue, priority, number, died, at, id, producer, counter, body, digest, state, crc"
_ITEM = "queue = ? AND priority = ? AND number = ?"
#: As no row has it: of one that is not as it was written.
_NO_CHECKSUM = -1


class Dead:
    """The table of dead items."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def counts(self) -> dict[str, int]:
        """The number of dead items of each queue."""
        return dict(self._connection.execute("SELECT queue, count(*) FROM dead GROUP BY queue"))

    def sizes(self) -> dict[str, int]:
        """The bytes of the bodies of each queue."""
        query = "SELECT queue, sum(length(CAST(body AS BLOB))) FROM dead GROUP BY queue"
        return dict(self._connection.execute(query))

    def add(self, lane: Lane, number: int, died: int, state: bytes, row: tuple[Any, ...]) -> None:
        """Add an item, of which ``row`` is at, due, id, producer, counter, body, digest and crc as it was put.

        One that is damaged stays so: whatever of it cannot be stored is left out.
        """
        at, due, id, producer, counter, body, digest, crc = row
        values: tuple[Any, ...] = (at, id, producer, counter, body, digest)
        if is_whole(crc, (number, at, due, producer, counter), id, body, digest):
            crc = row_checksum((number, died, at, producer, counter), id, body, digest, state)
        else:
            crc = _NO_CHECKSUM
            values = tuple(0 if value is None else value for value in values)
        at, id, producer, counter, body, digest = values
        self._connection.execute(
            "INSERT INTO dead (queue, priority, number, died, at, id, producer, counter, body, digest, state, crc)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*lane, number, died, at, id, producer, counter, body, digest, state, crc),
        )

    def forget(self, lane: Lane, number: int) -> bool:
        """Forget an item; return whether it was there."""
        return bool(rows_of(self._connection, f"DELETE FROM dead WHERE {_ITEM} RETURNING 1", *lane, number))

    def find(self, lane: Lane, number: int) -> Stored | Damaged | None:
        """The item; None: it is not among the dead."""
        rows = rows_of(self._connection, f"SELECT {_ROW} FROM dead WHERE {_ITEM}", *lane, number)
        return next((item for item, _ in map(_item_of, rows)), None)

    def take(self, lane: Lane, number: int) -> tuple[Stored, bytes] | None:
        """Remove an item and return it, with its digest; None: it is not there, or damaged."""
        for row in rows_of(self._connection, f"SELECT {_ROW} FROM dead WHERE {_ITEM}", *lane, number):
            item, digest = _item_of(row)
            if isinstance(item, Stored):
                self.forget(lane, number)
                return item, digest
        return None

    def read(self, queue: str, after: Position) -> Iterator[Stored | Damaged]:
        """The dead of ``queue`` in the order in which they died."""
        query = f"SELECT {_ROW} FROM dead WHERE queue = ? AND place > ? ORDER BY place"
        for row in self._connection.execute(query, (queue, after.place)):
            yield _item_of(row)[0]


def _item_of(row: tuple[Any, ...]) -> tuple[Stored | Damaged, bytes]:
    """The item, and its digest."""
    place, queue, priority, number, died, at, id, producer, counter, body, digest, state, crc = row
    position, lane = Position(died, place, number), Lane(queue, priority)
    if not is_whole(crc, (number, died, at, producer, counter), id, body, digest, state):
        return Damaged(position, lane, number), b""
    return Stored(position, lane, number, at, id, Maker(producer, counter), body, state), digest
