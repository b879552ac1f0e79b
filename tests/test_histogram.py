from __future__ import annotations

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.histogram import Histogram

# A nanosecond to thirty years, in microseconds.
VALUES = st.integers(0, 10**15) | st.floats(1e-3, 1e15) | st.floats(50, 5000)
QUANTILES = st.sampled_from([0, 0.01, 0.07, 0.25, 0.5, 0.9, 0.99, 0.999, 1]) | st.floats(0, 1)


def of(values: Sequence[float]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def bucket_of(value: float) -> int:
    [[index, count]] = of([value]).to_dict()["buckets"]
    assert count == 1
    return int(index)


def exact_quantile(values: list[float], q: float) -> float:
    """Nearest rank by its definition: the smallest value that at least q of all do not exceed."""
    need = Fraction(str(q)) * len(values)
    return next(v for n, v in enumerate(sorted(values), 1) if n >= need)


def test_an_empty_histogram_has_no_quantile():
    histogram = Histogram()
    assert (histogram.count, histogram.sum) == (0, 0)
    assert (histogram.min, histogram.max, histogram.quantile(0.5)) == (None, None, None)


def test_a_single_value_is_exact():
    histogram = of([123.4])
    assert [histogram.quantile(q) for q in (0, 0.5, 1)] == [123.4] * 3
    assert (histogram.count, histogram.sum, histogram.min, histogram.max) == (1, 123.4, 123.4, 123.4)


def test_powers_of_two_and_their_neighbours_fall_on_the_right_side():
    # Bucket i holds (base**i, base**(i + 1)] and 2**power is base**(32 * power).
    for power in range(-100, 1000):
        edge = 2.0**power
        assert bucket_of(edge) == 32 * power - 1
        assert bucket_of(math.nextafter(edge, 0)) == 32 * power - 1
        assert bucket_of(math.nextafter(edge, math.inf)) == 32 * power


def test_integers_next_to_a_power_of_two_fall_on_the_right_side():
    for power in range(5, 53):
        assert bucket_of(2**power) == 32 * power - 1
        assert bucket_of(2**power - 1) == bucket_of(float(2**power - 1)) < 32 * power
        assert bucket_of(2**power + 1) == bucket_of(float(2**power + 1)) >= 32 * power


@given(st.integers(1, 2**45))
def test_the_bucket_holds_the_value_exactly(value: int):
    # base**i < value <= base**(i + 1), raised to the 32nd power to stay within integers.
    index = bucket_of(value)
    assert (2**index if index >= 0 else Fraction(1, 2**-index)) < value**32 <= 2 ** (index + 1)


def test_zero_and_below_count_as_zero():
    histogram = of([0, -5, 0.0, 8])
    assert (histogram.count, histogram.sum, histogram.min, histogram.max) == (4, 8, 0, 8)
    assert histogram.to_dict()["zero_count"] == 3
    assert [histogram.quantile(q) for q in (0.25, 0.5, 0.75, 0.76)] == [0, 0, 0, 8]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_what_is_no_number_is_refused_and_not_counted(value: float):
    histogram = of([1.0])
    before = histogram.to_dict()
    with pytest.raises((ValueError, OverflowError)):
        histogram.record(value)
    assert histogram.to_dict() == before


@pytest.mark.parametrize("q", [-0.01, 1.01, math.nan])
def test_a_quantile_is_from_0_to_1(q: float):
    with pytest.raises(ValueError, match="from 0 to 1"):
        of([1]).quantile(q)


def test_the_rank_is_that_of_the_decimal_as_written():
    # 0.07 * 100 is 7.000000000000001 in doubles, whose ceiling is 8.
    assert of([1] * 7 + [1000] * 93).quantile(0.07) == 1
    assert of([1] * 6 + [1000] * 94).quantile(0.07) == pytest.approx(1000, rel=0.011)


@settings(max_examples=300)
@given(st.lists(VALUES, min_size=1, max_size=200), QUANTILES)
def test_quantiles_are_within_1_1_percent_of_nearest_rank(values: list[float], q: float):
    exact = exact_quantile(values, q)
    found = of(values).quantile(q)
    assert found is not None
    assert abs(found - exact) <= 0.011 * exact
    assert min(values) <= found <= max(values)


@given(st.lists(st.integers(-5, 10**12), max_size=100), st.lists(st.integers(-5, 10**12), max_size=100))
def test_merging_is_recording_all_in_one(left: list[float], right: list[float]):
    merged, other = of(left), of(right)
    merged.merge(other)
    assert merged.to_dict() == of(left + right).to_dict()
    assert other.to_dict() == of(right).to_dict()


@given(st.lists(VALUES, max_size=50), QUANTILES)
def test_a_histogram_survives_json(values: list[float], q: float):
    histogram = of(values)
    source = json.loads(json.dumps(histogram.to_dict(), allow_nan=False))
    again = Histogram.from_dict(source)
    assert again.to_dict() == histogram.to_dict()
    assert again.quantile(q) == histogram.quantile(q)


def test_buckets_are_sorted_pairs():
    assert of([1000, 1, 1000, 30]).to_dict() == {
        "scale": 5,
        "count": 4,
        "sum": 2031,
        "min": 1,
        "max": 1000,
        "zero_count": 0,
        "buckets": [[-1, 1], [157, 1], [318, 2]],
    }


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"scale": 4}, "scale = 4: expected 5"),
        ({"count": 3}, "count = 3"),
        ({"zero_count": -1}, "zero_count = -1"),
        ({"sum": "much"}, "sum = 'much'"),
        ({"min": math.nan}, "min = nan"),
        ({"max": math.inf}, "max = inf"),
        ({"buckets": None}, "buckets: None"),
        ({"buckets": [[1]]}, r"buckets: \[1\]"),
        ({"buckets": [[1, 1], [1, 1]]}, "index 1 occurs twice"),
        ({"buckets": [[1, 0], [2, 2]]}, "bucket count = 0"),
        ({"buckets": [[1, True], [2, 1]]}, "bucket count = True"),
        ({"buckets": [[1.0, 2]]}, "bucket index = 1.0"),
        ({"buckets": [[10**6, 2]]}, "bucket index = 1000000"),
    ],
)
def test_a_wrong_description_is_refused_by_name(change: dict[str, Any], names: str):
    with pytest.raises(ValueError, match=names):
        Histogram.from_dict(of([1, 2]).to_dict() | change)


@pytest.mark.parametrize("key", ["scale", "count", "sum", "min", "max", "zero_count", "buckets"])
def test_a_missing_part_is_refused_by_name(key: str):
    source = of([1, 2]).to_dict()
    del source[key]
    with pytest.raises(ValueError, match=f"histogram without '{key}'"):
        Histogram.from_dict(source)
