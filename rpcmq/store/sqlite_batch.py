"""One commit of a SQLite store: the rows of many changes, and then the picture of them in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from rpcmq.store.contract import (
    NOTHING,
    Bury,
    Change,
    Done,
    Expire,
    Forget,
    Keep,
    Lane,
    Maker,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Release,
    Revive,
    Stored,
    Verdict,
)
from rpcmq.store.known_makers import KnownMakers
from rpcmq.store.segments import Segment
from rpcmq.store.sqlite_dead import Dead
from rpcmq.store.sqlite_file import is_whole, item_checksum, row_checksum, rows_of
from rpcmq.store.sqlite_ids import Ids
from rpcmq.store.sqlite_results import Results
from rpcmq.store.sqlite_tables import MAKERS, MAKERS_FROM, Tables, packed_numbers
from rpcmq.store.sqlite_uniques import Uniques

__all__ = ["Batch", "verdict_of"]

#: Producers that have put nothing for so long are forgotten (milliseconds).
_MAKERS_KEPT = 24 * 3600 * 1000
#: The place of the body in the row of an item.
_BODY = 6
_KNOWN = Verdict(is_known=True)
_OTHER = Verdict(is_known=True, is_other=True)


class Batch:
    """The changes of one commit. After a failure the connection is of no use, and nor is the batch."""

    def __init__(self, connection: apsw.Connection, tables: Tables, makers: KnownMakers, ids: Ids, dead: Dead) -> None:
        self._connection = connection
        self._tables = tables
        self._makers = makers
        self._ids = ids
        self._dead = dead
        self._results = Results(connection)
        self._uniques = Uniques(connection)
        #: Segments that are made, and those of each lane to which items are added.
        self._new: list[tuple[Lane, Segment]] = []
        self._parts: dict[Lane, list[_Part]] = {}
        self._put: dict[Maker, int] = {}
        self._ended: dict[Segment, dict[int, int]] = {}
        self._postponed: dict[tuple[Segment, int], None] = {}
        self._dropped: list[tuple[Lane, Segment]] = []

    def run(self, changes: Sequence[Change]) -> list[Verdict]:
        """Do ``changes`` within a transaction."""
        verdicts = [self._do(change) for change in changes]
        for parts in self._parts.values():
            for part in parts:
                segment = part.segment
                self._connection.executemany(
                    f"INSERT INTO items_{segment.name} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", part.rows
                )
                if segment.is_full_with(len(part.rows), part.size):
                    noted = (segment.put_bytes + part.size, segment.name)
                    self._connection.execute("UPDATE segments SET bytes = ? WHERE segment = ?", noted)
        for segment, numbers in self._ended.items():
            row, size = packed_numbers(segment, numbers), sum(numbers.values())
            insert = f"INSERT INTO ended_{segment.name} (numbers, bytes, crc) VALUES (?, ?, ?)"
            self._connection.execute(insert, (row, size, row_checksum((size,), row)))
        self._drop_segments()
        if self._new or self._dropped:
            self._note_makers()
        return verdicts

    def committed(self) -> None:
        """The commit is durable: everything counts from now on."""
        for maker, at in self._put.items():
            self._makers.add(maker, at)
        for lane, segment in self._new:
            self._tables.add(lane, segment)
        for parts in self._parts.values():
            for part in parts:
                part.segment.add(len(part.rows), part.size)
        for segment, numbers in self._ended.items():
            for number, size in numbers.items():
                if segment.end(number):
                    segment.ended_bytes += size
        for segment, number in self._postponed:
            if segment.is_open(number):
                segment.postpone(number)
        for lane, segment in self._dropped:
            self._tables.drop(lane, segment)

    def _do(self, change: Change) -> Verdict:
        match change:
            case Put():
                return self._put_item(change)
            case Done(lane, number, size):
                self._end(lane, number, size)
            case Postpone(lane, number, due, state):
                self._postpone(lane, number, due, state)
            case Bury():
                self._bury(change)
            case Revive():
                return self._revive(change)
            case Move():
                return self._move(change)
            case Release():
                self._uniques.release(change)
            case Keep():
                self._results.keep(change)
            case Expire():
                return Verdict(self._results.expire(change))
            case Forget(lane, number):
                return Verdict(number if self._dead.forget(lane, number) else 0)
            case Note(name, value) if value:
                self._connection.execute("REPLACE INTO notes VALUES (?, ?)", (name, value))
            case Note(name, _):
                self._connection.execute("DELETE FROM notes WHERE name = ?", (name,))
        return NOTHING

    # --- items -------------------------------------------------------------------------------

    def _put_item(self, put: Put) -> Verdict:
        lane, body, at, due, id, maker, digest, _, unique = put
        verdict = _KNOWN if maker in self._put else verdict_of(put, self._ids, self._makers)
        if verdict.is_known:
            return verdict
        if unique and put in self._uniques:
            return _KNOWN
        if id:
            self._ids.add(put)
        elif maker.producer:
            self._put[maker] = at
        segment, number = self._append(lane, at, due, id, maker, body, digest)
        if due:
            self._write_postponed(segment, number, due, b"")
        if unique:
            self._uniques.add(put, number)
        return Verdict(number)

    def _append(
        self, lane: Lane, at: int, due: int, id: bytes, maker: Maker, body: bytes, digest: bytes
    ) -> tuple[Segment, int]:
        parts = self._parts.get(lane)
        if parts is None:
            segments = self._tables.lanes.get(lane)
            segment = segments[-1] if segments and not segments[-1].is_full else self._new_segment(lane)
            parts = self._parts[lane] = [_Part(segment)]
        part = parts[-1]
        segment, rows = part.segment, part.rows
        if segment.is_full_with(len(rows), part.size):
            part = _Part(self._new_segment(lane))
            parts.append(part)
            segment, rows = part.segment, part.rows
        number = segment.next + len(rows)
        producer, counter = maker
        crc = item_checksum(number, at, due, producer, counter, id, body, digest)
        rows.append((number, at, due, id, producer, counter, body, digest, crc))
        part.size += len(body)
        return segment, number

    def _new_segment(self, lane: Lane) -> Segment:
        parts, segments = self._parts.get(lane), self._tables.lanes.get(lane)
        if parts:
            first = parts[-1].segment.next + len(parts[-1].rows)
        else:
            first = segments[-1].next if segments else 1
        execute = self._connection.execute
        execute("INSERT INTO segments (queue, priority, first) VALUES (?, ?, ?)", (lane.queue, lane.priority, first))
        name = self._connection.last_insert_rowid()
        execute(
            f"CREATE TABLE items_{name} (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, due INTEGER NOT NULL,"
            " id BLOB NOT NULL, producer INTEGER NOT NULL, counter INTEGER NOT NULL, body BLOB NOT NULL,"
            " digest BLOB NOT NULL, crc INTEGER NOT NULL)"
        )
        execute(
            f"CREATE TABLE ended_{name} (batch INTEGER PRIMARY KEY, numbers BLOB NOT NULL,"
            " bytes INTEGER NOT NULL, crc INTEGER NOT NULL)"
        )
        segment = self._tables.segment(name, first)
        self._new.append((lane, segment))
        return segment

    def _note_makers(self) -> None:
        """Note who has made what was put before.

        So the next opening need not read more than the last segments, and those that are dropped are remembered.
        """
        self._makers.forget_before(max(self._put.values(), default=0) - _MAKERS_KEPT)
        read = {str(each.name): each.next for segments in self._tables.lanes.values() for each in segments}
        notes = ((MAKERS, self._makers.snapshot()), (MAKERS_FROM, json.dumps(read).encode()))
        self._connection.executemany("REPLACE INTO notes VALUES (?, ?)", notes)

    # --- ends --------------------------------------------------------------------------------

    def _open(self, lane: Lane, number: int) -> Segment | None:
        """The segment of an item that has not ended, in this commit neither; None: it has."""
        segment = self._tables.find(lane, number)
        if segment is None or not segment.is_open(number) or number in self._ended.get(segment, ()):
            return None
        return segment

    def _end(self, lane: Lane, number: int, size: int) -> Segment | None:
        segment = self._open(lane, number)
        if segment is None:
            return None
        if segment.is_postponed(number) or (segment, number) in self._postponed:
            self._connection.execute("DELETE FROM postponed WHERE segment = ? AND number = ?", (segment.name, number))
        self._ended.setdefault(segment, {})[number] = size
        return segment

    def _postpone(self, lane: Lane, number: int, due: int, state: bytes) -> None:
        segment = self._open(lane, number)
        if segment is not None:
            self._write_postponed(segment, number, due, state)

    def _write_postponed(self, segment: Segment, number: int, due: int, state: bytes) -> None:
        row = (segment.name, number, due, state, row_checksum((segment.name, number, due), state))
        self._connection.execute("REPLACE INTO postponed VALUES (?, ?, ?, ?, ?)", row)
        self._postponed[segment, number] = None

    def _bury(self, bury: Bury) -> None:
        lane, number, died, state = bury
        segment = self._open(lane, number)
        if segment is None:
            return
        for row in self._rows_of(segment, number):
            self._dead.add(lane, number, died, state, row)
            body = row[_BODY - 1]
            self._end(lane, number, len(body) if isinstance(body, bytes) else 0)

    def _rows_of(self, segment: Segment, number: int) -> list[tuple[Any, ...]]:
        query = f"SELECT at, due, id, producer, counter, body, digest, crc FROM items_{segment.name} WHERE number = ?"
        return rows_of(self._connection, query, number)

    def _revive(self, revive: Revive) -> Verdict:
        lane, number, due, state = revive
        taken = self._dead.take(lane, number)
        return NOTHING if taken is None else self._put_again(*taken, lane, due, state)

    def _move(self, move: Move) -> Verdict:
        lane, number, to, due, state = move
        segment = self._open(lane, number)
        if segment is None:
            taken = self._dead.take(lane, number)
            return NOTHING if taken is None else self._put_again(*taken, to, due, state)
        for at, late, id, producer, counter, body, digest, crc in self._rows_of(segment, number):
            if is_whole(crc, (number, at, late, producer, counter), id, body, digest):
                self._end(lane, number, len(body))
                item = Stored(Position(), lane, number, at, id, Maker(producer, counter), body, state)
                return self._put_again(item, digest, to, due, state)
        return NOTHING

    def _put_again(self, item: Stored, digest: bytes, to: Lane, due: int, state: bytes) -> Verdict:
        segment, number = self._append(to, item.at, due, item.id, item.maker, item.body, digest)
        if due:
            self._write_postponed(segment, number, due, state)
        return Verdict(number)

    def _drop_segments(self) -> None:
        """Drop the segments of which nothing is left, this commit included, but the last one of a lane."""
        grown = {lane for lane, _ in self._new}
        candidates = {each: self._tables.lane_of[each.name] for each in self._ended}
        candidates |= {self._tables.lanes[lane][-1]: lane for lane in grown if lane in self._tables.lanes}
        for segment, lane in candidates.items():
            ended = segment.ended + len(self._ended.get(segment, ()))
            is_last = self._tables.lanes[lane][-1] is segment and lane not in grown
            if is_last or not segment.is_full or ended < segment.count:
                continue
            for kind in ("items", "ended"):
                self._connection.execute(f"DROP TABLE {kind}_{segment.name}")
            self._connection.execute("DELETE FROM segments WHERE segment = ?", (segment.name,))
            self._dropped.append((lane, segment))


def verdict_of(put: Put, ids: Ids, makers: KnownMakers) -> Verdict:
    """The answer to ``put`` as far as its id goes: known, of other content, or neither."""
    if put.id:
        digest = ids.digest_of(put)
        return NOTHING if digest is None else _KNOWN if digest == put.digest else _OTHER
    return _KNOWN if put.maker in makers else NOTHING


class _Part:
    """The rows of items that a commit adds to one segment, and the bytes of their bodies."""

    __slots__ = ("rows", "segment", "size")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.rows: list[tuple[Any, ...]] = []
        self.size = 0
