"""Routers that are not linked to each other directly, and those between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rpcmq.core.router.mesh.relayed_connections import DROPPED
from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import KIND_AT, Flag, Kind, parse
from tests.core.router.mesh.topologies import line, linked_to, mesh_of, relayed_to, ring


def settle(net: MeshNetwork) -> None:
    """Let all routers know each other's consumers."""
    net.advance(1.0)


def run_all(*nodes: Process) -> list[str]:
    """Let ``nodes`` answer everything; return the methods in the order of each."""
    ran = []
    for node in nodes:
        for message in [each for each in node.inbox if each.kind == Kind.REQUEST]:
            node.inbox.remove(message)
            ran.append(message.method)
            node.reply(message, message.method.encode())
    return ran


def no_faults(net: MeshNetwork) -> None:
    """Check that no router has seen anything illegal, or dropped anything."""
    for host in net.hosts.values():
        assert not host.router.refused, (host.name, host.router.refused)
        dropped = [name for name in host.router.links.counters if name.startswith(DROPPED)]
        assert not dropped, (host.name, dropped)
        assert not [note.text for note in host.notes if note.event == "internal error"]


# --- who is linked ---------------------------------------------------------------------------


def test_routers_of_a_line_are_linked_over_each_other():
    net = line("abcd")
    assert {name: relayed_to(net, name) for name in "abcd"} == {
        "a": {"c", "d"}, "b": {"d"}, "c": {"a"}, "d": {"a", "b"},
    }  # fmt: skip
    no_faults(net)


def test_routers_that_can_connect_to_each_other_do_not_use_others():
    net = MeshNetwork(("a", "b", "c"))
    net.advance(10.0)
    assert not any(relayed_to(net, name) for name in "abc")
    no_faults(net)


def test_a_router_that_joins_is_linked_to_all_within_a_second():
    net = line("abcd")
    net.add_router("e", peers=["d"])
    net.advance(1.5)
    assert linked_to(net, "e") == set("abcd")


def test_a_router_that_is_gone_is_given_up_by_those_that_reached_it_over_others():
    net = ring("abcde")
    net.hosts["c"].kill()
    net.advance(20.0)
    for name in "abde":
        assert linked_to(net, name) == set("abde") - {name}
    net.hosts["c"].start()
    net.advance(10.0)
    for name in "abcde":
        assert linked_to(net, name) == set("abcde") - {name}


def test_a_line_that_is_cut_is_two_meshes_and_one_again():
    net = line("abcd")
    net.cut("b", "c")
    net.advance(20.0)
    assert [linked_to(net, name) for name in "abcd"] == [{"b"}, {"a"}, {"d"}, {"c"}]
    net.heal()
    net.advance(40.0)
    assert [linked_to(net, name) for name in "abcd"] == [set("abcd") - {name} for name in "abcd"]


# --- messages --------------------------------------------------------------------------------


def test_calls_cross_relays_in_order():
    net = line("abcd")
    api, node = net.process("api", router="a"), net.process("node", router="d")
    node.register("compute", server="node-7", credit=100)
    settle(net)
    calls = [api.request("compute", f"m{i}", ttl=30) for i in range(50)]
    assert run_all(node) == [f"m{i}" for i in range(50)]
    assert [call.end.payload for call in calls] == [b"m%d" % i for i in range(50)]
    no_faults(net)


def test_large_payloads_cross_relays():
    net = line("abc")
    api, node = net.process("api", router="a"), net.process("node", router="c")
    node.register("compute", credit=100)
    settle(net)
    payload = bytes(range(256)) * 4096
    call = api.request("compute", "run", payload, ttl=30)
    request = node.take(Kind.REQUEST)
    assert request.payload == payload
    node.reply(request, payload[::-1])
    assert call.end.payload == payload[::-1]


def test_casts_fanouts_and_events_reach_all_routers_once():
    net = ring("abcde")
    nodes = {name: net.process(f"node-{name}", router=name) for name in "abcde"}
    for node in nodes.values():
        node.register("compute", credit=100)
    subs = {name: net.process(f"sub-{name}", queue_type="pubsub", router=name) for name in "abcde"}
    for sub in subs.values():
        sub.subscribe("alarm.#")
    settle(net)
    api = net.process("api", router="a")
    net.advance(1.0)
    api.cast("compute", "reload", flags=Flag.FANOUT)
    net.process("pub", router="b").publish("alarm.fire", b"1")
    net.advance(1.0)
    for name in "abcde":
        assert [each.method for each in nodes[name].got(Kind.CAST)] == ["reload"]
        assert [each.payload for each in subs[name].got(Kind.PUBLISH)] == [b"1"]
    no_faults(net)


# --- one copy on each connection -------------------------------------------------------------


class Copies:
    """Counts messages of a kind on each connection between two routers."""

    def __init__(self, net: MeshNetwork, kind: Kind) -> None:
        self.by_connection: Counter[tuple[str, str]] = Counter()

        def counting(connection, way, messages, put=net.put):
            names = self._ends(net, connection)
            if names is not None:
                self.by_connection[names[way is connection.to_router], names[way is not connection.to_router]] += sum(
                    message[KIND_AT] == kind for message in messages
                )
            put(connection, way, messages)

        net.put = counting  # type: ignore[method-assign]

    @staticmethod
    def _ends(net: MeshNetwork, connection: object) -> tuple[str, str] | None:
        found = [
            host.name
            for host in net.hosts.values()
            for end in host.connections.ends.values()
            if end is not None and end.connection is connection and end.peer is not None
        ]
        return (found[0], found[1]) if len(found) == 2 else None


@pytest.mark.parametrize(
    ("names", "connections", "subscribers"),
    [
        ("abcd", ("ba", "cb", "dc"), "abcd"),
        ("abcd", ("ba", "cb", "dc"), "d"),
        ("abcdef", ("ba", "cb", "dc", "ed", "fe", "af"), "abcdef"),
        ("abcdefgh", ("ba", "cb", "dc", "ed", "fe", "gf", "hg", "ah", "ea", "gc"), "abcdefgh"),
    ],
    ids=["line", "end of a line", "ring", "chords"],
)
def test_an_event_crosses_each_connection_once(names: str, connections: Sequence[str], subscribers: str):
    net = mesh_of(names, connections)
    subs = [net.process(f"sub-{name}", queue_type="pubsub", router=name) for name in subscribers]
    for sub in subs:
        sub.subscribe("alarm")
    settle(net)
    publisher = net.process("pub", router="a")
    net.advance(1.0)
    copies = Copies(net, Kind.PUBLISH)
    for i in range(20):
        publisher.publish("alarm", b"%d" % i)
    with net.together():
        for i in range(20, 40):
            publisher.publish("alarm", b"%d" % i)
    for sub in subs:
        assert [each.payload for each in sub.got(Kind.PUBLISH)] == [b"%d" % i for i in range(40)]
    assert max(copies.by_connection.values()) == 40
    # A tree: each router that is not the publisher's gets it on one connection.
    assert sum(copies.by_connection.values()) == 40 * (len(names) - 1)


# --- faults ----------------------------------------------------------------------------------


def lose_next_relay(net: MeshNetwork, put: Any) -> Any:
    """In place of ``put``: loses the next batch that a router passes on."""

    def lose(connection: Any, way: Any, messages: list[bytes]) -> None:
        if messages[0][KIND_AT] == Kind.RELAY and parse(messages[0]).hops:
            net.put = put  # type: ignore[method-assign]
        else:
            put(connection, way, messages)

    return lose


def test_batches_that_a_relay_drops_are_sent_again_in_order_and_once():
    net = line("abc")
    api, node = net.process("api", router="a"), net.process("node", router="c")
    node.register("compute", credit=1000)
    settle(net)
    calls = []
    put = net.put
    for i in range(30):
        calls.append(api.request("compute", f"m{i}", ttl=60))
        if i % 7 == 3:
            net.put = lose_next_relay(net, put)  # type: ignore[method-assign]
        if i % 7 == 5:
            net.advance(3.0)
    net.advance(3.0)
    assert run_all(node) == [f"m{i}" for i in range(30)]
    net.advance(5.0)
    assert [call.end.payload for call in calls] == [b"m%d" % i for i in range(30)]


@pytest.mark.parametrize("is_noticed", [True, False], ids=["reset", "silent"])
def test_a_connection_that_is_cut_is_replaced_by_a_way_over_others_and_nothing_is_lost(is_noticed: bool):
    net = ring("abcde")
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("compute", credit=1000)
    settle(net)
    calls = [api.request("compute", f"before-{i}", ttl=60) for i in range(5)]
    net.cut("a", "b")
    if is_noticed:
        net.reset("a", "b")
    calls += [api.request("compute", f"after-{i}", ttl=60) for i in range(5)]
    for _ in range(10):
        net.advance(0.5)
        run_all(node)
    net.advance(5.0)
    assert [call.end.payload for call in calls] == [
        *(b"before-%d" % i for i in range(5)), *(b"after-%d" % i for i in range(5)),
    ]  # fmt: skip
    assert "b" in relayed_to(net, "a")
    net.heal()
    net.advance(15.0)
    assert not {"b"} & relayed_to(net, "a"), "where it can be, it is direct again"
    assert linked_to(net, "a") == set("bcde")
    assert not [note for host in net.hosts.values() for note in host.notes if note.event == "link ended"]


def test_all_routers_know_of_a_connection_that_breaks_those_at_its_ends_too():
    net = ring("abcde")
    net.cut("a", "b")
    net.reset("a", "b")
    net.advance(2.0)
    reported = {name: net.router_of(name).mesh.members.own() for name in "abcde"}
    for name in "abcde":
        for member in net.router_of(name).mesh.members.table:
            assert replace(member.said, age=0) == reported[member.said.name]


def test_a_neighbour_whose_link_goes_on_over_others_is_no_way_to_any():
    net = ring("abc")
    router = net.router_of("a")
    (b,) = [each for each in router.mesh.neighbours if each.name == "b"]
    assert router.relayed.next_hop(b.identity.id) is b.link
    # The ways are not found anew at once where the topology changes all the time.
    b.is_relayed = True
    assert router.relayed.next_hop(b.identity.id) is None


def test_calls_go_on_while_ways_change():
    net = mesh_of("abcd", ("ba", "cb", "dc", "ad", "ca"))
    api, node = net.process("api", router="b"), net.process("node", router="d")
    node.register("compute", credit=1000)
    settle(net)
    calls, ran = [], []
    for i, pair in enumerate(("ab", "cd", "bc", "ad", "ab", "cd")):
        net.cut(*pair)
        for j in range(30):
            calls.append(api.request("compute", f"m{i}-{j}", ttl=120))
            net.advance(0.1)
            ran += run_all(node)
        net.heal()
        net.advance(3.0)
        ran += run_all(node)
    net.advance(10.0)
    ran += run_all(node)
    net.advance(2.0)
    assert len(ran) == len(set(ran)) == len(calls)
    assert all(call.end.kind == Kind.REPLY for call in calls)


def test_nothing_comes_twice_while_a_link_goes_back_to_a_slow_direct_connection():
    net = mesh_of("abc", ("ba", "cb", "ca"))
    sub = net.process("sub", queue_type="pubsub", router="b")
    sub.subscribe("alarm")
    settle(net)
    publisher = net.process("pub", router="a")
    net.delay("a", "b", 0.2)
    net.reset("a", "b")
    for i in range(100):
        publisher.publish("alarm", b"%d" % i)
        net.advance(0.07)
    net.advance(5.0)
    assert [each.payload for each in sub.got(Kind.PUBLISH)] == [b"%d" % i for i in range(100)]
    assert not relayed_to(net, "a") and not net.router_of("a").refused and not net.router_of("b").refused
