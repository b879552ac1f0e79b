"""RELAYs that are malformed, forged, or meant to cost a router more than they cost their sender."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from rpcmq.core.router.mesh.peerings import as_body
from rpcmq.core.router.mesh.relayed_connections import DROPPED
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind, pack, payload_of
from rpcmq.wire.bodies import MESH_TYPE, HelloBody
from rpcmq.wire.mesh_bodies import MeshIdentity
from rpcmq.wire.relay import MAX_HOPS, Leg, pack_relay
from tests.core.router.mesh.topologies import line, linked_to


def relay(net: MeshNetwork, source: str, target: str, message: bytes, *messages: bytes) -> Counter[str]:
    """Send a RELAY from router to router; return the protocol errors that the receiver has seen."""
    link = net.router_of(source).mesh.neighbours.by_id[id_of(net, target)].link
    assert link.route is not None
    end = net.hosts[source].connections.ends[link.route]
    assert end is not None
    net.put(end.connection, end.outgoing, [message, *messages])
    net.run()
    return net.router_of(target).refused


def id_of(net: MeshNetwork, name: str) -> int:
    return net.router_of(name).mesh.own.id


def all_linked(net: MeshNetwork) -> bool:
    net.advance(3.0)
    return all(linked_to(net, name) == set(net.hosts) - {name} for name in net.hosts)


@pytest.mark.parametrize(
    "message",
    [
        pack(Kind.RELAY),
        pack(Kind.RELAY, bytes(4)),
        pack(Kind.RELAY, bytes(30)),
        pack(Kind.RELAY, bytes(26) + b"\xff\xff"),
        pack_relay(1, 0, [Leg(3, 1, 1, ((0, 2),))]),
        pack_relay(1, 0, [Leg(3, 1, 1, ((0, 0),))]),
        pack_relay(1, 0, [Leg(3, 1, 1, ((0, 1),) * 5000)]),
        pack_relay(1, 0, [Leg(3, 1, 1)] * 300),
        pack_relay(2, 0, [Leg(0, 0, 1)]),
    ],
    ids=["empty", "for nobody", "half a leg", "ranges", "beyond", "nothing", "too much", "legs", "forged"],
)
def test_a_malformed_relay_is_counted_and_costs_only_itself(message: bytes):
    net = line("abc")
    assert relay(net, "a", "b", message, pack(Kind.HEARTBEAT, bytes(8))).total() == 1
    assert all_linked(net)


def test_a_relay_for_nobody_who_is_known_is_dropped():
    net = line("abc")
    relay(net, "a", "b", pack_relay(1, 0, [Leg(99, 1, 1), Leg(1, 1, 1)]), pack(Kind.HEARTBEAT))
    b = net.router_of("b")
    counters = b.mesh.neighbours.by_id[id_of(net, "a")].link.counters
    assert b.links.counters[DROPPED + "no way"] == 1
    assert counters[DROPPED + "no way"] == 1 and counters[DROPPED + "the way leads back"] == 1


def test_a_batch_that_goes_on_and_on_ends_at_the_hop_limit():
    net = line("abc")
    relay(net, "a", "b", pack_relay(1, MAX_HOPS - 1, [Leg(3, 1, 1)]), pack(Kind.HEARTBEAT))
    b = net.router_of("b")
    for counters in (b.links.counters, b.mesh.neighbours.by_id[id_of(net, "a")].link.counters):
        assert counters[DROPPED + f"more than {MAX_HOPS} hops"] == 1


def test_a_process_that_sends_a_relay_is_refused():
    net = line("abc")
    process = net.process("evil", router="b")
    net.inject_from(process, pack_relay(1, 0, [Leg(3, 1, 1)]))
    assert net.router_of("b").refused.total() == 1
    assert not net.router_of("b").relayed.transit and all_linked(net)


def test_a_process_cannot_greet_over_routers():
    net = line("abc")
    hello = HelloBody(identity="evil", queue_type="roundrobin", versions=(1,)).message()
    relay(net, "a", "b", pack_relay(1, 0, [Leg(3, 77, 1)]), hello)
    assert net.router_of("c").links.by_identity("evil") is None and all_linked(net)


def test_a_router_cannot_greet_as_another_one():
    net = line("abc")
    own = net.router_of("a").mesh.own
    hello = HelloBody(identity="a", queue_type=MESH_TYPE, versions=(1,), mesh=as_body(own).encode()).message()
    relay(net, "a", "b", pack_relay(9, 0, [Leg(3, 77, 1)]), hello)
    assert not net.router_of("c").relayed.find(9, 77) and all_linked(net)


def test_connections_without_end_are_bounded():
    net = line("abc")
    own = net.router_of("a").mesh.own
    hello = HelloBody(identity="a", queue_type=MESH_TYPE, versions=(1,), mesh=as_body(own).encode()).message()
    for number in range(2000):
        relay(net, "a", "b", pack_relay(1, 0, [Leg(3, number + 5, 1)]), hello)
        relay(net, "a", "b", pack_relay(1, 0, [Leg(3, number + 5_000_000, 2)]), pack(Kind.HEARTBEAT))
    c = net.router_of("c").relayed
    assert len(c.by_route) <= 6 and len(c._closed) <= 1000
    net.advance(30.0)
    assert all_linked(net)


# --- more work for the receiver than for the sender ------------------------------------------


def test_a_relay_in_a_relay_is_refused():
    net = line("abc")
    a, b = id_of(net, "a"), net.router_of("b")
    nested = pack_relay(a, 0, [Leg(0, 0, 1)] * 20)
    beat = pack(Kind.HEARTBEAT, bytes(8))
    handled = b.turns.spent
    assert relay(net, "a", "b", nested, nested, beat)["kind"] == 20
    assert b.turns.spent - handled < 2000 and all_linked(net)


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.HEARTBEAT, Kind.GOODBYE, Kind.RELAY])
def test_what_shares_a_batch_with_others_is_of_the_session(kind: Kind):
    net = line("abc")
    assert relay(net, "a", "b", pack_relay(id_of(net, "a"), 0, [Leg(0, 0, 1)]), pack(kind, bytes(8)))["kind"] == 1
    assert all_linked(net)


def test_one_message_is_not_selected_again_and_again():
    net = line("abc")
    a = id_of(net, "a")
    long = pack(Kind.ITEM, bytes(30_000))
    read = net.router_of("b").mesh.neighbours.by_id[a].link.received
    errors = relay(net, "a", "b", pack_relay(a, 0, [Leg(0, 0, 1, ((0, 1),) * 4096)]), long)
    assert errors["length"] == 1
    errors = relay(net, "a", "b", pack_relay(a, 0, [Leg(0, 0, 1)] * 255), *[pack(Kind.ALIVE)] * 100)
    assert errors["batch"] == 1
    assert net.router_of("b").mesh.neighbours.by_id[a].link.received == read
    assert all_linked(net)


def test_a_relay_has_no_detached_payload():
    net = line("abc")
    legs = [Leg(99, 1, 0, ()) for _ in range(100)]
    whole = pack_relay(id_of(net, "a"), 0, legs)
    message = pack(Kind.RELAY, bytes(payload_of(whole)) + bytes(40_000))
    assert relay(net, "a", "b", message)["length"] == 1 and all_linked(net)


# --- somebody else's name --------------------------------------------------------------------


def hello_of(net: MeshNetwork, name: str) -> bytes:
    """A HELLO as the router ``name`` says it, with another incarnation."""
    other = replace(as_body(net.router_of(name).mesh.own), incarnation=1 << 50)
    return HelloBody(identity=name, queue_type=MESH_TYPE, versions=(1,), mesh=other.encode()).message()


def made_up(number: int) -> bytes:
    """The HELLO of a router that there is not."""
    mesh = MeshIdentity(mesh="rpcmq", name=f"evil-{number}", id=number, incarnation=1, urls=())
    return HelloBody(identity=mesh.name, queue_type=MESH_TYPE, versions=(1,), mesh=mesh.encode()).message()


def test_routers_that_there_are_not_get_no_connections():
    net = line("abc")
    c = net.router_of("c")
    for number in range(1000, 1500):
        relay(net, "a", "b", pack_relay(number, 1, [Leg(id_of(net, "c"), 7, 1)]), made_up(number))
    assert c.links.counters[DROPPED + "no way back"] == 500
    assert len(c.relayed.by_route) == 1 and not c.refused and all_linked(net)


def test_connections_that_are_refused_are_closed():
    net = line("abc")
    c, own = net.router_of("c"), as_body(net.router_of("a").mesh.own)
    other = replace(own, mesh="other").encode()
    hello = HelloBody(identity="a", queue_type=MESH_TYPE, versions=(1,), mesh=other).message()
    for number in range(1000, 1100):
        relay(net, "a", "b", pack_relay(own.id, 0, [Leg(id_of(net, "c"), number, 1)]), hello)
    assert c.links.counters["refused other-mesh"] == 100
    assert len(c.relayed.by_route) == 1 and all_linked(net)


def test_hellos_in_the_name_of_a_router_do_not_end_its_connection():
    net = line("abcd")
    d, a = net.router_of("d"), id_of(net, "a")
    link = d.mesh.neighbours.by_id[a].link
    route = link.route
    for number in range(100):
        net.hosts["a"].pause()  # what it has not asked for it closes
        for each in range(10):
            leg = Leg(id_of(net, "d"), 1000 + 10 * number + each, 1)
            relay(net, "b", "c", pack_relay(a, 1, [leg]), hello_of(net, "a"))
        net.hosts["a"].resume()
        net.advance(0.05)
    assert d.mesh.neighbours.by_id[a].link is link and link.route == route
    net.advance(5.0)
    assert d.mesh.neighbours.by_id[a].link is link and len(d.relayed.by_route) < 8 and all_linked(net)


def test_a_false_hello_is_counted_at_the_link_that_it_came_on_and_no_fault_of_the_router():
    net = line("abc")
    errors = relay(net, "a", "b", pack_relay(id_of(net, "a"), 0, [Leg(id_of(net, "c"), 77, 1)]), made_up(5))
    assert not errors
    c = net.router_of("c")
    assert c.refused == {"relay": 1}
    assert c.mesh.neighbours.by_id[id_of(net, "b")].link.counters["refused relay"] == 1
    assert all_linked(net)
