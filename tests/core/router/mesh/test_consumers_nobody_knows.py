"""A router that no other one answers has consumers of its own work, but for what others may have taken over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.testing.mesh_network import MeshNetwork, Process
from rpcmq.wire import Flag, Kind
from tests.core.router.mesh.interest import QUIET, consumer, three_routers
from tests.core.router.mesh.links import end_link


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    """Router b is cut off, and has given up the others."""
    for made in three_routers():
        for other in "ac":
            made.cut("b", other)
            end_link(made, "b", other)
        yield made


def got(process: Process) -> list[bytes]:
    return [message.payload for message in process.got(Kind.REQUEST, Kind.CAST)]


def served(net: MeshNetwork) -> Process:
    made = consumer(net, "b", "jobs", credit=5)
    net.advance(QUIET)
    return made


def test_what_was_sent_by_those_who_are_here_is_given_to_it(net: MeshNetwork) -> None:
    api = net.process("api", router="b")
    api.request("jobs", payload=b"call")
    api.cast("jobs", payload=b"cast")
    node = served(net)
    assert got(node) == [b"call", b"cast"]
    api.request("jobs", payload=b"another")
    assert got(node) == [b"another"]


def test_what_was_sent_by_one_that_may_have_gone_elsewhere_waits_until_that_is_back(net: MeshNetwork) -> None:
    api, other = net.process("api", router="b"), net.process("other", router="b")
    api.request("jobs", payload=b"1")
    other.request("jobs", payload=b"2")
    api.cast("jobs", payload=b"3")
    api.lose()
    node = served(net)
    assert got(node) == [b"2"]
    api.connect()
    assert got(node) == [b"1", b"3"]


def test_what_may_start_twice_is_given_to_it(net: MeshNetwork) -> None:
    api = net.process("api", router="b")
    api.cast("jobs", payload=b"1")
    api.cast("jobs", payload=b"2", flags=Flag.IDEMPOTENT)
    api.lose()
    assert got(served(net)) == [b"2"]


def test_so_is_the_cast_of_a_process_that_has_ended_or_goes_nowhere_else(net: MeshNetwork) -> None:
    ended, old = net.process("ended", router="b"), net.process("old", router="b", follows_mesh=False)
    ended.cast("jobs", payload=b"1")
    old.cast("jobs", payload=b"2")
    ended.stop()
    old.lose()
    assert got(served(net)) == [b"1", b"2"]


def test_all_of_it_is_given_to_it_once_another_router_knows_it(net: MeshNetwork) -> None:
    api = net.process("api", router="b")
    api.request("jobs", payload=b"1")
    api.lose()
    node = served(net)
    assert got(node) == []
    net.heal()
    net.advance(10.0)
    assert got(node) == [b"1"]


def test_one_that_leaves_meanwhile_is_forgotten(net: MeshNetwork) -> None:
    api = net.process("api", router="b")
    api.request("jobs", payload=b"1")
    api.lose()
    served(net).stop()
    node = served(net)
    net.heal()
    net.advance(10.0)
    assert got(node) == [b"1"]
    assert not net.router_of("b").dispatch.deliveries.unheard
