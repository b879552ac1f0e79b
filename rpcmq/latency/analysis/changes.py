"""Changes over windows of time: where a quantile rose and stayed, or rose for a while; where errors came in a burst.

A log of sixty windows and twenty methods has more than thirty thousand runs of windows, and the most conspicuous of
them looks like a change even if nothing changed. So:

1. The run of windows that stands out most is looked for: more records above the quantile than elsewhere, by the
   likelihood ratio that scan statistics use (Kulldorff). One of each length is a candidate.
2. A candidate is a rise if the quantile inside is higher than outside for certain: the intervals of both by order
   statistics (``intervals``) do not overlap, at a confidence that is corrected for every run of windows of every
   series, and each of its quantiles, that might have been the candidate (Bonferroni). So of five hundred
   logs in which nothing changes at most one has a false one, whatever the distribution of its durations is.
3. It has to matter: at least a quarter higher, and more than windows outside usually differ from one another. Real
   traffic does, and intervals that take it for independent draws know nothing of that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from math import ceil, log, sqrt

import numpy as np
from scipy.special import xlogy

from rpcmq.latency.analysis.buckets import Floats, Ints, middle, on_one_grid
from rpcmq.latency.analysis.intervals import rank_above, rank_below
from rpcmq.latency.analysis.series import Series

__all__ = ["Burst", "Rise", "burst", "rise"]

#: Logs that have a false change, of those in which nothing changes: half of them a rise, half of them a burst. One in
#: a hundred would be borne; of a hundred logs more than one would then have one in a quarter of all cases.
_FALSE = 0.002
#: Quantiles tested for a rise, in this order.
_QUANTILES = (0.99, 0.9, 0.5)
_FEWEST_WINDOWS = 10
#: A step leaves so many windows before it; what comes back is in less than half of them.
_FEWEST_BEFORE = 3
#: A rise is at least by a quarter, and so many times what windows usually differ by; the more windows, the less.
_SMALLEST = log(1.25)
_SMALLEST_DEVIATIONS = 5
#: The least that windows usually differ by: two buckets. Constant series have no deviation of their own.
_LEAST_DEVIATION = 0.045
#: Of a normal distribution's deviation over its median absolute deviation.
_MAD = 1.4826
_FEWEST_BURST_WINDOWS = 5
#: A burst has at least so many errors in a window, and so many times and so much more of them than is usual.
_FEWEST_ERRORS = 10
_ERRORS_TIMES, _ERRORS_MORE = 3, 0.01


@dataclass(frozen=True, slots=True)
class Rise:
    """A time in which a quantile was higher than in the rest.

    Attributes:
        quantile: which.
        since, until: when its first window begins and its last one ends, seconds since 1970.
        lasts: whether it goes on to the end.
        before, during: the quantile outside and inside, microseconds.
    """

    quantile: float
    since: int
    until: int
    lasts: bool
    before: float
    during: float

    @property
    def times(self) -> float:
        """The ratio of ``during`` to ``before``."""
        return self.during / self.before


@dataclass(frozen=True, slots=True)
class Burst:
    """Windows in which more failed than chance makes of the usual share.

    Attributes:
        windows: those.
        usual: the share of errors in the median window.
    """

    windows: list[Series]
    usual: float


def rise(windows: Sequence[Series], of_series: int = 1) -> Rise | None:
    """A rise of the total duration's p99, or else of its p90 or median; None: there is none that chance does not make.

    A p99 needs some hundreds of records; when all got slower, the median tells it from fewer.

    Args:
        windows: of one series, in the order of time.
        of_series: how many series of the log are asked for a rise, this one included.
    """
    usable = [each for each in windows if each.total.count and each.window is not None]
    if len(usable) < _FEWEST_WINDOWS:
        return None
    runs = len(usable) * (len(usable) + 1) // 2
    missed = _FALSE / 2 / (runs * len(_QUANTILES) * of_series)
    begins = [each.window or 0 for each in usable]
    length = min(later - earlier for earlier, later in pairwise(begins))
    grid, counts = on_one_grid(each.total for each in usable)
    for quantile in _QUANTILES:
        table = _Table(grid, counts, quantile)
        for first, end in table.candidates():
            found = table.judged(first, end, missed)
            if found is not None:
                return Rise(quantile, begins[first], begins[end - 1] + length, end == len(usable), *found)
    return None


class _Table:
    """Counts by window and bucket, and one quantile of each window."""

    def __init__(self, grid: Ints, counts: Ints, quantile: float) -> None:
        self._grid, self._counts, self._quantile = grid, counts, quantile
        self._whole: Ints = counts.sum(axis=0)
        #: The quantile's logarithm in each window.
        self._values = np.log([self._value(counts) for counts in self._counts])

    def candidates(self) -> Iterator[tuple[int, int]]:
        """Of the runs of each length the one that stands out most; as its first window and the one after its last.

        Those that stand out most come first.
        """
        slow, records = (_up_to(self._counts[:, place:]) for place in (self._bucket(self._whole) + 1, 0))
        # All runs at once: one length after the other takes several times as long.
        firsts, ends, bounds = _runs(len(self._counts))
        parts = (slow[ends] - slow[firsts], records[ends] - records[firsts])
        ratios = _likelihood_ratio(*parts, int(slow[-1]), int(records[-1]))
        best = []
        for length, (begin, end) in enumerate(pairwise(bounds), 1):
            place = begin + int(ratios[begin:end].argmax())
            if ratios[place] > 0:
                best.append((float(ratios[place]), int(firsts[place]), length))
        for _, begin, length in sorted(best, reverse=True):
            yield begin, begin + length

    def judged(self, first: int, end: int, missed: float) -> tuple[float, float] | None:
        """The quantile outside and inside of a run of windows, microseconds; None: it is no rise.

        Args:
            missed: the probability with which the intervals, both together, may miss the truth.
        """
        inside: Ints = self._counts[first:end].sum(axis=0)
        outside = self._whole - inside
        before, during = self._value(outside), self._value(inside)
        height = log(during / before)
        if height < _SMALLEST:
            return None
        low = rank_below(int(inside.sum()), self._quantile, missed / 2)
        high = rank_above(int(outside.sum()), self._quantile, missed / 2)
        if not low or high is None or _at(inside, low) <= _at(outside, high):
            return None
        usual = _deviation(np.delete(self._values, np.s_[first:end]))
        return None if height < _SMALLEST_DEVIATIONS * usual / sqrt(end - first) else (before, during)

    def _bucket(self, counts: Ints) -> int:
        return _at(counts, max(1, ceil(round(self._quantile * int(counts.sum()), 6))))

    def _value(self, counts: Ints) -> float:
        return max(middle(int(self._grid[self._bucket(counts)])), 0.5)


def _at(counts: Ints, rank: int) -> int:
    """The bucket of the record at ``rank``."""
    return int(np.searchsorted(np.cumsum(counts), rank))


@lru_cache(maxsize=4)
def _runs(windows: int) -> tuple[Ints, Ints, list[int]]:
    """All runs of so many windows that may be a rise, the short ones first.

    Returns:
        The first window of each and the one after its last, and where the runs of each length begin, with the end.
    """
    lengths = range(1, windows - _FEWEST_BEFORE + 1)
    # A run that is longer than the rest is no rise but at the end.
    of_length = [np.arange(0 if 2 * each < windows else windows - each, windows - each + 1) for each in lengths]
    sizes = [len(each) for each in of_length]
    firsts = np.concatenate([np.empty(0, np.int64), *of_length])
    return firsts, firsts + np.repeat(lengths, sizes), [0, *accumulate(sizes)]


def _up_to(counts: Ints) -> Ints:
    """For each window what is in those before it, and last for all."""
    sums: Ints = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    return sums


def _likelihood_ratio(some: Ints, of: Ints, whole: int, of_whole: int) -> Floats:
    """The likelihood ratio of two shares, ``some`` of ``of`` and the rest of ``whole``, over one; 0 if not higher."""
    rest, of_rest = whole - some, of_whole - of
    higher = some * of_rest > rest * of
    found = _likelihood(some, of) + _likelihood(rest, of_rest) - _likelihood(np.array([whole]), np.array([of_whole]))
    ratio: Floats = np.where(higher, found, 0.0)
    return ratio


def _likelihood(some: Ints, of: Ints) -> Floats:
    """The logarithm of the greatest likelihood of ``some`` out of ``of``."""
    found: Floats = xlogy(some, some) + xlogy(of - some, of - some) - xlogy(of, of)
    return found


def _deviation(values: Floats) -> float:
    return max(_LEAST_DEVIATION, _MAD * float(np.median(np.abs(values - np.median(values)))))


def burst(windows: Sequence[Series]) -> Burst | None:
    """The windows in which more records did not end well than usually; None: chance may make all of them.

    Args:
        windows: of all records, in the order of time.
    """
    if len(windows) < _FEWEST_BURST_WINDOWS:
        return None
    errors, records = (np.array(each) for each in zip(*((each.errors, each.records) for each in windows), strict=True))
    shares = errors / np.maximum(1, records)
    usual = float(np.median(shares))
    is_high = (errors >= _FEWEST_ERRORS) & (shares >= np.maximum(_ERRORS_TIMES * usual, usual + _ERRORS_MORE))
    if not is_high.any():
        return None
    # Here and not above: it takes longer to import than most logs to judge.
    from scipy.stats import hypergeom

    # How likely so many of all errors are in the window if each record may have been one (Fisher's exact test).
    chance = hypergeom.sf(errors - 1, records.sum(), errors.sum(), records)
    is_certain = is_high & (chance <= _FALSE / 2 / len(windows))
    found = [each for each, certain in zip(windows, is_certain.tolist(), strict=True) if certain]
    return Burst(found, usual) if found else None
