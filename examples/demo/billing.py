"""Billing: works at the items of the queue ``billing``, each of which charges an account for an instance once."""

from __future__ import annotations

import argparse
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import gevent

import rpcmq
from examples.demo.context import RequestContext
from examples.demo.ledger import FOLDER

QUEUE = "billing"
#: An item of a worker that was killed is given to another one after so long (seconds).
LEASE = 2.0
_SHARED = "accounts.db"
_TABLE = "CREATE TABLE IF NOT EXISTS charges (instance INTEGER, project TEXT, cents INTEGER, worker TEXT)"
_PATIENCE = 30.0


class Billing:
    """Each public method is one that an item may name."""

    def __init__(self, name: str, connection: sqlite3.Connection) -> None:
        self._name = name
        # One for all greenlets: a transaction of SQLite blocks the program, so that none runs within that of another.
        self._connection = connection
        self._random = Random(name)

    def charge(self, ctx: RequestContext, instance_id: int, cents: int) -> None:
        """Charge the project for an instance.

        It may run twice: a worker that is killed after its commit could not say that the item is done. But the charge
        and the mark of the item are committed together, so that the second run finds the mark.
        """
        gevent.sleep(self._random.uniform(0.002, 0.02))
        with rpcmq.once(self._connection, rpcmq.current_item()) as is_first:
            if is_first:
                charge = (instance_id, ctx.project_id, cents, self._name)
                self._connection.execute("INSERT INTO charges VALUES (?, ?, ?, ?)", charge)


def accounts(folder: Path) -> sqlite3.Connection:
    """Open the accounts."""
    return sqlite3.connect(folder / _SHARED, timeout=_PATIENCE)


def make_accounts(folder: Path) -> None:
    """Make the tables of the accounts."""
    with closing(accounts(folder)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(_TABLE)
        rpcmq.once_schema(connection)
        connection.commit()


def read_charges(folder: Path) -> Counter[int]:
    """Return how often each instance was charged for."""
    with closing(accounts(folder)) as connection:
        rows: list[tuple[Any, ...]] = connection.execute("SELECT instance FROM charges").fetchall()
    return Counter(instance for (instance,) in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    folder = Path(os.environ[FOLDER])
    with closing(accounts(folder)) as connection, rpcmq.Client(identity=options.name, shell="gevent") as client:
        billing = Billing(options.name, connection)
        worker = rpcmq.Worker(QUEUE, billing, client=client, concurrency=4, context=RequestContext)
        worker.start()
        worker.wait()


if __name__ == "__main__":
    main()
