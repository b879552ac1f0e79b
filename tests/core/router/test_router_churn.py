"""Processes that leave leave nothing: hundreds of identities and topics come and go, and every table is empty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rpcmq.testing.network import Network
from rpcmq.wire import Flag, Kind
from tests.core.router.tables import alive, left_behind

NUMBER = 400
TIMES = {"mailbox_max_seconds": 20.0, "unclaimed_seconds": 10.0, "resume_seconds": 5.0}


def one_life(net: Network, number: int, leave: str) -> None:
    """A process comes, does a bit of everything, and leaves in the middle of it."""
    node = net.process(f"node-{number}")
    sub = net.process(f"node-{number}", queue_type="pubsub")
    api = net.process(f"api-{number}")
    tag = node.register("compute", server=f"node-{number}", credit=1)
    node.register(f"topic-{number}", exchange=f"exchange-{number % 7}", credit=1)
    sub.subscribe(f"events.{number}.#", window=1)
    for flags in (0, Flag.IDEMPOTENT, Flag.STREAM):
        api.request(f"compute.node-{number}", f"method-{number % 5}", flags=flags, ttl=60)
        api.cast(f"topic-{number}", exchange=f"exchange-{number % 7}", flags=flags)
        api.cast("compute", server=f"nobody-{number}", ttl=3)
        api.cast(f"nobody-{number}")
        api.publish(f"events.{number}.x")
    api.cast("compute", flags=Flag.FANOUT)
    api.introduce("compute")
    if number % 2:
        node.reply(node.take(Kind.REQUEST))
        node.settle(node.take(Kind.CAST))
    if number % 3 == 0:
        node.unregister(tag)
    for process in (node, sub, api):
        getattr(process, leave)()


@pytest.mark.parametrize("leave", ["stop", "die"])
def test_processes_and_topics_that_come_and_go_leave_nothing(make_net: Callable[..., Network], leave: str):
    before = alive()
    net = make_net(**TIMES)
    for number in range(NUMBER):
        one_life(net, number, leave)
        net.advance(0.01)
        net.notes.clear()
    net.advance(120)
    assert left_behind(net.router) == {}
    assert alive() - before == Counter()


def test_churn_beside_a_service_that_stays(make_net: Callable[..., Network]):
    net = make_net(**TIMES)
    service = net.process("service")
    service.register("service", server="s", credit=5)
    net.advance(1)
    steady = sizes(net)
    for number in range(NUMBER):
        api = net.process(f"api-{number}")
        call = api.request("service", f"method-{number % 3}", ttl=60)
        request = service.take(Kind.REQUEST)
        if number % 2:
            service.reply(request)
            assert call.end.kind is Kind.REPLY
        api.stop()
        service.reply(request)
        net.advance(0.01)
    net.advance(120)
    assert sizes(net) == steady | {"router.directory.destinations": 3, "router.directory.statistics._rows": 3}


def sizes(net: Network) -> dict[str, int]:
    return {path: len(table) for path, table in left_behind(net.router).items() if hasattr(table, "__len__")}


def test_a_process_that_reconnects_for_ever_costs_nothing(make_net: Callable[..., Network]):
    net = make_net(**TIMES)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=5)
    net.advance(1)
    steady = sizes(net)
    for _ in range(NUMBER):
        node.lose()
        api.cast("compute")
        net.advance(0.1)
        node.connect()
        node.settle(*node.got(Kind.CAST))
        node.received.clear()
    net.advance(60)
    node.got()
    after = sizes(net)
    assert after.keys() - steady.keys() <= {"router.directory.destinations", "router.directory.statistics._rows"}
    assert max(after.values()) <= 2


def test_registering_and_leaving_for_ever_costs_nothing(make_net: Callable[..., Network]):
    net = make_net(**TIMES)
    node = net.process("node")
    for number in range(NUMBER):
        tag = node.register("compute", server=f"s-{number}", tag=number % 256)
        node.unregister(tag)
        net.advance(0.01)
    net.advance(60)
    assert len(net.router.directory) == 0
    node.stop()
    assert left_behind(net.router) == {}


def test_calls_that_come_and_go_leave_no_deadline(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=10)
    for _ in range(NUMBER):
        api.request("compute", ttl=1000)
        node.reply(node.take(Kind.REQUEST))
        net.advance(0.05)
    assert len(net.router.dispatch.requests.deadlines.wheel) == 0
    slots = net.router.dispatch.requests.deadlines.wheel._slots
    assert len(slots) < 300, "slots that hold nothing are given back"


def test_left_behind_sees_what_is_there(net: Network):
    """The measure itself: it must find what this test leaves in each place."""
    api, node, sub = net.process("api"), net.process("node"), net.process("sub", queue_type="pubsub")
    node.register("compute", server="s")
    sub.subscribe("a.b")
    for _ in range(3):
        api.request("nobody")
    api.request("compute")
    api.cast("elsewhere")
    found = set(left_behind(net.router))
    assert {
        "router.links._identities",
        "router.links.origins",
        "router.links.routes",
        "router.directory._topics",
        "router.directory._aliases",
        "router.directory.destinations",
        "router.directory.statistics._rows",
        "router.pubsub._tries",
    } <= found
    # It is found where it is met first.
    assert any(path.endswith(".deadlines.wheel") for path in found)
    counts = alive()
    assert counts["Link"] >= 3 and counts["Request"] >= 5 and counts["Consumer"] >= 1 and counts["Topic"] >= 3
