"""Confidence intervals: of quantiles by order statistics, and of shares.

How many of n records lie below the true quantile q is binomial, whatever the distribution of durations is. So
two of the sorted records enclose it with a probability that can be computed, and nothing is assumed. What is
assumed is that records are independent draws: where they come in bursts, the truth is wider.

The interval's ends are ends of buckets, the outer ones, so that the buckets cost width and not coverage.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log, sqrt

from scipy.special import bdtr, bdtrik, ndtri

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.buckets import Buckets

__all__ = ["interval", "rank_above", "rank_below", "share_interval", "smallest_count"]


#: The probability with which an interval may miss the truth.
_MISSED = 1 - 0.95


def interval(histogram: Histogram, q: float) -> tuple[float, float] | None:
    """Return the interval that has quantile ``q`` of the sampled population with 95 % at least (microseconds).

    Each end is missed with at most half of the rest. Where not even the largest record is above the quantile with that
    probability, the upper end may have more of it and the lower end gets what is left; where that does not do either,
    there is no upper end, and so no interval. A lower end that no record bounds is 0.

    Args:
        q: above 0 and below 1.

    Returns:
        The ends; None: there are too few records (fewer than ``smallest_count``).
    """
    ranks = _ranks(histogram.count, q)
    if ranks is None:
        return None
    low, high = ranks
    buckets = Buckets.of(histogram)
    return (buckets.around(low)[0] if low else 0.0), buckets.around(high)[1]


@lru_cache(maxsize=1000)
def smallest_count(q: float) -> int:
    """Return the fewest records for an interval of the quantile ``q``: 29 for p90, 299 for p99, 2,995 for p99.9."""
    # The largest record is below the quantile with the probability q ** count.
    count = max(1, ceil(log(_MISSED) / log(q)) - 1)
    while q**count > _MISSED:
        count += 1
    return count


@lru_cache(maxsize=100_000)
def rank_below(count: int, q: float, missed: float) -> int:
    """The rank of the largest of ``count`` sorted records that is not above the quantile ``q``; 0: none is.

    Args:
        missed: the probability with which it is above it all the same, at most.
    """
    return _first_reaching(missed, count, q)


@lru_cache(maxsize=100_000)
def rank_above(count: int, q: float, missed: float) -> int | None:
    """The rank of the smallest of ``count`` sorted records that is not below the quantile ``q``; None: none is.

    Args:
        missed: the probability with which it is below it all the same, at most.
    """
    rank = _first_reaching(1 - missed, count, q) + 1
    return rank if rank <= count else None


def share_interval(some: int, of: int) -> tuple[float, float]:
    """Return Wilson's interval, with 95 %, of a share, of which ``some`` of ``of`` records are a sample.

    Raises:
        ValueError: there are no records.
    """
    if of < 1:
        raise ValueError(f"of = {of}: expected at least 1")
    z = float(ndtri(0.5 + 0.95 / 2))
    middle = (some + z**2 / 2) / (of + z**2)
    half = z / (of + z**2) * sqrt(some * (of - some) / of + z**2 / 4)
    return max(0.0, middle - half), min(1.0, middle + half)


@lru_cache(maxsize=10_000)
def _ranks(count: int, q: float) -> tuple[int, int] | None:
    """Ranks of the two records, 0 for a lower end that is none; None: there is no upper end."""
    if count < smallest_count(q):
        return None
    high = min(_first_reaching(1 - _MISSED / 2, count, q) + 1, count)
    # The record of that rank is below the quantile if so many are.
    above = 1 - float(bdtr(high - 1, count, q))
    return _first_reaching(min(_MISSED / 2, _MISSED - above), count, q), high


def _first_reaching(share: float, count: int, q: float) -> int:
    """The smallest number k for which at most k of ``count`` lie below the quantile with probability ``share``."""
    if share <= 0:
        return 0
    # The same as scipy.stats.binom.ppf, which takes ten times as long.
    found = max(0, ceil(float(bdtrik(share, count, q))))
    while found and bdtr(found - 1, count, q) >= share:
        found -= 1
    while bdtr(found, count, q) < share:
        found += 1
    return found
