"""The dispatch log: each message that the router numbers ends in exactly one record, which says how it went."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from rpcmq.core.router import dispatch_log
from rpcmq.core.router.dispatch_log import CHUNK_RECORDS
from rpcmq.errors import Outcome
from rpcmq.log_format import MessageKind
from rpcmq.testing.network import Network, Process
from rpcmq.wire import DETACH_BYTES, Flag, Kind, pack
from tests.core.router.logged import LONG, Memory, converse, ended, one

TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def net(make_logged: Callable[..., Network]) -> Network:
    return make_logged()


def test_what_has_ended_is_written_within_a_quarter_of_a_second(
    net: Network, sink: Memory, api: Process, node: Process
):
    """Records not written yet are lost if the router is killed."""
    node.register("compute", server="node-7")
    net.advance(3.1)
    for number in range(1, 4):
        api.request("compute", "reboot", b"{}")
        request = node.take(Kind.REQUEST)
        node.send(Kind.REPLY, b"done", key=request.key, consumer=request.header.consumer)
        assert len([r for r in sink.entries() if r.outcome is not None]) < number
        net.advance(0.25)
        assert len([r for r in sink.entries() if r.outcome is not None]) == number


# --- how a call ends ----------------------------------------------------------------------------


def test_a_call_that_was_answered(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", server="node-7")
    api.request("compute", "reboot", b"{}", ttl=30, trace=TRACEPARENT, exchange="")
    request = node.take(Kind.REQUEST)
    net.advance(0.25)
    node.send(Kind.REPLY, b"done", key=request.key, consumer=request.header.consumer, ttl=200_000)
    record = one(net, sink)
    assert (record.seq, record.kind, record.outcome) == (1, MessageKind.CALL, Outcome.OK)
    assert (record.topic, record.method, record.target_server, record.caller) == ("compute", "reboot", "", "api")
    assert (record.server, record.server_identity) == ("node-7", "node")
    assert (record.queued_us, record.service_us, record.total_us) == (0, 250_000, 250_000)
    assert record.handler_us == 200_000 and record.ttl_ms == 30_000
    assert record.received_us == 1_700_000_000_000_000
    assert record.reply_bytes == 44 and record.request_bytes == len(request.message)
    assert record.trace_id == bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736")
    assert (record.origin_router, record.handle, record.sequence) == (
        request.header.router,
        request.header.handle,
        request.header.sequence,
    )


def test_a_fault_and_a_reply_that_is_malformed(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    node.fault(node.take(Kind.REQUEST), b"ValueError")
    api.request("compute")
    request = node.take(Kind.REQUEST)
    node.inject(pack(Kind.REPLY, key=request.key, consumer=request.header.consumer, method=b"x"))
    assert [r.outcome for r in ended(net, sink)] == [Outcome.REMOTE_ERROR, Outcome.PROTOCOL]


def fault(node: Process, name: bytes, payload: bytes = b"record", **fields: Any) -> None:
    request = node.take(Kind.REQUEST)
    values = {"key": request.key, "consumer": request.header.consumer, "format": 1, "method": name} | fields
    node.send(Kind.FAULT, payload, **values)


@pytest.mark.parametrize("payload", [b"record", b"", b"r" * DETACH_BYTES])
def test_a_fault_that_names_its_class(net: Network, sink: Memory, api: Process, node: Process, payload: bytes):
    node.register("compute")
    call = api.request("compute")
    fault(node, b"ValueError", payload)
    assert call.end.kind is Kind.FAULT and call.end.payload == payload
    assert (call.end.header.method_length, call.end.header.trace_length) == (0, 0)
    record = one(net, sink)
    assert (record.outcome, record.error_class) == (Outcome.REMOTE_ERROR, "ValueError")
    assert record.reply_bytes == 40 + len(payload)


@pytest.mark.parametrize("name", [b"", b"a\nb", b"\xff\xfe", b"x" * 101, b"x" * 255])
def test_a_name_that_is_none_is_dropped_and_the_fault_is_not(
    net: Network, sink: Memory, api: Process, node: Process, name: bytes
):
    node.register("compute")
    call = api.request("compute")
    fault(node, name)
    assert (call.end.kind, call.end.payload, call.end.header.method_length) == (Kind.FAULT, b"record", 0)
    record = one(net, sink)
    assert (record.outcome, record.error_class) == (Outcome.REMOTE_ERROR, None)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [(Kind.FAULT, {"trace": b"x"}), (Kind.FAULT, {"address": b"xx"}), (Kind.REPLY, {}), (Kind.END, {})],
)
def test_a_name_in_the_wrong_place_is_malformed(
    net: Network, sink: Memory, api: Process, node: Process, kind: Kind, fields: dict[str, Any]
):
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    node.send(kind, b"record", key=request.key, consumer=request.header.consumer, method=b"E", **fields)
    assert call.end.kind is Kind.ERROR
    assert (one(net, sink).outcome, one(net, sink).error_class) == (Outcome.PROTOCOL, None)


def test_a_name_that_is_longer_than_its_message_is_malformed(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    request = node.take(Kind.REQUEST)
    short = pack(Kind.FAULT, b"x", key=request.key, consumer=request.header.consumer)
    node.inject(short[:38] + b"\2" + short[39:])
    assert call.end.kind is Kind.ERROR
    assert one(net, sink).outcome == Outcome.PROTOCOL


def test_classes_are_said_once_in_a_file(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    for name in (b"ValueError", b"KeyError", b"ValueError"):
        api.request("compute")
        fault(node, name)
    assert [r.error_class for r in ended(net, sink)] == ["ValueError", "KeyError", "ValueError"]
    assert sum(chunk.name_count for chunk in sink.chunks) == 5


def test_a_class_has_its_place_in_a_full_buffer(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    converse(net, api, node, CHUNK_RECORDS - 2)
    for number in range(5):
        api.request("compute")
        fault(node, b"Error%d" % number)
    classes = [r.error_class for r in ended(net, sink)]
    assert classes == [None] * (CHUNK_RECORDS - 2) + [f"Error{number}" for number in range(5)]


def test_classes_that_find_no_number_are_not_said(
    net: Network, sink: Memory, api: Process, node: Process, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dispatch_log, "MAX_ERROR", 4)
    node.register("compute")
    for name in (b"A", b"B", b"A"):
        api.request("compute")
        fault(node, name)
    assert [r.error_class for r in ended(net, sink)] == ["A", None, "A"]


# --- everything ---------------------------------------------------------------------------------


@pytest.mark.parametrize("unclaimed_seconds", [2.0, 1000 * LONG])
@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_each_number_has_one_record(
    make_logged: Callable[..., Network], sink: Memory, seed: int, unclaimed_seconds: float
):
    # The fixture looks at the numbers, and at the live view, when this is over.
    net = make_logged(
        queue_max_messages=3, max_calls_in_flight=12, unclaimed_seconds=unclaimed_seconds, segment_seconds=3.0
    )
    chance = random.Random(seed)
    names = iter(range(10_000))
    people = [net.process(f"p{next(names)}") for _ in range(4)]
    topics = ("a", "b", "c")
    flags = (0, 0, Flag.MANDATORY, Flag.IDEMPOTENT, Flag.CONFIRM)
    for _ in range(1500):
        who = chance.choice(people)
        match chance.randrange(12):
            case 0 | 1 | 2:
                who.request(chance.choice(topics), ttl=chance.choice((0.5, 5, 50)), flags=chance.choice(flags))
            case 3 | 4:
                who.cast(chance.choice(topics), flags=chance.choice(flags), format=chance.choice((1, 1, 3)))
            case 5:
                who.cast(chance.choice(topics), flags=Flag.FANOUT | chance.choice(flags))
            case 6 | 7:
                for request in who.got(Kind.REQUEST):
                    chance.choice((who.reply, who.fault, who.end))(request)
                for cast in who.got(Kind.CAST):
                    who.settle(cast, outcome=chance.choice(list(Outcome)))
            case 8:
                if len(net.link(who).consumers) < 4:
                    who.register(
                        chance.choice(topics),
                        server=chance.choice(("", "s1", "s2")),
                        group=chance.choice(("", "", "g")),
                        credit=chance.randrange(1, 3),
                    )
            case 9:
                if consumers := list(net.link(who).consumers):
                    who.unregister(chance.choice(consumers))
            case 10:
                net.advance(chance.choice((0.01, 0.3, 2.0)))
            case 11:
                if chance.random() < 0.2:
                    people.remove(who)
                    who.stop()
                    people.append(net.process(f"p{next(names)}"))
    assert net.router.dispatch.requests.last_number > 300
