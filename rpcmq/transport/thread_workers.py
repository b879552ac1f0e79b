"""Threads that run handlers, one after the other; each goes on with the next one while there is one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar

from rpcmq.transport.thread_loop import print_failure
from rpcmq.transport.thread_parking import Parking

__all__ = ["ThreadWorkers"]

T = TypeVar("T")

#: Seconds after which a thread that has nothing to do ends.
_IDLE = 30.0


class _Worker(Generic[T]):
    __slots__ = ("item", "parking")

    def __init__(self, parking: Parking) -> None:
        self.parking = parking
        self.item: T | None = None


class ThreadWorkers(Generic[T]):
    """Runs ``handle(item)`` in one of at most ``most`` threads, which holds the monitor but where it waits.

    Args:
        spawn: runs a function in a thread of its own, which holds the monitor.
        new_parking: makes a place to wait.
    """

    def __init__(
        self,
        handle: Callable[[T], None],
        most: int,
        spawn: Callable[..., None],
        new_parking: Callable[[], Parking],
    ) -> None:
        self._handle = handle
        self._most = most
        self._spawn = spawn
        self._new_parking = new_parking
        self._idle: list[_Worker[T]] = []
        self._waiting: deque[T] = deque()
        self._count = 0
        self._closed = False

    def start(self, item: T) -> None:
        """See :meth:`rpcmq.transport.shell.Workers.start`."""
        if self._idle:
            worker = self._idle.pop()
            worker.item = item
            worker.parking.resume()
            return
        self._waiting.append(item)
        if self._count < self._most:
            self._begin(self._waiting.popleft())

    def _begin(self, item: T) -> None:
        try:
            self._spawn(self._work, item)
        except RuntimeError:
            # The system has no thread left. Those that there are go on with what waits.
            if self._count == 0:
                raise
            self._waiting.appendleft(item)
        else:
            self._count += 1

    def close(self) -> None:
        """End the threads that have nothing to do, and each of the others once it has nothing to do."""
        self._closed = True
        idle, self._idle = self._idle, []
        for worker in idle:
            worker.parking.resume()

    def _work(self, item: T) -> None:
        worker: _Worker[T] = _Worker(self._new_parking())
        next_item: T | None = item
        try:
            while next_item is not None:
                try:
                    Context().run(self._handle, next_item)
                except BaseException as error:
                    print_failure(self._handle, error)
                next_item = None  # not kept alive while this waits
                next_item = self._waiting.popleft() if self._waiting else self._next_item(worker)
        finally:
            self._count -= 1

    def _next_item(self, worker: _Worker[T]) -> T | None:
        if self._closed:
            return None
        self._idle.append(worker)
        worker.parking.park(_IDLE)
        if worker in self._idle:
            self._idle.remove(worker)
        item, worker.item = worker.item, None
        return item
