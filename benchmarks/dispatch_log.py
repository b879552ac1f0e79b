"""The cost of the dispatch log: the router alone, as in ``router-alone``, with the log and without it.

And what it holds up when the disk is busy: the worst latency of a steady load while another process writes and
syncs as much as the same disk takes.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks import raw
from benchmarks.children import Child, child, commands, router, say
from benchmarks.ends import sample
from benchmarks.report import Benchmark, Options, Row, Target

__all__ = ["BENCHMARKS"]

_ON, _OFF = "with the log", "without"
_WIDTHS = (1, 16, 64, 256)
#: The steady load of the stalls: so many calls at a time, and seconds between.
_STEADY, _PAUSE = 32, 0.002
#: The data that the busy disk gets at a time, each time in a new file.
_MIB = 1 << 20
_MIB_AT_ONCE = 16


def run(options: Options) -> list[Row]:
    """Calls/s and latency with W calls outstanding."""
    with ExitStack() as stack:
        clients = _started(stack, stack.enter_context(TemporaryDirectory(prefix="rpcmq-bench-")))
        return [row for width in _WIDTHS for row in _rounds(options, width, clients)]


def _started(stack: ExitStack, folder: str) -> dict[str, tuple[Child, Child]]:
    """Client and router with the log, in ``folder``, and without."""
    enter = stack.enter_context
    clients: dict[str, tuple[Child, Child]] = {}
    for system, settings in ((_ON, {"dispatch_log_directory": folder}), (_OFF, {})):
        daemon, url = enter(router(**settings))
        enter(child(raw.batch_echo, url=url)).heard()
        clients[system] = enter(child(raw.batch_client, url=url)), daemon
    for client, _ in clients.values():
        client.heard()
    return clients


def _rounds(options: Options, width: int, clients: dict[str, tuple[Child, Child]]) -> list[Row]:
    rows = [Row(system, width, []) for system in clients]
    for number in range(options.rounds):
        # Whoever comes first finds the machine as the other left it: take turns.
        for row in rows if number % 2 else rows[::-1]:
            client, daemon = clients[row.system]
            row.samples.append(sample(client, daemon, options.seconds, width=width))
    return rows


def run_stalls(options: Options) -> list[Row]:
    """The longest that a call of a steady load took, with the disk left alone and with the disk kept busy."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(prefix="rpcmq-bench-"))
        clients = _started(stack, folder)
        rows = _stalls(options, clients, None)
        disk = stack.enter_context(child(busy_disk, folder=folder))
        disk.heard()
        return rows + _stalls(options, clients, disk)


def _stalls(options: Options, clients: dict[str, tuple[Child, Child]], disk: Child | None) -> list[Row]:
    rows = [Row(system, "busy" if disk else "idle", []) for system in clients]
    for number in range(options.rounds):
        for row in rows if number % 2 else rows[::-1]:
            client, _ = clients[row.system]
            if disk:
                disk.ask(options.seconds)
            sample = client.ask(2 * options.seconds, width=_STEADY, seconds=options.seconds, pause=_PAUSE)
            del sample["calls"]
            row.samples.append(sample | (disk.ask(options.seconds) if disk else {}))
    return rows


def busy_disk(folder: str) -> None:
    """Write and sync as much as the disk takes; when asked, say how much that was since it was asked last."""
    block = os.urandom(_MIB)
    path = Path(folder, "load")
    say("ready")
    written, began = 0, perf_counter()
    while True:
        path.unlink(missing_ok=True)
        with path.open("wb", buffering=0) as file:
            for _ in range(_MIB_AT_ONCE):
                file.write(block)
            os.fsync(file.fileno())
        written += _MIB_AT_ONCE
        if not commands().empty():
            commands().get()
            say({"disk MiB/s": written / (perf_counter() - began)})
            written, began = 0, perf_counter()


_COST = Benchmark(
    name="dispatch-log",
    title="The dispatch log: router alone, with it and without it, W calls outstanding",
    case="W",
    metric="calls_per_second",
    ours=_ON,
    run=run,
    targets=(Target(_OFF, "calls_per_second", (64, 256), at_least=0.85),),
)
_STALLS = Benchmark(
    name="dispatch-log-stalls",
    title=f"The dispatch log and a busy disk: the longest that one of {_STEADY} calls each {_PAUSE * 1000:g} ms took",
    case="disk",
    metric="max_us",
    ours=_ON,
    run=run_stalls,
)
BENCHMARKS = (_COST, _STALLS)
