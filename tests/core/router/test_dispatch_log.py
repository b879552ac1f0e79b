"""The dispatch log: each message that the router numbers ends in exactly one record, which says how it went."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rpcmq.core.router import dispatch_log
from rpcmq.core.router.dispatch_log import CHUNK_RECORDS, Chunk
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.views import overview
from rpcmq.errors import Outcome
from rpcmq.latency.schema import outcome_name
from rpcmq.log_format import BlockKind, Head, MessageKind, Record, Seal, Spool, framed, pack_head
from rpcmq.testing.network import Network, Process
from rpcmq.wire import DETACH_BYTES, NO_TTL, Flag, Kind, pack
from tests.latency import live

#: With less, topics are forgotten while a test goes on, and what the live view has of them.
LONG = 60.0
TRACEPARENT = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Memory:
    """A sink that keeps what it gets, unless told not to."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []
        self.is_full = False
        self.refused = 0

    def write(self, chunk: Chunk) -> bool:
        if self.is_full:
            self.refused += chunk.record_count
            return False
        self.chunks.append(chunk)
        return True

    def statistics(self) -> dict[str, Any]:
        return {"dropped": self.refused}

    def files(self) -> list[Spool]:
        """The chunks as files, each read on its own."""
        segments: dict[int, list[Chunk]] = {}
        for chunk in self.chunks:
            segments.setdefault(chunk.segment, []).append(chunk)
        head = pack_head(Head(1, 0, 1, 1, 1, 0, 1000.0, 1_700_000_000_000_000, "router"))
        return [Spool(head + b"".join(b"".join(c.blocks()) for c in chunks)) for chunks in segments.values()]

    def entries(self) -> list[Record]:
        """All that is in the files."""
        return [record for spool in self.files() for record in spool]


@pytest.fixture
def sink() -> Memory:
    return Memory()


@pytest.fixture
def make_logged(sink: Memory) -> Iterator[Callable[..., Network]]:
    """Makes networks whose router logs to ``sink``.

    At their end no number may be without its record, and the live view must say what the records say.
    """
    made: list[Network] = []

    def make(**values: Any) -> Network:
        made.append(Network(Settings(**{"recovery_seconds": 0.0} | values), sink=sink))
        return made[-1]

    yield make
    for network in made:
        network.router.dispatch.check()
        assert [note.text for note in network.notes if note.event == "internal error"] == []
        view = overview(network.router, network.now, "methods")["methods"]
        unsettled = {pending.number for pending in network.router.dispatch.unsettled()}
        network.router.close(network.now)
        if not sink.refused:
            if network.settings.unclaimed_seconds >= LONG:
                check_live(view, [r for r in sink.entries() if r.outcome is not None and r.seq not in unsettled])
            numbers = sorted(r.seq for r in sink.entries() if r.outcome is not None)
            assert numbers == list(range(1, network.router.dispatch.requests.last_number + 1))


def check_live(view: list[dict[str, Any]], records: list[Record]) -> None:
    """The view counts what the records say, bucket for bucket."""
    expected = live.methods(
        live.Ended(
            live.live_name(r.exchange, r.topic, r.target_server, r.group), r.method, outcome_name(r.outcome), r.total_us
        )
        for r in records
        if r.outcome is not None
    )
    seen = {(row["topic"], row["method"]): {name: row[name] for name in ("outcomes", "histogram")} for row in view}
    assert {key: counted for key, counted in seen.items() if counted["outcomes"]} == expected


@pytest.fixture
def net(make_logged: Callable[..., Network]) -> Network:
    return make_logged()


@pytest.fixture
def api(net: Network) -> Process:
    return net.process("api")


@pytest.fixture
def node(net: Network) -> Process:
    return net.process("node")


def ended(net: Network, sink: Memory) -> list[Record]:
    """The records so far of what has ended, by seq."""
    net.advance(1.0)
    return sorted(record for record in sink.entries() if record.outcome is not None)


def one(net: Network, sink: Memory) -> Record:
    """The only record so far."""
    (record,) = ended(net, sink)
    return record


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


# --- when its answer was sent -------------------------------------------------------------------


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


# --- how a cast ends ----------------------------------------------------------------------------


def test_a_cast_that_was_settled(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", server="node-7")
    api.cast("compute", "reboot")
    node.settle(node.take(Kind.CAST), outcome=Outcome.REMOTE_ERROR)
    record = one(net, sink)
    assert (record.kind, record.outcome, record.caller) == (MessageKind.CAST, Outcome.REMOTE_ERROR, "api")
    assert (record.server, record.handler_us, record.reply_bytes) == ("node-7", 0, 0)


def test_a_cast_whose_caller_has_gone_still_names_it(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    api.cast("compute")
    api.stop()
    node.settle(node.take(Kind.CAST))
    assert one(net, sink).caller == "api"


def test_a_cast_that_aged_out(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged(unclaimed_seconds=0.5)
    api = net.process("api")
    api.cast("nowhere")
    api.cast("elsewhere", ttl=0.2)
    net.advance(1.0)
    assert [r.outcome for r in ended(net, sink)] == [Outcome.NO_CONSUMER, Outcome.TIMEOUT]


def test_a_cast_that_was_refused(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged(queue_max_messages=1)
    api = net.process("api")
    for _ in range(4):
        api.cast("compute")
    # The first waits, the second is refused; those behind it are not taken and come again.
    assert [(r.seq, r.outcome) for r in ended(net, sink)] == [(2, Outcome.OVERLOADED)]


def test_a_fanout_is_a_record_for_each_consumer(net: Network, sink: Memory, api: Process):
    nodes = [net.process(f"node-{i}") for i in range(3)]
    for i, node in enumerate(nodes):
        node.register("compute", server=f"s{i}")
    api.cast("compute", flags=Flag.FANOUT)
    for node in nodes:
        node.settle(node.take(Kind.CAST))
    records = ended(net, sink)
    assert [(r.kind, r.server, r.outcome) for r in records] == [
        (MessageKind.FANOUT, f"s{i}", Outcome.OK) for i in range(3)
    ]
    assert len({r.sequence for r in records}) == 1 and [r.seq for r in records] == [1, 2, 3]


def test_a_fanout_that_nobody_gets(net: Network, sink: Memory, api: Process):
    api.cast("compute", flags=Flag.FANOUT)
    api.cast("compute", flags=Flag.FANOUT | Flag.MANDATORY)
    assert [r.outcome for r in ended(net, sink)] == [Outcome.NO_CONSUMER] * 2


def test_copies_of_a_fanout_that_are_lost(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged(queue_max_messages=1)
    api, node = net.process("api"), net.process("node")
    deaf = net.process("deaf", accepts=["pickle"])
    node.register("compute", credit=1)
    deaf.register("compute", credit=1)
    for _ in range(3):
        api.cast("compute", flags=Flag.FANOUT, format=3)
    net.process("dill", accepts=["dill"]).register("dill", credit=1)
    for _ in range(3):
        api.cast("dill", flags=Flag.FANOUT, format=3)
    outcomes = Counter(r.outcome for r in ended(net, sink))
    assert outcomes == {Outcome.PROTOCOL: 6, Outcome.OVERLOADED: 1}


def test_groups_have_records_of_their_own(net: Network, sink: Memory, api: Process, node: Process):
    audit = net.process("audit")
    node.register("compute")
    audit.register("compute", group="audit")
    for _ in range(2):
        api.request("compute", "reboot")
        node.reply(node.take(Kind.REQUEST))
        audit.settle(audit.take(Kind.CAST))
    records = ended(net, sink)
    assert [(r.kind, r.group) for r in records] == [(MessageKind.CALL, ""), (MessageKind.CAST, "audit")] * 2
    assert sum(chunk.name_count for chunk in sink.chunks) == 5


def test_a_cast_that_is_answered_is_an_offence(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    api.cast("compute")
    node.reply(node.take(Kind.CAST))
    assert one(net, sink).outcome == Outcome.PROTOCOL


# --- calls that take long -----------------------------------------------------------------------


def hanging(sink: Memory) -> list[Record]:
    return [record for record in sink.entries() if record.outcome is None]


def test_a_call_that_takes_long_is_noted_once(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", server="node-7")
    net.advance(0.3)
    api.request("compute", "slow")
    api.request("nowhere")
    request = node.take(Kind.REQUEST)
    net.advance(0.9)
    assert hanging(sink) == []
    net.advance(5)
    assert [(r.seq, r.method, r.server) for r in hanging(sink)] == [(1, "slow", "node-7"), (2, "", None)]
    assert all(1_000_000 <= r.total_us < 2_100_000 for r in hanging(sink))
    node.reply(request)
    assert [r.seq for r in ended(net, sink)] == [1]


def test_a_call_that_ends_in_time_is_not_noted(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    for _ in range(20):
        api.request("compute")
        net.advance(0.9)
        node.reply(node.take(Kind.REQUEST))
    assert hanging(sink) == []


def test_many_that_hang_are_noted_a_few_at_a_time(net: Network, sink: Memory):
    callers = [net.process(f"api-{i}") for i in range(600)]
    with net.together():
        for caller in callers:
            for _ in range(5):
                caller.request("compute", ttl=60)
    net.advance(4)
    assert sorted(r.seq for r in hanging(sink)) == list(range(1, 3001))
    assert {chunk.in_flight_count for chunk in sink.chunks} >= {CHUNK_RECORDS}


# --- chunks and segments ------------------------------------------------------------------------


def converse(net: Network, api: Process, node: Process, calls: int) -> None:
    for _ in range(calls):
        api.request("compute", "reboot")
        node.reply(node.take(Kind.REQUEST))


def test_where_nothing_happens_only_the_beginning_is_written(net: Network, sink: Memory, api: Process, node: Process):
    net.advance(1)
    assert [(c.record_count, c.is_last) for c in sink.chunks] == [(0, False)]
    net.advance(60)
    assert [(c.record_count, c.is_last) for c in sink.chunks] == [(0, False), (0, True)]
    node.register("compute")
    converse(net, api, node, 1)
    net.advance(60)
    assert [(c.record_count, c.is_last) for c in sink.chunks[2:]] == [(1, False), (0, True)]
    net.router.close(net.now)
    assert sink.chunks[-1].is_final and sink.chunks[-1].segment == 3


def test_a_full_buffer_goes_out_at_once(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    converse(net, api, node, CHUNK_RECORDS + 1)
    assert [chunk.record_count for chunk in sink.chunks] == [CHUNK_RECORDS]


def test_each_segment_stands_alone(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged(segment_seconds=2.0)
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    for _ in range(8):
        converse(net, api, node, 1)
        net.advance(1)
    files = sink.files()
    assert len(files) >= 3
    assert {r.topic for spool in files for r in spool} == {"compute"}
    assert all(len(spool.names) == 3 for spool in files if spool.names)


def test_a_segment_ends_with_its_records(make_logged: Callable[..., Network], sink: Memory):
    net = make_logged(segment_records=1000)
    api, node = net.process("api"), net.process("node")
    node.register("compute")
    converse(net, api, node, 2 * CHUNK_RECORDS)
    assert [(c.segment, c.is_last) for c in sink.chunks] == [(1, True), (2, True)]


def test_after_a_refused_chunk_the_names_are_said_again(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    converse(net, api, node, 3)
    sink.is_full = True
    net.advance(1)
    assert sink.refused == 3
    assert api.query("summary")["dispatch_log"] == {"dropped": 3}
    sink.is_full = False
    converse(net, api, node, 1)
    assert [(r.seq, r.topic) for r in ended(net, sink)] == [(4, "compute")]


def test_what_is_left_at_the_end_is_written(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute", credit=2)
    api.request("compute")
    api.cast("compute")
    api.request("nowhere")
    api.cast("nowhere")
    api.cast("compute", server="absent")
    assert len(node.got(Kind.REQUEST, Kind.CAST)) == 2
    net.router.close(net.now)
    outcomes = {r.seq: r.outcome for r in sink.entries() if r.outcome is not None}
    lost, gone = Outcome.LINK_LOST, Outcome.DRAINING
    assert outcomes == {1: lost, 2: lost, 3: lost, 4: gone, 5: gone}
    (spool,) = sink.files()
    list(spool)
    assert spool.mark is not None and spool.mark.last_seq == 5


def test_a_router_without_a_log_says_so(make_net: Callable[..., Network]):
    net = make_net()
    assert net.router.roundrobin.log is None and net.process("api").query("summary")["dispatch_log"] is None
    net.router.close(net.now)


def test_the_mark_and_the_seal_fit_a_file(net: Network, sink: Memory, api: Process, node: Process):
    node.register("compute")
    converse(net, api, node, 2)
    api.request("compute")
    net.advance(1)
    (spool,) = sink.files()
    list(spool)
    assert spool.mark is not None and (spool.mark.last_seq, spool.mark.in_flight) == (3, 1)
    assert Seal._fields == ("records", "in_flight", "names", "dropped", "final")
    assert framed(BlockKind.MARK, 1, sink.chunks[0].mark)[1] == sink.chunks[0].mark


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
