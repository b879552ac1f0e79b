"""A real router with a real queue server: deaths of either, restarts, keys, drains, bad stores."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rpcmq import Client, Service, Worker
from rpcmq.client.queue.protocol import CHANGE, OPERATORS
from rpcmq.errors import AccessDenied
from rpcmq.wire import Address
from tests.keys import Folder, right
from tests.server.daemons import SECONDS, Daemon, eventually, router, run
from tests.store.altered import altered

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long]

MESSAGE = {"method": "charge", "args": {"invoice": 17}}
#: Has what is in doubt come back soon.
LEASE = {"method": "set", "args": {"queue": "billing", "settings": {"lease": 1.0, "backoff": 0.1}, "create": True}}


class Billing:
    """Runs items, each until the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.done: list[int] = []
        self.leave = Event()

    def charge(self, ctx: Any, invoice: int) -> None:
        self.begun.append(invoice)
        assert self.leave.wait(SECONDS)
        self.done.append(invoice)


@pytest.fixture
def billing() -> Iterator[Billing]:
    billing = Billing()
    yield billing
    billing.leave.set()


def page(daemon: Daemon, path: str) -> Any:
    with urllib.request.urlopen(daemon.http + path, timeout=SECONDS) as answer:
        text = answer.read()
    return text.decode() if path == "/metrics" else json.loads(text)


def queue(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = page(daemon, "/queues")
    return found


def is_serving(daemon: Daemon) -> bool:
    return bool(queue(daemon)["state"] == "serving")


def counts(daemon: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = queue(daemon)["queues"].get("billing", {})
    return found


def troubles(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the records that somebody should look at."""
    known = ("open files", "short recovery")
    return [each for each in daemon.records if each["level"] != "info" and each["event"] not in known]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    """Of a router with queues, which comes back at the same endpoint."""
    listen = f"tcp://127.0.0.1:{free_port()}"
    return ("--queue-dir", str(tmp_path / "queue"), "--http", "127.0.0.1:0", "--listen", listen)


def kill(daemon: Daemon) -> None:
    """Kill the router alone. Its queue server goes on, and has its log open."""
    daemon.signal(signal.SIGKILL)
    eventually(lambda: daemon.process.poll() is not None)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


def test_items_are_put_worked_and_counted(flags: tuple[str, ...], billing: Billing) -> None:
    billing.leave.set()
    with router(*flags) as daemon:
        eventually(lambda: is_serving(daemon))
        with Client(daemon.url) as client, Worker("billing", billing, router=daemon.url):
            for number in range(10):
                client.put(None, "billing", {"method": "charge", "args": {"invoice": number}})
            eventually(lambda: len(billing.done) == 10)
        eventually(lambda: counts(daemon).get("counters", {}).get("done") == 10)
        assert counts(daemon)["ready"] == 0
        assert page(daemon, "/varz")["queue"]["state"] == "serving" and page(daemon, "/healthz") == {"status": "ok"}
        assert 'rpcmq_queue_events_total{queue="billing",event="done"} 10' in page(daemon, "/metrics")
        pid = queue(daemon)["pid"]
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0 and gone(pid)
        assert troubles(daemon) == []


def test_a_queue_server_that_is_killed_comes_back_with_its_items(flags: tuple[str, ...], billing: Billing) -> None:
    billing.leave.set()
    with router(*flags) as daemon, Client(daemon.url) as client:
        client.call(None, Address(CHANGE, "", OPERATORS), LEASE, SECONDS)
        client.put(None, "billing", MESSAGE)
        os.kill(queue(daemon)["pid"], signal.SIGKILL)
        # Whoever puts meanwhile waits.
        client.put(None, "billing", MESSAGE)
        daemon.wait_for("queue server ended", exit_code=-signal.SIGKILL)
        with Worker("billing", billing, router=daemon.url):
            eventually(lambda: len(billing.done) == 2)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0


@pytest.mark.parametrize("peers", [0, 1])
def test_a_router_that_is_killed_goes_on_with_its_queue_server_and_no_item_is_in_doubt(
    flags: tuple[str, ...], billing: Billing, peers: int
) -> None:
    patient = ("--recovery-seconds", "2.5")
    with ExitStack() as stack:
        others = [stack.enter_context(router(*patient, "--name", f"other-{number}")) for number in range(peers)]
        own = (*flags, *patient, *(part for other in others for part in ("--peer", other.url)))
        first = stack.enter_context(router(*own))
        eventually(lambda: sum(each["state"] == "answering" for each in page(first, "/mesh")["routers"]) == peers)
        client = stack.enter_context(Client(first.url))
        worker = Worker("billing", billing, router=first.url)
        worker.start()
        client.put(None, "billing", MESSAGE)
        eventually(lambda: billing.begun)
        eventually(lambda: is_serving(first))
        pid = queue(first)["pid"]
        kill(first)
        second = stack.enter_context(router(*own))
        second.wait_for("queue server adopted", pid=pid)
        eventually(lambda: is_serving(second) and queue(second)["adopted"])
        client.put(None, "billing", {"method": "charge", "args": {"invoice": 18}})
        billing.leave.set()
        eventually(lambda: counts(second).get("counters", {}).get("done") == 2)
        assert billing.done == billing.begun and sorted(billing.done) == [17, 18]
        assert queue(second)["pid"] == pid and counts(second)["counters"]["given"] == 2
        worker.stop()
        second.signal(signal.SIGTERM)
        assert second.exit_code() == 0 and gone(pid)


def test_the_queue_server_of_a_router_that_does_not_come_back_ends(flags: tuple[str, ...]) -> None:
    with router(*flags, "--queue-orphan-seconds", "0.5") as daemon:
        eventually(lambda: is_serving(daemon))
        pid = queue(daemon)["pid"]
        daemon.signal(signal.SIGKILL)
        eventually(lambda: gone(pid))


def test_a_drain_lets_what_runs_finish_and_leaves_the_rest_in_order(flags: tuple[str, ...], billing: Billing) -> None:
    with router(*flags) as first, Client(first.url) as client:
        worker = Worker("billing", billing, router=first.url, concurrency=1)
        worker.start()
        for number in range(20):
            client.put(None, "billing", {"method": "charge", "args": {"invoice": number}})
        eventually(lambda: billing.begun == [0])
        first.signal(signal.SIGTERM)
        first.wait_for("draining")
        # Until it would tell other queue servers of something, which a router that drains does not take.
        gevent.sleep(1.2)
        assert first.process.poll() is None
        billing.leave.set()
        assert first.exit_code() == 0 and troubles(first) == []
        assert billing.done[:1] == [0]
        assert not [each for each in first.records if each["event"] == "queue server killed"]
        with router(*flags) as second:
            eventually(lambda: is_serving(second))
            eventually(lambda: len(billing.done) == 20)
            # Each once, and no one after a lease only: nothing was in doubt.
            assert sorted(billing.done) == list(range(20)) and billing.begun == billing.done
            worker.stop()
            second.signal(signal.SIGTERM)
            assert second.exit_code() == 0


@pytest.mark.parametrize("is_asked_for", [True, False])
def test_a_drain_after_an_adoption_is_as_any_other(
    flags: tuple[str, ...], billing: Billing, is_asked_for: bool
) -> None:
    patient = (*flags, "--drain-seconds", "600", "--recovery-seconds", "0.5")
    with router(*patient) as first, Client(first.url) as client:
        client.call(None, Address(CHANGE, "", OPERATORS), LEASE, SECONDS)
        worker = Worker("billing", billing, router=first.url, concurrency=1)
        worker.start()
        for number in range(5):
            client.put(None, "billing", {"method": "charge", "args": {"invoice": number}})
        eventually(lambda: billing.begun == [0])
        pid = queue(first)["pid"]
        kill(first)
        with router(*patient) as second:
            second.wait_for("queue server adopted", pid=pid)
            if is_asked_for:
                eventually(lambda: counts(second).get("counters", {}).get("in doubt") == 4)
                eventually(lambda: counts(second)["counters"]["given"] == 9)
            second.signal(signal.SIGTERM)
            second.wait_for("draining")
            billing.leave.set()
            assert second.exit_code() == 0 and gone(pid)
        with router(*patient) as third:
            eventually(lambda: is_serving(third) and counts(third))
            assert "was killed" not in counts(third)["why"], "it has ended in order"
            eventually(lambda: sorted(set(billing.done)) == list(range(5)))
            # What runs is in doubt where it was not known yet who has it.
            assert len(billing.begun) == 5 or not is_asked_for
            worker.stop()
            third.signal(signal.SIGTERM)
            assert third.exit_code() == 0


def test_an_item_that_outlasts_the_drain_is_not_waited_for(flags: tuple[str, ...], billing: Billing) -> None:
    with router(*flags, "--drain-seconds", "0.3") as daemon, Client(daemon.url) as client:
        worker = Worker("billing", billing, router=daemon.url)
        worker.start()
        client.put(None, "billing", MESSAGE)
        eventually(lambda: billing.begun)
        eventually(lambda: queue(daemon)["pid"])
        pid = queue(daemon)["pid"]
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0 and gone(pid)
        assert not [each for each in daemon.records if each["event"] == "queue server killed"]
        billing.leave.set()
        worker.stop()


# --- a database ----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_directory", [True, False])
def test_a_database_keeps_the_items_and_a_directory_the_queue_server(
    database: str, flags: tuple[str, ...], billing: Billing, has_directory: bool
) -> None:
    url = database.replace("rpcmq@", "rpcmq:a%20password@")
    own = (*(flags if has_directory else flags[2:]), "--queue-store", url)
    billing.leave.set()
    with router(*own) as first, Client(first.url) as client:
        eventually(lambda: is_serving(first))
        client.call(None, Address(CHANGE, "", OPERATORS), LEASE, SECONDS)
        assert "password" not in str(queue(first)) and "rpcmq:***@" in str(queue(first)["store"])
        pid = queue(first)["pid"]
        assert b"password" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        client.put(None, "billing", MESSAGE)
        kill(first)
        if not has_directory:
            eventually(lambda: gone(pid))
        with router(*own) as second, Worker("billing", billing, router=second.url):
            client.put(None, "billing", MESSAGE)
            eventually(lambda: len(billing.done) == 2)
            eventually(lambda: is_serving(second))
            assert (queue(second)["pid"] == pid) == has_directory == queue(second)["adopted"]
            pid = queue(second)["pid"]
            second.signal(signal.SIGTERM)
            assert second.exit_code() == 0 and gone(pid)
        assert "password" not in str([*first.records, *second.records])


# --- what cannot be used -------------------------------------------------------------------------


def test_calls_go_on_where_the_store_cannot_be_used(flags: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue" / "queue.db").write_bytes(b"no database, but a text that is long enough for a header" * 40)
    with router(*flags) as daemon:
        failed = daemon.wait_for("queue server failed")
        command = f"`rpcmq queue salvage {tmp_path / 'queue'} --to NEW`"
        what_to_do = f"restore it from a copy, or move it away, or save the rest of it: {command}"
        assert f"queue.db: it is no SQLite database: {what_to_do}; started again in 60 s" in failed["message"]
        assert queue(daemon)["state"] == "unavailable" and "no SQLite database" in queue(daemon)["why"]
        assert page(daemon, "/healthz") == {"status": "ok"}
        assert "rpcmq_queue_server_up 0" in page(daemon, "/metrics")
        billing = Billing()
        billing.leave.set()
        with Service("compute", billing, router=daemon.url), Client(daemon.url) as client:
            assert client.call(None, "compute", MESSAGE) is None
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0


def test_a_store_whose_notes_are_damaged_is_named(flags: tuple[str, ...], tmp_path: Path) -> None:
    with router(*flags) as daemon, Client(daemon.url) as client:
        client.call(None, Address(CHANGE, "", OPERATORS), LEASE, SECONDS)
        client.put(None, "billing", MESSAGE)
        daemon.signal(signal.SIGTERM)
        assert daemon.exit_code() == 0
    with altered(tmp_path / "queue" / "queue.db") as connection:
        connection.execute("UPDATE notes SET value = ? WHERE name LIKE 'policy%'", (b"\xff{",))
        assert connection.changes() == 1
    with router(*flags) as daemon:
        assert "what it says of its queues is damaged" in daemon.wait_for("queue server failed")["message"]
        assert queue(daemon)["state"] == "unavailable" and "restore it from a copy" in queue(daemon)["why"]


def test_two_routers_cannot_have_one_directory(flags: tuple[str, ...]) -> None:
    with router(*flags) as first:
        eventually(lambda: is_serving(first))
        other = (*flags[:4], "--listen", f"tcp://127.0.0.1:{free_port()}")
        with router(*other) as second:
            refused = second.wait_for("queue unavailable")
            assert f"is in use by another router (pid {first.process.pid})" in refused["message"]
            assert queue(second)["state"] == "unavailable"
            first.signal(signal.SIGTERM)
            assert first.exit_code() == 0
            eventually(lambda: is_serving(second))


def test_a_router_with_the_name_of_another_one_says_so(flags: tuple[str, ...]) -> None:
    with router("--name", "twin") as other, router(*flags, "--name", "twin", "--peer", other.url) as daemon:
        assert "router.name" in daemon.wait_for("queue name taken", name="twin")["message"]


# --- keys ----------------------------------------------------------------------------------------


def test_with_keys_the_queue_server_has_its_own_and_others_their_rights(
    flags: tuple[str, ...], tmp_path: Path, billing: Billing
) -> None:
    billing.leave.set()
    folder = Folder(tmp_path)
    # As docs/security.md says.
    web = folder.add("web", right("call", "billing.#", "rpcmq.queues", exchanges=("rpcmq.queue",)))
    biller = folder.add("biller", right("serve", "billing.#", exchanges=("rpcmq.work",)))
    nobody = folder.add("nobody", right("call", "billing.#"))
    keys = ("--keys", str(folder))
    with (
        router(*flags, *keys) as first,
        Client(first.url, key_file=web) as client,
        Client(first.url, key_file=nobody) as other,
        Worker("billing", billing, router=first.url, key_file=biller),
    ):
        client.put(None, "billing", MESSAGE)
        with pytest.raises(AccessDenied):
            other.put(None, "billing", MESSAGE)
        eventually(lambda: len(billing.done) == 1)
        # The keys are read again, and again after a restart: that of the queue server stays.
        folder.add("late")
        first.wait_for("keys")
        first.signal(signal.SIGHUP)
        first.wait_for("reload")
        client.put(None, "billing", MESSAGE)
        eventually(lambda: len(billing.done) == 2)
        pid = queue(first)["pid"]
        assert (tmp_path / "keys" / "router.key").exists()
        kill(first)
        with router(*flags, *keys) as second:
            second.wait_for("queue server adopted", pid=pid)
            client.put(None, "billing", MESSAGE)
            eventually(lambda: len(billing.done) == 3)
            second.signal(signal.SIGTERM)
            assert second.exit_code() == 0 and gone(pid)


def test_in_a_mesh_the_items_of_a_router_that_was_killed_are_worked_at_by_way_of_another(
    flags: tuple[str, ...], billing: Billing
) -> None:
    billing.leave.set()
    with router("--name", "other") as other, router(*flags, "--peer", other.url) as daemon:
        eventually(lambda: any(each["state"] == "answering" for each in page(daemon, "/mesh")["routers"]))
        with Client(daemon.url) as client:
            client.put(None, "billing", MESSAGE)
        pid = queue(daemon)["pid"]
        kill(daemon)
        with Worker("billing", billing, router=other.url):
            eventually(lambda: billing.done == [17])
        assert not gone(pid)
        shown = run("queue", "ls", "--router", other.url).stdout
        assert f"(pid {pid} on " in shown and "goes on by way of router other" in " ".join(shown.split())
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: gone(pid))
