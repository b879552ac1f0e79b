"""The dispatch log: chunks and segments of its records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rpcmq.core.router.dispatch_log import CHUNK_RECORDS
from rpcmq.errors import Outcome
from rpcmq.log_format import BlockKind, Seal, framed
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Kind
from tests.core.router.logged import Memory, converse, ended


@pytest.fixture
def net(make_logged: Callable[..., Network]) -> Network:
    return make_logged()


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
