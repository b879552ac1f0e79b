"""The items of a stream, its credit and its signs of life pass the router."""

from __future__ import annotations

import pytest

from rpcmq.core.common.stream_credit import (
    MAX_STREAM_BYTES,
    MAX_STREAM_GRANTS,
    MAX_STREAM_ITEMS,
    UNASKED_BYTES,
    UNASKED_ITEMS,
)
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Message, Network, Process
from rpcmq.wire import Flag, Kind
from rpcmq.wire.stream_grant import grant_payload


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


# --- credit in bytes ------------------------------------------------------------------------------


def begin(api: Process, node: Process) -> tuple[Call, Message]:
    node.register("compute")
    call = api.request("compute", flags=Flag.STREAM | Flag.BYTE_CREDIT)
    return call, node.take(Kind.REQUEST)


def test_a_router_says_that_it_takes_grants_in_bytes_and_passes_on_who_knows_them(api: Process, node: Process):
    assert api.welcome.byte_credit
    call, request = begin(api, node)
    assert request.header.flags & Flag.BYTE_CREDIT
    node.item(request, b"x", Flag.BYTE_CREDIT)
    assert api.take(Kind.ITEM).header.flags & Flag.BYTE_CREDIT
    api.grant(call, 3, 70_000)
    assert node.take(Kind.GRANT).payload == grant_payload(3, 70_000)


def test_bytes_that_were_not_granted_end_a_stream_that_counts_them(api: Process, node: Process):
    call, request = begin(api, node)
    node.item(request, bytes(UNASKED_BYTES), Flag.BYTE_CREDIT)
    assert call.ends == []
    node.item(request, b"", Flag.BYTE_CREDIT)
    assert call.end.outcome is Outcome.PROTOCOL and "more items than were granted" in str(call.end)
    assert node.take(Kind.CANCEL).key == request.key


def test_the_last_item_may_have_more_bytes_than_are_left(api: Process, node: Process):
    call, request = begin(api, node)
    node.item(request, bytes(1 << 20), Flag.BYTE_CREDIT)
    api.grant(call, 1, 1 << 20)
    node.item(request, b"within", Flag.BYTE_CREDIT)
    api.grant(call, 1, 0)
    assert len(call.answers) == 2 and call.ends == []


def test_a_consumer_of_an_earlier_version_gets_the_items_alone_and_is_held_to_these(api: Process, node: Process):
    call, request = begin(api, node)
    node.item(request, bytes(1 << 20))
    api.grant(call, 2, 1 << 20)
    assert node.take(Kind.GRANT).payload == (2).to_bytes(4)
    for _ in range(UNASKED_ITEMS + 1):
        node.item(request, bytes(1 << 20))
    assert call.ends == [] and len(call.answers) == UNASKED_ITEMS + 2
    api.grant(call, 0, 1 << 20)
    assert node.got(Kind.GRANT) == []
    node.item(request)
    assert call.end.outcome is Outcome.PROTOCOL


@pytest.mark.parametrize(("items", "size_bytes"), [(MAX_STREAM_ITEMS, 1), (1, MAX_STREAM_BYTES)])
def test_a_caller_that_grants_too_much_loses_its_stream(api: Process, node: Process, items, size_bytes):
    call, request = begin(api, node)
    node.item(request, b"x", Flag.BYTE_CREDIT)
    api.grant(call, items, size_bytes)
    assert call.end.outcome is Outcome.PROTOCOL and "exceed the limit" in call.end.body["text"]


def test_a_flood_of_small_grants_ends_the_stream_before_its_consumer_drowns(api: Process, node: Process):
    """A quarter of a million of one byte each made the router end the link of a consumer that was busy for 3 s."""
    call, request = begin(api, node)
    node.item(request, b"x", Flag.BYTE_CREDIT)
    for _ in range(MAX_STREAM_GRANTS):
        api.grant(call, 0, 1)
    assert call.ends == [] and len(node.got(Kind.GRANT)) == MAX_STREAM_GRANTS
    node.item(request, b"y", Flag.BYTE_CREDIT)
    for _ in range(MAX_STREAM_GRANTS + 1):
        api.grant(call, 0, 1)
    assert call.end.outcome is Outcome.PROTOCOL and "exceed the limit" in call.end.body["text"]
    assert node.take(Kind.CANCEL).key == request.key
    for _ in range(10):
        api.grant(call, 0, 1)
    assert len(node.got(Kind.GRANT)) <= 2 * MAX_STREAM_GRANTS


def streams(of: Process, count: int) -> list[Call]:
    return [of.request("compute", flags=Flag.STREAM | Flag.BYTE_CREDIT) for _ in range(count)]


def test_grants_of_many_streams_end_them_and_neither_the_link_of_their_consumer_nor_streams_of_others():
    net = Network(Settings(recovery_seconds=0.0, outbox_max_messages=400))
    greedy, honest, node = net.process("greedy"), net.process("honest"), net.process("node-7")
    node.register("compute", credit=20)
    calls, others = streams(greedy, 10), streams(honest, 5)
    with net.together():  # the consumer takes nothing meanwhile
        for _ in range(50):
            for call in calls:
                greedy.grant(call, 1, 1)
        for _ in range(4):
            for call in others:
                honest.grant(call, 1, 1)
    assert all(call.end.outcome is Outcome.LINK_LOST for call in calls)
    text = calls[0].end.body["text"]
    assert "messages already wait for node-7 (link.outbox_max_messages = 400)" in text
    assert "grants of this process: it has its share" in text
    assert all(call.ends == [] for call in others)
    assert net.router.dispatch.requests.counters["grants dropped: share used up"] == 10
    net.advance(5)
    assert net.link(node).is_responsive and len(node.got(Kind.CANCEL)) == 10
    grants = [grant.key for grant in node.got(Kind.GRANT)]
    assert [grants.count(call.key) for call in others] == [4] * 5
    # An eighth is not counted, and of what is left to the half it has no more than is left free.
    assert 50 < sum(grants.count(call.key) for call in calls) <= 50 + (200 - 50) // 2 + 1


def test_what_has_arrived_is_of_no_share_any_more():
    net = Network(Settings(recovery_seconds=0.0, outbox_max_messages=4000))
    api, node = net.process("api"), net.process("node-7")
    node.register("compute", credit=20)
    calls = streams(api, 10)
    for request in node.got(Kind.REQUEST):
        node.item(request, b"x", Flag.BYTE_CREDIT)
    for _ in range(10):
        with net.together():
            for _ in range(100):
                for call in calls:
                    api.grant(call, 0, 1)
        net.advance(1)
    assert [call.ends for call in calls] == [[]] * 10
    assert len(node.got(Kind.GRANT)) == 10_000


@pytest.mark.parametrize("payload", [b"", b"123", b"12345", b"123456789"])
def test_a_grant_of_another_length_is_refused(net: Network, api: Process, node: Process, payload):
    call, _ = begin(api, node)
    api.send(Kind.GRANT, payload, key=call.key)
    assert net.link(api).counters["refused length"] == 1 and node.got(Kind.GRANT) == []
