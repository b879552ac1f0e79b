"""Integer bounds of the histograms' buckets, for engines whose logarithm may err in the last digit."""

from __future__ import annotations

from math import isqrt

from rpcmq.histogram import SCALE

__all__ = ["LAST_OF_BUCKET", "NEAR_IS_EXACT", "PER_OCTAVE"]

PER_OCTAVE = 1 << SCALE
#: Bits of the largest duration.
_BITS = 63


def _root(power: int) -> int:
    """The integer part of 2 ** (power / 32)."""
    value = 1 << power
    for _ in range(SCALE):
        value = isqrt(value)
    return value


#: The largest integer in each bucket, that of index -1 first; of the last one, the largest that there is.
LAST_OF_BUCKET = [min(_root(power), (1 << _BITS) - 1) for power in range(_BITS * PER_OCTAVE + 1)]
#: Up to here (four minutes) the logarithm alone is right: a test looks at every bound.
NEAR_IS_EXACT = 1 << 28
