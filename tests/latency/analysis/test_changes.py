"""Changes: none where nothing changed, whatever durations look like; and those that there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest

from rpcmq.histogram import Histogram
from rpcmq.latency.analysis.account import Account
from rpcmq.latency.analysis.changes import burst, rise
from rpcmq.latency.analysis.finding import Finding
from rpcmq.latency.analysis.series import METHOD, Series, merged
from rpcmq.latency.analysis.slow import findings
from tests.latency.analysis.samples import lognormal, series

MINUTE = 60
BEGIN = 1_700_000_040
WINDOWS = 60
#: Of a distribution's shape: so many are drawn once, and sorted into buckets.
DRAWN = 400_000

Draw = Callable[[np.random.Generator, int], np.ndarray]


def narrow(chance: np.random.Generator, count: int) -> np.ndarray:
    return chance.lognormal(np.log(5000), 0.4, count)


def wide(chance: np.random.Generator, count: int) -> np.ndarray:
    return chance.lognormal(np.log(5000), 1, count)


def pareto(chance: np.random.Generator, count: int) -> np.ndarray:
    values = chance.lognormal(np.log(5000), 0.5, count)
    in_tail = chance.random(count) < 0.006
    values[in_tail] = 20_000 * (1 + chance.pareto(1.1, in_tail.sum()))
    return np.minimum(values, 60e6)


def bimodal(chance: np.random.Generator, count: int) -> np.ndarray:
    modes = [chance.lognormal(np.log(80_000), 0.2, count), chance.lognormal(np.log(2000), 0.3, count)]
    return np.where(chance.random(count) < 0.01, *modes)


def cliff(timeouts: float) -> Draw:
    """Draw durations of which the share ``timeouts`` ends at the timeout: p99 is below the cliff, on it, or leaps."""

    def draw(chance: np.random.Generator, count: int) -> np.ndarray:
        values = narrow(chance, count)
        values[chance.random(count) < timeouts] = 60e6
        return values

    return draw


SHAPES: dict[str, Draw] = {
    "narrow": narrow, "wide": wide, "pareto": pareto, "bimodal": bimodal,
    "cliff at 0.7 %": cliff(0.007), "cliff at 0.85 %": cliff(0.0085), "cliff at 1 %": cliff(0.01),
}  # fmt: skip


class Traffic:
    """Windows of one method: a fixed distribution over buckets, from which each window is drawn."""

    def __init__(self, draw: Draw, chance: np.random.Generator) -> None:
        self._chance = chance
        values = np.maximum(1, np.round(draw(np.random.default_rng(0), DRAWN)))
        index = np.ceil(np.log2(values) * 32 - 1e-9).astype(int) - 1
        self.grid, counts = np.unique(index, return_counts=True)
        self._shares = counts / DRAWN
        self._timeouts = float(np.mean(values >= 60e6))

    def windows(self, count: int, method: str = "boot", risen: tuple[int, ...] = ()) -> list[Series]:
        """With ``count`` records each; those of ``risen`` take half as long again."""
        drawn = self._chance.multinomial(count, self._shares, WINDOWS)
        made = []
        for number, row in enumerate(drawn):
            # 19 of the 32 buckets to an octave: 1.51 times.
            grid = self.grid + (19 if number in risen else 0)
            there = np.flatnonzero(row)
            total = Histogram.from_dict(
                {
                    "scale": 5, "zero_count": 0, "count": count, "sum": float(row @ 2.0 ** (grid / 32)),
                    "min": float(2.0 ** (grid[there[0]] / 32)), "max": float(2.0 ** ((grid[there[-1]] + 1) / 32)),
                    "buckets": [[int(grid[n]), int(row[n])] for n in there],
                }
            )  # fmt: skip
            failed = int(row[self.grid > 820].sum())
            ended = {"ok": count - failed, "timeout": failed}
            made.append(
                Series({"exchange": "", "topic": "compute", "method": method}, BEGIN + MINUTE * number, ended, total)
            )
        return made


def changes(windows: list[Series]) -> list[Finding]:
    """The report's findings about changes, for a log that has these windows of its methods."""
    every = merged(windows, (), windows=True)
    [whole] = merged(windows, ())
    account = Account(shipped=whole.records, counted=whole.records, in_range=whole.records)
    found = findings(whole, every, merged(windows, METHOD), windows, [], account)
    return [each for each in found if " rose " in each.what or "of all errors came" in each.what]


def stationary(shape: str, count: int, methods: int) -> Iterator[list[Series]]:
    """Logs without end in which nothing changes."""
    traffic = Traffic(SHAPES[shape], np.random.default_rng([count, *shape.encode()]))
    while True:
        yield [each for n in range(methods) for each in traffic.windows(count, f"method-{n}")]


@pytest.mark.parametrize(
    "shape", ["pareto", *(pytest.param(each, marks=pytest.mark.long) for each in SHAPES if each != "pareto")]
)
def test_where_nothing_changed_nothing_is_said_to_have_risen(shape: str) -> None:
    said = [changes(log) for count in (50, 350, 1000) for log in islice(stationary(shape, count, 2), 10)]
    assert said == [[]] * 30


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [50, 100, 350, 1000, 5000])
@pytest.mark.parametrize("shape", SHAPES)
def test_at_most_one_of_a_hundred_logs_without_a_change_has_a_headline(shape: str, count: int) -> None:
    said = [found for log in islice(stationary(shape, count, 5), 100) if (found := changes(log))]
    assert len(said) <= 1, said


#: Of a distribution that is this wide 50 records tell nothing of 50 %.
FOUND = [(shape, count) for shape in SHAPES for count in (50, 350, 1000, 5000) if (shape, count) != ("wide", 50)]


@pytest.mark.parametrize(("shape", "count"), FOUND)
def test_a_rise_by_half_in_three_windows_is_found(shape: str, count: int) -> None:
    risen = (20, 21, 22)
    traffic = Traffic(SHAPES[shape], np.random.default_rng(count))
    found = 0
    for _ in range(4):
        log = traffic.windows(count, risen=risen) + traffic.windows(count, "calm")
        said = [each for each in changes(log) if "boot rose" in each.what]
        found += any("from 2023-11-14 22:34:00 to 2023-11-14 22:37:00 UTC" in each.what for each in said)
    # By p99 alone, of wide shapes and few records, the borders may be one window off.
    assert found >= 3


def by_minute(heights: list[float], method: str = "boot", count: int = 600) -> list[Series]:
    chance = np.random.default_rng(4)
    return [
        series(lognormal(chance, count, 5000, 0.4) * height, method, window=BEGIN + MINUTE * n)
        for n, height in enumerate(heights)
    ]


def test_a_step_and_a_peak_are_found_with_their_time() -> None:
    step = rise(by_minute([1.0] * 20 + [3.0] * 10))
    assert step is not None
    assert (step.quantile, step.since, step.until) == (0.99, BEGIN + 20 * MINUTE, BEGIN + 30 * MINUTE)
    assert step.lasts
    assert step.times == pytest.approx(3, rel=0.1)

    peak = rise(by_minute([1.0] * 12 + [4.0] * 3 + [1.0] * 15))
    assert peak is not None
    assert (peak.since, peak.until, peak.lasts) == (BEGIN + 12 * MINUTE, BEGIN + 15 * MINUTE, False)


@pytest.mark.parametrize("seed", range(5))
def test_windows_that_always_differ_are_no_change(seed: int) -> None:
    heights = np.exp(np.random.default_rng(seed).normal(0, 0.1, 60)).tolist()
    assert rise(by_minute(heights)) is None


def test_too_little_to_tell_is_no_change() -> None:
    assert rise(by_minute([1.0] * 5 + [9.0] * 4)) is None
    assert rise(by_minute([1.0] * 30 + [9.0] * 3, count=1)) is None
    assert rise([]) is None


def test_a_change_that_is_certain_and_small_is_none_to_look_at_first() -> None:
    assert rise(by_minute([1.0] * 20 + [1.1] * 20, count=5000)) is None


def failing(errors: list[int], records: int) -> list[Series]:
    return [series([100] * records, window=BEGIN + MINUTE * n, errors=each) for n, each in enumerate(errors)]


def test_a_burst_of_errors_is_one_that_chance_does_not_make() -> None:
    found = burst(failing([1] * 20 + [40] + [2] * 20, 1000))
    assert found is not None
    assert [each.window for each in found.windows] == [BEGIN + 20 * MINUTE]
    # 2 % of 250 are 5: twelve of them happen by chance, in one window of some hundreds.
    chance = np.random.default_rng(2)
    assert not any(burst(failing(chance.binomial(250, 0.02, 500).tolist(), 250)) for _ in range(5))
