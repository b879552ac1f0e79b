"""From records to cells, and from cells to coarser ones: known answers, and what must be the same on every way."""

from __future__ import annotations

import random
from math import isqrt
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpcmq.core.histogram import Histogram
from rpcmq.errors import UsageError
from rpcmq.latency.analysis.series import DIMENSIONS, METHOD, Series, merged
from rpcmq.latency.jobs.collect import by_level, series
from rpcmq.latency.jobs.transforms import (
    Level,
    bucket,
    cells,
    of_trace,
    rollup,
    rollups,
    selected,
    slowest,
    unknown,
)
from tests.latency.jobs.frames import START, frame, histogram, nearest_rank, plain, record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Above it (a year, in microseconds) the logarithm of the router's own histogram is too coarse next to a bound.
YEAR = 2**45
QUANTILES = (0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)


def index_of(value: int) -> int:
    """The bucket that the router's live histogram counts ``value`` in."""
    live = Histogram()
    live.record(value)
    ((index, _),) = live.to_dict()["buckets"]
    return int(index)


def root(power: int) -> int:
    """The integer part of 2 ** (power / 32)."""
    value = 1 << power
    for _ in range(5):
        value = isqrt(value)
    return value


def buckets_in_spark(spark: SparkSession, values: list[int]) -> dict[int, int | None]:
    from pyspark.sql import functions as F

    rows = spark.createDataFrame([(value,) for value in values], "v bigint")
    return dict(rows.select("v", bucket(F.col("v"))).toArrow().to_pandas().itertuples()) if False else {
        row[0]: row[1] for row in rows.select("v", bucket(F.col("v"))).collect()
    }


# --- the buckets --------------------------------------------------------------------------------


def test_the_bucket_is_that_of_the_live_histogram_next_to_every_bound(spark: SparkSession) -> None:
    bounds = [root(power) for power in range(45 * 32 + 1)]
    powers = [2**power for power in range(63)]
    near = {value + step for value in bounds for step in (-1, 0, 1)} - {0, -1}
    near |= {value + step for value in powers for step in (-1, 0, 1)} - {0}
    values = sorted(value for value in near if value <= YEAR or {value - 1, value, value + 1} & {*powers})

    assert buckets_in_spark(spark, values) == {value: index_of(value) for value in values}


@settings(max_examples=5)
@given(st.lists(st.integers(1, 63).flatmap(lambda bits: st.integers(1, 2**bits - 1)), min_size=100, max_size=1000))
def test_the_bucket_is_that_of_the_live_histogram_for_any_value(spark: SparkSession, values: list[int]) -> None:
    assert buckets_in_spark(spark, values) == {value: index_of(value) for value in values}


def test_zero_has_no_bucket(spark: SparkSession) -> None:
    assert buckets_in_spark(spark, [0, -1]) == {0: None, -1: None}
