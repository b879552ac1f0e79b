"""The segments of a SQLite store: their tables, and the picture of them in memory."""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from heapq import merge
from itertools import islice
from typing import Any

import apsw

from rpcmq.store.contract import Lane, Position, StoreError
from rpcmq.store.segments import SEGMENT_ITEMS, Segment
from rpcmq.store.sqlite_file import is_whole, rows_of

__all__ = ["EPOCH", "MAKERS", "MAKERS_FROM", "Tables", "packed_numbers"]

log = logging.getLogger("rpcmq.queue")

#: More than the number of any item.
_ALL = 1 << 62
#: Names of the store's own notes: its openings, and the makers of items up to some number of each segment.
EPOCH, MAKERS, MAKERS_FROM = ".epoch", ".makers", ".makers from"


class Tables:
    """All segments, as they are after the last commit.

    Args:
        segment_items, segment_bytes: items of a segment, and bytes of their bodies.

    Raises:
        StoreError: the record of what has ended, is postponed or is dead is damaged.
    """

    def __init__(self, connection: apsw.Connection, segment_items: int, segment_bytes: int) -> None:
        self._connection = connection
        self.segment_items = segment_items
        self.segment_bytes = segment_bytes
        #: The segments of each lane, in their order.
        self.lanes: dict[Lane, list[Segment]] = {}
        self.lane_of: dict[int, Lane] = {}
        for name, queue, priority, first, size in rows_of(connection, "SELECT * FROM segments ORDER BY segment"):
            lane = Lane(queue, priority)
            self.add(lane, self._read(name, first, size))
        # Of what is out of its index nobody would ever hear again; and no checksum of a row notices that.
        for table in ("postponed", "dead"):
            if not self._is_in_order(table):
                log.warning("queue store %s: indexes of its table %s are made anew", connection.filename, table)
                connection.execute(f"REINDEX {table}")
                if not self._is_in_order(table):
                    raise self._damaged(table, "of some items", "which items it has")
        for name, number, due, state, crc in connection.execute("SELECT * FROM postponed"):
            if not is_whole(crc, (name, number, due), state):
                raise self._damaged("postponed", number, "which items are postponed")
            segment = self.find(self.lane_of[name], number) if name in self.lane_of else None
            if segment is not None and segment.is_open(number):
                segment.postpone(number)

    def _read(self, name: int, first: int, size: int | None) -> Segment:
        segment = self.segment(name, first)
        last = self._connection.execute(f"SELECT max(number) FROM items_{name}").get
        begins = self._connection.execute(f"SELECT min(number) FROM items_{name}").get
        if begins not in (None, first):
            raise self._damaged("segments", name, "which items were done")
        count = last - first + 1 if last is not None else 0
        if not 0 <= count <= max(SEGMENT_ITEMS, self.segment_items):
            raise self._damaged(f"items_{name}", last, "the number of its items")
        if size is None:
            # It is not full yet: one that is has them noted.
            size = self._connection.execute(f"SELECT sum(length(CAST(body AS BLOB))) FROM items_{name}").get or 0
        segment.add(count, size)
        query = f"SELECT batch, numbers, bytes, crc FROM ended_{name}"
        for batch, numbers, ended, crc in self._connection.execute(query):
            if not is_whole(crc, (ended,), numbers):
                raise self._damaged(f"ended_{name}", batch, "which items were done")
            offsets = array("I", numbers)
            if max(offsets, default=-1) >= count:
                raise self._damaged(f"items_{name}", last, "which items there were")
            segment.ended_bytes += ended
            for offset in offsets:
                segment.end(first + offset)
        return segment

    def _is_in_order(self, table: str) -> bool:
        return bool(self._connection.execute(f"PRAGMA integrity_check({table})").get == "ok")

    def _damaged(self, table: str, row: object, unknown: str) -> StoreError:
        text = f"row {row} of its table {table} is damaged, so that {unknown} is not known: restore a copy of the file"
        return StoreError(f"queue store {self._connection.filename}: {text}")

    def segment(self, name: int, first: int) -> Segment:
        """A segment that is empty."""
        return Segment(name, first, self.segment_items, self.segment_bytes)

    def add(self, lane: Lane, segment: Segment) -> None:
        """A segment was made."""
        self.lanes.setdefault(lane, []).append(segment)
        self.lane_of[segment.name] = lane

    def drop(self, lane: Lane, segment: Segment) -> None:
        """A segment was dropped."""
        self.lanes[lane].remove(segment)
        del self.lane_of[segment.name]

    def postponed(self, lane: Lane, after: Position, until: int, most: int) -> list[tuple[Any, ...]]:
        """The first rows after ``after`` of the items of ``lane`` that are postponed until ``until`` at the latest."""
        query = (
            "SELECT due, segment, number, state, crc FROM postponed INDEXED BY postponed_in_segment"
            " WHERE segment = ? AND (due, number) > (?, ?) AND due <= ? ORDER BY due, number"
        )
        cursors: list[apsw.Cursor] = []
        try:
            for segment in self.lanes.get(lane, ()):
                if segment.postponed:
                    # Of those of one time the items of a former segment come first.
                    number = after.number if segment.name == after.place else _ALL if segment.name < after.place else 0
                    cursors.append(self._connection.cursor().execute(query, (segment.name, after.due, number, until)))
            return list(islice(merge(*cursors), most))
        finally:
            for cursor in cursors:
                cursor.close(True)

    def find(self, lane: Lane, number: int) -> Segment | None:
        """The segment of an item; None: it was dropped, or there was never one."""
        segments = self.lanes.get(lane)
        if not segments:
            return None
        at = bisect_right(segments, number, key=lambda segment: segment.first) - 1
        return segments[at] if at >= 0 and number < segments[at].next else None


def packed_numbers(segment: Segment, numbers: Iterable[int]) -> bytes:
    """Numbers of items of ``segment`` as a row of its table of what has ended."""
    first = segment.first
    return array("I", [number - first for number in numbers]).tobytes()
