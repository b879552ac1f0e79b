"""Limits of a comparison, as ``--fail-if`` has them.

::

    limit     = [ pattern ":" ] what ">" value
    pattern   = of "topic.method": * for any text, ? for one character, [ab] for one of these
    what      = "p" followed by a percentage above 0 and below 100 | "errors"
    value     = "+" percentage | [ "+" ] duration      of a percentile
              | "+" percentage | percentage            of errors
    duration  = number, then us, ms, s or min

=======================  ====================================================================================
``p99 > +10%``           p99 has become more than 10 % larger
``p99 > +5ms``           p99 has become more than 5 ms larger
``p99 > 250ms``          p99 is above 250 ms now, whatever it was
``errors > +1%``         of 100 records one more than before does not end well (percentage points)
``errors > 2%``          of 100 records more than two do not end well now, whatever it was
``compute.*:p99 > +10%`` p99 of the methods of the topic ``compute``
=======================  ====================================================================================

A limit is exceeded only if that is no chance. A rise: if the change is confirmed (``compare``) and larger than the
limit. What is now: if the lower end of its interval is above the limit. Where there are too few records to say, nothing
is exceeded, and it is said that this was not checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from rpcmq.errors import UsageError
from rpcmq.latency.analysis.compare import FEWEST_RECORDS
from rpcmq.latency.analysis.comparison import ERRORS, Comparison, Shift
from rpcmq.latency.analysis.intervals import interval, share_interval
from rpcmq.latency.analysis.names import matches
from rpcmq.latency.analysis.quantities import NUMBER, parse_duration, parse_percentile
from rpcmq.latency.analysis.series import Key, Series

__all__ = ["Excess", "Limit", "Verdict", "judge", "parse_limit"]

_EXAMPLES = "'p99 > +10%', 'p99 > 250ms', 'compute.*:p99.9 > +5ms', 'errors > +1%'"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit that must not be exceeded.

    Attributes:
        text: as it was given.
        pattern: of the methods it is for; see ``names.matches``.
        what: ``p99`` and the like, or ``errors``.
        quantile: of a percentile, above 0 and below 1; None: errors.
        value: microseconds for a duration, a share for a percentage.
        is_rise: whether it limits what was added since before, not what is now.
        is_share: whether ``value`` is a share; of a percentile: of what it was before.
    """

    text: str
    pattern: str
    what: str
    quantile: float | None
    value: float
    is_rise: bool
    is_share: bool


@dataclass(frozen=True, slots=True)
class Excess:
    """A method that exceeds a limit.

    Attributes:
        key: exchange, topic, method.
        value: what exceeds it: microseconds or a share, or their rise.
        low, high: what ``value`` lies between, with 95 %.
    """

    key: Key
    value: float
    low: float
    high: float


@dataclass(slots=True)
class Verdict:
    """The verdict on a limit.

    Attributes:
        limit: which one.
        checked: methods that it is for and that have enough records.
        unchecked: those that have not: n is too small.
        exceeded: those of ``checked`` that exceed it, the worst first.
        detectable: of a limit on a rise, for each of ``checked``: a rise of that size, in the limit's unit, would have
            been seen in 4 of 5 cases.
        drifting: those of ``checked`` that change within a side as well, by which the rise was made less sure.
    """

    limit: Limit
    checked: int = 0
    unchecked: list[Key] = field(default_factory=list)
    exceeded: list[Excess] = field(default_factory=list)
    detectable: list[tuple[Key, float]] = field(default_factory=list)
    drifting: list[Key] = field(default_factory=list)


def parse_limit(text: str) -> Limit:
    """The limit that ``text`` says.

    Raises:
        UsageError: it says none; names the part that is wrong.
    """
    head, sign, value = text.partition(">")
    if not sign:
        raise UsageError(f"{text!r}: no '>'; expected a limit such as {_EXAMPLES}")
    pattern, colon, what = head.rpartition(":")
    if colon and not pattern.strip():
        raise UsageError(f"{text!r}: nothing in front of ':'; expected a pattern such as 'compute.*'")
    what, value = what.strip(), value.strip()
    quantile = None if what == ERRORS else parse_percentile(what, text)
    found = re.fullmatch(rf"(\+?)\s*({NUMBER})\s*(%|[a-z]*)", value)
    if found is None:
        raise UsageError(f"{text!r}: {value!r} is no value; expected one such as +10% or 250ms")
    plus, number, unit = found.groups()
    if unit == "%":
        if quantile is not None and not plus:
            raise UsageError(f"{text!r}: {value!r} of what? Write +{value} for a rise, or a duration such as 250ms")
        amount = float(number) / 100
    elif quantile is None:
        raise UsageError(f"{text!r}: {value!r} is no share; errors are limited to a percentage such as +1% or 2%")
    else:
        amount = parse_duration(number + unit, text)
    return Limit(text, pattern.strip() or "*", what, quantile, amount, bool(plus), unit == "%")


def judge(limits: Iterable[Limit], comparison: Comparison) -> list[Verdict]:
    """Return the verdict on each of ``limits``.

    Args:
        comparison: with the percentiles that the limits on rises name.
    """
    return [_judge(limit, comparison) for limit in limits]


def _judge(limit: Limit, comparison: Comparison) -> Verdict:
    verdict = Verdict(limit)
    found: list[tuple[Key, tuple[float, float, float] | None, bool]] = []
    if limit.is_rise:
        for each in comparison.methods:
            shift = next(shift for shift in each.shifts if shift.what == limit.what)
            found.append((each.key, _rise(shift, limit), shift.confirmed))
            if shift.detectable is not None and matches(limit.pattern, each.key):
                verdict.detectable.append((each.key, shift.detectable * _unit(shift, limit)))
                if shift.drift:
                    verdict.drifting.append(each.key)
    else:
        now = [*(each.after for each in comparison.methods), *comparison.new]
        for series in now:
            known = _share_now(series) if limit.quantile is None else _now(series, comparison.measure, limit.quantile)
            found.append((series.key, known, known is not None and known[1] > limit.value))
    for key, known, is_sure in found:
        if not matches(limit.pattern, key):
            continue
        if known is None:
            verdict.unchecked.append(key)
            continue
        verdict.checked += 1
        if is_sure and known[0] > limit.value:
            verdict.exceeded.append(Excess(key, *known))
    verdict.exceeded.sort(key=lambda each: -each.value)
    verdict.detectable.sort(key=lambda each: each[1])
    return verdict


def _rise(shift: Shift, limit: Limit) -> tuple[float, float, float] | None:
    if shift.change is None or shift.interval is None:
        return None
    unit = _unit(shift, limit)
    return shift.change * unit, shift.interval[0] * unit, shift.interval[1] * unit


def _unit(shift: Shift, limit: Limit) -> float:
    """Return the factor from a share to the limit's unit: 1, or the former value in microseconds."""
    return 1.0 if limit.is_share or shift.before is None else shift.before


def _now(series: Series, measure: str, quantile: float) -> tuple[float, float, float] | None:
    histogram = getattr(series, measure)
    known = interval(histogram, quantile)
    return None if known is None else (histogram.quantile(quantile), *known)


def _share_now(series: Series) -> tuple[float, float, float] | None:
    if series.records < FEWEST_RECORDS:
        return None
    return series.errors / series.records, *share_interval(series.errors, series.records)
