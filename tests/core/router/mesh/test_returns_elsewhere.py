"""A consumer gives a message back that another router's consumer then takes."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import MeshNetwork, Message, Process
from rpcmq.wire import Flag, Kind


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def consumer(net: MeshNetwork, name: str, router: str) -> Process:
    process = net.process(name, router=router)
    process.register("jobs", credit=5)
    net.advance(1.0)
    return process


def give_back(process: Process, message: Message) -> None:
    header = message.header
    process.send(Kind.GIVE_BACK, key=message.key, attempt=header.attempt, consumer=header.consumer)


def check(net: MeshNetwork) -> None:
    for host in net.hosts.values():
        check_router(host.router)
        assert not host.router.in_flight


@pytest.mark.parametrize(("giver", "taker"), [("a", "a"), ("a", "b"), ("b", "a"), ("b", "b"), ("b", "c")])
@pytest.mark.parametrize("flags", [0, Flag.IDEMPOTENT])
def test_a_cast_goes_to_the_other_consumer_wherever_that_is(
    net: MeshNetwork, giver: str, taker: str, flags: int
) -> None:
    api, node = net.process("api", router="a"), consumer(net, "node", giver)
    api.cast("jobs", payload=b"1", flags=flags)
    cast = node.take(Kind.CAST)
    other = consumer(net, "other", taker)
    give_back(node, cast)
    net.advance(0.1)
    again = other.take(Kind.CAST)
    assert again.key == cast.key and not node.got(Kind.CAST)
    other.settle(again)
    net.advance(0.1)
    check(net)
