"""Room that was kept for a request, which is then not taken, is of use to what waits."""

from __future__ import annotations

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind


def test_a_request_that_its_consumer_does_not_accept_makes_way_for_those_that_wait() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    node = net.process("node", router="b", accepts=("json",))
    node.register("jobs", tag=0)
    net.advance(1.0)
    near, far = net.process("near", router="b"), net.process("far", router="a")
    near.request("jobs", "first", ttl=60)
    first = node.take(Kind.REQUEST)
    refused = far.request("jobs", "pickled", ttl=60, format=2)
    net.advance(0.1)
    near.request("jobs", "waits", ttl=60)
    assert not refused.ends, "it waits, and its router has a turn at the other one"
    node.reply(first)
    net.advance(0.1)
    assert refused.end.outcome == Outcome.PROTOCOL
    assert node.take(Kind.REQUEST).method == "waits"
    check_router(net.router_of("b"))
