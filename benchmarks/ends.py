"""The two ends of whole calls, everything on: a service and a caller, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, perf_counter
from typing import Any

import gevent
from gevent import get_hub

from benchmarks.children import Child, child, commands, cpu_seconds, say
from benchmarks.children import router as router_process
from benchmarks.report import Options, Row, in_turns
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD, Meter, rebooted
from rpcmq import Client, Service, aio

__all__ = ["Endpoint", "answer", "both", "caller", "sample", "service", "side_by_side", "side_by_side_over_ipc"]

#: Requests that the service runs at once: more than any benchmark has outstanding.
_CONCURRENCY = 256
#: Casts between two looks at the clock.
_CASTS = 20
#: Time that the last casts may take to be run (seconds).
_SETTLE_SECONDS = 30.0


# --- in the parent -------------------------------------------------------------------------------


@contextmanager
def both(
    url: str, topics: list[str], direct: bool = False, keys: tuple[str, str] = ("", ""), **trust: Any
) -> Iterator[Child]:
    """A service and a caller of ``topics`` for as long as the block runs; gives the caller.

    Args:
        keys: key file of the service and of the caller; empty: no CURVE.
        trust: settings of both: ``mac_file`` and ``trust_file``.
    """
    with child(service, url=url, topics=topics, direct=direct, key_file=keys[0], **trust) as serving:
        serving.heard()
        with child(caller, url=url, topics=topics, key_file=keys[1], **trust) as calling:
            calling.heard()
            yield calling


def sample(calling: Child, router: Child, seconds: float, **command: Any) -> dict[str, float]:
    """Have ``calling`` do something for ``seconds``; what it found, with the CPU time of ``router`` a message."""
    before = cpu_seconds(router.pid)
    found: dict[str, float] = calling.ask(2 * seconds, seconds=seconds, **command)
    return found | {"cpu_us": (cpu_seconds(router.pid) - before) / found.pop("calls") * 1e6}


def side_by_side(
    calling: Child,
    router: Child,
    systems: Mapping[str, Mapping[str, Any]],
    widths: Sequence[int],
    rounds: int,
    seconds: float,
) -> list[Row]:
    """A row for each width and system, which take turns: one sample of ``seconds`` of each in a round.

    Args:
        systems: the name of each, and the command with which ``calling`` does it; ``width`` is added.
    """

    def measure(system: str, width: int) -> dict[str, float]:
        return sample(calling, router, seconds, width=width, **systems[system])

    return in_turns(systems, widths, rounds, measure)


def side_by_side_over_ipc(
    options: Options, systems: Mapping[str, Mapping[str, Any]], widths: Sequence[int]
) -> list[Row]:
    """As :func:`side_by_side`, with a router of its own, which is reached over ipc."""
    with (
        TemporaryDirectory() as folder,
        router_process(router_listen=f"ipc://{folder}/router") as (daemon, url),
        both(url, ["compute"]) as calling,
    ):
        return side_by_side(calling, daemon, systems, widths, options.rounds, options.seconds)


# --- in the child --------------------------------------------------------------------------------


def answer(function: Callable[..., Any]) -> None:
    """Say what ``function`` returns for each command, in a process whose hub goes on meanwhile."""
    wait = get_hub().threadpool.apply
    while True:
        say(function(**wait(commands().get)))


class Endpoint:
    """The endpoint that is served."""

    def __init__(self) -> None:
        self._counted = 0

    def reboot_instance(self, ctx: Any, instance_id: str, reboot_type: str) -> dict[str, Any]:
        """The call of the workload."""
        return rebooted(instance_id, reboot_type)

    def echo(self, ctx: Any, data: bytes) -> bytes:
        """Return ``data``."""
        return data

    def count(self, ctx: Any, instance_id: str, reboot_type: str) -> None:
        """Count a cast."""
        self._counted += 1

    def counted(self, ctx: Any) -> int:
        """The number of casts that were counted."""
        return self._counted


def service(url: str, topics: list[str], direct: bool, **settings: Any) -> None:
    """Serves ``topics``."""
    client, endpoint = Client(url, shell="gevent", **settings), Endpoint()
    services = [Service(topic, endpoint, client=client, concurrency=_CONCURRENCY, direct=direct) for topic in topics]
    for each in services:
        each.start()
    say("ready")
    services[0].wait()


def caller(url: str, topics: list[str], **settings: Any) -> None:
    """Calls and casts, spread over ``topics``, as it is told."""
    client = Client(url, shell="gevent", **settings)
    client.connect()
    verbs: dict[str, Callable[..., dict[str, float]]] = {
        "call": _calls, "cast": _casts, "thread call": _thread_calls,
        "thread call on one core": _thread_calls_on_one_core,
        "task call": partial(_task_calls, asyncio.new_event_loop), "uvloop call": _uvloop_calls,
    }  # fmt: skip
    say("ready")
    answer(lambda verb, **arguments: verbs[verb](client, topics, **arguments))


def _calls(
    client: Client, topics: list[str], width: int, seconds: float, size: int = 0, direct: bool = False
) -> dict[str, float]:
    """``width`` greenlets call for ``seconds``: the usual call, or an echo of ``size`` bytes."""
    message: dict[str, Any] = {"method": METHOD, "args": ARGUMENTS}
    if size:
        message = {"method": "echo", "args": {"data": os.urandom(size)}}
    # What is made once, such as a direct link, is not measured.
    for topic in topics:
        client.call(CONTEXT, topic, message, direct=direct)
    meter = Meter(seconds)

    def call(topic: str) -> None:
        go_on = True
        while go_on:
            sent = perf_counter()
            client.call(CONTEXT, topic, message, direct=direct)
            go_on = meter.count(sent, perf_counter())

    _together([gevent.spawn(call, topics[i % len(topics)]) for i in range(width)])
    fallbacks = client.process.direct.fallbacks
    if fallbacks:
        raise RuntimeError(f"calls did not go directly: {dict(fallbacks)}")
    return meter.result()


def _thread_calls(client: Client, topics: list[str], width: int, seconds: float) -> dict[str, float]:
    """``width`` OS threads call for ``seconds`` with a client that lives in a plain thread."""
    message, topic = {"method": METHOD, "args": ARGUMENTS}, topics[0]
    with Client(client.config.router, shell="threads") as threaded:
        threaded.call(CONTEXT, topic, message)
        meter = Meter(seconds)

        def call() -> None:
            go_on = True
            while go_on:
                sent = perf_counter()
                threaded.call(CONTEXT, topic, message)
                go_on = meter.count(sent, perf_counter())

        calling = [Thread(target=call) for _ in range(width)]
        for thread in calling:
            thread.start()
        for thread in calling:
            get_hub().threadpool.apply(thread.join)
        return meter.result()


def _thread_calls_on_one_core(client: Client, topics: list[str], width: int, seconds: float) -> dict[str, float]:
    """As :func:`_thread_calls`, with this process kept to one core."""
    cores = os.sched_getaffinity(0)
    _keep_to({min(cores)})
    try:
        return _thread_calls(client, topics, width, seconds)
    finally:
        _keep_to(cores)


def _task_calls(
    new_loop: Callable[[], asyncio.AbstractEventLoop], client: Client, topics: list[str], width: int, seconds: float
) -> dict[str, float]:
    """``width`` tasks of an event loop in a thread of its own call for ``seconds``."""
    message, topic = {"method": METHOD, "args": ARGUMENTS}, topics[0]

    async def measure() -> dict[str, float]:
        async with aio.Client(client.config.router) as awaited:
            await awaited.call(CONTEXT, topic, message)
            meter = Meter(seconds)

            async def call() -> None:
                go_on = True
                while go_on:
                    sent = perf_counter()
                    await awaited.call(CONTEXT, topic, message)
                    go_on = meter.count(sent, perf_counter())

            await asyncio.gather(*[call() for _ in range(width)])
            return meter.result()

    def run() -> dict[str, float]:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(measure())

    return get_hub().threadpool.apply(run)


def _uvloop_calls(client: Client, topics: list[str], width: int, seconds: float) -> dict[str, float]:
    import uvloop

    return _task_calls(uvloop.new_event_loop, client, topics, width, seconds)


def _keep_to(cores: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cores)


def _casts(client: Client, topics: list[str], width: int, seconds: float, confirm: bool = False) -> dict[str, float]:
    """``width`` greenlets cast for ``seconds``; then the time until all is run is measured, too."""
    message = {"method": "count", "args": ARGUMENTS}
    topic = topics[0]
    before: int = client.call(None, topic, {"method": "counted", "args": {}})
    together = 1 if confirm else _CASTS
    meter = Meter(seconds)
    started = perf_counter()

    def cast() -> None:
        go_on = True
        while go_on:
            sent = perf_counter()
            for _ in range(together):
                client.cast(CONTEXT, topic, message, confirm=confirm)
            go_on = meter.count(sent, perf_counter(), together)

    _together([gevent.spawn(cast) for _ in range(width)])
    result = meter.result()
    _until_run(client, topic, before + int(result["calls"]))
    result["run_per_second"] = result["calls"] / (perf_counter() - started)
    result["casts_per_second"] = result.pop("calls_per_second")
    if not confirm:
        # Nothing is waited for but room in the window: not a latency.
        del result["p50_us"], result["p99_us"]
    return result


def _until_run(client: Client, topic: str, casts: int) -> None:
    end = monotonic() + _SETTLE_SECONDS
    while (run := client.call(None, topic, {"method": "counted", "args": {}})) < casts:
        if monotonic() > end:
            raise RuntimeError(f"{casts - run} of {casts} casts were not run within {_SETTLE_SECONDS:g} s")
        gevent.sleep(0.002)


def _together(greenlets: list[gevent.Greenlet[..., None]]) -> None:
    gevent.joinall(greenlets, raise_error=True)
