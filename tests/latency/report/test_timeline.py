"""Columns of plots."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rpcmq.latency.analysis.series import Series
from rpcmq.latency.report.timeline import round_step, timeline


def windows(*starts: int) -> list[Series]:
    return [Series({}, start, {"ok": 1}) for start in starts]


def records(line: list[Series | None]) -> list[int]:
    return [each.records if each else 0 for each in line]


def test_windows_that_are_few_stay_as_they_are_with_gaps() -> None:
    line = timeline(windows(120, 180, 300), 60, 10)
    assert (line.begin, line.seconds, line.end) == (120, 60, 360)
    assert records(line.columns) == [1, 1, 0, 1]
    assert line.starts == [120, 180, 240, 300]


def test_no_windows_no_columns() -> None:
    assert timeline([], 60, 10).columns == []


@pytest.mark.parametrize("count", [11, 60, 1440, 20_000])
@pytest.mark.parametrize("first", [0, 60, 7_020])
def test_many_are_put_together_without_loss(count: int, first: int) -> None:
    line = timeline(windows(*range(first, first + 60 * count, 60)), 60, 10)
    assert len(line.columns) <= 10
    assert sum(records(line.columns)) == count
    assert line.begin <= first
    assert line.seconds % 60 == 0
    assert line.begin % line.seconds == 0


def test_a_day_of_minutes_is_five_minutes_wide() -> None:
    line = timeline(windows(*range(0, 86_400, 60)), 60, 288)
    assert (line.seconds, len(line.columns)) == (300, 288)


def test_width_stays_a_multiple_of_an_odd_window() -> None:
    line = timeline(windows(*range(0, 700 * 7, 7)), 7, 10)
    assert line.seconds % 7 == 0
    assert len(line.columns) <= 10
    assert sum(records(line.columns)) == 700


def test_a_clock_that_was_wrong_costs_no_memory() -> None:
    line = timeline(windows(0, 1_772_431_200), 60, 288)
    assert len(line.columns) <= 288
    assert sum(records(line.columns)) == 2


def test_columns_like_those_of_another() -> None:
    line = timeline(windows(120, 600), 60, 20)
    other = timeline(windows(180, 6000), 60, 20, like=line)
    assert other.starts == line.starts
    assert records(other.columns) == [0, 1, 0, 0, 0, 0, 0, 0, 0]


def test_round_steps() -> None:
    steps = [round_step(least) for least in (0.2, 7, 61, 4000, 700_000, 40_000_000)]
    assert steps == [1, 10, 120, 7200, 1_209_600, 63_072_000]
    assert all(a < b for a, b in pairwise(steps))
