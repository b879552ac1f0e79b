"""A stream ends with the router of its caller: nobody takes it over, and its handler must not wait for grants."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Flag, Kind
from tests.faults.mesh_rest import unrest


@pytest.mark.parametrize(("flags", "is_cancelled"), [(Flag.STREAM, True), (0, False)], ids=["stream", "call"])
def test_the_consumer_of_a_stream_is_told(flags: int, is_cancelled: bool) -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    node = net.process("node", router="b")
    node.register("jobs", tag=0)
    net.advance(1.0)
    net.process("api", router="a").request("jobs", "run", flags=flags, ttl=60)
    request = node.take(Kind.REQUEST)
    net.hosts["a"].kill()
    net.advance(8.0)
    cancels = [message for message in node.inbox if message.kind is Kind.CANCEL]
    assert bool(cancels) is is_cancelled
    node.end(request) if is_cancelled else node.reply(request)
    net.advance(1.0)
    assert not unrest(net.router_of("b"))
