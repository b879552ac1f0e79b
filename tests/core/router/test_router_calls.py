"""Each call ends exactly once, and says why."""

from __future__ import annotations

import gc

from rpcmq.core.router.model import Delivery, Request
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import DETACH_BYTES, Flag, Kind
from tests.core.router.tables import left_behind

# --- results ---------------------------------------------------------------------------------


def test_what_has_ended_is_freed_at_once_and_not_by_the_collector(net: Network, api: Process, node: Process):
    def kept() -> int:
        return sum(isinstance(each, Request | Delivery) for each in gc.get_objects())

    node.register("compute")
    gc.collect()
    gc.disable()
    try:
        before = kept()
        for _ in range(3):
            api.request("compute", "reboot")
            node.reply(node.take(Kind.REQUEST), b"done")
            api.cast("compute", "log")
            node.settle(node.take(Kind.CAST))
            late = api.request("compute", "reboot")
            request = node.take(Kind.REQUEST)
            api.cancel(late)
            node.reply(request, b"too late")
        assert kept() == before
    finally:
        gc.enable()


def test_a_call_ends_with_the_reply(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", "reboot", b'{"id":17}', ttl=30, trace=b"00-trace")
    request = node.take(Kind.REQUEST)
    assert (str(request.address), request.method, request.payload) == ("compute", "reboot", b'{"id":17}')
    assert request.header.trace_length == 8 and request.header.ttl == 30_000
    assert net.router.in_flight == 1
    node.reply(request, b"done")
    assert call.end.kind is Kind.REPLY and call.end.payload == b"done"
    assert net.router.in_flight == 0


def test_a_call_ends_with_the_fault(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    node.fault(node.take(Kind.REQUEST), b"ValueError")
    assert call.end.kind is Kind.FAULT and call.end.payload == b"ValueError"


def test_large_payloads_travel_both_ways(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", payload=b"q" * DETACH_BYTES)
    request = node.take(Kind.REQUEST)
    assert request.payload == b"q" * DETACH_BYTES
    node.reply(request, b"r" * 5 * DETACH_BYTES)
    assert call.end.payload == b"r" * 5 * DETACH_BYTES


def test_replies_go_home_whatever_their_order(net: Network, node: Process):
    callers = [net.process(f"api-{i}") for i in range(3)]
    node.register("compute", credit=10)
    calls = [caller.request("compute", payload=b"%d" % i) for i, caller in enumerate(callers)]
    for request in reversed(node.got(Kind.REQUEST)):
        node.reply(request, b"for " + request.payload)
    assert [call.end.payload for call in calls] == [b"for 0", b"for 1", b"for 2"]


def test_a_process_may_call_itself(node: Process):
    node.register("compute")
    call = node.request("compute")
    node.reply(node.take(Kind.REQUEST), b"me")
    assert call.end.payload == b"me"


def test_a_second_reply_is_counted_and_goes_nowhere(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.reply(request)
    node.reply(request)
    assert len(call.ends) == 1
    assert net.router.dispatch.requests.counters["reply for an unknown call"] == 1
    assert net.link(node).counters["reply for an unknown call"] == 1


# --- cancel ----------------------------------------------------------------------------------


def test_a_cancelled_call_that_is_queued_never_runs(net: Network, api: Process, node: Process):
    call = api.request("compute")
    api.cancel(call)
    node.register("compute")
    assert node.got(Kind.REQUEST) == [] and call.answers == []
    assert net.router.in_flight == 0


def test_a_cancelled_call_that_runs_is_told(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    api.cancel(call)
    assert net.router.in_flight == 0
    assert node.take(Kind.CANCEL).key == request.key
    waiting = api.request("compute")
    assert node.got(Kind.REQUEST) == [], "the cancelled one still has the only credit"
    node.reply(request, b"anyway")
    assert call.answers == []
    node.reply(node.take(Kind.REQUEST), b"next")
    assert waiting.end.payload == b"next"


def test_a_call_cannot_be_cancelled_by_another_process(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    net.process("mallory").cancel(call)
    assert node.got(Kind.CANCEL) == []
    node.reply(node.take(Kind.REQUEST))
    assert call.end.outcome is Outcome.OK


def test_cancelling_what_has_ended_changes_nothing(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST))
    api.cancel(call)
    assert len(call.ends) == 1 and node.got(Kind.CANCEL) == []


def test_calls_of_a_caller_that_leaves_are_cancelled(net: Network, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    api.request("compute")
    request = node.take(Kind.REQUEST)
    api.stop()
    assert node.take(Kind.CANCEL).key == request.key
    assert net.router.in_flight == 0
    node.reply(request)
    assert node.got(Kind.REQUEST) == [], "the queued one is gone too"


# --- nothing stays ---------------------------------------------------------------------------


def test_calls_leave_nothing_however_they_end(make_net):
    net = make_net(mailbox_max_seconds=20.0, unclaimed_seconds=10.0, resume_seconds=5.0, queue_max_messages=3)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=2)
    calls = [api.request("compute", ttl=1) for _ in range(6)]  # 2 in flight, 3 queued, 1 refused
    api.cancel(calls[2])
    node.reply(node.take(Kind.REQUEST))
    node.die()
    net.advance(2)
    calls += [api.request("compute", flags=Flag.MANDATORY), api.request("nowhere", ttl=2)]
    net.advance(10)
    assert [len(c.ends) for c in calls] == [1, 1, 0, 1, 1, 1, 1, 1]
    api.stop()
    net.advance(60)
    assert left_behind(net.router) == {}
