"""The caching proxy beside nginx: hits, hits over TLS, and misses, from 32 connections that are kept.

Each of them has core 0, the proxy with its router and fetcher; wrk and the origin have core 1. The CPU time of a
request says most where a machine has other work.
"""

from __future__ import annotations

from benchmarks.proxy_peers import NGINX, OURS, caches, has_peers, load
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARK"]

_HIT, _TLS, _MANY, _MISS, _PACED = "hit", "hit, TLS", "hit, 1,000 URLs", "miss", "hit, 6,000/s"
_CASES = {
    _HIT: ("/hit", False),
    _TLS: ("/hit", True),
    _MANY: ("*", False),
    _PACED: ("/hit", False),
    _MISS: ("/miss", False),
}


def run(options: Options) -> list[Row]:
    """Both in turns, in each round."""
    if missing := has_peers():
        options.notice(f"proxy is left out: {missing} is not installed")
        return []
    rows: dict[tuple[str, str], Row] = {}
    with caches() as found:
        for case, (path, tls) in _CASES.items():
            for cache in found.values():
                load(cache, path, 1.0, tls=tls)  # what is stored is stored then
            for _ in range(options.rounds):
                for name, cache in found.items():
                    sample = load(cache, path, options.seconds, tls=tls, is_paced=case == _PACED)
                    rows.setdefault((case, name), Row(name, case, [])).samples.append(sample)
    return list(rows.values())


BENCHMARK = Benchmark(
    name="proxy",
    title="A caching proxy on one core, 1 KiB, 32 connections",
    case="request",
    metric="request_cpu_us",
    ours=OURS,
    run=run,
    targets=(
        Target("", "requests_per_second", (_HIT,), at_least=15_000),
        Target("", "requests_per_second", (_TLS,), at_least=10_000),
        Target("", "requests_per_second", (_MISS,), at_least=3_500),
        Target("", "p99_ms", (_PACED,), at_most=10),
        Target(NGINX, "request_cpu_us", (_HIT,), at_most=3),
    ),
)
