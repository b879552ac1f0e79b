"""Percentiles and durations as people write them."""

from __future__ import annotations

import re
from math import isfinite

from rpcmq.errors import UsageError

__all__ = ["NUMBER", "parse_duration", "parse_percentile", "percentile_name"]

#: Of a number without a sign.
NUMBER = r"\d+(?:\.\d+)?"
_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "min": 60e6}


def parse_percentile(text: str, within: str) -> float:
    """The quantile that a text such as ``p99.9`` names.

    Raises:
        UsageError: it names none; ``within`` is quoted as where it stands.
    """
    found = re.fullmatch(rf"p({NUMBER})", text)
    # The decimal as it was written: a division by 100 makes 0.9990000000000001 of 99.9.
    quantile = float(f"{found[1]}e-2") if found else 0.0
    if not 0 < quantile < 1:
        raise UsageError(f"{within!r}: {text!r} is no percentile; expected p50, p99, p99.9 and the like")
    return quantile


def percentile_name(quantile: float) -> str:
    """``p99.9`` of 0.999."""
    return f"p{quantile * 100:.10g}"


def parse_duration(text: str, within: str) -> float:
    """Microseconds of a text such as ``200ms``.

    Raises:
        UsageError: it is no duration above zero; ``within`` is quoted as where it stands.
    """
    found = re.fullmatch(rf"({NUMBER})\s*([a-z]*)", text)
    if found is None or found[2] not in _UNITS:
        raise UsageError(f"{within!r}: {text!r} is no duration; expected a number and one of {', '.join(_UNITS)}")
    value = float(found[1]) * _UNITS[found[2]]
    if not (value > 0 and isfinite(value)):
        raise UsageError(f"{within!r}: {text!r}: expected a duration above zero")
    return value
