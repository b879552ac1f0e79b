"""The items of a stream, its credit and its signs of life pass the router."""

from __future__ import annotations

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind


def test_a_stream_brings_its_items_and_ends(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    for i in range(3):
        node.item(request, b"%d" % i)
    node.end(request)
    assert [m.payload for m in call.answers if m.kind is Kind.ITEM] == [b"0", b"1", b"2"]
    assert call.end.kind is Kind.END


def test_items_put_the_deadline_off(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM, ttl=10)
    request = node.take(Kind.REQUEST)
    for _ in range(5):
        net.advance(8)
        node.item(request)
    assert call.ends == []
    net.advance(11)
    assert call.end.outcome is Outcome.TIMEOUT


def test_signs_of_life_reach_the_caller_and_do_not_put_the_deadline_off(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", ttl=10)
    request = node.take(Kind.REQUEST)
    net.advance(8)
    node.alive(request, b"80 %")
    assert api.take(Kind.ALIVE).payload == b"80 %"
    net.advance(3)
    assert call.end.outcome is Outcome.TIMEOUT


def test_grants_reach_the_consumer(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    api.grant(call, 16)
    grant = node.take(Kind.GRANT)
    assert grant.key == request.key and grant.payload == (16).to_bytes(4)


def test_grants_for_what_is_queued_or_has_ended_go_nowhere(api: Process, node: Process):
    call = api.request("compute", flags=Flag.STREAM)
    api.grant(call, 16)
    node.register("compute")
    node.end(node.take(Kind.REQUEST))
    api.grant(call, 16)
    assert node.got(Kind.GRANT) == []


def test_items_after_the_end_go_nowhere(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    node.end(request)
    node.item(request, b"late")
    assert [m.kind for m in call.answers] == [Kind.END]
    assert net.router.dispatch.requests.counters["item of an unknown call"] == 1


def test_items_of_a_cancelled_stream_go_nowhere(api: Process, node: Process):
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    api.cancel(call)
    node.item(request, b"late")
    assert call.answers == []
