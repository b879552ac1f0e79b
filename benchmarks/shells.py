"""Calls of a program of asyncio, and of threads, against those of one of gevent, with as many outstanding."""

from __future__ import annotations

from benchmarks.ends import side_by_side_over_ipc
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_ASYNCIO = "asyncio"
_SYSTEMS = {
    "gevent": {"verb": "call"},
    "threads": {"verb": "thread call"},
    _ASYNCIO: {"verb": "task call"},
    "uvloop": {"verb": "uvloop call"},
}
_WIDTHS = (1, 64, 256)


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W greenlets, threads or tasks calling over ipc."""
    return side_by_side_over_ipc(options, _SYSTEMS, _WIDTHS)


BENCHMARK = Benchmark(
    name="shells",
    title="Whole calls from W tasks, or threads, against W greenlets",
    case="W",
    metric="calls_per_second",
    ours=_ASYNCIO,
    run=run,
)
