"""Peer2Peer: calls straight to the service, against the same calls through the router."""

from __future__ import annotations

from typing import Any

from benchmarks.children import router
from benchmarks.ends import both, side_by_side
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_DIRECT = "direct"
_SYSTEMS: dict[str, dict[str, Any]] = {"routed": {"verb": "call"}, _DIRECT: {"verb": "call", "direct": True}}
_WIDTHS = (1, 16, 64)
_SHARE = 0.5


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W greenlets calling."""
    with router() as (daemon, url), both(url, ["compute"], direct=True) as caller:
        return side_by_side(caller, daemon, _SYSTEMS, _WIDTHS, options.rounds, options.seconds * _SHARE)


BENCHMARK = Benchmark(
    name="direct",
    title="Whole calls from W greenlets: Peer2Peer against routed",
    case="W",
    metric="calls_per_second",
    ours=_DIRECT,
    run=run,
)
