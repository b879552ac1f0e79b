"""The owners of items in a PostgreSQL database: which of them are there, which are gone, and who wants its items back.

An owner holds an advisory lock in the session of its connection. One whose items an heir has waits for that lock, which
the heir can see.
"""

from __future__ import annotations

from typing import Any

import psycopg

from rpcmq.store.contract import CLEAN, PERIODIC, StoreFailed
from rpcmq.store.shared import Others

__all__ = ["Ownership"]

#: Distinguishes our locks from those of others in the database.
_LOCK_SPACE = 0x72706D71
#: An owner waits so long for its lock at a time (milliseconds), so that an heir sees it waiting.
_WAIT = 1000
#: Owners that are gone, and told of at once.
_MOST = 100
#: The locks of owners, as the server lists them.
_LOCKS = (
    "pg_locks WHERE locktype = 'advisory' AND classid = %(space)s AND objsubid = 2"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
_WANTED = f"SELECT EXISTS (SELECT FROM {_LOCKS} AND objid = %(owner)s AND NOT granted)"
# Whoever has ended in order, and has left nothing to do, needs no heir.
_GONE = (
    f"WITH held AS (SELECT objid::bigint AS owner FROM {_LOCKS} AND granted)"
    " SELECT name FROM rpcmq.owners o WHERE owner <> %(owner)s"
    " AND NOT EXISTS (SELECT FROM held h WHERE h.owner = o.owner)"
    " AND (EXISTS (SELECT FROM rpcmq.items i WHERE i.owner = o.owner) OR NOT EXISTS"
    " (SELECT FROM rpcmq.notes n WHERE n.owner = o.owner AND n.name = %(clean)s) OR EXISTS"
    " (SELECT FROM rpcmq.notes n WHERE n.owner = o.owner AND starts_with(n.name, %(periodic)s)))"
    " ORDER BY name LIMIT %(most)s"
)


class Ownership:
    """The ownership of the items of ``name``, in the session of ``connection``.

    Args:
        waits: for a second, where another session has it.

    Attributes:
        id: the number of the owner.
        epoch: grows with each ownership.

    Raises:
        StoreFailed: another session has it.
    """

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], name: str, waits: bool) -> None:
        self._connection = connection
        with connection.transaction():
            connection.execute("INSERT INTO rpcmq.owners (name) VALUES (%s) ON CONFLICT DO NOTHING", (name,))
            row = connection.execute("SELECT owner FROM rpcmq.owners WHERE name = %s", (name,)).fetchone()
        assert row is not None
        if not (self._try(row[0]) or (waits and self._wait(row[0]))):
            # It may be the session of an earlier life, which the server has not ended yet.
            text = "another router has its items; they are free when its session has ended"
            raise StoreFailed(f"queue store of {name!r}: {text}")
        update = "UPDATE rpcmq.owners SET epoch = epoch + 1 WHERE owner = %s RETURNING owner, epoch"
        found = connection.execute(update, row).fetchone()
        assert found is not None
        self.id, self.epoch = int(found[0]), int(found[1])

    def _try(self, owner: int) -> bool:
        query = "SELECT pg_try_advisory_lock(%s, %s)"
        return self._connection.execute(query, (_LOCK_SPACE, owner)).fetchone() == (True,)

    def _wait(self, owner: int) -> bool:
        execute = self._connection.execute
        execute(f"SET lock_timeout = {_WAIT}")
        try:
            execute("SELECT pg_advisory_lock(%s, %s)", (_LOCK_SPACE, owner))
        except psycopg.errors.LockNotAvailable:
            return False
        execute("RESET lock_timeout")
        return True

    def others(self) -> Others:
        """Whoever waits for this ownership, and the owners that nobody is."""
        values = {"space": _LOCK_SPACE, "owner": self.id, "clean": CLEAN, "periodic": PERIODIC, "most": _MOST}
        is_wanted = self._connection.execute(_WANTED, values).fetchone() == (True,)
        return Others(is_wanted, tuple(str(name) for (name,) in self._connection.execute(_GONE, values)))
