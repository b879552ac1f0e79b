"""Forged or unending SETTLE, GRANT, ITEM, ALIVE, TAKEN and answers: they change nothing of what is others'."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import MAX_SETTLEMENTS, SETTLEMENT, Flag, Kind, pack, payload_of


@pytest.fixture
def node(net: Network) -> Process:
    process = net.process("node")
    process.register("compute", credit=100)
    return process


@pytest.fixture
def mallory(net: Network) -> Process:
    """A consumer of a topic of its own."""
    process = net.process("mallory")
    process.register("other", credit=100)
    return process


def settlements(process: Process, *records: tuple[bytes, int, int, int], tag: int = 0) -> None:
    payload = b"".join(SETTLEMENT.pack(*record) for record in records)
    process.send(Kind.SETTLE, payload, consumer=tag)


def counted(net: Network) -> dict[str, int]:
    return dict(net.router.dispatch.requests.counters)


# --- SETTLE --------------------------------------------------------------------------------------


def test_nobody_settles_what_another_has(net: Network, api: Process, node: Process, mallory: Process) -> None:
    api.cast("compute")
    cast = node.take(Kind.CAST)
    for tag in (0, 1, 200):
        settlements(mallory, (cast.key, 0, 0, 1), tag=tag)
    assert net.router.dispatch.requests.counters["settlement of an unknown cast"] == 1
    assert net.router.dispatch.requests.counters["settlement of an unknown consumer"] == 2
    (consumer,) = net.link(node).consumers.values()
    assert len(consumer.in_flight) == 1
    node.settle(cast)
    assert not consumer.in_flight and consumer.settled == 1


def test_a_cast_is_settled_once_and_a_call_not_at_all(net: Network, api: Process, node: Process) -> None:
    api.cast("compute")
    call = api.request("compute")
    cast, request = node.take(Kind.CAST), node.take(Kind.REQUEST)
    record = (cast.key, 0, 0, 1)
    settlements(node, record, record, (request.key, 0, 0, 1), (cast.key, 3, 0, 1), (bytes(20), 0, 0, 1))
    assert counted(net)["settlement of an unknown cast"] == 4
    node.reply(request, b"answer")
    assert call.end.payload == b"answer"
    (consumer,) = net.link(node).consumers.values()
    assert consumer.settled == 2


@pytest.mark.parametrize("outcome", [2, 11, 200, 255])
def test_an_outcome_that_is_none_is_counted_and_costs_nothing_else(
    net: Network, api: Process, node: Process, outcome: int
) -> None:
    for _ in range(2):
        api.cast("compute")
    first, second = node.take(Kind.CAST), node.take(Kind.CAST)
    settlements(node, (first.key, 0, outcome, 1), (second.key, 0, 0, 1))
    (consumer,) = net.link(node).consumers.values()
    assert not consumer.in_flight and consumer.settled == 2 and not net.router.refused
    (row,) = api.query("methods")["methods"]
    assert row["outcomes"]["ok"] == 1 and row["errors"] == 1


def test_a_settle_has_no_more_records_than_a_consumer_may_have_in_flight(
    net: Network, api: Process, node: Process
) -> None:
    api.cast("compute")
    cast = node.take(Kind.CAST)
    forged = SETTLEMENT.pack(bytes(20), 0, 0, 1) * MAX_SETTLEMENTS
    node.send(Kind.SETTLE, forged + SETTLEMENT.pack(cast.key, 0, 0, 1), consumer=0)
    assert net.router.refused == {"length": 1}
    assert "settlement of an unknown cast" not in counted(net)
    node.send(Kind.SETTLE, forged[SETTLEMENT.size :] + SETTLEMENT.pack(cast.key, 0, 0, 1), consumer=0)
    (consumer,) = net.link(node).consumers.values()
    assert not consumer.in_flight and consumer.settled == 1


def test_many_records_are_a_turn(net: Network, node: Process) -> None:
    assert node.connection is not None
    forged = pack(Kind.SETTLE, SETTLEMENT.pack(bytes(20), 0, 0, 1) * 1200, consumer=0)
    net.router.receive(net.now, node.connection.route, forged * 20)
    assert net.link(node).inbox


# --- GRANT ---------------------------------------------------------------------------------------


def test_a_grant_reaches_the_own_stream_and_no_other(net: Network, api: Process, node: Process) -> None:
    call = api.request("compute", flags=Flag.STREAM)
    other = net.process("other-caller")
    other.send(Kind.GRANT, (5).to_bytes(4), key=call.key)
    assert node.got(Kind.GRANT) == []
    api.grant(call, 5)
    assert [m.payload for m in node.got(Kind.GRANT)] == [(5).to_bytes(4)]


@pytest.mark.parametrize("items", [1, 1000, 2**32 - 1])
def test_grants_without_end_are_bounded_and_end_the_stream(
    net: Network, api: Process, node: Process, items: int
) -> None:
    call = api.request("compute", flags=Flag.STREAM)
    honest = api.request("compute")
    node.got()
    for _ in range(5000):
        api.grant(call, items)
    granted = sum(int.from_bytes(m.payload) for m in node.inbox if m.kind is Kind.GRANT)
    assert granted <= 1024
    assert call.end.outcome is Outcome.PROTOCOL and "1024" in call.end.body["text"]
    assert [m.kind for m in node.inbox if m.kind is not Kind.GRANT] == [Kind.CANCEL]
    assert honest.ends == []


def test_a_grant_of_nothing_is_for_the_router_alone(net: Network, api: Process, node: Process) -> None:
    call = api.request("compute", flags=Flag.STREAM, ttl=10)
    for _ in range(100):
        net.advance(5)
        api.grant(call, 0)
    assert call.ends == [] and node.got(Kind.GRANT) == []


# --- ITEM and ALIVE --------------------------------------------------------------------------------


def test_items_beyond_what_was_granted_end_the_stream(net: Network, api: Process, node: Process) -> None:
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    api.grant(call, 4)
    for number in range(100):
        node.item(request, b"%d" % number)
    *items, end = call.answers
    assert [m.payload for m in items] == [b"%d" % number for number in range(20)]
    assert end.kind is Kind.ERROR and end.outcome is Outcome.PROTOCOL
    assert "node sent more items than were granted" in end.body["text"]
    assert node.take(Kind.CANCEL).key == call.key
    # What it says after that is of nobody's call; and its place is free again when it has ended it.
    node.end(request)
    assert call.answers[-1] is end
    (consumer,) = net.link(node).consumers.values()
    assert not consumer.in_flight


def test_another_consumer_of_an_idempotent_stream_may_begin_again(net: Network, api: Process, node: Process) -> None:
    call = api.request("compute", flags=Flag.STREAM | Flag.IDEMPOTENT)
    first = node.take(Kind.REQUEST)
    for _ in range(16):
        node.item(first)
    node.die()
    second = net.process("second")
    second.register("compute")
    net.advance(1.0)
    again = second.take(Kind.REQUEST)
    for _ in range(16):
        second.item(again)
    second.end(again)
    assert [m.kind for m in call.answers] == [Kind.ITEM] * 32 + [Kind.END]


def test_a_call_that_asked_for_no_stream_is_not_kept_open_by_items(net: Network, api: Process, node: Process) -> None:
    call = api.request("compute", ttl=5)
    request = node.take(Kind.REQUEST)
    for _ in range(10):
        net.advance(1.0)
        node.item(request, b"still at it")
        api.grant(call, 1)
    assert call.end.outcome is Outcome.TIMEOUT


def test_signs_of_life_without_end_are_not_kept_for_a_caller_that_does_not_take_them(
    net: Network, api: Process, node: Process
) -> None:
    call = api.request("compute", ttl=600)
    request = node.take(Kind.REQUEST)
    api.pause()
    assert node.connection is not None
    alive = pack(Kind.ALIVE, b"x" * 1000, key=request.key, consumer=0, format=1)
    for _ in range(100):
        net.router.receive(net.now, node.connection.route, alive * 200)
        net.router.run_next_turn(net.now)
    assert len(net.link(api).outbox) <= 1001
    assert counted(net)["keep-alives dropped: outbox full"] == 20_000 - len(net.link(api).outbox)
    large = pack(Kind.ALIVE, bytes(4 << 20), key=request.key, consumer=0, format=1)
    net.link(api).outbox.clear()
    for _ in range(20):
        net.router.receive(net.now, node.connection.route, large, [payload_of(large)])
    assert len(net.link(api).outbox) <= 4
    # What it waits for comes all the same.
    api.resume()
    node.reply(request, b"answer")
    assert call.end.payload == b"answer"


def test_large_items_for_a_caller_that_does_not_take_them_end_the_call_and_not_its_link(
    make_net: Any,
) -> None:
    net = make_net(outbox_max_bytes=1 << 20)
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=100)
    call, honest = api.request("compute", flags=Flag.STREAM), api.request("compute")
    request, other = node.take(Kind.REQUEST), node.take(Kind.REQUEST)
    api.pause()
    for _ in range(16):
        node.item(request, bytes(400_000))
    net.advance(2.0)
    api.resume()
    node.reply(other, b"answer")
    assert honest.end.payload == b"answer"
    assert call.end.outcome is Outcome.LINK_LOST and "link.outbox_max_bytes = 1048576" in call.end.body["text"]


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT, Kind.END, Kind.ITEM, Kind.ALIVE])
def test_answers_to_what_one_does_not_have_change_nothing(
    net: Network, api: Process, node: Process, mallory: Process, kind: Kind
) -> None:
    call = api.request("compute", flags=Flag.STREAM)
    request = node.take(Kind.REQUEST)
    for key in (call.key, bytes(20), b"\xff" * 20):
        for tag in (0, 1, 255):
            mallory.send(kind, b"forged", key=key, consumer=tag, format=1)
    node.send(kind, b"of another attempt", key=call.key, consumer=0, attempt=1, format=1)
    node.send(kind, b"of another registration", key=call.key, consumer=7, format=1)
    assert call.answers == []
    node.end(request)
    node.end(request)
    node.item(request, b"after the end")
    assert [m.kind for m in call.answers] == [Kind.END]


@pytest.mark.parametrize(
    "kind",
    [Kind.DELIVERED, Kind.CONFIRM, Kind.REGISTERED, Kind.SUBSCRIBED, Kind.ERROR, Kind.ANSWER, Kind.LOST,
     Kind.INTRODUCTION, Kind.DROPPED, Kind.WELCOME],
)  # fmt: skip
def test_what_only_a_router_says_is_refused_and_passed_on_to_nobody(
    net: Network, api: Process, node: Process, mallory: Process, kind: Kind
) -> None:
    api.cast("compute", flags=Flag.CONFIRM)
    call = api.request("compute")
    before = len(api.received), len(node.received)
    for payload in (b"", call.key[12:], b'{"outcome": 0}', bytes(4)):
        mallory.inject(pack(kind, payload, key=call.key))
        mallory.inject(pack(kind, payload, key=bytes(20)))
    assert (len(api.received), len(node.received)) == before
    assert sum(net.router.refused.values()) == 8


def test_events_given_back_that_were_never_had_open_no_window(net: Network, api: Process) -> None:
    sub = net.process("sub", "pubsub")
    sub.subscribe("#", window=3)
    for items in (1, 1000, 2**32 - 1):
        sub.taken(items)
    for number in range(10):
        api.publish("a", b"%d" % number)
    assert len(sub.got(Kind.PUBLISH)) == 3
    for length in (0, 3, 5, 400):
        sub.send(Kind.EVENT_CREDIT, bytes(length))
    assert net.router.refused == {"length": 4}
