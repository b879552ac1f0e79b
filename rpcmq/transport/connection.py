"""A process's link to a router on a ZeroMQ DEALER socket.

All engine work happens in the loop of a :mod:`shell <rpcmq.transport.shell>`, in :meth:`Connection._wake`, or in a
caller's thread of control between two turns of that loop, so no lock is needed. What callers send during one wake-up
leaves as one batch at its end. When to connect, and when to give up, is the dialer's to say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic

import zmq

from rpcmq.core.process.dialer import Dialer, Phase
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import UsageError
from rpcmq.transport.batches import flush_session
from rpcmq.transport.curve import Curve
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.driven_engines import DrivenEngines, Engine
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.process_context import close_at_exit
from rpcmq.transport.reconnect import Reconnector
from rpcmq.transport.router_status import RouterStatus
from rpcmq.transport.shell import Shell
from rpcmq.transport.wake_failures import WakeFailures
from rpcmq.transport.wake_timer import WakeTimer
from rpcmq.transport.watch import Watchdog

__all__ = ["Connection"]

log = logging.getLogger("rpcmq.client")

_ROUNDS = 64
#: Most reads of a connection that has broken.
_LAST_TURNS = 1000
#: Retry interval for a full connection (seconds).
_RETRY = 0.005
_HAND_OVER_POLL = 0.002
#: Least linger for the final messages (seconds).
_LAST_WORD = 0.1
#: Longest wait for another greenlet to close a connection at exit (seconds).
_CLOSED_WITHIN = 5.0


class Connection:
    """Keeps ``uplink`` connected to the router at ``url``.

    Args:
        url: the router's endpoint.
        uplink: the engine of the link.
        engines: ticked with it.
        after_receive: called in the hub when something was received or has timed out; wakes
            greenlets.
        before_flush: called in the hub before what is queued is sent.
        reconnect_max_seconds: longest pause between attempts; jittered.
        connect_timeout: how long one attempt may take (seconds).
        curve: our keys and the router's; None: it has none.
        linger_seconds: how long :meth:`close` waits at most for the router to have what is queued.
        sends: singular noun for unawaited messages of ``engines``; for texts.
        shell: the loop that it lives in; default: gevent's hub of this thread.
    """

    # CPython 3.11 finds attributes slowly, and methods with them, on instances that have more than 30 in a dict.
    __slots__ = (
        "__weakref__", "_after_receive", "_before_flush", "_blocked", "_closed", "_dialed", "_dialer", "_engines",
        "_failures", "_gone", "_linger_seconds", "_reconnector", "_scheduled", "_sends", "_status", "_timer", "_waking",
        "_watchdog", "abandoned", "shell", "uplink", "url",
    )  # fmt: skip

    def __init__(
        self,
        url: str,
        uplink: Uplink,
        engines: Sequence[Engine],
        after_receive: Callable[[], None],
        before_flush: Callable[[], None],
        reconnect_max_seconds: float = 2.0,
        connect_timeout: float = 5.0,
        curve: Curve | None = None,
        linger_seconds: float = 1.0,
        sends: str = "cast",
        shell: Shell | None = None,
    ) -> None:
        self.shell = shell = shell or GeventShell()
        self.url = url
        self.uplink = uplink
        #: This is the child of a fork, and the connection its parent's.
        self.abandoned = False
        self._after_receive = after_receive
        self._before_flush = before_flush
        self._linger_seconds = linger_seconds
        self._sends = sends
        self._failures = WakeFailures(shell, self)
        self._engines = DrivenEngines(uplink, engines, self._failures.note)
        self._dialer = dialer = Dialer(uplink, url, connect_timeout, reconnect_max_seconds)
        self._status = status = RouterStatus(url, uplink, dialer, shell)
        self._dialed = dialed = DialedSocket(url, shell, curve)
        self._reconnector = Reconnector(
            url, uplink, dialer, status, dialed, self._wake, self.schedule, self._receive_rest
        )
        self._timer = WakeTimer(shell, self._tick)
        self._watchdog = Watchdog(lambda: dialed.socket, self._wake, shell)
        self._waking = self._scheduled = self._blocked = self._closed = False
        self._gone = shell.event()
        uplink.on_error = self._failures.show
        close_at_exit(self)
        abandon_after_fork(self)

    # --- for the owner -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect; returns at once."""
        if self._dialer.phase is Phase.IDLE:
            self._watchdog.start()
            self._dialer.start(monotonic())
            self._reconnector.step()
            self._arm()

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._watchdog.lost

    @property
    def reconnects(self) -> int:
        """How often a connection has ended on which the router had welcomed us."""
        return self._reconnector.reconnects

    @property
    def connected(self) -> bool:
        """Whether the router has welcomed us and the connection stands."""
        return self.uplink.ready

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._status.closing

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
        self._status.wait_ready(timeout, restart_timeout)

    @property
    def reason(self) -> str:
        """The known reason why there is no connection, or no answer on it."""
        return self._status.reason

    @property
    def condition(self) -> str:
        """The state of the connection to the router, as a clause."""
        return self._status.condition

    @property
    def of_this_thread(self) -> bool:
        """Whether the current OS thread is the one that the connection belongs to."""
        return self.shell.is_current

    def call_when_denied(self, function: Callable[[str], None]) -> None:
        """Have ``function`` called, with the reason, when the router no longer accepts our key."""
        self._status.on_denied = function

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
        status = self._status
        if status.closing or status.denied or self._dialer.identity_taken:
            status.raise_closed()

    def schedule(self) -> None:
        """Flush queued messages at the end of this turn of the loop."""
        if not (self._waking or self._scheduled):
            self._scheduled = True
            self.shell.call_soon(self._run_scheduled)

    def send_soon(self) -> None:
        """Flush a cast or event at the end of this turn of the loop, or now if the loop may not run soon.

        The caller may compute, or block, for as long as it likes, and the loop then has no turn meanwhile.
        """
        if self.shell.may_starve:
            self.flush()
        if not (self._waking or self._scheduled):
            self.schedule()

    def flush(self) -> None:
        """Flush queued messages now; for callbacks that keep the loop busy for long."""
        socket, uplink = self._dialed.socket, self.uplink
        try:
            self._before_flush()
        except Exception as error:
            self._failures.note(error)
        uplink.dirty.clear()
        uplink.marked = False
        if socket is None:
            return
        try:
            if uplink.ready:
                flush_session(socket, uplink, b"")
            elif uplink.first_messages:
                socket.send(b"", uplink.first_messages)
                uplink.first_messages.clear()
            self._blocked = False
        except zmq.Again:
            self._blocked = True
        except Exception as error:
            self._broken(error)
        except BaseException:  # Ctrl-C: what was being sent may have gone or not
            self._reconnector.end("sending was interrupted")
            raise

    def close(self, linger_seconds: float | None = None) -> None:
        """Say goodbye and close.

        Args:
            linger_seconds: how long to wait at most until the router has all that is queued; default: as the
                connection was made with. In the loop, which cannot wait, libzmq is given so long to send it.
        """
        if self._status.closing:
            return
        self._status.closing = True
        deadline = monotonic() + (self._linger_seconds if linger_seconds is None else linger_seconds)
        if self._dialer.phase is not Phase.IDLE and self.shell.can_wait:
            self._hand_over(deadline)
            if count := self._engines.casts_at_risk:
                what = f"{count} {self._sends}{'s' * (count > 1)}"
                text = "closed before the router %s acknowledged %s, which may be lost; %s"
                log.error(text, self.url, what, self.condition)
        self._closed = True
        if self.uplink.ready:
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
        # The goodbye itself has to leave, too.
        self._dialed.close(max(_LAST_WORD, deadline - monotonic()))
        self._watchdog.stop()
        self._timer.stop()
        self._dialer.stop()
        self._status.ready.set()
        self._gone.set()

    def close_and_wait(self) -> None:
        """Close as :meth:`close` does, or wait for somebody else who is closing it."""
        self.close()
        self._gone.wait(_CLOSED_WITHIN)

    def _hand_over(self, deadline: float) -> None:
        while self._engines.has_more and not self._dialer.identity_taken and monotonic() < deadline:
            self.uplink.ask_acknowledgement()
            self.schedule()
            self.shell.sleep(_HAND_OVER_POLL)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: forget the parent's sockets without touching them."""
        self.abandoned = self._status.closing = self._closed = True
        if not loop_runs:
            return
        self._watchdog.stop()
        self._timer.stop()
        self._dialed.abandon()

    # --- the loop ----------------------------------------------------------------------------

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self._wake()

    def _wake(self) -> None:
        if self._waking:
            return
        self._waking = True
        self._watchdog.wakes += 1
        more = True
        try:
            more = self._turn()
        finally:
            self._waking = False
            # After an exception the timer wakes us, when a pause is over.
            if more and not self._closed and not self._failures.in_this_wake:
                self.schedule()
            self._failures.wake_is_over()
            self._arm()

    def _turn(self) -> bool:
        rounds = self._receive()
        try:
            self._after_receive()
        except Exception as error:
            self._failures.note(error)
        self.flush()
        return rounds >= _ROUNDS or self._readable()

    def _readable(self) -> bool:
        socket = self._dialed.socket
        try:
            return socket is not None and socket.readable()
        except Exception as error:
            self._broken(error)
            return False

    def _receive(self) -> int:
        dialed, receive = self._dialed, self.uplink.receive
        socket, rounds = dialed.socket, 0
        try:
            # A refusal closes it.
            while socket is not None and socket is dialed.socket and rounds < _ROUNDS and socket.readable():
                _, batch, payloads = socket.receive()
                # Read the clock for each message: a handler's time must not begin before its message came.
                receive(monotonic(), batch, payloads)
                rounds += 1
        except Exception as error:
            self._broken(error)
        return rounds

    def _receive_rest(self) -> None:
        for _ in range(_LAST_TURNS):
            if self._receive() < _ROUNDS:
                break

    def _tick(self) -> None:
        # Read what came while this process was busy before declaring anybody silent.
        self._receive()
        now = monotonic()
        self._engines.tick(now)
        self._status.note_silence(now)
        self._reconnector.step()
        self._wake()

    def _broken(self, error: Exception) -> None:
        """Replace the socket, which has raised: only a new connection is in a known state."""
        self._failures.note(error)
        self._reconnector.end("an internal error has broken the connection")

    def _arm(self) -> None:
        if self._closed:
            return
        due = self._next_deadline()
        now = monotonic()
        if self._blocked:
            due = now + _RETRY
        if pause := self._failures.pause:
            due = now + pause
        if due is not None:
            self._timer.fire_by(due, now)

    def _next_deadline(self) -> float | None:
        due = self._dialer.next_deadline()
        try:
            first = self._engines.next_deadline()
        except Exception as error:
            self._failures.note(error)
            self._failures.wake_is_over()
            return due
        return first if due is None or (first is not None and first < due) else due

    # --- what the engines tell ---------------------------------------------------------------

    def on_ready(self) -> None:
        """Handle WELCOME. Called by the owner's welcome handler."""
        self._reconnector.welcomed()

    def on_refused(self, reason: str, text: str) -> None:
        """Handle REFUSED. Called by the uplink."""
        self._reconnector.refused(reason, text)
