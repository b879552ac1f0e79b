"""Greenlets that run handlers, one after the other.

A new greenlet costs 8.5 us on CPython 3.11, most of it for the interpreter's stack chunk that is
mapped and unmapped; to go on with one that waits costs 0.6 us. So a greenlet whose handler never
waited is kept for the next request. One that did wait may be known to others still, such as a
``gevent.Timeout`` that was not closed and would hit the next request, so it ends with its handler.

Each request runs in a fresh ``contextvars`` context; values in a ``gevent.local`` stay with the
greenlet, as they stay with the thread in a pool of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar

from gevent import get_hub
from greenlet import greenlet

__all__ = ["GeventWorkers"]

T = TypeVar("T")

#: Greenlets kept for later.
_IDLE = 256


class GeventWorkers(Generic[T]):
    """Runs ``handle(item)`` in a greenlet of its own for each item."""

    def __init__(self, handle: Callable[[T], None]) -> None:
        self._handle = handle
        self._idle: list[greenlet] = []
        #: The worker whose handler has not waited yet.
        self._fresh: greenlet | None = None
        self._hub = get_hub()
        self._most_idle = _IDLE
        #: The item for a worker that is being started.
        self._first_item: T | None = None

    def start(self, item: T) -> None:
        """Run the handler for ``item`` until it first waits. To be called in the hub."""
        if self._idle:
            self._fresh = worker = self._idle.pop()
            worker.switch(item)
        else:
            # Not as an argument: a greenlet keeps those for as long as it lives.
            self._first_item = item
            self._fresh = worker = greenlet(self._work, self._hub)
            worker.switch()
        self._fresh = None

    def close(self) -> None:
        """See :meth:`rpcmq.transport.shell.Workers.close`."""
        # The garbage collector does not see what a waiting greenlet refers to, such as these workers.
        self._most_idle = 0
        current = greenlet.getcurrent()
        for worker in self._idle[:]:
            worker.parent = current  # which goes on when it has ended
            worker.throw()

    def _work(self) -> None:
        item, self._first_item = self._first_item, None
        current = greenlet.getcurrent()
        wait = self._hub.switch
        while True:
            Context().run(self._handle, item)  # type: ignore[arg-type]
            item = None  # not kept alive while this waits
            if self._fresh is not current or len(self._idle) >= self._most_idle:
                return
            self._idle.append(current)
            try:
                item = wait()
            except BaseException:
                # A late exception for the previous handler: nobody is left to receive it.
                self._idle.remove(current)
                return
