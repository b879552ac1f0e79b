"""Calls from a caller at router a to a service at router b of a mesh, beside one router and a NATS cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.children import Child, child, cpu_seconds
from benchmarks.ends import caller, service
from benchmarks.nats_cluster import nats_cluster, nats_missing
from benchmarks.peers import nats_caller, nats_service
from benchmarks.report import Benchmark, Options, Row, Target, in_turns
from rpcmq.testing.router_mesh import RouterMesh

__all__ = ["BENCHMARK"]

_OURS = "rpcmq, a to b of 3"
_ALONE = "rpcmq, one router"
_CLUSTER = "NATS, a to b of 3"
_SERVER = "NATS, one server"
_WIDTHS = (1, 64, 256)


@dataclass(frozen=True)
class _System:
    """The caller, and the processes whose CPU time counts: all brokers, with one that has nothing to do."""

    caller: Child
    brokers: Sequence[int]
    command: dict[str, str]


def run(options: Options) -> list[Row]:
    """Calls/s, latency, and CPU time of all brokers for a call."""
    starts: dict[str, Callable[[], object]] = {_OURS: lambda: _rpcmq(3), _ALONE: lambda: _rpcmq(1)}
    missing = nats_missing()
    if missing:
        options.notice(f"NATS: {missing}")
    else:
        starts |= {_CLUSTER: lambda: _nats(3), _SERVER: lambda: _nats(1)}
    with ExitStack() as stack:
        systems: dict[str, _System] = {name: stack.enter_context(start()) for name, start in starts.items()}  # type: ignore[arg-type]

        def measure(name: str, width: int) -> dict[str, float]:
            return _sample(systems[name], width, options.seconds)

        return in_turns(systems, _WIDTHS, options.rounds, measure)


@contextmanager
def _rpcmq(routers: int) -> Iterator[_System]:
    with RouterMesh(routers) as mesh:
        urls = mesh.urls
        with child(service, url=urls[min(1, routers - 1)], topics=["compute"], direct=False) as serving:
            serving.heard()
            with child(caller, url=urls[0], topics=["compute"]) as calling:
                calling.heard()
                yield _System(calling, [router.pid for router in mesh], {"verb": "call"})


@contextmanager
def _nats(servers: int) -> Iterator[_System]:
    with nats_cluster(servers) as cluster, child(nats_service, url=cluster[min(1, servers - 1)].url) as serving:
        serving.heard()
        with child(nats_caller, url=cluster[0].url) as calling:
            calling.heard()
            yield _System(calling, [server.process.pid for server in cluster], {})


def _sample(system: _System, width: int, seconds: float) -> dict[str, float]:
    before = sum(map(cpu_seconds, system.brokers))
    found: dict[str, float] = system.caller.ask(2 * seconds, width=width, seconds=seconds, **system.command)
    cpu = sum(map(cpu_seconds, system.brokers)) - before
    return found | {"cpu_us": cpu / found.pop("calls") * 1e6}


BENCHMARK = Benchmark(
    name="mesh-calls",
    title="Calls from router a to a service at router b, beside one router and a NATS cluster",
    case="W",
    metric="calls_per_second",
    ours=_OURS,
    run=run,
    targets=(
        Target(_ALONE, "p50_us", (1,), at_most=1.4),
        Target(_ALONE, "cpu_us", (64, 256), at_most=2.2),
        Target(_CLUSTER, "calls_per_second", (64,), at_least=1.2),
        Target(_CLUSTER, "calls_per_second", (256,), at_least=1.0),
    ),
)
