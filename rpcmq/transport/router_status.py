"""The state of a process's router: for those who wait for it, and in words for errors and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import NoReturn

from rpcmq.core.process.dialer import Dialer
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import AccessDenied, IdentityTaken, RouterUnreachable, UsageError
from rpcmq.transport.shell import Shell

__all__ = ["RouterStatus"]

log = logging.getLogger("rpcmq.client")


class RouterStatus:
    """The router at ``url``, as ``uplink`` and ``dialer`` see it.

    Attributes:
        ready: set while the router has welcomed this process, and for good when there is nothing to wait for.
        denied: why the router, which had welcomed us, does not accept our key any more; empty while it does.
        on_denied: called with that, once.
        closing: whether this process has closed the connection.
    """

    __slots__ = (
        "_dialer", "_refused", "_restarting", "_silent", "_uplink", "_url", "closing", "denied", "on_denied", "ready",
    )  # fmt: skip

    def __init__(self, url: str, uplink: Uplink, dialer: Dialer, shell: Shell) -> None:
        self._url = url
        self._uplink = uplink
        self._dialer = dialer
        self.ready = shell.event()
        self.closing = False
        self.denied = ""
        self.on_denied: Callable[[str], None] = lambda text: None
        # The text of its last refusal, which it repeats at each attempt; and whether it is shutting down.
        self._refused = ""
        self._restarting = False
        self._silent = False

    # --- what the connection tells -----------------------------------------------------------

    def welcomed(self) -> None:
        """The router has welcomed this process."""
        self.denied = self._refused = ""
        self._restarting = False
        self.ready.set()

    def refused(self, reason: str, text: str) -> None:
        """The router has refused this process."""
        if text != self._refused:
            self._refused = text
            log.warning("router %s: %s", self._url, text)
        self._restarting = reason == "draining"

    def deny(self, problem: str) -> None:
        """Report a rejected key. A key accepted before is retried forever: it may be authorized again."""
        if self._uplink.origin and not self.denied:
            self.denied = problem
            self.on_denied(problem)

    def note_silence(self, now: float) -> None:
        """Log that the router has become silent, or answers again."""
        silent = self._uplink.silent_seconds(now)
        if silent and not self._silent:
            text = "the router %s has been silent for %.1f s; the connection is given up after %g s"
            log.warning(text, self._url, silent, self._uplink.lost_seconds)
        elif self._silent and not silent and self._uplink.ready:
            log.warning("the router %s answers again", self._url)
        self._silent = bool(silent)

    # --- for those who wait ------------------------------------------------------------------

    def wait_ready(self, timeout: float | None, restart_timeout: float) -> None:
        """See :meth:`rpcmq.transport.connection.Connection.wait_ready`."""
        ready = self.ready
        if not ready.is_set():
            ready.wait(timeout)
        if timeout is not None and self._restarting and restart_timeout > timeout and not ready.is_set():
            ready.wait(restart_timeout - timeout)
            timeout = restart_timeout
        self._check_not_ended()
        if not ready.is_set():
            seconds = round(timeout or 0.0, 2)
            raise RouterUnreachable(f"router {self._url} not reachable within {seconds:g} s: {self.reason}")

    def raise_closed(self) -> NoReturn:
        """Raise what :meth:`rpcmq.transport.connection.Connection.check_open` raises."""
        self._check_not_ended()
        raise AccessDenied(self.denied)

    def _check_not_ended(self) -> None:
        if self._dialer.identity_taken:
            raise IdentityTaken(self._dialer.identity_taken)
        if self.closing:
            raise UsageError("this client is closed")

    # --- in words ----------------------------------------------------------------------------

    @property
    def reason(self) -> str:
        """The known reason why there is no connection, or no answer on it."""
        if silent := self._uplink.silent_seconds(monotonic()):
            return f"the router has been silent for {silent:.1f} s"
        return self._dialer.problem or "no answer"

    @property
    def condition(self) -> str:
        """The state of the connection to the router, as a clause."""
        if not self._uplink.ready:
            return f"the router is not connected ({self.reason})"
        now = monotonic()
        if self._uplink.silent_seconds(now):
            return self.reason
        return f"the router is connected, and was last heard {now - self._uplink.heard:.1f} s ago"
