"""Looks the host name of an endpoint up in a greenlet."""

from __future__ import annotations

from collections.abc import Callable

import gevent
from gevent.socket import getaddrinfo

from rpcmq.transport.names import AFTER, host_of, why_unknown

__all__ = ["GeventNameCheck"]


class GeventNameCheck:
    """Looks the host name in ``url`` up, unless it is closed within a quarter of a second.

    Args:
        on_failure: called in the hub with a text that says why the name does not resolve.
    """

    def __init__(self, url: str, on_failure: Callable[[str], object]) -> None:
        self._on_failure = on_failure
        self._greenlet: gevent.Greenlet[[str, int], None] | None = None
        found = host_of(url)
        if found is not None:
            self._greenlet = gevent.spawn_later(AFTER, self._look_up, *found)

    def stop(self) -> None:
        """See :meth:`close`."""
        self.close()

    def close(self) -> None:
        """Say nothing of it."""
        if self._greenlet is not None and self._greenlet is not gevent.getcurrent():
            self._greenlet.kill(block=False)
        self._greenlet = None

    def _look_up(self, host: str, port: int) -> None:
        problem = why_unknown(getaddrinfo, host, port)
        if problem and self._greenlet is not None:
            self._on_failure(problem)
