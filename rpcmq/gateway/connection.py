"""One WebSocket: its socket, and the greenlets that read and write it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event
from gevent.lock import Semaphore

from rpcmq.adapters.rate_limits import RateLimitedLog
from rpcmq.errors import RpcError
from rpcmq.gateway.effects import (
    INTERNAL_FAILURE,
    POLICY_VIOLATION,
    Close,
    Effect,
    End,
    Grant,
    Send,
    Start,
)
from rpcmq.gateway.operations import Operations
from rpcmq.gateway.outbox import Outbox
from rpcmq.gateway.session import Session, SessionState
from rpcmq.gateway.settings import TimeSettings
from rpcmq.gateway.tokens import Token
from rpcmq.gateway.websocket import Closed, Pinged, Received, Violation, WebSocket

__all__ = ["Connection", "Pace", "Peer"]

_RECEIVE_BYTES = 64 * 1024
_SEND_BYTES = 64 * 1024
#: Bytes of a message that is decoded only when it is its turn.
_HEAVY_BYTES = 64 * 1024
#: Bytes that a frame counts for, however short it is.
_FRAME_BYTES = 1024
#: Time that the other side has to answer a close (seconds).
_CLOSE_SECONDS = 3.0
#: Longest wait before one looks again whether there is room (seconds).
_LOOK_AGAIN = 1.0


class Pace:
    """Says how long to wait so that no more than ``rate`` bytes a second are read; a second's worth at once."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._paid_until = now - 1.0

    def wait(self, now: float, size: int) -> float:
        """Seconds to wait after ``size`` bytes."""
        self._paid_until = max(self._paid_until, now - 1.0) + size / self._rate
        return max(0.0, self._paid_until - now)


@dataclass(frozen=True)
class Peer:
    """The other side of a connection: its address, and the origin of its page."""

    address: str
    origin: str = ""
    is_behind_proxy: bool = False

    def __str__(self) -> str:
        return f"{self.address} ({self.origin})" if self.origin else self.address


class Connection:
    """Serves one WebSocket until it ends.

    Args:
        sock: the socket, after the handshake.
        rest: bytes that have come after the handshake.
        heavy_turn: of the messages that take long to be decoded, one of all connections has it.
        shed: called when more waits for all browsers than may.
    """

    def __init__(
        self,
        sock: Any,
        peer: Peer,
        websocket: WebSocket,
        session: Session,
        operations: Operations,
        outbox: Outbox,
        times: TimeSettings,
        pace: Pace,
        log: RateLimitedLog,
        heavy_turn: Semaphore,
        shed: Callable[[], None],
    ) -> None:
        self.peer = peer
        self.session = session
        self.outbox = outbox
        self._socket = sock
        self._websocket = websocket
        self._operations = operations
        self._times = times
        self._pace = pace
        self._log = log
        self._heavy_turn = heavy_turn
        self._shed = shed
        self._heard = self._began = monotonic()
        #: Time of a ping that nothing has come after; None: there is none.
        self._pinged_at: float | None = None
        self._is_paused = self._is_aborted = False
        #: Time from which the answer to a close is no longer waited for; 0: there was no close.
        self._close_by = 0.0
        self._end_reason = "the browser has left"
        #: The same for a counter: one of a few words.
        self.end_kind = "left"
        self._reader: Any = None
        self._wake, self._drained = Event(), Event()

    @property
    def token(self) -> Token | None:
        """The token of the browser; None: it has not said hello."""
        return self.session.token

    def run(self, rest: bytes) -> str:
        """Serve; return why it has ended."""
        writer = gevent.spawn(self._write)
        # In a greenlet of its own, which can be killed at any time: the cleaning up is not interrupted by that.
        self._reader = gevent.spawn(self._read_all, rest)
        try:
            self._reader.join()
        finally:
            self.perform(self.session.close(POLICY_VIOLATION, ""))
            self._reader.kill()
            writer.kill()
            self.outbox.clear()
        return self._end_reason

    def abort(self, kind: str, reason: str) -> None:
        """End it at once; ``kind`` is the reason in a word or two."""
        if self._is_aborted:
            return
        self._is_aborted = True
        self.end_kind, self._end_reason = kind, reason
        if self._reader is not None and self._reader is not gevent.getcurrent():
            self._reader.kill(block=False)

    def tick(self, now: float) -> None:
        """Look at the time, about once a second."""
        times = self._times
        if self._close_by:
            if now > self._close_by:
                self.abort(self.end_kind, self._end_reason)
            return
        if self.session.state is SessionState.NEW:
            if now > self._began + times.handshake_seconds:
                text = f"no hello within times.handshake_seconds = {times.handshake_seconds:g}"
                self.perform(self.session.close(POLICY_VIOLATION, text))
            return
        if self._is_paused:
            # Nothing is read of one that takes nothing; the writer sees whether it ever does.
            self._pinged_at = None
        elif self._pinged_at is not None:
            if now - self._pinged_at > times.ping_seconds:
                self.abort("silent", f"no answer to a ping within times.ping_seconds = {times.ping_seconds:g}")
        elif now - self._heard > times.ping_seconds:
            self._pinged_at = now
            self._put(self._websocket.ping())
        if self.outbox.room:
            for number in list(self.session.subscriptions):
                self.perform(self.session.tell_lost(number))

    def perform(self, effects: list[Effect]) -> None:
        """Carry out what the session wants."""
        for effect in effects:
            match effect:
                case Send(message):
                    self._put(self._websocket.text(message))
                case Start(request):
                    self._operations.start(self, request)
                case End(number):
                    self._operations.stop(number)
                case Grant(number, count):
                    self._operations.grant(number, count)
                case Close(code, reason):
                    self._close(code, reason)

    # --- what comes of requests --------------------------------------------------------------

    def result(self, number: int, value: Any) -> None:
        """A request has ended with ``value``, or a subscription was made."""
        self.perform(self.session.result(number, value))

    def end(self, number: int) -> None:
        """A stream has no more items."""
        self.perform(self.session.end(number))

    def failed(self, number: int, error: BaseException) -> None:
        """A request has ended with ``error``."""
        if not isinstance(error, RpcError):
            self._log.error("internal error", f"a request of {self.peer} failed in the gateway", error)
        self.perform(self.session.failed(number, error))

    def item(self, number: int, value: Any) -> None:
        """A stream has an item; waits while the browser takes nothing."""
        self._wait_for_room()
        self.perform(self.session.item(number, value))

    def progress(self, number: int, value: Any) -> None:
        """A call reports its progress."""
        self.perform(self.session.progress(number, value, self.outbox.room))

    def event(self, number: int, tail: bytes) -> None:
        """A subscription has an event."""
        self.perform(self.session.event(number, tail, self.outbox.room))

    def lost(self, number: int, count: int) -> None:
        """A subscription has lost ``count`` events."""
        self.perform(self.session.lost(number, count))

    # --- reading -----------------------------------------------------------------------------

    def _read_all(self, rest: bytes) -> None:
        try:
            is_over = self._read(rest)
            while not (is_over or self._is_aborted):
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    return
                is_over = self._read(data)
            if is_over:
                self._flush()
        except OSError as error:
            if not self._close_by:
                self.end_kind, self._end_reason = "broken", f"the connection broke: {error.strerror or error}"

    def _read(self, data: bytes) -> bool:
        """Take what has come; return whether the connection is over."""
        self._heard, self._pinged_at = monotonic(), None
        seen = self._websocket.seen
        for event in self._websocket.receive(data):
            match event:
                case Received(text) if len(text) > _HEAVY_BYTES:
                    self._receive_heavy(text)
                case Received(text):
                    self._receive(text)
                case Pinged(answer):
                    self._put(answer)
                case Violation(code, reason):
                    # What still comes is read and dropped, so that the other side gets the reason.
                    self.perform(self.session.close(code, reason))
                case Closed(_, answer):
                    self._put(answer)
                    return True
        charge = max(len(data), (self._websocket.seen - seen) * _FRAME_BYTES)
        gevent.sleep(self._pace.wait(monotonic(), charge))
        if self.outbox.is_over:
            self._is_paused = True
            self._wait_for_room()
            self._heard, self._is_paused = monotonic(), False
        return False

    def _receive_heavy(self, text: str) -> None:
        """Take a message that keeps the loop busy: one at a time, and others have as much time after it."""
        self._is_paused = True
        with self._heavy_turn:
            began = monotonic()
            self._receive(text)
            gevent.sleep(monotonic() - began)
        self._heard, self._is_paused = monotonic(), False

    def _receive(self, text: str) -> None:
        try:
            self.perform(self.session.receive(monotonic(), text))
            if self.session.token is not None:
                self._websocket.accept()
        except Exception as error:
            self._log.error("internal error", f"a message of {self.peer} failed in the gateway", error)
            self.perform(self.session.close(INTERNAL_FAILURE, "the gateway failed; its log says how"))

    def _wait_for_room(self) -> None:
        while self.outbox.is_over and not self._close_by:
            self._drained.clear()
            # Not for ever: what waits for others counts, too.
            self._drained.wait(_LOOK_AGAIN)

    # --- writing -----------------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        if data:
            self.outbox.put(data)
            self._wake.set()
            if self.outbox.total_is_over:
                self._shed()

    def _close(self, code: int, reason: str) -> None:
        if reason and not self._close_by:
            self.end_kind, self._end_reason = f"close {code}", reason
        frame = self._websocket.close(code, reason)
        self._close_by = monotonic() + _CLOSE_SECONDS
        self._drained.set()
        if frame:
            self._put(frame)

    def _write(self) -> None:
        try:
            while True:
                data = self.outbox.take()
                if not data:
                    self._wake.clear()
                    self._wake.wait()
                    continue
                for start in range(0, len(data), _SEND_BYTES):
                    self._send(data[start : start + _SEND_BYTES])
                self.outbox.sent()
                if not self.outbox.is_over:
                    self._drained.set()
        except TimeoutError:
            self.abort("stalled", f"it took nothing within times.stalled_seconds = {self._times.stalled_seconds:g}")
        except OSError as error:
            self.abort("broken", f"the connection broke: {error.strerror or error}")

    def _send(self, data: bytes) -> None:
        with gevent.Timeout(self._times.stalled_seconds, TimeoutError):
            self._socket.sendall(data)

    def _flush(self) -> None:
        with suppress(TimeoutError), gevent.Timeout(_CLOSE_SECONDS, TimeoutError):
            # What has not gone by then is not waited for.
            while self.outbox.size:
                self._drained.clear()
                self._drained.wait(_LOOK_AGAIN)
