"""The report's sentences about a series."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpcmq.latency.analysis.series import Series
from rpcmq.latency.report.colours import STAGES as COLOURED
from rpcmq.latency.report.numbers import QUANTILES, STAGES, mean, quantile, seconds_of, stages
from tests.latency.report import reports


def test_a_quantile_is_within_its_interval() -> None:
    histogram = reports.histogram_of(range(1, 10_001))
    for q in QUANTILES:
        found = quantile(histogram, q)
        assert found is not None
        assert found.low <= found.value <= found.high
        assert found.value == pytest.approx(10_000 * q, rel=0.011)


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (4, 0), (5, 1), (29, 2), (59, 3), (299, 4), (2995, 5)])
def test_no_number_where_n_is_too_small(count: int, expected: int) -> None:
    histogram = reports.histogram_of(range(1, count + 1))
    assert sum(quantile(histogram, q) is not None for q in QUANTILES) == expected


def test_stages_add_up_to_the_whole() -> None:
    for each in reports.report(5_000, 6, 10).methods:
        found = stages(each)
        assert list(found) == list(STAGES) == list(COLOURED)
        assert sum(found.values()) == each.total.sum
        # All are linked to the router itself.
        assert found.pop("between") == 0 < min(found.values())


@given(st.lists(st.integers(0, 10**9), max_size=4), *[st.integers(0, 10**10)] * 5)
def test_stages_add_up_whatever_two_clocks_say(
    served: list[int], queued: int, handler: int, network: int, reply: int, between: int
) -> None:
    series = Series({}, queue=reports.histogram_of([queued]), service=reports.histogram_of(served))
    series.handler_us, series.network_us, series.reply_us, series.between_us = handler, network, reply, between
    found = stages(series)
    assert sum(found.values()) == queued + sum(served) + between
    assert min(found.values()) >= 0


def served(*durations: int, **sums: int) -> dict[str, float]:
    """The stages of records that were at a server for so many microseconds, and waited 7 us each."""
    series = Series({}, queue=reports.histogram_of([7] * len(durations)), service=reports.histogram_of(durations))
    for name, value in sums.items():
        setattr(series, name, value)
    return stages(series)


def test_stages_of_records_that_tell_their_times() -> None:
    found = served(1000, 500, handlers=2, handler_us=900, network_us=400, reply_us=200)
    assert found == {"queued": 14, "between": 0, "network": 400, "handler": 900, "reply": 200, "rest": 0}


def test_what_a_service_does_not_tell_is_rest() -> None:
    # Of the first the handler's time only, of the second all, of the third nothing.
    found = served(1000, 500, 300, handlers=2, handler_us=900 + 350, network_us=90, reply_us=60)
    assert found == {"queued": 21, "between": 0, "network": 90, "handler": 1250, "reply": 60, "rest": 100 + 300}


def test_a_handler_that_reports_more_than_its_service_took_is_no_negative_network() -> None:
    assert served(1000, handlers=1, handler_us=1300) == {
        "queued": 7,
        "between": 0,
        "network": 0,
        "handler": 1000,
        "reply": 0,
        "rest": 0,
    }


def test_what_is_between_routers_is_beside_what_is_at_the_server() -> None:
    found = served(1000, 500, handlers=2, handler_us=900, between_us=300)
    assert found == {"queued": 14, "between": 300, "network": 0, "handler": 900, "reply": 0, "rest": 600}


def test_nothing() -> None:
    assert mean(reports.histogram_of([])) is None
    assert seconds_of(reports.report(0)) == 0
    assert seconds_of(reports.report(1, 1, 1)) > 0
