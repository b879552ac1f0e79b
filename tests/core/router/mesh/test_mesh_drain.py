"""A router of a mesh that has shut down leaves running calls to the others."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Flag, Kind


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def finish_drain(net: MeshNetwork, name: str) -> None:
    router = net.router_of(name)
    router.begin_drain(net.now)
    net.advance(0.1)
    router.finish_drain(net.now)
    net.run()


@pytest.mark.parametrize("caller", ["a", "b"])
def test_of_a_call_that_others_ask_for_nobody_is_told(net: MeshNetwork, caller: str) -> None:
    api, node = net.process("api", router=caller), net.process("node", router="a")
    node.register("compute")
    net.advance(1.0)
    call = api.request("compute", "m", ttl=30)
    node.take(Kind.REQUEST)
    finish_drain(net, "a")
    assert call.ends == []


@pytest.mark.parametrize(
    ("flags", "outcome"), [(Flag.STREAM, Outcome.LINK_LOST), (Flag.IDEMPOTENT, Outcome.DRAINING)], ids=str
)
def test_of_others_the_caller_is_told(net: MeshNetwork, flags: int, outcome: Outcome) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="a")
    node.register("compute")
    net.advance(1.0)
    call = api.request("compute", "m", ttl=30, flags=flags)
    node.take(Kind.REQUEST)
    finish_drain(net, "a")
    assert call.end.outcome == outcome


def test_a_caller_that_follows_no_mesh_is_told(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a", follows_mesh=False), net.process("node", router="a")
    node.register("compute")
    net.advance(1.0)
    call = api.request("compute", "m", ttl=30)
    node.take(Kind.REQUEST)
    finish_drain(net, "a")
    assert call.end.outcome == Outcome.LINK_LOST


@pytest.mark.parametrize("caller", ["a", "b"])
def test_a_consumer_that_leaves_a_router_that_drains_is_not_lost(net: MeshNetwork, caller: str) -> None:
    api, node = net.process("api", router=caller), net.process("node", router="a")
    node.register("compute")
    net.advance(1.0)
    call = api.request("compute", "m", ttl=30)
    request = node.take(Kind.REQUEST)
    net.router_of("a").begin_drain(net.now)
    node.move("c")
    node.register("compute")
    net.advance(2.0)
    assert call.ends == [], "its owner asks for it"
    (where,) = [message for message in node.inbox if message.kind == Kind.WHERE]
    assert where.payload[:20] == request.key


def test_a_router_that_drains_is_offered_a_request_once_and_it_goes_elsewhere_when_it_has_gone(
    net: MeshNetwork,
) -> None:
    api, node = net.process("api", router="b"), net.process("node", router="a")
    node.register("compute")
    net.advance(1.0)
    net.router_of("a").begin_drain(net.now)
    call = api.request("compute", "m", ttl=30)  # it would go to and fro for as long as the drain lasts
    assert call.ends == [] and not any(message.kind == Kind.REQUEST for message in node.inbox)
    node.move("c")
    node.register("compute")
    net.advance(1.0)
    assert node.take(Kind.REQUEST).key == call.key
