"""Casts: as fast as the router takes them, confirmed one by one, and until the service has run them all."""

from __future__ import annotations

from benchmarks.children import router
from benchmarks.ends import both, sample
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_PLAIN = "cast"
_CONFIRMED = "cast, confirm=True"
_WIDTHS = (1, 16, 64)
#: Length of a round, of the length that is asked for; as much again may pass until all is run.
_SHARE = 0.25


def run(options: Options) -> list[Row]:
    """Casts/s from one process with W greenlets to one service."""
    seconds = options.seconds * _SHARE
    rows = []
    with router() as (daemon, url), both(url, ["compute"]) as caller:
        for width in _WIDTHS:
            pair = [Row(_PLAIN, width, []), Row(_CONFIRMED, width, [])]
            for _ in range(options.rounds):
                for row in pair:
                    confirm = row.system == _CONFIRMED
                    row.samples.append(sample(caller, daemon, seconds, verb="cast", width=width, confirm=confirm))
            rows += pair
    return rows


BENCHMARK = Benchmark(
    name="casts",
    title="Casts from W greenlets to one service: taken by the router a second, and run by the service a second",
    case="W",
    metric="casts_per_second",
    ours=_PLAIN,
    run=run,
)
