"""Items in one SQLite file, written as a journal: rows of items are appended, never changed.

The tables, of which a segment has two:

| table | has |
|---|---|
| ``items_N`` | the items of segment N |
| ``ended_N`` | the numbers of those that have ended, as many as ended in one commit in a row |
| ``postponed`` | time and state of what is postponed |
| ``dead`` | the items that are dead, whole |
| ``ids_N`` | the ids that users gave in one period, which is dropped when they are remembered no more |
| ``segments``, ``periods``, ``notes`` | the segments and periods; the epoch, and whatever the queues noted |

Each row of an item has a checksum: SQLite has none for its pages. It is opened with apsw, whose SQLite is the one that
the crash tests run; with ``synchronous=FULL`` a commit is synced before it returns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from rpcmq.store.contract import (
    Change,
    Damaged,
    Found,
    Incoming,
    Lane,
    Maker,
    Position,
    Put,
    Recovered,
    Stored,
    StoreDamaged,
    StoreError,
    StoreFailed,
    Verdict,
)
from rpcmq.store.known_makers import KnownMakers
from rpcmq.store.segments import SEGMENT_BYTES, SEGMENT_ITEMS, Segment
from rpcmq.store.sqlite_batch import Batch, verdict_of
from rpcmq.store.sqlite_dead import Dead
from rpcmq.store.sqlite_file import abandon, is_whole, open_file, reason_of, rows_of
from rpcmq.store.sqlite_ids import Ids
from rpcmq.store.sqlite_results import Results
from rpcmq.store.sqlite_tables import EPOCH, MAKERS, MAKERS_FROM, Tables

__all__ = ["IDS_KEPT", "SqliteStore"]

#: Ids that users gave are remembered for so long (milliseconds).
IDS_KEPT = 24 * 3600 * 1000
P = ParamSpec("P")
T = TypeVar("T")
_EVER = 1 << 62
_PRIVATE = (EPOCH, MAKERS, MAKERS_FROM)


def _on_disk(method: Callable[Concatenate[SqliteStore, P], T]) -> Callable[Concatenate[SqliteStore, P], T]:
    """Has ``method`` raise StoreFailed where SQLite fails; nothing else can be done with the connection then."""

    @wraps(method)
    def guarded(self: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except (apsw.Error, UnicodeDecodeError) as error:
            abandon(self._connection)
            kind = StoreDamaged if isinstance(error, apsw.CorruptError | UnicodeDecodeError) else StoreFailed
            raise kind(f"queue store {self._path}: {reason_of(error)}") from error

    return guarded


class SqliteStore:
    """The store in the file ``path``.

    Args:
        ids_kept: milliseconds for which ids are remembered that users gave, at the least.
        segment_items, segment_bytes: items of a segment, and bytes of their bodies.
        vfs: of SQLite, where tests have a disk of their own.

    Raises:
        StoreError: it cannot be used; the text says why.
        StoreFailed: the disk failed, or is full.
    """

    def __init__(
        self, path: Path, ids_kept: int = IDS_KEPT, segment_items: int = SEGMENT_ITEMS, vfs: str | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:  # fmt: skip
        self._path = path
        self._connection = open_file(path, vfs)
        try:
            self._tables = Tables(self._connection, segment_items, segment_bytes)
            self._dead = Dead(self._connection)
            self._results = Results(self._connection)
            self._ids = Ids(self._connection, ids_kept)
            notes = dict(self._connection.execute("SELECT name, value FROM notes"))
            self._recover_makers(notes)
            epoch = int.from_bytes(notes.get(EPOCH, b"")) + 1
            self._connection.execute("REPLACE INTO notes VALUES (?, ?)", (EPOCH, epoch.to_bytes(8)))
        except (apsw.Error, UnicodeDecodeError) as error:
            abandon(self._connection)
            kind = StoreFailed if isinstance(error, apsw.FullError | apsw.IOError) else StoreError
            raise kind(f"queue store {path}: {reason_of(error)}") from None
        except StoreError:
            abandon(self._connection)
            raise
        self._epoch = epoch
        #: The content at the opening.
        self.recovered = replace(
            self.recount(), notes={name: value for name, value in notes.items() if name not in _PRIVATE}
        )

    def _recover_makers(self, notes: dict[str, bytes]) -> None:
        self._makers = KnownMakers(notes.get(MAKERS, b""))
        known: dict[str, int] = json.loads(notes.get(MAKERS_FROM, b"{}"))
        for segments in self._tables.lanes.values():
            for segment in segments:
                # Whole rows: a counter that is none would have another item refused as known.
                query = (
                    "SELECT number, at, due, id, producer, counter, body, digest, crc"
                    f" FROM items_{segment.name} WHERE number >= ?"
                )
                for number, at, due, id, producer, counter, body, digest, crc in self._connection.execute(
                    query, (known.get(str(segment.name), 0),)
                ):
                    if producer and is_whole(crc, (number, at, due, producer, counter), id, body, digest):
                        self._makers.add(Maker(producer, counter), at)

    # --- changes -----------------------------------------------------------------------------

    @_on_disk
    def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """See :meth:`rpcmq.store.contract.Store.apply`."""
        batch = Batch(self._connection, self._tables, self._makers, self._ids, self._dead)
        self._connection.execute("BEGIN IMMEDIATE")
        verdicts = batch.run(changes)
        self._connection.execute("COMMIT")
        batch.committed()
        return verdicts

    # --- reading -----------------------------------------------------------------------------

    @_on_disk
    def read(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read`."""
        items: list[Stored | Damaged] = []
        for segment in self._tables.lanes.get(lane, ()):
            number = segment.next_ready(after + 1)
            while number and len(items) < most and most_bytes > 0:
                for item in self._ready_from(lane, segment, number):
                    items.append(item)
                    most_bytes -= len(item.body) if isinstance(item, Stored) else 0
                    if len(items) >= most or most_bytes <= 0:
                        return items
                    number = item.number
                number = segment.next_ready(number + 1)
        return items

    def _ready_from(self, lane: Lane, segment: Segment, first: int) -> Iterator[Stored | Damaged]:
        """The item ``first``, which is ready, and those that follow it and are."""
        query = (
            f"SELECT number, at, due, id, producer, counter, body, digest, crc FROM items_{segment.name}"
            " WHERE number >= ? ORDER BY number"
        )
        for number, at, due, id, producer, counter, body, digest, crc in self._connection.execute(query, (first,)):
            if not segment.is_ready(number):
                return  # what has ended here may be many thousands, and their bodies need not be read
            position = Position(0, segment.name, number)
            if is_whole(crc, (number, at, due, producer, counter), id, body, digest):
                yield Stored(position, lane, number, at, id, Maker(producer, counter), body, b"")
            else:
                yield Damaged(position, lane, number)

    @_on_disk
    def read_due(self, lane: Lane, now: int, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read_due`."""
        items: list[Stored | Damaged] = []
        for due, name, number, state, crc in self._tables.postponed(lane, after, now, most):
            position = Position(due, name, number)
            item = self._item(lane, name, number, position, state)
            if item is None or not is_whole(crc, (name, number, due), state):
                items.append(Damaged(position, lane, number))
                continue
            items.append(item)
            most_bytes -= len(item.body)
            if most_bytes <= 0:
                break
        return items

    def _item(self, lane: Lane, name: int, number: int, position: Position, state: bytes) -> Stored | None:
        """The item as it was put; None if its row is damaged."""
        query = f"SELECT at, due, id, producer, counter, body, digest, crc FROM items_{name} WHERE number = ?"
        for at, due, id, producer, counter, body, digest, crc in rows_of(self._connection, query, number):
            if is_whole(crc, (number, at, due, producer, counter), id, body, digest):
                return Stored(position, lane, number, at, id, Maker(producer, counter), body, state)
        return None

    @_on_disk
    def next_due(self, lane: Lane, after: Position) -> int:
        """See :meth:`rpcmq.store.contract.Store.next_due`."""
        return next((int(due) for due, *_ in self._tables.postponed(lane, after, _EVER, 1)), 0)

    @_on_disk
    def find(self, lane: Lane, number: int) -> Found | None:
        """See :meth:`rpcmq.store.contract.Store.find`."""
        dead = self._dead.find(lane, number)
        if dead is not None:
            return Found("dead", dead)
        segment = self._tables.find(lane, number)
        if segment is None or not segment.is_open(number):
            return None
        position, state = Position(0, segment.name, number), b""
        if segment.is_postponed(number):
            query = "SELECT due, state FROM postponed WHERE segment = ? AND number = ?"
            ((due, state),) = rows_of(self._connection, query, segment.name, number)
            position = position._replace(due=due)
        item = self._item(lane, segment.name, number, position, state)
        return Found("postponed" if position.due else "ready", item or Damaged(position, lane, number))

    @_on_disk
    def result(self, lane: Lane, number: int) -> bytes:
        """See :meth:`rpcmq.store.contract.Store.result`."""
        return self._results.find(lane, number)

    @_on_disk
    def known(self, puts: Sequence[Put]) -> list[Verdict]:
        """See :meth:`rpcmq.store.contract.Store.known`."""
        return [verdict_of(put, self._ids, self._makers) for put in puts]

    @_on_disk
    def recount(self) -> Recovered:
        """See :meth:`rpcmq.store.contract.Store.recount`."""
        lanes, size = self._tables.lanes, self._dead.sizes()
        for lane, segments in lanes.items():
            size[lane.queue] = size.get(lane.queue, 0) + sum(each.put_bytes - each.ended_bytes for each in segments)
        return Recovered(
            self._epoch,
            {lane: sum(each.ready for each in segments) for lane, segments in lanes.items()},
            {lane: sum(each.postponed for each in segments) for lane, segments in lanes.items()},
            self._dead.counts(),
            size,
            self._results.sizes(),
            {},
        )

    @_on_disk
    def read_dead(self, queue: str, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read_dead`."""
        items: list[Stored | Damaged] = []
        for item in self._dead.read(queue, after):
            items.append(item)
            most_bytes -= len(item.body) if isinstance(item, Stored) else 0
            if len(items) >= most or most_bytes <= 0:
                break
        return items

    def read_incoming(self, most: int, most_bytes: int) -> list[Incoming]:
        """Nobody else has the file open."""
        return []

    def close(self) -> None:
        """Close it in order: the write-ahead log goes into the file."""
        self._connection.close(True)
