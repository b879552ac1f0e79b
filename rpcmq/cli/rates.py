"""Rates and percentiles of an interval, from two samples of the router's counters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rpcmq.histogram import SCALE, Histogram

__all__ = ["between", "rates"]

QUANTILES = (0.5, 0.9, 0.99)
_Row = Mapping[str, Any]


def between(earlier: _Row | None, later: _Row) -> Histogram:
    """Return the difference of two states of one histogram: values recorded after ``earlier``, up to ``later``.

    Its smallest and largest value are known only as far as their buckets' bounds. If ``later`` does
    not follow from ``earlier`` (the router was started anew), it is all new.

    Args:
        earlier, later: as ``Histogram.to_dict`` gives them.
    """
    if earlier is None or not later["count"]:
        return Histogram.from_dict(later)
    before = dict(map(tuple, earlier["buckets"]))
    added = {index: count - before.pop(index, 0) for index, count in later["buckets"]}
    zeros = later["zero_count"] - earlier["zero_count"]
    if before or zeros < 0 or min(added.values(), default=0) < 0:
        return Histogram.from_dict(later)
    buckets = [[index, count] for index, count in sorted(added.items()) if count]
    low = 0.0 if zeros or not buckets else max(later["min"], _bound(buckets[0][0]))
    high = min(later["max"], _bound(buckets[-1][0] + 1)) if buckets else 0.0
    return Histogram.from_dict(
        {
            "scale": SCALE,
            "count": zeros + sum(count for _, count in buckets),
            "sum": max(0.0, later["sum"] - earlier["sum"]),
            "min": low,
            "max": max(low, high),
            "zero_count": zeros,
            "buckets": buckets,
        }
    )


def _bound(index: int) -> float:
    """Lower bound of a bucket."""
    return float(2.0 ** (index / (1 << SCALE)))


def rates(earlier: Sequence[_Row], later: Sequence[_Row], seconds: float) -> list[dict[str, Any]]:
    """Each method's calls, casts and errors a second, and the latencies of what ended, the busiest first.

    Args:
        earlier, later: the rows of the router's view ``methods``.
        seconds: the time between them.
    """
    before = {(row["topic"], row["method"]): row for row in earlier}
    rows = [_rate(before.get((row["topic"], row["method"])), row, seconds) for row in later]
    return sorted(rows, key=lambda row: -(row["calls_per_second"] + row["casts_per_second"]))


def _rate(earlier: _Row | None, later: _Row, seconds: float) -> dict[str, Any]:
    if earlier is not None and any(later[name] < earlier[name] for name in ("calls", "casts", "errors")):
        earlier = None
    histogram = between(earlier and earlier["histogram"], later["histogram"])
    row: dict[str, Any] = {"topic": later["topic"], "method": later["method"]}
    for name in ("calls", "casts", "errors"):
        row[f"{name}_per_second"] = round((later[name] - (earlier[name] if earlier else 0)) / seconds, 3)
    row["latency_us"] = {f"p{q * 100:g}": histogram.quantile(q) for q in QUANTILES}
    return row
