"""Disks of queues that fail, are full, become read-only or are damaged: nothing accepted is lost, calls go on.

The queue heals in place as soon as the disk does: neither router nor queue server is started again for that.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import pytest
from gevent import subprocess

from rpcmq import Client, Worker
from rpcmq.client.queue.protocol import LOOK
from rpcmq.errors import PutRefused, PutUnknown
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from tests.faults.queue_bystanders import calls, calls_go_on, closed_store
from tests.faults.queue_roles import QUEUE, Seen
from tests.faults.queue_world import QueueWorld

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long, pytest.mark.timeout(300)]

_PAGE = 8192
#: A queue server whose store could not be used is started again after a minute, and one whose directory could not be
#: used after a second.
_AGAIN, _SOON = 100.0, 20.0


class Work:
    """Runs items, of which each has the checksum of its name."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.wrong: list[str] = []

    def work(self, ctx: Any, item: str, checksum: str) -> None:
        (self.done if checksum_of(item) == checksum else self.wrong).append(item)


def checksum_of(item: str) -> str:
    return hashlib.sha256(item.encode()).hexdigest()


def message_of(item: str) -> dict[str, Any]:
    return {"method": "work", "args": {"item": item, "checksum": checksum_of(item)}}


def p99_of_calls(client: Client, until: Callable[[], object], count: int = 200) -> float:
    """The seconds that 99 of 100 calls take, one after the other; all of them must be answered."""
    times: list[float] = []
    while len(times) < count or not until():
        began = perf_counter()
        assert calls_go_on(client)
        times.append(perf_counter() - began)
    return sorted(times)[len(times) * 99 // 100]


def assert_not_put(client: Client) -> str:
    """A put says why there is no receipt."""
    with pytest.raises((PutRefused, PutUnknown)) as caught:
        client.put(None, QUEUE, {"method": "work", "args": {"item": "shut-1", "key": None}}, id="shut-1", timeout=1.0)
    return str(caught.value)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB at the directory of the queue server of the first router."""
    place = tmp_path / "queues-a"
    place.mkdir()
    run = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], capture_output=True, text=True, check=False
    )
    if run.returncode:
        pytest.skip(f"no file system can be mounted here: {run.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def remount(place: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", place], check=True, capture_output=True)


def fill(place: Path) -> None:
    """Fill what is left of a file system."""
    with open(place / "filler", "wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError as error:
                assert error.errno == errno.ENOSPC


def outage(world: QueueWorld, client: Client, begin: Callable[[], object], end: Callable[[], object]) -> str:
    """Let the disk fail while items are put and worked at; return the reason that the router shows meanwhile."""
    world.add_workers("a", "a")
    world.add_producers("a", "a", count=400, rate=200.0)
    world.wait_accepted(100)
    router, server = world.mesh["a"].pid, world.server("a")
    before = p99_of_calls(client, lambda: True)
    begin()
    reason = str(eventually(lambda: world.mesh["a"].view("queues")["why"], 30.0))
    meanwhile = p99_of_calls(client, lambda: True)
    print(f"p99 of calls: {before * 1000:.2f} ms before, {meanwhile * 1000:.2f} ms while {reason}")
    world.recorder.write(Seen.PUTTING, "shut-1", key=None)
    text = assert_not_put(client)
    assert "nothing is put twice" in text, text
    assert world.mesh["a"].view("queues")["state"] == "waiting"
    end()
    world.wait_put()
    world.whole()
    world.wait_done()
    assert (world.mesh["a"].pid, world.server("a")) == (router, server), "it has healed in place"
    assert world.operate(LOOK, "a", "queues")["store"]["waits_for"] == ""
    history = world.finish()
    assert len(history.accepted) == 800
    return reason


@pytest.mark.parametrize("what", ["write", "sync", "read-only"])
def test_a_disk_that_fails_holds_puts_up_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    control = tmp_path / "control"
    monkeypatch.setenv("FAULTY_DISK", str(control))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "faulty_disk"))
    with QueueWorld(tmp_path, 1) as world, calls(world.mesh.urls) as client:
        reason = outage(world, client, lambda: control.write_text(what), control.unlink)
        assert "queue.db" in reason and ("IOError" in reason or "cannot be written" in reason)


def test_a_disk_that_cannot_be_read_holds_its_items_up_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tmp_path / "control"
    monkeypatch.setenv("FAULTY_DISK", str(control))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "faulty_disk"))
    with QueueWorld(tmp_path, 1) as world, calls(world.mesh.urls) as client:
        # More than SQLite keeps in memory.
        padding, count = "x" * (64 << 10), 600
        for first in range(0, count, 50):
            client.put_many(None, QUEUE, [message_of(f"{n} {padding}") for n in range(first, first + 50)])
        server, work = world.server("a"), Work()
        control.write_text("read")
        with Worker(QUEUE, work, router=world.mesh.urls):
            assert "IOError" in eventually(lambda: world.mesh["a"].view("queues")["why"], 30.0)
            meanwhile = p99_of_calls(client, lambda: True)
            print(f"p99 of calls: {meanwhile * 1000:.2f} ms while it cannot be read")
            assert len(work.done) < count
            control.unlink()
            eventually(lambda: len(work.done) == count, 60.0)
            eventually(lambda: not any(world.left("a").values()), 30.0)
        assert world.server("a") == server and len(set(work.done)) == count and not work.wrong


def test_a_disk_that_is_full_holds_puts_up_and_nothing_else(tmp_path: Path, mounted: Path) -> None:
    with QueueWorld(tmp_path, 1) as world, calls(world.mesh.urls) as client:
        reason = outage(world, client, lambda: fill(mounted), (mounted / "filler").unlink)
        assert "Full" in reason


@pytest.mark.parametrize("reason", ["Read-only file system", "No space left on device"])
def test_a_directory_that_is_of_no_use_at_the_start_is_named_and_used_as_soon_as_it_can_be(
    tmp_path: Path, mounted: Path, reason: str
) -> None:
    is_full = reason.startswith("No space")
    fill(mounted) if is_full else remount(mounted, "ro")
    with RouterProcess(router_name="a", queue_dir=str(mounted)) as router, calls([router.url]) as client:
        why = lambda: router.view("queues")["why"]  # noqa: E731
        eventually(lambda: reason in why(), 30.0, f"it says why: {why()}")
        text = assert_not_put(client)
        assert "queue" in text
        print(f"p99 of calls: {p99_of_calls(client, lambda: True) * 1000:.2f} ms; {why()}; {text}")
        (mounted / "filler").unlink() if is_full else remount(mounted, "rw")
        work = Work()
        with Worker(QUEUE, work, router=[router.url]):
            eventually(lambda: router.view("queues")["state"] == "serving", _SOON)
            client.put(None, QUEUE, message_of("x"), timeout=30.0)
            eventually(lambda: work.done == ["x"])


def damaged(content: bytes, how: str, random: Random) -> bytes:
    """A file that is not as it was written."""
    at = random.randrange(len(content) // _PAGE) * _PAGE
    if how == "zero a page":
        return content[:at] + bytes(_PAGE) + content[at + _PAGE :]
    if how == "truncate":
        return content[: at + random.randrange(_PAGE)]
    raw = bytearray(content)
    for _ in range(8):
        raw[at + random.randrange(_PAGE)] ^= 1 << random.randrange(8)
    return bytes(raw)


@pytest.mark.parametrize("how", ["zero a page", "truncate", "flip bits"])
@pytest.mark.parametrize("seed", range(3))
def test_a_file_that_is_damaged_while_nobody_has_it_open_gives_no_wrong_item(
    tmp_path: Path, how: str, seed: int
) -> None:
    random = Random(f"{how} {seed}")
    with QueueWorld(tmp_path, 1) as world, calls(world.mesh.urls) as client:
        items = [f"item {number}" for number in range(1000)]
        client.put_many(None, QUEUE, [message_of(item) for item in items])
        router, file = world.mesh["a"], closed_store(world)
        whole = file.read_bytes()
        file.write_bytes(damaged(whole, how, random))
        router.restart()
        view = lambda: router.view("queues")  # noqa: E731
        work = Work()
        with Worker(QUEUE, work, router=world.mesh.urls):

            def is_over() -> str:
                state = view()
                if state["state"] == "serving":
                    return "" if any(world.left("a").values()) else "served"
                return str(state["why"]) if "queue.db" in state["why"] else ""

            reason = eventually(is_over, 30.0)
            print(f"{how} {seed}: {len(work.done)} done, {reason}")
            eventually(lambda: calls_go_on(client))
            assert not work.wrong and len(set(work.done)) == len(work.done) and set(work.done) <= set(items)
            if reason != "served":
                # It is put right: the queue server looks again by itself.
                assert any(text in reason for text in ("it is damaged", "no SQLite database", "is damaged, so that"))
                assert_not_put(client)
                for more in ("-wal", "-shm"):
                    Path(f"{file}{more}").unlink(missing_ok=True)
                file.write_bytes(whole)
                eventually(lambda: set(work.done) == set(items), _AGAIN)
            else:
                dead = world.operate(LOOK, "a", "queues")["queues"][0]["dead"]
                assert len(work.done) + dead == len(items)
