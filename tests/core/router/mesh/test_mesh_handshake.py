"""Links between routers: joining, crossing dials, lost connections, silence, restarts, and routers that do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Link
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind, pack, sequence_of
from rpcmq.wire.query_bodies import KickQuery
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


@pytest.mark.parametrize("lower", ["a", "b"])
def test_when_both_dial_over_a_slow_path_the_connection_of_the_lower_id_stays(net: MeshNetwork, lower: str) -> None:
    net.delay("a", "b", 1.2)
    ids = {"a": 1 if lower == "a" else 3, "b": 2}
    for name, other in (("a", "b"), ("b", "a")):
        url, patience = f"inproc://{other}", {"mesh_silence_seconds": 10.0, "mesh_lost_seconds": 30.0}
        net.add_router(name, peers=(), router_id=ids[name], mesh_peers=(url,), **patience)
    net.advance(30.0)
    for name, other in (("a", "b"), ("b", "a")):
        assert neighbours(net, name) == {other: LinkState.ANSWERING}
        (peering,) = net.router_of(name).mesh.handshake.peerings
        assert (peering.target is not None) == (name == lower)


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


# --- sessions --------------------------------------------------------------------------------

NUMBERED = 0x7F


def hear(net: MeshNetwork, name: str, got: list[int]) -> None:
    """Note the numbered messages that come to a router from its neighbours."""

    def note(now: float, link: Link, message: bytes) -> None:
        got.append(sequence_of(message))

    net.router_of(name).mesh.handlers[NUMBERED] = note
    for each in net.router_of(name).mesh.neighbours:
        each.link.handlers[NUMBERED] = note


steps = st.lists(
    st.tuples(
        st.sampled_from(("reset", "cut", "one way", "heal", "slow", "fast", "send")), st.sampled_from((0.0, 0.05, 0.6))
    ),
    max_size=25,
)


@given(steps=steps)
@settings(max_examples=30, deadline=None)
def test_a_session_between_routers_loses_and_doubles_nothing(steps: list[tuple[str, float]]) -> None:
    net = MeshNetwork(names=())
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.advance(0.5)
    links = {"a": link(net, "a", "b"), "b": link(net, "b", "a")}
    got: dict[str, list[int]] = {"a": [], "b": []}
    for name in "ab":
        hear(net, name, got[name])
    sent = 0
    for what, seconds in steps:
        sent += 1
        for each in links.values():
            each.send(pack(NUMBERED, sequence=sent))
        if what == "reset":
            net.reset("a", "b")
        elif what in ("cut", "one way"):
            net.cut("a", "b", is_one_way=what == "one way")
        elif what == "heal":
            net.heal()
        elif what in ("slow", "fast"):
            net.delay("a", "b", 0.2 if what == "slow" else 0.0)
        net.advance(seconds)
        if what in ("cut", "one way"):
            # Not so long that it is given up.
            net.heal()
            net.run()
    net.heal()
    net.advance(5.0)
    assert got["a"] == got["b"] == list(range(1, sent + 1))
    assert links == {"a": link(net, "a", "b"), "b": link(net, "b", "a")}


def test_what_was_said_while_a_router_was_away_is_said_when_it_is_back(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    got: list[int] = []
    hear(net, "a", got)
    net.reset("a", "b")
    net.cut("a", "b")
    for number in (1, 2, 3):
        link(net, "b", "a").send(pack(NUMBERED, sequence=number))
    net.advance(4.0)
    assert got == []
    net.heal()
    net.advance(2.0)
    assert got == [1, 2, 3]


# --- this router itself ----------------------------------------------------------------------


def test_a_router_that_was_stopped_for_long_does_not_give_up_the_others_before_it_has_read(net: MeshNetwork) -> None:
    net.add_router("a", peers=(), mesh_lost_seconds=30.0)
    net.add_router("b", peers=["a"])
    net.advance(1.0)
    before = link(net, "b", "a")
    net.hosts["b"].pause()
    net.advance(20.0)
    assert neighbours(net, "a") == {"b": LinkState.UNRESPONSIVE}
    net.hosts["b"].resume()
    net.advance(1.0)
    assert link(net, "b", "a") is before and before.state is LinkState.ANSWERING


def test_one_that_was_stopped_reads_before_it_gives_up_others(net: MeshNetwork) -> None:
    net.add_router("a", peers=(), mesh_lost_seconds=30.0)
    net.add_router("b", peers=["a"])
    net.advance(1.0)
    before = link(net, "b", "a")
    net.hosts["b"].pause()
    net.advance(20.0)
    # Its timers come first, as they may in a shell.
    net.hosts["b"].is_paused = False
    net.router_of("b").tick(net.now)
    assert neighbours(net, "b") == {"a": LinkState.UNRESPONSIVE}
    net.advance(1.0)
    assert link(net, "b", "a") is before
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}


def test_routers_have_another_pace_than_processes(net: MeshNetwork) -> None:
    for name, peers in (("a", ()), ("b", ("a",))):
        net.add_router(name, peers=peers, heartbeat_seconds=0.1, unresponsive_seconds=0.2)
    net.advance(5.0)
    assert told(net, "a", "link unresponsive") == told(net, "b", "link unresponsive") == []


def test_what_waited_for_its_turn_comes_once_after_a_resumption(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.advance(1.0)
    got: list[int] = []
    hear(net, "a", got)
    taken: list[bytes] = []
    net.router_of("b").links.on_taken = lambda now, link, messages: taken.extend(messages)
    at_a, at_b = link(net, "a", "b"), link(net, "b", "a")
    at_b.send(pack(NUMBERED, sequence=1))
    net.run()
    at_b.send(pack(NUMBERED, sequence=2))
    with net.together():
        # It has come and was not handled when the connection is lost.
        at_b.batch()
        at_b.batch_was_sent()
        net.router_of("a").turns.defer(at_a, [pack(NUMBERED, sequence=2)])
        net.router_of("a").turns.waiting.clear()
        net.reset("a", "b")
    assert got == [1]
    net.advance(1.0)
    assert got == [1, 2]
    assert pack(NUMBERED, sequence=1) in taken


def test_a_router_that_drains_gets_no_work_and_no_new_links(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    net.advance(0.5)
    follower = net.process("follower", router="b")
    net.router_of("a").begin_drain(net.now)
    net.run()
    assert not neighbour(net, "b", "a").is_usable
    net.advance(0.1)
    assert [row["name"] for row in follower.got(Kind.ROUTERS)[-1].body["routers"]] == ["b"]
    net.add_router("c", peers=["a"])
    net.advance(1.0)
    assert set(neighbours(net, "a")) == {"b"}
    # The session with a neighbour goes on.
    net.reset("a", "b")
    net.advance(1.0)
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    net.router_of("a").finish_drain(net.now)
    net.run()
    assert "a" not in neighbours(net, "b")
    assert told(net, "b", "link ended") == ["a (mesh): refused by it: the router has shut down"]


def test_a_link_that_an_operator_ends_is_made_anew(net: MeshNetwork) -> None:
    net.add_router("a", peers=())
    net.add_router("b", peers=["a"])
    operator = net.process("operator", router="a")
    before = link(net, "a", "b")
    query = KickQuery(identity="b")
    operator.send(Kind.QUERY, query.payload(), format=1)
    net.advance(1.0)
    assert before.state is LinkState.ENDED
    assert neighbours(net, "a") == {"b": LinkState.ANSWERING}
    assert neighbours(net, "b") == {"a": LinkState.ANSWERING}
