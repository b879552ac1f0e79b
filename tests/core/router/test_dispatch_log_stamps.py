"""The dispatch log: the time at which a service sent its answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.errors import Outcome
from rpcmq.testing.network import Network, Process
from rpcmq.wire import DETACH_BYTES, NO_TTL, Flag, Kind
from tests.core.router.logged import Memory, ended, one

TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def net(make_logged: Callable[..., Network]) -> Network:
    return make_logged()


def stamp(node: Process, sent_us: int) -> None:
    node.send(Kind.CLOCK_STAMP, key=bytes(12) + sent_us.to_bytes(8))


def test_a_router_with_a_log_asks_when_answers_are_sent(api: Process, make_net: Callable[..., Network]):
    assert api.welcome.stamps is True and api.uplink.wants_stamps
    other = make_net().process("api")
    assert other.welcome.stamps is False and not other.uplink.wants_stamps


def test_an_answer_was_sent_when_its_service_said_last(net: Network, sink: Memory, api: Process, node: Process):
    other = net.process("other")
    node.register("compute", credit=3)
    other.register("image")
    for _ in range(3):
        api.request("compute")
    api.request("image")
    first, second, third = node.got(Kind.REQUEST)
    node.reply(first)
    stamp(node, 5_000_000)
    stamp(other, 2**64 - 1)
    node.reply(second)
    stamp(node, 6_000_000)
    node.send(Kind.FAULT, b"", key=third.key, format=1, consumer=third.header.consumer, method=b"ValueError")
    other.reply(other.take(Kind.REQUEST))
    records = ended(net, sink)
    assert [r.sent_us for r in records] == [None, 5_000_000, 6_000_000, 2**64 - 1]
    assert [r.error_class for r in records] == [None, None, "ValueError", None]


def test_so_was_a_settlement(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", credit=2)
    api.cast("compute")
    api.cast("compute")
    stamp(node, 7)
    node.settle(*node.got(Kind.CAST))
    assert [r.sent_us for r in ended(net, sink)] == [7, 7]


def test_what_nobody_has_was_sent_by_nobody(net: Network, sink: Memory, api: Process):
    api.request("compute", flags=Flag.MANDATORY)
    assert one(net, sink).sent_us is None


def test_a_call_that_hangs_has_no_answer(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    stamp(node, 7)
    api.request("compute")
    net.advance(3.0)
    (entry,) = sink.entries()
    assert (entry.outcome, entry.sent_us) == (None, None)


def test_a_process_that_resumes_need_not_say_it_again(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    stamp(node, 7)
    api.request("compute")
    node.lose()
    node.connect()
    assert node.welcomes[-1].resumed
    node.reply(node.take(Kind.REQUEST))
    assert one(net, sink).sent_us == 7


def test_a_process_that_starts_over_has_said_nothing(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    stamp(node, 7)
    node.lose()
    node.uplink.received = 10**6
    node.connect()
    assert not node.welcomes[-1].resumed
    node.register("compute")
    api.request("compute")
    node.reply(node.take(Kind.REQUEST))
    assert one(net, sink).sent_us is None


@pytest.mark.parametrize(
    "fields",
    [{"payload": b"x"}, {"address": b"a"}, {"method": b"m"}, {"trace": b"t"}, {"payload": bytes(DETACH_BYTES)}],
)
def test_a_stamp_is_a_header_and_nothing_else(
    net: Network, sink: Memory, api: Process, node: Process, fields: dict[str, bytes]
):
    node.register("compute")
    api.request("compute")
    node.send(Kind.CLOCK_STAMP, key=b"k" * 20, **fields)
    node.reply(node.take(Kind.REQUEST))
    assert net.router.refused == {"length": 1} and net.link(node).counters["refused length"] == 1
    assert one(net, sink).sent_us is None


def test_a_queued_call_says_how_long_it_was_queued(net: Network, sink: Memory, api: Process, node: Process):
    api.request("compute", ttl=30)
    net.advance(0.5)
    node.register("compute")
    net.advance(0.1)
    node.reply(node.take(Kind.REQUEST))
    record = one(net, sink)
    assert (record.queued_us, record.service_us, record.total_us) == (500_000, 100_000, 600_000)


def test_a_call_that_nobody_took_was_queued_all_the_time(net: Network, sink: Memory, api: Process):
    api.request("compute", ttl=0.5)
    net.advance(0.5)
    record = one(net, sink)
    assert (record.outcome, record.server, record.service_us, record.handler_us) == (Outcome.TIMEOUT, None, None, None)
    assert record.queued_us == record.total_us == pytest.approx(500_000, abs=20_000)


def test_a_call_that_timed_out_at_its_server_is_written_once(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", server="node-7")
    api.request("compute", ttl=0.5)
    request = node.take(Kind.REQUEST)
    net.advance(0.6)
    node.reply(request)
    record = one(net, sink)
    assert (record.outcome, record.server, record.reply_bytes) == (Outcome.TIMEOUT, "node-7", 0)


def test_a_call_that_was_cancelled(net: Network, sink: Memory, api: Process):
    api.cancel(api.request("compute"))
    assert one(net, sink).outcome == Outcome.CANCELLED


def test_calls_of_a_caller_that_left(net: Network, sink: Memory, api: Process):
    api.request("compute")
    api.stop()
    record = one(net, sink)
    assert (record.outcome, record.caller) == (Outcome.CANCELLED, "api")


def test_a_mandatory_call_without_consumer(net: Network, sink: Memory, api: Process):
    api.request("compute", flags=Flag.MANDATORY)
    assert one(net, sink).outcome == Outcome.NO_CONSUMER


def test_a_call_beyond_the_bounds(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged(max_calls_in_flight=2, queue_max_messages=1)
    api = net.process("api")
    for _ in range(3):
        api.request("compute")
    api.request("other")
    api.request("more")
    assert [r.outcome for r in ended(net, sink)] == [Outcome.OVERLOADED] * 3


def test_a_server_that_dies_and_the_next_attempt(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", server="one", credit=2)
    other = net.process("other")
    api.request("compute")
    api.request("compute", flags=Flag.IDEMPOTENT)
    assert len(node.got(Kind.REQUEST)) == 2
    other.register("compute", server="two")
    node.stop()
    other.reply(other.take(Kind.REQUEST))
    lost, done = ended(net, sink)
    assert (lost.outcome, lost.server, lost.attempt) == (Outcome.LINK_LOST, "one", 0)
    assert (done.outcome, done.server, done.attempt) == (Outcome.OK, "two", 1)


def test_large_messages_count_with_their_payload(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    api.request("compute", payload=b"q" * DETACH_BYTES)
    node.reply(node.take(Kind.REQUEST), b"r" * 2 * DETACH_BYTES)
    record = one(net, sink)
    assert record.request_bytes > DETACH_BYTES and record.reply_bytes == 40 + 2 * DETACH_BYTES


@pytest.mark.parametrize("trace", [b"", b"00-", TRACEPARENT[:34], b"00-" + b"x" * 52])
def test_a_trace_that_is_none(net: Network, sink: Memory, api: Process, node: Process, trace: bytes):
    node.register("compute")
    api.request("compute", payload=b"ab" * 40, trace=trace)
    node.reply(node.take(Kind.REQUEST))
    assert one(net, sink).trace_id is None


def test_a_duplicate_gets_no_number(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    api.request("compute")
    request = node.take(Kind.REQUEST)
    again = request.message[:12] + NO_TTL.to_bytes(4) + request.message[16:]
    api.inject(again)
    assert net.router.refused["duplicate"] == 1
    node.reply(request)
    assert one(net, sink).seq == 1
