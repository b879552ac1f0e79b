"""One of three routers is killed (SIGKILL) under load: the time until calls are answered again, and the calls lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter, sleep
from typing import Any

import gevent
from gevent import get_hub

from benchmarks.children import Child, child, commands, say
from benchmarks.ends import Endpoint
from benchmarks.nats_cluster import nats_cluster, nats_missing
from benchmarks.report import Benchmark, Options, Row
from benchmarks.workload import ARGUMENTS, CONTEXT, METHOD, rebooted
from rpcmq import Client, Service
from rpcmq.testing.router_mesh import RouterMesh

__all__ = ["BENCHMARK"]

_OURS = "rpcmq, mesh of 3"
_CLUSTER = "NATS, cluster of 3"
_SERVICES, _CALLERS, _OUTSTANDING = 6, 4, 8
#: A call's timeout, and how long after the kill calls are begun (seconds).
_TIMEOUT = 2.0
_AFTER = 6.0
_BEFORE = 1.0


@dataclass(frozen=True)
class _System:
    callers: Sequence[Child]
    #: Kills the router of the callers.
    kill: Callable[[], None]


def run(options: Options) -> list[Row]:
    """Each round kills a router of a fresh mesh, and a server of a fresh cluster."""
    rows = [Row(_OURS, "kill -9", [])]
    starts = {_OURS: _rpcmq}
    missing = nats_missing()
    if missing:
        options.notice(f"NATS: {missing}")
    else:
        rows.append(Row(_CLUSTER, "kill -9", []))
        starts[_CLUSTER] = _nats
    for _ in range(options.rounds):
        for row in rows:
            with starts[row.system]() as system:
                row.samples.append(_sample(system))
    return rows


def _sample(system: _System) -> dict[str, float]:
    for caller in system.callers:
        caller.ask(0, do="begin")
    sleep(_BEFORE)
    killed = perf_counter()
    system.kill()
    sleep(_AFTER)
    found = [caller.ask(2 * _TIMEOUT, do="end", killed=killed) for caller in system.callers]
    return {
        "first_good_p50_ms": median(each["first_good"] for each in found) * 1e3,
        "first_good_worst_ms": max(each["first_good"] for each in found) * 1e3,
        "longest_call_ms": max(each["longest"] for each in found) * 1e3,
        "outstanding": sum(each["outstanding"] for each in found),
        "lost": sum(each["lost"] for each in found),
        "lost_later": sum(each["lost_later"] for each in found),
    }


@contextmanager
def _rpcmq() -> Iterator[_System]:
    with RouterMesh(3) as mesh, _ends(serve, call, mesh.urls) as callers:
        yield _System(callers, mesh["a"].kill)


@contextmanager
def _nats() -> Iterator[_System]:
    with nats_cluster(3) as cluster, _ends(nats_serve, nats_call, [server.url for server in cluster]) as callers:
        yield _System(callers, cluster[0].process.close)


@contextmanager
def _ends(service: Callable[..., None], caller: Callable[..., None], urls: list[str]) -> Iterator[list[Child]]:
    """Services spread over the routers, and callers at the first; each knows all urls."""
    with ExitStack() as stack:
        for number in range(_SERVICES):
            at = number % len(urls)
            stack.enter_context(child(service, urls=urls[at:] + urls[:at])).heard()
        callers = [stack.enter_context(child(caller, urls=urls)) for _ in range(_CALLERS)]
        for each in callers:
            each.heard()
        yield callers


# --- in the child --------------------------------------------------------------------------------


class _Log:
    """The beginning and the end of each call (times of ``perf_counter``), and whether it was answered."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, float, bool]] = []
        self.is_over = False

    def report(self, killed: float) -> dict[str, float]:
        """Return what became of the calls, for a kill at ``killed``."""
        good = [(sent, received) for sent, received, is_good in self.calls if is_good]
        after = [received - killed for sent, received in good if sent >= killed]
        outstanding = [call for call in self.calls if call[0] < killed <= call[1]]
        later = [call for call in self.calls if call[0] >= killed]
        return {
            "first_good": min(after, default=float("inf")),
            "longest": max((received - sent for sent, received in good if received >= killed), default=float("inf")),
            "outstanding": len(outstanding),
            "lost": sum(not is_good for _, _, is_good in outstanding),
            "lost_later": sum(not is_good for _, _, is_good in later),
        }


def serve(urls: list[str]) -> None:
    """Serves over rpcmq."""
    service = Service("compute", Endpoint(), client=Client(",".join(urls), shell="gevent"), concurrency=64)
    service.start()
    say("ready")
    service.wait()


def call(urls: list[str]) -> None:
    """Calls over rpcmq until told to stop."""
    client = Client(",".join(urls), shell="gevent", timeout=_TIMEOUT)
    client.call(CONTEXT, "compute", {"method": METHOD, "args": ARGUMENTS})
    log = _Log()

    def go_on() -> None:
        while not log.is_over:
            sent = perf_counter()
            try:
                client.call(CONTEXT, "compute", {"method": METHOD, "args": ARGUMENTS})
                is_good = True
            except Exception:
                is_good = False
                gevent.sleep(0.01)
            log.calls.append((sent, perf_counter(), is_good))

    say("ready")
    wait = get_hub().threadpool.apply
    wait(commands().get)
    calling = [gevent.spawn(go_on) for _ in range(_OUTSTANDING)]
    say("calling")
    command = wait(commands().get)
    log.is_over = True
    gevent.joinall(calling)
    say(log.report(command["killed"]))
    wait(commands().get)


def nats_serve(urls: list[str]) -> None:
    """Serves over NATS, as one of a queue group."""

    async def run() -> None:
        connection = await _connected(urls)

        async def handle(request: Any) -> None:
            message = json.loads(request.data)
            await request.respond(json.dumps(rebooted(**message["args"])).encode())

        await connection.subscribe("compute", queue="workers", cb=handle)
        await connection.flush()
        await asyncio.sleep(0.2)  # it does not say when other servers know
        say("ready")
        await asyncio.Event().wait()

    asyncio.run(run())


def nats_call(urls: list[str]) -> None:
    """Calls over NATS until told to stop."""

    async def run() -> None:
        connection = await _connected(urls)
        request = json.dumps({"ctx": CONTEXT, "method": METHOD, "args": ARGUMENTS}).encode()
        await connection.request("compute", request, timeout=_TIMEOUT)
        log = _Log()

        async def go_on() -> None:
            while not log.is_over:
                sent = perf_counter()
                try:
                    json.loads((await connection.request("compute", request, timeout=_TIMEOUT)).data)
                    is_good = True
                except Exception:
                    is_good = False
                    await asyncio.sleep(0.01)
                log.calls.append((sent, perf_counter(), is_good))

        say("ready")
        await asyncio.to_thread(commands().get)
        calling = [asyncio.create_task(go_on()) for _ in range(_OUTSTANDING)]
        say("calling")
        command = await asyncio.to_thread(commands().get)
        log.is_over = True
        await asyncio.gather(*calling)
        say(log.report(command["killed"]))
        await asyncio.Event().wait()

    asyncio.run(run())


async def _connected(urls: list[str]) -> Any:
    import nats

    async def log(error: Exception) -> None:
        """Say nothing: lost connections are the subject."""

    return await nats.connect(
        servers=urls, dont_randomize=True, reconnect_time_wait=0.05, max_reconnect_attempts=-1, error_cb=log
    )


BENCHMARK = Benchmark(
    name="mesh-kill",
    title=f"The router of {_CALLERS} callers with {_OUTSTANDING} calls each is killed; {_SERVICES} services at three",
    case="fault",
    metric="first_good_p50_ms",
    ours=_OURS,
    run=run,
)
