"""Effects exactly once: the effect of an item and its mark are committed in one transaction of the user's database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rpcmq.client.queue.dialects import Dialect, dialect_of
from rpcmq.client.queue.items import Item
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["forget_marks", "once", "once_schema"]

T = TypeVar("T")

_SAVEPOINT = "rpcmq_once"
_DAY = 86_400.0
#: The connections in use by blocks of once(), by their ids.
_in_use: dict[int, object] = {}


@contextmanager
def once(connection: Any, item: Item | None, *, dialect: Dialect | None = None) -> Iterator[bool]:
    """Commit the effect of an item and its mark in one transaction, so that it happens once, however often it runs.

    ::

        with rpcmq.once(connection, rpcmq.current_item()) as first:
            if first:
                connection.execute("UPDATE accounts SET ...")

    The block gets True in the first run, and False in each one after a run that was committed. When it ends, the
    transaction is committed; when it raises, that is rolled back, and the next run is the first again. Two runs at the
    same time follow each other: the second one waits for the end of the first, or fails as a locked database does.

    A transaction that is open already is joined. Whatever it has written before is committed with the effect, and
    undone where this is not the first run. The block must not end the transaction itself, nor go on after a statement
    that has failed, unless a savepoint of its own was around it.

    The table of marks must be there: :func:`rpcmq.once_schema`.

    Args:
        connection: of ``sqlite3``, ``apsw``, ``psycopg`` or ``psycopg2``, that does not commit each statement alone,
            and that no other item uses meanwhile.
        item: as :func:`rpcmq.current_item` has returned it.
        dialect: of another database.

    Raises:
        LeaseLost: another worker may have the item. Nothing was committed.
        UsageError: there is no item, or no table, the connection cannot be used, the block has ended the transaction.
    """
    database = dialect or dialect_of(connection)
    if item is None:
        raise UsageError("once() needs an item: rpcmq.current_item() has one in the method of a worker, and only there")
    item.check()
    token = object()
    if _in_use.setdefault(id(connection), token) is not token:
        # Each would commit what the other one has begun.
        raise UsageError(
            "another block of once() uses this connection: give each item a connection of its own, from a pool for "
            "instance, or one to each thread"
        )
    try:
        with _marked(database, connection, item) as is_first:
            yield is_first
    finally:
        del _in_use[id(connection)]


def once_schema(connection: Any, *, dialect: Dialect | None = None) -> None:
    """Make the table of marks, ``rpcmq_marks``, unless it is there.

    Call it where your own tables are made. In an open transaction it is part of that, and else committed.

    Args:
        connection, dialect: as for :func:`rpcmq.once`.

    Raises:
        UsageError: the connection cannot be used.
    """
    database = dialect or dialect_of(connection)
    if database.is_open(connection):
        database.make_table(connection)
    else:
        _in_transaction(database, connection, lambda: database.make_table(connection))


def forget_marks(connection: Any, older_than: float = 30 * _DAY, *, dialect: Dialect | None = None) -> int:
    """Delete old marks, a thousand in a transaction; return how many.

    An item that runs again after its mark is gone has its effect again. So let marks live longer than an item may
    wait in its queue, and longer than its queue remembers ids (a day).

    Args:
        connection, dialect: as for :func:`rpcmq.once`; without an open transaction.
        older_than: seconds; at least two days.

    Raises:
        UsageError: marks so young must be kept; a transaction is open; the connection cannot be used.
    """
    if not isinstance(older_than, int | float) or not 2 * _DAY <= older_than < 1e12:
        raise UsageError(f"older_than must be at least {2 * _DAY:g} seconds (two days), not {short_repr(older_than)}")
    database = dialect or dialect_of(connection)
    if database.is_open(connection) and not database.is_always_open(connection):
        raise UsageError("forget_marks() commits, and a transaction is open: commit it, or roll it back, before")
    before = _now() - int(older_than * 1000)
    forgotten = 0
    while deleted := _in_transaction(
        database, connection, lambda: database.execute(connection, database.forget, (before,))
    ):
        forgotten += deleted
    return forgotten


@contextmanager
def _marked(database: Dialect, connection: Any, item: Item) -> Iterator[bool]:
    has_joined = database.is_open(connection)
    if not has_joined and (setting := database.autocommit(connection)):
        raise UsageError(
            f"once() needs a transaction, and this connection commits each statement alone ({setting}): connect "
            "without that, or begin a transaction on it before"
        )
    try:
        if not has_joined:
            database.begin(connection)
        is_first = _mark(database, connection, item)
        if has_joined and not is_first:
            # Or each run would commit what was written before.
            database.rollback(connection)
            if not database.is_open(connection):
                database.begin(connection)
        database.execute(connection, f"SAVEPOINT {_SAVEPOINT}")
        yield is_first
        _check_transaction(database, connection)
        item.check()
        database.commit(connection)
    except BaseException:
        _undo(database, connection)
        raise


def _mark(database: Dialect, connection: Any, item: Item) -> bool:
    """Add the mark; return whether it was not there."""
    try:
        added = database.execute(connection, database.insert, (item.queue, item.id, _now()))
    except Exception as error:
        text = str(error)
        if "rpcmq_marks" in text and ("no such table" in text or "does not exist" in text):
            raise UsageError(
                "there is no table rpcmq_marks in this database: make it with rpcmq.once_schema(connection) where your "
                "own tables are made"
            ) from error
        raise
    if added not in (0, 1):
        raise UsageError("this connection does not say how many rows were added (is it in pipeline mode?)")
    return added == 1


def _check_transaction(database: Dialect, connection: Any) -> None:
    """Raise unless the transaction is still the one with the mark, and can be committed."""
    try:
        database.execute(connection, f"RELEASE SAVEPOINT {_SAVEPOINT}")
    except Exception as error:
        # The commit of a failed transaction does nothing, in silence, and the item would be done.
        raise UsageError(
            "the block of once() has ended its transaction, or has gone on after a statement that had failed: leave "
            f"commit and rollback to once(), and let errors out of the block ({error})"
        ) from error


def _in_transaction(database: Dialect, connection: Any, step: Callable[[], T]) -> T:
    try:
        if not database.is_open(connection):
            database.begin(connection)
        result = step()
        database.commit(connection)
    except BaseException:
        _undo(database, connection)
        raise
    return result


def _undo(database: Dialect, connection: Any) -> None:
    try:
        database.rollback(connection)
    except Exception:
        # Its connection is broken, and the database forgets the transaction; the error that led here says more.
        return


def _now() -> int:
    return int(time.time() * 1000)
