"""The SQLite store: files that are none, damage, full disks, power cuts."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
from gevent import subprocess

from rpcmq.store import sqlite_file
from rpcmq.store.contract import (
    Bury,
    Damaged,
    Done,
    Forget,
    Keep,
    Lane,
    Maker,
    Move,
    Note,
    Position,
    Postpone,
    Put,
    Revive,
    Stored,
    StoreError,
    StoreFailed,
    Verdict,
)
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import SCHEMA_VERSION, abandon
from rpcmq.store.sqlite_pages import PAGE_BYTES
from tests.store.altered import altered
from tests.store.crash_disk import CrashDisk
from tests.store.crashes import points_of

LANE = Lane("billing", 0)
MANY = (1000, 1 << 20)


def items(count: int, body: bytes = b"body") -> list[Put]:
    return [Put(LANE, body + bytes([each & 255]), 1, maker=Maker(7, each)) for each in range(1, count + 1)]


def test_a_page_of_dead_items_is_read_without_a_look_at_all_of_them(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    statements: list[str] = []

    def traced(cursor: object, statement: str, values: object) -> bool:
        statements.append(statement)
        return True

    store._connection.exec_trace = traced
    store.read_dead("billing", Position(), *MANY)
    store._connection.exec_trace = None
    (query,) = [each for each in statements if "FROM dead" in each]
    plan = [row[-1] for row in store._connection.execute(f"EXPLAIN QUERY PLAN {query}", ("billing", 0))]
    assert plan == ["SEARCH dead USING INDEX dead_in_order (queue=? AND place>?)"]
    store.close()


# --- who may read the file -----------------------------------------------------------------------


@pytest.fixture
def generous() -> Iterator[None]:
    """A umask by which everybody may do everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.usefixtures("generous")
def test_only_its_owner_may_read_the_file_and_what_stands_beside_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.apply(items(3))
    assert modes(tmp_path) == {"queue.db": 0o600, "queue.db-wal": 0o600}
    store.close()


@pytest.mark.usefixtures("generous")
def test_a_file_that_others_could_read_is_its_owners_from_the_next_opening_on(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "queue.db").close()
    (tmp_path / "queue.db").chmod(0o644)
    store = SqliteStore(tmp_path / "queue.db")
    store.apply(items(3))
    assert modes(tmp_path) == {"queue.db": 0o600, "queue.db-wal": 0o600}
    store.close()


def test_what_a_link_leads_to_keeps_its_mode(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("text of another program, that is no database" * 9)
    other.chmod(0o644)
    (tmp_path / "queue.db").symlink_to(other)
    with pytest.raises(StoreError, match="it is no SQLite database"):
        SqliteStore(tmp_path / "queue.db")
    assert modes(tmp_path)["other"] == 0o644


@pytest.mark.usefixtures("generous")
def test_a_link_may_lead_to_another_disk(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "queue.db").symlink_to(tmp_path / "disk" / "items.db")
    for count in (0, 3):
        store = SqliteStore(tmp_path / "queue.db")
        assert len(store.read(LANE, 0, 10, 1000)) == count
        store.apply(items(3))
        assert modes(tmp_path / "disk") == {"items.db": 0o600, "items.db-wal": 0o600}
        abandon(store._connection)


# --- files of other versions ------------------------------------------------------------------------


def test_a_file_of_an_earlier_version_is_taken_over_with_its_items(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db")
    store.apply(items(3))
    store.apply([Bury(LANE, 2, 1, b"dead")])
    store.close()
    with altered(tmp_path / "queue.db") as connection:
        connection.execute("DROP INDEX dead_in_order")
        connection.execute("PRAGMA user_version = 3")
    for _ in range(2):
        store = SqliteStore(tmp_path / "queue.db")
        assert len(store._connection.execute("PRAGMA index_info(dead_in_order)").fetchall()) == 2
        assert [item.number for item in store.read(LANE, 0, 10, 1000)] == [1, 3]
        assert [item.number for item in store.read_dead(LANE.queue, Position(), 10, 1000)] == [2]
        store.close()


def test_a_file_of_before_all_of_them_is_left_as_it_is(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "queue.db").close()
    with altered(tmp_path / "queue.db") as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="it has version 2, which no release has written: move it away"):
        SqliteStore(tmp_path / "queue.db")


# --- files that cannot be used ---------------------------------------------------------------------


def test_a_file_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    SqliteStore(path).close()
    with altered(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    text = rf"queue\.db: it has version {SCHEMA_VERSION + 1}, and this rpcmq knows {SCHEMA_VERSION}"
    with pytest.raises(StoreError, match=text):
        SqliteStore(path)


def test_a_database_of_another_program_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(StoreError, match="a SQLite database of another program"):
        SqliteStore(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    connection.close()


@pytest.mark.parametrize("content", [b"no database, but a text that is long enough for a header" * 40, b"\0" * 5000])
def test_a_file_that_is_no_database_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "queue.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"queue\.db"):
        SqliteStore(path)
    assert path.read_bytes()[: len(content)] == content


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"missing/queue\.db: it cannot be written"):
        SqliteStore(tmp_path / "missing" / "queue.db")


def test_a_second_process_is_told_that_it_may_be_had_later(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    program = (
        "import sys; from pathlib import Path; from rpcmq.store.contract import StoreFailed\n"
        "from rpcmq.store.sqlite import SqliteStore\n"
        "try: SqliteStore(Path(sys.argv[1]))\n"
        "except StoreFailed as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=60, check=True)
    assert run.stdout == f"queue store {path}: another process has it open\n"
    store.close()


# --- damage ----------------------------------------------------------------------------------------


def test_an_item_whose_row_was_changed_is_not_served(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(4))
    store.apply([Postpone(LANE, 4, 9, b"once")])
    store.close()
    with altered(path) as connection:
        connection.execute("UPDATE items_1 SET body = x'62' WHERE number IN (2, 4)")
    again = SqliteStore(path)
    first, second, third = again.read(LANE, 0, *MANY)
    assert isinstance(first, Stored) and isinstance(third, Stored)
    assert isinstance(second, Damaged) and second.number == 2
    (late,) = again.read_due(LANE, 9, Position(), *MANY)
    assert isinstance(late, Damaged) and late.number == 4
    again.close()


def test_a_damaged_item_stays_so_when_it_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(3))
    store.close()
    with altered(path) as connection:
        connection.execute("UPDATE items_1 SET body = 17, producer = 'text' WHERE number = 2")
    again = SqliteStore(path)
    found = again.find(LANE, 2)
    assert found is not None and found.state == "ready" and isinstance(found.item, Damaged)
    assert again.apply([Move(LANE, 2, Lane("other", 0), 0, b"")]) == [Verdict()]
    again.apply([Bury(LANE, 2, 9, b"story"), Bury(LANE, 3, 9, b"story")])
    first, second = again.read_dead("billing", Position(), *MANY)
    assert isinstance(first, Damaged) and isinstance(second, Stored)
    assert again.apply([Revive(LANE, 2, 10, b""), Move(LANE, 2, Lane("other", 0), 0, b"")]) == [Verdict()] * 2
    again.apply([Forget(LANE, 2)])
    assert again.read_dead("billing", Position(), *MANY) == [second]
    again.close()


def test_a_damaged_record_of_what_is_done_is_no_reason_to_do_it_again(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(4))
    store.apply([Done(LANE, 2)])
    store.close()
    with altered(path) as connection:
        connection.execute("UPDATE ended_1 SET numbers = x'00000000'")
    with pytest.raises(
        StoreError, match=r"row 1 of its table ended_1 is damaged, so that which items were done is not known"
    ):
        SqliteStore(path)


def test_a_flipped_bit_of_the_file_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Each field, the head of the file and what SQLite keeps of its pages included."""
    random = Random(5)
    disk = CrashDisk("flip", random)
    store = SqliteStore(Path("/q.db"), vfs=disk.name)
    store.apply(items(500, bytes(100)))
    store.apply([Done(LANE, each) for each in range(1, 501, 3)])
    store.apply([Postpone(LANE, 2, 9, b"late"), Bury(LANE, 3, 9, b"dead"), Note("policy", b"note")])
    store.apply([Put(LANE, b"named", 1, id=b"invoice-17", digest=b"d", unique=b"only"), Keep(LANE, 1, 9, b"result")])

    def everything() -> tuple[Any, ...]:
        return (
            store.read(LANE, 0, *MANY), store.read_due(LANE, 9, Position(), *MANY), store.recovered.notes,
            store.read_dead("billing", Position(), *MANY), store.result(LANE, 1), replace(store.recount(), epoch=0),
            store.known([Put(LANE, b"", 1, id=b"invoice-17", digest=b"d"), *items(500)]),
            store._connection.execute("SELECT * FROM uniques").fetchall(), store.recovered.epoch,
        )  # fmt: skip

    store.close()
    store = SqliteStore(Path("/q.db"), vfs=disk.name)
    wanted = everything()
    store.close()
    # In turn all that a page may have, and the pages that SQLite reads first.
    bits = [random.randrange(disk.size_bytes() << 3) for _ in range(30)] + [random.randrange(800) for _ in range(10)]
    for count, bit in enumerate(bits, 1):
        place = disk.place_of(bit)
        disk.flip(*place)
        store = SqliteStore(Path("/q.db"), vfs=disk.name)
        assert everything() == (*wanted[:-1], wanted[-1] + count), bit
        store.close()
        disk.flip(*place)
    assert "is put right: look at the disk" in caplog.text
    disk.unregister()


def test_a_page_of_which_more_is_wrong_is_named_and_nothing_of_it_is_served(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(500, bytes(100)))
    store.close()
    content = bytearray(path.read_bytes())
    page = content.index(b"\0" * 100 + bytes([250])) // PAGE_BYTES
    for at in (1000, 2000):
        content[page * PAGE_BYTES + at] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"its page {page + 1} is not what was written"):
        SqliteStore(path)


def test_a_file_that_was_begun_without_checksums_of_pages_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 8192")
        connection.executescript(sqlite_file._TABLES)
        connection.execute(f"PRAGMA application_id = {sqlite_file._APPLICATION}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION - 1}")
    for count in range(3):
        store = SqliteStore(path)
        store.apply([Put(LANE, b"body", 1, maker=Maker(7, count + 1))])
        assert len(store.read(LANE, 0, *MANY)) == count + 1
        store.close()
    content = path.read_bytes()
    assert content[20] == 0 and b"body" in content


# --- failing disks and power cuts ------------------------------------------------------------------


def test_a_batch_that_failed_is_told_once_more_after_the_next_opening() -> None:
    disk = CrashDisk("failing", Random(1))
    store = SqliteStore(Path("/q.db"), vfs=disk.name)
    store.apply(items(3))
    disk.fail_at = dict.fromkeys(range(disk.operations + 1, disk.operations + 50), apsw.SQLITE_FULL)
    with pytest.raises(StoreFailed, match=r"queue store /q\.db: FullError"):
        store.apply(items(5))
    with pytest.raises(StoreFailed):
        SqliteStore(Path("/q.db"), vfs=disk.name)
    disk.fail_at.clear()
    again = SqliteStore(Path("/q.db"), vfs=disk.name)
    assert [each.number for each in again.apply(items(5))] == [0, 0, 0, 4, 5]
    assert len(again.read(LANE, 0, *MANY)) == 5
    again.close()


@pytest.mark.parametrize("seed", range(1, 11))
def test_power_cuts_lose_nothing(seed: int) -> None:
    assert points_of(seed)


def test_a_store_that_does_not_sync_is_found_out() -> None:
    """The control: with ``synchronous=NORMAL`` the same power cuts lose what was accepted."""
    broken = 0
    for seed in range(1, 6):
        try:
            points_of(seed, is_synced=False)
        except AssertionError:
            broken += 1
    assert broken


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 20_000, 1000))
def test_many_power_cuts_lose_nothing(seed: int) -> None:
    """Together 20,000."""
    points = 0
    while points < 1053:
        points += points_of(seed)
        seed += 1


# --- room ------------------------------------------------------------------------------------------


def test_segments_of_which_all_is_done_are_dropped(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db", segment_items=10)
    for each in range(20):
        store.apply([put._replace(maker=Maker(8, each * 25 + at)) for at, put in enumerate(items(25), 1)])
        store.apply([Done(LANE, number) for number in range(each * 25 + 1, each * 25 + 26)])
    store.close()
    with altered(tmp_path / "queue.db") as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE name LIKE 'items_%'")]
        assert len(names) <= 2
        positions = connection.execute("SELECT value FROM notes WHERE name = '.makers from'").get
    assert len(json.loads(positions)) <= 3
    again = SqliteStore(tmp_path / "queue.db", segment_items=10)
    assert again.apply([put._replace(maker=Maker(8, 500)) for put in items(1)])[0].is_known
    again.close()


def test_large_items_of_which_all_is_done_leave_their_room_to_others(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    body, number = bytes(100_000), 0
    for _ in range(2):
        store = SqliteStore(path, segment_bytes=1_000_000)
        for _ in range(10):
            puts = [Put(LANE, body, 1, maker=Maker(8, number + at)) for at in range(1, 8)]
            assert [verdict.number for verdict in store.apply(puts)] == [*range(number + 1, number + 8)]
            store.apply([Done(LANE, number + at, len(body)) for at in range(1, 8)])
            number += 7
        # Known once more, though the segment that it was in is gone.
        assert store.apply([Put(LANE, body, 1, maker=Maker(8, 1))])[0].is_known
        assert store.recount().sizes == {LANE.queue: 0}
        store.close()
    assert path.stat().st_size < 4_000_000, f"{number * len(body)} bytes have ended"


def test_a_segment_that_is_full_of_bytes_takes_no_more_after_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    for each in (1, 3, 5):
        store = SqliteStore(path, segment_bytes=100)
        store.apply([Put(LANE, bytes(60), 1, maker=Maker(8, each + at)) for at in range(2)])
        store.close()
    with altered(path) as connection:
        segments = connection.execute("SELECT first, bytes FROM segments ORDER BY first").fetchall()
    assert segments == [(1, 120), (3, 120), (5, 120)]


def test_ids_of_users_are_forgotten_after_their_time(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "queue.db", ids_kept=1000)
    given = Put(LANE, b"a", 1, id=b"invoice-17", digest=b"A")
    store.apply([given])
    assert store.apply([given._replace(at=1001)])[0].is_known
    for at in range(1001, 3001, 250):
        store.apply([Put(LANE, b"a", at, id=b"other-%d" % at, digest=b"A")])
    assert not store.apply([given._replace(at=3001)])[0].is_known
    assert store.apply([Put(LANE, b"a", 3001, id=b"other-2751", digest=b"A")])[0].is_known
    store.close()
