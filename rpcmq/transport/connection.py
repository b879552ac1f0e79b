"""A process's connection to one of its routers, on a ZeroMQ DEALER socket, as its owner sees it.

Messages move in its :mod:`wake loop <rpcmq.transport.wake_loop>`; :mod:`rpcmq.transport.reconnect` opens the socket
again and again, as the dialer decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from os import getpid
from random import Random
from socket import gethostname
from time import monotonic

import zmq

from rpcmq.core.process.dialer import Dialer, Phase
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import UsageError
from rpcmq.transport.curve import Curve
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.driven_engines import DrivenEngines, Engine
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.process_context import close_at_exit, forget_at_exit
from rpcmq.transport.reconnect import Reconnector
from rpcmq.transport.router_status import RouterStatus
from rpcmq.transport.shell import Shell
from rpcmq.transport.wake_failures import WakeFailures
from rpcmq.transport.wake_loop import WakeLoop

__all__ = ["Connection"]

log = logging.getLogger("rpcmq.client")

#: Interval of asking the router whether it has everything (seconds).
_HAND_OVER_POLL = 0.002
#: Least linger for the final messages (seconds).
_LAST_WORD = 0.1
#: Longest wait for somebody else to close a connection at exit (seconds).
_CLOSED_WITHIN = 5.0


class Connection:
    """Keeps ``uplink`` connected to one of the routers at ``urls``.

    Args:
        urls: the routers' endpoints. Processes begin with different ones, each with the same one for all connections.
        uplink: the engine of the link.
        engines: ticked with it.
        after_receive: called in the loop when something was received or has timed out; wakes those who wait.
        before_flush: called in the loop before what is queued is sent.
        shell: the loop that it lives in.
        reconnect_max_seconds: longest pause between attempts; jittered.
        connect_timeout: how long one attempt may take (seconds).
        curve: our keys and the router's; None: it has none.
        linger_seconds: how long :meth:`close` waits at most for the router to have what is queued.
        sends: singular noun for unawaited messages of ``engines``; for texts.

    Attributes:
        status: the state of its routers, for those who wait for it.
        schedule, send_now, send_soon, flush, receive, wake: those of its :class:`~rpcmq.transport.wake_loop.WakeLoop`.
        abandoned: this is the child of a fork, and the connection its parent's.
        ended: nothing is sent any more. Closed, it goes on until it has lingered.
    """

    __slots__ = (
        "__weakref__", "_dialed", "_dialer", "_engines", "_failures", "_gone", "_linger_seconds", "_loop",
        "_on_closed", "_reconnector", "_sends", "abandoned", "ended", "flush", "receive", "schedule", "send_now",
        "send_soon", "send_with", "shell", "status", "uplink", "wake",
    )  # fmt: skip

    def __init__(
        self,
        urls: Sequence[str],
        uplink: Uplink,
        engines: Sequence[Engine],
        after_receive: Callable[[], None],
        before_flush: Callable[[], None],
        shell: Shell,
        reconnect_max_seconds: float = 2.0,
        connect_timeout: float = 5.0,
        curve: Curve | None = None,
        linger_seconds: float = 1.0,
        sends: str = "cast",
    ) -> None:
        self.shell = shell
        self.uplink = uplink
        self.abandoned = self.ended = False
        self._on_closed: Callable[[], object] = lambda: None
        self._linger_seconds = linger_seconds
        self._sends = sends
        self._failures = failures = WakeFailures(shell, self)
        self._engines = driven = DrivenEngines(uplink, engines, failures.note)
        self._dialer = dialer = Dialer(uplink, urls, connect_timeout, reconnect_max_seconds, _first_router())
        self.status = status = RouterStatus(uplink, dialer, shell)
        self._dialed = dialed = DialedSocket(shell, curve)
        self._reconnector = reconnector = Reconnector(uplink, dialer, status, dialed)
        self._loop = loop = WakeLoop(shell, failures, uplink, driven, dialed, reconnector, after_receive, before_flush)
        reconnector.attach(loop)
        # Not methods of this class: each message is sent by way of one of them.
        self.schedule = loop.schedule
        self.send_now = loop.send_now
        self.send_with = loop.send_with
        self.send_soon = loop.send_soon
        self.flush = loop.flush
        self.receive = loop.receive
        self.wake = loop.wake
        self._gone = shell.event()
        uplink.on_error = failures.show
        close_at_exit(self)
        abandon_after_fork(self, shell)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        if self._dialer.phase is Phase.IDLE:
            self._loop.start()

    @property
    def url(self) -> str:
        """The url of the router that we are connected to, or dial next."""
        return self._dialer.url

    @property
    def fd(self) -> int | None:
        """The file descriptor that is readable when there may be something to receive; None between attempts."""
        socket = self._dialed.socket
        return None if socket is None else socket.fd

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._loop.lost_wakeups

    @property
    def reconnects(self) -> int:
        """The number of connections that have ended after the router had welcomed us."""
        return self._reconnector.reconnects

    @property
    def connected(self) -> bool:
        """Whether the router has welcomed us and the connection stands."""
        return self.uplink.ready

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.status.closing

    def wait_ready(self, timeout: float | None, restart_timeout: float = 0.0) -> None:
        """Wait until the router has welcomed us.

        Args:
            timeout: seconds; None waits for ever.
            restart_timeout: seconds to wait in all for a router that has said that it is shutting down.

        Raises:
            RouterUnreachable: it has not within that.
            IdentityTaken: another live process has our identity.
            UsageError: the connection is closed.
        """
        self.start()
        self.status.wait_ready(timeout, restart_timeout)

    @property
    def reason(self) -> str:
        """The known reason why there is no connection, or no answer on it."""
        return self.status.reason

    @property
    def condition(self) -> str:
        """The state of the connection to the router, as a clause."""
        return self.status.condition

    @property
    def of_this_thread(self) -> bool:
        """Whether the current OS thread is the one that the connection belongs to."""
        return self.shell.is_current

    def call_when_denied(self, function: Callable[[str], None]) -> None:
        """Have ``function`` called, with the reason, each time that the router no longer accepts our key."""
        self.status.on_denied = function

    def call_when_closed(self, function: Callable[[], object]) -> None:
        """Have ``function`` called once the verbs find this closed, while messages are still sent."""
        self._on_closed = function

    def check_thread(self) -> None:
        """Raise unless the current OS thread is the one that the connection belongs to.

        Raises:
            UsageError: it is not.
        """
        if not self.of_this_thread:
            raise UsageError("this connection belongs to another OS thread, and only that may use it")

    def check_open(self) -> None:
        """Raise unless messages can be sent.

        Raises:
            UsageError: the connection is closed.
            IdentityTaken: another live process has our identity.
            AccessDenied: the router had welcomed us, and does not accept our key any more.
        """
        status = self.status
        if status.closing or status.denied or self._dialer.identity_taken:
            status.raise_closed()

    @property
    def at_risk(self) -> int:
        """Casts and events that the router may not have; once this is closed, those that may be lost."""
        return self._engines.casts_at_risk

    def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye and close.

        Args:
            linger_seconds: how long to wait at most until the router has all that is queued; default: as the
                connection was made with. In the loop, which cannot wait, libzmq is given so long to send it.
        """
        if self.status.closing:
            return
        self.status.closing = True
        deadline = monotonic() + (self._linger_seconds if linger_seconds is None else linger_seconds)
        try:
            self._on_closed()
            if self._dialer.phase is not Phase.IDLE and self.shell.can_wait:
                self._wait_until_acknowledged(deadline)
        except BaseException:
            # The caller is to wait no longer; what is open is closed all the same.
            deadline = 0.0
            raise
        finally:
            self._end(deadline)

    def _end(self, deadline: float) -> None:
        is_idle = self._dialer.phase is Phase.IDLE
        if not is_idle and self.shell.can_wait and (count := self._engines.casts_at_risk):
            what = f"{count} {self._sends}{'s' * (count > 1)}"
            text = "closed before the router %s acknowledged %s, which may be lost; %s"
            log.error(text, self.url, what, self.condition)
        self.ended = True
        self._loop.stop()
        is_linked = self.uplink.ready
        if is_linked:
            self.uplink.mark()
            self.flush()
        self.uplink.close()
        if (socket := self._dialed.socket) is not None and self.uplink.last_messages:
            try:
                socket.send(b"", self.uplink.last_messages)
            except zmq.Again:
                pass  # the router will find out by itself
            except Exception as error:
                self._failures.show(error)
        linger_seconds = max(_LAST_WORD, deadline - monotonic())
        try:
            if is_linked and deadline and self.shell.can_wait:
                # The goodbye itself has to leave, too: who ends the process now gives libzmq no time for it.
                self._dialed.close_when_sent(linger_seconds)
            else:
                self._dialed.close(linger_seconds)
        finally:
            self._dialer.stop()
            self.status.ready.set()
            forget_at_exit(self)
            self._gone.set()

    def close_and_wait(self) -> None:
        """Close as :meth:`close` does, or wait for somebody else who is closing it."""
        self.close()
        self._gone.wait(_CLOSED_WITHIN)

    def _wait_until_acknowledged(self, deadline: float) -> None:
        while self._engines.has_more and not self._dialer.identity_taken and monotonic() < deadline:
            self.uplink.ask_acknowledgement()
            self.schedule()
            self.shell.sleep(_HAND_OVER_POLL)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: forget the parent's sockets without touching them."""
        self.abandoned = self.status.closing = True
        self._loop.abandon(loop_runs)

    # --- what the engines tell ---------------------------------------------------------------

    def go_to(self, router: str) -> None:
        """Go on at the router of that name as soon as it is one of the mesh."""
        self._dialer.go_to(router)

    def on_ready(self) -> None:
        """Handle WELCOME. Called by the owner's welcome handler."""
        self._reconnector.welcomed()

    def on_refused(self, reason: str, text: str) -> None:
        """Handle REFUSED. Called by the uplink."""
        self._reconnector.refused(reason, text)


def _first_router() -> int:
    """A random number that is the same throughout this process, and another one after a fork."""
    return Random(f"{gethostname()}:{getpid()}").getrandbits(32)
