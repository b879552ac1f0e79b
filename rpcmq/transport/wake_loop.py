"""The wake-ups of a process's connection: each receives all there is, and sends as one batch whatever was queued.

All engine work happens in the loop of a :mod:`shell <rpcmq.transport.shell>`, in :meth:`WakeLoop.wake`, or in a
caller's thread of control between two turns of that loop, so no lock is needed. Messages that callers queue during one
wake-up leave as one batch at its end.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import zmq

from rpcmq.core.process.call import Call
from rpcmq.core.process.uplink import Uplink
from rpcmq.transport.batches import flush_session
from rpcmq.transport.dialed_socket import DialedSocket
from rpcmq.transport.driven_engines import DrivenEngines
from rpcmq.transport.reconnect import Reconnector
from rpcmq.transport.shell import Shell
from rpcmq.transport.wake_failures import WakeFailures
from rpcmq.transport.wake_timer import WakeTimer
from rpcmq.transport.watch import Watchdog

__all__ = ["WakeLoop"]

#: ZeroMQ messages received before others in the loop get their turn.
_ROUNDS = 64
#: Longest time of receiving before that (seconds). A router may send what takes longer to handle than to send.
_LONGEST = 0.01
#: Most reads of a connection that has broken.
_LAST_TURNS = 1000
#: Retry interval for a full connection (seconds).
_RETRY = 0.005


class WakeLoop:
    """Moves messages between ``uplink`` and ``dialed``, and ticks ``engines`` when they are due.

    Args:
        shell: the loop that calls it.
        failures: counts the exceptions in its wake-ups.
        uplink: the engine of the link.
        engines: the uplink, and the engines on it.
        dialed: the socket, which may be closed.
        reconnector: opens it, ticked with the engines, and told when only a new connection is in a known state.
        after_receive: called when something was received or has timed out.
        before_flush: called before queued messages are sent.
    """

    __slots__ = (
        "_after_receive", "_before_flush", "_blocked", "_closed", "_dialed", "_engines", "_failures", "_reconnector",
        "_scheduled", "_shell", "_timer", "_uplink", "_waking", "_watchdog",
    )  # fmt: skip

    def __init__(
        self,
        shell: Shell,
        failures: WakeFailures,
        uplink: Uplink,
        engines: DrivenEngines,
        dialed: DialedSocket,
        reconnector: Reconnector,
        after_receive: Callable[[], None],
        before_flush: Callable[[], None],
    ) -> None:
        self._shell = shell
        self._failures = failures
        self._uplink = uplink
        self._engines = engines
        self._dialed = dialed
        self._reconnector = reconnector
        self._after_receive = after_receive
        self._before_flush = before_flush
        self._timer = WakeTimer(shell, self._tick)
        # What a scheduled wake-up is going to read is not lost, however late that comes.
        self._watchdog = Watchdog(lambda: None if self._scheduled else dialed.socket, self.wake, shell)
        self._waking = self._scheduled = self._blocked = self._closed = False

    def start(self) -> None:
        """Begin to connect, and to wake up when something is due."""
        self._watchdog.start()
        self._reconnector.start()
        self._arm()

    def stop(self) -> None:
        """Wake up by no timer any more; queued messages can still be flushed."""
        self._closed = True
        self._watchdog.stop()
        self._timer.stop()

    def abandon(self, loop_runs: bool) -> None:
        """After a fork, in the child: stop without touching the parent's sockets."""
        self._closed = True
        if loop_runs:
            self.stop()
            self._dialed.abandon()

    @property
    def lost_wakeups(self) -> int:
        """Wake-ups that only the watchdog found. Must stay 0."""
        return self._watchdog.lost

    # --- to have queued messages sent --------------------------------------------------------

    def schedule(self) -> None:
        """Flush queued messages at the end of this turn of the loop."""
        if not (self._waking or self._scheduled):
            # In this order, as elsewhere here: a signal's handler can raise between any two steps.
            self._shell.call_soon(self._run_scheduled)
            self._scheduled = True

    def send_soon(self) -> None:
        """Flush a cast or event at the end of this turn of the loop, or now if the loop may not run soon.

        The caller may compute, or block, for as long as it likes, and the loop then has no turn meanwhile.
        """
        if self._shell.may_starve:
            self.flush()
        if not (self._waking or self._scheduled):
            self.schedule()

    def flush(self) -> None:
        """Flush queued messages now; for callbacks that keep the loop busy for long."""
        socket, uplink = self._dialed.socket, self._uplink
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

    def send_now(self, due: float) -> None:
        """Flush queued messages for a caller that waits for an answer itself; that has something to do at ``due``."""
        self.flush()
        if self._must_arm or due < self._timer.due:
            self._arm()
        if self._readable():
            self.schedule()

    def send_with(self, function: Callable[..., object], *args: Any) -> None:
        """Call ``function``, which queues messages and must not wait, and send them now, without a turn of the loop."""
        if self._waking:
            function(*args)
            return
        try:
            # What is scheduled meanwhile is sent below.
            self._waking = True
            function(*args)
        finally:
            self._waking = False
            self.send_now(0.0)

    # --- wake-ups ----------------------------------------------------------------------------

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.wake()

    def wake(self, awaited: Call | None = None) -> None:
        """Receive what there is, and send what is queued.

        Args:
            awaited: the caller waits for its answer, and calls nothing else meanwhile.
        """
        if self._waking:
            return
        more, received = True, self._uplink.received
        try:
            self._waking = True
            self._watchdog.wakes += 1
            more = self._turn()
        finally:
            self._waking = False
            # After an exception the timer wakes us, when a pause is over.
            if more and not self._closed and not self._failures.in_this_wake:
                self.schedule()
            self._failures.wake_is_over()
            # Nothing is due any earlier where one answer came, and nothing else.
            if awaited is None or awaited.answer is None or self._uplink.received != received + 1 or self._must_arm:
                self._arm()

    @property
    def _must_arm(self) -> bool:
        return not self._timer.due or self._blocked or bool(self._failures.pause)

    def _turn(self) -> bool:
        rounds = self._receive(_LONGEST)
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

    def _receive(self, longest: float = inf) -> int:
        """Receive what there is, in one turn; return ``_ROUNDS`` if there may be more."""
        dialed, receive = self._dialed, self._uplink.receive
        socket, rounds, until = dialed.socket, 0, inf
        try:
            # A refusal closes it.
            while socket is not None and socket is dialed.socket and rounds < _ROUNDS and socket.readable():
                _, batch, payloads = socket.receive()
                # Read the clock for each message: a handler's time must not begin before its message came.
                now = monotonic()
                receive(now, batch, payloads)
                rounds += 1
                if rounds == 1:
                    until = now + longest
                elif now > until:
                    return _ROUNDS
        except Exception as error:
            self._broken(error)
        except BaseException:  # Ctrl-C: what was received may have been handled or not
            self._reconnector.end("receiving was interrupted")
            raise
        return rounds

    def receive(self) -> None:
        """Receive what there is; for callbacks that keep the loop busy for long. Another wake-up follows this one."""
        self._receive()
        if not self._scheduled:
            self._shell.call_soon(self._run_scheduled)
            self._scheduled = True

    def receive_rest(self) -> None:
        """Receive everything that came on a connection that has broken."""
        for _ in range(_LAST_TURNS):
            if self._receive() < _ROUNDS:
                break

    def _tick(self) -> None:
        try:
            # Read what came while this process was busy before declaring anybody silent.
            self._receive()
            now = monotonic()
            self._engines.tick(now)
            self._reconnector.tick(now)
        finally:
            self.wake()

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
        due = self._reconnector.next_deadline()
        try:
            first = self._engines.next_deadline()
        except Exception as error:
            self._failures.note(error)
            self._failures.wake_is_over()
            return due
        return first if due is None or (first is not None and first < due) else due
