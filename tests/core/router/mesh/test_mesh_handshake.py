"""Links between routers: joining, crossing dials, lost connections, silence, restarts, and routers that do not fit."""

from __future__ import annotations

import pytest

from rpcmq.core.router.link_states import LinkState
from rpcmq.testing.mesh_network import MeshNetwork
from tests.core.router.mesh.joining import link, lose_power, neighbour, neighbours, told


@pytest.fixture
def net(empty: MeshNetwork) -> MeshNetwork:
    """No routers yet."""
    return empty


def test_a_router_that_dials_another_one_is_linked_at_once(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}
    assert told(net, "a", "router linked") == ["linked to router b (inproc://b)"]


def test_an_idle_link_stays_and_has_a_round_trip_time(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.delay("a", "b", 0.02)
    net.advance(60.0)
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    (peering,) = net.router_of("a").mesh.handshake.peerings
    assert peering.round_trip == pytest.approx(0.04)
    assert told(net, "a", "link unresponsive") == []


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.3])
@pytest.mark.parametrize("b_first", [False, True])
def test_when_both_dial_one_link_stays_and_nobody_sees_another(net: MeshNetwork, seconds: float, b_first: bool) -> None:
    net.delay("a", "b", seconds)
    first, second = ("b", "a") if b_first else ("a", "b")
    net.add_router(first, peers=(), router_id=ord(first), mesh_peers=(f"inproc://{second}",))
    net.add_router(second, peers=(), router_id=ord(second), mesh_peers=(f"inproc://{first}",))
    net.advance(20.0)
    for name, other in (("a", "b"), ("b", "a")):
        assert neighbours(net, name) == {other: LinkState.ANSWERING}
        assert len(told(net, name, "router linked")) == 1
        assert told(net, name, "link ended") == []
    ends = [end for end in net.hosts["a"].connections.ends.values() if end is not None]
    assert len(ends) == 1


def test_a_lost_connection_is_made_again_and_the_session_goes_on(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.advance(5.0)
    before = link(net, "a", "b"), link(net, "b", "a")
    net.reset("a", "b")
    net.advance(0.1)
    assert (link(net, "a", "b"), link(net, "b", "a")) == before
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}
    assert before[0].counters["connects"] == before[1].counters["connects"] == 2


def test_a_router_that_does_not_come_back_is_given_up(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.hosts["b"].kill()
    net.run()
    assert neighbours(net, "a") == {"b": LinkState.AWAY}
    net.advance(5.5)
    assert neighbours(net, "a") == {"b": LinkState.AWAY}
    net.advance(1.0)
    assert neighbours(net, "a") == {}


def test_a_silent_router_gets_no_work_and_is_given_up_later(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.advance(5.0)
    net.hosts["b"].pause()
    net.advance(1.2)
    assert neighbour(net, "a", "b").is_usable
    net.advance(1.1)
    assert neighbours(net, "a") == {"b": LinkState.UNRESPONSIVE}
    net.advance(5.0)
    assert neighbours(net, "a") == {}
    net.hosts["b"].resume()
    net.advance(3.0)
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}


def test_a_short_cut_of_the_path_ends_nothing(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    before = link(net, "a", "b"), link(net, "b", "a")
    net.cut("a", "b")
    net.advance(4.0)
    assert neighbours(net, "a") == {"b": LinkState.UNRESPONSIVE}
    net.heal()
    net.advance(0.6)
    assert (link(net, "a", "b"), link(net, "b", "a")) == before
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}


def test_a_path_that_was_cut_for_long_is_linked_anew(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.cut("a", "b")
    net.advance(60.0)
    assert neighbours(net, "a") == neighbours(net, "b") == {}
    net.heal()
    net.advance(2.5)
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}


@pytest.mark.parametrize("clock_step", [60.0, -3600.0])
def test_a_restarted_router_is_linked_at_once_also_with_its_clock_stepped_back(
    net: MeshNetwork, clock_step: float
) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.hosts["b"].restart(clock_step)
    net.advance(0.5)
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}
    assert neighbour(net, "a", "b").identity.incarnation == net.router_of("b").mesh.own.incarnation


def test_a_restart_is_noticed_though_the_old_connection_is_not_known_to_be_dead(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    old = link(net, "a", "b")
    lose_power(net, "b")
    net.hosts["b"].start()
    net.advance(3.0)
    assert old.state is LinkState.ENDED
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert told(net, "a", "link ended") == ["b (mesh): it did not answer, and another connection has come"]
