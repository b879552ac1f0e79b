"""The cost of a mesh to those who do not use it: a call in one router's engine, beside one with two idle neighbours."""

from __future__ import annotations

import gc

from benchmarks.children import child, commands, say
from benchmarks.engine import NAMES, Engine
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq.testing.mesh_network import MeshNetwork

__all__ = ["BENCHMARK"]

_ALONE = "one router"
_MESHED = "with two neighbours"


def engines() -> None:
    """Engines in one process, measured in turn as it is told."""
    measured = {_ALONE: _engine("a"), _MESHED: _engine("abc")}
    for each in measured.values():
        each.measure()
    gc.collect()
    gc.freeze()
    say("ready")
    while True:
        names = list(measured) if commands().get()["forth"] else list(measured)[::-1]
        say({name: measured[name].measure() for name in names})


def _engine(names: str) -> Engine:
    """The router a, which is linked to the others; callers and services are at this one only, as the others know."""
    net = MeshNetwork(names)
    net.advance(5.0)
    host = net.hosts["a"]
    for name in NAMES:
        host.connections.ends[name.encode()] = None  # its output is not read
    engine = Engine(host.router, net.now)
    net.advance(1.0)
    assert all(len(net.router_of(name).mesh.neighbours) == len(names) - 1 for name in names)
    engine.now = net.now
    return engine


def run(options: Options) -> list[Row]:
    """CPU time of a call in the engine whose caller and service are both linked to it: no sockets."""
    rows = [Row(name, "call", []) for name in (_ALONE, _MESHED)]
    with child(engines) as measured:
        measured.heard()
        for number in range(max(4, int(options.rounds * options.seconds * 2))):
            found = measured.ask(5, forth=number % 2)
            for row in rows:
                row.samples.append({"engine_us": found[row.system], "calls_per_second": 1e6 / found[row.system]})
    return rows


BENCHMARK = Benchmark(
    name="mesh-idle",
    title="The router's engine alone: a call whose caller and service are linked to it, without and with neighbours",
    case="",
    metric="engine_us",
    ours=_MESHED,
    run=run,
    targets=(Target(_ALONE, "engine_us", ("call",), at_most=1.15),),
)
