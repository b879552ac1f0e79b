"""Hedged calls by method, from what engines have counted."""

from __future__ import annotations

from typing import Any

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.hedging import COUNTS, DURATIONS, hedged_of, total_of

COLUMNS = ("exchange", "topic", "method")


def counted(method: str, **numbers: int | None) -> dict[str, Any]:
    return dict(zip(COLUMNS, ("", "t", method), strict=True)) | dict.fromkeys(COUNTS, 0) | numbers


def bucket(method: str, measure: str, index: int | None, many: int, us: int) -> dict[str, Any]:
    key = dict(zip(COLUMNS, ("", "t", method), strict=True))
    return key | {"measure": measure, "index": index, "many": many, "sum": many * us, "least": us, "most": us}


def test_those_with_the_most_extra_deliveries_come_first() -> None:
    found = hedged_of([counted("a", extra=1), counted("b", extra=7), counted("c", extra=7)], [])
    assert [each.key["method"] for each in found] == ["b", "c", "a"]
    assert all(getattr(each, name).count == 0 for each in found for name in DURATIONS)


def test_buckets_become_the_histogram_of_what_they_count() -> None:
    expected = Histogram()
    expected.record(0, 3)
    expected.record(64, 2)
    expected.record(1000)
    rows = [bucket("a", "gained", index, many, us) for index, many, us in [(None, 3, 0), (191, 2, 64), (318, 1, 1000)]]
    (found,) = hedged_of([counted("a", extra=6, won=6)], rows)
    assert found.gained.to_dict() == expected.to_dict()
    assert found.first.count == found.answered.count == 0


def test_what_an_engine_has_no_number_of_is_none() -> None:
    (found,) = hedged_of([counted("a", extra_us=None, extra=1)], [])
    assert found.extra_us == 0


def test_the_total_of_several_methods() -> None:
    rows = [bucket("a", "first", 191, 2, 64), bucket("b", "first", 191, 1, 64)]
    whole = total_of(hedged_of([counted("a", calls=10, won=2), counted("b", calls=5, won=1)], rows))
    assert (whole.calls, whole.won, whole.first.count, whole.key) == (15, 3, 3, {})
    assert total_of([]).calls == 0
