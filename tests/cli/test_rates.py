"""Rates and percentiles of an interval."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rpcmq.cli.rates import between, rates
from rpcmq.histogram import Histogram

VALUES = st.lists(st.floats(0, 1e9), max_size=30)


def recorded(values: list[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(VALUES, VALUES)
def test_the_difference_is_what_was_recorded_in_between(before: list[float], after: list[float]) -> None:
    difference = between(recorded(before).to_dict(), recorded(before + after).to_dict())
    expected = recorded(after)
    assert difference.count == len(after)
    assert difference.to_dict()["buckets"] == expected.to_dict()["buckets"]
    for q in (0.0, 0.5, 0.9, 0.99, 1.0):
        ours, true = difference.quantile(q), expected.quantile(q)
        if true is None:
            assert ours is None
        else:
            # The ends are known only as far as their bucket.
            assert ours is not None and abs(ours - true) <= 0.023 * true


def test_a_histogram_that_began_anew_is_all_new() -> None:
    before, after = recorded([1.0, 5.0, 5.0]).to_dict(), recorded([5.0]).to_dict()
    assert between(before, after).to_dict() == after
    assert between(None, after).to_dict() == after
    assert between(before, Histogram().to_dict()).count == 0


def row(topic: str, calls: int, casts: int, errors: int, values: list[float]) -> dict[str, Any]:
    return {
        "topic": topic,
        "method": "m",
        "calls": calls,
        "casts": casts,
        "errors": errors,
        "histogram": recorded(values).to_dict(),
    }


def test_rates_are_by_the_second_and_the_busiest_comes_first() -> None:
    earlier = [row("a", 10, 0, 1, [1.0]), row("b", 5, 5, 0, [])]
    later = [row("a", 12, 0, 2, [1.0, 7.0]), row("b", 25, 9, 0, []), row("new", 2, 0, 0, [3.0, 3.0])]
    b, a, new = rates(earlier, later, 2.0)
    assert (b["topic"], b["calls_per_second"], b["casts_per_second"]) == ("b", 10.0, 2.0)
    assert (a["topic"], a["calls_per_second"], a["errors_per_second"]) == ("a", 1.0, 0.5)
    assert a["latency_us"]["p50"] is not None and abs(a["latency_us"]["p50"] - 7.0) < 0.2
    assert (new["topic"], new["calls_per_second"], new["latency_us"]["p99"]) == ("new", 1.0, 3.0)


def test_after_a_restart_of_the_router_all_is_new() -> None:
    [only] = rates([row("a", 100, 0, 0, [1.0] * 100)], [row("a", 4, 0, 0, [2.0] * 4)], 1.0)
    assert only["calls_per_second"] == 4.0 and only["latency_us"]["p50"] == 2.0
