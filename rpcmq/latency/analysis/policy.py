"""Compute the latency policy of each method (``rpcmq.latency.policy`` reads and writes the file)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.intervals import interval, smallest_count
from rpcmq.latency.analysis.names import method_name
from rpcmq.latency.analysis.quantities import parse_percentile
from rpcmq.latency.analysis.series import METHOD, Series
from rpcmq.latency.policy import LONGEST_US, PERCENTILES, Entry, Policy

__all__ = ["FEWEST", "make_policy"]

#: Samples that a p99 with an interval takes.
FEWEST = smallest_count(0.99)


def make_policy(
    methods: Iterable[Series],
    newest: Mapping[tuple[str, str, str], float],
    now: float,
    min_samples: int,
    valid_seconds: float,
) -> tuple[Policy, dict[str, str]]:
    """The policy as of ``now``.

    A method is left out if it has too few samples, or if its newest is older than ``valid_seconds`` already.

    Args:
        methods: calls that ended ok, by exchange, topic and method.
        newest: when the last window with one of them ended, by exchange, topic and method; seconds since 1970.
        now: seconds since 1970.
        min_samples: of a method, at least ``FEWEST``.
        valid_seconds: how long after its newest sample a method's figures are to be used.

    Returns:
        The policy, which may have no entry; and the methods that were left out, with the reason.

    Raises:
        ValueError: ``min_samples`` is below ``FEWEST``.
    """
    if min_samples < FEWEST:
        raise ValueError(f"min_samples = {min_samples}: a p99 needs {FEWEST}")
    entries: dict[tuple[str, str, str], Entry] = {}
    left_out: dict[str, str] = {}
    for series in methods:
        exchange, topic, method = (series.key[name] or "" for name in METHOD)
        # The window of now is not over yet.
        end = min(newest[exchange, topic, method], now)
        problem = _problem(series.total, end, now, min_samples, valid_seconds)
        if problem:
            left_out[method_name(series.key)] = problem
        else:
            entry = _entry(series, end, end + valid_seconds)
            entries[exchange, topic, method] = entry
    valid_until = max((entry.valid_until for entry in entries.values()), default=now)
    return Policy(now, valid_until, min_samples, entries), left_out


def _problem(total: Histogram, newest: float, now: float, min_samples: int, valid_seconds: float) -> str:
    if total.count < min_samples:
        return f"{total.count} samples, {min_samples} are needed"
    if newest + valid_seconds < now:
        return f"the newest sample is {now - newest:.0f} s old"
    if not 0 < (total.quantile(0.5) or 0.0) <= (total.max or 0.0) <= LONGEST_US:
        return f"durations of {total.min:.0f} to {total.max:.0f} us cannot be"
    return ""


def _entry(series: Series, newest: float, valid_until: float) -> Entry:
    quantiles = [parse_percentile(name, name) for name in PERCENTILES]
    p50, p95, p99 = (round(series.total.quantile(q) or 0.0, 1) for q in quantiles)
    first, second, third = (_interval(series.total, q) for q in quantiles)
    exchange, topic, method = (series.key[name] or "" for name in METHOD)
    return Entry(
        exchange, topic, method, series.total.count, newest, valid_until, (p50, p95, p99), (first, second, third)
    )


def _interval(histogram: Histogram, quantile: float) -> tuple[float, float]:
    known = interval(histogram, quantile)
    if known is None:
        raise ValueError(f"{histogram.count} records are too few for the quantile {quantile}")
    low, high = known
    # Rounded outwards, so that the quantile stays inside.
    return round(max(0.0, low - 0.05), 1), round(high + 0.05, 1)
