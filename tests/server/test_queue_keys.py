"""Work queues in a mesh with keys: who may do what, and who may go on for whom when a router is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rpcmq import Worker
from rpcmq.client.queue.operators import Operators
from rpcmq.client.queue.protocol import all_queues
from rpcmq.errors import RpcError
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

    def charge(self, ctx: Any, invoice: int) -> None:
        self.done.append(invoice)


def message(invoice: int) -> dict[str, Any]:
    return {"method": "charge", "args": {"invoice": invoice}}


def by(operators: Operators, owner: str) -> tuple[str, bool, int]:
    """Who serves the queues of ``owner``; nobody at present: an empty name."""
    try:
        found = operators.look(owner, "queues")["by"]
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
    operators = Operators(mesh.client("operator", *OPERATES, at="b"), 5.0)
    pid = mesh.server("a")
    mesh.client("web", PUTS).put(None, "billing", message(1))
    mesh.kill("a")
    worker = Worker("billing", billing, client=mesh.client("biller", WORKS, at="b"))
    with worker:
        eventually(lambda: billing.done == [1])
        assert "a" in operators.owners() and by(operators, "a") == ("b", False, pid)
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
    operators = Operators(mesh.client("operator", *OPERATES, at="b"), 5.0)
    web = mesh.client("web", PUTS)
    mesh.server("b")
    receipt = web.put(None, "billing", message(1))
    assert receipt.owner == "a"
    mesh.kill_machine("a")
    mesh.routers["b"].wait_for("queue taken over", owner="a")
    with Worker("billing", billing, client=mesh.client("biller", WORKS, at="b")):
        eventually(lambda: billing.done == [1])
        # Its items are shown under its name, with who works at them; whoever has a receipt gets an answer.
        shown = operators.look("a", "queues")
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
        eventually(lambda: by(operators, "a")[:2] == ("a", False))
        assert mesh.client("web", PUTS).put(None, "billing", message(2)).owner == "a"
        eventually(lambda: billing.done == [1, 2])
