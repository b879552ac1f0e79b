"""Queue servers of a mesh that do not answer: who calls one is told which there are, and how they are."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Flag
from rpcmq.wire.mesh_bodies import MAX_QUEUE_SERVER
from tests.core.router.mesh.joining import check_full_mesh

WORD = "unavailable: it cannot open its store: it is damaged"


@pytest.fixture
def net(empty: MeshNetwork) -> MeshNetwork:
    """The routers a and b, which are linked."""
    empty.add_router("a", peers=())
    empty.add_router("b", peers=["a"])
    empty.advance(1.0)
    check_full_mesh(empty, "a", "b")
    return empty


def tell(net: MeshNetwork, router: str, state: str) -> None:
    net.router_of(router).mesh.queue_servers.tell(net.now, state)
    net.advance(0.1)


def asked(net: MeshNetwork, router: str, exchange: str = "rpcmq.queue", by: str = "web") -> dict[str, Any]:
    """The details of the error for a call of a queue server, by a process of that router."""
    process = net.process(f"{by}-{router}", router=router)
    call = process.request("rpcmq.queues", exchange=exchange, flags=Flag.MANDATORY)
    net.advance(5.0)
    assert call.end.body["outcome"] == Outcome.NO_CONSUMER
    details: dict[str, Any] = call.end.body["details"]
    return details


def test_without_any_that_is_certain(net: MeshNetwork) -> None:
    details = asked(net, "b")
    assert details["queue_servers"] == {} and details["queue_servers_all"] is True
    assert "queue_servers" not in asked(net, "a", exchange="", by="other")


@pytest.mark.parametrize("exchange", ["rpcmq.queue", "rpcmq.queue.admin"])
def test_each_router_knows_how_that_of_another_one_is(net: MeshNetwork, exchange: str) -> None:
    for state in ("starting", WORD, "serving"):
        tell(net, "a", state)
        for number, router in enumerate("ab"):
            details = asked(net, router, exchange, by=f"{state[:5]}{number}")
            assert details["queue_servers"] == {"a": state} and details["queue_servers_all"] is True
    seen = net.process("ops", router="b").query("addresses")
    assert seen["queue_servers"] == {"a": "serving"} and seen["queue_servers_all"] is True


def test_a_router_that_is_not_linked_may_have_one(net: MeshNetwork) -> None:
    net.add_router("c", peers=["nowhere"])
    net.advance(1.0)
    assert asked(net, "c")["queue_servers_all"] is False


def test_that_of_a_router_that_is_gone_is_expected_back_and_that_of_one_that_has_left_is_not(net: MeshNetwork) -> None:
    tell(net, "a", "serving")
    net.cut("a", "b")
    net.advance(20.0)
    details = asked(net, "b")
    assert details["queue_servers"] == {"a": "serving"} and details["queue_servers_all"] is False
    net.heal("a", "b")
    net.advance(5.0)
    net.router_of("a").mesh.members.leave(net.now)
    net.advance(5.0)
    assert asked(net, "b", by="later")["queue_servers"] == {}


def test_one_that_was_there_comes_back(net: MeshNetwork) -> None:
    server = net.process("server", router="b")
    server.register("rpcmq.queues", exchange="rpcmq.queue")
    net.advance(0.5)
    server.stop()
    net.advance(0.5)
    assert asked(net, "b")["queue_servers_all"] is False


def test_what_is_told_is_bounded_and_readable(empty: MeshNetwork) -> None:
    empty.add_router("a", peers=())
    for number in range(20):
        empty.add_router(f"r{number}", peers=["a"])
    empty.advance(5.0)
    for number in range(20):
        tell(empty, f"r{number}", "unavailable: line\n" + "x" * 1000 if number < 19 else "starting")
    empty.advance(1.0)
    details = asked(empty, "a")
    states = details["queue_servers"]
    assert len(states) == 16 and states["r19"] == "starting" and details["queue_servers_all"] is False
    assert {len(each) for each in states.values()} == {len("starting"), MAX_QUEUE_SERVER}
    assert all(each.isprintable() for each in states.values())
