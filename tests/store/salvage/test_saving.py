"""Saving a store of which certain pages are damaged."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from gevent import subprocess

from rpcmq.store.contract import (
    Bury,
    Done,
    Lane,
    Maker,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Stored,
    StoreError,
    Verdict,
)
from rpcmq.store.salvage.report import Report
from rpcmq.store.salvage.saving import salvage
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import abandon
from rpcmq.store.sqlite_pages import PAGE_BYTES, CheckedPages
from tests.store.altered import altered
from tests.store.random_changes import content_of, differences
from tests.store.salvage.damages import CHOICES, UNPLACED, RandomStore, dead_of

LANE, OTHER = Lane("billing", 0), Lane("images", 0)


def put(count: int, lane: Lane = LANE, size: int = 300, due: int = 0, id: bytes = b"", unique: bytes = b"") -> Put:
    body = b"%d of %s" % (count, lane.queue.encode())
    maker = Maker(0, 0) if id else Maker(1 + (lane == OTHER), count)
    return Put(lane, body.ljust(size, b"."), count, due, id, maker, b"d" if id else b"", unique=unique)


def root_of(path: Path, table: str) -> int:
    with altered(path) as connection:
        return int(connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get)


def spoil(path: Path, *pages: int) -> None:
    with path.open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES)
            file.write(b"\x05spoiled" * (PAGE_BYTES // 8))


def saved(folder: Path, is_parking: bool = False) -> tuple[Report, SqliteStore]:
    to = folder / "new" / "queue.db"
    report = salvage(folder / "queue.db", to, replace(CHOICES, is_parking=is_parking))
    return report, SqliteStore(to)


def numbers(store: SqliteStore, lane: Lane = LANE) -> list[int]:
    return [item.number for item in store.read(lane, 0, 1 << 30, 1 << 40)]


def filled(folder: Path, *batches: Iterable[Put | Done | Bury | Postpone | Note]) -> Path:
    store = SqliteStore(folder / "queue.db")
    for batch in batches:
        store.apply(list(batch))
    store.close()
    return folder / "queue.db"


@pytest.mark.parametrize("seed", range(8))
def test_of_a_store_that_is_whole_everything_is_saved(seed: int, tmp_path: Path) -> None:
    wanted = RandomStore(tmp_path, seed).wanted
    report, store = saved(tmp_path)
    assert report.is_whole
    found = content_of(store)
    assert differences(found, wanted) == "" and found.results == wanted.results
    store.close()


def test_where_the_root_of_a_large_table_is_lost_its_items_are_found_and_placed(tmp_path: Path) -> None:
    # So many that there are pages between the root and the items.
    path = filled(tmp_path, *((put(n) for n in range(first, first + 5000)) for first in range(1, 30_000, 5000)))
    spoil(path, root_of(path, "items_1"))
    report, store = saved(tmp_path)
    assert numbers(store) == list(range(1, 30_001))
    assert report.queues["billing"].lost == [] and report.unplaced == 0
    assert report.queues["billing"].is_end_lost == [0], "nobody knows how many there were"
    store.close()


def test_items_that_may_be_of_two_queues_are_with_the_unplaced_ones(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(n) for n in range(1, 101)], [put(n, OTHER) for n in range(1, 101)])
    spoil(path, root_of(path, "items_1"), root_of(path, "items_2"))
    report, store = saved(tmp_path)
    assert report.unplaced == 200 and numbers(store) == numbers(store, OTHER) == []
    unplaced = dead_of(store, UNPLACED)
    assert sorted(item.body for item in unplaced) == sorted(
        put(n, lane).body for n in range(1, 101) for lane in (LANE, OTHER)
    )
    assert unplaced[0].state == b"saved from a damaged file: its queue is not known, and it may be done"
    # A person has them run.
    assert store.apply([Move(item.lane, item.number, LANE, 0, b"") for item in unplaced])[-1] == Verdict(200)
    assert numbers(store) == list(range(1, 201))
    store.close()


@pytest.mark.parametrize("table", ["first page", "segments"])
def test_where_nobody_knows_whose_items_are_all_are_with_the_unplaced_ones(table: str, tmp_path: Path) -> None:
    path = filled(tmp_path, [put(n) for n in range(1, 101)], [Done(LANE, n) for n in range(1, 11)])
    spoil(path, 1 if table == "first page" else root_of(path, "segments"))
    report, store = saved(tmp_path)
    # What is done is counted from the first item on, which is there if the table is known.
    assert report.unplaced == (100 if table == "first page" else 90)
    assert not report.is_whole and numbers(store) == []
    store.close()


def test_a_lost_page_of_items_is_told_by_their_numbers(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(n) for n in range(1, 1001)], [Done(LANE, 490)])
    raw = path.read_bytes()
    page = raw.index(put(500).body) // PAGE_BYTES
    lost = sorted({int(each) for each in re.findall(rb"(\d+) of billing", raw[page * PAGE_BYTES :][:PAGE_BYTES])})
    spoil(path, page + 1)
    report, store = saved(tmp_path)
    assert report.unreadable == [page + 1]
    assert report.queues["billing"].lost == [(0, lost[0], 489), (0, 491, lost[-1])], "one of them was done"
    assert numbers(store) == [n for n in range(1, 1001) if n not in lost]
    # The store goes on behind them, and knows what was put.
    assert store.apply([put(7), put(1001)]) == [Verdict(is_known=True), Verdict(1001)]
    store.close()


@pytest.mark.parametrize("is_parking", [False, True])
def test_items_may_run_again_where_the_record_of_what_was_done_is_lost(is_parking: bool, tmp_path: Path) -> None:
    path = filled(tmp_path, [put(n) for n in range(1, 11)], [Done(LANE, n) for n in range(1, 4)])
    spoil(path, root_of(path, "ended_1"))
    report, store = saved(tmp_path, is_parking)
    assert report.queues["billing"].may_run_again == 10
    found = [] if is_parking else list(range(1, 11))
    assert numbers(store) == found
    assert [item.number for item in dead_of(store, "billing")] == ([] if found else list(range(1, 11)))
    store.close()
    # And it can be opened again.
    with closing(SqliteStore(tmp_path / "new" / "queue.db")) as again:
        assert numbers(again) == found


def test_where_it_is_lost_what_is_postponed_delays_are_kept_and_the_rest_is_told(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(1, due=10**15), put(2), put(3)], [Postpone(LANE, 2, 10**15, b"story")])
    spoil(path, root_of(path, "postponed"))
    report, store = saved(tmp_path)
    assert numbers(store) == [2, 3] and store.next_due(LANE, Position()) == 10**15
    assert any(text.startswith("queue 'billing': when items are to be tried again is lost") for text in report.notices)
    store.close()


def test_notes_that_are_lost_leave_a_fence_that_is_greater_than_all_before(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(1), Note("policy billing", b"{}")])
    spoil(path, root_of(path, "notes"))
    report, store = saved(tmp_path)
    assert store.recovered.epoch > 10**8 and "clean" not in store.recovered.notes
    assert store.recovered.notes["horizon 0 billing"] == (2).to_bytes(8), "workers may have it"
    assert any("settings of queues" in text for text in report.notices)
    store.close()


def test_nobody_waits_for_ever_for_the_unique_key_of_an_item_that_is_lost(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(1, unique=b"nightly"), put(2, unique=b"hourly", size=9000)])
    with altered(path) as connection:
        connection.execute("UPDATE items_1 SET crc = crc + 1 WHERE number = 1")
    report, store = saved(tmp_path)
    assert report.queues["billing"].lost == [(0, 1, 1)]
    again = store.apply([put(3, unique=b"nightly"), put(4, unique=b"hourly")])
    assert again == [Verdict(3), Verdict(is_known=True)]
    store.close()


def test_commits_behind_a_damaged_one_in_the_log_are_saved(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.apply([put(1)])
    for count in range(2, 40):
        store.apply([put(count, size=3000)])
    abandon(store._connection)
    log = tmp_path / "queue.db-wal"
    raw = bytearray(log.read_bytes())
    at = raw.index(put(20, size=3000).body)  # the first of the pages with it
    raw[at : at + 64] = bytes(64)
    log.write_bytes(raw)
    with pytest.raises(StoreError, match="of its write-ahead log is damaged"):
        SqliteStore(tmp_path / "queue.db")
    report, new = saved(tmp_path)
    # This page was written again with the next items; of those that nobody can place nothing is run.
    placed = [item for item in new.read(LANE, 0, 100, 1 << 40) if isinstance(item, Stored)]
    found = {item.body for item in [*placed, *dead_of(new, UNPLACED)]}
    assert found == {put(1).body, *(put(count, size=3000).body for count in range(2, 40))}
    assert report.log_pages_lost == 1 and not report.is_whole
    new.close()


def test_a_file_of_before_checksums_of_pages_is_saved_by_those_of_its_rows(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(n) for n in range(1, 101)], [Done(LANE, 1)])
    copy = tmp_path / "old" / "queue.db"
    copy.parent.mkdir()
    pages = CheckedPages("")
    with closing(apsw.Connection(str(path), vfs=pages.name)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    with closing(apsw.Connection(str(copy))) as old:
        old.reserve_bytes("main", 0)
        old.execute("VACUUM")
        old.pragma("user_version", 4)
    report, store = saved(copy.parent)
    assert not report.is_checked and numbers(store) == list(range(2, 101))
    store.close()
    raw = bytearray(copy.read_bytes())
    raw[raw.index(put(50).body)] ^= 1
    copy.write_bytes(raw)
    (copy.parent / "new" / "queue.db").unlink()
    report, store = saved(copy.parent)
    assert report.queues["billing"].lost == [(0, 50, 50)]
    store.close()


# --- refused ---------------------------------------------------------------------------------


def test_a_file_that_a_store_has_open_is_refused(tmp_path: Path) -> None:
    # Locks are those of a process.
    code = (
        "import sys; from pathlib import Path; from rpcmq.store.salvage.pages import not_in_use\n"
        "with not_in_use(Path(sys.argv[1])): pass"
    )
    with closing(SqliteStore(tmp_path / "queue.db")):
        command = [sys.executable, "-c", code, str(tmp_path / "queue.db")]
        asked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert "another process has it open: stop its router first" in asked.stderr


def test_a_file_of_a_later_version_or_another_program_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(1)])
    with altered(path) as connection:
        connection.pragma("user_version", 6)
    with pytest.raises(StoreError, match="it has version 6, and this rpcmq knows 5: use the later one"):
        saved(tmp_path)
    for content in (b"", b"no store" * 5000):
        path.write_bytes(content)
        with pytest.raises(StoreError, match="it is no store of queue items, or not enough of it is left"):
            saved(tmp_path)
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = filled(tmp_path, [put(1)])
    with pytest.raises(StoreError, match="is there already"):
        salvage(path, path, CHOICES)
