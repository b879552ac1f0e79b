"""A program that gevent or eventlet has patched: its green threads use rpcmq.threads. green.py KIND ROUTER SCENARIO"""

import logging
import os
import select
import sys
import time
from collections.abc import Iterator
from typing import Any

KIND, URL, SCENARIO = sys.argv[1:4]
if KIND == "gevent":
    import gevent.monkey

    gevent.monkey.patch_all()
elif KIND == "eventlet":
    import eventlet  # type: ignore[import-not-found,unused-ignore]

    eventlet.monkey_patch()

import threading  # noqa: E402

from rpcmq import threads  # noqa: E402
from rpcmq.errors import CallTimeout, UsageError  # noqa: E402


class Endpoint:
    def __init__(self) -> None:
        self.meeting = threading.Barrier(20)

    def echo(self, ctx: Any, value: Any) -> Any:
        return value

    def meet(self, ctx: Any) -> str:
        self.meeting.wait(30)
        return "met"

    def count(self, ctx: Any, n: int) -> Iterator[int]:
        yield from range(n)


def message(method: str, **args: object) -> dict[str, object]:
    return {"method": method, "args": args}


class SlowHandler(logging.Handler):
    """Waits while it holds its lock, as one that writes to the network does."""

    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(0.01)
        print("logged", record.getMessage())


def logs() -> None:
    """The thread of the sockets logs while green threads hold the lock of the handler."""
    log = logging.getLogger("rpcmq.client")
    log.addHandler(SlowHandler())
    log.propagate = False

    def keep_logging() -> None:
        while True:
            log.error("busy")
            time.sleep(0.002)

    for _ in range(3):
        threading.Thread(target=keep_logging, daemon=True).start()
    service = threads.Service("compute", Endpoint(), router=URL, host="h")
    service.start()
    client = threads.Client(URL)
    for n in range(20):
        # Its refusal is logged where it comes in.
        client.cast(None, f"nobody-{n}", message("echo"), mandatory=True)
        client.call(None, "compute", message("echo", value=1), timeout=20)
    print("answered")
    time.sleep(60)  # to be killed in this


def patched_later() -> None:
    import gevent.monkey

    client = threads.Client(URL)
    client.connect()
    gevent.monkey.patch_all()
    try:
        client.call(None, "compute", message("echo", value=1), timeout=20)
    except UsageError as error:
        print(error)


def green() -> None:
    service = threads.Service("compute", Endpoint(), router=URL, host="h", concurrency=20)
    service.start()
    client = threads.Client(URL)
    print(client.call(None, "compute", message("echo", value=1), timeout=20))
    ticks: list[int] = []

    def tick() -> None:
        while True:
            ticks.append(1)
            time.sleep(0.001)

    threading.Thread(target=tick, daemon=True).start()
    met: list[str] = []

    def meet() -> None:
        met.append(client.call(None, "compute", message("meet"), timeout=30))

    callers = [threading.Thread(target=meet) for _ in range(20)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    print(set(met), len(met), len(ticks) > 1)
    print(list(client.multicall(None, "compute", message("count", n=100))) == list(range(100)))
    try:
        client.call(None, "nobody", message("echo"), timeout=0.3)
    except CallTimeout:
        print("timeout", client.process.connection.lost_wakeups)
    client.cast(None, "compute", message("echo", value=1), confirm=True)
    service.stop()
    client.close()


def forks() -> None:
    """The copies of its green threads in children that it has forked take nothing from it."""
    service = threads.Service("compute", Endpoint(), router=URL, host="h", concurrency=20)
    service.start()
    client = threads.Client(URL)
    print(client.call(None, "compute", message("echo", value=1), timeout=20))
    end, keep = os.pipe()
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            os.close(keep)
            if KIND == "eventlet":
                eventlet.hubs.use_hub()  # the parent's would be shared
            while not select.select([end], [], [], 0.01)[0]:
                pass  # their green threads run meanwhile
            os._exit(0)
        children.append(child)
    print({client.call(None, "compute", message("echo", value=1), timeout=20) for _ in range(300)})
    os.close(keep)
    print([os.waitpid(child, 0)[1] for child in children])
    service.stop()
    client.close()


{"later": patched_later, "logs": logs, "forks": forks}.get(SCENARIO, green)()
