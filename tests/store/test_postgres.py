"""The PostgreSQL store: ownership, take-over, servers that die, databases that are none."""

from __future__ import annotations

import time
from threading import Thread
from typing import Any

import psycopg
import pytest

from rpcmq.store.contract import (
    CLEAN,
    PERIODIC,
    Bury,
    Done,
    Lane,
    Maker,
    Note,
    Position,
    Put,
    StoreError,
    StoreFailed,
    Verdict,
)
from rpcmq.store.postgres import PostgresStore
from rpcmq.store.postgres_schema import SCHEMA_VERSION
from rpcmq.store.shared import Others
from rpcmq.testing import eventually
from tests.store.postgres_server import PostgresServer

LANE = Lane("billing", 0)
MANY = (1000, 1 << 20)


def items(first: int, last: int) -> list[Put]:
    return [Put(LANE, b"body", 1, maker=Maker(7, each)) for each in range(first, last + 1)]


def cut_off(database: str, owner: str) -> None:
    """End the session of ``owner``, which does not know yet."""
    with psycopg.connect(database, autocommit=True) as connection:
        query = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s"
        assert connection.execute(query, (f"rpcmq queue of {owner}",)).fetchall() == [(True,)]


def test_an_owner_that_lives_is_the_only_one(database: str) -> None:
    store = PostgresStore(database, "a")
    with pytest.raises(StoreFailed, match="queue store of 'a': another router has its items; they are free when"):
        PostgresStore(database, "a")
    other = PostgresStore(database, "b")
    store.apply(items(1, 3))
    assert other.read(LANE, 0, *MANY) == []
    assert other.apply(items(1, 1)) == [Verdict(1)]
    store.close()
    other.close()


def test_the_database_sends_no_more_than_is_wanted(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, most_bytes = bytes(100_000), 250_000
    store = PostgresStore(database, "a")
    store.apply([Put(LANE, body, 1, maker=Maker(7, each), due=5 if each > 10 else 0) for each in range(1, 21)])
    store.apply([Bury(LANE, number, 60, b"story") for number in range(1, 6)])
    with psycopg.connect(database) as connection:
        put_in = "INSERT INTO rpcmq.incoming (queue, priority, at, due, expires, id, producer, counter, digest, series,"
        put_in += " message) VALUES ('billing', 0, 1, 0, 0, '', 7, %s, '', '', %s)"
        connection.cursor().executemany(put_in, [(count, body) for count in range(10)])
    sent: list[int] = []
    execute = store._connection.execute

    def executed(*arguments: Any) -> Any:
        cursor = execute(*arguments)
        sent.append(cursor.rowcount)
        return cursor

    monkeypatch.setattr(store._connection, "execute", executed)
    numbers = [
        [each.number for each in found]
        for found in (
            store.read(LANE, 0, 100, most_bytes),
            store.read_due(LANE, 9, Position(), 100, most_bytes),
            store.read_dead("billing", Position(), 100, most_bytes),
        )
    ]
    assert numbers == [[6, 7, 8], [11, 12, 13], [1, 2, 3]]
    assert len(store.read_incoming(100, most_bytes)) == 3
    assert sent == [3, 3, 3, 3]
    assert len(store.read(LANE, 0, 2, most_bytes)) == 2 and len(store.read(LANE, 0, 100, 1)) == 1
    store.close()


def test_the_items_of_an_owner_that_was_cut_off_are_taken_over_and_it_writes_no_more(database: str) -> None:
    former = PostgresStore(database, "a")
    former.apply(items(1, 3))
    cut_off(database, "a")
    successor = PostgresStore(database, "a")
    assert successor.recovered.epoch == former.recovered.epoch + 1 and successor.recovered.ready == {LANE: 3}
    with pytest.raises(StoreFailed, match="queue store of 'a'"):
        former.apply([Done(LANE, 1), *items(4, 4)])
    assert [each.number for each in successor.read(LANE, 0, *MANY)] == [1, 2, 3]
    assert successor.apply([Done(LANE, 2), *items(3, 4)]) == [Verdict(), Verdict(is_known=True), Verdict(4)]
    successor.close()


def test_an_owner_whose_lock_alone_was_lost_writes_no_more(database: str) -> None:
    """Its session goes on, as behind a pooler that gives it another one: the epoch stops it."""
    former = PostgresStore(database, "a")
    former.apply(items(1, 3))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE rpcmq.owners SET epoch = epoch + 1 WHERE name = 'a'")
    with pytest.raises(StoreFailed, match="another router has taken over the items"):
        former.apply([Done(LANE, 1), *items(4, 4)])
    successor = PostgresStore(database, "a")
    assert [each.number for each in successor.read(LANE, 0, *MANY)] == [1, 2, 3]
    successor.close()


def test_owners_that_are_gone_are_told_of_unless_they_have_ended_in_order_and_left_nothing(database: str) -> None:
    a, b, c = (PostgresStore(database, name) for name in "abc")
    b.apply([*items(1, 3), Note(CLEAN, b"1")])
    c.apply([Note(CLEAN, b"1")])
    assert a.others() == Others(False, ())
    b.close()
    c.close()
    assert a.others() == Others(False, ("b",))
    heir = PostgresStore(database, "b", is_heir=True)
    assert a.others() == Others(False, ()) and heir.recovered.ready == {LANE: 3}
    with pytest.raises(StoreFailed, match="another router has its items"):
        PostgresStore(database, "b", is_heir=True)
    assert heir.others() == Others(False, ())
    heir.close()
    a.close()


def test_an_owner_that_puts_periodic_items_is_wanted_though_it_has_ended_in_order(database: str) -> None:
    a, b = (PostgresStore(database, name) for name in "ab")
    b.apply([Note(PERIODIC + "billing\nnightly", b"its times"), Note(CLEAN, b"1")])
    b.close()
    assert a.others() == Others(False, ("b",))
    a.close()


def test_an_heir_is_told_that_the_owner_waits_and_the_owner_gets_the_items_when_it_gives_them_back(
    database: str,
) -> None:
    heir = PostgresStore(database, "b", is_heir=True)
    opened: list[PostgresStore] = []
    waiting = Thread(target=lambda: opened.append(_insisting(database, "b")))
    waiting.start()
    eventually(lambda: heir.others().is_wanted)
    heir.close()
    waiting.join(30)
    assert opened[0].recovered.epoch == 2
    opened[0].close()


def _insisting(database: str, owner: str) -> PostgresStore:
    while True:
        try:
            return PostgresStore(database, owner)
        except StoreFailed:
            continue  # it has waited for a second


def test_an_id_that_a_user_gave_is_put_once_by_all_routers(database: str) -> None:
    a, b = PostgresStore(database, "a"), PostgresStore(database, "b")
    given = Put(LANE, b"body", 1, id=b"invoice-17", digest=b"A")
    assert a.apply([given]) == [Verdict(1)]
    assert b.apply([given, given._replace(digest=b"B")]) == [
        Verdict(is_known=True), Verdict(is_known=True, is_other=True),
    ]  # fmt: skip
    a.close()
    b.close()


def test_a_server_that_is_killed_has_what_was_accepted(database: str, postgres_server: PostgresServer) -> None:
    store = PostgresStore(database, "a")
    store.apply(items(1, 500))
    store.apply([Done(LANE, each) for each in range(1, 101)])
    postgres_server.kill()
    try:
        with pytest.raises(StoreFailed):
            store.beat()
        with pytest.raises(StoreFailed, match="queue store of 'a': connection failed"):
            PostgresStore(database, "a")
    finally:
        postgres_server.start()
    again = PostgresStore(database, "a")
    assert again.recovered.ready == {LANE: 400}
    assert again.apply(items(500, 501)) == [Verdict(is_known=True), Verdict(501)]
    again.close()


def test_tables_of_a_later_version_are_refused(database: str) -> None:
    PostgresStore(database, "a").close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE rpcmq.version SET version = version + 1")
    later, known = SCHEMA_VERSION + 1, SCHEMA_VERSION
    text = f"its tables have version {later}, and this rpcmq knows {known}: start the later one that has used it"
    with pytest.raises(StoreError, match=text):
        PostgresStore(database, "a")


def test_a_database_that_is_not_there_is_named(database: str) -> None:
    with pytest.raises(StoreError, match=r"queue store of 'a': .*database \"nowhere\" does not exist"):
        PostgresStore(database.replace("/postgres", "/nowhere"), "a")


def test_a_role_without_the_right_is_told(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match="queue store: no right to the schema 'rpcmq' of the database"):
        PostgresStore(database.replace("rpcmq@", "guest@"), "a")


def test_an_owner_whose_clock_is_ahead_forgets_no_ids_of_others(database: str) -> None:
    now = int(time.time() * 1000)
    one, other = PostgresStore(database, "a"), PostgresStore(database, "b")
    assert abs(one.recovered.clock - now) < 60_000, "that of the database server"
    mine = Put(LANE, b"body", now, id=b"mine", digest=b"d")
    assert one.apply([mine]) == [Verdict(1)]
    other.apply([Put(LANE, b"body", now + 30 * 86_400_000, maker=Maker(7, 1))])
    assert one.apply([mine]) == other.apply([mine]) == [Verdict(is_known=True)]
    for store in (one, other):
        store.close()
