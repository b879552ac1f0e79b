"""Work queues across routers, with real processes: put anywhere, work anywhere, and whatever may die meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq import Client, Worker
from rpcmq.client.queue.protocol import LOOK
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.faults.queue_world import QueueWorld

pytestmark = [pytest.mark.integration, pytest.mark.fault]


@pytest.mark.long
def test_items_of_one_router_are_worked_at_by_equal_workers_of_all_routers(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.add_producers("a", count=1500)
        world.wait_put()
        world.add_workers("a", "b", "c", seconds=0.1)
        world.whole()
        world.wait_done()
        history = world.finish()
        assert {owner for owner, _ in history.accepted.values()} == {"a"}
        assert len(history.accepted) == 1500
        # Those that were done before all three worked are nobody's share.
        shares = history.shares()
        # One that the machine holds up for a second of these five has a smaller one.
        mean = sum(shares.values()) / 3
        assert len(shares) == 3 and all(0.5 * mean <= share <= 1.5 * mean for share in shares.values()), shares


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("whom", ["server", "store", "w0", "p0", "router", "router and server"])
def test_nothing_is_lost_where_one_is_killed(tmp_path: Path, whom: str) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.rush(600)
        world.wait_accepted(100)
        router = world.mesh["a"]
        if whom in world.places:
            world.kill(world.places[whom])
        elif whom == "store":
            os.kill(world.store("a"), signal.SIGKILL)
        else:
            if "server" in whom:
                os.kill(world.server("a"), signal.SIGKILL)
            if "router" in whom:
                router.kill()
        gevent.sleep(0.5)
        history = world.drain()
        assert len(history.accepted) >= 500


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("whom", ["server", "store", "worker", "router"])
def test_nothing_is_lost_where_one_is_stopped_for_longer_than_its_lease(tmp_path: Path, whom: str) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.rush(600)
        world.wait_accepted(100)
        target, pid = {
            "server": ("queue a", world.server("a")),
            "store": ("store", world.store("a")),
            "worker": ("w0#1", world.places["w0"].running.pid),
            "router": ("a", world.mesh["a"].pid),
        }[whom]
        world.stop_for(target, [pid], 6.0)
        world.drain()


@pytest.mark.long
def test_nothing_is_lost_where_everything_is_killed_at_once(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.rush(600)
        world.wait_accepted(100)
        world.kill_everything()
        world.drain()


def test_a_first_put_that_its_owner_has_forgotten_is_put_at_it_again(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 1) as world, Client(world.mesh.urls, shell="gevent") as client:
        server, store = world.server("a"), world.store("a")
        os.kill(store, signal.SIGSTOP)
        put = gevent.spawn(client.put, None, "fresh", {"method": "work", "args": {}}, timeout=30.0)
        state = lambda: world.operate(LOOK, "a", "queues")  # noqa: E731
        eventually(lambda: "fresh" in [row["queue"] for row in state()["queues"]] and state()["store"]["unanswered"])
        os.kill(server, signal.SIGKILL)
        os.kill(store, signal.SIGKILL)
        assert put.get(timeout=40).is_new


def test_a_router_without_a_queue_puts_and_works_by_those_that_have_one(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 1) as world, RouterProcess(router_name="z", mesh_peers=world.mesh.urls[0]) as router:
        work: list[int] = []

        class Endpoint:
            def work(self, ctx: Any, number: int) -> None:
                work.append(number)

        with (
            Client([router.url], shell="gevent") as client,
            Worker("billing", Endpoint(), router=[router.url], concurrency=1),
        ):
            for number in range(50):
                assert client.put(None, "billing", {"method": "work", "args": {"number": number}}).owner == "a"
            eventually(lambda: work == list(range(50)))
