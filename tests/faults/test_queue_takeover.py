"""Queues in PostgreSQL under faults: an owner that is gone has an heir, until it is back."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gevent
import psycopg
import pytest

from rpcmq.testing import eventually
from tests.faults.queue_roles import Seen
from tests.faults.queue_world import QueueWorld
from tests.store.postgres_server import PostgresServer

pytestmark = [pytest.mark.integration, pytest.mark.fault]

#: Ends the sessions of all owners.
_CUT_OFF = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'rpcmq queue of %'"
_SOON: dict[str, Any] = {"queue_takeover_seconds": 1}


def epoch_of(database: str, owner: str) -> int:
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT epoch FROM rpcmq.owners WHERE name = %s", (owner,)).fetchone()
        assert row is not None
        return int(row[0])


def kill_machine(world: QueueWorld, owner: str) -> None:
    """Kill a router with its queue server, as if its machine were gone."""
    server = world.server(owner)
    world.mesh[owner].kill()
    os.kill(server, signal.SIGKILL)


def stop_in_transaction(store: int, database: str, owner: str) -> None:
    """Stop the store of ``owner`` in the middle of a transaction, which the database learns nothing of."""
    query = "SELECT coalesce(wait_event_type, ''), state FROM pg_stat_activity WHERE application_name = %s"
    with psycopg.connect(database, autocommit=True) as watching, psycopg.connect(database) as locking:

        def states() -> list[tuple[str, str]]:
            return [(kind, state) for kind, state in watching.execute(query, (f"rpcmq queue of {owner}",))]

        def is_caught() -> bool:
            locking.execute("SELECT 1 FROM rpcmq.owners WHERE name = %s FOR UPDATE", (owner,))
            eventually(lambda: ("Lock", "active") in states(), 30.0, f"the store of {owner} has something to do")
            os.kill(store, signal.SIGSTOP)
            locking.commit()
            found = eventually(lambda: [state for _, state in states() if state != "active"], 30.0)
            if found == ["idle in transaction"]:
                return True
            os.kill(store, signal.SIGCONT)  # it has opened the store anew
            return False

        eventually(is_caught, 60.0, f"the store of {owner} is stopped in a transaction")


@pytest.mark.long
def test_the_items_of_an_owner_that_is_gone_are_worked_at_by_another_and_it_gets_its_name_back(
    tmp_path: Path, database: str
) -> None:
    with QueueWorld(tmp_path, 2, database, **_SOON) as world:
        world.add_producers("a", count=300, rate=2000.0)
        world.wait_put()
        before = epoch_of(database, "a")
        kill_machine(world, "a")
        world.add_workers("b", seconds=0.002)
        eventually(lambda: epoch_of(database, "a") > before, 30.0, "another router has the items of a")
        world.whole()
        eventually(lambda: len(world.history().done) == 300, 30.0)
        heirs = epoch_of(database, "a")
        world.start_everything()
        eventually(lambda: epoch_of(database, "a") > heirs, 30.0, "a has its items again")
        world.add_producers("a", count=100)
        world.wait_put()
        world.wait_done()
        history = world.finish()
        assert {owner for owner, _ in history.accepted.values()} == {"a"}


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("whole_machine", [False, True])
def test_the_items_of_an_owner_that_is_stopped_are_worked_at_by_another_and_it_reads_anew_what_is_left(
    tmp_path: Path, database: str, whole_machine: bool
) -> None:
    with QueueWorld(tmp_path, 2, database, **_SOON) as world:
        world.add_workers("b", "b")
        server, store = world.server("a"), world.store("a")
        world.add_producers("a", "b", count=600, rate=200.0)
        pids = [server]
        world.recorder.write(Seen.FAULT, "stop", target="queue a")
        if whole_machine:
            pids += [store, world.mesh["a"].pid]
            stop_in_transaction(store, database, "a")
        before = epoch_of(database, "a")
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        eventually(lambda: epoch_of(database, "a") > before, 60.0, "another router has the items of a")
        gevent.sleep(3.0)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        eventually(lambda: world.server("a") != server, 60.0, "the queue server of a has begun anew")
        world.drain()


@pytest.mark.long
def test_a_session_that_is_lost_while_its_queue_server_lives_loses_nothing(tmp_path: Path, database: str) -> None:
    with QueueWorld(tmp_path, 2, database, **_SOON) as world:
        world.rush(400, rate=300.0)
        for _ in range(3):
            gevent.sleep(0.3)
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute(_CUT_OFF)
        history = world.drain()
        assert len(history.accepted) == 400


@pytest.mark.long
def test_a_database_that_is_killed_and_comes_back_loses_nothing(
    tmp_path: Path, database: str, postgres_server: PostgresServer
) -> None:
    with QueueWorld(tmp_path, 2, database, **_SOON) as world:
        world.rush(400, rate=300.0)
        world.wait_accepted(100)
        postgres_server.kill()
        gevent.sleep(1.5)
        postgres_server.start()
        history = world.drain()
        assert len(history.accepted) == 400


@pytest.mark.long
def test_a_snapshot_that_somebody_holds_stops_no_queue(tmp_path: Path, database: str) -> None:
    with QueueWorld(tmp_path, 2, database, **_SOON) as world, psycopg.connect(database) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM rpcmq.items")
        world.rush(800, rate=2000.0)
        history = world.drain()
        assert len(history.accepted) == 800
