"""Links that others carry go on over a direct connection, whichever of their two ends can make it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind
from tests.core.router.mesh.topologies import mesh_of, relayed_to

#: The connections that there are to be: "ba" has b connect to a, and a not to b.
TRIANGLE = ("ba", "ca", "cb")
RING = ("ba", "cb", "ca", "dc", "db", "ed", "ea")


def relayed(net: MeshNetwork, connections: Iterable[str]) -> list[str]:
    """Those of ``connections`` in whose place others carry the link."""
    return [each for each in connections if each[1] in relayed_to(net, each[0])]


@pytest.mark.parametrize("direct", [0.0, 0.15])
@pytest.mark.parametrize("around", [0.0, 0.15])
def test_the_router_that_was_dialled_over_others_goes_on_directly(direct: float, around: float) -> None:
    """Router b, which has the lower id, dials c over a; only c can connect to b."""
    net = mesh_of("abc", TRIANGLE)
    net.cut("b", "c")
    net.hosts["b"].kill()
    net.advance(7.0)
    net.hosts["b"].start()
    net.advance(5.0)
    assert relayed(net, TRIANGLE) == ["cb"]
    subscriber, publisher = (
        net.process("s", queue_type="pubsub", router="b"),
        net.process("p", queue_type="pubsub", router="c"),
    )
    subscriber.subscribe("news")
    net.advance(1.0)
    net.delay("b", "c", direct)
    net.delay("a", "b", around)
    net.heal()
    ended = len(notes(net))
    for number in range(150):
        publisher.publish("news", b"%d" % number)
        net.advance(0.1)
    net.advance(3.0)
    assert relayed(net, TRIANGLE) == []
    assert [each.payload for each in subscriber.got(Kind.PUBLISH)] == [b"%d" % number for number in range(150)]
    assert len(notes(net)) == ended, "the link has gone on"


def notes(net: MeshNetwork) -> list[str]:
    return [note.text for host in net.hosts.values() for note in host.notes if note.event == "link ended"]


def test_a_direct_connection_that_the_other_side_made_is_replaced_by_others_and_made_again() -> None:
    net = mesh_of("abc", TRIANGLE)
    net.cut("b", "c")
    net.hosts["b"].kill()
    net.advance(7.0)
    net.hosts["b"].start()
    net.advance(5.0)
    net.heal()
    net.advance(12.0)
    ended = len(notes(net))
    for _ in range(3):
        assert relayed(net, TRIANGLE) == []
        net.cut("b", "c")
        net.reset("b", "c")
        net.advance(4.0)
        assert relayed(net, TRIANGLE) == ["cb"]
        net.heal()
        net.advance(15.0)
    assert relayed(net, TRIANGLE) == [] and len(notes(net)) == ended


@pytest.mark.parametrize("seed", range(4))
def test_all_connections_of_a_ring_with_chords_are_made_again_after_restarts(seed: int) -> None:
    rng, net = Random(seed), mesh_of("abcde", RING)
    for pair in RING:
        net.delay(pair[0], pair[1], rng.choice((0.001, 0.02, 0.1)))
    for _ in range(4):
        host = net.hosts[rng.choice("abcde")]
        host.kill(is_delivered=rng.random() < 0.5)
        net.advance(rng.choice((0.05, 0.5, 1.7, 3.0, 6.5)))
        host.start()
        net.advance(rng.choice((0.5, 2.0, 5.0)))
    net.advance(12.0)
    assert relayed(net, RING) == []
