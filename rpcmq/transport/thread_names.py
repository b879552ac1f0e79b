"""Looks the host name of an endpoint up in a thread of its own."""

from __future__ import annotations

import _socket
from collections.abc import Callable

from rpcmq.transport.names import AFTER, host_of, why_unknown
from rpcmq.transport.originals import start_new_thread
from rpcmq.transport.shell import ClientShell, Handle

__all__ = ["ThreadNameCheck"]


class ThreadNameCheck:
    """Looks the host name in ``url`` up, unless it is closed within a quarter of a second.

    Args:
        shell: the loop.
        on_failure: called in the loop with a text that says why the name does not resolve.
    """

    def __init__(self, shell: ClientShell, url: str, on_failure: Callable[[str], object]) -> None:
        self._shell = shell
        self._on_failure = on_failure
        self._closed = False
        self._timer: Handle | None = None
        found = host_of(url)
        if found is not None:
            self._timer = shell.call_later(AFTER, lambda: start_new_thread(self._look_up, found))

    def stop(self) -> None:
        """See :meth:`close`."""
        self.close()

    def close(self) -> None:
        """Say nothing of it."""
        self._closed = True
        if self._timer is not None:
            self._timer.stop()

    def _look_up(self, host: str, port: int) -> None:
        # Not the one of the module socket, which may be patched: this thread has no loop of theirs.
        problem = why_unknown(_socket.getaddrinfo, host, port)
        if problem:
            self._shell.call_from_any_thread(self._report, problem)

    def _report(self, problem: str) -> None:
        if not self._closed:
            self._on_failure(problem)
