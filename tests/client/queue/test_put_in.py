"""Items put in a transaction of the user's own: with its commit, and only then, and taken up once."""

from __future__ import annotations

import sqlite3
import time
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import rpcmq
from rpcmq.client.queue.messages import Message
from rpcmq.errors import PayloadError, PutRefused, UsageError
from rpcmq.store.contract import Incoming, Lane, Put
from rpcmq.store.postgres import PostgresStore

MANY = (1000, 1 << 20)
MESSAGE = {"method": "charge", "args": {"invoice": 17}}


def take_up(postgres_store: PostgresStore) -> list[Incoming]:
    """Put the items that are there, as an owner does."""
    found = postgres_store.read_incoming(*MANY)
    postgres_store.apply(
        [Put(it.lane, it.message, it.at, it.due, it.id, it.maker, it.digest, it.place) for it in found]
    )
    return found


def test_an_item_is_there_with_the_commit_and_only_then(
    user_session: Any, postgres_store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    user_session.execute("CREATE TEMP TABLE orders (n INT)")
    monkeypatch.setattr(time, "time", lambda: 17.0)
    id = rpcmq.put_in(user_session, {"user": "ann"}, "billing", MESSAGE, priority=5, key="ann", delay=60, expires=3600)
    assert postgres_store.read_incoming(*MANY) == []
    user_session.commit()
    (item,) = take_up(postgres_store)
    assert item.lane == Lane("billing", 5) and item.series == b"ann"
    assert (item.due - item.at, item.expires - item.at) == (60_000, 3_600_000)
    assert 0 <= item.now - item.at < 60_000, "by the clock of the database, whatever that of the user shows"
    assert id == f"{item.maker.producer:x}-{item.maker.counter}"
    method, format, body = Message.from_bytes(item.message)
    assert method == b"charge"
    assert rpcmq.Codec().decode(format, body) == {"context": {"user": "ann"}, "args": {"invoice": 17}}
    assert take_up(postgres_store) == []


def test_an_item_takes_its_unique_key_along(user_session: Any, postgres_store: PostgresStore) -> None:
    rpcmq.put_in(user_session, None, "billing", MESSAGE, unique="refresh-7")
    user_session.commit()
    (item,) = take_up(postgres_store)
    assert item.unique == b"refresh-7"


def test_a_result_cannot_be_kept_for_want_of_a_receipt(user_session: Any) -> None:
    with pytest.raises(UsageError, match=r"put_in\(\) keeps no result, because it has no receipt to ask for one with"):
        rpcmq.put_in(user_session, None, "billing", MESSAGE, keep_result=60)


def test_a_rollback_puts_nothing(user_session: Any, postgres_store: PostgresStore) -> None:
    rpcmq.put_in(user_session, None, "billing", MESSAGE)
    user_session.rollback()
    assert postgres_store.read_incoming(*MANY) == []


def test_an_id_is_put_once(user_session: Any, postgres_store: PostgresStore) -> None:
    def put(invoice: int = 17, queue: str = "billing") -> str:
        return rpcmq.put_in(user_session, None, queue, {"method": "charge", "args": {"invoice": invoice}}, id="i")

    assert [put(), put()] == ["i", "i"]
    text = "queue 'billing' has an item of other content with the id 'i'"
    with pytest.raises(PutRefused, match=text):
        put(18)
    user_session.commit()  # an item that is refused does not end the transaction
    assert len(take_up(postgres_store)) == 1
    assert put() == "i"
    with pytest.raises(PutRefused, match=text):
        put(18)
    put(18, "images")
    user_session.commit()
    assert [each.lane.queue for each in take_up(postgres_store)] == ["images"]


def test_rows_of_another_kind_do_no_harm(postgres_store: PostgresStore, database: str) -> None:
    with psycopg.connect(database, row_factory=dict_row) as user_session:
        rpcmq.put_in(user_session, None, "billing", MESSAGE, id="i")
        assert rpcmq.put_in(user_session, None, "billing", MESSAGE, id="i") == "i"
    assert len(take_up(postgres_store)) == 1


def test_what_cannot_be_put_is_refused(user_session: Any, postgres_store: PostgresStore, database: str) -> None:
    wrong: list[tuple[type[Exception], tuple[Any, ...], dict[str, Any]]] = [
        (UsageError, ("", MESSAGE), {}),
        (UsageError, ("billing", {"args": {}}), {}),
        (UsageError, ("billing", MESSAGE), {"priority": 10}),
        (UsageError, ("billing", MESSAGE), {"delay": -1}),
        (UsageError, ("billing", MESSAGE), {"id": ""}),
        (PayloadError, ("billing", {"method": "charge", "args": {"x": lambda: 1}}), {}),
    ]
    for error, arguments, options in wrong:
        with pytest.raises(error):
            rpcmq.put_in(user_session, None, *arguments, **options)
    with psycopg.connect(database, autocommit=True) as alone:
        with pytest.raises(UsageError, match=r"put_in\(\) needs a transaction.*\(autocommit=True\)"):
            rpcmq.put_in(alone, None, "billing", MESSAGE)
        with alone.transaction():
            rpcmq.put_in(alone, None, "billing", MESSAGE)
    sqlite = sqlite3.connect(":memory:")
    with pytest.raises(UsageError, match=r"put_in\(\) needs a connection to PostgreSQL, not one of sqlite3"):
        rpcmq.put_in(sqlite, None, "billing", MESSAGE)
    sqlite.close()
    assert len(take_up(postgres_store)) == 1


def test_what_is_put_goes_with_its_savepoint(database: str, postgres_store: PostgresStore) -> None:
    with psycopg.connect(database, autocommit=True) as user_session:
        with user_session.transaction():
            rpcmq.put_in(user_session, None, "outer", MESSAGE)
            with user_session.transaction(force_rollback=True):
                rpcmq.put_in(user_session, None, "undone", MESSAGE, id="i")
            with user_session.transaction():
                rpcmq.put_in(user_session, None, "inner", MESSAGE, id="i")
        assert [each.lane.queue for each in take_up(postgres_store)] == ["outer", "inner"]


def test_a_pipeline_is_refused(database: str, postgres_store: PostgresStore) -> None:
    """There an id that an item of other content has would seem to be put."""
    with psycopg.connect(database) as user_session:
        for id in (None, "i"):
            with pytest.raises(UsageError, match=r"is in pipeline mode, .* leave"), user_session.pipeline():
                rpcmq.put_in(user_session, None, "billing", MESSAGE, id=id)
    assert take_up(postgres_store) == []


def test_a_database_without_queues_is_told(database: str) -> None:
    for id in (None, "i"):
        with psycopg.connect(database) as user_session:
            with pytest.raises(UsageError, match=r"this database has no queues: .*queue.store"):
                rpcmq.put_in(user_session, None, "billing", MESSAGE, id=id)
            user_session.rollback()


def test_a_role_needs_few_rights(postgres_store: PostgresStore, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute("DROP ROLE IF EXISTS app")
        owner.execute("CREATE ROLE app LOGIN")
        with psycopg.connect(database.replace("rpcmq@", "app@")) as user_session:
            with pytest.raises(UsageError, match=r"has no right to the queues .*GRANT USAGE ON SCHEMA"):
                rpcmq.put_in(user_session, None, "billing", MESSAGE)
            user_session.rollback()
            owner.execute("GRANT USAGE ON SCHEMA rpcmq TO app")
            owner.execute("GRANT SELECT, INSERT ON rpcmq.incoming TO app")
            owner.execute("GRANT SELECT ON rpcmq.ids TO app")
            rpcmq.put_in(user_session, None, "billing", MESSAGE)
            rpcmq.put_in(user_session, None, "billing", MESSAGE, id="i")
        owner.execute("DROP OWNED BY app")
    assert len(take_up(postgres_store)) == 2
