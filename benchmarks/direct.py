"""Peer2Peer: calls straight to the service, against the same calls through the router."""

from __future__ import annotations

from benchmarks.children import router
from benchmarks.ends import both, sample
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_ROUTED = "routed"
_DIRECT = "direct"
_WIDTHS = (1, 16, 64)
_SHARE = 0.5


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W greenlets calling."""
    seconds = options.seconds * _SHARE
    rows = []
    with router() as (daemon, url), both(url, ["compute"], direct=True) as caller:
        for width in _WIDTHS:
            pair = [Row(_ROUTED, width, []), Row(_DIRECT, width, [])]
            for _ in range(options.rounds):
                for row in pair:
                    direct = row.system == _DIRECT
                    row.samples.append(sample(caller, daemon, seconds, verb="call", width=width, direct=direct))
            rows += pair
    return rows


BENCHMARK = Benchmark(
    name="direct",
    title="Whole calls from W greenlets: Peer2Peer against routed",
    case="W",
    metric="calls_per_second",
    ours=_DIRECT,
    run=run,
)
