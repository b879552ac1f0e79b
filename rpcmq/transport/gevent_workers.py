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

    def start(self, item: T) -> None:
        """Run the handler for ``item`` until it first waits. To be called in the hub."""
        self._fresh = worker = self._idle.pop() if self._idle else greenlet(self._work, self._hub)
        worker.switch(item)
        self._fresh = None

    def close(self) -> None:
        """See :meth:`rpcmq.transport.shell.Workers.close`: greenlets that nobody knows need no end."""

    def _work(self, item: T) -> None:
        current = greenlet.getcurrent()
        wait = self._hub.switch
        while True:
            Context().run(self._handle, item)
            if self._fresh is not current or len(self._idle) >= _IDLE:
                return
            self._idle.append(current)
            try:
                item = wait()
            except BaseException:
                # A late exception for the previous handler: nobody is left to receive it.
                self._idle.remove(current)
                return
