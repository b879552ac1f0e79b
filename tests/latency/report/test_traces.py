"""Waterfalls as the page draws them."""

from __future__ import annotations

import pytest

from rpcmq.latency.report.numbers import STAGES
from rpcmq.latency.report.traces import traces
from tests.latency.report import reports


def test_the_longest_first_each_record_inside_of_it() -> None:
    rows = reports.slowest(6)
    made = traces(reversed(rows))
    assert [each.total for each in made] == sorted((each.total for each in made), reverse=True)
    assert sum(each.records for each in made) == len(rows)
    stages: set[str] = set()
    for trace in made:
        for line in trace.lines:
            stages |= {part.stage for part in line.parts}
            for part in line.parts:
                assert part.left >= -0.001
                assert part.left + part.width <= 100.001
            ends = [part.left + part.width for part in line.parts]
            assert [part.left for part in line.parts[1:]] == pytest.approx(ends[:-1])
    assert stages == set(STAGES) - {"between"}
    assert made[0].outcome == "timeout"
    assert made[-1].id == ""


def test_parts_are_the_stages_in_their_order() -> None:
    [trace] = traces([reports.row(queue_us=100, service_us=900, handler_us=500, total_us=1000)])
    [line] = trace.lines
    assert [(part.stage, part.left, part.width) for part in line.parts] == [
        ("queued", 0, 10),
        ("network", 10, 20),
        ("handler", 30, 50),
        ("network", 80, 20),
    ]
    title = "queued 100 µs, network and service's queue, both ways 400 µs, handler 500 µs, total 1.00 ms"
    assert title in line.title


def test_the_time_between_routers_is_on_either_side_of_the_server() -> None:
    row = reports.row(queue_us=100, service_us=900, handler_us=500, between_us=200, total_us=1000)
    [line] = traces([row | {"server_router": "r2"}])[0].lines
    assert [(part.stage, part.left, part.width) for part in line.parts] == [
        ("queued", 0, 10),
        ("between", 10, 10),
        ("network", 20, 10),
        ("handler", 30, 50),
        ("network", 80, 10),
        ("between", 90, 10),
    ]
    assert "between routers 200 µs" in line.title


def test_parts_stand_where_they_were_if_the_way_back_is_known() -> None:
    [trace] = traces([reports.row(queue_us=100, service_us=900, handler_us=500, reply_us=50, total_us=1000)])
    [line] = trace.lines
    assert [(part.stage, part.left, part.width) for part in line.parts] == [
        ("queued", 0, 10),
        ("network", 10, 35),
        ("handler", 45, 50),
        ("reply", 95, 5),
    ]
    title = "queued 100 µs, network and service's queue 350 µs, handler 500 µs, reply 50 µs, total 1.00 ms"
    assert title in line.title


def test_without_the_handlers_time_the_rest_is_one() -> None:
    [trace] = traces([reports.row(queue_us=100, service_us=900, handler_us=None, total_us=1000)])
    assert [(part.stage, part.width) for part in trace.lines[0].parts] == [("queued", 10), ("rest", 90)]


def test_a_call_whose_end_nobody_knows_has_no_bar() -> None:
    [trace] = traces([reports.row(outcome="unknown", server=None, server_process=None)])
    [line] = trace.lines
    assert (line.parts, line.total) == ([], None)
    assert line.where.endswith("nobody")


def test_of_a_trace_with_many_records_the_longest_are_drawn() -> None:
    rows = [
        reports.row(trace_id="ab" * 16, seq=seq, origin_seq=seq, total_us=1000 + seq, recv_at=reports.BEGIN + seq)
        for seq in range(1, 1001)
    ]
    [trace] = traces(rows)
    assert trace.records == 1000
    assert len(trace.lines) == 30
    assert trace.total == 2000


def test_nothing() -> None:
    assert traces([]) == []
