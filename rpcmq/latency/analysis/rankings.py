"""Rankings of methods: by total time, by tail, by queueing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.buckets import Buckets
from rpcmq.latency.analysis.series import Series

__all__ = ["TAIL", "Ranked", "by_queueing", "by_tail", "by_total_time", "tail_us"]

#: The tail of a method: its records above this quantile of its own.
TAIL = 0.95


@dataclass(frozen=True, slots=True)
class Ranked:
    """A series and what it is ranked by.

    Attributes:
        series: which.
        us: microseconds, summed over its records.
        share: of the total time of the series that were ranked together.
    """

    series: Series
    us: float
    share: float


def by_total_time(methods: Iterable[Series]) -> list[Ranked]:
    """By the time that all records took together."""
    methods = list(methods)
    return _ranked((series, series.total.sum) for series in methods)


def by_tail(methods: Iterable[Series]) -> list[Ranked]:
    """By the time that the tail costs (``tail_us``)."""
    return _ranked((series, tail_us(series.total)) for series in methods)


def by_queueing(methods: Iterable[Series]) -> list[Ranked]:
    """By the time that records waited: all that was not at the server."""
    return _ranked((series, series.queue.sum) for series in methods)


def tail_us(histogram: Histogram) -> float:
    """Return the total excess of the slowest 5 % over the median (microseconds).

    It is large where the slowest are much slower than what is usual, and where there are many: what one would gain if
    no record took longer than most do.
    """
    buckets = Buckets.of(histogram)
    if not buckets.count:
        return 0.0
    first = TAIL * buckets.count
    # Of the bucket in which the tail begins a part only belongs to it.
    in_tail = np.minimum(np.maximum(buckets.up_to - first, 0), buckets.counts)
    middle = (buckets.lower + buckets.upper) / 2
    longer = np.maximum(middle - (histogram.quantile(0.5) or 0.0), 0)
    return float(np.sum(in_tail * longer))


def _ranked(valued: Iterable[tuple[Series, float]]) -> list[Ranked]:
    pairs = list(valued)
    whole = sum(series.total.sum for series, _ in pairs)
    ranked = [Ranked(series, us, us / whole if whole else 0.0) for series, us in pairs]
    return sorted(ranked, key=lambda each: -each.us)
