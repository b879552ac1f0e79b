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
        assert "a" in operators.owners()
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
