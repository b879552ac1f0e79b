"""Calling a function again and again in a green thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult

LOG = logging.getLogger(__name__)


class LoopingCallDone(Exception):
    """Raised by the function to end its loop.

    Args:
        retvalue: what ``wait`` returns then.
    """

    def __init__(self, retvalue: Any = True) -> None:
        super().__init__(retvalue)
        self.retvalue = retvalue


class LoopingCallBase:
    """A loop in a green thread of its own: ``start``, ``stop``, ``wait``."""

    def __init__(self, f: Callable[..., Any] | None = None, *args: Any, **kw: Any) -> None:
        self.f = f
        self.args = args
        self.kw = kw
        self._running = False
        self._greenlet: gevent.Greenlet[..., Any] | None = None
        self.done: AsyncResult[Any] = AsyncResult()

    def stop(self) -> None:
        """Let no further run begin; one that waits for its turn ends now."""
        self._running = False
        greenlet = self._greenlet
        if greenlet is not None and greenlet is not gevent.getcurrent() and self._pausing:
            greenlet.kill(block=False)
            self._finish(True)

    def wait(self) -> Any:
        """Wait for the end of the loop; the value of ``LoopingCallDone``, else True. Raises what the function did."""
        return self.done.get()

    _pausing = False

    def _start(self, pauses: Callable[[float, Any], float], initial_delay: float | None) -> Any:
        self._running = True
        self.done = AsyncResult()
        self._greenlet = gevent.spawn(self._loop, pauses, initial_delay)
        return self

    def _loop(self, pauses: Callable[[float, Any], float], initial_delay: float | None) -> None:
        assert self.f is not None
        self._pause(initial_delay or 0)
        try:
            while self._goes_on():
                start = time.monotonic()
                result = self.f(*self.args, **self.kw)
                pause = pauses(time.monotonic() - start, result)
                if self._goes_on():
                    self._pause(max(0.0, pause))
        except LoopingCallDone as done:
            self._running = False
            self._finish(done.retvalue)
        except Exception as error:
            LOG.exception("in looping call")
            self._running = False
            if not self.done.ready():
                self.done.set_exception(error)
        else:
            self._finish(True)

    def _goes_on(self) -> bool:
        return self._running

    def _pause(self, seconds: float) -> None:
        self._pausing = True
        try:
            gevent.sleep(seconds)
        finally:
            self._pausing = False

    def _finish(self, value: Any) -> None:
        if not self.done.ready():
            self.done.set(value)


class FixedIntervalLoopingCall(LoopingCallBase):
    """Calls ``f(*args, **kw)`` every so many seconds."""

    def start(self, interval: float, initial_delay: float | None = None, now: bool | None = None) -> Any:
        """Start; what is returned can be waited for.

        Args:
            interval: seconds from the start of a run to that of the next; a run that takes longer delays it.
            initial_delay: seconds before the first run.
            now: Diablo: whether the first run is not delayed by ``interval``.
        """

        def pause(took: float, _: Any) -> float:
            if took > interval:
                LOG.warning("task run outlasted interval by %s sec", took - interval)
            return interval - took

        return self._start(pause, interval if now is False and initial_delay is None else initial_delay)


class DynamicLoopingCall(LoopingCallBase):
    """Calls ``f(*args, **kw)``, which returns the seconds until its next run (None: the most)."""

    def start(self, initial_delay: float | None = None, periodic_interval_max: float | None = None) -> Any:
        """Start; what is returned can be waited for."""

        def pause(_: float, idle: Any) -> float:
            if idle is None:
                idle = periodic_interval_max or 0
            return float(idle if periodic_interval_max is None else min(idle, periodic_interval_max))

        return self._start(pause, initial_delay)


class LoopingCall(FixedIntervalLoopingCall):
    """The name of :class:`FixedIntervalLoopingCall` before Grizzly."""
