"""Waiting in line, for what an event and a semaphore have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, MutableSequence
from typing import Any

from gevent import Timeout
from gevent.hub import Waiter

__all__ = ["wait_while"]


def wait_while(condition: Callable[[], bool], waiters: MutableSequence[Waiter[None]], timeout: float | None) -> bool:
    """Wait in the line of ``waiters``, each woken by a switch, for as long as ``condition`` holds after that.

    Args:
        timeout: seconds; None: without end.

    Returns:
        Whether it holds no more; False: the time is over.
    """
    waiter: Waiter[Any] = Waiter()
    waiters.append(waiter)
    limit = Timeout.start_new(timeout)
    try:
        while condition():
            waiter.get()
            waiter.clear()
    except Timeout as expired:
        if expired is not limit:
            raise
        return False
    finally:
        limit.close()
        with contextlib.suppress(ValueError):  # whoever woke it has taken it out
            waiters.remove(waiter)
    return True
