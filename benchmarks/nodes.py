"""The cost of nodes that are plugged in: the router's engine alone, CPU time of a call, with and without them."""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.engine import Engine, measure_in_turn, rows_of
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq.config.nodes import NodeTable
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.nodes.loading import installed_types, plug_ins_for
from rpcmq.wire import Kind, control, pack

__all__ = ["BENCHMARK", "engine"]

_NONE, _IDLE = "no nodes", "nodes that nobody uses"
_ELSEWHERE, _HERE = "a tap on another topic", "a tap on this topic"
_TAP_KIND = 0x80


def _router(*types: str) -> Router:
    makers = plug_ins_for([NodeTable(name, name, options={}) for name in types]).makers
    return Router(Settings(recovery_seconds=0.0), 1_700_000_000_000, 0.0, lambda: "token", plug_ins=makers)


def _tapped(topic: str) -> Engine:
    made = Engine(_router("tap"))
    hello = {"identity": "ops", "queue_type": "roundrobin", "versions": [1], "accepts": ["json"]}
    made.router.receive(made.now, b"ops", control(Kind.HELLO, hello), (), "ops")
    asked = json.dumps({"do": "start", "topic": topic, "seconds": 3600, "rate": 1000}).encode()
    key = made.router.links.routes[b"ops"].origin + (1).to_bytes(8)
    made.router.receive(made.now, b"ops", pack(_TAP_KIND, asked, key=key, ttl=60_000))
    if not made.router.dispatch.requests.watches_answers:
        raise RuntimeError("the tap was not started")
    return made


def engine() -> None:
    """Engines in one process, measured in turn as it is told."""
    makers: dict[str, Callable[[], Engine]] = {
        _NONE: lambda: Engine(_router()),
        _IDLE: lambda: Engine(_router(*installed_types())),
        _ELSEWHERE: lambda: _tapped("volume"),
        _HERE: lambda: _tapped("compute"),
    }
    engines = {name: make() for name, make in makers.items()}
    measure_in_turn(engines)


def run(options: Options) -> list[Row]:
    """CPU time of a call in the engine: no sockets."""
    return rows_of(options, engine, (_IDLE, _NONE, _ELSEWHERE, _HERE))


BENCHMARK = Benchmark(
    name="nodes",
    title="Nodes that are plugged in: the router's engine alone, CPU time of a call",
    case="a",
    metric="engine_us",
    ours=_IDLE,
    run=run,
    targets=(Target(_NONE, "engine_us", ("call",), at_most=1.03),),
)
