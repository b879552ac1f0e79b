"""Calls from a caller at router a to a service at router c: over router b, directly, and at one router."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.children import Child, child, cpu_seconds
from benchmarks.ends import caller, service
from benchmarks.report import Benchmark, Options, Row, in_turns
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess

__all__ = ["BENCHMARK"]

_RELAYED, _DIRECT, _ALONE = "a to c over b", "a to c directly", "one router"
_WIDTHS = (1, 64, 256)


@dataclass(frozen=True)
class _System:
    """The caller, and the process of each router by its name."""

    caller: Child
    routers: Mapping[str, int]


def run(options: Options) -> list[Row]:
    """Calls/s, latency, and CPU time of each router for a call."""
    lines: dict[str, Callable[[], AbstractContextManager[_System]]] = {
        _RELAYED: lambda: _line("abc"),
        _DIRECT: lambda: _line("ac"),
        _ALONE: lambda: _line("a"),
    }
    with ExitStack() as stack:
        systems = {name: stack.enter_context(start()) for name, start in lines.items()}

        def measure(name: str, width: int) -> dict[str, float]:
            return _sample(systems[name], width, options.seconds)

        return in_turns(systems, _WIDTHS, options.rounds, measure)


@contextmanager
def _line(names: str) -> Iterator[_System]:
    """Routers that connect to the one before only, a caller at the first one and a service at the last one."""
    with ExitStack() as stack:
        routers: dict[str, RouterProcess] = {}
        before = ""
        for name in names:
            started = RouterProcess(router_name=name, mesh_peers=before, mesh_dial="peers")
            routers[name] = stack.enter_context(started)
            before = started.url
        first, last = routers[names[0]], routers[names[-1]]
        if first is not last:
            eventually(lambda: _is_linked(first, names[-1]) and _is_linked(last, names[0]), timeout=30)
        serving = stack.enter_context(child(service, url=last.url, topics=["compute"], direct=False))
        serving.heard()
        calling = stack.enter_context(child(caller, url=first.url, topics=["compute"]))
        calling.heard()
        yield _System(calling, {name: router.pid for name, router in routers.items()})


def _is_linked(router: RouterProcess, other: str) -> bool:
    return any(row["name"] == other and row["state"] == "answering" for row in router.view("mesh")["routers"])


def _sample(system: _System, width: int, seconds: float) -> dict[str, float]:
    before = {name: cpu_seconds(pid) for name, pid in system.routers.items()}
    found: dict[str, float] = system.caller.ask(2 * seconds, verb="call", width=width, seconds=seconds)
    calls = found.pop("calls")
    each = {name: (cpu_seconds(pid) - before[name]) / calls * 1e6 for name, pid in system.routers.items()}
    of_each = {f"cpu_{name}_us": each.get(name, 0.0) for name in "abc"}
    return found | {"cpu_us": sum(each.values())} | of_each


BENCHMARK = Benchmark(
    name="mesh-relays",
    title="Calls from a caller at router a to a service at router c, over router b, directly, and at one router",
    case="W",
    metric="calls_per_second",
    ours=_RELAYED,
    run=run,
)
