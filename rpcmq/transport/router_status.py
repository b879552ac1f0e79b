"""The state of a process's routers: for those who wait for it, and in words for errors and the log."""

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

#: Routers named in an error: a mesh may have a thousand.
_MOST_SHOWN = 20


class RouterStatus:
    """The routers of a process, as ``uplink`` and ``dialer`` see them.

    Attributes:
        ready: set while a router has welcomed this process, and for good when there is nothing to wait for.
        denied: why no router accepts our key any more, after one had welcomed us; empty while one may.
        on_denied: called with that, at each attempt to connect that finds it so.
        closing: whether this process has closed the connection.
    """

    __slots__ = (
        "_about_keys", "_deniers", "_dialer", "_refused", "_restarting", "_silent", "_uplink", "_welcomed_at",
        "closing", "denied", "on_denied", "ready",
    )  # fmt: skip

    def __init__(self, uplink: Uplink, dialer: Dialer, shell: Shell) -> None:
        self._uplink = uplink
        self._dialer = dialer
        self.ready = shell.event()
        self.closing = False
        self.denied = ""
        self.on_denied: Callable[[str], None] = lambda text: None
        # By url, the text of a router's last refusal, which it repeats at each attempt; whether the last one that
        # refused us is shutting down; and the urls of those that do not accept our key.
        self._refused: dict[str, str] = {}
        self._restarting = False
        self._deniers: set[str] = set()
        # Urls of those with which the last handshake has failed.
        self._about_keys: set[str] = set()
        self._welcomed_at = ""
        self._silent = False

    # --- what the connection tells -----------------------------------------------------------

    def welcomed(self) -> None:
        """A router has welcomed this process. To be called before the dialer forgets why the last one was left."""
        before, self._welcomed_at = self._welcomed_at, self._dialer.url
        if before and before != self._dialer.url:
            why = dict(self._dialer.problems).get(before, "it is not in the mesh any more")
            log.warning("now at the router %s; left %s: %s", self._dialer.url, before, why)
        self.denied = ""
        self._refused.clear()
        self._deniers.clear()
        self._about_keys.clear()
        self._restarting = False
        self.ready.set()

    def refused(self, reason: str, text: str) -> None:
        """The router has refused this process."""
        url = self._dialer.url
        if text != self._refused.get(url):
            self._refused[url] = text
            log.warning("router %s: %s", url, text)
        self._restarting = reason == "draining"

    def note_handshake(self, url: str, is_about_keys: bool) -> None:
        """The router at ``url`` has not welcomed this process, because of keys or for another reason."""
        if is_about_keys:
            self._about_keys.add(url)
        else:
            self._about_keys.discard(url)

    def deny(self, url: str, problem: str) -> None:
        """Report a key that the router at ``url`` rejects.

        It is final when all routers have done so since the last welcome. A key accepted before is retried forever: it
        may be authorized again. Each further rejection is told as well: a verb may have found the connection open just
        before the first one, and have sent its message after it.
        """
        self._deniers.add(url)
        if self._uplink.origin and len(self._deniers) == len(self._dialer.problems):
            if not self.denied:
                log.error("router %s: %s", url, problem)
            self.denied = problem
            self.on_denied(problem)

    def note_silence(self, now: float) -> None:
        """Log that the router has become silent, or answers again."""
        silent = self._uplink.silent_seconds(now)
        if silent and not self._silent:
            text = "the router %s has been silent for %.1f s; the connection is given up after %g s"
            log.warning(text, self._dialer.url, silent, self._uplink.lost_seconds)
        elif self._silent and not silent and self._uplink.ready:
            log.warning("the router %s answers again", self._dialer.url)
        self._silent = bool(silent)

    # --- for those who wait ------------------------------------------------------------------

    def wait_ready(self, timeout: float | None, restart_timeout: float) -> None:
        """See :meth:`rpcmq.transport.connection.Connection.wait_ready`."""
        ready = self.ready
        if not ready.is_set():
            ready.wait(timeout)
        if timeout is not None and (longer := self.seconds_to_restart(timeout, restart_timeout)):
            ready.wait(longer)
            timeout = restart_timeout
        self.check_ready(timeout)

    def seconds_to_restart(self, timeout: float, restart_timeout: float) -> float:
        """Return how many seconds more to wait after ``timeout``, for a router that is shutting down."""
        return max(0.0, restart_timeout - timeout) if self._restarting and not self.ready.is_set() else 0.0

    def check_ready(self, timeout: float | None) -> None:
        """Raise unless a router has welcomed us, after ``timeout`` (seconds).

        Raises:
            RouterUnreachable, IdentityTaken, UsageError: see :meth:`rpcmq.transport.connection.Connection.wait_ready`.
        """
        self._check_not_ended()
        if not self.ready.is_set():
            seconds = round(timeout or 0.0, 2)
            routers = self._dialer.problems
            which = "no router" if len(routers) > 1 else f"router {routers[0][0]} not"
            error = RouterUnreachable(f"{which} reachable within {seconds:g} s: {self.reason}")
            error.is_about_keys = self._about_keys.issuperset(url for url, _ in routers)
            raise error

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
        routers = self._dialer.problems
        if len(routers) == 1:
            return self._dialer.problem or "no answer"
        shown = "; ".join(f"{url}: {problem or 'no answer'}" for url, problem in routers[:_MOST_SHOWN])
        more = len(routers) - _MOST_SHOWN
        return shown if more <= 0 else f"{shown}; and {more} more"

    @property
    def condition(self) -> str:
        """The state of the connection to the router, as a clause."""
        if not self._uplink.ready:
            return f"the router is not connected ({self.reason})"
        now = monotonic()
        if self._uplink.silent_seconds(now):
            return self.reason
        return f"the router is connected, and was last heard {now - self._uplink.heard:.1f} s ago"
