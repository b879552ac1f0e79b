"""A host of OpenStack: services that fork workers, each of which serves and calls; what that takes of connections."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from benchmarks.openstack_brokers import OURS, RABBIT, Broker, brokers, oslo_child
from benchmarks.openstack_ends import work
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARK"]

_SERVICES, _WORKERS = 20, 4
#: Calls that each worker makes at once.
_WIDTHS = (1, 8)
#: Seconds for all workers to start, or to call, on a machine that has less than a core for each of them.
_PATIENCE = 300.0
#: State of a connected socket in /proc/net/tcp.
_CONNECTED = "01"


def run(options: Options) -> list[Row]:
    """Count once; the brokers take turns."""
    rows = []
    for name, new in brokers(options.notice).items():
        with new() as broker:
            rows += [Row(name, f"{width} at once", [sample]) for width, sample in _samples(broker)]
    return sorted(rows, key=lambda row: row.case)


def _samples(broker: Broker) -> list[tuple[int, dict[str, float]]]:
    with ExitStack() as stack:
        services = [
            stack.enter_context(
                oslo_child(
                    work,
                    url=broker.url,
                    topic=f"service-{number}",
                    asks=f"service-{(number + 1) % _SERVICES}",
                    workers=_WORKERS,
                    widths=list(_WIDTHS),
                )
            )
            for number in range(_SERVICES)
        ]
        workers = [pid for service in services for pid in service.heard(_PATIENCE)]
        for service in services:
            for _ in range(_WORKERS):
                service.line("worker: serves", _PATIENCE)
        samples = []
        for width in _WIDTHS:
            for service in services:
                service.ask(0)
            for service in services:
                for _ in range(_WORKERS):
                    service.line("worker: called", _PATIENCE)
            samples.append((width, _counted(broker, workers)))
        return samples


def _counted(broker: Broker, workers: list[int]) -> dict[str, float]:
    return {
        "connections": _connections(broker.port),
        "descriptors": sum(map(_descriptors, workers)),
        "broker_descriptors": sum(map(_descriptors, broker.pids())),
        "threads": sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in workers),
        "workers_mib": sum(map(_mib, workers)),
        "broker_mib": sum(map(_mib, broker.pids())),
    }


def _connections(port: int) -> int:
    """Connections of others to ``port``."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return sum(row[2].endswith(f":{port:04X}") and row[3] == _CONNECTED for row in rows)


def _descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _mib(pid: int) -> float:
    """Memory of a process; what it shares with others is divided between them."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


_CASES = tuple(f"{width} at once" for width in _WIDTHS)
BENCHMARK = Benchmark(
    name="openstack-host",
    title=f"A host of {_SERVICES} services with {_WORKERS} workers each, which serve and call one another",
    case="calls",
    metric="connections",
    ours=OURS,
    run=run,
    targets=(Target(RABBIT, "connections", _CASES, at_most=0.5),),
)
