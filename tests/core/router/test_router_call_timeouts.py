"""A call that times out says where it was, and what is left of its time is known everywhere."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import NO_TTL, Kind
from tests.core.router.refusals import error_of


def test_timeout_of_a_call_to_a_topic_nobody_ever_served(net: Network, api: Process):
    call = api.request("compute", "reboot", server="node-7", ttl=30)
    net.advance(29.9)
    assert call.ends == []
    net.advance(0.2)
    assert error_of(call) == (
        Outcome.TIMEOUT,
        "queued 30.0 s: no consumer on 'compute.node-7' (never seen)",
        {
            "topic": "compute.node-7",
            "method": "reboot",
            "queued_seconds": pytest.approx(30.0, abs=0.02),
            "attempt": 0,
            "state": "queued",
            "consumers": 0,
        },
    )


def test_timeout_of_a_call_to_a_server_that_left(net: Network, api: Process, node: Process):
    node.register("compute", server="node-7")
    net.advance(300)
    node.stop()
    net.advance(180)
    call = api.request("compute", "reboot", server="node-7", ttl=60)
    net.advance(61)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.TIMEOUT
    assert text == "queued 60.0 s: no consumer on 'compute.node-7' (last seen 4 min ago)"
    assert details["state"] == "queued" and details["consumers"] == 0


def test_timeout_of_a_call_behind_a_busy_consumer(net: Network, api: Process, node: Process):
    node.register("compute", credit=2)
    running = [api.request("compute", ttl=100) for _ in range(2)]
    call = api.request("compute", ttl=5)
    net.advance(6)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.TIMEOUT
    assert text == "queued 5.0 s: all 1 consumers of 'compute' are busy (2 of 2 in flight)"
    assert details["consumers"] == 1 and details["state"] == "queued"
    assert [c.ends for c in running] == [[], []]


def test_timeout_of_a_call_that_runs(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", "reboot", ttl=3)
    net.advance(4)
    assert error_of(call) == (
        Outcome.TIMEOUT,
        "with node for 3.0 s, running",
        {
            "topic": "compute",
            "method": "reboot",
            "queued_seconds": 0.0,
            "attempt": 0,
            "server": "node",
            "server_seconds": pytest.approx(3.0, abs=0.02),
            "state": "running",
        },
    )


def test_timeout_of_a_call_that_waited_and_then_ran(net: Network, api: Process, node: Process):
    call = api.request("compute", ttl=3)
    net.advance(1)
    node.register("compute")
    net.advance(3)
    _, text, details = error_of(call)
    assert text == "with node for 2.0 s, running"
    assert details["queued_seconds"] == 1.0


def test_timeout_of_a_call_with_an_unresponsive_consumer(net: Network, api: Process, node: Process):
    node.register("compute")
    net.advance(1)
    call = api.request("compute", ttl=20)
    node.cut_off()
    net.advance(21)
    outcome, text, details = error_of(call)
    assert outcome is Outcome.TIMEOUT
    assert text == "node stopped answering heartbeats 21 s ago, had it for 20.0 s"
    assert details["state"] == "unresponsive" and details["server"] == "node"


def test_timeout_of_a_call_queued_behind_an_unresponsive_consumer(net: Network, api: Process, node: Process):
    node.register("compute")
    node.cut_off()
    net.advance(15)
    call = api.request("compute", ttl=5)
    net.advance(6)
    _, text, details = error_of(call)
    assert text == "queued 5.0 s: no consumer on 'compute' answers (silent for 20 s: node)"
    assert details["consumers"] == 1


def test_a_call_without_a_ttl_gets_the_default_timeout(make_net):
    net = make_net(default_timeout_seconds=2.0)
    call = net.process("api").request("compute")
    net.advance(1.9)
    assert call.ends == []
    net.advance(0.2)
    assert call.end.outcome is Outcome.TIMEOUT


def test_an_absurd_ttl_is_cut_to_the_longest_allowed(make_net):
    net = make_net(max_ttl_seconds=5.0)
    call = net.process("api").request("compute", ttl=(NO_TTL - 1) / 1000)
    net.advance(5.1)
    assert call.end.outcome is Outcome.TIMEOUT


def test_a_ttl_of_zero_expires_at_once(net: Network, api: Process):
    call = api.request("compute", ttl=0)
    net.advance(0.05)
    assert call.end.outcome is Outcome.TIMEOUT


def test_a_queued_call_that_timed_out_never_runs(net: Network, api: Process, node: Process):
    api.request("compute", ttl=1)
    net.advance(2)
    node.register("compute")
    assert node.got(Kind.REQUEST) == []


def test_a_running_call_that_timed_out_is_cancelled_and_its_late_reply_ignored(
    net: Network, api: Process, node: Process
):
    node.register("compute")
    call = api.request("compute", ttl=1)
    request = node.take(Kind.REQUEST)
    net.advance(2)
    assert node.take(Kind.CANCEL).key == request.key
    node.reply(request, b"too late")
    assert call.end.outcome is Outcome.TIMEOUT
    assert net.router.dispatch.requests.counters["late replies"] == 1


def test_the_ttl_that_a_consumer_sees_is_what_remains(net: Network, api: Process, node: Process):
    api.request("compute", ttl=10)
    net.advance(4)
    node.register("compute")
    assert node.take(Kind.REQUEST).header.ttl == 6_000


def test_no_ttl_stays_no_ttl_however_long_it_waited(net: Network, api: Process, node: Process):
    api.request("compute")
    net.advance(4)
    node.register("compute")
    assert node.take(Kind.REQUEST).header.ttl == NO_TTL
