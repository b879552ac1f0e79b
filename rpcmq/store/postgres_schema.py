"""The tables of a PostgreSQL store, all in a schema of their own."""

from __future__ import annotations

import psycopg

from rpcmq.store.contract import StoreError

__all__ = ["SCHEMA_VERSION", "prepare"]

#: Grows with each change of the tables.
SCHEMA_VERSION = 5
#: Whoever makes the tables has this lock, or two routers that start would both make them.
_MAKING = 0x72706D7100000001
#: An upgrade waits so long for a table that others use (milliseconds), and is tried again a little later.
_LOCK_WAIT = 100
_ITEM = """
    owner INTEGER NOT NULL REFERENCES rpcmq.owners, queue TEXT NOT NULL, priority SMALLINT NOT NULL,
    number BIGINT NOT NULL, at BIGINT NOT NULL, id BYTEA NOT NULL, producer BIGINT NOT NULL, counter BIGINT NOT NULL,
    body BYTEA NOT NULL, digest BYTEA NOT NULL, state BYTEA NOT NULL, place BIGINT GENERATED ALWAYS AS IDENTITY
"""
#: Users write into it, each in a transaction of his own.
_INCOMING = """
CREATE TABLE rpcmq.incoming (
    place BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY, queue TEXT NOT NULL, priority SMALLINT NOT NULL,
    at BIGINT NOT NULL, due BIGINT NOT NULL, expires BIGINT NOT NULL, id BYTEA NOT NULL, producer BIGINT NOT NULL,
    counter BIGINT NOT NULL, digest BYTEA NOT NULL, series BYTEA NOT NULL, message BYTEA NOT NULL,
    CHECK (queue <> '' AND octet_length(queue) <= 200 AND priority BETWEEN 0 AND 9),
    CHECK (at >= 0 AND due >= 0 AND expires >= 0 AND producer >= 0),
    CHECK (octet_length(id) <= 255 AND octet_length(series) <= 255)
);
CREATE INDEX ON rpcmq.incoming (queue, id) WHERE id <> '';
"""
_UNIQUE_KEY = """
ALTER TABLE rpcmq.incoming ADD COLUMN unique_key BYTEA NOT NULL DEFAULT '' CHECK (octet_length(unique_key) <= 255);
"""
_RESULTS = """
CREATE TABLE rpcmq.results (
    owner INTEGER NOT NULL REFERENCES rpcmq.owners, queue TEXT NOT NULL, priority SMALLINT NOT NULL,
    number BIGINT NOT NULL, until BIGINT NOT NULL, value BYTEA NOT NULL, PRIMARY KEY (owner, queue, priority, number)
);
CREATE INDEX ON rpcmq.results (owner, queue, until);
CREATE TABLE rpcmq.uniques (
    queue TEXT NOT NULL, name BYTEA NOT NULL, owner INTEGER NOT NULL REFERENCES rpcmq.owners,
    priority SMALLINT NOT NULL, number BIGINT NOT NULL, PRIMARY KEY (queue, name)
);
"""
_DUE_IN_LANE = """
DROP INDEX IF EXISTS rpcmq.items_owner_due_place_idx;
CREATE INDEX ON rpcmq.items (owner, queue, priority, due, place) WHERE due IS NOT NULL;
"""
_TABLES = f"""
CREATE SCHEMA rpcmq;
CREATE TABLE rpcmq.version (version INTEGER NOT NULL);
INSERT INTO rpcmq.version VALUES ({SCHEMA_VERSION});
CREATE TABLE rpcmq.owners (
    owner INTEGER PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name TEXT NOT NULL UNIQUE, epoch BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE rpcmq.lanes (
    owner INTEGER NOT NULL REFERENCES rpcmq.owners, queue TEXT NOT NULL, priority SMALLINT NOT NULL,
    last BIGINT NOT NULL, PRIMARY KEY (owner, queue, priority)
) WITH (fillfactor = 50);
CREATE TABLE rpcmq.makers (
    owner INTEGER NOT NULL REFERENCES rpcmq.owners, producer BIGINT NOT NULL, known BYTEA NOT NULL,
    heard BIGINT NOT NULL, PRIMARY KEY (owner, producer)
) WITH (fillfactor = 50);
CREATE TABLE rpcmq.ids (queue TEXT NOT NULL, id BYTEA NOT NULL, digest BYTEA NOT NULL, at BIGINT NOT NULL,
    PRIMARY KEY (queue, id));
CREATE INDEX ON rpcmq.ids USING brin (at);
CREATE TABLE rpcmq.items ({_ITEM}, due BIGINT, PRIMARY KEY (owner, queue, priority, number)) WITH (fillfactor = 90);
CREATE INDEX ON rpcmq.items (owner, queue, priority, due, place) WHERE due IS NOT NULL;
CREATE TABLE rpcmq.dead ({_ITEM}, died BIGINT NOT NULL, PRIMARY KEY (owner, queue, priority, number));
CREATE INDEX ON rpcmq.dead (owner, queue, place);
CREATE TABLE rpcmq.notes (owner INTEGER NOT NULL REFERENCES rpcmq.owners, name TEXT NOT NULL, value BYTEA NOT NULL,
    PRIMARY KEY (owner, name));
{_INCOMING}
{_UNIQUE_KEY}
{_RESULTS}
"""
#: By the version that each makes, of the one before.
_UPGRADES = {2: _INCOMING, 3: _RESULTS, 4: _UNIQUE_KEY, 5: _DUE_IN_LANE}


def prepare(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Make the tables if they are not there, and those of an earlier version into this one's.

    Raises:
        StoreError: they are of a later version, or there is no right to make them.
        psycopg.errors.LockNotAvailable: others use a table that is to be changed: it may be tried again.
    """
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
            found = connection.execute("SELECT to_regclass('rpcmq.version')").fetchone()
            if found == (None,):
                connection.execute(_TABLES)
                return
            version = connection.execute("SELECT version FROM rpcmq.version").fetchone()
            if version is not None and isinstance(version[0], int) and version[0] < SCHEMA_VERSION:
                # Whoever waits for a table has all others wait behind it.
                connection.execute(f"SET LOCAL lock_timeout = {_LOCK_WAIT}")
                for step in range(version[0] + 1, SCHEMA_VERSION + 1):
                    connection.execute(_UPGRADES[step].encode())
                connection.execute("UPDATE rpcmq.version SET version = %s", (SCHEMA_VERSION,))
                return
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreError(f"queue store: no right to the schema 'rpcmq' of the database: {error}") from None
    if version is None or not isinstance(version[0], int) or version[0] > SCHEMA_VERSION:
        text = f"its tables have version {version and version[0]}, and this rpcmq knows {SCHEMA_VERSION}"
        raise StoreError(f"queue store: {text}: start the later one that has used it")
