"""The dispatch log: records of casts, and of calls that take long."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from rpcmq.core.router.dispatch_log import CHUNK_RECORDS
from rpcmq.errors import Outcome
from rpcmq.log_format import MessageKind, Record
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind
from tests.core.router.logged import Memory, ended, one


@pytest.fixture
def net(make_logged: Callable[..., Network]) -> Network:
    return make_logged()


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
