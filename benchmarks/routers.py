"""Two routers on a host against one: callers spread over them, services at both."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import cycle

from benchmarks.children import Child, child, cpu_seconds, router
from benchmarks.ends import caller, service
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_ONE, _TWO = "one router", "two routers"
#: Callers, each of 64 greenlets, and as many services.
_PAIRS = (1, 2, 4)
_WIDTH = 64
_SHARE = 0.5
#: Cores that two routers, and the callers and services that keep them busy, need.
_CORES = 6


def run(options: Options) -> list[Row]:
    """Calls/s of all callers together, the slowest one's latency, and the routers' CPU time for a call."""
    cores = len(os.sched_getaffinity(0))
    if cores < _CORES:
        options.notice(
            f"what a second router gains: it takes about {_CORES} cores, and here are {cores}; see what it costs"
        )
    rows = []
    for pairs in _PAIRS:
        found = [Row(_ONE, pairs, []), Row(_TWO, pairs, [])]
        with _system(1, pairs) as one, _system(2, pairs) as two:
            for _ in range(options.rounds):
                for row, system in zip(found, (one, two), strict=True):
                    row.samples.append(_sample(*system, options.seconds * _SHARE))
        rows += found
    return rows


@contextmanager
def _system(routers: int, pairs: int) -> Iterator[tuple[list[Child], list[Child]]]:
    """Routers, services at all of them, and callers at one each; gives routers and callers."""
    with ExitStack() as stack:
        daemons = [stack.enter_context(router()) for _ in range(routers)]
        urls = [url for _, url in daemons]
        for _ in range(pairs):
            every = stack.enter_context(child(service, url=",".join(urls), topics=["compute"], direct=False))
            every.heard()
        callers = [
            stack.enter_context(child(caller, url=url, topics=["compute"]))
            for url, _ in zip(cycle(urls), range(pairs), strict=False)
        ]
        for each in callers:
            each.heard()
        yield [daemon for daemon, _ in daemons], callers


def _sample(routers: Sequence[Child], callers: Sequence[Child], seconds: float) -> dict[str, float]:
    before = sum(cpu_seconds(each.pid) for each in routers)
    with ThreadPoolExecutor(len(callers)) as pool:
        asked = [pool.submit(each.ask, 2 * seconds, verb="call", width=_WIDTH, seconds=seconds) for each in callers]
        found = [each.result() for each in asked]
    cpu = sum(cpu_seconds(each.pid) for each in routers) - before
    return {
        "calls_per_second": sum(each["calls_per_second"] for each in found),
        "p50_us": max(each["p50_us"] for each in found),
        "p99_us": max(each["p99_us"] for each in found),
        "cpu_us": cpu / sum(each["calls"] for each in found) * 1e6,
    }


BENCHMARK = Benchmark(
    name="routers",
    title="Whole calls of callers with 64 greenlets each, to as many services: two routers against one",
    case="callers",
    metric="calls_per_second",
    ours=_TWO,
    run=run,
)
