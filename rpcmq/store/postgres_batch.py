"""One transaction of a PostgreSQL store: many changes in a few statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import psycopg

from rpcmq.store.contract import (
    KEPT_OVERHEAD,
    NOTHING,
    Bury,
    Change,
    Done,
    Expire,
    Forget,
    Keep,
    Lane,
    Maker,
    Move,
    Note,
    Postpone,
    Put,
    Refuse,
    Release,
    Revive,
    StoreFailed,
    Verdict,
)
from rpcmq.store.known_makers import KnownMakers
from rpcmq.store.postgres_incoming import IncomingTable
from rpcmq.store.postgres_session import NOW

__all__ = ["Batch"]

_KNOWN = Verdict(is_known=True)
_OTHER = Verdict(is_known=True, is_other=True)
#: Producers that have put nothing, and ids, are forgotten after so long (milliseconds); looked for so often.
_KEPT, _LOOK = 24 * 3600 * 1000, 3600 * 1000
#: Ids that are forgotten in one transaction.
_MOST_IDS = 10_000
_WHERE = "owner = %s AND queue = %s AND priority = %s AND number = %s"
_ITEM = "owner, queue, priority, number, at, id, producer, counter, body, digest, state"
_ITEM_TYPES = (
    "integer", "text", "smallint", "bigint", "bigint", "bytea", "bigint", "bigint", "bytea", "bytea", "bytea", "bigint",
)  # fmt: skip


class Batch:
    """Runs batches of changes of one owner.

    Args:
        owner: its number.
        epoch: of this ownership: with another one in the database nothing is written.
    """

    def __init__(
        self, connection: psycopg.Connection[tuple[Any, ...]], owner: int, epoch: int, incoming: IncomingTable
    ) -> None:
        self._connection = connection
        self._incoming = incoming
        self._owner = owner
        self._epoch = epoch
        lanes = connection.execute("SELECT queue, priority, last FROM rpcmq.lanes WHERE owner = %s", (owner,))
        self._last: dict[Lane, int] = {Lane(queue, priority): last for queue, priority, last in lanes}
        makers = connection.execute("SELECT known FROM rpcmq.makers WHERE owner = %s ORDER BY heard", (owner,))
        self._makers = KnownMakers(b"".join(known for (known,) in makers))
        self._next_look = 0
        self._begin()

    def _begin(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._put: dict[Maker, int] = {}
        self._numbers: dict[Lane, int] = {}
        self._done: list[tuple[str, int, int]] = []
        #: Places of incoming items that are ours to put, and of those that are not needed any more.
        self._claimed: set[int] = set()
        self._taken: list[int] = []

    def run(self, changes: Sequence[Change]) -> list[Verdict]:
        """Do ``changes`` in a transaction that is synced when this returns.

        Raises:
            StoreFailed: the items belong to another router now.
        """
        self._begin()
        with self._connection.transaction():
            query = "SELECT 1 FROM rpcmq.owners WHERE owner = %s AND epoch = %s FOR SHARE"
            if self._connection.execute(query, (self._owner, self._epoch)).fetchone() is None:
                raise StoreFailed("queue store: another router has taken over the items")
            places = [each.incoming if isinstance(each, Put) else each.place for each in changes if _is_incoming(each)]
            self._claimed = self._incoming.claim(places)
            verdicts = [self._do(change) for change in changes]
            self._end_done()
            self._write()
        for maker, at in self._put.items():
            self._makers.add(maker, at)
        self._last |= self._numbers
        return verdicts

    def _do(self, change: Change) -> Verdict:
        match change:
            case Put():
                return self._put_item(change)
            case Done(lane, number, _):
                self._done.append((*lane, number))
                return NOTHING
        self._end_done()
        return self._do_rare(change)

    def _do_rare(self, change: Change) -> Verdict:
        execute, owner = self._connection.execute, self._owner
        match change:
            case Postpone(lane, number, due, state):
                execute(
                    f"UPDATE rpcmq.items SET due = %s, state = %s WHERE {_WHERE}", (due, state, owner, *lane, number)
                )
            case Bury(lane, number, at, state):
                execute(
                    f"WITH gone AS (DELETE FROM rpcmq.items WHERE {_WHERE} RETURNING *)"
                    f" INSERT INTO rpcmq.dead ({_ITEM}, died)"
                    " SELECT owner, queue, priority, number, at, id, producer, counter, body, digest, %s, %s FROM gone",
                    (owner, *lane, number, state, at),
                )
            case Revive() | Move():
                return self._revive(change)
            case Release(lane, number, _):
                execute(f"DELETE FROM rpcmq.uniques WHERE {_WHERE}", (owner, *lane, number))
            case Keep(lane, number, until, value):
                upsert = "ON CONFLICT (owner, queue, priority, number) DO UPDATE SET"
                execute(
                    f"INSERT INTO rpcmq.results VALUES (%s, %s, %s, %s, %s, %s) {upsert}"
                    " until = excluded.until, value = excluded.value",
                    (owner, *lane, number, until, value),
                )
            case Expire(queue, until):
                delete = "DELETE FROM rpcmq.results WHERE owner = %s AND queue = %s AND until <= %s"
                over = execute(f"{delete} RETURNING octet_length(value)", (owner, queue, until)).fetchall()
                return Verdict(sum(size + KEPT_OVERHEAD for (size,) in over))
            case Refuse():
                return self._refuse(change)
            case Forget(lane, number):
                gone = execute(f"DELETE FROM rpcmq.dead WHERE {_WHERE}", (owner, *lane, number)).rowcount
                return Verdict(number if gone else 0)
            case Note(name, value) if value:
                upsert = "ON CONFLICT (owner, name) DO UPDATE SET value = excluded.value"
                execute(f"INSERT INTO rpcmq.notes VALUES (%s, %s, %s) {upsert}", (owner, name, value))
            case Note(name, _):
                execute("DELETE FROM rpcmq.notes WHERE owner = %s AND name = %s", (owner, name))
        return NOTHING

    def _end_done(self) -> None:
        """End the items that are done so far, in one statement."""
        if self._done:
            columns = [list(column) for column in zip(*self._done, strict=True)]
            self._connection.execute(
                "DELETE FROM rpcmq.items i"
                " USING unnest(%s::text[], %s::smallint[], %s::bigint[]) AS d (queue, priority, number)"
                " WHERE i.owner = %s AND i.queue = d.queue AND i.priority = d.priority AND i.number = d.number",
                (*columns, self._owner),
            )
            self._done.clear()

    def _put_item(self, put: Put) -> Verdict:
        if put.incoming and put.incoming not in self._claimed:
            return _KNOWN
        verdict = self._verdict_with_unique(put) if put.unique else self._verdict_of(put)
        if put.incoming and not verdict.is_other:
            self._claimed.discard(put.incoming)
            self._taken.append(put.incoming)
        if verdict.is_known:
            return verdict
        number = self._next(put.lane)
        self._rows.append(
            (self._owner, *put.lane, number, put.at, put.id, *put.maker, put.body, put.digest, b"", put.due or None)
        )
        return Verdict(number)

    def _verdict_with_unique(self, put: Put) -> Verdict:
        verdict = self.known(put)
        if verdict.is_known or put.maker in self._put:
            return verdict._replace(is_known=True)
        insert = "INSERT INTO rpcmq.uniques VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
        number = self._numbers.get(put.lane, self._last.get(put.lane, 0)) + 1
        row = (put.lane.queue, put.unique, self._owner, put.lane.priority, number)
        if self._connection.execute(insert, row).fetchone() is None:
            return _KNOWN
        verdict = self._verdict_of(put)
        if verdict.is_known:
            # Another owner has put it at this moment.
            delete = "DELETE FROM rpcmq.uniques WHERE queue = %s AND name = %s"
            self._connection.execute(delete, (put.lane.queue, put.unique))
        return verdict

    def _verdict_of(self, put: Put) -> Verdict:
        """Return whether an item with this id is known; its id is, from now on."""
        if put.id:
            insert = "INSERT INTO rpcmq.ids VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING 1"
            key = put.lane.queue, put.id
            if self._connection.execute(insert, (*key, put.digest, put.at)).fetchone() is None:
                query = "SELECT digest FROM rpcmq.ids WHERE queue = %s AND id = %s"
                return _KNOWN if self._connection.execute(query, key).fetchone() == (put.digest,) else _OTHER
        elif put.maker.producer and not put.incoming:
            if put.maker in self._put or put.maker in self._makers:
                return _KNOWN
            self._put[put.maker] = put.at
        return NOTHING

    def _next(self, lane: Lane) -> int:
        self._numbers[lane] = self._numbers.get(lane, self._last.get(lane, 0)) + 1
        return self._numbers[lane]

    def known(self, put: Put) -> Verdict:
        """Return whether an item with this id was put before."""
        if put.id:
            query = "SELECT digest FROM rpcmq.ids WHERE queue = %s AND id = %s"
            row = self._connection.execute(query, (put.lane.queue, put.id)).fetchone()
            return NOTHING if row is None else _KNOWN if row == (put.digest,) else _OTHER
        return _KNOWN if not put.incoming and put.maker in self._makers else NOTHING

    def _revive(self, change: Revive | Move) -> Verdict:
        """Put a dead item again, or one that is to move."""
        to = change.to if isinstance(change, Move) else change.lane
        for table in ("items", "dead") if isinstance(change, Move) else ("dead",):
            query = f"DELETE FROM rpcmq.{table} WHERE {_WHERE} RETURNING at, id, producer, counter, body, digest"
            row = self._connection.execute(query, (self._owner, *change.lane, change.number)).fetchone()
            if row is not None:
                new = self._next(to)
                state = change.state if change.due else b""
                self._rows.append((self._owner, *to, new, *row, state, change.due or None))
                return Verdict(new)
        return NOTHING

    def _refuse(self, refuse: Refuse) -> Verdict:
        lane, place, at, body, state = refuse
        if place not in self._claimed:
            return NOTHING
        self._claimed.discard(place)
        number = self._next(lane)
        self._connection.execute(
            "WITH gone AS (DELETE FROM rpcmq.incoming WHERE place = %s RETURNING *)"
            f" INSERT INTO rpcmq.dead ({_ITEM}, died)"
            " SELECT %s, %s, %s, %s, at, id, producer, counter, %s, digest, %s, %s FROM gone",
            (place, self._owner, *lane, number, body, state, at),
        )
        return Verdict(number)

    def _write(self) -> None:
        """Write the new items, and the last numbers and makers, in a statement each."""
        self._incoming.remove(self._taken)
        if self._rows:
            self._insert(f"items ({_ITEM}, due)", _ITEM_TYPES, self._rows)
        if self._numbers:
            upsert = "ON CONFLICT (owner, queue, priority) DO UPDATE SET last = excluded.last"
            rows = [(self._owner, *lane, number) for lane, number in self._numbers.items()]
            self._insert("lanes", ("integer", "text", "smallint", "bigint"), rows, upsert)
        if self._put:
            self._write_makers()

    def _write_makers(self) -> None:
        producers = {maker.producer: at for maker, at in self._put.items()}
        rows = []
        for producer, at in producers.items():
            known = KnownMakers(self._makers.snapshot_of(producer))
            for maker in self._put:
                if maker.producer == producer:
                    known.add(maker, at)
            rows.append((self._owner, producer, known.snapshot(), at))
        upsert = "ON CONFLICT (owner, producer) DO UPDATE SET known = excluded.known, heard = excluded.heard"
        self._insert("makers", ("integer", "bigint", "bytea", "bigint"), rows, upsert)
        self._forget_old(max(producers.values()))

    def _insert(self, into: str, types: Sequence[str], rows: list[tuple[Any, ...]], upsert: str = "") -> None:
        """Insert ``rows`` in one statement.

        Not by ``executemany``, a pipeline: a client that is stopped in one holds its locks for ever, because the server
        has no timeout for what comes between two messages of a pipeline.
        """
        arrays = ", ".join(f"%s::{type_}[]" for type_ in types)
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._connection.execute(f"INSERT INTO rpcmq.{into} SELECT * FROM unnest({arrays}) {upsert}", columns)

    def _forget_old(self, now: int) -> None:
        if now < self._next_look:
            return
        self._next_look = now + _LOOK
        self._makers.forget_before(now - _KEPT)
        self._connection.execute("DELETE FROM rpcmq.makers WHERE owner = %s AND heard < %s", (self._owner, now - _KEPT))
        # Other owners forget them, too, and one may be stopped while it does. Its clock may be ahead of all others.
        query = f"SELECT ctid FROM rpcmq.ids WHERE at < least({NOW}, %s) - %s LIMIT %s FOR UPDATE SKIP LOCKED"
        delete = f"DELETE FROM rpcmq.ids WHERE ctid = ANY(ARRAY({query}))"
        if self._connection.execute(delete, (now, _KEPT, _MOST_IDS)).rowcount == _MOST_IDS:
            self._next_look = 0


def _is_incoming(change: Change) -> TypeGuard[Put | Refuse]:
    return isinstance(change, Refuse) or (isinstance(change, Put) and change.incoming != 0)
