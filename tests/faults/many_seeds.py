"""Simulations of many seeds, side by side in processes."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from time import perf_counter

import pytest

from rpcmq.drill.checks import Verdict

__all__ = ["Simulate", "assert_none_breaks", "broken_seeds"]

#: Runs the plan of a seed; a function of a module, which other processes import.
Simulate = Callable[[int], Verdict]

#: Seeds that a process is given at a time.
_PORTION = 25


def broken_seeds(simulate: Simulate, seeds: range, processes: int = 0) -> Iterator[tuple[int, list[str]]]:
    """Yield each seed of ``seeds`` that has violations, with these, as soon as it was found.

    Args:
        processes: how many run side by side; 0: one for each core that may be used.
    """
    # Started anew: a fork would have this process's threads and greenlets half.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes or len(os.sched_getaffinity(0)), context) as executor:
        portions = [seeds[first : first + _PORTION] for first in range(0, len(seeds), _PORTION)]
        for done in as_completed([executor.submit(_broken_in, simulate, portion) for portion in portions]):
            yield from done.result()


def _broken_in(simulate: Simulate, seeds: range) -> list[tuple[int, list[str]]]:
    verdicts = [(seed, simulate(seed)) for seed in seeds]
    return [(seed, list(map(str, verdict.violations))) for seed, verdict in verdicts if not verdict.ok]


def assert_none_breaks(scenario: str, simulate: Simulate, seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    """Simulate each of ``seeds``, and print a row of figures for ``tests.faults.table``.

    Raises:
        AssertionError: some broke; shows their violations.
    """
    began = perf_counter()
    broken = dict(broken_seeds(simulate, seeds))
    seconds = perf_counter() - began
    with capsys.disabled():
        row = {"scenario": scenario, "seeds": len(seeds), "broken": len(broken), "seconds": round(seconds, 1)}
        print("\nresult", json.dumps(row | {"seeds_a_minute": round(len(seeds) / seconds * 60)}))
    assert not broken, broken
