"""Items that users put in transactions of their own in the database of a PostgreSQL store: each is put by one owner."""

from __future__ import annotations

from threading import Thread
from typing import Any

import psycopg
import pytest

from rpcmq.store import postgres_incoming
from rpcmq.store.contract import Incoming, Lane, Maker, Position, Put, Refuse, Stored, Verdict
from rpcmq.store.postgres import PostgresStore
from rpcmq.store.postgres_schema import SCHEMA_VERSION

LANE = Lane("billing", 0)
KNOWN, OTHER = Verdict(is_known=True), Verdict(is_known=True, is_other=True)
MANY = (1000, 1 << 20)
Session = psycopg.Connection[tuple[Any, ...]]


def write(user_session: Session, message: bytes, id: bytes = b"", digest: bytes = b"") -> None:
    user_session.execute(
        "INSERT INTO rpcmq.incoming"
        " (queue, priority, at, due, expires, id, producer, counter, digest, series, message)"
        " VALUES ('billing', 0, 5, 0, 0, %s, 7, 1, %s, '', %s)",
        (id, digest, message),
    )


def put(item: Incoming) -> Put:
    return Put(
        item.lane, item.message, item.at, item.due, item.id, item.maker, item.digest, item.place, item.unique
    )  # fmt: skip


def bodies(postgres_store: PostgresStore) -> list[bytes]:
    return [each.body for each in postgres_store.read(LANE, 0, *MANY) if isinstance(each, Stored)]


def test_what_is_committed_comes_in_and_is_put_once(postgres_store: PostgresStore, user_session: Session) -> None:
    write(user_session, b"one")
    write(user_session, b"two")
    assert postgres_store.read_incoming(*MANY) == []
    user_session.commit()
    found = postgres_store.read_incoming(*MANY)
    assert [each.message for each in found] == [b"one", b"two"]
    assert postgres_store.apply([put(each) for each in found]) == [Verdict(1), Verdict(2)]
    assert postgres_store.apply([put(each) for each in found]) == [KNOWN, KNOWN]
    assert postgres_store.read_incoming(*MANY) == [] and bodies(postgres_store) == [b"one", b"two"]


def test_one_whose_unique_key_is_taken_is_taken_away_and_not_put(
    postgres_store: PostgresStore, user_session: Session
) -> None:
    for message in (b"one", b"two"):
        write(user_session, message)
    user_session.execute("UPDATE rpcmq.incoming SET unique_key = 'u'")
    user_session.commit()
    found = postgres_store.read_incoming(*MANY)
    assert [each.unique for each in found] == [b"u", b"u"]
    assert postgres_store.apply([put(each) for each in found]) == [Verdict(1), KNOWN]
    assert postgres_store.read_incoming(*MANY) == [] and bodies(postgres_store) == [b"one"]


def test_what_is_rolled_back_never_comes_in(postgres_store: PostgresStore, user_session: Session) -> None:
    write(user_session, b"one")
    user_session.rollback()
    assert postgres_store.read_incoming(*MANY) == []


def test_no_more_is_read_than_was_asked_for(postgres_store: PostgresStore, user_session: Session) -> None:
    for _ in range(5):
        write(user_session, bytes(100))
    user_session.commit()
    assert len(postgres_store.read_incoming(3, 1 << 20)) == 3
    assert len(postgres_store.read_incoming(10, 150)) == 2


def test_a_transaction_that_commits_late_is_seen(
    postgres_store: PostgresStore, user_session: Session, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its place is before those that were taken up long ago."""
    write(user_session, b"late")
    with psycopg.connect(database) as other:
        write(other, b"early")
    # A turn at each look, as if each came long after the one before.
    monkeypatch.setattr(postgres_incoming, "_SETTLED", 0.0)
    for _ in range(3):
        postgres_store.apply([put(each) for each in postgres_store.read_incoming(*MANY)])
    user_session.commit()
    monkeypatch.setattr(postgres_incoming, "_SETTLED", 1e9)
    assert postgres_store.read_incoming(*MANY) == []  # it looks behind the one that was taken up
    monkeypatch.setattr(postgres_incoming, "_SETTLED", 0.0)
    assert [each.message for each in postgres_store.read_incoming(*MANY)] == [b"late"]


def test_two_owners_take_up_each_item_once(postgres_store: PostgresStore, user_session: Session, database: str) -> None:
    other = PostgresStore(database, "b")
    for each in range(1000):
        write(user_session, b"%d" % each)
    user_session.commit()

    def take_up(owner: PostgresStore) -> None:
        while found := owner.read_incoming(7, 1 << 20):
            owner.apply([put(each) for each in found])

    threads = [Thread(target=take_up, args=(owner,)) for owner in (postgres_store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    both = bodies(postgres_store) + bodies(other)
    assert sorted(map(int, both)) == list(range(1000))
    other.close()


def test_an_item_that_another_owner_is_taking_up_is_not_waited_for(
    postgres_store: PostgresStore, user_session: Session
) -> None:
    write(user_session, b"one")
    user_session.commit()
    (found,) = postgres_store.read_incoming(*MANY)
    user_session.execute(
        "DELETE FROM rpcmq.incoming"
    )  # as another owner does, in a transaction that is not committed yet
    assert postgres_store.apply([put(found)]) == [KNOWN]
    user_session.rollback()
    assert postgres_store.apply([put(found)]) == [Verdict(1)]


def test_an_id_is_put_once_and_one_of_other_content_stays_until_it_is_refused(
    postgres_store: PostgresStore, user_session: Session
) -> None:
    postgres_store.apply([Put(LANE, b"a", 1, id=b"i", digest=b"A")])
    write(user_session, b"a", b"i", b"A")
    write(user_session, b"b", b"i", b"B")
    write(user_session, b"c", b"j", b"C")
    write(user_session, b"c", b"j", b"C")
    user_session.commit()
    found = postgres_store.read_incoming(*MANY)
    assert postgres_store.apply([put(each) for each in found]) == [KNOWN, OTHER, Verdict(2), KNOWN]
    assert [each.place for each in postgres_store.read_incoming(*MANY)] == [found[1].place]
    refusal = Refuse(LANE, found[1].place, 70, b"whole", b"story")
    assert postgres_store.apply([refusal]) == [Verdict(3)]
    assert postgres_store.apply([refusal]) == [Verdict()]
    (dead,) = postgres_store.read_dead("billing", Position(), 10, 1 << 20)
    assert isinstance(dead, Stored)
    assert (dead.id, dead.maker, dead.body, dead.state, dead.at) == (b"i", Maker(7, 1), b"whole", b"story", 5)
    assert postgres_store.read_incoming(*MANY) == [] and bodies(postgres_store) == [b"a", b"c"]


def test_tables_of_the_first_version_are_upgraded(database: str) -> None:
    PostgresStore(database, "a").close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE rpcmq.incoming, rpcmq.results, rpcmq.uniques")
        connection.execute("UPDATE rpcmq.version SET version = 1")
        postgres_store = PostgresStore(database, "a")
        write(connection, b"one")
        assert len(postgres_store.read_incoming(*MANY)) == 1
        assert connection.execute("SELECT version FROM rpcmq.version").fetchone() == (SCHEMA_VERSION,)
    postgres_store.close()
