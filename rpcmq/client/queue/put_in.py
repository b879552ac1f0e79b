"""Items put in a transaction of the user's own: they are in their queue if that is committed, and only then."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from secrets import randbits
from typing import Any

from rpcmq.client.configured_codec import codec_for
from rpcmq.client.queue.dialects import dialect_of
from rpcmq.client.queue.messages import Message
from rpcmq.client.queue.protocol import check_queue
from rpcmq.client.queue.puts import PutOptions, record_of
from rpcmq.config import load_client_config
from rpcmq.errors import PutRefused, UsageError
from rpcmq.payload import Codec
from rpcmq.payload.bounded_text import short_repr

__all__ = ["put_in"]

_INSERT = """
INSERT INTO rpcmq.incoming
    (queue, priority, at, due, expires, id, producer, counter, digest, series, message, unique_key)
SELECT ?::text, ?::smallint, now, coalesce(now + nullif(?::bigint, 0), 0), coalesce(now + nullif(?::bigint, 0), 0),
    ?::bytea, ?::bigint, ?::bigint, ?::bytea, ?::bytea, ?::bytea, ?::bytea
FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint AS now) AS clock
"""
_UNLESS_KNOWN = """
WHERE NOT EXISTS (SELECT FROM rpcmq.ids WHERE queue = ? AND id = ?)
    AND NOT EXISTS (SELECT FROM rpcmq.incoming WHERE queue = ? AND id = ?)
"""

_OTHERS = """
SELECT FROM (SELECT queue, id, digest FROM rpcmq.ids UNION ALL SELECT queue, id, digest FROM rpcmq.incoming) AS known
WHERE queue = ? AND id = ? AND digest <> ?
"""


def put_in(
    connection: Any,
    ctx: Any,
    queue: str,
    msg: Mapping[str, Any],
    *,
    id: str | None = None,
    delay: float = 0.0,
    priority: int = 0,
    expires: float = 0.0,
    key: str | None = None,
    keep_result: float = 0.0,
    unique: str | None = None,
    codec: Codec | None = None,
) -> str:
    """Put an item within the transaction of ``connection``: it is in its queue once that is committed, and only then.

    The database must be the one in which routers have their items (``queue.store``). One of them takes the item up
    within a quarter of a second of the commit, or when there is one again. No router is asked here.

    Args:
        connection: of psycopg or psycopg2, to PostgreSQL, that does not commit each statement alone.
        ctx, queue, msg, id, delay, priority, expires, key: as for :meth:`rpcmq.Client.put`.
        keep_result: refused: whoever puts by a transaction has no receipt to ask for a result with.
        unique: as there; that an item with the same text waits is found out when this one is taken up, after the
            commit, and then it is dropped.
        codec: encodes the message; default: as the environment says (``RPCMQ_FORMAT`` and its kin).

    Returns:
        The item's id.

    Raises:
        PutRefused: an item of other content has the id.
        UsageError: the connection cannot be used, or its database has no queues.
        PayloadError: the message cannot be encoded.
    """
    check_queue(queue)
    if keep_result:
        raise UsageError(
            "put_in() keeps no result, because it has no receipt to ask for one with: have the method write what is "
            "wanted into a table, or put with rpcmq.rpc.put(keep_result=...) after the commit"
        )
    database = dialect_of(connection)
    if database.marker != "%s":
        raise UsageError(
            f"put_in() needs a connection to PostgreSQL, not one of {type(connection).__module__}: use rpcmq.rpc.put"
        )
    if not database.is_open(connection) and (setting := database.autocommit(connection)):
        raise UsageError(
            f"put_in() needs a transaction, and this connection commits each statement alone ({setting}): connect "
            "without that, or begin a transaction on it before"
        )
    record = record_of(codec or _default_codec(), ctx, msg, PutOptions(id, delay, priority, expires, key, 0.0, unique))
    # It is not counted, so that no process has to remember anything: of so many bits no two are the same.
    producer, counter = (0, 0) if record.id else (randbits(63), randbits(63))
    message = Message(record.method.encode(), record.format, record.body).to_bytes()
    values = (
        queue, priority, _milliseconds(delay), _milliseconds(expires), record.id, producer, counter, record.digest,
        record.key, message, record.unique,
    )  # fmt: skip
    try:
        if not record.id:
            database.execute(connection, _INSERT, values)
            return f"{producer:x}-{counter}"
        known = (queue, record.id)
        if not database.execute(connection, _INSERT + _UNLESS_KNOWN, (*values, *known, *known)) and database.execute(
            connection, _OTHERS, (*known, record.digest)
        ):
            raise PutRefused(f"queue {queue!r} has an item of other content with the id {short_repr(id)}")
    except Exception as error:
        if "rpcmq" in str(error) and "does not exist" in str(error):
            raise UsageError(
                "this database has no queues: put_in() needs the one that queue.store of a router names, with tables "
                f"of this version ({_line(error)})"
            ) from error
        if "permission denied" in str(error):
            raise UsageError(
                f"put_in() has no right to the queues of this database ({_line(error)}): GRANT USAGE ON SCHEMA rpcmq, "
                "SELECT and INSERT ON rpcmq.incoming, SELECT ON rpcmq.ids"
            ) from error
        raise
    assert id is not None
    return id


@cache
def _default_codec() -> Codec:
    return codec_for(load_client_config(os.environ, {}))


def _milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000)) if seconds else 0


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
