"""Limits for a gate: what they say, and when they are exceeded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rpcmq.errors import UsageError
from rpcmq.latency.analysis.compare import compare
from rpcmq.latency.analysis.limits import Limit, Verdict, judge, parse_limit
from rpcmq.latency.analysis.series import Series
from tests.latency.analysis.samples import lognormal, series


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("p99 > +10%", ("*", "p99", 0.99, 0.1, True, True)),
        ("p99>+10 %", ("*", "p99", 0.99, 0.1, True, True)),
        ("p99.9 > +5ms", ("*", "p99.9", 0.999, 5000, True, False)),
        ("p50 > 250ms", ("*", "p50", 0.5, 250_000, False, False)),
        ("p95 > 1.5s", ("*", "p95", 0.95, 1_500_000, False, False)),
        ("compute.*:p99 > 80us", ("compute.*", "p99", 0.99, 80, False, False)),
        ("nova/a:b.*:p99 > 2min", ("nova/a:b.*", "p99", 0.99, 120e6, False, False)),
        ("errors > +1%", ("*", "errors", None, 0.01, True, True)),
        ("errors > 0.5%", ("*", "errors", None, 0.005, False, True)),
    ],
)
def test_a_limit_is_read(text: str, limit: tuple[str, str, float | None, float, bool, bool]) -> None:
    found = parse_limit(text)
    assert found.value == pytest.approx(limit[3])
    assert replace(found, value=limit[3]) == Limit(text, *limit)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p99 < 10%", "no '>'"),
        ("", "no '>'"),
        ("p100 > +10%", "'p100' is no percentile"),
        ("p0 > +10%", "'p0' is no percentile"),
        ("mean > +10%", "'mean' is no percentile"),
        ("p99 >", "'' is no value"),
        ("p99 > ten", "'ten' is no value"),
        ("p99 > -10%", "'-10%' is no value"),
        ("p99 > 10%", "of what"),
        ("p99 > 10", "no duration; expected a number and one of us, ms, s, min"),
        ("p99 > 10h", "'10h' is no duration"),
        ("p99 > 0ms", "above zero"),
        ("errors > 10ms", "no share"),
        (":p99 > +10%", "nothing in front of ':'"),
    ],
)
def test_what_is_wrong_with_a_limit_is_named(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_limit(text)
    assert says in str(error.value)
    assert repr(text) in str(error.value)


def judged(text: str, before: list[Series], after: list[Series]) -> Verdict:
    [verdict] = judge([parse_limit(text)], compare(before, after))
    return verdict


def sides(times: float, count: int = 30_000) -> tuple[list[Series], list[Series]]:
    chance = np.random.default_rng(1)
    return [series(lognormal(chance, count))], [series(lognormal(chance, count) * times)]


def test_a_rise_above_the_limit_is_exceeded_and_one_below_is_not() -> None:
    verdict = judged("p99 > +10%", *sides(1.5))
    [excess] = verdict.exceeded
    assert excess.key["method"] == "boot"
    assert 0.1 < excess.low < excess.value < excess.high
    assert (verdict.checked, verdict.unchecked) == (1, [])
    assert judged("p99 > +80%", *sides(1.5)).exceeded == []
    assert judged("p99 > +10%", *sides(0.5)).exceeded == []


def test_a_rise_in_microseconds_is_of_what_was_before() -> None:
    before, after = sides(1.5)
    p99 = before[0].total.quantile(0.99)
    assert p99 is not None
    [excess] = judged("p99 > +1ms", before, after).exceeded
    assert excess.value == pytest.approx(0.5 * p99, rel=0.15)
    assert judged(f"p99 > +{p99:.0f}us", before, after).exceeded == []


def test_a_rise_that_may_be_chance_is_not_exceeded() -> None:
    before, after = sides(1.2, 400)
    found = compare(before, after).methods[0].shifts[2]
    assert found.change is not None
    assert found.change > 0.1
    verdict = judged("p99 > +10%", before, after)
    assert (verdict.checked, verdict.exceeded) == (1, [])


def test_what_is_now_is_exceeded_if_its_interval_is_above() -> None:
    before, after = sides(1.0)
    p99 = after[0].total.quantile(0.99)
    assert p99 is not None
    assert judged(f"p99 > {0.9 * p99:.0f}us", before, after).exceeded
    # The value is above it, the lower end is not.
    assert judged(f"p99 > {0.999 * p99:.0f}us", before, after).exceeded == []
    # For what was not there before as well.
    assert judged(f"p99 > {0.9 * p99:.0f}us", [], after).exceeded


def test_too_few_records_are_named_and_exceed_nothing() -> None:
    verdict = judged("p99 > +10%", *sides(10, 200))
    assert (verdict.checked, verdict.exceeded) == (0, [])
    assert [key["method"] for key in verdict.unchecked] == ["boot"]
    assert judged("p99 > 1us", *sides(10, 200)).unchecked
    assert judged("errors > 0%", *sides(1, 20)).unchecked


def test_errors_have_limits_of_both_kinds() -> None:
    before, after = [series([100] * 10_000, errors=100)], [series([100] * 10_000, errors=300)]
    assert judged("errors > +1%", before, after).exceeded[0].value == pytest.approx(0.02)
    assert judged("errors > +2.5%", before, after).exceeded == []
    assert judged("errors > 2%", before, after).exceeded[0].value == pytest.approx(0.03)
    assert judged("errors > 2.9%", before, after).exceeded == []


def test_a_pattern_limits_whom_it_is_for() -> None:
    before, after = sides(1.5)
    assert judged("compute.b*:p99 > +10%", before, after).checked == 1
    assert judged("volume.*:p99 > +10%", before, after).checked == 0
