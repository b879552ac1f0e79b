"""Calls of a program of asyncio, and of threads, against those of one of gevent, with as many outstanding."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from benchmarks.children import router
from benchmarks.ends import both, side_by_side
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
    with (
        TemporaryDirectory() as folder,
        router(router_listen=f"ipc://{folder}/router") as (daemon, url),
        both(url, ["compute"]) as caller,
    ):
        return side_by_side(caller, daemon, _SYSTEMS, _WIDTHS, options.rounds, options.seconds)


BENCHMARK = Benchmark(
    name="shells",
    title="Whole calls from W tasks, or threads, against W greenlets",
    case="W",
    metric="calls_per_second",
    ours=_ASYNCIO,
    run=run,
)
