"""Work queues across routers, with real processes: put anywhere, work anywhere, and whatever may die meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import gevent
import pytest

from tests.faults.queue_world import QueueWorld

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def test_items_of_one_router_are_worked_at_by_equal_workers_of_all_routers(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.add_producers("a", count=1500)
        world.wait_put()
        world.add_workers("a", "b", "c", seconds=0.04)
        world.whole()
        world.wait_done()
        history = world.finish()
        assert {owner for owner, _ in history.accepted.values()} == {"a"}
        assert len(history.accepted) == 1500
        assert all(400 <= share <= 600 for share in history.shares().values()), history.shares()


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("whom", ["server", "store", "w0", "p0", "router", "router and server"])
def test_nothing_is_lost_where_one_is_killed(tmp_path: Path, whom: str) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.rush(600)
        gevent.sleep(0.5)
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
        gevent.sleep(0.5)
        target, pid = {
            "server": ("queue a", world.server("a")),
            "store": ("store", world.store("a")),
            "worker": ("w0#1", world.places["w0"].running.pid),
            "router": ("a", world.mesh["a"].pid),
        }[whom]
        world.stop_for(target, [pid], 6.0)
        world.drain()


def test_nothing_is_lost_where_everything_is_killed_at_once(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 3) as world:
        world.rush(600)
        gevent.sleep(0.7)
        world.kill_everything()
        world.drain()
