"""The connections between the routers of a virtual network: open, cut, slow, broken, and gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from rpcmq.core.router.actions import DIALED, Answer, Dial, Disconnect
from rpcmq.core.router.router import Router
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind, pack, parse

ROUTE = DIALED + b"1"


class Talker(Router):
    """A router that keeps what is said to it on connections that begin with the name of another, or that it dialled."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.heard: list[tuple[bytes, int]] = []
        self.events: list[tuple[str, bytes]] = []
        self.users: list[str] = []
        receive = self.receive

        def hear(now: float, route: bytes, batch: bytes, payloads: Sequence[bytes] = (), user: str = "") -> None:
            if route.startswith((b"a#", b"b#", b"c#", DIALED)):
                self.heard.append((route, parse(batch).sequence))
                self.users.append(user)
            else:
                receive(now, route, batch, payloads, user)

        self.receive = hear  # type: ignore[assignment]

    def dial(self, url: str, server_key: str = "") -> None:
        self._act(Dial(ROUTE, url, server_key))

    def say(self, route: bytes, number: int) -> None:
        self._act(Answer(route, pack(Kind.ACK, sequence=number)))

    def hang_up(self, route: bytes) -> None:
        self._act(Disconnect(route))

    def connected(self, now: float, route: bytes) -> None:
        self.events.append(("connected", route))

    def lost(self, now: float, route: bytes, reason: str = "") -> None:
        self.events.append(("lost", route))
        super().lost(now, route, reason)


#: The name of the connection of a at b.
ACCEPTED = b"a#1"


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Three routers, of which a is connected to b."""
    made = MeshNetwork(names=(), engine=Talker)
    for name in "abc":
        made.add_router(name, peers=())
    router(made, "a").dial("inproc://b")
    made.run()
    yield made
    for host in made.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []


def router(net: MeshNetwork, name: str) -> Talker:
    found = net.router_of(name)
    assert isinstance(found, Talker)
    return found


def say(net: MeshNetwork, name: str, number: int) -> None:
    router(net, name).say(ROUTE if name == "a" else ACCEPTED, number)
    net.run()


def heard(net: MeshNetwork, name: str) -> list[int]:
    return [number for _, number in router(net, name).heard]


def test_a_dialled_connection_is_told_and_carries_both_ways(net: MeshNetwork) -> None:
    assert router(net, "a").events == [("connected", ROUTE)]
    assert router(net, "b").events == router(net, "c").events == []
    say(net, "a", 1)
    say(net, "b", 2)
    assert router(net, "b").heard == [(ACCEPTED, 1)] and router(net, "a").heard == [(ROUTE, 2)]
    assert router(net, "c").heard == []


def test_a_url_with_nobody_is_given_up(net: MeshNetwork) -> None:
    router(net, "c").dial("inproc://nobody")
    net.advance(4.9)
    assert router(net, "c").events == []
    net.advance(0.2)
    assert router(net, "c").events == [("lost", ROUTE)]
    net.advance(100)
    assert router(net, "c").events == [("lost", ROUTE)]


@pytest.mark.parametrize("obstacle", ["down", "paused", "cut", "cut one way", "cut the other way"])
def test_a_router_that_is_there_within_the_time_is_connected(net: MeshNetwork, obstacle: str) -> None:
    other = net.hosts["a"]
    if obstacle in ("down", "paused"):
        getattr(other, {"down": "kill", "paused": "pause"}[obstacle])()
    elif obstacle == "cut the other way":
        net.cut("a", "c", is_one_way=True)
    else:
        net.cut("c", "a", is_one_way=obstacle == "cut one way")
    router(net, "c").dial("inproc://a")
    net.advance(4.9)
    assert router(net, "c").events == []
    if obstacle in ("down", "paused"):
        getattr(other, {"down": "start", "paused": "resume"}[obstacle])()
    else:
        net.heal("c", "a")
    assert router(net, "c").events == [("connected", ROUTE)]


def test_an_attempt_that_the_engine_gives_up_is_over(net: MeshNetwork) -> None:
    router(net, "c").dial("inproc://d")
    net.run()
    router(net, "c").hang_up(ROUTE)
    net.add_router("d")
    net.advance(10)
    assert router(net, "c").events == []


def test_a_router_is_dialled_with_its_key_and_knows_the_dialers(net: MeshNetwork) -> None:
    net.hosts["b"].user, net.hosts["c"].user = "B", "C"
    router(net, "c").dial("inproc://b", "A")
    net.advance(6)
    router(net, "c").dial("inproc://b", "B")
    net.run()
    assert router(net, "c").events == [("lost", ROUTE), ("connected", ROUTE)]
    router(net, "c").say(ROUTE, 1)
    net.run()
    router(net, "b").say(b"c#2", 2)
    net.run()
    assert router(net, "b").users == ["C"] and router(net, "c").users == [""]


@pytest.mark.parametrize("closing", ["a", "b"])
def test_the_other_end_learns_of_a_disconnect_after_everything_said_before(net: MeshNetwork, closing: str) -> None:
    other, theirs, ours = ("b", ACCEPTED, ROUTE) if closing == "a" else ("a", ROUTE, ACCEPTED)
    net.delay("a", "b", 0.5)
    router(net, closing).say(ours, 1)
    router(net, closing).hang_up(ours)
    net.run()
    router(net, other).say(theirs, 2)
    net.advance(0.4)
    assert ("lost", theirs) not in router(net, other).events and heard(net, other) == []
    net.advance(0.2)
    assert router(net, other).events[-1] == ("lost", theirs) and heard(net, other) == [1]
    assert heard(net, closing) == []
    # Whoever dialled has said itself that it is over; an accepted connection is seen to end.
    assert router(net, closing).events.count(("lost", ours)) == (closing == "b")


def test_a_delay_is_of_a_pair_of_routers_and_holds_for_the_handshake_too(net: MeshNetwork) -> None:
    net.delay("b", "c", 0.2)
    net.delay("a", "b", 0.1)
    router(net, "c").dial("inproc://b")
    net.advance(0.39)
    assert router(net, "c").events == []
    net.advance(0.02)
    assert router(net, "c").events == [("connected", ROUTE)]
    say(net, "a", 1)
    router(net, "c").say(ROUTE, 2)
    net.advance(0.15)
    assert heard(net, "b") == [1]
    net.advance(0.1)
    assert heard(net, "b") == [1, 2]


def test_a_cut_holds_up_and_notifies_nobody(net: MeshNetwork) -> None:
    net.cut("a", "b")
    say(net, "a", 1)
    say(net, "b", 2)
    net.advance(1000)
    assert heard(net, "a") == heard(net, "b") == [] and len(router(net, "a").events) == 1
    net.heal("a", "b")
    assert heard(net, "a") == [2] and heard(net, "b") == [1]


def test_a_cut_can_be_one_way(net: MeshNetwork) -> None:
    net.cut("b", "a", is_one_way=True)
    say(net, "a", 1)
    say(net, "b", 2)
    assert heard(net, "b") == [1] and heard(net, "a") == []


def test_a_partition_cuts_off_each_side_until_all_is_healed(net: MeshNetwork) -> None:
    net.partition(["a"], ["b", "c"])
    say(net, "a", 1)
    router(net, "c").dial("inproc://b")
    net.run()
    assert heard(net, "b") == [] and router(net, "c").events == [("connected", ROUTE)]
    net.heal()
    assert heard(net, "b") == [1]


def test_a_reset_loses_what_is_in_transit_and_both_notice(net: MeshNetwork) -> None:
    net.cut("a", "b")
    say(net, "a", 1)
    net.hosts["b"].pause()
    net.reset("b", "a")
    net.heal("a", "b")
    assert router(net, "a").events[-1] == ("lost", ROUTE) and router(net, "b").events == []
    net.hosts["b"].resume()
    net.advance(0)
    assert router(net, "b").events == [("lost", ACCEPTED)] and heard(net, "b") == []
    router(net, "a").dial("inproc://b")
    net.run()
    assert router(net, "a").events[-1] == ("connected", ROUTE)


@pytest.mark.parametrize("is_delivered", [False, True])
def test_the_last_words_of_a_killed_router_arrive_or_are_lost(net: MeshNetwork, is_delivered: bool) -> None:
    net.delay("a", "b", 0.5)
    say(net, "a", 1)
    say(net, "b", 2)
    net.hosts["a"].kill(is_delivered)
    net.hosts["a"].start()
    net.advance(1)
    assert heard(net, "b") == ([1] if is_delivered else []) and heard(net, "a") == []
    assert router(net, "b").events == [("lost", ACCEPTED)] and router(net, "a").events == []


@pytest.mark.parametrize("is_delivered", [False, True])
def test_so_do_those_to_its_processes(net: MeshNetwork, is_delivered: bool) -> None:
    api, other = net.process("api", router="b"), net.process("other", router="c")
    api.delay = 0.5
    net.link(api).send(pack(Kind.CONFIRM, key=api.uplink.next_key()))
    net.run()
    net.hosts["b"].kill(is_delivered)
    net.hosts["b"].start()
    assert other.uplink.ready and api.received == [] and (api.connection is None) is not is_delivered
    net.advance(1)
    assert api.connection is None and not api.uplink.ready
    assert [message.kind for message in api.received] == ([Kind.CONFIRM] if is_delivered else [])
    api.delay = 0.0
    api.connect()
    assert api.uplink.ready and len(router(net, "b").links) == 1


def test_a_paused_router_keeps_its_connections_and_reads_later(net: MeshNetwork) -> None:
    net.hosts["b"].pause()
    say(net, "a", 1)
    net.advance(100)
    net.hosts["a"].kill(is_delivered=True)
    assert heard(net, "b") == [] and router(net, "b").events == []
    net.hosts["b"].resume()
    assert heard(net, "b") == [1] and router(net, "b").events == [("lost", ACCEPTED)]


def test_a_process_moves_to_another_router(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    assert [len(net.router_of(name).links) for name in "abc"] == [1, 0, 0]
    api.move("b")
    assert net.link(api) in net.router_of("b").links and api.uplink.ready
    assert not any(link.is_responsive for link in net.router_of("a").links)
    api.cut_off()
    api.move("c", is_noticed=False)
    assert api.uplink.ready, "it is cut off from the router that it has left"
    assert next(iter(net.router_of("b").links)).is_responsive
    net.advance(61)
    assert not any(link.is_responsive for link in net.router_of("b").links)


def test_a_stopped_router_may_still_read_a_process_that_has_left_it(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="a")
    node.register("compute", credit=2)
    net.hosts["a"].pause()
    api.cast("compute", payload=b"late")
    api.move("b", is_delivered=True)
    api.cast("compute", payload=b"elsewhere")
    net.advance(1)
    net.hosts["a"].resume()
    assert [m.payload for m in node.got(Kind.CAST)] == [b"late"]
    assert not any(link.is_responsive for link in net.router_of("a").links if link.identity == "api")


def test_a_killed_router_comes_back_with_a_later_boot_and_without_connections(net: MeshNetwork) -> None:
    host = net.hosts["a"]
    before, api = host.router, net.process("api")
    host.kill()
    assert api.connection is None and not host.is_up
    api.connect()
    assert api.connection is None, "nobody is there"
    host.start()
    assert host.router is not before and host.router.boot > before.boot and host.connections.ends == {}
    api.connect()
    assert api.uplink.ready


def test_routers_have_names_ids_and_peers_of_their_own() -> None:
    net = MeshNetwork(names=("a", "b"), engine=Talker)
    net.add_router("c", peers=("a",), mesh_name="other")
    told = [(s.router_name, s.router_id, s.mesh_peers, s.mesh_name) for s in (h.settings for h in net.hosts.values())]
    assert told == [
        ("a", 1, (), "rpcmq"), ("b", 2, ("inproc://a",), "rpcmq"), ("c", 3, ("inproc://a",), "other"),
    ]  # fmt: skip
