"""eventlet.db_pool on the database of the standard library."""

from __future__ import annotations

import importlib
import sqlite3
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from gevent.monkey import get_original


@pytest.fixture
def db_pool(eventlet: Any) -> Iterator[Any]:
    yield importlib.import_module("eventlet.db_pool")
    importlib.import_module("eventlet.tpool").killall()


@pytest.fixture
def pool(db_pool: Any) -> Iterator[Any]:
    made = db_pool.ConnectionPool(sqlite3, ":memory:", check_same_thread=False, max_size=2)
    yield made
    made.clear()


def test_a_connection_that_is_closed_is_used_again(pool: Any) -> None:
    conn = pool.get()
    conn.execute("create table t (n)")
    conn.commit()
    assert conn
    conn.close()
    assert not conn
    with pytest.raises(AttributeError):
        conn.execute("select 1")
    with pool.item() as again:
        assert again.cursor().execute("select count(*) from t").fetchall() == [(0,)]
    assert (pool.current_size, pool.free()) == (1, 2)


def test_what_was_not_committed_is_undone(pool: Any) -> None:
    with pool.item() as conn:
        conn.execute("create table t (n)")
        conn.commit()
        conn.execute("insert into t values (1)")
    with pool.item() as conn:
        assert conn.execute("select count(*) from t").fetchone() == (0,)


def test_one_that_is_forgotten_is_given_back(pool: Any) -> None:
    conn = pool.get()
    del conn
    assert (pool.current_size, pool.free()) == (1, 2)


def test_no_more_than_there_may_be(pool: Any, eventlet: Any) -> None:
    first, second = pool.get(), pool.get()
    waiting = eventlet.spawn(pool.get)
    eventlet.sleep(0)
    assert pool.waiting() == 1
    first.close()
    third = waiting.wait()
    assert third and pool.current_size == 2
    second.close(), third.close()
    pool.clear()
    assert pool.current_size == 0


@pytest.mark.parametrize("limit", ["max_age", "max_idle"])
def test_one_that_is_too_old_is_closed_and_replaced(db_pool: Any, limit: str) -> None:
    made: list[Any] = []

    def connect() -> Any:
        made.append(SimpleNamespace(closed=[], rollback=lambda: None))
        made[-1].close = lambda conn=made[-1]: conn.closed.append(True)
        return made[-1]

    pool = db_pool.RawConnectionPool(SimpleNamespace(connect=connect), **{limit: 0})
    pool.get().close()
    pool.get().close()
    assert len(made) == 2 and made[0].closed == [True] and pool.current_size <= 1


def test_one_that_cannot_be_cleaned_up_is_replaced_for_who_waits(db_pool: Any, eventlet: Any) -> None:
    def fails(conn: Any) -> None:
        raise sqlite3.OperationalError("gone away")

    pool = db_pool.RawConnectionPool(sqlite3, ":memory:", max_size=1, cleanup=fails)
    first = pool.get()
    waiting = eventlet.spawn(pool.get)
    eventlet.sleep(0)
    first.close()
    second = waiting.wait()
    assert second.execute("select 1").fetchone() == (1,)
    second.close()
    pool.clear()


def test_its_calls_run_in_native_threads(db_pool: Any) -> None:
    seen = []

    def connect() -> Any:
        seen.append(get_original("_thread", "get_ident")())
        return SimpleNamespace(rollback=lambda: None, close=lambda: None)

    db_pool.ConnectionPool(SimpleNamespace(connect=connect)).get().close()
    assert seen and seen[0] != threading.main_thread().ident


def test_a_database_that_does_not_answer(db_pool: Any, eventlet: Any) -> None:
    driver = SimpleNamespace(connect=lambda: eventlet.sleep(20))
    pool = db_pool.RawConnectionPool(driver, connect_timeout=0.01)
    with pytest.raises(db_pool.ConnectTimeout):
        pool.get()
    assert pool.current_size == 0


def test_a_pool_for_each_database(db_pool: Any) -> None:
    asked: list[dict[str, Any]] = []

    def connect(**kwargs: Any) -> Any:
        asked.append(kwargs)
        return SimpleNamespace(rollback=lambda: None, close=lambda: None)

    credentials = {"default": {"user": "nova"}, "other": {"user": "someone"}}
    connector = db_pool.DatabaseConnector(SimpleNamespace(connect=connect), credentials, max_size=3)
    assert connector.get("a", "db") is connector.get("a", "db") is not connector.get("a", "db2")
    connector.get("a", "db").get().close()
    connector.get("other", "db", 33).get().close()
    assert asked == [{"host": "a", "db": "db", "user": "nova"}, {"host": "other", "db": "db", "port": 33,
                                                                "user": "someone"}]  # fmt: skip
