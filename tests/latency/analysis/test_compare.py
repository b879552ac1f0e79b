"""Before and after: what is chance is not called a change, and what is one is found."""

from __future__ import annotations

import numpy as np
import pytest

from rpcmq.latency.analysis.compare import compare
from rpcmq.latency.analysis.comparison import Comparison, Shift
from rpcmq.latency.analysis.limits import judge, parse_limit
from rpcmq.latency.analysis.resampling import DRAWS, log_quantiles
from rpcmq.latency.analysis.series import Series
from tests.latency.analysis.samples import histogram, joined, lognormal, series


def shifts(comparison: Comparison, what: str) -> list[Shift]:
    return [shift for method in comparison.methods for shift in method.shifts if shift.what == what]


def simulated(chance: np.random.Generator, methods: int, count: int, times: float = 1.0) -> list[Series]:
    return [series(lognormal(chance, count) * times, f"m{n}") for n in range(methods)]


@pytest.mark.parametrize("count", [300, pytest.param(3000, marks=pytest.mark.long)])
def test_the_same_twice_has_no_false_alarms(count: int) -> None:
    chance = np.random.default_rng(count)
    found = compare(simulated(chance, 100, count), simulated(chance, 100, count))
    assert [len(shifts(found, what)) for what in ("p50", "p95", "p99", "errors")] == [100] * 4
    assert sum(shift.confirmed for method in found.methods for shift in method.shifts) <= 2
    # One by one about 95 % of the intervals hold "no change": what says that the p-values are not merely cautious.
    for what in ("p50", "p99"):
        held = sum(s.interval is not None and s.interval[0] <= 0 <= s.interval[1] for s in shifts(found, what))
        assert held >= 0.88 * 100


@pytest.mark.long
def test_a_tenth_more_at_p99_is_found_in_30_000_records() -> None:
    chance = np.random.default_rng(1)
    before = simulated(chance, 25, 30_000)
    found = compare(before, simulated(chance, 25, 30_000, 1.1), percentiles=[0.99])
    assert sum(shift.matters for shift in shifts(found, "p99")) >= 18
    # With ten times fewer it is in most cases not, and is not made up either.
    before = simulated(chance, 25, 3000)
    found = compare(before, simulated(chance, 25, 3000, 1.1), percentiles=[0.99])
    assert sum(shift.matters for shift in shifts(found, "p99")) <= 8


def test_the_interval_holds_the_true_ratio() -> None:
    chance = np.random.default_rng(2)
    found = compare(simulated(chance, 100, 3000), simulated(chance, 100, 3000, 1.3), percentiles=[0.5, 0.99])
    for what in ("p50", "p99"):
        held = sum(s.interval is not None and s.interval[0] <= 0.3 <= s.interval[1] for s in shifts(found, what))
        assert held >= 0.88 * 100


def minutes(chance: np.random.Generator, methods: int, count: int, times: float = 1.0) -> list[Series]:
    """Forty minutes each, in which records have something in common: some minutes are 10 % slower than others."""
    return [
        series(lognormal(chance, count, sigma=0.5) * times * np.exp(chance.normal(0, 0.1)), f"m{n}", window=60 * minute)
        for n in range(methods)
        for minute in range(40)
    ]


def whole(windows: list[Series]) -> list[Series]:
    methods = dict.fromkeys(str(each.key["method"]) for each in windows)
    return [joined(each for each in windows if each.key["method"] == method) for method in methods]


def test_whole_minutes_are_drawn_where_records_of_a_minute_belong_together() -> None:
    chance = np.random.default_rng(3)
    before, after = minutes(chance, 8, 400), minutes(chance, 8, 400)

    by_windows = compare(whole(before), whole(after), before, after, percentiles=[0.5])
    by_records = compare(whole(before), whole(after), percentiles=[0.5])

    assert {shift.drawn for shift in shifts(by_windows, "p50")} == {"windows"}
    assert {shift.drawn for shift in shifts(by_records, "p50")} == {"records"}
    assert sum(shift.confirmed for shift in shifts(by_windows, "p50")) <= 1
    # The mistake that this is for.
    assert sum(shift.confirmed for shift in shifts(by_records, "p50")) >= 3

    after = minutes(chance, 8, 400, 1.15)
    found = compare(whole(before), whole(after), before, after, percentiles=[0.5])
    assert sum(shift.matters for shift in shifts(found, "p50")) >= 7


def drifting(chance: np.random.Generator, course: np.ndarray, step: float = 0.0) -> list[Series]:
    """Six methods of forty minutes, all of which follow ``course``."""
    return [
        series(lognormal(chance, 200, sigma=0.5) * np.exp(height + step), f"m{n}", window=60 * minute)
        for n in range(6)
        for minute, height in enumerate(course)
    ]


#: Eighty minutes, of which the first half is A and the second B.
DRIFTS = {
    "trend": lambda chance: np.linspace(0, 0.3, 80),
    "a quarter of a day's load": lambda chance: 0.15 * np.sin(np.arange(80) * np.pi / 80 + chance.uniform(0, 6.3)),
    "random walk": lambda chance: np.cumsum(chance.normal(0, 0.03, 80)),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_slow_drift_of_all_methods_does_not_fail_a_gate(name: str) -> None:
    chance = np.random.default_rng(11)
    failed = 0
    for _ in range(5):
        course = DRIFTS[name](chance)
        before, after = drifting(chance, course[:40]), drifting(chance, course[40:])
        found = compare(whole(before), whole(after), before, after, percentiles=[0.99])
        [verdict] = judge([parse_limit("p99 > +10%")], found)
        failed += bool(verdict.exceeded)
        if abs(course[40:].mean() - course[:40].mean()) > 0.1:
            assert verdict.drifting
    assert failed == 0


def test_without_drift_a_rise_is_seen_and_it_is_said_how_large_it_had_to_be() -> None:
    chance = np.random.default_rng(12)
    calm = np.zeros(40)
    before, after = drifting(chance, calm), drifting(chance, calm)
    [same] = judge([parse_limit("p99 > +10%")], compare(whole(before), whole(after), before, after))
    assert not same.exceeded and not same.drifting
    assert len(same.detectable) == 6 and 0.02 < same.detectable[0][1] < same.detectable[-1][1] < 0.5
    slower = drifting(chance, calm, step=float(np.log1p(same.detectable[-1][1] * 1.3)))
    [risen] = judge([parse_limit("p99 > +10%")], compare(whole(before), whole(slower), before, slower))
    assert len(risen.exceeded) == 6


def test_how_large_a_change_had_to_be_is_as_simulated() -> None:
    chance = np.random.default_rng(13)
    before = simulated(chance, 20, 3000)
    found = compare(before, simulated(chance, 20, 3000), percentiles=[0.99])
    size = float(np.median([shift.detectable or 0 for shift in shifts(found, "p99")]))
    changed = compare(before, simulated(chance, 20, 3000, 1 + size), percentiles=[0.99])
    # At least in 4 of 5 cases: where all of them changed, each needs less than one among many.
    assert sum(shift.confirmed for shift in shifts(changed, "p99")) >= 15


def test_few_windows_are_not_drawn() -> None:
    chance = np.random.default_rng(4)
    few = [each for each in minutes(chance, 1, 200) if (each.window or 0) < 19 * 60]
    many = minutes(chance, 1, 200)
    found = compare(whole(few), whole(many), few, many)
    assert {shift.drawn for shift in found.methods[0].shifts} == {"records"}


def test_draws_of_records_are_those_of_the_multinomial_bootstrap() -> None:
    chance = np.random.default_rng(5)
    values = np.sort(lognormal(chance, 2000))
    _, draws = log_quantiles([histogram(values)], [0.9], chance)
    plain = np.log(np.quantile(chance.choice(values, (DRAWS, 2000)), 0.9, axis=1))
    assert draws.mean() == pytest.approx(plain.mean(), abs=0.01)
    assert draws.std() == pytest.approx(plain.std(), rel=0.15)


def test_n_too_small_is_no_number() -> None:
    chance = np.random.default_rng(6)
    found = compare([series(lognormal(chance, 298))], [series(lognormal(chance, 100_000))])
    p50, p95, p99, errors = found.methods[0].shifts
    assert p50.interval and p95.interval and errors.interval
    assert (p99.interval, p99.p_value, p99.drawn, p99.confirmed) == (None, None, None, False)
    assert p99.before and p99.after and p99.change


def test_constants_and_zeros_compare() -> None:
    same = compare([series([500] * 1000)], [series([500] * 1000)])
    assert [shift.change for shift in same.methods[0].shifts] == [0, 0, 0, 0]
    assert not same.methods[0].matters
    doubled = compare([series([500] * 1000)], [series([1000] * 1000)])
    assert [shift.change for shift in doubled.methods[0].shifts[:3]] == pytest.approx([1, 1, 1])
    assert doubled.methods[0].matters
    none = compare([series([0] * 1000)], [series([0] * 1000)])
    assert not none.methods[0].matters


def test_errors_are_compared_by_their_share() -> None:
    found = compare([series([100] * 10_000, errors=10)], [series([100] * 20_000, errors=400)])
    errors = found.methods[0].shifts[-1]
    assert (errors.what, errors.before, errors.after) == ("errors", 0.001, 0.02)
    assert errors.change == pytest.approx(0.019)
    assert errors.interval is not None
    assert 0.016 < errors.interval[0] < 0.019 < errors.interval[1] < 0.022
    assert errors.confirmed
    # Two points are less than the smallest change that matters.
    assert not errors.matters
    assert compare([found.methods[0].before], [found.methods[0].after], smallest=0.01).methods[0].shifts[-1].matters


def test_errors_that_came_in_one_burst_are_no_confirmed_change() -> None:
    def minutes_of(bad: int) -> list[Series]:
        return [series([100] * 1000, window=60 * n, errors=300 if n == bad else 0) for n in range(40)]

    calm, burst = minutes_of(-1), minutes_of(7)
    assert compare(whole(calm), whole(burst)).methods[0].shifts[-1].confirmed
    assert not compare(whole(calm), whole(burst), calm, burst).methods[0].shifts[-1].confirmed


def test_what_matters_comes_first_by_shift_and_time() -> None:
    chance = np.random.default_rng(7)
    before = [
        series(lognormal(chance, 30_000), "same_but_busy"),
        series(lognormal(chance, 3000), "slower"),
        series(lognormal(chance, 30_000), "slower_and_busy"),
        series([1], "gone"),
    ]
    after = [
        series(lognormal(chance, 30_000), "same_but_busy"),
        series(lognormal(chance, 3000) * 2, "slower"),
        series(lognormal(chance, 30_000) * 2, "slower_and_busy"),
        series([1], "new"),
    ]
    found = compare(before, after)
    assert [each.key["method"] for each in found.methods] == ["slower_and_busy", "slower", "same_but_busy"]
    assert [each.matters for each in found.methods] == [True, True, False]
    assert ([s.key["method"] for s in found.gone], [s.key["method"] for s in found.new]) == (["gone"], ["new"])


def test_the_smallest_change_asked_for_decides_what_matters() -> None:
    chance = np.random.default_rng(8)
    before, after = [series(lognormal(chance, 100_000))], [series(lognormal(chance, 100_000) * 1.2)]
    assert compare(before, after, smallest=0.05).methods[0].matters
    found = compare(before, after, smallest=0.5).methods[0]
    assert not found.matters
    assert found.shifts[0].confirmed


def test_the_same_seed_gives_the_same_result() -> None:
    chance = np.random.default_rng(9)
    sides = simulated(chance, 3, 500), simulated(chance, 3, 500)
    assert compare(*sides) == compare(*sides)
    assert compare(*sides) != compare(*sides, seed=1)


def test_nothing_compares_with_nothing() -> None:
    assert compare([], []) == Comparison("total", 0.05, [])
