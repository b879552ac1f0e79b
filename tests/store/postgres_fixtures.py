"""A PostgreSQL server for the tests of stores, where one is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from rpcmq.store.postgres import PostgresStore
from tests.store.postgres_server import PostgresServer, binaries

#: Ends all other sessions, and waits for their end (milliseconds).
_END_OTHERS = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A private server."""
    if binaries() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # No test cuts the power, and syncing takes most of the time.
    with PostgresServer(is_synced=False) as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    """The url of a database without a store. Whatever a test that failed has left there is ended."""
    postgres_server.start_again()
    with psycopg.connect(postgres_server.url, autocommit=True, options="-c statement_timeout=30s") as connection:
        connection.execute(_END_OTHERS)
        connection.execute("DROP SCHEMA IF EXISTS rpcmq CASCADE")
    return postgres_server.url


@pytest.fixture
def postgres_store(database: str) -> Iterator[PostgresStore]:
    """The store of the owner "a"."""
    store = PostgresStore(database, "a")
    yield store
    store.close()


@pytest.fixture
def user_session(postgres_store: PostgresStore, database: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A user's connection to the database of the store."""
    with psycopg.connect(database) as connection:
        yield connection
