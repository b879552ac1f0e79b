"""The number of workers of a server of oslo.messaging, which may be another one than its configuration says."""

from __future__ import annotations

from typing import Any

from oslo_messaging.server import MessageHandlingServer

__all__ = ["workers_of"]


def workers_of(callback: Any) -> int | None:
    """Return how many messages the server whose method ``callback`` is runs at once.

    A driver is not told: a server makes its executor, with ``override_pool_size`` if it was given one, and then has
    its listener call its method. So the executor is asked.

    Returns:
        None where ``callback`` is not of such a server, or its executor does not say.
    """
    server = getattr(callback, "__self__", None)
    if not isinstance(server, MessageHandlingServer):
        return None
    # Both executors of futurist have it, that of threads and that of green threads.
    workers = getattr(getattr(server, "_work_executor", None), "_max_workers", None)
    return workers if isinstance(workers, int) and workers > 0 else None
