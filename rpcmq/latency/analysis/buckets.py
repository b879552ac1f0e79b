"""The buckets of histograms as arrays: for statistics that need more of a distribution than its quantiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpcmq.histogram import SCALE, Histogram

__all__ = ["GROWTH", "Buckets", "Floats", "Ints", "middle", "on_one_grid"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

#: The upper end of a bucket over its lower end.
GROWTH = 2.0 ** (1 / (1 << SCALE))
#: Stands for the bucket of zero, which has no index; below all indexes.
_ZERO = -(1 << 30)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a histogram that are not empty, in order.

    Attributes:
        counts: values in each.
        lower, upper: what the values in each lie between, microseconds. The ends of all are the smallest and the
            largest value recorded.
        up_to: values in this bucket and those before it.
    """

    counts: Ints
    lower: Floats
    upper: Floats
    up_to: Ints

    @classmethod
    def of(cls, histogram: Histogram) -> Buckets:
        """The buckets of ``histogram``."""
        indexes, counts = _arrays(histogram)
        lower = np.where(indexes == _ZERO, 0.0, np.exp2(indexes / (1 << SCALE)))
        upper = np.where(indexes == _ZERO, 0.0, lower * GROWTH)
        if len(counts):
            # The ends of all are known exactly.
            lower[0] = histogram.min
            upper[-1] = histogram.max
        return cls(counts, lower, upper, np.cumsum(counts))

    @property
    def count(self) -> int:
        """Number of values."""
        return int(self.up_to[-1]) if len(self.up_to) else 0

    def around(self, rank: int) -> tuple[float, float]:
        """Return the bounds of the value at ``rank`` (1 to ``count``) of the sorted values."""
        if rank == 1:
            return float(self.lower[0]), float(self.lower[0])
        if rank == self.count:
            return float(self.upper[-1]), float(self.upper[-1])
        place = int(np.searchsorted(self.up_to, rank))
        return float(self.lower[place]), float(self.upper[place])


def middle(index: int) -> float:
    """Return the representative value of bucket ``index`` of ``on_one_grid``, as ``Histogram`` computes it."""
    return 0.0 if index == _ZERO else float(2.0 ** (index / (1 << SCALE)) * 2 * GROWTH / (1 + GROWTH))


def on_one_grid(histograms: Iterable[Histogram]) -> tuple[Ints, Ints]:
    """Histograms as rows of one table.

    Returns:
        The indexes of all buckets that occur, in order, with a number below all others for the bucket of zero; and
        for each histogram a row with its counts in them.
    """
    each: Sequence[tuple[Ints, Ints]] = [_arrays(histogram) for histogram in histograms]
    grid = np.unique(np.concatenate([indexes for indexes, _ in each] or [np.empty(0, np.int64)]))
    counts = np.zeros((len(each), len(grid)), np.int64)
    for row, (indexes, found) in enumerate(each):
        counts[row, np.searchsorted(grid, indexes)] = found
    return grid, counts


def _arrays(histogram: Histogram) -> tuple[Ints, Ints]:
    source = histogram.to_dict()
    pairs = source["buckets"]
    if source["zero_count"]:
        pairs = [[_ZERO, source["zero_count"]], *pairs]
    table = np.array(pairs, np.int64).reshape(len(pairs), 2)
    return table[:, 0], table[:, 1]
