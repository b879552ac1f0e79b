"""Consumers that take nothing more, and still run what they have, when their router dies."""

from __future__ import annotations

import pytest

from rpcmq.core.router.mesh.interest import Interest
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Address, Kind


def known_at(net: MeshNetwork, router: str) -> list[str]:
    """The identities of the consumers elsewhere of "compute" that ``router`` knows of."""
    interest = next(part for part in net.router_of(router).mesh.parts if isinstance(part, Interest))
    return [name.identity for _, name in interest.names(Address("compute"))]


@pytest.mark.parametrize("server", ["", "node-7"])
def test_a_cast_that_a_leaving_consumer_runs_is_not_started_again(server: str) -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    api, node = net.process("api", router="a"), net.process("node", router="c")
    tag = node.register("compute", server=server)
    net.advance(1.0)
    api.cast("compute", "run")
    cast = node.take(Kind.CAST)
    node.unregister(tag)
    net.advance(1.0)
    assert known_at(net, "a") == ["node"]
    net.hosts["c"].kill(is_delivered=True)
    other = net.process("other", router="b")
    other.register("compute")
    node.move("b")
    net.advance(30.0)
    assert other.got(Kind.CAST) == [] and cast.method == "run"


def test_one_that_is_done_is_not_asked_any_more() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    api, node = net.process("api", router="a"), net.process("node", router="c")
    tag = node.register("compute")
    net.advance(1.0)
    call = api.request("compute", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    node.unregister(tag)
    net.advance(1.0)
    node.reply(request, b"done")
    net.advance(1.0)
    assert call.end.payload == b"done" and known_at(net, "a") == []
