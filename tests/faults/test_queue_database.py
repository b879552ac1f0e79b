"""The PostgreSQL database of queues is away, frozen, full, or gone in the middle of a commit."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from gevent import subprocess

from rpcmq import Client, Worker
from rpcmq.client.queue.protocol import LOOK
from rpcmq.errors import PutUnknown
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program
from tests.faults.commit_cutter import CommitCutter
from tests.faults.queue_roles import QUEUE
from tests.faults.queue_world import QueueWorld
from tests.store.postgres_server import PostgresServer, binaries

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long]

_SOON: dict[str, Any] = {"queue_takeover_seconds": 1}


def operator(world: QueueWorld, *command: str) -> tuple[int, str]:
    """The exit code and the output of ``rpcmq queue``."""
    arguments = [sys.executable, "-m", "rpcmq", "queue", *command, "--router", world.mesh["a"].url]
    with Program(arguments, {"COLUMNS": "250"}, name=command[0]) as program:
        return program.wait(60.0), "\n".join(program.lines)


def problem(world: QueueWorld) -> str:
    """The reason for which the store of a answers nothing."""
    return str(world.operate(LOOK, "a", "queues")["store"]["waits_for"])


def test_while_the_database_is_away_views_say_so_and_a_worker_that_comes_then_works_when_it_is_back(
    tmp_path: Path, database: str, postgres_server: PostgresServer
) -> None:
    with QueueWorld(tmp_path, 1, database, **_SOON) as world:
        world.add_producers("a", count=30)
        world.wait_put()
        postgres_server.kill()
        eventually(lambda: problem(world))
        world.add_workers("a")
        for command in (("ls",), ("show", QUEUE)):
            code, text = operator(world, *command)
            assert code == 0 and "does not answer: queue store of 'a': connection" in text, text
        code, text = operator(world, "ls", "--json")
        assert code == 0 and json.loads(text)
        code, text = operator(world, "peek", QUEUE)
        assert code == 1 and "does not answer" in text, text
        view = world.mesh["a"].view("queues")
        assert view["state"] == "waiting" and "connection" in view["why"]
        assert not world.history().done
        postgres_server.start()
        history = world.drain()
        assert len(history.done) == 30


@pytest.mark.timeout(180)
def test_a_database_that_is_frozen_is_told_of_and_loses_nothing_when_it_goes_on(
    tmp_path: Path, database: str, postgres_server: PostgresServer
) -> None:
    with QueueWorld(tmp_path, 2, database, **_SOON) as world:
        world.rush(300, rate=100.0)
        world.wait_accepted(30)
        postgres_server.freeze()
        try:
            eventually(lambda: "has answered nothing" in problem(world), 60.0, "the store is called silent")
            code, text = operator(world, "ls")
            assert code == 0 and "the store of a does not answer: it has answered nothing" in text, text
        finally:
            postgres_server.thaw()
        history = world.drain()
        assert len(history.accepted) == 300


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_a_database_that_is_gone_in_the_middle_of_a_commit_has_each_item_once(
    tmp_path: Path, database: str, seed: int
) -> None:
    with CommitCutter(database, Random(seed), 0.05) as cutter:
        with QueueWorld(tmp_path, 2, cutter.url, **_SOON) as world:
            world.rush(600, rate=200.0)
            eventually(lambda: min(cutter.lost, cutter.unanswered) >= 5, 120.0, "commits are cut")
            cutter.part = 0.0
            world.database = database  # this process runs the proxy, and does not wait for it
            history = world.drain()
            assert len(history.accepted) == 600
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT count(*) FROM rpcmq.items").fetchone() == (0,)


# --- full disks ----------------------------------------------------------------------------------


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system of its own, which the user of the server reaches."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    folder = Path(tempfile.mkdtemp(prefix="rpcmq-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", "size=128m,mode=755", "none", str(folder)]
    mounted = subprocess.run(command, stderr=subprocess.PIPE)
    try:
        if mounted.returncode:
            pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], stderr=subprocess.DEVNULL)
        folder.rmdir()


def fill(disk: Path) -> Path:
    """Leave no room on ``disk``; return the file that has it."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        while os.statvfs(disk).f_bavail:
            file.write(b"\0" * 4096)
    return path


class _Others:
    """Works at items that have nothing to do with the history of the world."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def work(self, ctx: Any, item: str, much: str) -> None:
        self.done.append(item)


def fill_up(world: QueueWorld, client: Client, disk: Path, reason: str) -> tuple[Path, list[str]]:
    """Leave no room on ``disk``, and put until nothing is taken because of that.

    Returns:
        The file that has the room, and the items that were accepted.
    """
    numbers, accepted = count(), list[str]()

    def put_all() -> None:
        while True:
            item = f"y{next(numbers)}"
            message = {"method": "work", "args": {"item": item, "much": "x" * 5000}}
            client.put(None, "other", message, id=item, timeout=2.0)
            accepted.append(item)

    filler = fill(disk)

    def says_so() -> bool:
        with pytest.raises(PutUnknown, match="nothing is put twice"):
            put_all()
        return reason in problem(world)

    eventually(says_so, 60.0, "the disk is full")
    code, text = operator(world, "ls")
    assert code == 0 and reason in text, text
    return filler, accepted


def drain(world: QueueWorld, accepted: list[str]) -> None:
    """Have everything worked at; ``accepted``, too."""
    others = _Others()
    with Worker("other", others, router=world.mesh.urls):
        world.wait_put()
        world.whole()
        world.wait_done()
    assert set(accepted) <= set(others.done)
    assert len(world.finish().accepted) == 600


@pytest.mark.timeout(300)
def test_while_the_disk_of_the_tables_is_full_puts_wait_and_nothing_is_lost(
    tmp_path: Path, database: str, disk: Path
) -> None:
    tables = disk / "tables"
    tables.mkdir()
    shutil.chown(tables, "postgres")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE TABLESPACE small LOCATION '{tables}'".encode())
        connection.execute("ALTER ROLE rpcmq SET default_tablespace = small")
        try:
            with QueueWorld(tmp_path, 1, database, **_SOON) as world, Client(world.mesh.urls, shell="gevent") as client:
                world.rush(600, rate=30.0, producers=1)
                filler, accepted = fill_up(world, client, disk, "No space left on device")
                filler.unlink()
                drain(world, accepted)
        finally:
            connection.execute("ALTER ROLE rpcmq RESET default_tablespace")
            connection.execute("DROP SCHEMA rpcmq CASCADE")
            connection.execute("DROP TABLESPACE small")


@pytest.mark.timeout(300)
@pytest.mark.skipif(binaries() is None, reason="PostgreSQL is not installed: apt-get install postgresql")
def test_a_database_that_dies_of_a_full_disk_has_everything_when_it_is_started_with_room(
    tmp_path: Path, disk: Path
) -> None:
    with (
        PostgresServer(within=disk, initial=["--wal-segsize=1"]) as server,
        QueueWorld(tmp_path, 1, server.url, **_SOON) as world,
        Client(world.mesh.urls, shell="gevent") as client,
    ):
        world.rush(600, rate=30.0, producers=1)
        filler, accepted = fill_up(world, client, disk, "queue store of 'a'")
        filler.unlink()
        eventually(lambda: is_up(server), 60.0)
        drain(world, accepted)


def is_up(server: PostgresServer) -> bool:
    """Start the server if it has ended; return whether it answers."""
    server.start_again()
    try:
        psycopg.connect(server.url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
