"""Whole calls with payloads of 100 bytes to 10 MB: the service returns what it was sent."""

from __future__ import annotations

from benchmarks.children import router
from benchmarks.ends import both, sample
from benchmarks.report import Benchmark, Options, Row

__all__ = ["BENCHMARK"]

_SIZES = {"100 B": 100, "1 kB": 10**3, "10 kB": 10**4, "100 kB": 10**5, "1 MB": 10**6, "10 MB": 10**7}
_WIDTHS = {"W = 1": 1, "W = 8": 8}
_SHARE = 0.2


def run(options: Options) -> list[Row]:
    """Calls/s, and megabytes/s in each direction."""
    seconds = options.seconds * _SHARE
    rows = []
    with router() as (daemon, url), both(url, ["compute"]) as caller:
        for name, size in _SIZES.items():
            pair = [Row(system, name, []) for system in _WIDTHS]
            for _ in range(options.rounds):
                for row in pair:
                    width = _WIDTHS[row.system]
                    found = sample(caller, daemon, seconds, verb="call", width=width, size=size)
                    row.samples.append(found | {"megabytes_per_second": found["calls_per_second"] * size / 1e6})
            rows += pair
    return rows


BENCHMARK = Benchmark(
    name="sizes",
    title="Whole calls with a payload of bytes there and back; megabytes/s in each direction",
    case="payload",
    metric="megabytes_per_second",
    ours=next(iter(_WIDTHS)),
    run=run,
)
