"""Three routers that tell one another which addresses they have consumers for, and processes that consume."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Kind, json_bytes
from rpcmq.wire.interest import InterestBody
from tests.core.router.mesh.known_addresses import assert_known
from tests.core.router.mesh.links import link_all

QUIET = 1.0


def three_routers() -> Iterator[MeshNetwork]:
    """Yield routers each of which is linked to each; in the end all must know the same."""
    net = link_all(MeshNetwork())
    yield net
    net.advance(QUIET)
    assert_known(net)


def consumer(net: MeshNetwork, router: str, topic: str, name: str = "node", **registration: object) -> Process:
    process = net.process(name, router=router)
    process.register(topic, **registration)  # type: ignore[arg-type]
    return process


def declare(process: Process, topic: str, server: str = "", group: str = "") -> None:
    body = json_bytes({"group": group})
    process.send(Kind.DECLARE, body, format=1, address=Address(topic, server).encode())


def note_bodies(monkeypatch: pytest.MonkeyPatch) -> list[InterestBody]:
    """Have a list of all that routers read from now on."""
    bodies: list[InterestBody] = []
    read = InterestBody.of

    def of(message: bytes) -> InterestBody:
        bodies.append(read(message))
        assert len(message) < 32_000
        return bodies[-1]

    monkeypatch.setattr(InterestBody, "of", of)
    return bodies


def rows_of(told: list[InterestBody]) -> list[bytes]:
    return [key for body in told for key, _ in body.rows]


def begin_to_link(net: MeshNetwork) -> None:
    """Add a router, and link it to b: it is not told everything yet."""
    net.add_router("d", peers=("b",))
    while not len(net.router_of("d").mesh.neighbours):
        net.advance(0.001)
