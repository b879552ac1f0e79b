"""Pools of green threads."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from greenlet import getcurrent, greenlet

from . import event, greenthread, queue, semaphore

__all__ = ["GreenPile", "GreenPool"]


class GreenPool:
    """At most ``size`` green threads at once; who spawns one more waits.

    A green thread of the pool that spawns into it while it is full runs the function itself, so that it can't
    wait for its own end.
    """

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.coroutines_running: set[greenlet] = set()
        self.sem = semaphore.Semaphore(size)
        self.no_coros_running = event.Event()

    def resize(self, new_size: int) -> None:
        """Change the size; those too many run to their end."""
        delta = new_size - self.size
        self.size = new_size
        self.sem.counter += delta
        self.sem._wake_soon()

    def running(self) -> int:
        """Give how many run."""
        return len(self.coroutines_running)

    def free(self) -> int:
        """Give how many can be spawned without waiting."""
        return self.sem.counter

    def waiting(self) -> int:
        """Give how many wait to spawn."""
        return max(0, -self.sem.balance)

    def spawn(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> greenthread.GreenThread:
        """Call the function in a green thread of the pool, which is given back."""
        current = getcurrent()
        if self.sem.locked() and current in self.coroutines_running:
            inline = greenthread.GreenThread(current)
            inline.main(function, args, kwargs)
            return inline
        self.sem.acquire()
        thread = greenthread.spawn(function, *args, **kwargs)
        self._add(thread)
        thread.link(self._spawn_done)
        return thread

    def spawn_n(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Call the function in a bare greenlet of the pool, for which nobody can wait but ``waitall``."""
        if self.sem.locked() and getcurrent() in self.coroutines_running:
            greenthread._guarded(lambda: function(*args, **kwargs))
            return
        self.sem.acquire()
        # A GreenThread too, though nobody sees it: its place must come back even if it is killed unbegun.
        thread = greenthread.spawn(function, *args, **kwargs)
        self._add(thread)
        thread.link(self._spawn_done)

    def _add(self, thread: greenlet) -> None:
        if not self.coroutines_running:
            self.no_coros_running = event.Event()
        self.coroutines_running.add(thread)

    def _spawn_done(self, thread: greenlet) -> None:
        self.sem.release()
        self.coroutines_running.discard(thread)
        if not self.coroutines_running and not self.no_coros_running.ready():
            self.no_coros_running.send(None)

    def waitall(self) -> None:
        """Wait until none runs. Raises AssertionError in a green thread of the pool, which would wait for ever."""
        assert getcurrent() not in self.coroutines_running, (
            "Calling waitall() from within one of the GreenPool's greenthreads will deadlock."
        )
        while self.running() or (self.sem.counter > 0 and self.sem.balance < self.sem.counter):
            if self.running():
                self.no_coros_running.wait()
            else:
                # One that waited for its turn is about to spawn.
                greenthread.sleep()

    def starmap(self, function: Callable[..., Any] | None, iterable: Iterable[Any]) -> GreenMap:
        """Call the function with the arguments in each item; iterate over the results in their order."""
        results = GreenMap(self)
        greenthread.spawn_n(results._spawn_all, _tuple if function is None else function, iterable)
        return results

    def imap(self, function: Callable[..., Any] | None, *iterables: Iterable[Any]) -> GreenMap:
        """Like ``map``: call the function with an item of each iterable; iterate over the results in order."""
        return self.starmap(function, zip(*iterables, strict=False))


def _tuple(*args: Any) -> tuple[Any, ...]:
    return args


class GreenPile:
    """Green threads, of a pool of one's own (a size is given) or of another, and their results in order."""

    def __init__(self, size_or_pool: int | GreenPool = 1000) -> None:
        self.pool = size_or_pool if isinstance(size_or_pool, GreenPool) else GreenPool(size_or_pool)
        self.waiters: queue.LightQueue = queue.LightQueue()
        #: Spawned, and not yet given out by ``next``.
        self.counter = 0
        self.used = False

    def spawn(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        """Call the function in a green thread of the pool; ``next`` gives what it returns."""
        self.used = True
        self.counter += 1
        try:
            thread = self.pool.spawn(function, *args, **kwargs)
        except BaseException:
            self.counter -= 1
            raise
        self.waiters.put(thread)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Give the next result, in the order of spawning, or raise the exception there instead."""
        if self.counter == 0 and self.used:
            raise StopIteration
        try:
            return self.waiters.get().wait()
        finally:
            self.counter -= 1

    #: Its name in Python 2.
    next = __next__


class GreenMap(Iterator[Any]):
    """The results of ``imap`` and ``starmap``; at most as many wait to be taken as the pool is large."""

    def __init__(self, pool: GreenPool) -> None:
        self.pool = pool
        self.waiters: queue.LightQueue = queue.LightQueue(max(pool.size, 1))
        self._ended = False

    def _spawn_all(self, function: Callable[..., Any], iterable: Iterable[Any]) -> None:
        try:
            for args in iterable:
                self.waiters.put(self.pool.spawn(function, *args))
        except Exception:
            # What reads the iterable fails in the place where the results are read, not here unseen.
            broken = event.Event()
            broken.send_exception(*sys.exc_info())
            self.waiters.put(broken)
        self.waiters.put(None)

    def __next__(self) -> Any:
        thread = None if self._ended else self.waiters.get()
        if thread is None:
            self._ended = True
            raise StopIteration
        return thread.wait()

    #: Its name in Python 2.
    next = __next__
