"""Invoices that are charged exactly once, though the worker that charges them is killed again and again.

    rpcmq router --listen tcp://127.0.0.1:7711 --queue-dir /tmp/invoices/queue
    python -m examples.invoices          # in another terminal

The second one puts invoices into the queue ``billing`` and starts a worker, which it kills with ``kill -9`` after every
few charges, wherever that may be: before a charge is committed, after it, before the queue has heard of it. Each time
it starts another one. An invoice that runs twice is charged once, because ``rpcmq.once`` commits the charge and a mark
of the item in one transaction. In the end the database, SQLite in ``/tmp/invoices``, tells how often invoices ran and
what was charged, since the first time that you have started this.

The items of a worker that was killed are given to another one when its lease is over: here after two seconds, as a
rule after thirty.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from gevent import subprocess

import rpcmq

CENTS = 1995
TABLES = """
PRAGMA journal_mode = WAL;
CREATE TABLE IF NOT EXISTS account (balance INTEGER);
CREATE TABLE IF NOT EXISTS invoices (invoice INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS charges (invoice INTEGER, cents INTEGER);
CREATE TABLE IF NOT EXISTS runs (invoice INTEGER, has_ended BOOLEAN);
INSERT INTO account SELECT 0 WHERE NOT EXISTS (SELECT * FROM account);
"""
NOT_ENDED = "invoices WHERE invoice NOT IN (SELECT invoice FROM runs WHERE has_ended)"


class Billing:
    """Charges an account, which is a row of a database."""

    def __init__(self, database: str) -> None:
        self._database = database

    def charge(self, ctx: Any, invoice: int, cents: int) -> None:
        """Charge ``invoice``, once."""
        with closing(sqlite3.connect(self._database, timeout=30)) as connection:
            # For the report only: that it runs, whatever becomes of it.
            run = connection.execute("INSERT INTO runs VALUES (?, FALSE)", (invoice,)).lastrowid
            connection.commit()
            with rpcmq.once(connection, rpcmq.current_item()) as first:
                if first:
                    connection.execute("UPDATE account SET balance = balance - ?", (cents,))
                    connection.execute("INSERT INTO charges VALUES (?, ?)", (invoice, cents))
            # A worker that is killed here has charged, and the queue does not know.
            time.sleep(0.05)
            connection.execute("UPDATE runs SET has_ended = TRUE WHERE rowid = ?", (run,))
            connection.commit()


def work(router: str, database: str) -> None:
    """Be a worker until killed, in plain threads: SQLite would stop all greenlets."""
    with rpcmq.Worker("billing", Billing(database), router=router, concurrency=4, shell="threads") as worker:
        worker.wait()


def put_invoices(router: str, database: str, count: int) -> None:
    """Write new invoices, and put all that are not charged; to put one again puts nothing, for it has an id."""
    with closing(sqlite3.connect(database)) as connection:
        first = number(database, "SELECT max(invoice) FROM invoices") + 1
        connection.executemany("INSERT INTO invoices VALUES (?)", [(first + each,) for each in range(count)])
        connection.commit()
        invoices = [invoice for (invoice,) in connection.execute(f"SELECT invoice FROM {NOT_ENDED}")]
    with rpcmq.Client(router) as client:
        messages = [{"method": "charge", "args": {"invoice": each, "cents": CENTS}} for each in invoices]
        client.put_many(None, "billing", messages, ids=[f"invoice-{each}" for each in invoices])


def expect_deaths(router: str) -> None:
    """Have items tried again soon whose workers die, and always: as a rule one that has lost two is put aside."""
    command = [sys.executable, "-m", "rpcmq", "queue", "set", "--router", router, "--create", "billing"]
    subprocess.check_call([*command, "lease=2", "losses=1000"], stdout=subprocess.DEVNULL)


def charge_all(router: str, database: str, count: int, kills: int) -> None:
    """Have the invoices charged by workers, of which so many are killed."""
    command = [sys.executable, "-m", "examples.invoices", "--router", router, "--worker", database]
    for life in range(kills + 1):
        left = count - count * (life + 1) // (kills + 1)
        with subprocess.Popen(command) as worker:
            try:
                while number(database, f"SELECT count(*) FROM {NOT_ENDED}") > left:
                    if worker.poll() is not None:
                        raise SystemExit(f"the worker has ended with exit code {worker.returncode}")
                    time.sleep(0.002)
            finally:
                worker.kill()
        print(f"kill -9 {worker.pid}: {left} invoices are left", flush=True)


def report(database: str) -> int:
    """Print what has happened; return the exit code."""
    count = {table: number(database, f"SELECT count(*) FROM {table}") for table in ("invoices", "runs", "charges")}
    twice = count["charges"] - number(database, "SELECT count(DISTINCT invoice) FROM charges")
    paid = -number(database, "SELECT balance FROM account")
    due = count["invoices"] * CENTS
    print(f"{count['invoices']} invoices ran {count['runs']} times; {twice} of them were charged twice.")
    print(f"Taken from the account: {paid / 100:.2f}. Due: {due / 100:.2f}.")
    return int((twice, paid) != (0, due))


def number(database: str, query: str) -> int:
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        (found,) = connection.execute(query).fetchone()
    return int(found or 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--router", default="tcp://127.0.0.1:7711")
    parser.add_argument("--database", default="/tmp/invoices/accounts.db")
    parser.add_argument("--count", type=int, default=300, help="invoices")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--worker", metavar="DATABASE", help="be a worker that charges in this database")
    given = parser.parse_args()
    if given.worker:
        work(given.router, given.worker)
        return 0
    Path(given.database).parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(given.database)) as connection:
        connection.executescript(TABLES)
        rpcmq.once_schema(connection)
    expect_deaths(given.router)
    put_invoices(given.router, given.database, given.count)
    charge_all(given.router, given.database, given.count, given.kills)
    return report(given.database)


if __name__ == "__main__":
    sys.exit(main())
