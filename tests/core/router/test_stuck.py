from __future__ import annotations

from typing import Any

from rpcmq.core.router.roundrobin.stuck import count_stuck, stuck_rows
from rpcmq.core.router.steps import finish
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind


def stuck(net: Network) -> list[dict[str, Any]]:
    rows, total = finish(stuck_rows(net.router.directory, net.router.links, net.now, 1000))
    assert finish(count_stuck(net.router.directory, net.now)) == total == len(rows)
    return rows


def consumer(net: Network, credit: int = 2) -> Process:
    node = net.process("node")
    node.register("compute", server="node-7", credit=credit)
    return node


def test_a_delivery_that_nobody_answers_is_stuck(net: Network):
    api = net.process("api")
    consumer(net)
    api.request("compute", "reboot", ttl=100)
    net.advance(2)
    api.cast("compute", "tick")
    net.advance(7.9)
    assert stuck(net) == []
    net.advance(0.2)
    (row,) = stuck(net)
    assert row == {
        "kind": "call", "caller": "api", "topic": "compute", "method": "reboot", "state": "in flight",
        "server": "node", "server_state": "answering", "seconds": row["seconds"], "attempt": 0, "why": "",
    }  # fmt: skip
    assert 10 <= row["seconds"] < 11
    net.advance(2)
    assert [row["kind"] for row in stuck(net)] == ["call", "cast"], "the longest first"
    assert api.query("stuck") == {"stuck": stuck(net), "truncated": 0}
    assert api.query("summary")["stuck"] == 2


def test_a_consumer_that_answers_others_is_busy_and_not_stuck(net: Network):
    api, node = net.process("api"), consumer(net)
    api.request("compute", "long", ttl=100)
    node.take(Kind.REQUEST)
    for _ in range(6):
        net.advance(5)
        api.request("compute", "short", ttl=100)
        node.reply(node.take(Kind.REQUEST))
    assert stuck(net) == []
    net.advance(10.1)
    assert [row["method"] for row in stuck(net)] == ["long"]


def test_items_and_signs_of_life_are_progress(net: Network):
    api, node = net.process("api"), consumer(net)
    api.request("compute", "stream", ttl=100, flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    net.advance(9)
    node.item(request)
    net.advance(9)
    node.alive(request)
    net.advance(9)
    assert stuck(net) == []
    net.advance(1.1)
    assert len(stuck(net)) == 1


def test_settling_is_progress(net: Network):
    api, node = net.process("api"), consumer(net)
    api.cast("compute", "one")
    api.cast("compute", "two")
    net.advance(9)
    node.settle(node.take(Kind.CAST))
    net.advance(5)
    assert stuck(net) == []


def test_what_waits_for_credit_or_for_anybody_is_not_stuck(net: Network):
    api = net.process("api")
    api.cast("nobody", "m")
    consumer(net, credit=1)
    api.request("compute", "first", ttl=100)
    api.request("compute", "second", ttl=100)
    net.advance(15)
    assert [row["method"] for row in stuck(net)] == ["first"]


def test_a_call_whose_caller_gave_up_still_keeps_its_place(net: Network):
    api = net.process("api")
    consumer(net)
    api.request("compute", "m", ttl=1)
    net.advance(15)
    (row,) = stuck(net)
    assert row["state"] == "in flight"


def test_what_waits_though_somebody_has_credit_is_stuck(net: Network):
    """It cannot happen, so it is made to: a router that has forgotten to feed a consumer."""
    api, node = net.process("api"), consumer(net, credit=1)
    api.cast("compute", "first")
    api.cast("compute", "second")
    (of,) = net.link(node).consumers.values()
    key, delivery = of.in_flight.popitem()
    net.advance(11)
    (row,) = stuck(net)
    assert (row["method"], row["state"], row["server"]) == ("second", "queued", None)
    of.in_flight[key] = delivery
