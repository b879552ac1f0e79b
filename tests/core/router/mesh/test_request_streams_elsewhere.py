"""Request streams whose consumers are linked to other routers: over one link, over relays, and when a router goes."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.common.stream_credit import UNASKED_BYTES
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import Call, MeshNetwork, Message, Process
from rpcmq.wire import Flag, Kind
from rpcmq.wire.pieces import PIECE_BYTES
from rpcmq.wire.stream_grant import grant_payload

KNOWS: dict[str, Any] = {"accepts": ("json", "pickle", "request-streams")}


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


def begin(net: MeshNetwork, flags: int = 0, to: str = "b") -> tuple[Process, Call, Process, Message]:
    api, node = net.process("api", router="a"), net.process("node", router=to, **KNOWS)
    node.register("files")
    net.advance(1.0)
    call = api.request("files", format=4, flags=Flag.STREAM | flags, ttl=30)
    request = node.take(Kind.REQUEST)
    grant(node, request)
    return api, call, node, request


def grant(node: Process, request: Message, items: int = 16, size_bytes: int = 8 << 20) -> None:
    header, payload = request.header, grant_payload(items, size_bytes)
    fields = {"attempt": header.attempt, "hops": header.hops, "consumer": header.consumer}
    node.send(Kind.REQUEST_GRANT, payload, key=request.key, **fields)


def item(api: Process, call: Call, payload: bytes, kind: Kind = Kind.REQUEST_ITEM) -> None:
    granted = api.received[-1].header if api.received else None
    attempt = granted.attempt if granted is not None else 0
    api.send(kind, payload, key=call.key, attempt=attempt)


def test_items_and_grants_cross_and_the_answer_comes_home(net: MeshNetwork) -> None:
    api, call, node, request = begin(net)
    assert api.take(Kind.REQUEST_GRANT).payload == grant_payload(16, 8 << 20)
    for number in range(16):
        item(api, call, b"%d" % number)
    grant(node, request, 2)
    item(api, call, b"16")
    item(api, call, b"", Kind.REQUEST_END)
    assert [m.payload for m in node.got(Kind.REQUEST_ITEM)] == [b"%d" % n for n in range(17)]
    assert node.take(Kind.REQUEST_END).key == call.key
    node.reply(request, b"17 items")
    assert call.end.payload == b"17 items"


def test_an_item_that_is_cut_into_pieces_on_its_way_comes_whole(net: MeshNetwork) -> None:
    api, call, node, _ = begin(net)
    large = bytes(range(256)) * (PIECE_BYTES * 3 // 256)
    item(api, call, large)
    net.advance(1.0)
    assert node.take(Kind.REQUEST_ITEM).payload == large


def test_a_stop_and_both_directions_cross(net: MeshNetwork) -> None:
    api, call, node, request = begin(net)
    item(api, call, b"question")
    node.item(request, b"answer")
    assert api.take(Kind.ITEM).payload == b"answer"
    header = request.header
    node.send(Kind.REQUEST_STOP, key=request.key, attempt=header.attempt, consumer=header.consumer)
    assert api.take(Kind.REQUEST_STOP).key == call.key
    item(api, call, b"late")
    assert [m.payload for m in node.got(Kind.REQUEST_ITEM)] == [b"question"]
    node.end(request)
    assert call.end.kind is Kind.END


def test_progress_of_the_stream_puts_the_deadline_off_at_both_routers(net: MeshNetwork) -> None:
    api, call, _, _ = begin(net)
    for _ in range(4):
        net.advance(20.0)
        item(api, call, b"x")
    assert call.ends == []
    net.advance(31.0)
    assert call.end.outcome is Outcome.TIMEOUT


def test_items_that_were_not_granted_end_the_call_at_the_callers_router(net: MeshNetwork) -> None:
    api, call, node, _ = begin(net)
    for _ in range(17):
        item(api, call, b"x")
    assert call.end.outcome is Outcome.PROTOCOL and node.take(Kind.CANCEL).key == call.key


def test_an_older_consumer_elsewhere_is_given_none(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b")
    node.register("files")
    net.advance(1.0)
    call = api.request("files", format=4, flags=Flag.STREAM, ttl=30)
    assert node.got(Kind.REQUEST) == [] and call.end.outcome is Outcome.PROTOCOL


@pytest.mark.parametrize("flags", [0, Flag.IDEMPOTENT])
def test_the_router_of_a_consumer_that_dies_ends_the_call(net: MeshNetwork, flags: int) -> None:
    _, call, _, _ = begin(net, flags)
    other = net.process("other", router="c", **KNOWS)
    other.register("files")
    net.advance(1.0)
    net.hosts["b"].kill()
    net.advance(20.0)
    assert call.end.outcome is Outcome.LINK_LOST and other.got(Kind.REQUEST) == []
    assert "items of its stream were sent" in call.end.body["text"]


def test_the_router_of_the_caller_that_dies_cancels_it(net: MeshNetwork) -> None:
    _, _, node, request = begin(net)
    net.hosts["a"].kill()
    net.advance(20.0)
    assert node.take(Kind.CANCEL).key == request.key


def test_a_consumer_elsewhere_that_is_lost_ends_it_and_no_other_is_given_it(net: MeshNetwork) -> None:
    _, call, node, _ = begin(net, Flag.IDEMPOTENT)
    other = net.process("other", router="c", **KNOWS)
    other.register("files")
    net.advance(1.0)
    node.stop()
    net.advance(5.0)
    assert call.end.outcome is Outcome.LINK_LOST and other.got(Kind.REQUEST) == []


def test_over_another_router_where_two_are_not_linked(net: MeshNetwork) -> None:
    net.cut("a", "b")
    net.advance(10.0)
    api, call, node, request = begin(net)
    payload = bytes(range(256)) * 1024
    for _ in range(8):
        item(api, call, payload)
        net.advance(0.1)
    assert [m.payload for m in node.got(Kind.REQUEST_ITEM)] == [payload] * 8
    node.reply(request, b"done")
    net.advance(1.0)
    assert call.end.payload == b"done"


def test_bytes_of_an_answer_are_granted_and_counted_across_routers(net: MeshNetwork) -> None:
    api, node = net.process("api", router="a"), net.process("node", router="b", **KNOWS)
    node.register("files")
    net.advance(1.0)
    call = api.request("files", flags=Flag.STREAM | Flag.BYTE_CREDIT, ttl=30)
    request = node.take(Kind.REQUEST)
    assert request.header.flags & Flag.BYTE_CREDIT
    node.item(request, bytes(1 << 20), Flag.BYTE_CREDIT)
    assert api.take(Kind.ITEM).header.flags & Flag.BYTE_CREDIT
    api.grant(call, 1, (1 << 20) + 5)
    assert node.take(Kind.GRANT).payload == grant_payload(1, (1 << 20) + 5)
    node.item(request, bytes(UNASKED_BYTES + 5), Flag.BYTE_CREDIT)
    assert call.ends == []
    node.item(request, b"one too many", Flag.BYTE_CREDIT)
    assert call.end.outcome is Outcome.PROTOCOL


def test_grants_of_one_caller_end_its_streams_and_not_those_of_another_where_the_service_is_elsewhere() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0, outbox_max_messages=400))
    net.advance(2.0)
    greedy, honest = net.process("greedy", router="a"), net.process("honest", router="a")
    node = net.process("node", router="b")
    node.register("compute", credit=20)
    net.advance(1.0)
    flags = Flag.STREAM | Flag.BYTE_CREDIT
    calls, others = ([of.request("compute", flags=flags, ttl=30) for _ in range(8)] for of in (greedy, honest))
    for request in node.got(Kind.REQUEST):
        node.item(request, b"x", Flag.BYTE_CREDIT)
    with net.together():  # the service's router takes nothing meanwhile
        for _ in range(50):
            for call in calls:
                greedy.grant(call, 1, 1)
        for call in others:
            honest.grant(call, 1, 1)
    assert all(call.end.outcome is Outcome.LINK_LOST for call in calls)
    assert [call.ends for call in others] == [[]] * 8
    assert {grant.key for grant in node.got(Kind.GRANT)} >= {call.key for call in others}
