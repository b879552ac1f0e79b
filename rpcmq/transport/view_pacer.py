"""Has a router make the views that were asked for in a small part of its time and of what it sends."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from rpcmq.core.router.router import Router

__all__ = ["ViewPacer"]

#: Views are made for so long at a time, and not again before so long has passed (seconds): a fifth of all time.
_WORK = 0.001
_PAUSE = 0.004
#: And no more of them are sent than so many bytes a second: what is sent to others waits behind them.
_BYTES_A_SECOND = 32 << 20


class ViewPacer:
    """Makes the views of ``router`` by a timer.

    Args:
        loop: of the hub.
        wake: called after each step: sends what was made.
    """

    def __init__(self, router: Router, loop: Any, wake: Callable[[], None]) -> None:
        self._router = router
        self._loop = loop
        self._wake = wake
        self._timer = loop.timer(_PAUSE)
        self._will_step = False
        self._stopped = False

    def start(self, pause: float = 0.0) -> None:
        """Take the next step after ``pause`` seconds at the earliest, unless one is due anyway."""
        if not self._will_step:
            self._will_step = True
            self._timer.close()
            self._timer = self._loop.timer(max(_PAUSE, pause))
            self._timer.start(self._step)

    def _step(self) -> None:
        self._will_step = False
        router, now = self._router, monotonic()
        end = now + _WORK
        sent = 0
        while not (self._stopped or sent) and router.queries.is_anybody_waiting and now < end:
            sent = router.make_views(now)
            now = monotonic()
        if sent and router.queries.is_anybody_waiting:
            self.start(sent / _BYTES_A_SECOND)
        self._wake()

    def stop(self) -> None:
        """Make no more views."""
        self._stopped = True
        self._timer.stop()
        self._timer.close()
