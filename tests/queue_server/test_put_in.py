"""Items put in a user's own transactions come by way of the database that two queue servers share, each once."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

import rpcmq
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess

pytestmark = [pytest.mark.integration, pytest.mark.fault]


class Billing:
    def __init__(self) -> None:
        self.charged: list[int] = []

    def charge(self, ctx: Any, invoice: int) -> None:
        item = rpcmq.current_item()
        assert item is not None and item.attempt == 1
        self.charged.append(invoice)


class Place:
    """A router, its queue server, and a worker."""

    def __init__(self, stack: ExitStack, owner: str, database: str) -> None:
        router = stack.enter_context(RouterProcess())
        command = [sys.executable, "-m", "rpcmq.queue_server", "--router", router.url, "--owner", owner]
        self.server = stack.enter_context(Program([*command, "--store", database], name=f"queue server {owner}"))
        self.server.expect("are served")
        self.billing = Billing()
        worker = rpcmq.Worker("billing", self.billing, router=router.url)
        worker.start(60)
        stack.callback(worker.stop, 5)

    def kill_store(self) -> None:
        """Kill its store process; the queue server starts another one."""
        children = Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children")
        # One that was killed before may be still to be started again.
        (child,) = eventually(lambda: children.read_text().split())
        os.kill(int(child), signal.SIGKILL)


@pytest.fixture
def places(database: str) -> Iterator[list[Place]]:
    """Two routers that share a database, and nothing else."""
    with ExitStack() as stack:
        yield [Place(stack, owner, database) for owner in ("a", "b")]


def test_each_item_is_worked_at_once_though_stores_are_killed_while_they_take_them_up(
    places: list[Place], database: str
) -> None:
    committed: list[int] = []
    with psycopg.connect(database) as connection:
        for transaction in range(120):
            numbers = range(transaction * 10, transaction * 10 + 10)
            for number in numbers:
                message = {"method": "charge", "args": {"invoice": number}}
                rpcmq.put_in(connection, None, "billing", message, id=f"i-{number}" if number % 2 else None)
            if transaction % 4 == 3:
                connection.rollback()
                continue
            connection.commit()
            committed += numbers
            if transaction in (30, 60, 90):
                places[transaction // 30 % 2].kill_store()

        def all_charged() -> bool:
            return sum(len(place.billing.charged) for place in places) >= len(committed)

        eventually(all_charged, 60)

        def is_drained() -> bool:
            tables = " UNION ALL ".join(f"SELECT FROM rpcmq.{table}" for table in ("items", "incoming", "dead"))
            left = connection.execute(f"SELECT count(*) FROM ({tables}) AS t".encode()).fetchone()
            connection.commit()
            return left == (0,)

        eventually(is_drained, 60)
    assert sorted(places[0].billing.charged + places[1].billing.charged) == committed
