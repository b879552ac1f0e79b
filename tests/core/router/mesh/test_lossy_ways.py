"""Routers on the way that drop, double or reorder the batches that they are to pass on."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from rpcmq.core.router.mesh.relayed_connections import DROPPED
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind
from tests.core.router.mesh.topologies import line, linked_to, relayed_to, ring

PassOn = Callable[..., Any]


def drop_all(pass_on: PassOn) -> PassOn:
    return lambda *args: []


def drop_some(pass_on: PassOn) -> PassOn:
    random = Random(1)
    return lambda *args: pass_on(*args) if random.random() < 0.8 else []


def double(pass_on: PassOn) -> PassOn:
    return lambda *args: (pass_on(*args) and pass_on(*args)) or pass_on(*args)


def reorder(pass_on: PassOn) -> PassOn:
    held: list[tuple[Any, ...]] = []

    def hold(*args: Any) -> list[Any]:
        held.append(args)
        if len(held) > 1:
            for each in reversed(held):
                pass_on(*each)
            held.clear()
        return []

    return hold


def spoil(net: MeshNetwork, name: str, how: Callable[[PassOn], PassOn]) -> None:
    """Have the router ``name`` pass batches on in another way from now on."""
    relayed = net.router_of(name).relayed
    relayed.pass_on = how(relayed.pass_on)  # type: ignore[method-assign]


def call_each(net: MeshNetwork, count: int) -> tuple[list[str], list[Kind | None]]:
    """Call a service at c from a, ten times a second; return the methods that ran, and how the calls ended."""
    api, node = net.process("api", router="a"), net.process("node", router="c")
    node.register("compute", credit=1000)
    net.advance(1.0)
    ran, calls = [], []
    for number in range(count):
        calls.append(api.request("compute", f"m{number}", ttl=60))
        net.advance(0.1)
        for message in [each for each in node.inbox if each.kind == Kind.REQUEST]:
            node.inbox.remove(message)
            ran.append(message.method)
            node.reply(message, b"")
    net.advance(5.0)
    return ran, [Kind(call.end.kind) if call.end is not None else None for call in calls]


@pytest.mark.parametrize("how", [drop_all, drop_some])
def test_a_way_on_which_batches_are_dropped_is_left_for_another_one(how: Callable[[PassOn], PassOn]) -> None:
    net = ring("abcd")
    link = net.router_of("a").mesh.neighbours.by_id[net.router_of("c").mesh.own.id].link
    spoil(net, "b", how)
    ran, ends = call_each(net, 80)
    assert ran == [f"m{number}" for number in range(80)] and set(ends) == {Kind.REPLY}
    assert net.router_of("a").links.routes[link.route or b""] is link, "the session has gone on"
    net.advance(60.0)
    assert "c" in relayed_to(net, "a") and "a" in relayed_to(net, "c")


def test_a_way_that_has_never_worked_is_left_too() -> None:
    net = ring("abcd")
    net.hosts["c"].kill()
    net.advance(20.0)
    spoil(net, "b", drop_all)
    net.hosts["c"].start()
    net.advance(10.0)
    assert "c" in relayed_to(net, "a")


def test_all_are_linked_around_a_router_that_drops_everything() -> None:
    net = ring("abcdef")  # from a to c the first router on the longer way would send back what it is to pass on
    spoil(net, "b", drop_all)
    net.advance(30.0)
    assert all(linked_to(net, name) == set("abcdef") - {name} for name in "abcdef")


def test_batches_that_come_twice_are_taken_once() -> None:
    net = ring("abcd")
    spoil(net, "b", double)
    ran, ends = call_each(net, 20)
    assert ran == [f"m{number}" for number in range(20)] and set(ends) == {Kind.REPLY}
    assert net.router_of("a").links.counters[DROPPED + "came twice"] > 10


def test_batches_that_are_reordered_are_sent_again_on_another_way() -> None:
    net = ring("abcd")
    net.advance(5.0)
    spoil(net, "b", reorder)
    ran, ends = call_each(net, 60)
    assert len(ran) == len(set(ran)) and ends.count(Kind.REPLY) == len(ran) > 50
    assert "c" in relayed_to(net, "a")


def test_the_reason_names_the_way() -> None:
    net = line("abc")
    spoil(net, "b", drop_all)
    net.advance(20.0)
    (row,) = (row for row in net.process("operator", router="a").query("mesh")["routers"] if row["name"] == "c")
    assert row["state"] == "not linked"
    assert row["why"] == "router c, over b: neither it nor a router on the way has answered HELLO within 2 s"
