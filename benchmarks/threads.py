"""Calls from OS threads with a client in a plain thread, against as many greenlets with one in gevent.

Also with the calling process kept to one core: its threads take turns anyway.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from benchmarks.children import router
from benchmarks.ends import both, sample
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_GREENLETS, _THREADS, _ONE_CORE = "gevent", "threads", "threads, one core"
_VERBS = {_GREENLETS: "call", _THREADS: "thread call", _ONE_CORE: "thread call on one core"}
_WIDTHS = (1, 16, 64)


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W greenlets or threads calling over ipc."""
    rows = []
    with (
        TemporaryDirectory() as folder,
        router(router_listen=f"ipc://{folder}/router") as (daemon, url),
        both(url, ["compute"]) as caller,
    ):
        for width in _WIDTHS:
            pair = [Row(system, width, []) for system in _VERBS]
            for _ in range(options.rounds):
                for row in pair:
                    verb = _VERBS[row.system]
                    row.samples.append(sample(caller, daemon, options.seconds, verb=verb, width=width))
            rows += pair
    return rows


BENCHMARK = Benchmark(
    name="threads",
    title="Whole calls from W OS threads of a plain program against W greenlets",
    case="W",
    metric="calls_per_second",
    ours=_THREADS,
    run=run,
)
