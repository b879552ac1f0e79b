"""Calls from OS threads with a client in a plain thread, against as many greenlets with one in gevent.

Also with the calling process kept to one core: its threads take turns anyway.
"""

from __future__ import annotations

from benchmarks.ends import side_by_side_over_ipc
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_THREADS = "threads"
_SYSTEMS = {
    "gevent": {"verb": "call"},
    _THREADS: {"verb": "thread call"},
    "threads, one core": {"verb": "thread call on one core"},
}
_WIDTHS = (1, 16, 64)


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W greenlets or threads calling over ipc."""
    return side_by_side_over_ipc(options, _SYSTEMS, _WIDTHS)


BENCHMARK = Benchmark(
    name="threads",
    title="Whole calls from W OS threads of a plain program against W greenlets",
    case="W",
    metric="calls_per_second",
    ours=_THREADS,
    run=run,
)
