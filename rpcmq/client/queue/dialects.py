"""The databases in which effects are marked: how each begins and ends a transaction, and its SQL for the marks.

A dialect works with a connection of Python's DB-API that it is given, so that no driver is imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rpcmq.errors import UsageError

__all__ = ["Dialect", "dialect_of"]

#: Of the advisory lock under which PostgreSQL makes the table: two that make it at once would both fail.
_MAKING = 0x72706D7100000002
#: States of a transaction, as libpq numbers them.
_IDLE, _OPEN, _FAILED = 0, 2, 3


class Dialect:
    """The way in which :func:`rpcmq.once` talks to a database. Derive from it for one that rpcmq does not know.

    Each method gets a connection of the DB-API (PEP 249), in whose statements ``?`` stands for a value. A dialect has
    to define :meth:`is_open`; the rest is there, for databases that know ``ON CONFLICT``.

    Attributes:
        marker: stands for a value where that is not ``?``.
        table, index: make the table of marks, and an index over their times, unless they are there.
        insert: adds a mark, or nothing if it is there; waits for another transaction that has added the same one.
        forget: deletes 1000 marks that are older than a time.
    """

    marker = "?"
    table = (
        "CREATE TABLE IF NOT EXISTS rpcmq_marks (queue VARCHAR(255) NOT NULL,"
        " item VARCHAR(255) NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (queue, item))"
    )
    index = "CREATE INDEX IF NOT EXISTS rpcmq_marks_at ON rpcmq_marks (at)"
    insert = "INSERT INTO rpcmq_marks (queue, item, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    forget = (
        "DELETE FROM rpcmq_marks WHERE (queue, item) IN"
        " (SELECT queue, item FROM rpcmq_marks WHERE at < ? ORDER BY at LIMIT 1000)"
    )

    def is_open(self, connection: Any) -> bool:
        """Return whether a transaction is open.

        Raises:
            UsageError: one is, and has failed, or nothing can be found out.
        """
        raise NotImplementedError

    def is_always_open(self, connection: Any) -> bool:
        """Return whether ``connection`` has a transaction at any time, also where nothing was done in it."""
        return False

    def autocommit(self, connection: Any) -> str:
        """The setting by which ``connection`` commits each statement alone; empty: it does not."""
        return ""

    def begin(self, connection: Any) -> None:
        """Begin a transaction, where none is open and the first statement does not."""

    def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement; return the number of rows that it has changed."""
        cursor = connection.cursor()
        try:
            cursor.execute(statement.replace("?", self.marker), values)
            return int(cursor.rowcount)
        finally:
            cursor.close()

    def commit(self, connection: Any) -> None:
        """Commit the transaction."""
        connection.commit()

    def rollback(self, connection: Any) -> None:
        """Roll the transaction back, if one is open."""
        connection.rollback()

    def make_table(self, connection: Any) -> None:
        """Make the table and its index, unless they are there."""
        self.execute(connection, self.table)
        self.execute(connection, self.index)


class _Sqlite(Dialect):
    """The module ``sqlite3`` of the standard library."""

    table = (
        "CREATE TABLE IF NOT EXISTS rpcmq_marks (queue TEXT NOT NULL, item TEXT NOT NULL,"
        " at INTEGER NOT NULL, PRIMARY KEY (queue, item)) WITHOUT ROWID"
    )

    def is_open(self, connection: Any) -> bool:
        return bool(connection.in_transaction)

    def is_always_open(self, connection: Any) -> bool:
        return getattr(connection, "autocommit", -1) is False

    def autocommit(self, connection: Any) -> str:
        # Since Python 3.12 it has the attribute, where -1 stands for the way of the versions before.
        mode = getattr(connection, "autocommit", -1)
        if mode == -1:
            return "isolation_level=None" if connection.isolation_level is None else ""
        return "autocommit=True" if mode else ""

    def begin(self, connection: Any) -> None:
        # With the lock for writing: whoever has read before cannot get it once another one has written.
        self.execute(connection, "BEGIN IMMEDIATE")

    def commit(self, connection: Any) -> None:
        connection.commit()
        if connection.in_transaction and self.autocommit(connection):
            self.execute(connection, "COMMIT")  # commit() does nothing where autocommit=True

    def rollback(self, connection: Any) -> None:
        connection.rollback()
        if connection.in_transaction and self.autocommit(connection):
            self.execute(connection, "ROLLBACK")


class _Apsw(_Sqlite):
    """The module ``apsw``, which begins no transaction by itself."""

    def autocommit(self, connection: Any) -> str:
        return ""  # it has no other mode, so that this is not its user's choice

    def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> int:
        connection.cursor().execute(statement, values)
        return int(connection.changes())

    def commit(self, connection: Any) -> None:
        self.execute(connection, "COMMIT")

    def rollback(self, connection: Any) -> None:
        if connection.in_transaction:
            self.execute(connection, "ROLLBACK")


class _Postgres(Dialect):
    """PostgreSQL, by psycopg 3 or psycopg2."""

    marker = "%s"
    table = (
        "CREATE TABLE IF NOT EXISTS rpcmq_marks (queue TEXT NOT NULL, item TEXT NOT NULL,"
        " at BIGINT NOT NULL, PRIMARY KEY (queue, item))"
    )

    def is_open(self, connection: Any) -> bool:
        # There no statement says how many rows it has changed before all are sent. psycopg2 has no such mode.
        if int(getattr(connection.info, "pipeline_status", 0)):
            raise UsageError(
                "the connection is in pipeline mode, in which nobody hears at once whether a row was added: "
                "leave `with connection.pipeline()` before"
            )
        status = int(connection.info.transaction_status)
        if status == _FAILED:
            raise UsageError("the connection is in a transaction that has failed: roll it back before")
        if status not in (_IDLE, _OPEN):
            raise UsageError("the connection is closed, or in the middle of a statement")
        return status == _OPEN

    def autocommit(self, connection: Any) -> str:
        return "autocommit=True" if connection.autocommit else ""

    def begin(self, connection: Any) -> None:
        if connection.autocommit:
            self.execute(connection, "BEGIN")

    def commit(self, connection: Any) -> None:
        self._end(connection.commit)

    def rollback(self, connection: Any) -> None:
        self._end(connection.rollback)

    @staticmethod
    def _end(step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            if "Transaction context" not in str(error):
                raise
            raise UsageError(
                "once() ends the transaction, and so cannot be used within `with connection.transaction()`"
            ) from error

    def make_table(self, connection: Any) -> None:
        self.execute(connection, "SELECT pg_advisory_xact_lock(?)", (_MAKING,))
        super().make_table(connection)


_SQLITE, _APSW, _POSTGRES = _Sqlite(), _Apsw(), _Postgres()
#: By package and name of a connection's class.
_KNOWN: dict[tuple[str, str], Dialect] = {
    ("sqlite3", "Connection"): _SQLITE,
    ("apsw", "Connection"): _APSW,
    ("psycopg", "Connection"): _POSTGRES,
    ("psycopg2", "connection"): _POSTGRES,
}


def dialect_of(connection: Any) -> Dialect:
    """The dialect for ``connection``.

    Raises:
        UsageError: none is known.
    """
    for kind in type(connection).__mro__:
        dialect = _KNOWN.get((kind.__module__.partition(".")[0], kind.__name__))
        if dialect is not None:
            return dialect
    kind = type(connection)
    raise UsageError(
        f"no dialect is known for a connection of {kind.__module__}.{kind.__qualname__}: give one of sqlite3, apsw, "
        "psycopg or psycopg2 (of a pool or an ORM: the driver's own), or dialect=, derived from rpcmq.Dialect"
    )
