"""Room that a router makes for requests of others, which are gone, stopped or cut off."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Kind


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def crowded(net: MeshNetwork) -> tuple[Process, Process]:
    """A consumer at router a that is busy, with requests of b that wait for it; and a caller at a."""
    node, api = net.process("node", router="a"), net.process("api", router="a")
    node.register("jobs", credit=2)
    net.advance(1.0)
    for _ in range(2):
        api.request("jobs", ttl=300)
    other = net.process("other", router="b")
    for _ in range(40):
        other.request("jobs", ttl=300)
    for _ in range(4):  # b asks for more with each that it has sent
        node.reply(node.take(Kind.REQUEST))
        net.advance(0.1)
    return node, api


@pytest.mark.parametrize(
    "fault",
    [
        lambda net: net.hosts["b"].kill(),
        lambda net: net.hosts["b"].restart(),
        lambda net: net.hosts["b"].pause(),
        lambda net: net.partition(["b"], ["a", "c"]),
    ],
    ids=["killed", "restarted", "stopped", "cut off"],
)
def test_a_consumer_is_not_kept_for_a_router_that_is_gone(
    net: MeshNetwork, fault: Callable[[MeshNetwork], None]
) -> None:
    node, api = crowded(net)
    fault(net)
    for _ in range(2):
        node.reply(node.take(Kind.REQUEST))
    net.advance(0.5)
    for _ in range(20):
        net.advance(1.0)
        for message in [each for each in node.inbox if each.kind is Kind.REQUEST]:
            node.inbox.remove(message)
            node.reply(message)
    calls = [api.request("jobs", ttl=60) for _ in range(2)]
    for call in calls:
        node.reply(node.take(Kind.REQUEST), b"done")
        assert call.end.payload == b"done"


def test_a_router_that_does_not_answer_is_passed_over_and_has_its_turn_when_it_answers_again(net: MeshNetwork) -> None:
    node, api = crowded(net)
    net.hosts["b"].pause()
    net.advance(2.0)
    mine = [api.request("jobs", ttl=60) for _ in range(3)]
    for _ in range(2):
        node.reply(node.take(Kind.REQUEST))
    for call in mine:
        node.reply(node.take(Kind.REQUEST))
        assert call.end.kind is Kind.REPLY
    assert not any(each.kind is Kind.REQUEST for each in node.inbox)
    net.hosts["b"].resume()
    net.advance(0.5)
    assert sum(each.kind is Kind.REQUEST for each in node.inbox) == 2
