"""Bad input of every kind at real queue servers: full disks, damaged rows, hostile puts, handlers that never end.

Calls go on meanwhile, nothing is lost, and what is wrong is said.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from gevent.event import Event

from rpcmq import Client, Worker
from rpcmq.client.queue.protocol import LOOK, Record, all_queues, at_owner
from rpcmq.client.queue.records import pack_records
from rpcmq.errors import CallError, PutRefused, PutUnknown, RpcError
from rpcmq.testing import eventually
from tests.faults.queue_bystanders import calls, calls_go_on, closed_store
from tests.faults.queue_roles import QUEUE
from tests.faults.queue_world import QueueWorld
from tests.store.altered import altered

pytestmark = [pytest.mark.integration, pytest.mark.fault]

RECORD = Record(b"", 1, b"", 0, 0.0, 0.0, b"", "work", 1, b"{}")
MESSAGE = {"method": "work", "args": {"item": "x", "key": None}}


class Work:
    """Runs items; those that are called ``stuck`` never end."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.stuck: list[str] = []
        self.leave = Event()

    def work(self, ctx: Any, item: str, key: str | None) -> None:
        if item == "stuck":
            self.stuck.append(item)
            self.leave.wait()
            return
        self.done.append(item)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[QueueWorld]:
    with QueueWorld(tmp_path, 1) as world:
        yield world


@pytest.fixture
def client(world: QueueWorld) -> Iterator[Client]:
    with calls(world.mesh.urls) as client:
        yield client


def limit_files(pid: int, size: int) -> None:
    """Let the files of a process grow to so many bytes: as on a full disk, what is beyond it fails."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_while_the_disk_is_full_puts_wait_calls_go_on_and_then_all_is_worked_at(
    world: QueueWorld, client: Client
) -> None:
    world.add_workers("a", "a")
    world.add_producers("a", "a", count=300, rate=300.0)
    world.wait_accepted(50)
    limit_files(world.store("a"), 64 << 10)
    waits_for = lambda: world.operate(LOOK, "a", "queues")["store"]["waits_for"]  # noqa: E731
    assert "Full" in eventually(waits_for) or "IOError" in waits_for()
    for _ in range(20):
        assert calls_go_on(client)

    def says_why() -> bool:
        with pytest.raises(PutUnknown, match="nothing is put twice") as unknown:
            client.put(None, QUEUE, MESSAGE | {"args": {"item": "p0-9999", "key": None}}, id="p0-9999", timeout=1.0)
        return "FullError" in str(unknown.value) or "IOError" in str(unknown.value)

    eventually(says_why, 60)
    limit_files(world.store("a"), resource.RLIM_INFINITY)
    world.wait_put()
    world.whole()
    world.wait_done()
    history = world.history()
    assert len(history.accepted) == 600 and history.accepted.keys() <= history.done.keys()


def test_hostile_puts_are_refused_one_by_one(world: QueueWorld, client: Client) -> None:
    server, work = world.server("a"), Work()
    wrong: list[Any] = [
        None, 17, "text", b"\xff" * 100, [()], [[1] * 11], pack_records([RECORD])[:-1] + b"\0" * 7,
        pack_records([RECORD._replace(counter=0)]), pack_records([RECORD._replace(id=b"\xff" * 255)]),
        pack_records([RECORD._replace(priority=200)]),
        pack_records([RECORD._replace(expires=float("inf"))]), pack_records([RECORD._replace(delay=float("inf"))]),
        pack_records([RECORD] * 10_001),
    ]  # fmt: skip
    for records in wrong:
        for producer in (7, -1, 1 << 70, "p", None):
            message = {"method": "put", "args": {"producer": producer, "records": records}}
            try:
                answer = client.call(None, at_owner(QUEUE, "a"), message, timeout=30.0)
                assert answer[0], f"{records!r:.100} of {producer!r} was taken"
            except CallError:
                raise
            except RpcError:
                pass  # it is told as an error of the method
    for queue in (None, 17, "", "x" * 300, "rpcmq.queues", b"\xff"):
        with pytest.raises(RpcError):
            client.call(None, all_queues("a"), {"method": "open", "args": {"queue": queue}}, timeout=30.0)
    assert calls_go_on(client)
    with Worker(QUEUE, work, router=world.mesh.urls):
        client.put(None, QUEUE, MESSAGE)
        eventually(lambda: work.done)
    assert world.server("a") == server and work.done == ["x"]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_million_items_in_one_put_delay_nobody_for_long(world: QueueWorld, client: Client) -> None:
    server = world.server("a")
    message: dict[str, Any] = {
        "method": "put", "args": {"producer": 7, "records": pack_records([RECORD]) * 900_000}
    }  # fmt: skip
    answer = client.call(None, at_owner(QUEUE, "a"), message, timeout=50.0)
    assert "more than 10000 items" in answer[0]
    client.put(None, QUEUE, MESSAGE, timeout=20.0)
    assert calls_go_on(client) and world.server("a") == server


@pytest.mark.long
@pytest.mark.timeout(180)
def test_large_items_go_through_and_larger_ones_are_refused(world: QueueWorld, client: Client) -> None:
    lengths: list[int] = []

    class Long:
        def work(self, ctx: Any, item: str) -> None:
            lengths.append(len(item))

    with Worker(QUEUE, Long(), router=world.mesh.urls):
        for size in (1 << 20, 30 << 20):
            client.put(None, QUEUE, {"method": "work", "args": {"item": "x" * size}}, timeout=60.0)
        eventually(lambda: sorted(lengths) == [1 << 20, 30 << 20], 60.0)
        with pytest.raises(RpcError, match=r"more than max_bytes"):
            client.put(None, QUEUE, {"method": "work", "args": {"item": "x" * (65 << 20)}}, timeout=10.0)
    assert calls_go_on(client)


def test_a_handler_that_never_ends_holds_up_no_other_item_and_is_given_again_when_its_worker_is_dead(
    world: QueueWorld, client: Client
) -> None:
    work = Work()
    with Worker(QUEUE, work, router=world.mesh.urls, concurrency=2, drain_seconds=0.1) as worker:
        client.put(None, QUEUE, {"method": "work", "args": {"item": "stuck", "key": None}})
        eventually(lambda: work.stuck)
        for number in range(200):
            client.put(None, QUEUE, {"method": "work", "args": {"item": str(number), "key": None}})
        eventually(lambda: len(work.done) == 200)
        # As if its process had died.
        worker.client.process.connection._dialed.close()
        worker.client.close(0.0)
        other = Work()
        with Worker(QUEUE, other, router=world.mesh.urls):
            eventually(lambda: other.stuck, 30.0)
            other.leave.set()
            eventually(lambda: not any(world.left("a").values()), 30.0)
        work.leave.set()


@pytest.mark.long
def test_damaged_rows_are_dead_and_all_others_are_worked_at(world: QueueWorld, client: Client) -> None:
    numbers = count()
    messages = [{"method": "work", "args": {"item": f"item {next(numbers)}", "key": None}} for _ in range(1000)]
    client.put_many(None, QUEUE, messages)
    router, file = world.mesh["a"], closed_store(world)
    with altered(file) as connection:
        found = connection.execute("SELECT number, body FROM items_1 WHERE instr(body, CAST('item 500' AS BLOB))")
        ((number, body),) = found
        damaged = body.replace(b"item 500", b"itEm 500")
        connection.execute("UPDATE items_1 SET body = ? WHERE number = ?", (damaged, number))
        assert connection.changes() == 1
    router.restart()
    work = Work()
    with Worker(QUEUE, work, router=world.mesh.urls):
        eventually(lambda: len(work.done) == 999, 30.0)
        eventually(lambda: not any(world.left("a").values()), 30.0)
    (row,) = world.operate(LOOK, "a", "queues")["queues"]
    assert row["dead"] == 1 and "itEm 500" not in work.done and "item 500" not in work.done
    assert calls_go_on(client)


@pytest.mark.long
@pytest.mark.parametrize("what", ["newer", "header", "directory", "truncated"])
def test_a_store_that_cannot_be_used_is_named_and_calls_go_on(world: QueueWorld, client: Client, what: str) -> None:
    client.put_many(None, QUEUE, [MESSAGE] * 500)
    router, file = world.mesh["a"], closed_store(world)
    with altered(file) as connection:
        version = connection.pragma("user_version")
        if what == "newer":
            connection.pragma("user_version", 999)
    whole = file.read_bytes()
    if what == "header":
        file.write_bytes(b"\0" * 200 + whole[200:])
    elif what == "truncated":
        file.write_bytes(whole[: len(whole) // 2])
    elif what == "directory":
        file.unlink()
        file.mkdir()
    router.restart()
    why = lambda: router.view("queues")["why"]  # noqa: E731
    text = {
        "newer": "it has version 999", "header": "no SQLite database", "directory": "cannot be written",
        "truncated": "damaged",
    }[what]  # fmt: skip
    eventually(lambda: text in why(), 30.0, f"{what}: {why()}")
    eventually(lambda: calls_go_on(client))
    with pytest.raises((PutRefused, PutUnknown), match="queue 'billing'"):
        client.put(None, QUEUE, MESSAGE, timeout=1.0)
    if what == "truncated":
        return
    if what == "directory":
        file.rmdir()
    if what == "newer":
        with altered(file) as connection:
            connection.pragma("user_version", version)
    else:
        file.write_bytes(whole)
    # It is put right: the next life has all.
    os.kill(world.mesh["a"].pid, signal.SIGTERM)
    router.wait()
    router.restart()
    work = Work()
    with Worker(QUEUE, work, router=world.mesh.urls):
        eventually(lambda: len(work.done) >= 500, 30.0)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_nothing_more_is_put_into_a_file_that_is_removed_and_what_is_there_is_worked_at(
    world: QueueWorld, client: Client, how: str
) -> None:
    file = world.folder / "queues-a" / "queue.db"
    kept = file.with_name("kept.db")
    accepted = [client.put(None, QUEUE, MESSAGE, timeout=30)]

    def is_refused() -> bool:
        try:
            accepted.append(client.put(None, QUEUE, MESSAGE, timeout=30))
        except PutRefused as error:
            assert f"its file {file} was {how}" in str(error)
            return True
        return False

    def why() -> str:
        return str(world.operate(LOOK, "a", "queues")["queues"][0]["why"])

    file.rename(kept)
    if how == "replaced":
        file.write_bytes(kept.read_bytes())
    eventually(is_refused, 60)
    assert f"was {how}" in why()
    eventually(lambda: f"was {how}" in world.mesh["a"].view("queues")["why"], 60)
    assert calls_go_on(client)
    # Back under its name, it is the same file as before.
    kept.replace(file)
    eventually(lambda: "its file" not in why(), 60)
    accepted.append(client.put(None, QUEUE, MESSAGE, timeout=30))
    work = Work()
    with Worker(QUEUE, work, client=client):
        eventually(lambda: len(work.done) == len(accepted), 60)


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_nothing_is_lost_where_the_log_alone_is_removed_and_the_store_killed_later(
    world: QueueWorld, client: Client, how: str
) -> None:
    file = world.folder / "queues-a" / "queue.db"
    log, kept, other = (file.with_name(name) for name in ("queue.db-wal", "kept", "other"))
    receipts = [client.put(None, QUEUE, MESSAGE, timeout=30) for _ in range(20)]
    # The files keep a name, so that no later one gets their inodes.
    log.rename(kept)
    if how == "replaced":
        other.write_bytes(kept.read_bytes()[:5000])
        os.link(other, log)

    def is_new() -> bool:
        receipts.append(client.put(None, QUEUE, MESSAGE, timeout=60))
        return log.exists() and not any(path.exists() and path.samefile(log) for path in (kept, other))

    eventually(is_new, 60)
    assert calls_go_on(client)
    world.kill_process("store", world.store("a"))
    receipts.append(client.put(None, QUEUE, MESSAGE, timeout=60))
    assert all(receipt.is_new for receipt in receipts)
    work = Work()
    with Worker(QUEUE, work, client=client):
        eventually(lambda: len(work.done) >= len(receipts), 60)
    assert len(work.done) == len(receipts)
    assert world.operate(LOOK, "a", "queues")["store"]["restarts"] == 1, "the store that was closed in order is none"
