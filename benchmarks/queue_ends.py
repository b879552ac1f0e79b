"""A producer and a worker of rpcmq's own queues, each a process."""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent import get_hub
from gevent.lock import Semaphore

from benchmarks.children import commands, say
from benchmarks.queue_work import ARGUMENTS, ITEM, QUEUE, Outstanding, Worked, open_worked, take_worked
from benchmarks.workload import CONTEXT, Meter
from rpcmq import Client, Worker

__all__ = ["fill", "producer", "worker"]

_MESSAGE = ITEM["msg"]
#: Items of one ``put_many`` where a queue is filled.
_FILL = 1000


def producer(url: str, pipe: str, together: int) -> None:
    """Puts from greenlets, ``together`` items at a time."""
    client = Client(url, shell="gevent")
    messages = [_MESSAGE] * together

    def put() -> None:
        if together == 1:
            client.put(CONTEXT, QUEUE, _MESSAGE)
        else:
            client.put_many(CONTEXT, QUEUE, messages)

    file = open_worked(pipe)
    client.put(CONTEXT, QUEUE, _MESSAGE)  # opens the queue
    say("ready")
    while True:
        command = get_hub().threadpool.apply(commands().get)
        is_worked = command["is_worked"]
        meter = Meter(command["seconds"])
        putters = _Putters(put, together, Outstanding(meter, is_worked), command["width"])
        if is_worked:
            # What the queue was opened with has no part in it.
            _first_worked(file)
        putters.run(file)
        say(meter.result())


def _first_worked(file: int) -> None:
    get_hub().wait(get_hub().loop.io(file, 1))
    take_worked(file)


class _Putters:
    """Greenlets that put while there is room."""

    def __init__(self, put: Callable[[], None], together: int, outstanding: Outstanding, width: int) -> None:
        self._put = put
        self._together = together
        self._outstanding = outstanding
        self._width = width
        self._room = Semaphore(width)
        self._freed = 0
        self._goes_on = True

    def run(self, worked: int) -> None:
        watcher = get_hub().loop.io(worked, 1)
        watcher.start(self._take_worked, worked)
        try:
            gevent.joinall([gevent.spawn(self._run) for _ in range(self._width)], raise_error=True)
            while len(self._outstanding):
                gevent.sleep(0.001)
        finally:
            watcher.stop()
            watcher.close()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            if not self._goes_on:
                self._room.release()
                return
            for _ in range(self._together):
                self._outstanding.put()
            self._put()
            self._end(self._together, 0)

    def _take_worked(self, file: int) -> None:
        self._end(0, take_worked(file))

    def _end(self, confirmed: int, worked: int) -> None:
        before = len(self._outstanding)
        self._outstanding.confirm(confirmed)
        self._goes_on = self._outstanding.work(worked)
        self._freed += before - len(self._outstanding)
        while self._freed >= self._together:
            self._freed -= self._together
            self._room.release()


def fill(url: str, items: int, queue: str = QUEUE) -> None:
    """Put so many items."""
    with Client(url, shell="gevent") as client:
        for first in range(0, items, _FILL):
            client.put_many(CONTEXT, queue, [_MESSAGE] * min(_FILL, items - first))
    say("filled")


class _Billing:
    def __init__(self, pipe: str) -> None:
        self._worked = Worked(pipe)

    def charge(self, ctx: object, **arguments: object) -> None:
        assert arguments == ARGUMENTS
        self._worked.one()


def worker(url: str, pipe: str, width: int) -> None:
    """Works at so many items at once."""
    serving = Worker(QUEUE, _Billing(pipe), client=Client(url, shell="gevent"), concurrency=width)
    serving.start()
    say("ready")
    serving.wait()
