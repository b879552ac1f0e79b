"""The caller's side of a process: sends calls, and ends each with its answer, an error or a timeout.

Its parts: the table of open calls (``call_table``), the casts and events beside them (``casts``), the messages that are
sent again after a restart of the router (``resend_after_restart``), and the text of a timeout (``timeouts``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rpcmq.core.common.stream_credit import UNASKED_ITEMS
from rpcmq.core.process.call import Call
from rpcmq.core.process.call_table import CallTable
from rpcmq.core.process.casts import RETAINED_KINDS, Casts
from rpcmq.core.process.declarations import Declarations
from rpcmq.core.process.hedge import send_hedge
from rpcmq.core.process.read_streams import ReadStreams, takes_byte_credit
from rpcmq.core.process.resend_after_restart import resend
from rpcmq.core.process.sent_streams import SentStreams, StreamingCall
from rpcmq.core.process.timeouts import timeout_error
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import CallError, Outcome, ProtocolError, error_for
from rpcmq.wire import KEY, LOW_FLAGS_AT, NO_TTL, Flag, Kind, pack, payload_of
from rpcmq.wire.bodies import ErrorBody

__all__ = ["Calls"]

#: Most items of a stream that were not read: a few times its window, for another consumer of it begins with that again.
_MAX_UNREAD = 8 * UNASKED_ITEMS
#: Grace after the deadline in which a caller waits for the router to explain the timeout (seconds); while there is no
#: router nobody else can say why.
_GRACE = 0.5
#: Lateness of a tick (seconds) from which on this process was held up: it then gives the router that grace anew.
_LATE = 0.5
_STREAM = Flag.STREAM
_BYTE_CREDIT = Flag.BYTE_CREDIT
#: Payloads of GRANT: the second one says that the caller is busy.
_ONE_ITEM, _NO_ITEMS = (1).to_bytes(4), bytes(4)


class Calls:
    """Calls over one uplink.

    Args:
        uplink: the link to the router.
        casts: of the same uplink; ticked and closed with the calls.

    Attributes:
        open: calls that have not ended, by key.
        changed: calls whose waiters are to be woken.
    """

    def __init__(self, uplink: Uplink, casts: Casts) -> None:
        self._uplink = uplink
        self.casts = casts
        self._table = table = CallTable(uplink.report_illegal)
        self.open = table.open
        self.changed = table.changed
        self._watched = table.watched
        self._wheel = table.wheel
        self.counters: Counter[str] = Counter()
        #: Nothing is overdue before then (monotonic seconds): this process was held up.
        self._not_before = 0.0
        #: Whether there is a router, or its loss has not been looked at.
        self._had_router = False
        #: The streams that go with calls.
        self.streams = SentStreams(uplink, self.open, self.counters)
        self.read_streams = ReadStreams(self.open)
        for kind in (Kind.REPLY, Kind.FAULT, Kind.END, Kind.ANSWER, Kind.REGISTERED, Kind.SUBSCRIBED):
            uplink.handle(kind, self.on_end)
        uplink.handle(Kind.CONFIRM, self._on_confirm)
        uplink.handle(Kind.ERROR, self._on_error)
        uplink.handle(Kind.ITEM, self._on_item)
        uplink.handle(Kind.ALIVE, self._on_alive)
        uplink.moves.work.append(self._is_awaiting_router)
        uplink.moves.streams.append(lambda: any(call.flags & _STREAM for call in self._taken_calls()))
        #: Topics that the process has declared, to be declared again at a router that does not know it.
        self.declarations = Declarations(self.start)

    def take_changed(self) -> list[Call]:
        """Return ``changed``, and empty it."""
        changed = self.changed[:]
        del self.changed[:]  # no call, after which a signal's handler could raise and lose them
        return changed

    @property
    def stream_flags(self) -> int:
        """The flags of a call that may be answered item by item."""
        return _STREAM | _BYTE_CREDIT if takes_byte_credit(self._uplink) else _STREAM

    # --- verbs -------------------------------------------------------------------------------

    def start(
        self,
        now: float,
        call: Call,
        kind: int,
        payload: bytes | memoryview,
        *,
        format: int = 1,
        address: bytes = b"",
        method: bytes = b"",
        trace: bytes = b"",
        consumer: int = 0,
    ) -> Call:
        """Send a message whose end ``call`` waits for."""
        timeout = call.timeout
        if call.flags & _BYTE_CREDIT and not takes_byte_credit(self._uplink):
            call.flags &= ~_BYTE_CREDIT  # its client has waited for a router since it took `stream_flags`
        call.cancelled = False
        call.key = key = self._uplink.next_key()
        call.message = message = pack(
            kind,
            payload,
            flags=call.flags,
            format=format,
            ttl=NO_TTL if timeout is None else _milliseconds(timeout),
            key=key,
            address=address,
            method=method,
            trace=trace,
            consumer=consumer,
        )
        call.sent_at = call.sign_of_life = now
        self.open[key] = call
        if timeout is not None:
            # `CallTable.check_at`, written out: this is the hot path. A stream is checked often enough to tell the
            # router in time that its caller is busy.
            if call.flags & _STREAM:
                due = now + timeout / 2
            else:
                due = now + timeout + (_GRACE if self._uplink.ready else 0.0)
            call.slot = slot = self._wheel.slot(due)
            slot[key] = call
        if call.silence is not None:
            self._watched[key] = call
        if kind in RETAINED_KINDS:
            self.casts.send_confirmed(message)
        else:
            self._uplink.send(message)
            if call.hedge is not None:
                send_hedge(self._uplink, call)
        return call

    def cancel(self, call: Call) -> None:
        """Abandon ``call``: withdraw it from the outbox, or tell the router."""
        if call.done or call.key not in self.open:
            return
        call.cancelled = True
        self._table.remove(call)
        waiting = self._unsent_messages()
        if call.message in waiting:
            waiting.remove(call.message)
            self.casts.withdraw(call.message)
            call.withdrawn = not call.message[LOW_FLAGS_AT] & Flag.RESENT
        else:
            self._uplink.send(pack(Kind.CANCEL, key=call.key))
        if isinstance(call, StreamingCall):
            call.changed()

    def abandon(self, call: Call, error: CallError) -> None:
        """End ``call`` with ``error``, which is its caller's own, unless it has ended; the router is told."""
        if not call.done:
            self.cancel(call)
            self._table.fail(call, error)

    def grant(self, now: float, call: Call, items: int, size_bytes: int = 0, stamp: bytes = b"") -> None:
        """Let the consumer send as much more as was taken. The time for the next item starts again, even with 0.

        Args:
            size_bytes, stamp: see :class:`rpcmq.core.process.call.TakenItems`.
        """
        self.send_grant(now, call, self.read_streams.payload(call, items, size_bytes, stamp))

    def send_grant(self, now: float, call: Call, payload: bytes) -> None:
        """Grant what ``payload`` says."""
        call.sign_of_life = now
        self._uplink.send(pack(Kind.GRANT, payload, key=call.key))

    def fail_all(self, error: CallError) -> None:
        """End every call with ``error``, and withdraw queued ones: the link is being closed."""
        for call in list(self.open.values()):
            self.cancel(call)
            self._table.fail(call, error)

    # --- from the router ---------------------------------------------------------------------

    def on_end(self, now: float, message: bytes) -> None:
        """Handle the last message of a call: REPLY, FAULT, END, CONFIRM or the answer to a query."""
        # `CallTable.remove`, written out: this is the hot path.
        key = message[KEY]
        call = self.open.get(key)
        if call is None:
            self.counters["late replies"] += 1
            return
        if call.slot is not None:
            call.slot.pop(key, None)
            call.slot = None
        if call.silence is not None:
            self._watched.pop(key, None)
        # One call, at the end: a signal's handler, which can raise, comes after calls, and the message comes again.
        call.answer = message
        del self.open[key]
        self.changed.append(call)

    def _on_confirm(self, now: float, message: bytes) -> None:
        self.casts.on_confirmed(message[KEY])
        self.on_end(now, message)

    def _on_error(self, now: float, message: bytes) -> None:
        try:
            body = ErrorBody.of(message)
        except ProtocolError as problem:
            self.counters["malformed errors"] += 1
            body = ErrorBody.for_malformed(problem)
        outcome = body.outcome
        error = error_for(outcome, body.text, body.details)
        key = message[KEY]
        call = self.open.get(key)
        if call is None:
            if not self.casts.on_error(now, key, outcome, error):
                # A call, or a cast to be confirmed, that was abandoned.
                self.counters["late errors"] += 1
            return
        if outcome == Outcome.DRAINING:
            # Not accepted and not run: it is sent again to the router's next life.
            self._table.not_accepted.add(key)
            return
        error.details.setdefault("outcome", outcome)
        self.casts.forget(key)
        self._table.fail(call, error)

    def _on_item(self, now: float, message: bytes) -> None:
        call = self.open.get(message[KEY])
        if call is None:
            self.counters["late items"] += 1
            return
        call.sign_of_life = now
        if call.flags & _STREAM:
            if len(call.items) >= _MAX_UNREAD:
                self._end_overrun(call)
                return
            call.items.append(message)
            self.changed.append(call)
            return
        # Only the last item is the result of a call; its timeout is that of the whole call.
        call.items[:] = [message]
        self.send_grant(now, call, _ONE_ITEM)

    def _end_overrun(self, call: Call) -> None:
        """End a stream whose router has sent far more items than were granted."""
        call.items.clear()
        self.cancel(call)
        text = f"the router has sent more items from {call.address!r} than were granted"
        self._table.fail(call, CallError(text, {"outcome": Outcome.PROTOCOL}))

    def _on_alive(self, now: float, message: bytes) -> None:
        call = self.open.get(message[KEY])
        if call is not None:
            call.sign_of_life = now
            if len(payload_of(message)):
                call.add_progress(message)
                self.changed.append(call)

    def welcome(self, now: float, welcome: Welcome) -> None:
        """Handle WELCOME. If the router does not know us, decide about messages in flight."""
        self._had_router = True
        if not welcome.resumed:
            resend(now, welcome, self._uplink, self._table, self.casts)
            self.declarations.tell_again(now)

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """End calls that the router should have ended by now, or without keep-alives; then tick the casts."""
        if self._had_router and not self._uplink.ready:
            self._await_router_no_longer()
            self._had_router = False
        if not self._is_catching_up(now):
            self._end_overdue(now)
        self.casts.tick(now)

    def _await_router_no_longer(self) -> None:
        """The router is gone: calls end at their deadlines, unless one is there by then."""
        for call in self.open.values():
            before = call.slot
            if call.timeout is not None and before is not None and not call.flags & _STREAM:
                self._table.check_at(call, call.sent_at + call.timeout)
                if call.slot is not before:
                    before.pop(call.key, None)

    def _end_overdue(self, now: float) -> None:
        for call in self._wheel.expire(now):
            call.slot = None
            if not call.done and call.timeout is not None:
                self._check_timeout(now, call, call.timeout)
        for call in [c for c in self._watched.values() if now - c.sign_of_life >= (c.silence or 0.0)]:
            self._expire(now, call, f"no sign of life for {call.silence:g} s")

    def _is_catching_up(self, now: float) -> bool:
        """Return whether this process was held up, and messages of that time may still come. Never twice in a row."""
        if now < self._not_before:
            return True
        due = self._overdue_at()
        if not self._not_before and due is not None and now - due > _LATE and self._uplink.ready:
            self._not_before = now + _GRACE
            return True
        self._not_before = 0.0
        return False

    def _check_timeout(self, now: float, call: Call, timeout: float) -> None:
        if call.flags & _STREAM and call.waiter is None:
            # The caller is busy with the items it has: nothing is overdue.
            if self._uplink.ready:
                self.send_grant(now, call, _NO_ITEMS)
            self._table.check_at(call, now + timeout / 2)
        elif call.flags & _STREAM and now < call.sign_of_life + timeout + _GRACE:
            self._table.check_at(call, min(now + timeout / 2, call.sign_of_life + timeout + _GRACE))
        elif self._uplink.ready and now < call.sent_at + timeout + _GRACE:
            # It was made while there was no router.
            self._table.check_at(call, call.sent_at + timeout + _GRACE)
        else:
            self._expire(now, call, f"no answer within {timeout:g} s")

    def _expire(self, now: float, call: Call, awaited: str) -> None:
        error = timeout_error(now, call, self._uplink, awaited, self._was_never_accepted(call))
        self.cancel(call)
        self._table.fail(call, error)

    def expire_not_accepted(self, now: float) -> None:
        """End each call that no router has now, as if its time were over. It did not run if none ever had it."""
        unsent, returned = set(self._unsent_messages()), self._table.not_accepted
        for call in list(self.open.values()):
            if not call.flags & Flag.IDEMPOTENT and (call.key in returned or call.message in unsent):
                self._expire(now, call, "no answer")

    def _was_never_accepted(self, call: Call) -> bool:
        """Return whether it is certain that no router has passed ``call`` on."""
        if call.flags & Flag.IDEMPOTENT or call.message[LOW_FLAGS_AT] & Flag.RESENT:
            return False  # one that was lost before may be on its way again, or a former router may have passed it on
        return call.key in self._table.not_accepted or call.message in self._unsent_messages()

    def _unsent_messages(self) -> list[bytes]:
        return self._uplink.held if self._uplink.ready else self._uplink.outbox

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds); None if there is none."""
        overdue = self._overdue_at()
        due = [] if overdue is None else [max(overdue, self._not_before)]
        due.extend(d for d in self.casts.deadlines() if d is not None)
        return min(due, default=None)

    def _overdue_at(self) -> float | None:
        due = [c.sign_of_life + (c.silence or 0.0) for c in self._watched.values()]
        if (timeout := self._wheel.next_deadline()) is not None:
            due.append(timeout)
        return min(due, default=None)

    @property
    def casts_at_risk(self) -> int:
        """Casts and events that the router may not have: neither acknowledged, nor known to be a consumer's."""
        return self.casts.at_risk

    def _is_awaiting_router(self) -> bool:
        """Return whether the router has, as far as is known, a call that has not ended or a cast no consumer has."""
        if len(self.casts.retained):
            return True
        return any(True for _ in self._taken_calls())

    def _taken_calls(self) -> Iterator[Call]:
        """Iterate over the open calls that the router has, or may have."""
        waiting = self._table.not_accepted.union(message[KEY] for message in self._uplink.held)
        return (call for key, call in self.open.items() if key not in waiting)

    def close(self, now: float) -> None:
        """Report the losses not yet reported. To be called at the end."""
        self.casts.close(now)


def _milliseconds(seconds: float) -> int:
    """Return ``seconds`` as the wire's ttl."""
    milliseconds = int(seconds * 1000)
    return milliseconds if 0 < milliseconds < NO_TTL else max(1, min(NO_TTL - 1, milliseconds))
