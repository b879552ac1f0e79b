"""The streams of requests pass the router: credit, ends, and what becomes of them when somebody goes."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.common.stream_credit import MAX_STREAM_BYTES, MAX_STREAM_GRANTS, MAX_STREAM_ITEMS
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.testing.process import Call, Message
from rpcmq.wire import DETACH_BYTES, Flag, Kind
from rpcmq.wire.stream_grant import grant_payload

KNOWS: dict[str, Any] = {"accepts": ("json", "pickle", "request-streams")}


@pytest.fixture
def node(net: Network) -> Process:
    return net.process("node-7", **KNOWS)


def begin(api: Process, node: Process, **options: object) -> tuple[Call, Message]:
    node.register("files")
    call = api.request("files", format=4, flags=options.pop("flags", Flag.STREAM), **options)  # type: ignore[arg-type]
    return call, node.take(Kind.REQUEST)


def grant(node: Process, request: Message, items: int = 16, size_bytes: int = 1 << 20) -> None:
    header = request.header
    payload = grant_payload(items, size_bytes)
    node.send(Kind.REQUEST_GRANT, payload, key=request.key, attempt=header.attempt, consumer=header.consumer)


def stop(node: Process, request: Message) -> None:
    header = request.header
    node.send(Kind.REQUEST_STOP, key=request.key, attempt=header.attempt, consumer=header.consumer)


def item(api: Process, call: Call, payload: bytes = b"chunk") -> None:
    api.send(Kind.REQUEST_ITEM, payload, key=call.key)


def end(api: Process, call: Call) -> None:
    api.send(Kind.REQUEST_END, key=call.key)


def test_what_is_granted_passes_in_order_and_then_the_end(api: Process, node: Process):
    call, request = begin(api, node)
    assert request.header.format == 4
    grant(node, request)
    assert api.take(Kind.REQUEST_GRANT).payload == grant_payload(16, 1 << 20)
    for n in range(3):
        item(api, call, b"%d" % n)
    end(api, call)
    assert [m.payload for m in node.got(Kind.REQUEST_ITEM)] == [b"0", b"1", b"2"]
    assert node.take(Kind.REQUEST_END).key == call.key
    node.reply(request, b"3 items")
    assert call.end.payload == b"3 items"


def test_a_welcome_says_that_the_router_takes_them(api: Process):
    assert api.welcome.request_streams


@pytest.mark.parametrize("accepts", [("json", "pickle"), ("json",)])
def test_a_consumer_that_does_not_know_them_is_given_none(net: Network, api: Process, accepts):
    old = net.process("old", accepts=accepts)
    old.register("files")
    call = api.request("files", format=4, flags=Flag.STREAM)
    assert old.got(Kind.REQUEST) == []
    assert call.end.outcome is Outcome.PROTOCOL
    assert call.end.body["details"]["accepts"] >> 4 == 0
    assert "json with a stream" in call.end.body["text"]


def test_of_several_consumers_one_that_knows_them_is_given_it(net: Network, api: Process, node: Process):
    net.process("old").register("files")
    node.register("files")
    for _ in range(2):
        api.request("files", format=4, flags=Flag.STREAM)
        node.reply(node.take(Kind.REQUEST))


def test_nothing_passes_before_it_is_granted(api: Process, node: Process):
    call, request = begin(api, node)
    item(api, call)
    assert call.end.outcome is Outcome.PROTOCOL and "more items of its stream than were granted" in str(call.end)
    assert node.got(Kind.REQUEST_ITEM) == [] and node.take(Kind.CANCEL).key == request.key


def test_items_beyond_the_count_end_the_call(api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request, items=2)
    for _ in range(3):
        item(api, call)
    assert call.end.outcome is Outcome.PROTOCOL and len(node.got(Kind.REQUEST_ITEM)) == 2


def test_the_last_item_may_be_larger_than_what_is_left_and_none_comes_after_it(api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request, size_bytes=1)
    item(api, call, bytes(DETACH_BYTES))
    assert len(node.got(Kind.REQUEST_ITEM)) == 1 and call.ends == []
    item(api, call, b"")
    assert call.end.outcome is Outcome.PROTOCOL


@pytest.mark.parametrize(("items", "size_bytes"), [(MAX_STREAM_ITEMS + 1, 1), (1, MAX_STREAM_BYTES + 1)])
def test_a_consumer_that_grants_too_much_ends_the_call(api: Process, node: Process, items, size_bytes):
    call, request = begin(api, node)
    grant(node, request, items, size_bytes)
    assert call.end.outcome is Outcome.PROTOCOL and "exceed the limit" in call.end.body["text"]


def test_a_flood_of_small_grants_or_stops_does_not_go_to_the_caller(api: Process, node: Process):
    call, request = begin(api, node)
    for _ in range(MAX_STREAM_GRANTS):
        grant(node, request, 0, 1)
    assert call.ends == [] and len(api.got(Kind.REQUEST_GRANT)) == MAX_STREAM_GRANTS
    for _ in range(3):
        stop(node, request)
    assert len(api.got(Kind.REQUEST_STOP)) == 1
    grant(node, request, 0, 1)
    assert call.end.outcome is Outcome.PROTOCOL and "exceed the limit" in call.end.body["text"]


def test_grants_of_many_streams_end_some_of_them_and_not_the_link_of_their_caller():
    net = Network(Settings(recovery_seconds=0.0, outbox_max_messages=100))
    api, node = net.process("api"), net.process("node-7", **KNOWS)
    node.register("files", credit=10)
    calls = [api.request("files", format=4, flags=Flag.STREAM) for _ in range(10)]
    requests = node.got(Kind.REQUEST)
    with net.together():
        for _ in range(20):
            for request in requests:
                grant(node, request, 1, 1)
    assert all(call.end.outcome is Outcome.LINK_LOST for call in calls)
    assert "messages already wait for api (link.outbox_max_messages = 100)" in calls[0].end.body["text"]
    net.advance(5)
    assert net.link(api).is_responsive and 0 < len(api.got(Kind.REQUEST_GRANT)) <= 51


def test_grants_of_one_service_end_its_streams_and_not_those_of_another():
    net = Network(Settings(recovery_seconds=0.0, outbox_max_messages=400))
    api, greedy, honest = net.process("api"), net.process("greedy", **KNOWS), net.process("honest", **KNOWS)
    greedy.register("files", credit=10)
    honest.register("images", credit=10)
    calls = [api.request("files", format=4, flags=Flag.STREAM) for _ in range(10)]
    others = [api.request("images", format=4, flags=Flag.STREAM) for _ in range(5)]
    requests = greedy.got(Kind.REQUEST)
    with net.together():  # the caller takes nothing meanwhile
        for _ in range(50):
            for request in requests:
                grant(greedy, request, 1, 1)
        for request in honest.got(Kind.REQUEST):
            grant(honest, request, 16, 1000)
    assert all(call.end.outcome is Outcome.LINK_LOST for call in calls)
    assert all(call.ends == [] for call in others)
    assert {m.key for m in api.got(Kind.REQUEST_GRANT)} >= {call.key for call in others}


def test_a_grant_for_a_request_without_a_stream_ends_the_call(api: Process, node: Process):
    node.register("files")
    call = api.request("files")
    grant(node, node.take(Kind.REQUEST))
    assert call.end.outcome is Outcome.PROTOCOL and "has no stream" in call.end.body["text"]


@pytest.mark.parametrize("payload", [b"", b"1234", b"123456789"])
def test_a_grant_without_two_counts_is_refused(net: Network, api: Process, node: Process, payload):
    call, request = begin(api, node)
    node.send(Kind.REQUEST_GRANT, payload, key=request.key)
    assert net.link(node).counters["refused length"] == 1 and call.answers == []


def test_what_comes_after_the_end_ends_the_call(api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request)
    end(api, call)
    item(api, call)
    assert call.end.outcome is Outcome.PROTOCOL


def test_after_a_stop_what_was_under_way_goes_nowhere_and_the_call_goes_on(api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request)
    stop(node, request)
    assert api.take(Kind.REQUEST_STOP).key == call.key
    item(api, call)
    assert node.got(Kind.REQUEST_ITEM) == [] and call.ends == []
    node.reply(request, b"enough")
    assert call.end.payload == b"enough"


def test_items_and_grants_put_the_deadline_off(net: Network, api: Process, node: Process):
    call, request = begin(api, node, ttl=10)
    net.advance(8)
    grant(node, request)
    for _ in range(3):
        net.advance(8)
        item(api, call)
    assert call.ends == []
    net.advance(11)
    assert call.end.outcome is Outcome.TIMEOUT and node.take(Kind.CANCEL).key == request.key


def test_what_comes_late_goes_nowhere(net: Network, api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request)
    node.reply(request)
    item(api, call)
    end(api, call)
    grant(node, request)
    assert node.got(Kind.REQUEST_ITEM, Kind.REQUEST_END) == []
    counters = net.router.dispatch.requests.counters
    assert counters["item of an unknown request"] == 2 and counters["grant of an unknown call"] == 1


def test_a_call_that_is_cancelled_ends_its_stream(api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request)
    api.cancel(call)
    assert node.take(Kind.CANCEL).key == request.key
    item(api, call)
    assert node.got(Kind.REQUEST_ITEM) == []


def test_a_caller_that_goes_ends_its_stream(net: Network, api: Process, node: Process):
    _, request = begin(api, node)
    grant(node, request)
    api.stop()
    assert node.take(Kind.CANCEL).key == request.key


def test_an_idempotent_request_goes_to_another_consumer_until_its_stream_is_begun(net: Network, api: Process):
    nodes = [net.process(name, **KNOWS) for name in ("node-1", "node-2")]
    for each in nodes:
        each.register("files")
    call = api.request("files", format=4, flags=Flag.STREAM | Flag.IDEMPOTENT)
    first = next(each for each in nodes if each.inbox and each.got(Kind.REQUEST))
    first.stop()
    second = nodes[1 - nodes.index(first)]
    request = second.take(Kind.REQUEST)
    assert request.header.attempt == 1 and call.ends == []
    grant(second, request)
    second.stop()
    assert call.end.outcome is Outcome.LINK_LOST
    assert "items of its stream were sent, which no other consumer can be given" in call.end.body["text"]


def test_a_request_whose_stream_is_begun_is_not_given_back(net: Network, api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request)
    node.send(Kind.GIVE_BACK, key=request.key, attempt=0, consumer=request.header.consumer)
    assert call.end.outcome is Outcome.LINK_LOST and node.got(Kind.REQUEST) == []


def test_groups_get_no_copy(net: Network, api: Process, node: Process):
    audit = net.process("audit", **KNOWS)
    audit.register("files", group="audit")
    begin(api, node)
    assert audit.got(Kind.CAST) == []
    assert net.router.dispatch.requests.counters["not copied to groups: with a stream"] == 1


def test_an_item_that_finds_no_room_ends_the_call():
    net = Network(Settings(outbox_max_bytes=1 << 20))
    api, node = net.process("api"), net.process("node", **KNOWS)
    call, request = begin(api, node)
    grant(node, request, size_bytes=8 << 20)
    item(api, call, bytes(1 << 20))
    assert call.end.outcome is Outcome.LINK_LOST and "link.outbox_max_bytes" in call.end.body["text"]


def test_another_link_cannot_send_items(net: Network, api: Process, node: Process):
    call, request = begin(api, node)
    grant(node, request)
    mallory = net.process("mallory")
    mallory.send(Kind.REQUEST_ITEM, b"forged", key=call.key)
    mallory.send(Kind.REQUEST_GRANT, grant_payload(1, 1), key=call.key)
    assert node.got(Kind.REQUEST_ITEM) == [] and call.ends == []


def test_a_stream_to_a_process_itself(net: Network, node: Process):
    call, request = begin(node, node)
    grant(node, request)
    assert node.take(Kind.REQUEST_GRANT).key == call.key
    item(node, call, b"own")
    assert node.take(Kind.REQUEST_ITEM).payload == b"own"
