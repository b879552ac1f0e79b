"""Effects exactly once, in each database: rolled back, run twice, run by two at once, killed before and after."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from threading import Event, Thread
from typing import Any

import apsw
import psycopg
import pytest
from gevent import subprocess

import rpcmq
from rpcmq.errors import LeaseLost, UsageError
from tests.client.queue.conftest import Connect
from tests.client.queue.marking import item, work

OLD = "UPDATE rpcmq_marks SET at = at - 4 * 86400000"


@pytest.fixture
def connection(connect: Connect) -> Any:
    """A connection to a database with a table of marks."""
    connection = connect()
    rpcmq.once_schema(connection)
    return connection


def effects(connect: Connect) -> int:
    """The number of effects that were committed."""
    ((number,),) = connect().cursor().execute("SELECT count(*) FROM effects").fetchall()
    return int(number)


def run(connection: Any, statement: str) -> None:
    """Run it, and commit."""
    connection.cursor().execute(statement)
    if not isinstance(connection, apsw.Connection):
        connection.commit()


def test_a_second_run_has_no_effect(connection: Any, connect: Connect) -> None:
    assert [work(connection, item()) for _ in range(3)] == [True, False, False]
    assert work(connect(), item()) is False
    assert work(connection, item("invoice-18")) is True
    assert effects(connect) == 2


def test_a_block_that_raises_leaves_neither_effect_nor_mark(connection: Any, connect: Connect) -> None:
    with pytest.raises(ZeroDivisionError):
        work(connection, item(), lambda: 1 / 0)
    assert effects(connect) == 0
    assert work(connection, item()) is True and effects(connect) == 1


def test_of_runs_at_the_same_time_one_is_the_first(connection: Any, connect: Connect) -> None:
    firsts: list[bool] = []
    connections = [connect() for _ in range(6)]
    threads = [Thread(target=lambda each=each: firsts.append(work(each, item()))) for each in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(firsts) == [False] * 5 + [True] and effects(connect) == 1


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_second_run_waits_for_the_end_of_the_first(connection: Any, connect: Connect, is_committed: bool) -> None:
    second, ended, outcomes = connect(), Event(), []

    def run_it() -> None:
        outcomes.append(work(second, item()))
        ended.set()

    thread = Thread(target=run_it)
    try:
        with rpcmq.once(connection, item()) as first:
            assert first
            connection.cursor().execute("INSERT INTO effects VALUES (1)")
            thread.start()
            assert not ended.wait(0.1)
            if not is_committed:
                raise ZeroDivisionError
    except ZeroDivisionError:
        assert not is_committed
    assert ended.wait(30)
    thread.join(30)
    assert outcomes == [not is_committed] and effects(connect) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_worker_is_killed(connection: Any, connect: Connect, place: tuple[str, str], moment: str) -> None:
    """Between the effect and its commit, and after the commit, with the item not reported done."""
    command = [sys.executable, "-m", "tests.client.queue.marking", *place, moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"now\n"
        process.kill()
    assert effects(connect) == (moment == "after")
    assert work(connection, item()) is (moment == "before")
    assert effects(connect) == 1


def test_a_lost_lease_is_refused_before_the_effect_and_before_its_commit(connection: Any, connect: Connect) -> None:
    with pytest.raises(LeaseLost, match=r"the lease of item 'invoice-17' of queue 'billing' .* is over"):
        work(connection, item(remaining=0.0))
    times = iter([5.0, 0.0])
    ending = item()
    ending._remaining = lambda: next(times)
    with pytest.raises(LeaseLost):
        work(connection, ending)
    assert effects(connect) == 0
    assert work(connection, item()) is True


def test_an_open_transaction_is_joined_and_undone_in_a_second_run(connection: Any, connect: Connect) -> None:
    for is_first in (True, False, False):
        if isinstance(connection, apsw.Connection):
            connection.execute("BEGIN")
        connection.cursor().execute("INSERT INTO effects VALUES (0)")
        assert work(connection, item()) is is_first
        assert effects(connect) == 2


def test_a_second_run_may_write_in_its_block(connection: Any, connect: Connect) -> None:
    work(connection, item())
    with rpcmq.once(connection, item()) as first:
        assert not first
        connection.cursor().execute("INSERT INTO effects VALUES (2)")
    assert effects(connect) == 2


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_block_that_ends_its_transaction_is_told(connection: Any, connect: Connect, end: str) -> None:
    def go_on_in_another() -> None:
        cursor = connection.cursor()
        cursor.execute(end)
        if not isinstance(connection, sqlite3.Connection):
            cursor.execute("BEGIN")
        cursor.execute("INSERT INTO effects VALUES (1)")

    with pytest.raises(UsageError, match="has ended its transaction"):
        work(connection, item(), go_on_in_another)
    assert effects(connect) == (end == "COMMIT")
    assert work(connection, item()) is (end == "ROLLBACK")


def test_the_table_is_made_by_its_user_once(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(UsageError, match=r"no table rpcmq_marks in this database: make it with rpcmq.once_schema"):
        work(connection, item())
    threads = [Thread(target=rpcmq.once_schema, args=(each,)) for each in [connection, *(connect() for _ in range(3))]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert work(connection, item()) is True


def test_the_table_may_be_made_in_a_migration_of_its_user(connect: Connect) -> None:
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("BEGIN")
    rpcmq.once_schema(connection)
    cursor.execute("ROLLBACK")
    with pytest.raises(UsageError, match="no table rpcmq_marks"):
        work(connection, item())


def test_an_id_that_was_put_at_two_owners_has_its_effect_once(connection: Any) -> None:
    """A producer that was killed may find another router the next time, whose files know nothing of the first put."""
    assert work(connection, item()) is True
    assert work(connection, item(owner="b")) is False


def test_old_marks_are_forgotten(connection: Any, connect: Connect) -> None:
    for number in range(5):
        work(connection, item(f"old-{number}"))
    run(connection, OLD)
    many = ", ".join(f"('billing', 'old-{number}', 1)" for number in range(5, 2500))
    run(connection, f"INSERT INTO rpcmq_marks (queue, item, at) VALUES {many}")
    work(connection, item("new"))
    assert rpcmq.forget_marks(connection) == 2495
    assert rpcmq.forget_marks(connection, 3 * 86400) == 5
    assert rpcmq.forget_marks(connection, 3 * 86400) == 0
    assert work(connection, item("new")) is False and work(connection, item("old-1")) is True
    for wrong in (86400, -1, "1"):
        with pytest.raises(UsageError, match=r"older_than must be at least 172800 seconds \(two days\), not"):
            rpcmq.forget_marks(connection, wrong)  # type: ignore[arg-type]
    connection.cursor().execute("BEGIN")
    with pytest.raises(UsageError, match="a transaction is open: commit it, or roll it back, before"):
        rpcmq.forget_marks(connection)


def test_a_connection_that_another_item_uses_is_refused(connection: Any, connect: Connect) -> None:
    """Or each would commit half of the other's effect."""
    with pytest.raises(UsageError, match=r"another block of once\(\) uses this connection: give each item"):
        work(connection, item(), lambda: work(connection, item("invoice-18")))
    assert effects(connect) == 0
    assert work(connection, item()) is True


def test_no_item_is_refused(connection: Any) -> None:
    with pytest.raises(UsageError, match=r"current_item\(\) has one in the method of a worker"):
        work(connection, None)  # type: ignore[arg-type]


# --- one database --------------------------------------------------------------------------------


def test_sqlite_that_commits_each_statement_alone_is_refused() -> None:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    rpcmq.once_schema(connection)
    with pytest.raises(UsageError, match=r"commits each statement alone \(isolation_level=None\): connect without"):
        work(connection, item())
    connection.execute("CREATE TABLE effects (n INT)")
    for is_first in (True, False):
        connection.execute("BEGIN")
        assert work(connection, item()) is is_first
        assert not connection.in_transaction
    connection.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the modes of Python 3.12")
@pytest.mark.parametrize("autocommit", [True, False])
def test_sqlite_in_the_modes_of_python_3_12(tmp_path: Path, autocommit: bool) -> None:
    settings: dict[str, Any] = {"autocommit": autocommit}
    connection = sqlite3.connect(tmp_path / "accounts.db", **settings)
    connection.execute("CREATE TABLE effects (n INT)")
    rpcmq.once_schema(connection)
    if autocommit:
        with pytest.raises(UsageError, match=r"commits each statement alone \(autocommit=True\): connect without"):
            work(connection, item())
    connection.commit()
    for is_first in (True, False):
        if autocommit:
            connection.execute("BEGIN")
        assert work(connection, item()) is is_first
    assert connection.execute("SELECT count(*) FROM effects").fetchone() == (1,)
    run(connection, OLD)
    assert rpcmq.forget_marks(connection, 3 * 86400) == 1
    connection.close()


def test_postgres_that_commits_each_statement_alone_is_refused(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS effects, rpcmq_marks")
        connection.execute("CREATE TABLE effects (n INT)")
        rpcmq.once_schema(connection)
        with pytest.raises(UsageError, match=r"commits each statement alone \(autocommit=True\): connect without"):
            work(connection, item())
        for is_first in (True, False):
            connection.execute("BEGIN")
            assert work(connection, item()) is is_first
        assert connection.execute("SELECT count(*) FROM effects").fetchone() == (1,)
        assert rpcmq.forget_marks(connection) == 0


def test_a_transaction_that_has_failed_is_refused(database: str) -> None:
    with psycopg.connect(database) as connection:
        rpcmq.once_schema(connection)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1 / 0")
        with pytest.raises(UsageError, match="in a transaction that has failed: roll it back before"):
            work(connection, item())


def test_an_error_that_the_block_has_swallowed_is_not_taken_for_success(database: str) -> None:
    """PostgreSQL commits nothing then, and says nothing."""
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE IF EXISTS effects, rpcmq_marks")
        connection.execute("CREATE TABLE effects (n INT)")
        rpcmq.once_schema(connection)
        connection.commit()

        def swallow() -> None:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.execute("SELECT 1 / 0")

        def swallow_behind_a_savepoint() -> None:
            with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
                connection.execute("SELECT 1 / 0")

        with pytest.raises(UsageError, match="gone on after a statement that had failed"):
            work(connection, item(), swallow)
        assert work(connection, item(), swallow_behind_a_savepoint) is True
        assert connection.execute("SELECT count(*) FROM effects").fetchone() == (1,)


def test_a_transaction_block_of_psycopg_is_refused(database: str) -> None:
    with psycopg.connect(database) as connection:
        rpcmq.once_schema(connection)
        connection.execute("DELETE FROM rpcmq_marks")
        connection.commit()
        text = "cannot be used within `with connection.transaction"
        with pytest.raises(UsageError, match=text), connection.transaction(), rpcmq.once(connection, item()):
            pass
        assert connection.execute("SELECT count(*) FROM rpcmq_marks").fetchone() == (0,)


def test_a_pipeline_is_refused(database: str) -> None:
    """It would take each run for a second one, and have no effect."""
    with psycopg.connect(database) as connection:
        rpcmq.once_schema(connection)
        with pytest.raises(UsageError, match="pipeline mode"), connection.pipeline():
            work(connection, item())


def test_an_unknown_connection_is_refused_and_a_dialect_may_be_given(connect: Connect, place: tuple[str, str]) -> None:
    class Wrapped:
        """As a pool gives it."""

        def __init__(self, inside: Any) -> None:
            self.inside = inside

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inside, name)

    class Other(rpcmq.Dialect):
        marker = "%s"

        def is_open(self, connection: Any) -> bool:
            return bool(connection.info.transaction_status == 2)

    connection = Wrapped(connect())
    with pytest.raises(UsageError, match=r"no dialect is known for a connection of .*Wrapped: give one of sqlite3"):
        rpcmq.once_schema(connection)
    if place[0] == "psycopg":
        rpcmq.once_schema(connection, dialect=Other())
        for is_first in (True, False):
            with rpcmq.once(connection, item(), dialect=Other()) as first:
                assert first is is_first
        assert rpcmq.forget_marks(connection, dialect=Other()) == 0
