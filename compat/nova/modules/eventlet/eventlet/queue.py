"""Queues between green threads.

A ``maxsize`` of None (or below zero) means no limit, and 0 means that ``put`` waits until someone takes the item.
"""

from __future__ import annotations

import contextlib
import heapq
import sys
from collections import deque
from collections.abc import Iterator
from queue import Empty, Full
from typing import Any

from gevent import Timeout, get_hub
from gevent.hub import Waiter

from .event import Event

__all__ = ["Empty", "Full", "LifoQueue", "LightQueue", "PriorityQueue", "Queue"]


class LightQueue:
    """A queue without ``join`` and ``task_done``."""

    def __init__(self, maxsize: int | None = None) -> None:
        self.maxsize = None if maxsize is None or maxsize < 0 else maxsize
        #: The waiters in ``get``, and those in ``put`` with their items; first come, first served.
        self.getters: deque[Waiter[None]] = deque()
        self.putters: deque[tuple[Waiter[None], Any]] = deque()
        self._scheduled = False
        self._init(maxsize)

    # What a subclass may replace: how items are kept.

    def _init(self, maxsize: int | None) -> None:
        self.queue: Any = deque()

    def _get(self) -> Any:
        return self.queue.popleft()

    def _put(self, item: Any) -> None:
        self.queue.append(item)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x} {self}>"

    def __str__(self) -> str:
        return (
            f"maxsize={self.maxsize} queue={list(self.queue)!r}"
            f" getters[{len(self.getters)}] putters[{len(self.putters)}]"
        )

    def __bool__(self) -> bool:
        return True

    def qsize(self) -> int:
        """Give the number of items."""
        return len(self.queue)

    def empty(self) -> bool:
        """Tell whether there is no item."""
        return not self.qsize()

    def full(self) -> bool:
        """Tell whether ``put`` would wait: always with a maxsize of 0, though someone may be waiting to get."""
        return self.maxsize is not None and self.qsize() >= self.maxsize

    def putting(self) -> int:
        """Give the number of those who wait in ``put``."""
        return len(self.putters)

    def getting(self) -> int:
        """Give the number of those who wait in ``get``."""
        return len(self.getters)

    def resize(self, size: int | None) -> None:
        """Change ``maxsize``; a smaller one drops nothing."""
        self.maxsize = None if size is None or size < 0 else size
        self._match_soon()

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an item, waiting for room if need be. Raises Full if it does not wait, or after ``timeout`` seconds."""
        if not self.full() or (not block and self.maxsize == 0 and len(self.getters) > self.qsize()):
            self._put(item)
            self._match_soon()
            return
        if not block:
            raise Full
        waiter: Waiter[Any] = Waiter()
        place = waiter, item
        self.putters.append(place)
        self._match_soon()
        limit = Timeout.start_new(timeout, Full)
        try:
            waiter.get()
        except Full:
            # Taken in the last moment is taken.
            if place in self.putters:
                raise
        finally:
            limit.close()
            with contextlib.suppress(ValueError):  # its item was taken
                self.putters.remove(place)

    def put_nowait(self, item: Any) -> None:
        """Add an item if there is room, else raise Full."""
        self.put(item, False)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take an item, waiting for one if need be. Raises Empty if it does not wait, or after ``timeout`` seconds."""
        if self.qsize():
            item = self._get()
            self._match_soon()
            return item
        if not block:
            if not self.putters:
                raise Empty
            putter, item = self.putters.popleft()
            self._put(item)
            get_hub().loop.run_callback(putter.switch, None)
            return self._get()
        waiter: Waiter[Any] = Waiter()
        self.getters.append(waiter)
        self._match_soon()
        limit = Timeout.start_new(timeout, Empty)
        try:
            # Someone who did not wait may have been faster.
            while not self.qsize():
                waiter.get()
                waiter.clear()
                if not self.qsize():
                    self.getters.appendleft(waiter)
            return self._get()
        finally:
            limit.close()
            with contextlib.suppress(ValueError):  # whoever woke it has taken it out
                self.getters.remove(waiter)

    def get_nowait(self) -> Any:
        """Take an item if there is one, else raise Empty."""
        return self.get(False)

    def _match_soon(self) -> None:
        if not self._scheduled and (self.getters or self.putters):
            self._scheduled = True
            get_hub().loop.run_callback(self._match)

    def _match(self) -> None:
        """In the hub: bring items, those who put and those who get together, until nothing goes on."""
        self._scheduled = False
        while True:
            if self.putters and (not self.full() or (self.maxsize == 0 and self.getters and not self.qsize())):
                putter, item = self.putters.popleft()
                try:
                    self._put(item)
                except Exception:
                    putter.throw(*sys.exc_info())
                    continue
                if self.getters:
                    self.getters.popleft().switch(None)
                putter.switch(None)
            elif self.getters and self.qsize():
                self.getters.popleft().switch(None)
            else:
                return


class Queue(LightQueue):
    """A queue whose items are tasks: ``join`` waits until ``task_done`` was called for each."""

    def __init__(self, maxsize: int | None = None) -> None:
        self.unfinished_tasks = 0
        self._cond = Event()
        super().__init__(maxsize)

    def __str__(self) -> str:
        return f"{super().__str__()} tasks={self.unfinished_tasks}"

    def _put(self, item: Any) -> None:
        super()._put(item)
        self._add_task()

    def _add_task(self) -> None:
        self.unfinished_tasks += 1
        if self._cond.ready():
            self._cond.reset()

    def task_done(self) -> None:
        """Say that the work on one item is done. Raises ValueError if there were not that many."""
        if self.unfinished_tasks <= 0:
            raise ValueError("task_done() called too many times")
        self.unfinished_tasks -= 1
        if self.unfinished_tasks == 0 and not self._cond.ready():
            self._cond.send(None)

    def join(self) -> None:
        """Wait until the work on all items is done."""
        if self.unfinished_tasks:
            self._cond.wait()

    def __iter__(self) -> Iterator[Any]:
        """Take items until one is the class StopIteration."""
        return iter(self.get, StopIteration)


class PriorityQueue(Queue):
    """Gives the smallest item first; they are often tuples (priority, data)."""

    def _init(self, maxsize: int | None) -> None:
        self.queue = []

    def _put(self, item: Any) -> None:
        heapq.heappush(self.queue, item)
        self._add_task()

    def _get(self) -> Any:
        return heapq.heappop(self.queue)


class LifoQueue(Queue):
    """Gives the newest item first."""

    def _init(self, maxsize: int | None) -> None:
        self.queue = []

    def _get(self) -> Any:
        return self.queue.pop()
