"""Row 1 of the fault matrix: routers, workers, producers, queue servers and stores are killed, stopped and cut in turn.

0 accepted items are lost, none has its effect twice, and all is worked at within 30 s once everything is whole.
"""

from __future__ import annotations

from pathlib import Path

import gevent
import pytest

from tests.faults.queue_drill import drill
from tests.faults.queue_world import QueueWorld
from tests.store.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.fault]


def seed_of(request: pytest.FixtureRequest) -> int:
    """Another one for each test, and the same each time."""
    return sum(map(ord, request.node.name))


def test_a_fault_hits_a_process_that_runs_and_one_that_ends_meanwhile_does_no_harm(tmp_path: Path) -> None:
    with QueueWorld(tmp_path, 1) as world:
        world.mesh["a"].kill()
        world.mesh["a"].restart()
        # The router goes on with the queue server of its life before, and sees a little later that it has ended.
        killed = world.server("a")
        world.kill_process("queue a", killed)
        server = world.server("a")
        assert server != killed
        stopped = gevent.spawn(world.stop_for, "queue a", [server], 1.0)
        gevent.sleep(0)
        world.kill_process("queue a", server)
        stopped.get()
        world.stop_for("queue a", [killed], 0.0)
        assert world.server("a") not in (killed, server)


@pytest.mark.long
def test_nothing_is_lost_or_done_twice_with_files(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    history, _ = drill(tmp_path, 1000, seed_of(request), 2.0)
    assert len(history.accepted) > 900
    assert history.seconds_to_drain() < 60


@pytest.mark.long
def test_nothing_is_lost_or_done_twice_with_a_database(
    tmp_path: Path, database: str, postgres_server: PostgresServer, request: pytest.FixtureRequest
) -> None:
    history, _ = drill(tmp_path, 1000, seed_of(request), 2.0, postgres_server)
    assert len(history.accepted) > 900
    assert history.seconds_to_drain() < 60


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", ["file", "database"])
def test_nothing_is_lost_of_a_hundred_thousand(
    tmp_path: Path, database: str, postgres_server: PostgresServer, seed: int, kind: str
) -> None:
    history, _ = drill(tmp_path, 100_000, seed, 20.0, postgres_server if kind == "database" else None)
    assert len(history.accepted) > 99_000
    assert history.seconds_to_drain() < 30
