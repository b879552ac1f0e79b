"""Databases of a user, in which effects are marked."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

__all__ = ["Connect", "connect", "connecting"]

#: Opens another connection to the user's database.
Connect = Callable[[], Any]


def connecting(kind: str, where: str) -> Any:
    """A connection to the database ``where``."""
    if kind == "sqlite3":
        return sqlite3.connect(where, timeout=30, check_same_thread=False)
    if kind == "apsw":
        connection = apsw.Connection(where)
        connection.set_busy_timeout(30_000)
        return connection
    return psycopg.connect(where)


@pytest.fixture(params=["sqlite3", "apsw", "psycopg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The kind of a database, and where it is."""
    kind = request.param
    return kind, request.getfixturevalue("database") if kind == "psycopg" else str(tmp_path / "accounts.db")


@pytest.fixture
def connect(place: tuple[str, str]) -> Iterator[Connect]:
    """A user's database with the table ``effects``, and none of marks."""
    opened = []

    def open_it() -> Any:
        opened.append(connecting(*place))
        return opened[-1]

    connection = open_it()
    for table in ("rpcmq_marks", "effects"):
        connection.cursor().execute(f"DROP TABLE IF EXISTS {table}")
    connection.cursor().execute("CREATE TABLE effects (n INT)")
    if place[0] != "apsw":
        connection.commit()
    yield open_it
    for each in opened:
        each.close()
