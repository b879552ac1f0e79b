"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from rich.console import Console

from benchmarks import (
    browsers,
    casts,
    direct,
    dispatch_log,
    fanout,
    growth,
    hedging,
    latency,
    legacy,
    mesh_addresses,
    mesh_calls,
    mesh_convergence,
    mesh_events,
    mesh_idle,
    mesh_kill,
    mesh_relays,
    nodes,
    openstack,
    openstack_host,
    proxy,
    queue_peers,
    queue_put_latency,
    queue_store,
    reply_streams,
    request_streams,
    router_alone,
    routers,
    security,
    shells,
    sizes,
    syslog_flood,
    threads,
    whole_calls,
)
from benchmarks.children import ChildFailed
from benchmarks.report import Benchmark, Options, build, draw, keep, show

BENCHMARKS: tuple[Benchmark, ...] = (
    router_alone.BENCHMARK,
    whole_calls.BENCHMARK,
    casts.BENCHMARK,
    fanout.BENCHMARK,
    sizes.BENCHMARK,
    request_streams.BENCHMARK,
    reply_streams.BENCHMARK,
    direct.BENCHMARK,
    shells.BENCHMARK,
    threads.BENCHMARK,
    routers.BENCHMARK,
    mesh_calls.BENCHMARK,
    mesh_relays.BENCHMARK,
    mesh_events.BENCHMARK,
    mesh_kill.BENCHMARK,
    mesh_idle.BENCHMARK,
    mesh_addresses.BENCHMARK,
    mesh_convergence.BENCHMARK,
    *queue_store.BENCHMARKS,
    queue_put_latency.BENCHMARK,
    *queue_peers.BENCHMARKS,
    *openstack.BENCHMARKS,
    openstack_host.BENCHMARK,
    proxy.BENCHMARK,
    browsers.BENCHMARK,
    syslog_flood.BENCHMARK,
    legacy.BENCHMARK,
    *dispatch_log.BENCHMARKS,
    latency.BENCHMARK,
    *security.BENCHMARKS,
    nodes.BENCHMARK,
    hedging.BENCHMARK,
    *growth.BENCHMARKS,
)
#: Load for each core from which on the figures are doubtful.
_BUSY = 0.3
_RESULTS = Path(__file__).resolve().parent / "results"
#: Columns where no terminal says how many there are: no table has more.
_WIDE = 1000


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDE)


def _options() -> tuple[list[Benchmark], Options, Path]:
    known = {benchmark.name: benchmark for benchmark in BENCHMARKS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules["benchmarks"].__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"which; default: all of {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: rough figures")
    parser.add_argument("--rounds", type=int, help="rounds of each case, interleaved between the systems")
    parser.add_argument("--seconds", type=float, help="length of a round")
    parser.add_argument("--long", action="store_true", help="the cases, too, that take many minutes")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="folder for JSON and PNG")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"{', '.join(unknown)}: no such benchmark; there are {', '.join(known)}")
    usual = Options(seconds=0.5, rounds=3) if arguments.quick else Options()
    console = _console()
    options = Options(
        seconds=arguments.seconds or usual.seconds,
        rounds=arguments.rounds or usual.rounds,
        is_long=arguments.long,
        notice=lambda text: console.print(f"[yellow]left out:[/] {text}"),
        progress=console.print,
    )
    return [known[name] for name in arguments.names or known], options, arguments.results


def _main() -> int:
    # As an exception, so that the processes that were started are killed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    chosen, options, folder = _options()
    console = _console()
    failed = 0
    load = os.getloadavg()[0]
    if load > _BUSY * len(os.sched_getaffinity(0)):
        console.print(
            f"[yellow]the machine is busy with something else (load {load:.1f}): figures will not be right[/]"
        )
    console.print(f"rpcmq is the {build()} build")
    for benchmark in chosen:
        try:
            rows = benchmark.run(options)
        except ChildFailed as error:
            console.print(f"[red]{benchmark.name} failed:[/] {error}")
            failed = 1
            continue
        except ModuleNotFoundError as error:
            console.print(f"[red]{benchmark.name} needs {error.name}:[/] `make bench` installs it")
            failed = 1
            continue
        show(console, benchmark, rows)
        console.print(f"kept in {keep(folder, benchmark, rows, options, load)}")
        drawn = draw(folder, benchmark, rows)
        console.print(f"drawn in {drawn}" if drawn else "no plot: matplotlib is not installed")
    return failed


if __name__ == "__main__":
    try:
        sys.exit(_main())
    except KeyboardInterrupt:
        sys.exit(130)
