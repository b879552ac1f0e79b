"""What is said of a series."""

from __future__ import annotations

import pytest

from rpcmq.latency.analysis.series import Series
from rpcmq.latency.report.numbers import QUANTILES, mean, quantile, seconds_of, stages
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
        assert sum(found.values()) == each.total.sum
        assert min(found.values()) >= 0


def test_a_handler_that_reports_more_than_its_service_took_is_no_negative_network() -> None:
    series = Series({}, service=reports.histogram_of([1000]), total=reports.histogram_of([1000]))
    series.handled_service_us, series.handler_us, series.handlers = 1000, 1300, 1
    assert stages(series) == {"queued": 0, "handler": 1000, "network": 0, "rest": 0}


def test_nothing() -> None:
    assert mean(reports.histogram_of([])) is None
    assert seconds_of(reports.report(0)) == 0
    assert seconds_of(reports.report(1, 1, 1)) > 0
