"""Intervals of quantiles hold what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.intervals import interval, share_interval, smallest_count
from tests.latency.analysis.samples import histogram


@pytest.mark.parametrize(("q", "count"), [(0.5, 5), (0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_below_the_smallest_count_there_is_no_interval(q: float, count: int) -> None:
    assert smallest_count(q) == count
    # The largest record is above the quantile with 95 % from there on, and not before.
    assert q**count <= 0.05 < q ** (count - 1)
    values = range(1000, 1000 + count)
    assert interval(histogram(values), q) is not None
    assert interval(histogram(values[1:]), q) is None


def test_an_empty_histogram_has_no_interval() -> None:
    assert interval(Histogram(), 0.5) is None


@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("times", [1, 2, 10])
def test_the_quantile_is_in_as_many_intervals_as_promised(q: float, times: int) -> None:
    chance = np.random.default_rng(int(q * 1000) + times)
    truth = 5000 * math.exp(norm.ppf(q))
    count, rounds = smallest_count(q) * times, 300
    samples = chance.lognormal(np.log(5000), 1, (rounds, count))
    held = 0
    for sample in samples:
        known = interval(histogram(sample), q)
        assert known is not None
        held += known[0] <= truth <= known[1]
    # What 95 % or more would fall short of once in a thousand times.
    assert held >= binom.ppf(0.001, rounds, 0.95)


def test_it_is_as_narrow_as_the_binomial_distribution_allows() -> None:
    count, q = 100_000, 0.99
    known = interval(histogram(range(1, count + 1)), q)
    assert known is not None
    low, high = binom.ppf([0.025, 0.975], count, q)
    bucket = 2 ** (1 / 32)
    assert low / bucket <= known[0] <= low
    assert high <= known[1] <= high * bucket * (1 + 2 / count)


def test_a_constant_is_known_exactly() -> None:
    assert interval(histogram([777] * 500), 0.99) == (777, 777)


def test_zeros_have_an_interval_too() -> None:
    assert interval(histogram([0] * 400 + [100] * 100), 0.5) == (0, 0)


def test_where_few_records_bound_it_below_the_lower_end_is_zero() -> None:
    known = interval(histogram([100, 200, 300, 400, 500]), 0.5)
    assert known == (0, 500)


@given(st.lists(st.integers(0, 10**9), min_size=5, max_size=300), st.sampled_from([0.5, 0.9, 0.99]))
def test_it_contains_the_quantile_of_the_histogram(values: list[int], q: float) -> None:
    made = histogram(values)
    known, found = interval(made, q), made.quantile(q)
    assert (known is None) == (len(values) < smallest_count(q))
    if known is not None:
        assert found is not None
        assert known[0] <= found <= known[1]


def test_shares_have_wilsons_interval() -> None:
    # 5 of 100: as in any table.
    assert share_interval(5, 100) == pytest.approx((0.0215, 0.1118), abs=1e-4)
    assert share_interval(0, 100) == pytest.approx((0, 0.0370), abs=1e-4)
    assert share_interval(100, 100) == pytest.approx((0.9630, 1), abs=1e-4)
    with pytest.raises(ValueError, match="expected at least 1"):
        share_interval(0, 0)
