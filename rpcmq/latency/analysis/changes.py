"""Sudden changes over windows of time: where a quantile rose and stayed, or rose for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from rpcmq.latency.analysis.buckets import Floats
from rpcmq.latency.analysis.series import Series

__all__ = ["Rise", "rise"]

#: A window needs so many records to have a p99 worth the name, a series so many windows.
_FEWEST_RECORDS = 300
_FEWEST_WINDOWS = 10
#: A rise is at least by half, and so many times what windows usually differ by.
_SMALLEST = log(1.5)
_SMALLEST_DEVIATIONS = 5
#: The least that windows usually differ by: two buckets. Constant series have no deviation of their own.
_LEAST_DEVIATION = 0.045
#: Of a normal distribution's deviation over its median absolute deviation.
_MAD = 1.4826


@dataclass(frozen=True, slots=True)
class Rise:
    """A time in which a quantile was higher than in the rest.

    Attributes:
        since, until: begins of the first and of the last window in it, seconds since 1970.
        lasts: whether it goes on to the end.
        before, during: the quantile's median over the windows outside and inside, microseconds.
    """

    since: int
    until: int
    lasts: bool
    before: float
    during: float

    @property
    def times(self) -> float:
        """How many times as high."""
        return self.during / self.before


def rise(windows: Sequence[Series], quantile: float = 0.99) -> Rise | None:
    """The largest rise of the total duration's ``quantile``; None: there is none, or too little to tell.

    A step that lasts to the end is looked for first, then the longest run of windows far above the usual.

    Args:
        windows: of one series, in the order of time.
    """
    usable = [each for each in windows if each.total.count >= _FEWEST_RECORDS and each.window is not None]
    if len(usable) < _FEWEST_WINDOWS:
        return None
    values = np.log([max(each.total.quantile(quantile) or 0.0, 0.5) for each in usable])
    inside = _step(values)
    if inside is None:
        inside = _peak(values)
    if inside is None:
        return None
    first, last = int(inside[0]), int(inside[-1])
    outside = np.delete(values, inside)
    return Rise(
        usable[first].window or 0,
        usable[last].window or 0,
        last == len(values) - 1,
        exp(float(np.median(outside))),
        exp(float(np.median(values[inside]))),
    )


def _step(values: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The windows from the place on that parts low from high best; at least three on either side."""
    places = range(3, len(values) - 2)
    place = min(places, key=lambda k: float(np.sum(np.abs(_around(values[:k]))) + np.sum(np.abs(_around(values[k:])))))
    before, after = values[:place], values[place:]
    height = float(np.median(after) - np.median(before))
    usual = _deviation(np.concatenate([_around(before), _around(after)]))
    return np.arange(place, len(values)) if height >= max(_SMALLEST, _SMALLEST_DEVIATIONS * usual) else None


def _around(values: Floats) -> Floats:
    """Distances from the median."""
    distances: Floats = values - np.median(values)
    return distances


def _peak(values: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]] | None:
    """The longest run of windows that are far above the median."""
    distances = _around(values)
    above = np.flatnonzero(distances > max(_SMALLEST, _SMALLEST_DEVIATIONS * _deviation(distances)))
    if not len(above):
        return None
    runs = np.split(above, np.flatnonzero(np.diff(above) > 1) + 1)
    return max(runs, key=lambda run: (len(run), float(values[run].max())))


def _deviation(values: Floats) -> float:
    return max(_LEAST_DEVIATION, _MAD * float(np.median(np.abs(values))))
