"""The end of a queue server whose router has died, and whose next life does not come."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic

import gevent

__all__ = ["watch_router"]

#: Interval of looks whether the router lives (seconds).
_LOOK = 0.2


def watch_router(parent: int, orphan_seconds: float, is_linked: Callable[[], bool]) -> float:
    """Return once the router that has started this process is gone, and nobody has taken its place.

    Args:
        parent: the pid of that router.
        orphan_seconds: for which a link to its next life is waited for.
        is_linked: whether there is one.

    Returns:
        The seconds without a router.
    """
    heard = monotonic()
    while True:
        gevent.sleep(_LOOK)
        now = monotonic()
        # A link whose router was killed may look well for a moment.
        if os.getppid() == parent or (orphan_seconds > 0 and is_linked()):
            heard = now
        elif now - heard >= orphan_seconds:
            return now - heard
