"""Before and after: by how much the percentiles and errors of each method have changed, and how sure that is.

For each method and percentile the ratio of after to before gets an interval by bootstrap (``resampling``). What is
too small a change to matter, and what chance may have done, are kept apart from the rest:

* A change is *confirmed* if it would be there by chance in less than 5 % of all changes that are called so
  (Benjamini-Hochberg over all methods and percentiles together: of thousands, some always look changed).
* A change *matters* if it is confirmed and at least as large as the smallest one asked for.

What changes all the time (load that grows through the day) makes any two ranges of time differ. So what changes within
the sides, in one method or in all of them alike, counts against a change between them: its interval is that much wider,
and it is told how large a change would have been seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import expm1, log, sqrt

import numpy as np
from scipy.stats import false_discovery_control, fisher_exact, norm

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.buckets import Floats
from rpcmq.latency.analysis.comparison import ERRORS, Comparison, MethodShift, Shift
from rpcmq.latency.analysis.intervals import share_interval, smallest_count
from rpcmq.latency.analysis.quantities import percentile_name
from rpcmq.latency.analysis.resampling import DRAWS, FEWEST_WINDOWS, drift, log_quantiles, share_draws
from rpcmq.latency.analysis.series import METHOD, Series

__all__ = ["FALSE_DISCOVERIES", "FEWEST_RECORDS", "PERCENTILES", "compare"]

PERCENTILES = (0.5, 0.95, 0.99)
#: Of the changes that are called confirmed, at most this share is chance.
FALSE_DISCOVERIES = 0.05
#: Fewer of a method say nothing, whatever the percentile; p99 needs 299, p99.9 needs 2,995.
FEWEST_RECORDS = 30
#: Power: the probability of detecting a change of size ``Shift.detectable``.
_POWER = 0.8
#: Groups of windows examined for drift; with fewer windows on a side no drift is estimated.
_GROUPS = 20
#: Deviations beyond which a difference is drift: of all methods together, and of one, of which there are many.
_COMMON, _OWN = 3.0, 4.0
#: Deviations from the middle to an end of an interval of 95 %.
_INTERVAL = 1.96


def compare(
    before: Sequence[Series],
    after: Sequence[Series],
    before_windows: Iterable[Series] = (),
    after_windows: Iterable[Series] = (),
    *,
    measure: str = "total",
    percentiles: Sequence[float] = PERCENTILES,
    smallest: float = 0.05,
    seed: int = 0,
) -> Comparison:
    """Compare each method of ``after`` with that of ``before``.

    Args:
        before, after: by exchange, topic and method; the whole time of each.
        before_windows, after_windows: the same by window, of all methods or some; of a method that has at least
            ``FEWEST_WINDOWS`` on both sides whole windows are drawn, of others records.
        measure: total, queue or service.
        percentiles: quantiles, above 0 and below 1.
        smallest: the smallest change that matters: of a percentile a share of it, of errors a share of records.
            Percentiles are known within 1.1 %, so that less than 0.022 means little.
        seed: of the draws: the same seed gives the same result.
    """
    chance = np.random.default_rng(seed)
    theirs = {_identity(each): each for each in before}
    ours = {_identity(each): each for each in after}
    windows = _by_method(before_windows), _by_method(after_windows)
    both = {name: (theirs[name], new) for name, new in ours.items() if name in theirs}
    sides = {
        name: (_Side.of(old, windows[0].get(name), measure), _Side.of(new, windows[1].get(name), measure))
        for name, (old, new) in both.items()
    }
    common = _common_drift(sides.values(), (*percentiles, None))
    methods = [
        MethodShift(new.key, old, new, tuple(_shifts(*sides[name], percentiles, common, chance)))
        for name, (old, new) in both.items()
    ]
    methods = _judged(methods, smallest)
    methods.sort(key=lambda each: (not each.matters, -each.weight))
    return Comparison(
        measure,
        smallest,
        methods,
        [each for name, each in theirs.items() if name not in ours],
        [each for name, each in ours.items() if name not in theirs],
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """A method before or after: in one piece, or in windows."""

    whole: Histogram
    records: int
    errors: int
    windows: list[tuple[Histogram, int, int]]
    groups: list[tuple[Histogram, int, int]]

    @classmethod
    def of(cls, series: Series, windows: list[Series] | None, measure: str) -> _Side:
        pieces = [(getattr(each, measure), each.records, each.errors) for each in windows or ()]
        groups = _grouped(pieces) if len(pieces) >= FEWEST_WINDOWS else []
        return cls(getattr(series, measure), series.records, series.errors, pieces, groups)

    def pieces(self, in_windows: bool) -> list[Histogram]:
        return [histogram for histogram, _, _ in self.windows] if in_windows else [self.whole]

    def course(self, quantile: float | None) -> Floats:
        """The logarithm of a quantile (None: the share of errors) in the time of this side, by groups of windows."""
        if quantile is None:
            return np.array([errors / max(1, records) for _, records, errors in self.groups])
        return np.array([log(max(histogram.quantile(quantile) or 0.0, 0.5)) for histogram, _, _ in self.groups])

    def error_draws(self, chance: np.random.Generator) -> Floats:
        records = np.array([records for _, records, _ in self.windows])
        errors = np.array([errors for _, _, errors in self.windows])
        return share_draws(errors, records, chance)


def _grouped(pieces: Sequence[tuple[Histogram, int, int]]) -> list[tuple[Histogram, int, int]]:
    ends = [len(pieces) * number // _GROUPS for number in range(_GROUPS + 1)]
    groups = []
    for begin, end in pairwise(ends):
        whole, records, errors = Histogram(), 0, 0
        for histogram, of_records, of_errors in pieces[begin:end]:
            whole.merge(histogram)
            records, errors = records + of_records, errors + of_errors
        groups.append((whole, records, errors))
    return groups


def _common_drift(pairs: Iterable[tuple[_Side, _Side]], quantiles: Sequence[float | None]) -> dict[float | None, float]:
    """Of each quantile the drift that all methods have in common: it shows where that of one is lost in its noise."""
    in_windows = [pair for pair in pairs if all(side.groups for side in pair)]
    found: dict[float | None, float] = {}
    for quantile in quantiles:
        drifts = [0.0]
        for sides in zip(*in_windows, strict=True):
            courses = [side.course(quantile) for side in sides]
            drifts.append(drift(np.mean([course - course.mean() for course in courses], axis=0), _COMMON))
        found[quantile] = max(drifts)
    return found


def _identity(series: Series) -> tuple[str | None, ...]:
    return tuple(series.key[name] for name in METHOD)


def _by_method(windows: Iterable[Series]) -> dict[tuple[str | None, ...], list[Series]]:
    found: dict[tuple[str | None, ...], list[Series]] = {}
    for each in windows:
        found.setdefault(_identity(each), []).append(each)
    for of_method in found.values():
        of_method.sort(key=lambda series: series.window or 0)
    return found


def _shifts(
    before: _Side,
    after: _Side,
    percentiles: Sequence[float],
    common: Mapping[float | None, float],
    chance: np.random.Generator,
) -> Iterable[Shift]:
    in_windows = min(len(before.windows), len(after.windows)) >= FEWEST_WINDOWS
    fewest = min(before.whole.count, after.whole.count)
    known = [q for q in percentiles if fewest >= max(smallest_count(q), FEWEST_RECORDS)]
    drawn = {}
    if known:
        old, old_draws = log_quantiles(before.pieces(in_windows), known, chance)
        new, new_draws = log_quantiles(after.pieces(in_windows), known, chance)
        for n, q in enumerate(known):
            drifts = [common[q], *(drift(side.course(q), _OWN) for side in (before, after))] if in_windows else [0.0]
            drawn[q] = (new[n] - old[n], new_draws[:, n] - old_draws[:, n], max(drifts))
    for q in percentiles:
        shift = Shift(percentile_name(q), before.whole.quantile(q), after.whole.quantile(q))
        if q in drawn:
            yield _of_percentile(shift, *drawn[q], "windows" if in_windows else "records")
        elif shift.before and shift.after:
            yield replace(shift, change=shift.after / shift.before - 1)
        else:
            yield shift
    yield _of_errors(before, after, in_windows, common, chance)


def _of_percentile(shift: Shift, estimate: float, draws: Floats, drift: float, drawn: str) -> Shift:
    draws = _widened(draws, estimate, drift)
    low, high = np.quantile(draws, (0.025, 0.975))
    return replace(
        shift,
        change=expm1(estimate),
        interval=(expm1(low), expm1(high)),
        p_value=_p_value(estimate, draws),
        drawn=drawn,
        drift=expm1(drift),
        detectable=float(np.std(draws)),
    )


def _widened(draws: Floats, estimate: float, drift: float) -> Floats:
    """``draws`` about ``estimate``, as wide as if what changed within a side could have been between them, too."""
    deviation = float(np.std(draws))
    if not drift or not deviation:
        return draws
    wider: Floats = estimate + (draws - estimate) * sqrt(1 + (drift / deviation) ** 2)
    return wider


def _p_value(estimate: float, draws: Floats) -> float:
    """Return the two-sided p-value of "no change".

    It is twice the share of draws on the other side of zero. Where no draw is, that says less than 1 in 1,000, and
    how much less is as the normal distribution has it: thousands of series cannot do with less.
    """
    if estimate == 0:
        return 1.0
    crossed = 2 * min(np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0))
    if crossed:
        return min(1.0, crossed / DRAWS)
    deviation = float(np.std(draws))
    return min(2 / DRAWS, 2 * float(norm.sf(abs(estimate) / deviation)) if deviation else 0.0)


def _of_errors(
    before: _Side, after: _Side, in_windows: bool, common: Mapping[float | None, float], chance: np.random.Generator
) -> Shift:
    shift = Shift(
        ERRORS,
        before.errors / before.records if before.records else None,
        after.errors / after.records if after.records else None,
    )
    if shift.before is None or shift.after is None:
        return shift
    change = shift.after - shift.before
    if min(before.records, after.records) < FEWEST_RECORDS:
        return replace(shift, change=change)
    within = 0.0
    low, high = _newcombe(before, after)
    p_value = _p_value_of_shares(before, after)
    if in_windows and (before.errors or after.errors):
        # Errors come in bursts, which records drawn one by one do not know; few errors are none in most draws.
        within = max(common[None], drift(before.course(None), _OWN), drift(after.course(None), _OWN))
        draws = _widened(after.error_draws(chance) - before.error_draws(chance), change, within)
        drawn_low, drawn_high = np.quantile(draws, (0.025, 0.975))
        low, high = min(low, float(drawn_low)), max(high, float(drawn_high))
        p_value = max(p_value, _p_value(change, draws))
    return replace(
        shift,
        change=change,
        interval=(low, high),
        p_value=p_value,
        drawn="windows" if in_windows else "records",
        drift=within,
        detectable=(high - low) / (2 * _INTERVAL),
    )


def _newcombe(before: _Side, after: _Side) -> tuple[float, float]:
    """The interval of the difference of two shares: Newcombe's, of Wilson's intervals of both."""
    old, new = before.errors / before.records, after.errors / after.records
    old_low, old_high = share_interval(before.errors, before.records)
    new_low, new_high = share_interval(after.errors, after.records)
    down = sqrt((new - new_low) ** 2 + (old_high - old) ** 2)
    up = sqrt((new_high - new) ** 2 + (old - old_low) ** 2)
    return new - old - down, new - old + up


def _p_value_of_shares(before: _Side, after: _Side) -> float:
    table = [[side.errors, side.records - side.errors] for side in (before, after)]
    if min(map(min, table)) < FEWEST_RECORDS:
        return float(fisher_exact(table)[1])
    share = (before.errors + after.errors) / (before.records + after.records)
    deviation = sqrt(share * (1 - share) * (1 / before.records + 1 / after.records))
    return 2 * float(norm.sf(abs(after.errors / after.records - before.errors / before.records) / deviation))


def _judged(methods: list[MethodShift], smallest: float) -> list[MethodShift]:
    """``methods`` with p-values that are corrected for their number."""
    values = [shift.p_value for each in methods for shift in each.shifts if shift.p_value is not None]
    # A single change among as many has to be this far out to be called one, and then is in half of the cases.
    far = float(norm.isf(FALSE_DISCOVERIES / 2 / max(1, len(values)))) + float(norm.ppf(_POWER))
    corrected = iter(false_discovery_control(values) if values else ())

    def judge(shift: Shift) -> Shift:
        if shift.p_value is None or shift.change is None:
            return shift
        change, p_value = shift.change, float(next(corrected))
        confirmed = p_value <= FALSE_DISCOVERIES
        if shift.detectable is not None:
            size = far * shift.detectable
            shift = replace(shift, detectable=size if shift.what == ERRORS else expm1(size))
        return replace(shift, p_value=p_value, confirmed=confirmed, matters=confirmed and abs(change) >= smallest)

    return [replace(each, shifts=tuple(map(judge, each.shifts))) for each in methods]
