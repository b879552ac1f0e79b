"""Periodic items at real linked routers that die: each time is put once, and by whoever has the owner's items."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rpcmq import Client, Worker, current_item
from rpcmq.errors import RpcError
from rpcmq.testing import eventually
from tests.faults.queue_world import QueueWorld

pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long, pytest.mark.timeout(240)]

MESSAGE = {"method": "close_day", "args": {}}


class Days:
    """Notes which items it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def close_day(self, ctx: Any) -> None:
        """Close the day."""
        item = current_item()
        assert item is not None
        self.given.append((item.owner, item.id))

    def await_more(self, count: int, seconds: float = 60.0) -> None:
        """Wait until it was given so many more."""
        seen = len(self.given)
        eventually(lambda: len(self.given) >= seen + count, seconds)

    def check(self, owner: str) -> None:
        """Each second was given, as an item of ``owner``; no time has two items."""
        assert {each for each, _ in self.given} == {owner}
        times = sorted({datetime.fromisoformat(id.removeprefix("often@")) for _, id in self.given})
        assert [b - a for a, b in pairwise(times)] == [timedelta(seconds=1)] * (len(times) - 1)


@contextmanager
def working(urls: list[str], days: Days) -> Iterator[Client]:
    """A client of one of the routers ``urls``, and a worker."""
    with Client(urls, shell="gevent") as client, Worker("days", days, client=client):
        yield client


def declare(client: Client) -> str:
    """Declare the periodic item as a program does that starts; return its owner."""
    declared = client.declare_periodic(None, "days", "often", "* * * * * *", MESSAGE, missed="all", timeout=60)
    return str(declared["owner"])


def declared_at(world: QueueWorld, owner: str) -> str:
    with Client(world.mesh[owner].url, shell="gevent") as client:
        return declare(client)


def test_three_linked_routers_put_each_time_once_though_the_router_of_the_owner_is_killed(tmp_path: Path) -> None:
    days = Days()
    with QueueWorld(tmp_path, 3) as world, working(world.mesh.urls, days):
        owner = declared_at(world, "b")
        assert {declared_at(world, each) for each in world.owners} == {owner}
        days.await_more(3)
        world.mesh[owner].kill()
        days.await_more(3)  # by way of another router
        world.mesh[owner].restart()
        world.whole()
        assert {declared_at(world, each) for each in world.owners} == {owner}
        days.await_more(3)
        days.check(owner)


def test_an_heir_goes_on_with_the_periodic_items_of_an_owner_that_is_gone_and_gives_them_back(
    tmp_path: Path, database: str
) -> None:
    days = Days()
    with QueueWorld(tmp_path, 2, database, queue_takeover_seconds=1) as world, working(world.mesh.urls[1:], days):
        assert declared_at(world, "a") == "a"
        days.await_more(3)
        server = world.server("a")
        world.mesh["a"].kill()
        os.kill(server, signal.SIGKILL)
        days.await_more(3)
        world.start_everything()
        eventually(lambda: serves_itself(world, "a"), 60.0)
        days.await_more(3)
        with Client(world.mesh["b"].url, shell="gevent") as client:
            assert client.remove_periodic("days", "often", timeout=60)
        days.check("a")


def serves_itself(world: QueueWorld, owner: str) -> bool:
    """Return whether the queue server of ``owner`` has its items, rather than an heir."""
    try:
        return not world.operate("look", owner, "queues")["by"]["is_heir"]
    except RpcError:
        return False
