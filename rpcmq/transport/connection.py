"""A process's link to a router on a ZeroMQ DEALER socket.

All engine work happens in the loop of a :mod:`shell <rpcmq.transport.shell>`, in :meth:`Connection._wake`, or in a
caller's thread of control between two turns of that loop, so no lock is needed. What callers send during one wake-up
leaves as one batch at its end. When to connect, and when to give up, is the dialer's to say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import random
from time import monotonic
from typing import Protocol

import zmq

from rpcmq.core.process.dialer import Dialer, Phase, Step
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import UsageError
from rpcmq.transport.batches import BatchSocket, flush_session
from rpcmq.transport.curve import Curve
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.transport.handshake_errors import LOST_EVENTS, connection_error
from rpcmq.transport.process_context import close_at_exit, process_context
from rpcmq.transport.router_status import RouterStatus
from rpcmq.transport.shell import Handle, Shell
from rpcmq.transport.wake_timer import WakeTimer
from rpcmq.transport.watch import ConnectionWatch, Watchdog

__all__ = ["Connection", "Engine"]

log = logging.getLogger("rpcmq.client")

_ROUNDS = 64
#: Most reads of a connection that has broken.
_LAST_TURNS = 1000
_RETRY = 0.005
#: After exceptions the pause doubles with each, up to this (seconds).
_RETRY_MOST = 1.0
_HAND_OVER_POLL = 0.002
#: Least linger for the final messages (seconds).
_LAST_WORD = 0.1
#: Longest wait for another greenlet to close a connection at exit (seconds).
_CLOSED_WITHIN = 5.0


class Engine(Protocol):
    """An engine driven by a connection, beside its uplink."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds); None if nothing is due."""

    @property
    def casts_at_risk(self) -> int:
        """Casts and events that the router may not have, those that wait among them."""


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
        "__weakref__", "_after_receive", "_before_flush", "_blocked", "_closed", "_curve", "_dialer", "_engines",
        "_failing", "_failures", "_gone", "_linger_seconds", "_name_check", "_reader", "_scheduled", "_sends",
        "_socket", "_status", "_timer", "_waking", "_watch", "_watchdog", "abandoned", "reconnects", "shell", "uplink",
        "url",
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
        self.reconnects = 0
        #: This is the child of a fork, and the connection its parent's.
        self.abandoned = False
        self._engines = engines
        self._after_receive = after_receive
        self._before_flush = before_flush
        self._dialer = Dialer(uplink, url, connect_timeout, reconnect_max_seconds)
        self._status = RouterStatus(url, uplink, self._dialer, shell)
        self._curve = curve
        self._linger_seconds = linger_seconds
        self._sends = sends
        self._socket: BatchSocket | None = None
        self._watch: ConnectionWatch | None = None
        self._name_check: Handle | None = None
        self._reader: Handle | None = None
        self._timer = WakeTimer(shell, self._tick)
        self._watchdog = Watchdog(lambda: self._socket, self._wake, shell)
        self._waking = self._scheduled = self._blocked = self._closed = False
        #: Whether there was an exception in this wake-up, and how many wake-ups in a row have had one.
        self._failing = False
        self._failures = 0
        self._gone = shell.event()
        uplink.on_error = self._show
        close_at_exit(self)
        abandon_after_fork(self)

    # --- for the owner -----------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect; returns at once."""
        if self._dialer.phase is Phase.IDLE:
            self._watchdog.start()
            self._dialer.start(monotonic())
            self._dial()
            self._arm()

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._watchdog.lost

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
        socket, uplink = self._socket, self.uplink
        try:
            self._before_flush()
        except Exception as error:
            self._failed(error)
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
            self._end_connection("sending was interrupted")
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
            if count := self._casts_at_risk:
                what = f"{count} {self._sends}{'s' * (count > 1)}"
                text = "closed before the router %s acknowledged %s, which may be lost; %s"
                log.error(text, self.url, what, self.condition)
        self._closed = True
        if self.uplink.ready:
            self.uplink.mark()
            self.flush()
        self.uplink.close()
        if self._socket is not None and self.uplink.last_messages:
            try:
                self._socket.send(b"", self.uplink.last_messages)
            except zmq.Again:
                pass  # the router will find out by itself
            except Exception as error:
                self._show(error)
        # The goodbye itself has to leave, too.
        self._drop_socket(max(_LAST_WORD, deadline - monotonic()))
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
        while self._has_more and not self._dialer.identity_taken and monotonic() < deadline:
            self.uplink.ask_acknowledgement()
            self.schedule()
            self.shell.sleep(_HAND_OVER_POLL)

    @property
    def _has_more(self) -> bool:
        """Whether messages may not have reached the router. Without a connection only casts count."""
        uplink = self.uplink
        if uplink.ready and (uplink.outbox or uplink.unacknowledged):
            return True
        return self._casts_at_risk > 0

    @property
    def _casts_at_risk(self) -> int:
        return sum(engine.casts_at_risk for engine in self._engines)

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: forget the parent's sockets without touching them."""
        self.abandoned = self._status.closing = self._closed = True
        if not loop_runs:
            return
        self._watchdog.stop()
        self._timer.stop()
        self._drop_name_check()
        if self._reader is not None:
            self._reader.stop()
        if self._watch is not None:
            self._watch.abandon()
        self._socket = self._watch = None

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
            self._failures = self._failures + 1 if self._failing else 0
            # After an exception the timer wakes us, when a pause is over.
            if more and not self._closed and not self._failing:
                self.schedule()
            self._failing = False
            self._arm()

    def _turn(self) -> bool:
        rounds = self._receive()
        try:
            self._after_receive()
        except Exception as error:
            self._failed(error)
        self.flush()
        return rounds >= _ROUNDS or self._readable()

    def _readable(self) -> bool:
        try:
            return self._socket is not None and self._socket.readable()
        except Exception as error:
            self._broken(error)
            return False

    def _receive(self) -> int:
        socket, receive = self._socket, self.uplink.receive
        rounds = 0
        try:
            # A refusal closes it.
            while socket is not None and socket is self._socket and rounds < _ROUNDS and socket.readable():
                _, batch, payloads = socket.receive()
                # Read the clock for each message: a handler's time must not begin before its message came.
                receive(monotonic(), batch, payloads)
                rounds += 1
        except Exception as error:
            self._broken(error)
        return rounds

    def _tick(self) -> None:
        # Read what came while this process was busy before declaring anybody silent.
        self._receive()
        now = monotonic()
        ticks: list[Callable[[float], object]] = [self.uplink.tick, *(engine.tick for engine in self._engines)]
        for tick in ticks:
            try:
                tick(now)
            except Exception as error:
                self._failed(error)
        self._status.note_silence(now)
        self._dial()
        self._wake()

    def _failed(self, error: Exception) -> None:
        """Print an exception, and retry the interrupted step after a pause."""
        self._failing = True
        self._show(error)

    def _show(self, error: Exception) -> None:
        self.shell.print_exception(self, error)

    def _broken(self, error: Exception) -> None:
        """Replace the socket, which has raised: only a new connection is in a known state."""
        self._failed(error)
        self._end_connection("an internal error has broken the connection")

    def _arm(self) -> None:
        if self._closed:
            return
        due = self._next_deadline()
        now = monotonic()
        if self._blocked:
            due = now + _RETRY
        if self._failures:
            due = now + min(_RETRY * 2 ** min(self._failures, 10), _RETRY_MOST)
        if due is not None:
            self._timer.fire_by(due, now)

    def _next_deadline(self) -> float | None:
        due = self.uplink.next_deadline()
        dial = self._dialer.next_deadline()
        if dial is not None and (due is None or dial < due):
            due = dial
        try:
            for engine in self._engines:
                deadline = engine.next_deadline()
                if deadline is not None and (due is None or deadline < due):
                    due = deadline
        except Exception as error:
            self._failures += 1
            self._show(error)
        return due

    # --- connecting --------------------------------------------------------------------------

    def _dial(self) -> None:
        """Perform the dialer's next step."""
        was_ready = self.uplink.ready
        step = self._dialer.tick(monotonic(), random())
        if step is Step.HANG_UP:
            if was_ready:
                log.warning("%s: %s; connecting anew", self.url, self._dialer.problem)
            self._hang_up(was_ready)
        elif step is Step.DIAL:
            try:
                self._open()
            except Exception as error:  # an url that libzmq does not take, or no file descriptor left
                self._end_connection(f"cannot connect to it: {error}")

    def _open(self) -> None:
        self._socket = socket = BatchSocket(
            process_context(),
            zmq.DEALER,
            max_bytes=self.uplink.max_message_bytes,
            lost_seconds=self.uplink.lost_seconds,
            ipv6="[" in self.url,
            curve=self._curve,
            shares_interpreter=self.shell.shares_interpreter,
        )
        self._watch = ConnectionWatch(socket.socket, self._connection_event, self.shell)
        socket.socket.connect(self.url)
        self._name_check = self.shell.check_name(self.url, self._end_connection)
        self._reader = self.shell.call_when_readable(socket.fd, self._wake)
        self.schedule()

    def _connection_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._dialer.greeted(monotonic())
            self.schedule()
        elif event == zmq.EVENT_CONNECTED:
            self._drop_name_check()
            self._dialer.reached(monotonic())
        elif event in LOST_EVENTS and not self._closed:
            error = connection_error(event, value, self.url, self._dialer.phase, self._curve is not None)
            self._lost("the connection was lost" if self.uplink.ready else error)
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._status.deny(self._dialer.problem)

    def _lost(self, problem: str = "the connection was lost") -> None:
        # Everything received before the connection broke is still handled; replies go to the next one.
        if self._socket is not None and self.uplink.ready:
            for _ in range(_LAST_TURNS):
                if self._receive() < _ROUNDS:
                    break
        self._end_connection(problem)
        self.schedule()

    def _end_connection(self, problem: str) -> None:
        self._hang_up(self._dialer.ended(monotonic(), random(), problem))

    def _hang_up(self, was_ready: bool) -> None:
        self.reconnects += was_ready
        self._status.ready.clear()
        self._drop_socket()
        self._arm()

    def on_ready(self) -> None:
        """Handle WELCOME. Called by the owner's welcome handler."""
        self._dialer.welcomed(monotonic())
        self._status.welcomed()

    def on_refused(self, reason: str, text: str) -> None:
        """Handle REFUSED. Called by the uplink."""
        self._status.refused(reason, text)
        was_ready = self.uplink.ready
        if self._dialer.refused(monotonic(), random(), reason, text) is Step.HANG_UP:
            self._hang_up(was_ready)
            if self._dialer.identity_taken:
                self._status.ready.set()  # those who wait are told
        if reason == "key":
            self._status.deny(text)

    def _drop_name_check(self) -> None:
        if self._name_check is not None:
            self._name_check.close()
            self._name_check = None

    def _drop_socket(self, linger_seconds: float = 0.0) -> None:
        self._drop_name_check()
        if self._reader is not None:
            self._reader.stop()
            self._reader.close()
            self._reader = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._socket is not None:
            self._socket.close(linger_seconds)
            self._socket = None
