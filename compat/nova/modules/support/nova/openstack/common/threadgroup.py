"""Green threads and timers that are stopped together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gevent
from gevent.pool import Pool

from nova.openstack.common import loopingcall


class ThreadGroup:
    """Green threads and timers that are stopped together."""

    def __init__(self, thread_pool_size: int = 10) -> None:
        self.pool = Pool(thread_pool_size)
        self.timers: list[Any] = []

    @property
    def threads(self) -> list[Any]:
        """Green threads that have not ended."""
        return list(self.pool)

    def add_timer(
        self, interval: float, callback: Callable[..., Any], initial_delay: float | None = None, *args: Any, **kw: Any
    ) -> Any:
        """Call it every ``interval`` seconds."""
        timer = loopingcall.FixedIntervalLoopingCall(callback, *args, **kw)
        self.timers.append(timer.start(interval, initial_delay))
        return timer

    def add_dynamic_timer(
        self,
        callback: Callable[..., Any],
        initial_delay: float | None = None,
        periodic_interval_max: float | None = None,
        *args: Any,
        **kw: Any,
    ) -> Any:
        """Call it when it said it wants to be."""
        timer = loopingcall.DynamicLoopingCall(callback, *args, **kw)
        self.timers.append(timer.start(initial_delay, periodic_interval_max))
        return timer

    def add_thread(self, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Run it in a green thread of its own."""
        return self.pool.spawn(callback, *args, **kwargs)

    def stop(self) -> None:
        """Stop the timers and kill the threads, but not the one that asks."""
        for timer in self.timers:
            timer.stop()
        self.timers = []
        for thread in self.threads:
            if thread is not gevent.getcurrent():
                thread.kill()

    def wait(self) -> None:
        """Wait until all have ended."""
        for timer in self.timers:
            timer.wait()
        current = gevent.getcurrent()
        gevent.joinall([thread for thread in self.threads if thread is not current])
