"""Whole calls, everything on, beside other systems that are installed here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.children import Child, router
from benchmarks.ends import both
from benchmarks.peers import PEERS
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARK"]

_OURS = "rpcmq"
_WIDTHS = (1, 16, 64, 256)


@contextmanager
def _rpcmq() -> Iterator[Child]:
    with router() as (_, url), both(url, ["compute"]) as caller:
        yield caller


def run(options: Options) -> list[Row]:
    """Calls/s and latency from one process with W callers to one service."""
    rows = []
    with ExitStack() as stack:
        callers = {_OURS: stack.enter_context(_rpcmq())}
        for peer in PEERS:
            missing = peer.missing()
            if missing:
                options.notice(f"{peer.name}: {missing}")
            else:
                callers[peer.name] = stack.enter_context(peer.start())
        for width in _WIDTHS:
            together = [Row(system, width, []) for system in callers]
            for _ in range(options.rounds):
                for row in together:
                    row.samples.append(_sample(callers[row.system], row.system, width, options.seconds))
            rows += together
    return rows


def _sample(caller: Child, system: str, width: int, seconds: float) -> dict[str, float]:
    verb = {"verb": "call"} if system == _OURS else {}
    sample: dict[str, float] = caller.ask(2 * seconds, width=width, seconds=seconds, **verb)
    del sample["calls"]
    return sample


BENCHMARK = Benchmark(
    name="whole-calls",
    title="Whole calls: one process with W callers, one service",
    case="W",
    metric="calls_per_second",
    ours=_OURS,
    run=run,
    targets=(
        Target("NATS", "calls_per_second", (64,), at_least=1.3),
        Target("NATS", "p50_us", (1,), at_most=1.0),
        Target("zerorpc", "calls_per_second", (64,), at_least=5.0),
    ),
)
