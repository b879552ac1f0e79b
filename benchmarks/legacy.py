"""The cost of a call through the Nova shim beside ``rpc.call`` itself."""

from __future__ import annotations

import os
from contextlib import ExitStack
from time import perf_counter
from typing import Any

import gevent

from benchmarks.children import child, router, say
from benchmarks.ends import answer, both
from benchmarks.report import Benchmark, Options, Row, Target, in_turns
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD, Meter, rebooted

__all__ = ["BENCHMARK"]

_SHIM = "nova.rpc on rpcmq"
_NATIVE = "rpcmq"
_WIDTHS = (1, 64)
_MESSAGE = {"method": METHOD, "args": ARGUMENTS}


class _Manager:
    def reboot_instance(self, context: Any, instance_id: str, reboot_type: str) -> dict[str, Any]:
        """The call of the workload."""
        return rebooted(instance_id, reboot_type)


class _Context:
    # As every context of Nova's has.
    _values = CONTEXT | {"timestamp": "2012-03-04T05:06:07.000008"}

    def to_dict(self) -> dict[str, Any]:
        """The same context that the other callers send."""
        return self._values


def _nova(url: str) -> Any:
    os.environ["RPCMQ_ROUTER"] = url
    import compat.nova

    compat.nova.install()
    from nova import rpc

    return rpc


def legacy_service(url: str) -> None:
    """Serves ``compute`` as a Nova service does."""
    connection = _nova(url).create_connection(new=True)
    connection.create_consumer("compute", _Manager())
    thread = connection.consume_in_thread()
    say("ready")
    thread.join()


def legacy_caller(url: str) -> None:
    """Calls as Nova does."""
    rpc, context = _nova(url), _Context()
    rpc.call(context, "compute", _MESSAGE)
    say("ready")

    def calls(width: int, seconds: float, verb: str) -> dict[str, float]:
        meter = Meter(seconds)

        def call() -> None:
            go_on = True
            while go_on:
                sent = perf_counter()
                rpc.call(context, "compute", _MESSAGE)
                go_on = meter.count(sent, perf_counter())

        gevent.joinall([gevent.spawn(call) for _ in range(width)], raise_error=True)
        return meter.result()

    answer(calls)


def run(options: Options) -> list[Row]:
    """Calls/s and latency from one process with W callers to one service, both legacy or both rpcmq's own."""
    with ExitStack() as stack:
        _, url = stack.enter_context(router())
        callers = {_NATIVE: stack.enter_context(both(url, ["native"]))}
        stack.enter_context(child(legacy_service, url=url)).heard()
        callers[_SHIM] = stack.enter_context(child(legacy_caller, url=url))
        callers[_SHIM].heard()

        def measure(system: str, width: int) -> dict[str, float]:
            seconds = options.seconds
            sample: dict[str, float] = callers[system].ask(2 * seconds, width=width, seconds=seconds, verb="call")
            del sample["calls"]
            return sample

        return in_turns((_SHIM, _NATIVE), _WIDTHS, options.rounds, measure)


BENCHMARK = Benchmark(
    name="legacy",
    title="Calls through the Nova shim: one process with W callers, one service",
    case="W",
    metric="calls_per_second",
    ours=_SHIM,
    run=run,
    targets=(Target(_NATIVE, "calls_per_second", _WIDTHS, at_least=1 / 1.5),),
)
