"""A drain's conditions and its leftovers, on an engine without sockets."""

from __future__ import annotations

import pytest

from rpcmq.server.leftovers import leftovers, under_way
from rpcmq.testing.network import Network
from rpcmq.wire import Kind


@pytest.fixture
def net() -> Network:
    return Network()


def test_a_router_at_rest_has_nothing_under_way(net: Network) -> None:
    net.process("node").register("compute", server="node-7", credit=1)
    assert not under_way(net.router)
    assert not any(leftovers(net.router).totals().values())


def test_a_call_is_under_way_until_it_has_ended(net: Network) -> None:
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=1)
    api.request("compute", "reboot", ttl=30)
    assert under_way(net.router)
    assert leftovers(net.router).totals()["calls"] == 1
    node.reply(node.take(Kind.REQUEST), b"done")
    assert not under_way(net.router)


def test_casts_are_under_way_only_where_somebody_consumes_them(net: Network) -> None:
    api, node = net.process("api"), net.process("node")
    api.cast("volume", "attach")
    api.cast("volume", "attach")
    api.cast("compute", "boot", server="node-9")
    assert not under_way(net.router)
    node.register("compute", server="node-7", credit=1)
    for _ in range(3):
        api.cast("compute", "boot")
    assert under_way(net.router)
    left = leftovers(net.router)
    assert {name: count for name, count, *_ in left.casts} == {"volume": 2, "compute.node-9": 1, "compute": 2}
    assert all(size > 40 * count for _, count, size, _ in left.casts)
    assert left.totals()["casts"] == 5


def test_of_casts_that_wait_it_is_known_which_their_senders_keep(net: Network) -> None:
    api, gone, forgetful = net.process("api", keeps=True), net.process("gone", keeps=True), net.process("forgetful")
    for process in (api, api, gone, forgetful):
        process.cast("volume", "attach")
    gone.uplink.close()
    net.run()
    [(name, count, _, kept)] = leftovers(net.router).casts
    assert (name, count, kept) == ("volume", 4, 2)


def test_what_cannot_be_sent_to_a_process_that_is_away_is_counted(net: Network) -> None:
    api, node = net.process("api"), net.process("node")
    node.register("compute", server="node-7", credit=1)
    api.request("compute", "reboot", ttl=30)
    task = node.take(Kind.REQUEST)
    api.lose()
    node.reply(task, b"done")
    assert leftovers(net.router).totals()["unsent messages"] == 1
    assert not under_way(net.router)
