"""The one latency histogram: exponential buckets, 32 to an octave.

It follows the mapping of OpenTelemetry's exponential histogram at scale 5: bucket ``i`` holds the
values in (base**i, base**(i + 1)] with base = 2**(1/32), so the bounds are the same everywhere and
histograms merge exactly. A quantile is the value in its bucket that is nearest, in proportion, to
both of its ends: off by at most (base - 1) / (base + 1) = 1.083 %.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from math import ceil, inf, log2
from typing import Any

__all__ = ["SCALE", "Histogram", "microseconds"]

SCALE = 5
"""Buckets an octave, as a power of two."""

_PER_OCTAVE = 1 << SCALE
_BASE = 2.0 ** (1 / _PER_OCTAVE)
# The harmonic mean of a bucket's ends over its lower end: the same relative error towards both.
_MIDDLE = 2 * _BASE / (1 + _BASE)
# What the exponents of a double allow, and a 64-bit count: bounds for histograms read from elsewhere.
_INDEX_RANGE = (-1075 * _PER_OCTAVE, 1024 * _PER_OCTAVE - 1)
_MAX_COUNT = 2**63 - 1


def microseconds(seconds: float) -> int:
    """Convert seconds to whole microseconds, rounded to nearest, never negative."""
    return max(0, int(seconds * 1e6 + 0.5))


class Histogram:
    """Counts of values (microseconds by convention), from which quantiles are read.

    Zero and below, which only a clock's jitter produces, count as 0 in a bucket of their own.
    """

    __slots__ = ("_buckets", "_max", "_min", "_sum", "_zeros")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._zeros = 0
        self._sum: float = 0
        self._min = inf
        self._max = 0.0

    def record(self, value: float, count: int = 1) -> None:
        """Count ``value``, which occurred ``count`` times.

        Raises:
            ValueError, OverflowError: the value is not a number, or infinite; nothing was counted.
        """
        if value <= 0:
            self._zeros += count
            self._min = 0.0
            return
        index = ceil(log2(value) * 32) - 1
        # A value a hair above a power of two has that power's logarithm, but the next bucket.
        if index & 31 == 31 and value > 2.0 ** ((index + 1) >> 5):
            index += 1
        buckets = self._buckets
        if index in buckets:
            buckets[index] += count
        else:
            buckets[index] = count
        self._sum += value * count
        if value < self._min:
            self._min = value
        if value > self._max:
            self._max = value

    @property
    def count(self) -> int:
        """Number of values recorded."""
        return self._zeros + sum(self._buckets.values())

    @property
    def sum(self) -> float:
        """Sum of the values recorded."""
        return self._sum

    @property
    def min(self) -> float | None:
        """The smallest value recorded, exactly; None if there is none."""
        return None if self._min == inf else self._min

    @property
    def max(self) -> float | None:
        """The largest value recorded, exactly; None if there is none."""
        return None if self._min == inf else self._max

    def quantile(self, q: float) -> float | None:
        """The value at nearest rank ``ceil(q * count)``, within 1.1 %; None if nothing was recorded.

        ``q`` is taken as the decimal it is written as, so that 0.07 of 100 values is the seventh.

        Raises:
            ValueError: ``q`` is not from 0 to 1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"q = {q!r}: expected a number from 0 to 1")
        count = self.count
        if not count:
            return None
        return self.at_rank(max(1, ceil(Fraction(str(q)) * count)))

    def at_rank(self, rank: int) -> float:
        """The value at ``rank`` of the sorted values, 1 to ``count``, within 1.1 %.

        Raises:
            ValueError: there is no such rank.
        """
        count = self.count
        if not 1 <= rank <= count:
            raise ValueError(f"rank = {rank}: expected 1 to {count}")
        # The ends are known exactly.
        if rank == 1:
            return float(self._min)
        if rank == count:
            return float(self._max)
        if rank <= self._zeros:
            return 0.0
        indexes = sorted(self._buckets)
        counts_up_to = list(accumulate(map(self._buckets.__getitem__, indexes)))
        index = indexes[bisect_left(counts_up_to, rank - self._zeros)]
        middle: float = 2.0 ** (index / _PER_OCTAVE) * _MIDDLE
        return min(max(middle, self._min), self._max)

    def merge(self, other: Histogram) -> None:
        """Add what ``other`` counted, as if it had all been recorded here."""
        buckets = self._buckets
        if not buckets:
            buckets.update(other._buckets)
        else:
            for index, count in other._buckets.items():
                buckets[index] = buckets.get(index, 0) + count
        self._zeros += other._zeros
        self._sum += other._sum
        self._min = min(self._min, other._min)
        self._max = max(self._max, other._max)

    def to_dict(self) -> dict[str, Any]:
        """Return the histogram as JSON data; ``buckets`` is a sorted list of [index, count]."""
        return {
            "scale": SCALE,
            "count": self.count,
            "sum": self._sum,
            "min": self.min,
            "max": self.max,
            "zero_count": self._zeros,
            "buckets": [[index, self._buckets[index]] for index in sorted(self._buckets)],
        }

    @classmethod
    def of_counts(cls, buckets: dict[int, int], zeros: int, sum: int, least: int | None, most: int | None) -> Histogram:
        """The histogram with these counts by bucket, which are taken as they are: for those who have counted alike.

        Args:
            least, most: of the values recorded; None: there are none.
        """
        histogram = cls()
        if least is not None and most is not None:
            histogram._buckets, histogram._zeros, histogram._sum = buckets, zeros, sum
            histogram._min, histogram._max = least, most
        return histogram

    @classmethod
    def from_dict(cls, source: Mapping[str, Any]) -> Histogram:
        """The histogram that ``to_dict`` described.

        Raises:
            ValueError: the mapping does not describe a histogram of this scale; says what is wrong.
        """
        histogram = cls()
        try:
            if source["scale"] != SCALE:
                raise ValueError(f"scale = {source['scale']!r}: expected {SCALE}")
            histogram._zeros = _whole("zero_count", source["zero_count"], 0, _MAX_COUNT)
            histogram._buckets = _read_buckets(source["buckets"])
            if histogram.count != source["count"]:
                raise ValueError(f"count = {source['count']!r}: expected the buckets' {histogram.count}")
            if histogram.count:
                histogram._sum = _number("sum", source["sum"])
                histogram._min = _number("min", source["min"])
                histogram._max = _number("max", source["max"])
        except KeyError as error:
            raise ValueError(f"histogram without {error.args[0]!r}") from None
        return histogram


def _read_buckets(source: object) -> dict[int, int]:
    buckets: dict[int, int] = {}
    for pair in source if isinstance(source, list) else [source]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError(f"buckets: {pair!r}: expected a list of [index, count]")
        index = _whole("bucket index", pair[0], *_INDEX_RANGE)
        if index in buckets:
            raise ValueError(f"buckets: index {index} occurs twice")
        buckets[index] = _whole("bucket count", pair[1], 1, _MAX_COUNT)
    return buckets


def _whole(name: str, value: object, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name} = {value!r}: expected an integer from {low} to {high}")
    return value


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < inf:
        raise ValueError(f"{name} = {value!r}: expected a finite number >= 0")
    return value
