"""What the dispatch log costs: the router alone, as in ``router-alone``, with the log and without it."""

from __future__ import annotations

from contextlib import ExitStack
from tempfile import TemporaryDirectory

from benchmarks import raw
from benchmarks.children import Child, child, cpu_seconds, router
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARK"]

_ON, _OFF = "with the log", "without"
_WIDTHS = (1, 16, 64, 256)


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W calls outstanding; the worst latency shows what a write may hold up."""
    with ExitStack() as stack:
        enter = stack.enter_context
        folder = enter(TemporaryDirectory(prefix="rpcmq-bench-"))
        clients: dict[str, tuple[Child, Child]] = {}
        for system, settings in ((_ON, {"dispatch_log_directory": folder}), (_OFF, {})):
            daemon, url = enter(router(**settings))
            enter(child(raw.batch_echo, url=url)).heard()
            clients[system] = enter(child(raw.batch_client, url=url)), daemon
        for client, _ in clients.values():
            client.heard()
        return [row for width in _WIDTHS for row in _rounds(options, width, clients)]


def _rounds(options: Options, width: int, clients: dict[str, tuple[Child, Child]]) -> list[Row]:
    rows = [Row(system, width, []) for system in clients]
    for number in range(options.rounds):
        # Whoever comes first finds the machine as the other left it: take turns.
        for row in rows if number % 2 else rows[::-1]:
            client, daemon = clients[row.system]
            cpu = cpu_seconds(daemon.pid)
            sample = client.ask(2 * options.seconds, width=width, seconds=options.seconds)
            used = (cpu_seconds(daemon.pid) - cpu) / sample.pop("calls")
            row.samples.append(sample | {"cpu_us": used * 1e6})
    return rows


BENCHMARK = Benchmark(
    name="dispatch-log",
    title="The dispatch log: router alone, with it and without it, W calls outstanding",
    case="W",
    metric="calls_per_second",
    ours=_ON,
    run=run,
    targets=(Target(_OFF, "calls_per_second", (64, 256), at_least=0.85),),
)
