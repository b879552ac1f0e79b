"""Service level objectives of methods, and the rate at which their error budget burns.

::

    objective = pattern ":" condition [ ":" share ]
    condition = [ percentile ] "<" duration

What is *good* is a call (or cast) that ended ``ok`` in less than the duration, counted from its coming to its end.
Whatever ended otherwise is not, however quickly: a refusal in a millisecond helps nobody.

=============================  =========================================================================
``compute.*:p99<200ms:99.9%``  99.9 % of the minutes are good ones; a minute is good if at least 99 % of
                               the method's calls in it are good, that is: if its p99 is below 200 ms and
                               errors count as taking for ever. Minutes without calls count for nothing
``compute.*:<200ms:99.9%``     99.9 % of the calls are good
``compute.*:p99<200ms``        99 % of the calls are good: the p99 of all of them is below 200 ms
=============================  =========================================================================

The pattern is that of ``names.matches``; each method that it is for has to meet the objective by itself. "Minutes" are
the windows of the stored histograms, 60 s unless another length was asked for.

The *burn rate* is the share of what is not good over the share that may be: at 1, what is allowed for a month is used
up in a month. As usual it is looked at in pairs of times, at whose end both must be above the limit: a long one, so
that it matters, and a short one, so that it is still going on (``PAIRS``).

A duration is rounded down to the end of a bucket, at most 2.2 %: what is stored does not tell more, and a promise is
not to look better than it is. ``Objective.edge_us`` says what it was rounded to.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2

import numpy as np

from rpcmq.errors import UsageError
from rpcmq.histogram import SCALE, Histogram
from rpcmq.latency.analysis.buckets import Buckets, Floats, Ints
from rpcmq.latency.analysis.names import matches
from rpcmq.latency.analysis.quantities import NUMBER, parse_duration, parse_percentile
from rpcmq.latency.analysis.series import METHOD, Key, Series

__all__ = ["PAIRS", "Alert", "Burn", "Objective", "Pair", "Standing", "evaluate", "parse_objective"]

_EXAMPLE = "'compute.*:p99<200ms:99.9%'"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two times in which a burn rate above ``limit`` is an alert.

    Attributes:
        long, short: seconds.
    """

    long: int
    short: int
    limit: float

    @property
    def text(self) -> str:
        """``1 h + 5 min``."""
        return " + ".join(f"{s // 3600} h" if s >= 3600 else f"{s // 60} min" for s in (self.long, self.short))


#: The usual ones, for an objective over 30 days: in 1 h at 14.4 goes 2 % of what is allowed, in 6 h at 6 it is 5 %.
PAIRS = (Pair(3600, 300, 14.4), Pair(6 * 3600, 1800, 6.0))


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level objective.

    Attributes:
        text: as it was given.
        pattern: of the methods; see ``names.matches``.
        threshold_us: microseconds that a good call is below.
        quantile: of the calls of a minute, so many must be good; None: each call counts by itself.
        share: so many of the minutes, or of the calls, must be good; above 0 and below 1.
    """

    text: str
    pattern: str
    threshold_us: float
    quantile: float | None
    share: float

    @property
    def edge_us(self) -> float:
        """The largest duration in microseconds that surely counts as below the threshold: the end of a bucket."""
        # Where the threshold is such an end itself, that bucket has it too, and it is not below itself.
        return float(2.0 ** ((ceil(log2(self.threshold_us) * (1 << SCALE)) - 1) / (1 << SCALE)))


@dataclass(frozen=True, slots=True)
class Alert:
    """A time in which both burn rates of a pair were above its limit.

    Attributes:
        since, until: seconds since 1970.
        peak: the highest burn rate over the pair's long time.
    """

    since: float
    until: float
    peak: float


@dataclass(frozen=True, slots=True)
class Burn:
    """The burn rates of one pair of times.

    Attributes:
        long, short: burn rates at the end of the report; None: the log is shorter than that, or has no calls there.
        alerts: when both were above the limit.
    """

    pair: Pair
    long: float | None
    short: float | None
    alerts: list[Alert] = field(default_factory=list)

    @property
    def is_burning(self) -> bool:
        """Whether both are above the limit at the end of the report."""
        return self.long is not None and self.short is not None and min(self.long, self.short) >= self.pair.limit


@dataclass(frozen=True, slots=True)
class Standing:
    """A method's standing against an objective.

    Attributes:
        objective: what was promised.
        key: exchange, topic, method.
        good, all: minutes or calls.
        burns: by pair.
    """

    objective: Objective
    key: Key
    good: int
    all: int
    burns: tuple[Burn, ...]

    @property
    def share(self) -> float:
        """The share of good minutes or calls."""
        return self.good / self.all

    @property
    def is_met(self) -> bool:
        """Whether the objective was met in the time of the report."""
        return self.share >= self.objective.share

    @property
    def burn(self) -> float:
        """The burn rate over the time of the report."""
        return (1 - self.share) / (1 - self.objective.share)

    @property
    def budget_left(self) -> float:
        """The remaining error budget in the time of the report: 1 is all, 0 none; negative: exceeded."""
        return 1 - self.burn


def parse_objective(text: str) -> Objective:
    """The objective that ``text`` says.

    Raises:
        UsageError: it says none; names the part that is wrong.
    """
    head, sign, rest = text.rpartition("<")
    if not sign:
        raise UsageError(f"{text!r}: no '<'; expected an objective such as {_EXAMPLE}")
    pattern, colon, percentile = head.rpartition(":")
    if not colon or not pattern.strip():
        raise UsageError(f"{text!r}: no pattern in front of {head!r}; expected one and ':', as in {_EXAMPLE}")
    duration, colon, share = (part.strip() for part in rest.partition(":"))
    threshold_us = parse_duration(duration, text)
    quantile = parse_percentile(percentile.strip(), text) if percentile.strip() else None
    if colon:
        return Objective(text, pattern.strip(), threshold_us, quantile, _share(share, text))
    if quantile is None:
        raise UsageError(f"{text!r}: of how many? Write p99<{duration}, or <{duration}:99.9%")
    return Objective(text, pattern.strip(), threshold_us, None, quantile)


def evaluate(
    objectives: Iterable[Objective],
    windows: Sequence[Series],
    window_seconds: int,
    pairs: Collection[Pair] = PAIRS,
) -> list[Standing]:
    """Return each method's standing against each objective that applies to it, by objective, the worst first.

    Args:
        windows: by window, exchange, topic, method and outcome.
        window_seconds: length of the windows.
    """
    methods: dict[tuple[str | None, ...], list[Series]] = {}
    for each in windows:
        if each.records:
            methods.setdefault(tuple(each.key[name] for name in METHOD), []).append(each)
    begins = [each.window or 0 for each in windows]
    span = (min(begins, default=0), max(begins, default=0) + window_seconds)
    standings: list[Standing] = []
    for objective in objectives:
        found = [
            _standing(objective, key, series, window_seconds, span, pairs)
            for name, series in methods.items()
            if matches(objective.pattern, key := dict(zip(METHOD, name, strict=True)))
        ]
        standings += sorted(found, key=lambda each: -each.burn)
    return standings


def _share(text: str, within: str) -> float:
    found = re.fullmatch(rf"({NUMBER})\s*%", text)
    share = float(f"{found[1]}e-2") if found else 0.0
    if not 0 < share < 1:
        raise UsageError(f"{within!r}: {text!r}: expected a percentage above 0 % and below 100 %, such as 99.9%")
    return share


def _standing(
    objective: Objective,
    key: Key,
    series: Iterable[Series],
    window_seconds: int,
    span: tuple[int, int],
    pairs: Collection[Pair],
) -> Standing:
    begin, end = span
    counted: dict[int, list[int]] = {}
    for each in series:
        both = counted.setdefault(each.window or 0, [0, 0])
        both[1] += each.records
        if each.key["outcome"] == "ok":
            both[0] += _below(each.total, objective.threshold_us)
    if objective.quantile is not None:
        counted = {window: [_is_good(good, of, objective.quantile), 1] for window, (good, of) in counted.items()}
    # A row for each window, those without calls too: times are looked at by their length.
    table = np.zeros(((end - begin) // window_seconds, 2), np.int64)
    for window, both in counted.items():
        table[(window - begin) // window_seconds] = both
    burns = tuple(_burn(table, pair, objective, begin, window_seconds) for pair in pairs)
    return Standing(objective, key, int(table[:, 0].sum()), int(table[:, 1].sum()), burns)


def _is_good(good: int, of: int, quantile: float) -> int:
    return int(good >= quantile * of * (1 - 1e-12))


def _below(histogram: Histogram, threshold_us: float) -> int:
    """Return the number of values in buckets that lie wholly below the threshold."""
    buckets = Buckets.of(histogram)
    inside = int(np.searchsorted(buckets.upper, threshold_us))
    return int(buckets.up_to[inside - 1]) if inside else 0


def _burn(table: Ints, pair: Pair, objective: Objective, begin: int, window_seconds: int) -> Burn:
    long = _rates(table, max(1, pair.long // window_seconds), objective)
    short = _rates(table, max(1, pair.short // window_seconds), objective)
    alerts: list[Alert] = []
    above = np.flatnonzero((long >= pair.limit) & (short >= pair.limit))
    for run in np.split(above, np.flatnonzero(np.diff(above) > 1) + 1):
        if len(run):
            first, last = int(run[0]), int(run[-1])
            alerts.append(
                Alert(
                    begin + first * window_seconds,
                    begin + (last + 1) * window_seconds,
                    float(long[first : last + 1].max()),
                )
            )
    return Burn(pair, _last(long), _last(short), alerts)


def _last(rates: Floats) -> float | None:
    return None if np.isnan(rates[-1]) else float(rates[-1])


def _rates(table: Ints, length: int, objective: Objective) -> Floats:
    """Burn rate over ``length`` windows at the end of each; nan: there are not so many, or no calls in them."""
    rates = np.full(len(table), np.nan)
    if len(table) >= length:
        up_to = np.vstack([np.zeros((1, 2), np.int64), np.cumsum(table, axis=0)])
        good, of = (up_to[length:] - up_to[:-length]).T
        has_calls = of > 0
        rates[length - 1 :][has_calls] = (1 - good[has_calls] / of[has_calls]) / (1 - objective.share)
    return rates
