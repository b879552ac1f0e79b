"""Sessions of owners that are stopped or cut off at the worst moment: others must not wait for them for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from rpcmq.store import postgres_session
from rpcmq.store.contract import Bury, Done, Keep, Lane, Maker, Note, Postpone, Put, Revive, StoreFailed, Verdict
from rpcmq.store.postgres import PostgresStore
from rpcmq.testing import eventually
from tests.store.postgres_server import PostgresServer, binaries

LANE = Lane("billing", 0)
#: More than the buffers of a connection take.
MUCH = 32 << 20


def items(first: int, last: int) -> list[Put]:
    return [Put(LANE, b"body", 1, maker=Maker(7, each)) for each in range(first, last + 1)]


def between_statements(owner: Any) -> None:
    """Stop in a transaction that has locked what a batch locks."""
    owner.execute("BEGIN")
    owner.execute("SELECT 1 FROM rpcmq.owners WHERE name = 'a' FOR SHARE")


def while_it_sends(owner: Any) -> None:
    """Stop in the middle of a message of a statement of that transaction."""
    between_statements(owner)
    owner.pgconn.nonblocking = 1
    owner.pgconn.send_query_params(b"SELECT length($1)", [b"x" * MUCH])
    owner.pgconn.flush()


def while_it_reads(owner: Any) -> None:
    """Stop in the middle of an answer."""
    between_statements(owner)
    owner.pgconn.nonblocking = 1
    owner.pgconn.send_query(b"SELECT repeat('x', 1000000) FROM generate_series(1, 64)")
    owner.pgconn.flush()


def state(database: str, owner: str) -> tuple[str, str] | None:
    with psycopg.connect(database, autocommit=True) as connection:
        query = "SELECT state, wait_event FROM pg_stat_activity WHERE application_name = %s"
        row: tuple[str, str] | None = connection.execute(query, (f"rpcmq queue of {owner}",)).fetchone()
        return row


def with_timeout(monkeypatch: pytest.MonkeyPatch, setting: str, milliseconds: int) -> None:
    """Have sessions begin with another timeout; 0: none."""
    settings = postgres_session._SETTINGS | {setting: milliseconds}
    options = " ".join(f"-c {name}={value}" for name, value in settings.items())
    monkeypatch.setattr(postgres_session, "_OPTIONS", options)


@pytest.mark.parametrize(
    ("stop", "seen"),
    [
        (between_statements, ("idle in transaction", "ClientRead")),
        (while_it_sends, ("active", "ClientRead")),
        (while_it_reads, ("active", "ClientWrite")),
    ],
)
def test_an_owner_that_is_stopped_in_a_transaction_has_an_heir_and_writes_no_more(
    database: str, monkeypatch: pytest.MonkeyPatch, stop: Callable[[Any], None], seen: tuple[str, str]
) -> None:
    monkeypatch.setattr(postgres_session, "SILENCE", 1)
    with_timeout(monkeypatch, "idle_in_transaction_session_timeout", 1000 if stop is between_statements else 0)
    former = PostgresStore(database, "a")
    former.apply(items(1, 3))
    stop(former._connection)
    eventually(lambda: state(database, "a") == seen, 20, f"the session is {seen}")
    other = PostgresStore(database, "b")
    eventually(lambda: other.others().gone == ("a",), 20, "the owner is gone")
    heir = PostgresStore(database, "a", is_heir=True)
    assert heir.recovered.ready == {LANE: 3} and heir.recovered.epoch == former.recovered.epoch + 1
    assert heir.apply([Done(LANE, 1), *items(4, 4)]) == [Verdict(), Verdict(4)]
    with pytest.raises(StoreFailed, match="queue store of 'a'"):
        former.apply([Done(LANE, 2)])
    for store in (heir, other):
        store.close()


def test_the_next_life_of_an_owner_that_is_stopped_while_it_sends_ends_that(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where there is no other router."""
    monkeypatch.setattr(postgres_session, "SILENCE", 1)
    with_timeout(monkeypatch, "idle_in_transaction_session_timeout", 0)
    former = PostgresStore(database, "a")
    while_it_sends(former._connection)

    def opened() -> PostgresStore | None:
        try:
            return PostgresStore(database, "a")
        except StoreFailed:
            return None

    store = eventually(opened, 20)
    assert store is not None and store.recovered.epoch == 2
    store.close()
    former._connection.close()


def test_no_owner_is_silent_between_two_statements_that_wait_for_each_other(database: str, tmp_path: Path) -> None:
    """The server has no timeout for what it awaits of a pipeline: each statement is a message on its own."""
    store = PostgresStore(database, "a")
    with (tmp_path / "trace").open("w") as file:
        store._connection.pgconn.trace(file.fileno())
        store.apply(items(1, 5) + [each._replace(maker=Maker(8, each.maker.counter)) for each in items(1, 5)])
        store.apply([Done(LANE, 1), Postpone(LANE, 2, 9, b"2"), Bury(LANE, 3, 9, b"dead"), Note("n", b"1")])
        store.apply([Revive(LANE, 3, 0, b""), Keep(LANE, 4, 9, b"4"), Put(LANE, b"5", 1, id=b"five", unique=b"key")])
        store._connection.pgconn.untrace()
    store.close()
    sent = [line.split("\t")[3] for line in (tmp_path / "trace").read_text().splitlines() if line.split("\t")[1] == "F"]
    assert sent.count("Execute") > 10
    after = [then for kind, then in pairwise(sent) if kind == "Execute"]
    assert set(after) == {"Sync"} and "Flush" not in sent


def test_an_id_that_another_owner_puts_at_this_moment_is_not_waited_for_for_ever(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_timeout(monkeypatch, "lock_timeout", 300)
    a, b = PostgresStore(database, "a"), PostgresStore(database, "b")
    given = Put(LANE, b"body", 1, id=b"invoice-17", digest=b"A")
    a._connection.execute("BEGIN")
    a._connection.execute("INSERT INTO rpcmq.ids VALUES ('billing', 'invoice-17', 'A', 1)")
    with pytest.raises(StoreFailed, match="queue store of 'b': canceling statement due to lock timeout"):
        b.apply([given])
    a.close()
    b = PostgresStore(database, "b")
    assert b.apply([given]) == [Verdict(1)]
    b.close()


def test_an_upgrade_stops_nobody_while_a_snapshot_holds_the_tables(database: str) -> None:
    PostgresStore(database, "a").close()
    with psycopg.connect(database) as other, psycopg.connect(database) as reader:
        other.execute("ALTER TABLE rpcmq.incoming DROP COLUMN unique_key")
        other.execute("UPDATE rpcmq.version SET version = 3")
        other.commit()
        reader.execute("SELECT count(*) FROM rpcmq.incoming")
        with pytest.raises(StoreFailed, match="lock timeout"):
            PostgresStore(database, "a")
    store = PostgresStore(database, "a")
    assert store.recovered.epoch == 2
    store.close()


def test_a_session_that_only_works_for_long_is_not_ended(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_session, "SILENCE", 0)
    working = PostgresStore(database, "b")
    working._connection.pgconn.send_query(b"SELECT pg_sleep(600)")
    a = PostgresStore(database, "a")
    assert state(database, "b") == ("active", "PgSleep")
    a.others()
    assert state(database, "b") == ("active", "PgSleep")
    a.close()
    working._connection.close()


def test_a_commit_is_synced_whatever_the_role_has_set(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("ALTER ROLE rpcmq SET synchronous_commit = off")
        try:
            store = PostgresStore(database, "a")
            assert store._connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
            store.close()
        finally:
            connection.execute("ALTER ROLE rpcmq RESET synchronous_commit")


def test_settings_of_the_server_that_may_lose_items_are_logged_once(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    postgres_session._warn_once.cache_clear()
    for _ in range(2):
        PostgresStore(database, "a").close()
    assert caplog.messages == [
        f"the database server of the queues has {name} = off: {postgres_session._RISKS[name]}"
        for name in ("data_checksums", "fsync")
    ]


@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed: apt-get install postgresql")
@pytest.mark.parametrize("bit", range(8))
def test_a_bit_that_the_disk_has_flipped_is_found_by_the_servers_checksums(
    checked_server: PostgresServer, bit: int
) -> None:
    owner = f"owner {bit}"
    store = PostgresStore(checked_server.url, owner)
    store.apply([Put(LANE, f"body {bit} {each}".encode(), 1, maker=Maker(7, each)) for each in range(1, 200)])
    query = "SELECT current_setting('data_directory') || '/' || pg_relation_filepath('rpcmq.items')"
    row = store._connection.execute(query).fetchone()
    assert row is not None
    store._connection.execute("CHECKPOINT")
    store.close()
    checked_server.kill()
    path = Path(row[0])
    whole = path.read_bytes()
    at = whole.index(f"body {bit} 17".encode()) + 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
    checked_server.start()
    with pytest.raises(StoreFailed, match="invalid page in block"):
        PostgresStore(checked_server.url, owner)
    checked_server.kill()
    path.write_bytes(whole)
    checked_server.start()
    store = PostgresStore(checked_server.url, owner)
    assert store.recovered.ready == {LANE: 199}
    store.close()


@pytest.fixture(scope="module")
def checked_server() -> Iterator[PostgresServer]:
    with PostgresServer(is_synced=False, initial=["--data-checksums"]) as server:
        yield server
