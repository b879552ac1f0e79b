"""Items in a PostgreSQL database that routers share: each owns its own, and takes over those of one that is gone.

An owner holds an advisory lock in the session of its connection, so that there is one at a time, and has an epoch that
each batch checks in its own transaction: a lock alone is lost without notice where a connection is cut, and its former
holder would write on. Whoever opens the items of an owner that is gone is that owner from then on.

The connection must be a session of its own: no pooler that gives each transaction another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg

from rpcmq.store.contract import (
    KEPT_OVERHEAD,
    Change,
    Damaged,
    Found,
    Incoming,
    Lane,
    Maker,
    Position,
    Put,
    Recovered,
    Stored,
    StoreFailed,
    Verdict,
)
from rpcmq.store.postgres_batch import Batch
from rpcmq.store.postgres_incoming import IncomingTable
from rpcmq.store.postgres_owners import Ownership
from rpcmq.store.postgres_rows import bounded
from rpcmq.store.postgres_schema import prepare
from rpcmq.store.postgres_session import NOW, connect, end_silent, in_words, warn_of_risks
from rpcmq.store.shared import Others

__all__ = ["BEAT_SECONDS", "PostgresStore"]

log = logging.getLogger("rpcmq.queue")

P = ParamSpec("P")
T = TypeVar("T")

#: The owner must be heard of so often (seconds), by a batch or a beat.
BEAT_SECONDS = 2.0
_ITEM = "queue, priority, number, at, id, producer, counter, body, state"


def _on_server(method: Callable[Concatenate[PostgresStore, P], T]) -> Callable[Concatenate[PostgresStore, P], T]:
    """Has ``method`` raise StoreFailed where the database fails: the connection is given up."""

    @wraps(method)
    def guarded(self: PostgresStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._failing():
            return method(self, *args, **kwargs)

    return guarded


class PostgresStore:
    """The items of ``owner`` in the database ``url``.

    Args:
        url: ``postgresql://...``, as libpq takes it.
        owner: the name of the router whose items these are.
        is_heir: the owner is gone, and another router opens its items.

    Raises:
        StoreError: it cannot be used: no such database, no right to it, a later version.
        StoreFailed: the server cannot be reached, or failed, or the owner lives: it may be had later.
    """

    def __init__(self, url: str, owner: str, is_heir: bool = False) -> None:
        self._owner = owner
        self._connection = connect(url, owner)
        try:
            with self._failing():
                end_silent(self._connection)
                prepare(self._connection)
                self._ownership = Ownership(self._connection, owner, waits=not is_heir)
                self._id, self._epoch = self._ownership.id, self._ownership.epoch
                self._incoming = IncomingTable(self._connection)
                self._batches = Batch(self._connection, self._id, self._epoch, self._incoming)
                #: The content at the opening.
                self.recovered = replace(self._count(), notes=self._notes())
                warn_of_risks(self._connection)
        except BaseException:
            self._connection.close()
            raise

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except StoreFailed:
            self._connection.close()
            raise
        except psycopg.Error as error:
            self._connection.close()
            raise StoreFailed(f"queue store of {self._owner!r}: {in_words(error)}") from error

    def _notes(self) -> dict[str, bytes]:
        notes = self._connection.execute("SELECT name, value FROM rpcmq.notes WHERE owner = %s", (self._id,))
        return {str(name): bytes(value) for name, value in notes}

    def _count(self) -> Recovered:
        execute, owner = self._connection.execute, (self._id,)
        counts = execute(
            "SELECT queue, priority, count(i.number) FILTER (WHERE i.due IS NULL), count(i.due),"
            " coalesce(sum(octet_length(i.body)), 0) FROM rpcmq.lanes"
            " LEFT JOIN rpcmq.items i USING (owner, queue, priority) WHERE owner = %s GROUP BY queue, priority",
            owner,
        ).fetchall()
        dead = execute(
            "SELECT queue, count(*), sum(octet_length(body)) FROM rpcmq.dead WHERE owner = %s GROUP BY queue", owner
        ).fetchall()
        results = execute(
            f"SELECT queue, sum(octet_length(value) + {KEPT_OVERHEAD}) FROM rpcmq.results"
            " WHERE owner = %s GROUP BY queue",
            owner,
        )
        size: dict[str, int] = {}
        for queue, bytes_ in [*((row[0], row[4]) for row in counts), *((row[0], row[2]) for row in dead)]:
            size[queue] = size.get(queue, 0) + int(bytes_)
        (clock,) = execute(f"SELECT {NOW}").fetchone() or (0,)
        return Recovered(
            self._epoch,
            {Lane(queue, priority): ready for queue, priority, ready, *_ in counts},
            {Lane(queue, priority): postponed for queue, priority, _, postponed, _ in counts},
            {str(queue): number for queue, number, _ in dead},
            size,
            {str(queue): int(number) for queue, number in results},
            {},
            has_incoming=True,
            clock=clock,
        )

    @_on_server
    def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """See :meth:`rpcmq.store.contract.Store.apply`. One transaction, which ends if the owner is another one now."""
        return self._batches.run(changes)

    @_on_server
    def beat(self) -> None:
        """Say that the owner lives, where nothing was done for :data:`BEAT_SECONDS`.

        Raises:
            StoreFailed: the session has ended, and with it the ownership.
        """
        self._connection.execute("SELECT 1")

    @_on_server
    def others(self) -> Others:
        """The other owners in this database. Those that are silent in the middle of a statement are ended."""
        end_silent(self._connection)
        return self._ownership.others()

    # --- reading -----------------------------------------------------------------------------

    @_on_server
    def read(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read`."""
        where = "owner = %s AND queue = %s AND priority = %s AND number > %s AND due IS NULL"
        query = bounded(_ITEM, f"rpcmq.items WHERE {where}", "number", "body")
        rows = self._connection.execute(query, (self._id, *lane, after, most, most_bytes))
        return [_stored(row, Position(number=row[2])) for row in rows]

    @_on_server
    def read_due(self, lane: Lane, now: int, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read_due`."""
        where = "owner = %s AND queue = %s AND priority = %s AND due <= %s AND (due, place) > (%s, %s)"
        query = bounded(f"{_ITEM}, due, place", f"rpcmq.items WHERE {where}", "due, place", "body")
        rows = self._connection.execute(query, (self._id, *lane, now, after.due, after.place, most, most_bytes))
        return [_stored(row, Position(row[9], row[10], row[2])) for row in rows]

    @_on_server
    def next_due(self, lane: Lane, after: Position) -> int:
        """See :meth:`rpcmq.store.contract.Store.next_due`."""
        query = (
            "SELECT due FROM rpcmq.items WHERE owner = %s AND queue = %s AND priority = %s AND (due, place) > (%s, %s)"
            " ORDER BY due, place LIMIT 1"
        )
        row = self._connection.execute(query, (self._id, *lane, after.due, after.place)).fetchone()
        return 0 if row is None else int(row[0])

    @_on_server
    def find(self, lane: Lane, number: int) -> Found | None:
        """See :meth:`rpcmq.store.contract.Store.find`."""
        where = "owner = %s AND queue = %s AND priority = %s AND number = %s"
        for table, column in (("items", "due"), ("dead", "died")):
            query = f"SELECT {_ITEM}, {column}, place FROM rpcmq.{table} WHERE {where}"
            row = self._connection.execute(query, (self._id, *lane, number)).fetchone()
            if row is not None:
                state = "dead" if table == "dead" else "ready" if row[9] is None else "postponed"
                return Found(state, _stored(row, Position(row[9] or 0, row[10] if row[9] else 0, number)))
        return None

    @_on_server
    def result(self, lane: Lane, number: int) -> bytes:
        """See :meth:`rpcmq.store.contract.Store.result`."""
        query = "SELECT value FROM rpcmq.results WHERE owner = %s AND queue = %s AND priority = %s AND number = %s"
        row = self._connection.execute(query, (self._id, *lane, number)).fetchone()
        return b"" if row is None else bytes(row[0])

    @_on_server
    def known(self, puts: Sequence[Put]) -> list[Verdict]:
        """See :meth:`rpcmq.store.contract.Store.known`."""
        return [self._batches.known(put) for put in puts]

    @_on_server
    def recount(self) -> Recovered:
        """See :meth:`rpcmq.store.contract.Store.recount`."""
        return self._count()

    @_on_server
    def read_dead(self, queue: str, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """See :meth:`rpcmq.store.contract.Store.read_dead`."""
        where = "owner = %s AND queue = %s AND place > %s"
        query = bounded(f"{_ITEM}, died, place", f"rpcmq.dead WHERE {where}", "place", "body")
        rows = self._connection.execute(query, (self._id, queue, after.place, most, most_bytes))
        return [_stored(row, Position(row[9], row[10], row[2])) for row in rows]

    @_on_server
    def read_incoming(self, most: int, most_bytes: int) -> list[Incoming]:
        """See :meth:`rpcmq.store.contract.Store.read_incoming`. Other owners may put them first."""
        return self._incoming.read(most, most_bytes)

    def close(self) -> None:
        """End the session: the items are free for another router at once."""
        try:
            if not self._connection.closed:
                self._connection.execute("SELECT pg_advisory_unlock_all()")
        except psycopg.Error as error:
            log.warning("queue store of %r: closed with %s", self._owner, in_words(error))
        finally:
            self._connection.close()


def _stored(row: tuple[Any, ...], position: Position) -> Stored:
    queue, priority, number, at, id, producer, counter, body, state = row[:9]
    return Stored(position, Lane(queue, priority), number, at, id, Maker(producer, counter), body, state)
