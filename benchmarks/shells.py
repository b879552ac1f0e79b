"""Calls of a program of asyncio, and of threads, against those of one of gevent, with as many outstanding."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from benchmarks.children import router
from benchmarks.ends import both, sample
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_ASYNCIO = "asyncio"
_VERBS = {"gevent": "call", "threads": "thread call", _ASYNCIO: "task call", "uvloop": "uvloop call"}
_WIDTHS = (1, 64, 256)


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W greenlets, threads or tasks calling over ipc."""
    rows = []
    with (
        TemporaryDirectory() as folder,
        router(router_listen=f"ipc://{folder}/router") as (daemon, url),
        both(url, ["compute"]) as caller,
    ):
        for width in _WIDTHS:
            group = [Row(system, width, []) for system in _VERBS]
            for _ in range(options.rounds):
                for row in group:
                    verb = _VERBS[row.system]
                    row.samples.append(sample(caller, daemon, options.seconds, verb=verb, width=width))
            rows += group
    return rows


BENCHMARK = Benchmark(
    name="shells",
    title="Whole calls from W tasks, or threads, against W greenlets",
    case="W",
    metric="calls_per_second",
    ours=_ASYNCIO,
    run=run,
)
