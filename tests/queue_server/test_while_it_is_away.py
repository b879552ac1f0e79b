"""What programs and operators are told while a queue server starts, or cannot work; with real routers."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq import Client
from rpcmq.errors import NoConsumer, PutRefused
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess

apsw = pytest.importorskip("apsw", reason="apsw is not installed: pip install 'rpcmq[queue]'")

pytestmark = [pytest.mark.integration, pytest.mark.long]

MESSAGE = {"method": "charge", "args": {"invoice": 17}}
NOBODY = "no router of this mesh has a queue server: rpcmq router --queue-dir DIR"


def command(router: RouterProcess, *words: str) -> Program:
    """``rpcmq queue WORDS``, asked of ``router``."""
    name, *more = words
    return Program([sys.executable, "-m", "rpcmq", "queue", name, "--router", router.url, *more], name="rpcmq queue")


def ended(program: Program) -> tuple[int, str]:
    with program:
        return program.wait(), program.said()


def state(router: RouterProcess) -> str:
    return str(router.view("queues")["state"])


@contextmanager
def not_started(folder: Path) -> Iterator[None]:
    """Keep the queue server from being started: another one seems to live, which says nothing."""
    folder.mkdir()
    os.mkfifo(folder / "status")
    with (folder / "server.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def not_opened(folder: Path) -> Iterator[None]:
    """Keep the store from being opened: another process has it."""
    make_store(folder)
    with closing(apsw.Connection(str(folder / "queue.db"))) as other:
        other.pragma("locking_mode", "exclusive")
        other.execute("BEGIN EXCLUSIVE")
        yield


def make_store(folder: Path) -> None:
    with owner(folder) as router:
        with Client(router.url) as client:
            client.put(None, "mails", MESSAGE, timeout=60)
        router.signal(signal.SIGTERM)
        assert router.wait() == 0


def owner(folder: Path) -> RouterProcess:
    """A router with a queue server, which does not outlive it for long."""
    return RouterProcess(queue_dir=folder, queue_orphan_seconds=0.5, router_name="here")


# --- it starts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delay", "seen", "text"),
    [
        (not_started, "starting", "the queue server of here is starting"),
        (not_opened, "waiting", "the queue server of here waits: queue store .*queue.db: another process has it open"),
    ],
)
def test_commands_and_puts_wait_for_one_that_starts(tmp_path: Path, delay: Any, seen: str, text: str) -> None:
    folder = tmp_path / "queue"
    with ExitStack() as stack:
        delayed = stack.enter_context(ExitStack())
        delayed.enter_context(delay(folder))
        router = stack.enter_context(owner(folder))
        eventually(lambda: state(router) == seen)
        client = stack.enter_context(Client(router.url))
        # Until it is there nothing else is said of it, however short the time.
        eventually(lambda: re.search(text, refused(client)))
        code, said = ended(command(router, "ls", "--timeout", "0.3"))
        assert code == 1 and re.search(text.replace("here ", "here does not answer: it "), said) and NOBODY not in said
        code, said = ended(command(router, "set", "--timeout", "0.3", "--create", "billing", "lease=2"))
        assert code == 1 and re.search(text.replace("here ", "here does not answer: it "), said)
        # Those that have time succeed.
        settings = stack.enter_context(command(router, "set", "--timeout", "60", "--create", "billing", "lease=2"))
        put = gevent.spawn(client.put, None, "billing", MESSAGE, timeout=60)
        declared = gevent.spawn(client.declare_queue, "billing", attempts=7, timeout=60)
        put.join(timeout=0.5)
        assert not put.ready() and not declared.ready()
        delayed.close()
        assert settings.wait() == 0, settings.said()
        assert put.get(timeout=60).is_new and declared.get(timeout=60)["attempts"] == 7


def refused(client: Client) -> str:
    with pytest.raises(PutRefused) as refusal:
        client.put(None, "billing", MESSAGE, timeout=0.3)
    return str(refusal.value)


# --- it cannot work ----------------------------------------------------------------------------------


def damage(file: Path) -> None:
    file.write_bytes(b"\0" * 200 + file.read_bytes()[200:])


def make_newer(file: Path) -> None:
    from tests.store.altered import altered

    with altered(file) as connection:
        connection.pragma("user_version", 999)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (damage, "queue.db: it is no SQLite database: restore it from a copy, or move it away"),
        (make_newer, "queue.db: it has version 999, and this rpcmq knows"),
    ],
)
def test_a_store_that_cannot_be_opened_is_named_at_each_router_of_the_mesh(
    tmp_path: Path, spoil: Any, text: str
) -> None:
    folder = tmp_path / "queue"
    make_store(folder)
    spoil(folder / "queue.db")
    with (
        owner(folder) as first,
        RouterProcess(router_name="there", mesh_peers=first.url) as other,
    ):
        for router in (first, other):
            with Client(router.url) as client:
                with pytest.raises(PutRefused) as refusal:
                    client.put(None, "billing", MESSAGE, timeout=300)
                assert "nothing was put: the queue server of here is unavailable: it cannot open its store" in str(
                    refusal.value
                )
                assert text in str(refusal.value)
                with pytest.raises(NoConsumer, match=re.escape(text)):
                    client.declare_queue("billing", attempts=3, timeout=300)
            for words in (("ls",), ("show", "billing"), ("set", "--create", "billing", "lease=2")):
                code, said = ended(command(router, *words, "--timeout", "60"))
                unfolded = " ".join(said.split())
                assert code == 1 and "the queue server of here does not answer: it is unavailable" in unfolded
                assert text in unfolded and NOBODY not in unfolded
        doctor = Program([sys.executable, "-m", "rpcmq", "doctor", "--router", first.url], name="rpcmq doctor")
        assert "the queue server is unavailable: it cannot open its store" in " ".join(ended(doctor)[1].split())


# --- there is none -----------------------------------------------------------------------------------


def test_where_no_router_has_one_that_is_said_at_once() -> None:
    with RouterProcess() as first, RouterProcess(mesh_peers=first.url) as second, Client(second.url) as client:
        with pytest.raises(PutRefused, match=f"queue 'billing': nothing was put: {NOBODY}$"):
            client.put(None, "billing", MESSAGE, timeout=300)
        with pytest.raises(NoConsumer, match=f"^{NOBODY}$"):
            client.declare_queue("billing", attempts=3, timeout=300)
        assert ended(command(second, "ls", "--timeout", "60")) == (5, f"rpcmq: {NOBODY}")
        code, said = ended(command(second, "ls", "--timeout", "60", "--owner", "nobody"))
        assert code == 5 and "router 'nobody' has no queue server, or is not there" in said
