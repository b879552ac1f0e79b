"""A process's link to a router on a ZeroMQ DEALER socket inside a gevent hub.

All engine work happens in the hub, in :meth:`Connection._wake` or in a caller's greenlet between two
switches, so no lock is needed. What greenlets send during one wake-up leaves as one batch at its end.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from random import random
from time import monotonic
from typing import Any, Protocol

import gevent
import zmq
from gevent import get_hub, getcurrent
from gevent._hub_local import get_hub_if_exists
from gevent.event import Event

from rpcmq.core.process.dialer import Dialer, Phase, Step
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import AccessDenied, IdentityTaken, RouterUnreachable, UsageError
from rpcmq.transport.batches import BatchSocket, flush_session, new_context
from rpcmq.transport.curve import Curve
from rpcmq.transport.forks import abandon_after_fork
from rpcmq.transport.home import background_home, is_background, program_is_patched
from rpcmq.transport.names import NameCheck
from rpcmq.transport.watch import ConnectionWatch, Watchdog
from rpcmq.transport.zap import ZapHandler

__all__ = ["Connection", "Engine", "process_context", "process_zap", "release_zap"]

log = logging.getLogger("rpcmq.client")

_ROUNDS = 64
#: Most reads of a connection that has broken.
_LAST_TURNS = 1000
_RETRY = 0.005
#: After exceptions the pause doubles with each, up to this (seconds).
_RETRY_MOST = 1.0
_HAND_OVER_POLL = 0.002
_EXIT_LINGER_MS = 500
#: Least linger for the final messages (seconds).
_LAST_WORD = 0.1
#: Longest wait for another greenlet to close a connection at exit (seconds).
_CLOSED_WITHIN = 5.0
_HANDSHAKE_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
_LOST_EVENTS = (
    zmq.EVENT_DISCONNECTED,
    zmq.EVENT_CLOSED,
    *_HANDSHAKE_FAILED,
)

_context: zmq.Context[Any] | None = None
_zap: ZapHandler | None = None
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


class Engine(Protocol):
    """An engine driven by a connection, beside its uplink."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds); None if nothing is due."""

    @property
    def casts_at_risk(self) -> int:
        """Casts and events that the router may not have, those that wait among them."""


def process_context() -> zmq.Context[Any]:
    """The ZeroMQ context of this process; after a fork, the child has its own."""
    global _context
    if _context is None:
        _context = new_context()
        # Registered here each time: a multiprocessing child discards its parent's exit handlers.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    return _context


def process_zap() -> ZapHandler:
    """The handler for handshakes with sockets of :func:`process_context`; in the hub of the thread that asks first."""
    global _zap
    if _zap is None:
        _zap = ZapHandler(process_context())
    return _zap


def release_zap(domain: str) -> None:
    """Unregister ``domain``, whose socket is closed."""
    global _zap
    if _zap is not None and _zap.unregister(domain):
        _zap.close()
        _zap = None


def _after_fork_in_child() -> None:
    global _context, _zap
    _connections.clear()
    _context = _zap = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def _close_all() -> None:
    """Close all connections at exit, so that messages sent just before still arrive."""
    everybody = list(_connections)
    background = [connection for connection in everybody if is_background(connection.hub)]
    ours = [connection for connection in everybody if connection.of_this_thread and connection not in background]
    if background:
        background_home().run(_close_together, background)
    if ours:
        _close_together(ours)
    if len(ours) + len(background) < len(everybody):
        return  # another thread may be using its sockets, and so the context
    if _context is not None:
        _context.destroy(linger=_EXIT_LINGER_MS)


def _close_together(connections: Sequence[Connection]) -> None:
    gevent.joinall([gevent.spawn(connection.close_and_wait) for connection in connections])


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
        sends: what ``engines`` send that nobody waits for, in the singular; for texts.
    """

    # CPython 3.11 finds attributes slowly, and methods with them, on instances that have more than 30 in a dict.
    __slots__ = (
        "__weakref__", "_after_receive", "_before_flush", "_blocked", "_closed", "_closing", "_curve", "_dialer",
        "_engines", "_failing", "_failures", "_gone", "_hub", "_io", "_linger_seconds", "_loop", "_name_check",
        "_ready", "_refused", "_restarting", "_scheduled", "_sends", "_silent", "_socket", "_timer", "_timer_at",
        "_waking", "_watch", "_watchdog", "abandoned", "denied", "on_denied", "reconnects", "uplink", "url",
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
    ) -> None:
        self.url = url
        self.uplink = uplink
        self.reconnects = 0
        #: Whether this is a forked child, and the connection its parent's.
        self.abandoned = False
        #: Reason why the router, which had welcomed us, does not accept our key any more; empty while it does.
        self.denied = ""
        # The text of its last refusal, which it repeats at each attempt; and whether it is shutting down.
        self._refused = ""
        self._restarting = False
        #: Called with that reason, once.
        self.on_denied: Callable[[str], None] = lambda text: None
        self._engines = engines
        self._after_receive = after_receive
        self._before_flush = before_flush
        self._dialer = Dialer(uplink, url, connect_timeout, reconnect_max_seconds)
        self._silent = False
        self._curve = curve
        self._linger_seconds = linger_seconds
        self._sends = sends
        self._hub = get_hub()
        self._loop = self._hub.loop
        self._socket: BatchSocket | None = None
        self._watch: ConnectionWatch | None = None
        self._name_check: NameCheck | None = None
        self._io: Any = None
        self._timer: Any = None
        self._timer_at = 0.0
        self._watchdog = Watchdog(lambda: self._socket, self._wake)
        self._waking = False
        self._scheduled = False
        self._blocked = False
        #: Whether there was an exception in this wake-up, and how many wake-ups in a row have had one.
        self._failing = False
        self._failures = 0
        self._closing = False
        self._closed = False
        self._ready = Event()
        self._gone = Event()
        uplink.on_error = self._show
        _connections.add(self)
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
        return self._closing

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
        if not self._ready.is_set():
            self._ready.wait(timeout)
        if timeout is not None and self._restarting and restart_timeout > timeout and not self._ready.is_set():
            self._ready.wait(restart_timeout - timeout)
            timeout = restart_timeout
        self._check_not_ended()
        if not self._ready.is_set():
            seconds = round(timeout or 0.0, 2)
            raise RouterUnreachable(f"router {self.url} not reachable within {seconds:g} s: {self.reason}")

    @property
    def reason(self) -> str:
        """Reason why there is no connection, or no answer on it, as far as known."""
        if silent := self.uplink.silent_seconds(monotonic()):
            return f"the router has been silent for {silent:.1f} s"
        return self._dialer.problem or "no answer"

    @property
    def condition(self) -> str:
        """Describe the connection to the router, as a clause."""
        if not self.connected:
            return f"the router is not connected ({self.reason})"
        now = monotonic()
        if self.uplink.silent_seconds(now):
            return self.reason
        return f"the router is connected, and was last heard {now - self.uplink.heard:.1f} s ago"

    @property
    def of_this_thread(self) -> bool:
        """Whether the current OS thread is the one that the connection belongs to."""
        return get_hub_if_exists() is self._hub

    @property
    def hub(self) -> Any:
        """The gevent hub that the connection belongs to."""
        return self._hub

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
        if self._closing or self.denied or self._dialer.identity_taken:
            self._check_not_ended()
            raise AccessDenied(self.denied)

    def _check_not_ended(self) -> None:
        if self._dialer.identity_taken:
            raise IdentityTaken(self._dialer.identity_taken)
        if self._closing:
            raise UsageError("this client is closed")

    def schedule(self) -> None:
        """Flush queued messages at the end of this turn of the hub's loop."""
        if not (self._waking or self._scheduled):
            self._scheduled = True
            self._loop.run_callback(self._run_scheduled)

    def send_soon(self) -> None:
        """Flush a cast or event at the end of this turn of the loop, or now if the loop may not run soon.

        A hub goes on when one of its greenlets ends or waits. A program that gevent has not patched may compute, or
        block, in its main greenlet for as long as it likes.
        """
        if getcurrent().parent is None and not program_is_patched():
            self.flush()
        if not (self._waking or self._scheduled):
            self.schedule()

    def flush(self) -> None:
        """Flush queued messages now; for callbacks that keep the hub busy for long."""
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
            elif uplink.greetings:
                socket.send(b"", uplink.greetings)
                uplink.greetings.clear()
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
                connection was made with. In the hub, which cannot wait, libzmq is given so long to send it.
        """
        if self._closing:
            return
        self._closing = True
        deadline = monotonic() + (self._linger_seconds if linger_seconds is None else linger_seconds)
        if self._dialer.phase is not Phase.IDLE and gevent.getcurrent() is not self._hub:
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
        if self._socket is not None and self.uplink.closings:
            try:
                self._socket.send(b"", self.uplink.closings)
            except zmq.Again:
                pass  # the router will find out by itself
            except Exception as error:
                self._show(error)
        # The goodbye itself has to leave, too.
        self._drop_socket(max(_LAST_WORD, deadline - monotonic()))
        self._stop_timers()
        self._dialer.stop()
        self._ready.set()
        self._gone.set()

    def close_and_wait(self) -> None:
        """Close as :meth:`close` does, or wait for another greenlet that is closing it."""
        self.close()
        self._gone.wait(_CLOSED_WITHIN)

    def _hand_over(self, deadline: float) -> None:
        while self._has_more and not self._dialer.identity_taken and monotonic() < deadline:
            self.uplink.ask_acknowledgement()
            self.schedule()
            gevent.sleep(_HAND_OVER_POLL)

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
        self.abandoned = self._closing = self._closed = True
        if not loop_runs:
            return
        self._stop_timers()
        self._drop_name_check()
        if self._io is not None:
            self._io.stop()
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
        self._timer_at = 0.0
        # Read what came while this process was busy before declaring anybody silent.
        self._receive()
        now = monotonic()
        ticks: list[Callable[[float], object]] = [self.uplink.tick, *(engine.tick for engine in self._engines)]
        for tick in ticks:
            try:
                tick(now)
            except Exception as error:
                self._failed(error)
        self._note_silence(now)
        self._dial()
        self._wake()

    def _note_silence(self, now: float) -> None:
        silent = self.uplink.silent_seconds(now)
        if silent and not self._silent:
            text = "the router %s has been silent for %.1f s; the connection is given up after %g s"
            log.warning(text, self.url, silent, self.uplink.lost_seconds)
        elif self._silent and not silent and self.uplink.ready:
            log.warning("the router %s answers again", self.url)
        self._silent = bool(silent)

    def _failed(self, error: Exception) -> None:
        """Print an exception, and retry the interrupted step after a pause."""
        self._failing = True
        self._show(error)

    def _show(self, error: Exception) -> None:
        self._hub.handle_error(self, type(error), error, error.__traceback__)

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
        if due is None or (self._timer_at and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
        self._timer_at = due
        self._timer = self._loop.timer(max(0.001, due - now))
        self._timer.start(self._tick)

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
            shares_interpreter=is_background(self._hub),
        )
        self._watch = ConnectionWatch(socket.socket, self._connection_event)
        socket.socket.connect(self.url)
        self._name_check = NameCheck(self.url, self._end_connection)
        self._io = self._loop.io(socket.fd, 1)
        self._io.start(self._wake)
        self.schedule()

    def _connection_event(self, event: int, value: int) -> None:
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._dialer.greeted(monotonic())
            self.schedule()
        elif event == zmq.EVENT_CONNECTED:
            self._drop_name_check()
            self._dialer.reached(monotonic())
        elif event in _LOST_EVENTS and not self._closed:
            self._lost("the connection was lost" if self.uplink.ready else self._why_lost(event, value))
            if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                self._deny(self._dialer.problem)

    def _deny(self, problem: str) -> None:
        """Handle refusal of our key. A key accepted before is retried: it may be authorised again."""
        if self.uplink.origin and not self.denied:
            self.denied = problem
            self.on_denied(problem)

    def _why_lost(self, event: int, value: int) -> str:
        if event == zmq.EVENT_CLOSED:
            return "nothing listens there"
        if event not in _HANDSHAKE_FAILED and self._dialer.phase is Phase.GREETING:
            return "the connection was closed"
        return f"handshake with {self.url} failed: {self._why_failed(event, value)}"

    def _why_failed(self, event: int, value: int) -> str:
        """Diagnose a failed handshake: a router that refuses our first bytes only closes the connection."""
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            text = "the router does not accept the key of our key_file: it was revoked, has expired, or was never added"
            return f"{text} (status {value})"
        if self._curve is None:
            return "it closed the connection; it may require CURVE (give a key_file), or not be an rpcmq router"
        closed = "it uses another security mechanism" if event == zmq.EVENT_DISCONNECTED else "it closed the connection"
        return f"{closed}; `router` in our key_file may not be its key, or it runs without CURVE"

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
        self._ready.clear()
        self._drop_socket()
        self._arm()

    def on_ready(self) -> None:
        """Handle WELCOME. Called by the owner's welcome handler."""
        self.denied = self._refused = ""
        self._restarting = False
        self._dialer.welcomed(monotonic())
        self._ready.set()

    def on_refused(self, reason: str, text: str) -> None:
        """Handle REFUSED. Called by the uplink."""
        if text != self._refused:
            self._refused = text
            log.warning("router %s: %s", self.url, text)
        self._restarting = reason == "draining"
        was_ready = self.uplink.ready
        if self._dialer.refused(monotonic(), random(), reason, text) is Step.HANG_UP:
            self._hang_up(was_ready)
            if self._dialer.identity_taken:
                self._ready.set()  # those who wait are told
        if reason == "key":
            self._deny(text)

    def _drop_name_check(self) -> None:
        if self._name_check is not None:
            self._name_check.close()
            self._name_check = None

    def _drop_socket(self, linger_seconds: float = 0.0) -> None:
        self._drop_name_check()
        if self._io is not None:
            self._io.stop()
            self._io.close()
            self._io = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._socket is not None:
            self._socket.close(linger_seconds)
            self._socket = None

    def _stop_timers(self) -> None:
        self._watchdog.stop()
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
        self._timer = None
