"""Work queues in a mesh with keys: who may do what, and who may go on for whom when a router is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gevent
import pytest

from rpcmq import Service, Worker, current_item
from rpcmq.client.queue.protocol import (
    CHANGE,
    CLAIMS,
    LOOK,
    PERIODIC,
    SETTINGS,
    Record,
    all_queues,
    at_operators,
    at_owner,
    to_workers,
)
from rpcmq.client.queue.queue_servers import QueueServers
from rpcmq.client.queue.records import pack_records
from rpcmq.errors import AccessDenied, RpcError
from tests.keys import right
from tests.server.daemons import eventually
from tests.server.keyed_mesh import KeyedMesh, gone

pytestmark = [pytest.mark.integration, pytest.mark.fault, pytest.mark.long]

#: As docs/security.md says.
PUTS = right("call", "billing.#", "rpcmq.queues.#", exchanges=("rpcmq.queue",))
WORKS = right("serve", "billing.#", exchanges=("rpcmq.work",))
OPERATES = (right("call", "look.#", "change.#", exchanges=("rpcmq.queue.admin",)), right("admin", "addresses", "mesh"))


class Billing:
    """Notes what it has charged."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.ids: list[str] = []

    def charge(self, ctx: Any, invoice: int) -> None:
        item = current_item()
        assert item is not None
        self.done.append(invoice)
        self.ids.append(item.id)


def message(invoice: int) -> dict[str, Any]:
    return {"method": "charge", "args": {"invoice": invoice}}


def by(servers: QueueServers, owner: str) -> tuple[str, bool, int]:
    """Who serves the queues of ``owner``; nobody at present: an empty name."""
    try:
        found = servers.look(owner, "queues")["by"]
    except RpcError:
        return "", False, 0
    return found["router"], found["is_heir"], found["pid"]


@pytest.fixture
def mesh_of(tmp_path: Path) -> Iterator[Callable[..., KeyedMesh]]:
    with ExitStack() as stack:
        yield lambda *flags, **more: KeyedMesh(stack, tmp_path, *flags, **more)


def test_with_keys_too_the_queue_server_of_a_router_that_was_killed_goes_on_at_another(
    mesh_of: Callable[..., KeyedMesh],
) -> None:
    mesh, billing = mesh_of(), Billing()
    servers = QueueServers(mesh.client("operator", *OPERATES, at="b"), 5.0)
    pid = mesh.server("a")
    mesh.client("web", PUTS).put(None, "billing", message(1))
    mesh.kill("a")
    worker = Worker("billing", billing, client=mesh.client("biller", WORKS, at="b"))
    with worker:
        eventually(lambda: billing.done == [1])
        assert "a" in servers.owners() and by(servers, "a") == ("b", False, pid)
        # Its router's next life has the same key for it, and goes on with it.
        mesh.routers["a"] = mesh.start("a")
        mesh.routers["a"].wait_for("queue server adopted", pid=pid)
        eventually(lambda: mesh.is_linked("a") and mesh.is_linked("b"))
        assert mesh.server("a") == pid
        mesh.client("web", PUTS).put(None, "billing", message(2))
        eventually(lambda: billing.done == [1, 2])
    mesh.kill("a")
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: gone(pid))


def test_with_keys_too_an_heir_works_at_the_items_of_an_owner_that_is_gone_and_gives_them_back(
    mesh_of: Callable[..., KeyedMesh], database: str
) -> None:
    mesh, billing = mesh_of("--queue-store", database, "--queue-takeover-seconds", "1"), Billing()
    servers = QueueServers(mesh.client("operator", *OPERATES, at="b"), 5.0)
    web = mesh.client("web", PUTS)
    mesh.server("b")
    receipt = web.put(None, "billing", message(1))
    assert receipt.owner == "a"
    mesh.kill_machine("a")
    mesh.routers["b"].wait_for("queue taken over", owner="a")
    with Worker("billing", billing, client=mesh.client("biller", WORKS, at="b")):
        eventually(lambda: billing.done == [1])
        # Its items are shown under its name, with who works at them; whoever has a receipt gets an answer.
        shown = servers.look("a", "queues")
        assert (shown["owner"], shown["by"]["router"], shown["by"]["is_heir"]) == ("a", "b", True)
        # What is put without an owner in mind goes to one that is there; who means the one that is gone, gets its heir.
        asked = [(all_queues(), "", "b"), (all_queues("a"), "", "b"), (all_queues("a"), "a", "a")]
        for address, owner, answer in asked * 4:
            opening = {"method": "open", "args": {"queue": "new", "owner": owner}}
            assert web.call(None, address, opening, 10.0) == answer
        assert [row["queue"] for row in shown["queues"]] == ["billing"]
        eventually(lambda: web.receipt(str(receipt)).state().name == "ended")
        mesh.routers["a"] = mesh.start("a")
        mesh.routers["b"].wait_for("queue given back")
        eventually(lambda: by(servers, "a")[:2] == ("a", False))
        assert mesh.client("web", PUTS).put(None, "billing", message(2)).owner == "a"
        eventually(lambda: billing.done == [1, 2])


def test_with_keys_too_one_owner_puts_a_periodic_item_that_is_declared_at_two_routers(
    mesh_of: Callable[..., KeyedMesh],
) -> None:
    pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")
    mesh, billing = mesh_of(), Billing()
    for name in "ab":
        mesh.server(name)
    web = {name: mesh.client("web" + name, PUTS, at=name) for name in "ab"}

    def declare(name: str) -> str:
        declared = web[name].declare_periodic(None, "billing", "often", "* * * * * *", message(1), timeout=60)
        return str(declared["owner"])

    assert [declare(name) for name in "aba"] == ["a"] * 3
    toys = right("call", "toys.#", "rpcmq.queues.#", exchanges=("rpcmq.queue",))
    with pytest.raises(AccessDenied):
        mesh.client("hostile", toys).remove_periodic("billing", "often")
    with Worker("billing", billing, client=mesh.client("biller", WORKS, at="b")) as worker:
        eventually(lambda: len(billing.ids) >= 3)
        assert web["b"].remove_periodic("billing", "often", timeout=60)
        assert worker.stop()
    assert len(set(billing.ids)) == len(billing.ids) and all(id.startswith("often@") for id in billing.ids)


def test_who_may_put_into_one_queue_may_do_nothing_with_others_and_delays_them_by_little(
    mesh_of: Callable[..., KeyedMesh],
) -> None:
    mesh = mesh_of()
    toys = [right("call", "toys.#", "rpcmq.queues.#", exchanges=("rpcmq.queue",))]
    toys.append(right("serve", "toys.#", exchanges=("rpcmq.work",)))
    hostile, web = mesh.client("hostile", *toys), mesh.client("web", PUTS)
    put = {"method": "put", "args": {"producer": 1, "records": records(1)}}
    for address in (
        *(at_owner("billing", owner) for owner in ("", "a")), to_workers("billing"), to_workers("toys"),
        *(at_operators(topic, owner) for topic in (LOOK, CHANGE, SETTINGS, PERIODIC, CLAIMS) for owner in ("", "a")),
    ):  # fmt: skip
        with pytest.raises(AccessDenied, match="has no right to call"):
            hostile.call(None, address, put, 10.0)
    forged = [("billing", "rpcmq.work", ""), ("toys", "rpcmq.queue", "a"), ("rpcmq.queues", "rpcmq.queue", "a")]
    forged += [(topic, "rpcmq.queue.admin", "a") for topic in (LOOK, CHANGE, SETTINGS, CLAIMS)]
    for topic, exchange, owner in forged:
        with pytest.raises(AccessDenied, match="has no right to serve"):
            Service(topic, Billing(), host=owner or None, client=hostile, exchange=exchange).start(10.0)
    web.put(None, "billing", message(1))
    hostile.put(None, "toys", message(1))
    flood = [gevent.spawn(hostile.call, None, at_owner("toys", "a"), flooding(n), 60.0) for n in range(2, 12)]
    eventually(lambda: any(each.ready() for each in flood))
    assert web.put(None, "billing", message(2)).number == 2
    assert not all(each.ready() for each in flood)
    gevent.joinall(flood, raise_error=True)


def records(count: int) -> bytes:
    """So many items."""
    return pack_records([Record(b"", 1 + at, b"", 0, 0.0, 0.0, b"", "charge", 1, b"{}") for at in range(count)])


def flooding(producer: int) -> dict[str, Any]:
    """As many items as one put may have."""
    return {"method": "put", "args": {"producer": producer, "records": records(10_000)}}
