"""Casts: as fast as the router takes them, confirmed one by one, and until the service has run them all."""

from __future__ import annotations

from typing import Any

from benchmarks.children import router
from benchmarks.ends import both, side_by_side
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_PLAIN = "cast"
_SYSTEMS: dict[str, dict[str, Any]] = {
    _PLAIN: {"verb": "cast"},
    "cast, confirm=True": {"verb": "cast", "confirm": True},
}
_WIDTHS = (1, 16, 64)
#: Length of a round, of the length that is asked for; as much again may pass until all is run.
_SHARE = 0.25


def run(options: Options) -> list[Row]:
    """Casts/s from one process with W greenlets to one service."""
    with router() as (daemon, url), both(url, ["compute"]) as caller:
        return side_by_side(caller, daemon, _SYSTEMS, _WIDTHS, options.rounds, options.seconds * _SHARE)


BENCHMARK = Benchmark(
    name="casts",
    title="Casts from W greenlets to one service: taken by the router a second, and run by the service a second",
    case="W",
    metric="casts_per_second",
    ours=_PLAIN,
    run=run,
)
