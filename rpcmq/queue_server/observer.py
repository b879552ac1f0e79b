"""Looks at all queues each second: for the figures that the router shows, and the alarm of those that stand still."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import gevent
from gevent.pool import Pool

from rpcmq.queue_server.watch import Watch

__all__ = ["Observer"]

#: Pause between two looks (seconds), and the part of the time that they may take.
_PAUSE, _PART = 1.0, 0.05
#: Queues whose workers are asked at a time.
_AT_ONCE = 16


class Observer:
    """Looks at ``watches``, by the name of the queue, until :meth:`stop`.

    Attributes:
        rows: the figures of each queue, as they were seen last.
    """

    def __init__(self, watches: Mapping[str, Watch]) -> None:
        self._watches = watches
        self.rows: dict[str, dict[str, Any]] = {}
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            begun = monotonic()
            self.look()
            gevent.sleep(max(_PAUSE, (monotonic() - begun) / _PART))

    def look(self) -> dict[str, dict[str, Any]]:
        """Look at each queue now; return their rows."""
        watches = dict(self._watches)
        rows = Pool(_AT_ONCE).map(lambda watch: watch.observe(monotonic()), watches.values())
        self.rows = dict(sorted(zip(watches, rows, strict=True)))
        return self.rows

    def stop(self) -> None:
        """Look no more."""
        self._greenlet.kill()
