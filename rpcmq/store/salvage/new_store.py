"""The store into which rows are saved, as they were and under their numbers, so that receipts go on to be right."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rpcmq.store.contract import Lane, Put
from rpcmq.store.salvage.cells import Row
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_dead import Dead
from rpcmq.store.sqlite_file import abandon, open_file, row_checksum, rows_of

__all__ = ["NewSegment", "NewStore"]

#: Rows that are written at once.
_AT_ONCE = 1000
#: As no row has it: of an item that is lost, which has its place only.
_NO_CHECKSUM = -1
#: The place of the first dead item that was none in the damaged file.
_FIRST_PLACE = 1 << 40


@dataclass
class NewSegment:
    """A segment, while its rows come.

    Attributes:
        name: of its tables.
        put_bytes: of the items that were put, where that is noted, for it was full.
        until: the last number that it can have.
        is_last: whether it is the last one of its lane.
        is_end_lost: whether its last items may be missing.
        ended: for each item, whether it has ended.
        is_open: after :meth:`NewStore.finish`, for each item whether it is there and has not ended.
    """

    name: int
    lane: Lane
    first: int
    put_bytes: int | None
    until: int
    is_last: bool = True
    is_end_lost: bool = False
    ended: bytearray = field(default_factory=bytearray)
    is_open: bytearray = field(default_factory=bytearray)

    def end(self, offsets: bytes) -> None:
        """So many items have ended."""
        for offset in array("I", offsets):
            if offset >= len(self.ended):
                self.ended += bytes(offset + 1 - len(self.ended))
            self.ended[offset] = 1

    def has_ended(self, number: int) -> bool:
        """Return whether it is known that the item has ended."""
        return 0 <= number - self.first < len(self.ended) and bool(self.ended[number - self.first])

    def has_open(self, number: int) -> bool:
        """Return whether the item is there and has not ended."""
        return 0 <= number - self.first < len(self.is_open) and bool(self.is_open[number - self.first])


class NewStore:
    """A new file, with tables as the store itself makes them.

    Raises:
        StoreError, StoreFailed: it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._definitions = _definitions()
        self._connection = open_file(path)
        self._dead = Dead(self._connection)
        self._unplaced = 0
        self._connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Have on the disk what has come."""
        self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")

    def close(self) -> None:
        """End it: all is in the file."""
        self._connection.execute("COMMIT")
        self._connection.close(True)

    def give_up(self) -> None:
        """Close what is not whole, after a failure."""
        abandon(self._connection)

    def insert(self, table: str, rows: Iterable[Row]) -> int:
        """Add rows; return how many."""
        rows, count = iter(rows), 0
        while some := [(row.key, *row.values[1:]) if row.key else row.values for row in islice(rows, _AT_ONCE)]:
            marks = ", ".join("?" * len(some[0]))
            self._connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", some)
            count += len(some)
        return count

    def has_item(self, item: Row) -> bool:
        """Return whether the row of an item is there."""
        crc = item.values[-1]
        return any(
            self._connection.execute(f"SELECT crc FROM items_{name} WHERE number = ?", (item.key,)).get == crc
            for (name,) in rows_of(self._connection, "SELECT segment FROM segments")
        )

    def note(self, name: str, value: bytes) -> None:
        """Note a value."""
        self._connection.execute("REPLACE INTO notes VALUES (?, ?)", (name, value))

    def add_segment(self, segment: NewSegment) -> None:
        """Make the tables of a segment."""
        row = (segment.name, *segment.lane, segment.first, segment.put_bytes)
        self._connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", row)
        for kind in ("items", "ended"):
            self.add_table(kind, segment.name)

    def add_table(self, kind: str, name: int) -> None:
        """Make a table of which there are many."""
        self._connection.execute(self._definitions[kind].format(f"{kind}_{name}"))

    def add_period(self, name: int, begins: int) -> None:
        """Make the table of the ids of a period."""
        self._connection.execute("INSERT INTO periods VALUES (?, ?)", (name, begins))
        self.add_table("ids", name)

    # --- what is known once all rows are there -----------------------------------------------

    def finish(self, segment: NewSegment) -> list[tuple[int, int]]:
        """Note which items of a segment have ended, and return the first and last numbers of those that are lost.

        A lost item is one that has ended. The first and the last one have a row, so that the segment has its bounds.
        """
        name, first = segment.name, segment.first
        sizes = dict(self._connection.execute(f"SELECT number, length(body) FROM items_{name}"))
        last = max(first + len(segment.ended) - 1, max(sizes, default=0))
        if segment.is_end_lost and not segment.is_last:
            last = segment.until
        if last < first:
            return []
        for edge in {first, last} - sizes.keys():
            row = (edge, 0, 0, b"", 0, 0, b"", b"", _NO_CHECKSUM)
            self._connection.execute(f"INSERT INTO items_{name} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        segment.ended += bytes(last - first + 1 - len(segment.ended))
        numbers = range(first, last + 1)
        segment.is_open = bytearray(number in sizes and not segment.ended[number - first] for number in numbers)
        lost = [number for number in numbers if number not in sizes and not segment.ended[number - first]]
        self._write_ended(segment, segment.put_bytes if segment.put_bytes is not None else sum(sizes.values()))
        return _ranges(lost)

    def _write_ended(self, segment: NewSegment, put_bytes: int) -> None:
        offsets = array("I", (at for at, is_open in enumerate(segment.is_open) if not is_open)).tobytes()
        open_bytes = sum(size for number, size in self._sizes(segment) if segment.has_open(number))
        size = max(put_bytes - open_bytes, 0)
        self._connection.execute(f"DELETE FROM ended_{segment.name}")
        if offsets:
            insert = f"INSERT INTO ended_{segment.name} (numbers, bytes, crc) VALUES (?, ?, ?)"
            self._connection.execute(insert, (offsets, size, row_checksum((size,), offsets)))

    def _sizes(self, segment: NewSegment) -> Iterator[tuple[int, int]]:
        return self._connection.execute(f"SELECT number, length(body) FROM items_{segment.name}")

    def keep_postponed(self, segment: NewSegment, is_whole: bool) -> int:
        """Leave out what postpones items that are not there; return how many items may run too early.

        Args:
            is_whole: whether each item that is postponed is known. Else those that were put with a delay have that
                again, and others that were to be tried again are ready.
        """
        known = set[int]()
        for (number,) in rows_of(self._connection, "SELECT number FROM postponed WHERE segment = ?", segment.name):
            known.add(number)
            if not segment.has_open(number):
                delete = "DELETE FROM postponed WHERE segment = ? AND number = ?"
                self._connection.execute(delete, (segment.name, number))
        if is_whole:
            return 0
        query = f"SELECT number, due FROM items_{segment.name} WHERE due > 0"
        for number, due in rows_of(self._connection, query):
            if segment.has_open(number) and number not in known:
                row = (segment.name, number, due, b"", row_checksum((segment.name, number, due), b""))
                self._connection.execute("INSERT INTO postponed VALUES (?, ?, ?, ?, ?)", row)
                known.add(number)
        return sum(segment.is_open) - sum(segment.has_open(number) for number in known)

    def keep_uniques(self, segments: Iterable[NewSegment]) -> None:
        """Leave out the unique keys of items that are not there: nobody would ever let go of them."""
        by_lane: dict[Lane, list[NewSegment]] = {}
        for segment in segments:
            by_lane.setdefault(segment.lane, []).append(segment)
        for queue, name, priority, number in rows_of(self._connection, "SELECT * FROM uniques"):
            if not any(each.has_open(number) for each in by_lane.get(Lane(queue, priority), ())):
                delete = "DELETE FROM uniques WHERE queue = ? AND name = ?"
                self._connection.execute(delete, (queue, name))

    # --- items for a person ------------------------------------------------------------------

    def bury_open(self, segment: NewSegment, died: int, state: bytes) -> int:
        """Move the items of a segment that have not ended to the dead ones; return how many."""
        count = 0
        query = f"SELECT number, at, due, id, producer, counter, body, digest, crc FROM items_{segment.name}"
        for number, *row in rows_of(self._connection, query):
            if segment.has_open(number):
                self._dead.add(segment.lane, number, died, state, tuple(row))
                segment.is_open[number - segment.first] = 0
                count += 1
        self._connection.execute("DELETE FROM postponed WHERE segment = ?", (segment.name,))
        ((size,),) = rows_of(self._connection, f"SELECT coalesce(sum(length(body)), 0) FROM items_{segment.name}")
        self._write_ended(segment, segment.put_bytes if segment.put_bytes is not None else int(size))
        return count

    def bury_unplaced(self, queue: str, items: Iterable[Row], died: int, state: bytes) -> int:
        """Add items whose queue is not known to the dead ones of ``queue``, with numbers of their own."""
        count = 0
        for item in items:
            self._unplaced += 1
            _, at, due, id, producer, counter, body, digest, _ = item.values
            crc = row_checksum((self._unplaced, at, due, producer, counter), id, body, digest)  # type: ignore[arg-type]
            row: tuple[Any, ...] = (at, due, id, producer, counter, body, digest, crc)
            self._dead.add(Lane(queue, 0), self._unplaced, died, state, row)
            count += 1
        return count

    def begin_unplaced(self, queue: str) -> None:
        """Number those after the dead ones that ``queue`` has, and have their places after all that may still come."""
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = 'dead'")
        self._connection.execute("INSERT INTO sqlite_sequence VALUES ('dead', ?)", (_FIRST_PLACE,))
        query = "SELECT coalesce(max(number), 0) FROM dead WHERE queue = ? AND priority = 0"
        ((self._unplaced,),) = rows_of(self._connection, query, queue)


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    """Numbers in their order, as first and last ones."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def _definitions() -> dict[str, str]:
    """The SQL of the tables of which there are many, by their kinds, as the store makes them."""
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "queue.db")
        store.apply([Put(Lane("queue", 0), b"", 1, id=b"id")])
        query = "SELECT name, sql FROM sqlite_schema WHERE name IN ('items_1', 'ended_1', 'ids_1')"
        found: dict[str, str] = dict(store._connection.execute(query))
        store.close()
    return {name[:-2]: sql.replace(name, "{}") for name, sql in found.items()}
