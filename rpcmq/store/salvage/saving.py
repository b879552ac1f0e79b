"""Saving a damaged store into a new one: each row that is as it was written, and an account of all that is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import apsw

from rpcmq.store.contract import CLEAN, Lane, StoreError, StoreFailed
from rpcmq.store.known_makers import KnownMakers
from rpcmq.store.salvage.cells import Row
from rpcmq.store.salvage.new_store import NewSegment, NewStore
from rpcmq.store.salvage.pages import Pages, not_in_use
from rpcmq.store.salvage.report import Report
from rpcmq.store.salvage.rows import is_right, kind_of, kind_of_row
from rpcmq.store.salvage.trees import SCHEMA, Hole, Trees
from rpcmq.store.segments import SEGMENT_ITEMS
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import SCHEMA_VERSION, reason_of
from rpcmq.store.sqlite_tables import EPOCH, MAKERS, MAKERS_FROM

__all__ = ["Choices", "salvage"]

#: Tables whose rows are taken as they are, with the consequence where some are lost.
_PLAIN = {
    "dead": "dead items are lost, and some that were retried or dropped may be back",
    "results": "results are lost: who asks for one is told NoResult",
    "uniques": "unique keys are lost: a second item with one may be put while the first waits",
}
_IDS_LOST = "ids are lost: an item that is put again with one, or that a client repeats, is a new item"
_NOTES_LOST = (
    "notes are lost: settings of queues, what is paused or drained, and periodic items may be missing; look at them "
    "with `rpcmq queue show` and `rpcmq queue periodic`"
)
#: So many openings are jumped over where the last ones may be lost, so that no fence is used again.
_EPOCHS = 1 << 20


@dataclass(frozen=True)
class Choices:
    """Choices of whoever saves a store, and what the store itself does not know.

    Attributes:
        unplaced: the queue for items whose own one is not known, among the dead of which they are.
        is_parking: items that may have ended are among the dead, too.
        now: milliseconds of the wall clock.
        story: the state of a dead item with a reason.
        horizon: the name of the note with the last number of a lane that may have been given.
    """

    unplaced: str
    is_parking: bool
    now: int
    story: Callable[[str], bytes]
    horizon: Callable[[Lane], str]


def salvage(path: Path, to: Path, choices: Choices) -> Report:
    """Save what can be read of the store in ``path`` into a new one in ``to``, which is made.

    Nothing is written to ``path`` or its log, and no store can open it meanwhile. What was begun in ``to`` is gone
    where this fails.

    Raises:
        StoreError: ``path`` is no store, or is in use, or ``to`` is there already.
        StoreFailed, OSError: one of them cannot be read or written.
    """
    if to.exists():
        raise StoreError(f"{to} is there already: give the name of a file that is not")
    with not_in_use(path) as descriptor:
        pages = Pages(descriptor, path.with_name(f"{path.name}-wal"))
        try:
            _check_version(path, pages)
            with _made(to) as part:
                return _Salvage(pages, part, choices).run()
        except apsw.Error as error:
            raise StoreFailed(f"{to} cannot be written, and is not there: {reason_of(error)}") from error
        finally:
            pages.close()


def _check_version(path: Path, pages: Pages) -> None:
    try:
        version = pages.version
    except StoreError as error:
        raise StoreError(f"queue store {path}: {error}") from None
    if version > SCHEMA_VERSION:
        text = f"it has version {version}, and this rpcmq knows {SCHEMA_VERSION}: use the later one that has written it"
        raise StoreError(f"queue store {path}: {text}")


@contextmanager
def _made(to: Path) -> Iterator[Path]:
    """A file beside ``to``, which has its name once it is whole and on the disk."""
    part = to.with_name(f"{to.name}.part")
    to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        for name in _files(part):
            name.unlink(missing_ok=True)
        yield part
        os.replace(part, to)
        folder = os.open(to.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        for name in _files(part):
            with suppress(OSError):  # the failure of before says more
                name.unlink(missing_ok=True)


def _files(path: Path) -> list[Path]:
    return [path, path.with_name(f"{path.name}-wal")]


class _Salvage:
    def __init__(self, pages: Pages, to: Path, choices: Choices) -> None:
        self._pages, self._to, self._choices = pages, to, choices
        self._trees = Trees(pages)
        self._segments: dict[int, NewSegment] = {}
        self._notes: dict[str, bytes] = {}
        self._report = Report(pages.count, pages.is_checked)
        self._store = NewStore(to)

    def run(self) -> Report:
        store = self._store
        try:
            self._copy_segments()
            self._copy_others()
            self._take_orphans()
            self._finish()
            store.close()
        except BaseException:
            store.give_up()
            raise
        self._count()
        report, pages = self._report, self._pages
        report.unreadable, report.mended = sorted(pages.unreadable), sorted(pages.mended)
        report.log_pages_lost, report.is_last_commit_left_out = pages.lost_frames, pages.is_last_commit_left_out
        return report

    def _rows(self, table: str) -> Iterator[Row]:
        """The rows of a table that are as they were written."""
        kind = kind_of(table)
        for row in self._trees.rows(table):
            if is_right(kind, row):
                yield row
            else:
                self._trees.holes.setdefault(table, []).append(Hole(max(row.key - 1, 0), row.key or None))

    def _tables(self, kind: str) -> list[int]:
        """The numbers of the tables of which there are many."""
        names = (name.rpartition("_") for name in self._trees.roots)
        return sorted(int(number) for each, _, number in names if each == kind and number.isdecimal())

    # --- copying -----------------------------------------------------------------------------

    def _copy_segments(self) -> None:
        for row in self._rows("segments"):
            _, queue, priority, first, size = row.values
            lane, last = Lane(queue, priority), first + SEGMENT_ITEMS - 1  # type: ignore[arg-type,operator]
            segment = NewSegment(row.key, lane, first, size, last)  # type: ignore[arg-type]
            self._segments[segment.name] = segment
            self._store.add_segment(segment)
        self._bound_segments()
        for segment in self._segments.values():
            self._store.insert(f"items_{segment.name}", self._items(segment))
            for row in self._rows(f"ended_{segment.name}"):
                segment.end(row.values[1])  # type: ignore[arg-type]
            self._store.commit()

    def _bound_segments(self) -> None:
        following: dict[Lane, NewSegment] = {}
        for segment in reversed(self._segments.values()):
            if segment.lane in following:
                segment.is_last = False
                segment.until = min(segment.until, following[segment.lane].first - 1)
            following[segment.lane] = segment

    def _items(self, segment: NewSegment) -> Iterator[Row]:
        rows = self._rows(f"items_{segment.name}")
        return (row for row in rows if segment.first <= row.key <= segment.until)

    def _copy_others(self) -> None:
        for table in ("postponed", *_PLAIN):
            self._store.insert(table, self._rows(table))
            self._store.commit()
        begins = {row.key: row.values[1] for row in self._rows("periods")}
        for name in self._tables("ids"):
            begun = begins.get(name)
            self._store.add_period(name, begun if isinstance(begun, int) else self._choices.now)
            self._store.insert(f"ids_{name}", self._rows(f"ids_{name}"))
            self._store.commit()
        self._notes = {str(row.values[0]): _blob(row.values[1]) for row in self._rows("notes")}
        self._store.begin_unplaced(self._choices.unplaced)
        for name in self._tables("items"):
            if name not in self._segments:
                self._take_unplaced(name)

    def _take_unplaced(self, name: int) -> None:
        """Take the items of a segment of which is not known whose it is."""
        segment = NewSegment(name, Lane("", 0), 0, None, 0)
        items = self._rows(f"items_{name}")
        head = next(items, None)
        if head is None:
            return
        segment.first = head.key
        if all(hole.above for hole in self._trees.holes.get(f"items_{name}", ())):
            # What has ended is counted from the first one on.
            for row in self._rows(f"ended_{name}"):
                segment.end(_blob(row.values[1]))
        self._bury_unplaced(row for row in chain((head,), items) if not segment.has_ended(row.key))

    def _bury_unplaced(self, rows: Iterator[Row]) -> None:
        choices = self._choices
        story = choices.story("saved from a damaged file: its queue is not known, and it may be done")
        self._report.unplaced += self._store.bury_unplaced(choices.unplaced, rows, choices.now, story)

    # --- pages that no table has -------------------------------------------------------------

    def _take_orphans(self) -> None:
        """Take the rows of pages whose way from the first page of their table is damaged."""
        holes, is_log_lost = self._trees.holes, bool(self._pages.lost_frames)
        if not holes and not is_log_lost:
            return
        is_certain = self._trees.is_free_known and SCHEMA not in holes
        for rows in self._trees.orphans():
            kind = kind_of_row(rows[0])
            right = [row for row in rows if kind and is_right(kind, row)]
            tables = self._tables_for(kind, right)
            may_be_any = bool(tables) or is_log_lost or SCHEMA in holes
            if is_certain and len(tables) == 1:
                self._take(tables[0], kind, right)
            elif kind == "items" and may_be_any:
                # Where the log is damaged a table may have them on a page of before, too.
                self._bury_unplaced(row for row in right if not self._store.has_item(row))
            elif kind == "dead" and may_be_any:
                self._store.insert("dead", right)  # it says whose it is, and is not run
        self._store.commit()

    def _tables_for(self, kind: str, rows: list[Row]) -> list[str]:
        """The tables of which a page with these rows may be."""
        return [
            table for table, holes in self._trees.holes.items()
            if kind and kind_of(table) == kind
            and any(all(not row.key or hole.may_have(row.key) for row in rows) for hole in holes)
        ]  # fmt: skip

    def _take(self, table: str, kind: str, rows: list[Row]) -> None:
        name = int(table.rpartition("_")[2]) if table != kind else 0
        match kind:
            case "ended" if name in self._segments:
                for row in rows:
                    self._segments[name].end(_blob(row.values[1]))
            case "items" if name not in self._segments:
                self._bury_unplaced(iter(rows))
            case "notes":
                self._notes |= {str(row.values[0]): _blob(row.values[1]) for row in rows}
            case "items" | "ids" | "dead" | "results" | "uniques" | "postponed":
                self._store.insert(table, rows)

    # --- the end -----------------------------------------------------------------------------

    def _finish(self) -> None:
        holes, choices, store = self._trees.holes, self._choices, self._store
        is_log_lost = bool(self._pages.lost_frames)
        early: dict[str, int] = {}
        for segment in self._segments.values():
            queue = self._report.queue(segment.lane.queue)
            segment.is_end_lost = is_log_lost or self._is_end_lost(f"items_{segment.name}")
            queue.lost += [(segment.lane.priority, *each) for each in store.finish(segment)]
            if segment.is_last and segment.is_end_lost:
                queue.is_end_lost.append(segment.lane.priority)
            is_known = f"ended_{segment.name}" not in holes and f"ended_{segment.name}" in self._trees.roots
            in_doubt = 0 if is_known and not is_log_lost else sum(segment.is_open)
            queue.may_run_again += in_doubt
            some = store.keep_postponed(segment, "postponed" not in holes and not is_log_lost)
            early[segment.lane.queue] = early.get(segment.lane.queue, 0) + some
            if in_doubt and choices.is_parking:
                text = "saved from a damaged file: it may be done"
                store.bury_open(segment, choices.now, choices.story(text))
            store.commit()
        store.keep_uniques(self._segments.values())
        self._finish_notes()
        self._tell(early)

    def _is_end_lost(self, table: str) -> bool:
        is_there = table in self._trees.roots
        return not is_there or any(each.last is None for each in self._trees.holes.get(table, ()))

    def _finish_notes(self) -> None:
        holes, notes, now = self._trees.holes, self._notes, self._choices.now
        # Workers may have what was given: it is in doubt until their leases are over.
        notes.pop(CLEAN, None)
        try:
            KnownMakers(notes.get(MAKERS, b""))
        except (ArithmeticError, LookupError, ValueError):
            notes.pop(MAKERS)
        if MAKERS not in notes:
            notes.pop(MAKERS_FROM, None)
        if "notes" in holes or self._pages.lost_frames or EPOCH not in notes:
            known = int.from_bytes(notes.get(EPOCH, b""))
            notes[EPOCH] = (known + _EPOCHS if known else now // 1000).to_bytes(8)
            for segment in self._segments.values():
                name = self._choices.horizon(segment.lane)
                last = max(int.from_bytes(notes.get(name, b"")), segment.first + len(segment.is_open))
                notes[name] = last.to_bytes(8)
        for name, value in notes.items():
            self._store.note(name, value)

    def _tell(self, early: dict[str, int]) -> None:
        holes, notices = self._trees.holes, self._report.notices

        def is_lost(table: str) -> bool:
            return bool(self._pages.lost_frames) or table in holes or SCHEMA in holes

        for queue, count in early.items():
            if count:
                notices.append(
                    f"queue {queue!r}: when items are to be tried again is lost: of its {count} ready ones those that "
                    "were postponed run at once, with all their attempts"
                )
        notices += [text for table, text in _PLAIN.items() if is_lost(table)]
        if any(kind_of(table) in ("ids", "periods") for table in holes) or is_lost("notes"):
            notices.append(_IDS_LOST)
        if is_lost("notes"):
            notices.append(_NOTES_LOST)
        if is_lost("segments"):
            notices.append("which queue each item was put into is lost for some: see the unplaced ones")

    def _count(self) -> None:
        """Open the new store as a queue server does, and count."""
        store = SqliteStore(self._to)
        recovered = store.recovered
        for lane in recovered.ready:
            queue = self._report.queue(lane.queue)
            queue.ready += recovered.ready[lane]
            queue.postponed += recovered.postponed[lane]
        for name, count in recovered.dead.items():
            self._report.queue(name).dead += count
        store.close()


def _blob(value: object) -> bytes:
    return value if isinstance(value, bytes) else b""
