"""A PostgreSQL server for the tests of stores, where one is installed."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.store.postgres_server import PostgresServer, binaries


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
    """The url of a database without a store."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS rpcmq CASCADE")
    return postgres_server.url
