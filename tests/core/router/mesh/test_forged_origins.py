"""A neighbour that brings messages in the name of processes that are linked here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Address, Flag, Kind, origin_of, pack
from tests.core.router.mesh.links import link_routers, neighbour_of


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Routers a and b; the consumer ``node`` at a."""
    made = MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0))
    link_routers(made, "a", "b")
    made.process("node", router="a").register("compute", credit=10)
    made.advance(1.0)
    yield made
    for host in made.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []


def bring(net: MeshNetwork, origin: bytes, kind: Kind = Kind.REQUEST, flags: int = 0) -> None:
    """Let router b bring a message of ``origin`` to router a."""
    key = origin + (99).to_bytes(8)
    block = Address("compute").encode()
    neighbour_of(net, "b", "a").send(
        pack(kind, b"{}", key=key, address=block, method=b"m", ttl=5000, flags=flags, format=1)
    )
    net.run()


def forged(net: MeshNetwork) -> int:
    return neighbour_of(net, "a", "b").counters["forged origin"]


def got(net: MeshNetwork) -> int:
    return len(net.router_of("a").links.by_identity("node", "roundrobin").consumers[0].in_flight)  # type: ignore[union-attr]


def origin(net: MeshNetwork, process: Process) -> bytes:
    return net.link(process).origin


@pytest.mark.parametrize(("kind", "flags"), [(Kind.REQUEST, 0), (Kind.CAST, 0), (Kind.CAST, Flag.FANOUT)])
def test_in_the_name_of_a_process_here_nothing_is_delivered(net: MeshNetwork, kind: Kind, flags: int) -> None:
    victim = net.process("victim", router="a")
    bring(net, origin(net, victim), kind, flags)
    assert (forged(net), got(net)) == (1, 0)


def test_in_the_name_of_any_process_elsewhere_it_is(net: MeshNetwork) -> None:
    bring(net, origin_of(7, 1))
    assert (forged(net), got(net)) == (0, 1)


def test_a_process_that_was_here_may_be_elsewhere(net: MeshNetwork) -> None:
    victim = net.process("victim", router="a")
    its_origin = origin(net, victim)
    victim.lose()
    net.advance(1.0)
    bring(net, its_origin)
    assert (forged(net), got(net)) == (0, 1)


def test_a_process_that_seems_to_be_here_and_is_silent_may_be_elsewhere(net: MeshNetwork) -> None:
    victim = net.process("victim", router="a")
    link = net.link(victim)
    assert link.is_responsive and link.follows_mesh
    link.heard -= 4.0
    bring(net, link.origin)
    assert (forged(net), got(net)) == (0, 1)
    older = net.process("older", router="a", follows_mesh=False)
    net.link(older).heard -= 4.0
    bring(net, origin(net, older))
    assert (forged(net), got(net)) == (1, 1)


def test_a_process_that_has_come_from_elsewhere_may_have_left_messages_there(net: MeshNetwork) -> None:
    """The former router was stopped, say: what it brings when it goes on may not go to and fro without end."""
    traveller = net.process("traveller", router="b")
    its_origin = origin(net, traveller)
    traveller.move("a")
    bring(net, its_origin, Kind.CAST)
    assert net.link(traveller).origin == its_origin
    assert (forged(net), got(net)) == (0, 1)


def test_what_a_process_that_has_just_gone_sends_elsewhere_waits_for_a_moment_and_is_taken(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    net.advance(0.5)
    api.move("b", is_noticed=False)
    call = api.request("compute", "m", ttl=30)
    assert call.ends == [] and got(net) == 0
    assert forged(net) == 1, "it is not sent to and fro meanwhile"
    net.advance(4.0)
    assert got(net) == 1
    assert forged(net) < 40
