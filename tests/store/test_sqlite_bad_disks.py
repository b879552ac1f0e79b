"""What a bad disk leaves of a SQLite store: after failures of all kinds, or where a record is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.store.contract import Bury, Done, Lane, Maker, Position, Postpone, Put, StoreDamaged, StoreError
from rpcmq.store.sqlite import SqliteStore
from rpcmq.store.sqlite_file import abandon
from tests.store.altered import altered
from tests.store.bad_disks import KINDS, failures_of

LANE = Lane("billing", 0)
MANY = (1000, 1 << 20)


def items(count: int, body: bytes = b"body") -> list[Put]:
    return [Put(LANE, body, 1, maker=Maker(7, each)) for each in range(1, count + 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_disk_loses_nothing_that_was_accepted(kind: str) -> None:
    assert sum(failures_of(kind, seed) for seed in range(1, 4)) > 30


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_disk_that_fails_a_thousand_times_loses_nothing_that_was_accepted(kind: str) -> None:
    failures, seed = 0, 1000
    while failures < 1000:
        failures += failures_of(kind, seed)
        seed += 1


@pytest.mark.parametrize("count", [1, 30, 300])
def test_a_process_that_was_killed_leaves_a_log_that_the_next_one_reads(tmp_path: Path, count: int) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(count, bytes(10_000)))
    abandon(store._connection)
    assert Path(f"{path}-wal").stat().st_size > count * 10_000
    again = SqliteStore(path)
    assert again.recovered.ready == {LANE: count}
    again.close()


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        ("UPDATE segments SET first = first - 1", "row 1 of its table segments is damaged"),
        ("DELETE FROM items_1 WHERE number = 4", "row 3 of its table items_1 is damaged"),
    ],
)
def test_a_record_of_what_is_done_that_fits_no_items_is_noticed(tmp_path: Path, damage: str, text: str) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(4))
    store.apply([Done(LANE, 4)])
    store.close()
    with altered(path) as connection:
        connection.execute(damage)
    with pytest.raises(StoreError, match=text):
        SqliteStore(path)


def test_a_row_that_was_turned_into_what_is_no_text_is_said_to_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(2))
    store._connection.execute("UPDATE items_1 SET body = CAST(x'a3' AS TEXT) WHERE number = 2")
    with pytest.raises(StoreDamaged, match="it is damaged"):
        store.read(LANE, 0, *MANY)
    with pytest.raises(StoreError, match="it is damaged"):
        SqliteStore(path)


def test_items_that_are_out_of_an_index_come_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    store = SqliteStore(path)
    store.apply(items(6))
    store.apply([Postpone(LANE, 2, 9, b""), Postpone(LANE, 3, 9, b""), Bury(LANE, 4, 9, b""), Bury(LANE, 5, 9, b"")])
    store.close()
    with altered(path) as connection:
        # The indexes stay as they are while the tables change.
        connection.execute("PRAGMA writable_schema = on")
        hidden = "UPDATE sqlite_schema SET sql = sql || ' WHERE {} <> 3' WHERE name = '{}'"
        connection.execute(hidden.format("number", "postponed_in_segment"))
        connection.execute(hidden.format("priority + number - 1", "dead_item"))
    with altered(path) as connection:
        connection.execute("REINDEX")
        connection.execute("PRAGMA writable_schema = on")
        for name in ("postponed_in_segment", "dead_item"):
            connection.execute(
                "UPDATE sqlite_schema SET sql = substr(sql, 1, instr(sql, ' WHERE ') - 1) WHERE name = ?", (name,)
            )
    again = SqliteStore(path)
    assert [each.number for each in again.read_due(LANE, 9, Position(), *MANY)] == [2, 3]
    assert [each.number for each in again.read_dead("billing", Position(), *MANY)] == [4, 5]
    assert again.find(LANE, 4) is not None
    again.close()
