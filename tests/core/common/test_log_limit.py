"""Things that happen without end take a bounded number of log lines, and each is counted in one of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rpcmq.core.common.log_limit import LineLimit, LogLimit


def test_what_happens_together_is_one_line():
    limit: LogLimit[str] = LogLimit()
    for _ in range(300):
        limit.add(10.0, "compute")
    assert limit.due(10.5) == [] and limit.next_deadline() == 11.0
    assert limit.due(11.0) == [("compute", 300)]


def test_what_goes_on_is_one_line_a_minute():
    limit: LogLimit[str] = LogLimit()
    lines = []
    for second in range(601):
        limit.add(float(second), "compute")
        lines += limit.due(float(second))
    assert len(lines) == 11 and sum(count for _, count in lines) == 601


def test_many_keys_share_a_line():
    limit: LogLimit[int] = LogLimit()
    for key in range(1000):
        limit.add(0.0, key, 2)
    assert len(limit.due(1.0)) == 50
    assert limit.due(60.0) == [(None, 1900)]


def test_after_a_quiet_minute_a_first_line_comes_soon():
    limit: LogLimit[str] = LogLimit()
    limit.add(0.0, "compute")
    assert limit.due(1.0) == [("compute", 1)]
    assert limit.due(60.0) == [] and limit.next_deadline() is None
    limit.add(100.0, "compute")
    assert limit.due(101.0) == [("compute", 1)]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 99), st.integers(1, 5))))
def test_every_occurrence_is_told_once(steps: list[tuple[float, int, int]]):
    limit: LogLimit[int] = LogLimit()
    now, told, added = 0.0, 0, 0
    for pause, key, count in steps:
        now += pause
        limit.add(now, key, count)
        added += count
        told += sum(n for _, n in limit.due(now))
    told += sum(n for _, n in limit.due(float("inf")))
    assert told == added


def test_the_first_lines_pass_and_the_next_tells_how_many_did_not():
    limit: LineLimit[str] = LineLimit()
    assert [limit.passes(100.0, "compute") for _ in range(20)] == [0] * 5 + [None] * 15
    assert limit.passes(110.0, "other") == 0
    assert [limit.passes(160.0, "compute") for _ in range(2)] == [15, 0]


def test_all_keys_together_have_a_bound():
    limit: LineLimit[int] = LineLimit()
    assert sum(limit.passes(100.0, key) is not None for key in range(2500)) == 50
    assert len(limit) <= 1000
