"""The session of an owner in a PostgreSQL database: it ends when its owner is cut off, stopped or gone.

For as long as it lasts it holds the locks of its owner and of its transaction. So the server has timeouts for it, which
are asked for at connect: none of them needs anything from the owner's machine. A server has no timeout for a client
that is silent in the middle of a statement; :func:`end_silent` is for those.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import psycopg

from rpcmq.store.contract import StoreError, StoreFailed

__all__ = ["NOW", "SILENCE", "SessionOf", "connect", "end_silent", "in_words", "warn_of_risks"]

log = logging.getLogger("rpcmq.queue")

SessionOf = psycopg.Connection[tuple[Any, ...]]

#: SQL: what the server's clock shows (milliseconds since 1970).
NOW = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint"
#: The server ends the session of an owner that it has not heard for so long (seconds).
SILENCE = 10
#: The same, between two statements of a transaction, where an owner has nothing to wait for: others may wait for it.
_SILENCE_IN_TRANSACTION = 5
#: A statement that waits for a lock fails after so long (seconds): whoever has it is ended before, if it is silent.
_LOCK_WAIT = 8
#: An owner takes within so many seconds what was sent to it; its own such limit is shorter, so that it knows first.
_SENT, _SENT_BY_OWNER = 8, 5
# A limit of a whole statement would end a commit that waits for a replica, as if it had that.
_SETTINGS = {
    "idle_session_timeout": SILENCE * 1000,
    "idle_in_transaction_session_timeout": _SILENCE_IN_TRANSACTION * 1000,
    "lock_timeout": _LOCK_WAIT * 1000,
    "statement_timeout": 0,
    "synchronous_commit": "on",
    "client_connection_check_interval": 500,
    "tcp_keepalives_idle": 2,
    "tcp_keepalives_interval": 1,
    "tcp_keepalives_count": 3,
    "tcp_user_timeout": _SENT * 1000,
}
_OPTIONS = " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items())
_NAME = "rpcmq queue of "
#: Words of a server that refuses connections for now; libpq has no code for an attempt that fails.
_NOT_READY = ("starting up", "shutting down", "recovery", "not yet accepting", "too many clients", "reserved for")
_END_SILENT = (
    "SELECT application_name, pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name LIKE %s AND datname = current_database() AND usename = current_user"
    " AND pid <> pg_backend_pid() AND state = 'active' AND wait_event_type = 'Client'"
    " AND state_change < clock_timestamp() - make_interval(secs => %s)"
)


#: Settings of a server that are ``off``, and what may happen then.
_RISKS = {
    "fsync": "a power cut may lose items that were accepted",
    "full_page_writes": "a power cut may damage its tables",
    "data_checksums": "damage that its disk does may go unnoticed (pg_checksums --enable)",
}


def connect(url: str, owner: str) -> SessionOf:
    """A session for the items of ``owner``.

    Raises:
        StoreError: the database cannot be used.
        StoreFailed: the server cannot be reached, or is not ready.
    """
    try:
        return psycopg.connect(
            url, autocommit=True, options=_OPTIONS, application_name=f"{_NAME}{owner}", connect_timeout=5,
            keepalives_idle=2, keepalives_interval=1, keepalives_count=3, tcp_user_timeout=_SENT_BY_OWNER * 1000,
        )  # fmt: skip
    except psycopg.OperationalError as error:
        kind = StoreFailed if _passes(error) else StoreError
        raise kind(f"queue store of {owner!r}: {in_words(error)}") from None


def end_silent(connection: SessionOf) -> None:
    """End the sessions of owners that are silent in the middle of a statement, which they have not sent, or not read.

    Their locks would never be free: a machine that is stopped answers for its connections. No harm is done to one that
    lives, as nothing is known of its transaction until it has ended: it begins anew. Only those of the same role as
    ``connection`` can be seen.
    """
    for name, _ in connection.execute(_END_SILENT, (f"{_NAME}%", SILENCE)):
        log.warning("the database session %r was silent for %d s within a statement: ended", name, SILENCE)


def warn_of_risks(connection: SessionOf) -> None:
    """Log settings of the server that are no good for items, once in a process."""
    query = "SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting = 'off' ORDER BY name"
    for (name,) in connection.execute(query, (list(_RISKS),)):
        _warn_once(f"the database server of the queues has {name} = off: {_RISKS[name]}")


@cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)


def in_words(error: psycopg.Error) -> str:
    """``error`` in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def _passes(error: psycopg.OperationalError) -> bool:
    """Return whether a later attempt to connect may succeed: nobody has answered, or a server that is not ready."""
    text = str(error)
    return "FATAL:" not in text or any(words in text for words in _NOT_READY)
