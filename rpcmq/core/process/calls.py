"""The caller's side of a process: tracks calls until they end, and casts until a consumer has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Any

from rpcmq.core.common.drops import Drop, Drops, drop_text
from rpcmq.core.common.log_limit import LogLimit
from rpcmq.core.common.timing_wheel import DeadlineWheel
from rpcmq.core.process.refused import Refused
from rpcmq.core.process.retained import Keeping, by_sequence
from rpcmq.core.process.uplink import Uplink, Welcome
from rpcmq.errors import CallError, CallTimeout, LinkLost, Outcome, ProtocolError, error_for
from rpcmq.wire import (
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    NO_TTL,
    ORIGIN,
    SEQUENCE,
    SEQUENCE_OF_KEY,
    Address,
    Flag,
    Kind,
    address_of,
    body_of,
    message,
    payload_of,
    size_of,
    with_flag,
    with_origin,
    with_ttl,
    without_flag,
)

__all__ = ["STREAM_WINDOW", "Call", "Caller"]

#: Items of a stream that a caller grants ahead of the one it asks for.
STREAM_WINDOW = 16
#: Grace after the deadline in which a caller waits for the router to explain the timeout (seconds).
_GRACE = 0.5
#: Pause before a refused cast is offered again (seconds).
_RETRY_CAST = 0.1
#: Interval of acknowledgement requests while casts or events are unacknowledged (seconds). By itself the router does so
#: after 128 messages only, and messages not known to have arrived when a process ends count as lost.
_ASK_EVERY = 0.25
#: Memory bound of the table of drops (bytes), and characters of a name in it.
_MAX_DROPS_BYTES = 256 << 10
_MAX_NAME = 600
_MAX_COUNT = 1 << 40
#: Bounds of unread progress reports: their number, and their approximate bytes.
_MAX_PROGRESS = 100
_MAX_PROGRESS_BYTES = 16 << 20
#: Kinds that the sender retains until the router acknowledges them.
_CAST, _PUBLISH = int(Kind.CAST), int(Kind.PUBLISH)
_KEPT = (_CAST, _PUBLISH)
_RESENT = Flag.RESENT
#: Reasons of refusals after which the cast is offered again.
_OFFERED_AGAIN = (Outcome.DRAINING, Outcome.OVERLOADED)
_CALLS = (Kind.REQUEST, Kind.QUERY, Kind.INTRODUCE, Kind.DECLARE)


class Call:
    """An awaited message: a call, a multicall, or a cast to be confirmed."""

    __slots__ = (
        "address", "answer", "error", "flags", "given", "items", "key", "message", "progress", "seal", "sent_at",
        "sign_of_life", "silence", "slot", "timeout", "waiter", "withdrawn",
    )  # fmt: skip

    def __init__(self, address: str, flags: int, timeout: float | None) -> None:
        self.address = address
        self.flags = flags
        #: Seconds; for a stream, those between items.
        self.timeout = timeout
        self.key = b""
        self.message = b""
        self.slot: dict[Any, Call] | None = None
        self.sent_at = 0.0
        #: The last message: REPLY, FAULT, END or CONFIRM.
        self.answer: bytes | None = None
        self.error: CallError | None = None
        self.items: list[bytes] = []
        self.progress: list[bytes] = []
        #: Owned by the shell: the signature tag to which answers are bound, if the request is signed.
        self.seal: Any = None
        #: Items of a stream handed out since the consumer was last granted more.
        self.given = 0
        #: Longest silence allowed (seconds), and the last sign of life.
        self.silence: float | None = None
        self.sign_of_life = 0.0
        #: Owned by the shell: called when the call has ended, or has an item or progress.
        self.waiter: Callable[[], None] | None = None
        #: Cancelled before any router received it.
        self.withdrawn = False

    def add_progress(self, part: bytes) -> None:
        """Queue a progress report for the waiter; if it does not keep up, only the newest are kept."""
        progress = self.progress
        progress.append(part)
        size = sum(map(size_of, progress)) if part[LOW_FLAGS_AT] & Flag.DETACHED else 0
        while len(progress) > _MAX_PROGRESS or (size > _MAX_PROGRESS_BYTES and len(progress) > 1):
            size -= size_of(progress.pop(0))

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self.answer is not None or self.error is not None


class Caller:
    """Calls and casts over one uplink. ``changed`` lists the calls whose waiters are to be woken.

    Args:
        uplink: the link to the router.
        on_cast_refused: called with a cast that will not be taken as it is, and why; gives what to send instead.
        kept: how many casts are kept until a consumer has them.
        kept_bytes: how many bytes of them.
    """

    def __init__(
        self,
        uplink: Uplink,
        on_cast_refused: Callable[[bytes, CallError], bytes | None],
        kept: int = 10_000,
        kept_bytes: int = 16 << 20,
    ) -> None:
        self._uplink = uplink
        #: Casts that the router has, and no consumer yet.
        self.keeping = Keeping(kept, kept_bytes)
        self._keeps = False
        self._on_cast_refused = on_cast_refused
        self._wheel: DeadlineWheel[Call] = DeadlineWheel()
        self._watched: dict[bytes, Call] = {}
        #: Casts that full queues refused, waiting to be offered again.
        self.refused = Refused()
        self._retry_at: float | None = None
        #: When to ask the router next which messages it has received.
        self._ask_at = 0.0
        #: Messages returned by a router that is shutting down.
        self._returned: list[bytes] = []
        self._not_accepted: set[bytes] = set()
        self.calls: dict[bytes, Call] = {}
        self.changed: list[Call] = []
        #: Casts that the router has not acknowledged, and their size.
        self.casts_open = 0
        self.cast_bytes_open = 0
        self.counters: Counter[str] = Counter()
        #: Drops of this process's messages, as reported by the router.
        self.drops = Drops(_MAX_DROPS_BYTES)
        #: Retained casts that were discarded: how many were counted here, and when to log them.
        self._let_go_counted = 0
        self._let_go_log: LogLimit[str] = LogLimit()
        #: Owned by the shell: called with a sentence for the log.
        self.on_loss: Callable[[str], None] = lambda text: None
        uplink.on_acknowledged = self._acknowledged
        for kind in (Kind.REPLY, Kind.FAULT, Kind.END, Kind.CONFIRM):
            uplink.handle(kind, self.ended)
        uplink.handle(Kind.ERROR, self._failed)
        uplink.handle(Kind.DELIVERED, self._delivered)
        uplink.handle(Kind.DROPPED, self._told_drops)
        uplink.handle(Kind.ITEM, self._item)
        uplink.handle(Kind.ALIVE, self._alive)
        uplink.handle(Kind.ANSWER, self.ended)
        uplink.handle(Kind.REGISTERED, self.ended)
        uplink.handle(Kind.SUBSCRIBED, self.ended)

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
        call.key = key = self._uplink.next_key()
        call.message = part = message(
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
        self.calls[key] = call
        if timeout is not None:
            # Inlined `_look_at`, for speed. A stream is checked often enough to tell the router in
            # time that its caller is busy.
            due = now + (timeout / 2 if call.flags & Flag.STREAM else timeout + _GRACE)
            call.slot = slot = self._wheel.slot(due)
            slot[key] = call
        if call.silence is not None:
            self._watched[key] = call
        if kind in _KEPT:
            self._count_cast(part)
            self._keep(part)
        self._uplink.send(part)
        return call

    def cast(self, part: bytes, address: bytes) -> None:
        """Send an unconfirmed cast or event."""
        self._count_cast(part)
        self._keep(part)
        if not self.refused.queues or not self.refused.wait_behind(part, address):
            self._uplink.send(part)

    def cancel(self, call: Call) -> None:
        """Nobody waits for ``call`` any more."""
        if call.done or call.key not in self.calls:
            return
        self._forget(call)
        if self._unsend(call):
            call.withdrawn = not call.message[LOW_FLAGS_AT] & _RESENT
        else:
            self._uplink.send(message(Kind.CANCEL, key=call.key))

    def grant(self, now: float, call: Call, items: int) -> None:
        """The consumer may send ``items`` more. The time for the next item starts again, even with 0."""
        call.sign_of_life = now
        self._uplink.send(message(Kind.GRANT, items.to_bytes(4), key=call.key))

    def has_room(self, address: bytes, casts: int, size_bytes: int, total_bytes: int) -> bool:
        """Whether another cast to ``address`` may be sent.

        A full queue holds up the casts to its own destination only: of the others those count that are on their way.

        Args:
            casts, size_bytes: so many may be on their way, with those that wait for a full queue of this address.
            total_bytes: so many of all casts, with all that wait for full queues.
        """
        if self.cast_bytes_open >= total_bytes:
            return False
        refused = self.refused
        open_casts, open_bytes = self.casts_open - refused.casts, self.cast_bytes_open - refused.size_bytes
        if refused.queues and (queue := refused.queues.get(address)) is not None:
            open_casts += queue.casts
            open_bytes += queue.size_bytes
        return open_casts < casts and open_bytes < size_bytes

    # --- from the router ---------------------------------------------------------------------

    def ended(self, now: float, part: bytes) -> None:
        """The last message of a call: REPLY, FAULT, END, CONFIRM or the answer to a question."""
        call = self.calls.get(part[KEY])
        if call is None:
            self.counters["late replies"] += 1
            return
        call.answer = part
        self._forget(call)
        self.changed.append(call)

    def _failed(self, now: float, part: bytes) -> None:
        body = body_of(part)
        outcome, details = body.get("outcome"), body.get("details")
        error = error_for(
            outcome if type(outcome) is int else Outcome.PROTOCOL,
            str(body.get("text", "")),
            details if isinstance(details, dict) else None,
        )
        call = self.calls.get(part[KEY])
        if call is None:
            self._cast_refused(now, part[KEY], outcome, error)
            return
        if outcome == Outcome.DRAINING:
            # Not accepted and not run: it is sent again to the router's next incarnation.
            self._not_accepted.add(call.key)
            return
        error.details.setdefault("outcome", outcome)
        self.keeping.forget(call.key[SEQUENCE_OF_KEY])
        self._fail(call, error)

    def _delivered(self, now: float, part: bytes) -> None:
        self.keeping.forget(payload_of(part))

    def _told_drops(self, now: float, part: bytes) -> None:
        rows = body_of(part).get("dropped")
        for row in rows if isinstance(rows, list) else ():
            try:
                topic, verb, reason, count = row
            except (TypeError, ValueError):
                count = None
            if type(count) is not int or not 0 < count <= _MAX_COUNT:
                raise ProtocolError("DROPPED has a row that is not topic, verb, reason and count", "body")
            self.drops.add(now, Drop(_named(topic), _named(verb), _named(reason)), count)

    def _fail(self, call: Call, error: CallError) -> None:
        call.error = error
        self._forget(call)
        self.changed.append(call)

    def _item(self, now: float, part: bytes) -> None:
        call = self.calls.get(part[KEY])
        if call is None:
            self.counters["late items"] += 1
            return
        call.sign_of_life = now
        if call.flags & Flag.STREAM:
            call.items.append(part)
            self.changed.append(call)
            return
        # Only the last item is the result of a call; its timeout is that of the whole call.
        call.items[:] = [part]
        self.grant(now, call, 1)

    def _alive(self, now: float, part: bytes) -> None:
        call = self.calls.get(part[KEY])
        if call is not None:
            call.sign_of_life = now
            if len(payload_of(part)):
                call.add_progress(part)
                self.changed.append(call)

    # --- casts -------------------------------------------------------------------------------

    @property
    def _asks(self) -> bool:
        return self.casts_open > 0 and self._uplink.unacknowledged > 0

    @property
    def casts_at_risk(self) -> int:
        """Casts and events that the router may not have: neither acknowledged, nor known to be a consumer's."""
        if not self.casts_open or not self._keeps:
            return self.casts_open
        has_ended = self.keeping.has_ended
        return self.casts_open - sum(has_ended(part) for part in self._uplink.sent)

    def _keep(self, part: bytes) -> None:
        if self._keeps:
            self.keeping.keep(part)

    def _count_cast(self, part: bytes) -> None:
        self.casts_open += 1
        self.cast_bytes_open += size_of(part)

    def _uncount_cast(self, part: bytes) -> None:
        self.casts_open -= 1
        self.cast_bytes_open -= size_of(part)

    def _acknowledged(self, parts: list[bytes]) -> None:
        refused = self.refused
        for part in parts:
            if part[KIND_AT] in _KEPT:
                self._uncount_cast(part)
                if refused.queues and part[LOW_FLAGS_AT] & _RESENT:
                    refused.acknowledged(part)

    def _cast_refused(self, now: float, key: bytes, outcome: object, error: CallError) -> None:
        part = self._uplink.find_sent(key) or self.keeping.get(key)
        if outcome not in _OFFERED_AGAIN:
            self.keeping.forget(key[SEQUENCE_OF_KEY])
        if part is None or part[KIND_AT] not in _KEPT or part[LOW_FLAGS_AT] & Flag.CONFIRM:
            # A call, or a cast to be confirmed, that was abandoned.
            self.counters["late errors"] += 1
        elif outcome == Outcome.DRAINING:
            self._count_cast(part)
            self._returned.append(part)
        elif outcome == Outcome.OVERLOADED:
            if self.refused.put_back(part, error):
                self._count_cast(part)
            self._retry_at = self._retry_at or now + _RETRY_CAST
            self.counters["casts put back"] += 1
        else:
            other = self._on_cast_refused(part, error)
            if other is not None:
                self._count_cast(other)
                self._keep(other)
                self._uplink.send(other)
            else:
                self.counters["casts refused"] += 1
                verb = (
                    "event"
                    if part[KIND_AT] == Kind.PUBLISH
                    else "fanout"
                    if part[LOW_FLAGS_AT] & Flag.FANOUT
                    else "cast"
                )
                name = str(Address.decode(address_of(part)))
                # The shell has logged it, with its reason.
                self.drops.add(now, Drop(name, verb, error.outcome.name.lower().replace("_", " ")), log=False)

    def _offer_again(self) -> None:
        self._retry_at = None
        for part in self.refused.take_waiting():
            self._uplink.send(self._ours(with_flag(part, Flag.RESENT)))

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """End calls that the router should have ended by now, or without keep-alives."""
        for call in self._wheel.expire(now):
            call.slot = None
            timeout = call.timeout
            if call.done or timeout is None:
                continue
            if call.flags & Flag.STREAM and call.waiter is None:
                # The caller is busy with the items it has: nothing is overdue.
                if self._uplink.ready:
                    self.grant(now, call, 0)
                self._look_at(call, now + timeout / 2)
            elif call.flags & Flag.STREAM and now < call.sign_of_life + timeout + _GRACE:
                self._look_at(call, min(now + timeout / 2, call.sign_of_life + timeout + _GRACE))
            else:
                self._expire(now, call, f"no answer within {timeout:g} s")
        for call in [c for c in self._watched.values() if now - c.sign_of_life >= (c.silence or 0.0)]:
            self._expire(now, call, f"no sign of life for {call.silence:g} s")
        if self._retry_at is not None and now >= self._retry_at and self._uplink.ready:
            self._offer_again()
        if self._asks and now >= self._ask_at and self._uplink.ready:
            self._ask_at = now + _ASK_EVERY
            self._uplink.ask_acknowledgement()
        self._report_losses(now)

    def _report_losses(self, now: float) -> None:
        let_go = self.keeping.let_go
        if let_go > self._let_go_counted:
            self._let_go_log.add(now, "", let_go - self._let_go_counted)
            self._let_go_counted = let_go
        for drop, count in self.drops.due(now):
            self.on_loss(drop_text(drop, count))
        for _, count in self._let_go_log.due(now):
            self.on_loss(
                f"{count} casts waiting for a consumer are held by the router only, and are lost if it is killed: "
                "this process retains at most cast_kept casts and cast_kept_bytes bytes of them"
            )

    def close(self, now: float) -> None:
        """Report the losses not yet reported. To be called at the end."""
        self._report_losses(now)
        self._report_losses(inf)

    def _look_at(self, call: Call, due: float) -> None:
        call.slot = self._wheel.slot(due)
        call.slot[call.key] = call

    def _expire(self, now: float, call: Call, what: str) -> None:
        uplink = self._uplink
        details: dict[str, Any] = {"topic": call.address, "waited_seconds": round(now - call.sent_at, 3)}
        not_taken = self._is_not_taken(call)
        if not_taken and uplink.ready:
            details["router"] = "shutting down"
            text = f"{what} from {call.address!r}: the router is shutting down and has not accepted it"
        elif uplink.ready:
            silent = now - uplink.heard
            details["router_silent_seconds"] = round(silent, 3)
            state = "has been silent for" if uplink.silent_seconds(now) else "was last heard"
            text = (
                f"{what} from {call.address!r}; the router {state} {silent:.1f} s{'' if 'silent' in state else ' ago'}"
            )
        else:
            details["router"] = "not connected"
            text = f"{what} from {call.address!r}: no connection to the router for {now - uplink.lost_at:.1f} s"
        if not_taken:
            details["started"] = "no"
            text += "; it did not run"
        self.cancel(call)
        self._fail(call, CallTimeout(text, details))

    def _is_not_taken(self, call: Call) -> bool:
        """Whether it is certain that no router has passed ``call`` on."""
        uplink = self._uplink
        if call.flags & Flag.IDEMPOTENT:
            return False  # one that was lost before may be on its way again
        waiting = uplink.held if uplink.ready else uplink.outbox
        return call.key in self._not_accepted or call.message in waiting

    def next_deadline(self) -> float | None:
        """When :meth:`tick` wants to be called."""
        due = [c.sign_of_life + (c.silence or 0.0) for c in self._watched.values()]
        ready = self._uplink.ready
        retry_at = self._retry_at if ready else None
        ask_at = max(self._ask_at, self._uplink.heard) if ready and self._asks else None
        losses = self.drops.next_deadline(), self._let_go_log.next_deadline()
        due.extend(d for d in (self._wheel.next_deadline(), retry_at, ask_at, *losses) if d is not None)
        if self.keeping.let_go > self._let_go_counted:
            due.append(self._uplink.heard)
        return min(due, default=None)

    # --- the link comes back -----------------------------------------------------------------

    def welcome(self, now: float, welcome: Welcome) -> None:
        """Handle WELCOME. If the router does not know us, decide about messages in flight."""
        if welcome.resumed:
            return
        unsent = {part[KEY] for part in welcome.unsent}
        again = self._casts_again(welcome, unsent)
        old = {} if welcome.same_handle else self.calls
        if old:
            self.calls = {}
        for part in again.values():
            self._uplink.send(part)
        for key, call in list((old or self.calls).items()):
            if old:
                self._rename(call)
            if key in unsent:
                continue
            kind = call.message[KIND_AT]
            if kind == Kind.REQUEST and not call.flags & Flag.IDEMPOTENT and key not in self._not_accepted:
                text = f"the router went away with the call to {call.address!r} in flight; it may have run"
                self._fail(call, LinkLost(text, {"topic": call.address, "started": "unknown"}))
            elif kind in _CALLS:
                self._uplink.send(_with_time_left(now, call))
            elif kind in _KEPT and key not in again:
                # The router had it, and died before it confirmed that to the waiter.
                self._keep(call.message)
                self._uplink.send(with_flag(call.message, Flag.RESENT))
        self._not_accepted.clear()
        for part in welcome.unsent:
            waiting = (old or self.calls).get(part[KEY]) if part[KIND_AT] in _CALLS else None
            if waiting is not None:
                self._uplink.send(_with_time_left(now, waiting))
            elif part[KIND_AT] in _KEPT and part[KEY] not in again:
                self._uplink.send(self._ours(part))
        self._refuse_too_large()
        self.casts_open = self.cast_bytes_open = 0
        for part in self._uplink.outbox:
            if part[KIND_AT] in _KEPT:
                self._count_cast(part)

    def _refuse_too_large(self) -> None:
        """Remove messages that exceed this router's lower limit: it would cut each connection that sends them."""
        outbox, most = self._uplink.outbox, self._uplink.max_message_bytes
        large = [part for part in outbox if part[LOW_FLAGS_AT] & Flag.DETACHED and len(payload_of(part)) > most]
        if not large:
            return
        refused = set(map(id, large))
        outbox[:] = [part for part in outbox if id(part) not in refused]
        for part in large:
            self.keeping.forget(part[SEQUENCE])
            text = f"payload of {len(payload_of(part))} bytes exceeds the router's message.max_bytes = {most}"
            error = error_for(Outcome.PROTOCOL, text, {"limit": "message.max_bytes"})
            call = self.calls.get(part[KEY])
            if call is not None:
                self._fail(call, error)
            elif part[KIND_AT] in _KEPT:
                self.counters["casts refused"] += 1
                self._on_cast_refused(part, error)

    def _casts_again(self, welcome: Welcome, unsent: set[bytes]) -> dict[bytes, bytes]:
        """Return the casts and events to send again, by their former keys, in order, each once.

        One that a full queue gave back may have been sent more than once, and waits here as well. Those that the router
        had are offered to its next life only: in this one, or in another router, they are not lost. One that a consumer
        has, or that was refused for good, is not among them, even if only the acknowledgement was lost.
        """
        waiting = self.refused.clear()
        # Sent casts were retained if the former router acknowledged deliveries, whatever the new one does.
        sent = [part for part in welcome.sent if not (self._keeps and self.keeping.has_ended(part))]
        parts = [part for part in (*self._returned, *sent, *waiting) if part[KIND_AT] in _KEPT]
        self._returned, self._retry_at = [], None
        kept = {part[KEY]: part for part in self.keeping}
        if welcome.next_life and welcome.same_handle:
            known = unsent.union(part[KEY] for part in parts)
            for key in kept.keys() - known:
                part = kept[key]
                parts.append(part if key in self.calls else without_flag(part, Flag.CONFIRM | Flag.MANDATORY))
        parts.sort(key=by_sequence)
        again = {part[KEY]: self._ours(with_flag(self._unwatched(part), Flag.RESENT)) for part in parts}
        self._keeps = self._uplink.tells_delivered
        # Deliveries of the others would never be acknowledged.
        first = [self._ours(part) for part in welcome.unsent]
        self.keeping.restart([*first, *again.values()] if self._keeps else [])
        return again

    def _unwatched(self, part: bytes) -> bytes:
        """Return ``part`` without CONFIRM if nobody waits for it: a refusal would otherwise be final."""
        if not part[LOW_FLAGS_AT] & Flag.CONFIRM or part[KEY] in self.calls:
            return part
        return without_flag(part, Flag.CONFIRM | Flag.MANDATORY)

    def fail_all(self, error: CallError) -> None:
        """End every call with ``error``, and withdraw queued ones: the link is being closed."""
        for call in list(self.calls.values()):
            self.cancel(call)
            self._fail(call, error)

    def _rename(self, call: Call) -> None:
        """Give ``call`` the key that follows from our new handle."""
        slot, old = call.slot, call.key
        call.message = self._ours(call.message)
        call.key = call.message[KEY]
        self.calls[call.key] = call
        if slot is not None:
            slot[call.key] = slot.pop(old)
        if self._watched.pop(old, None) is not None:
            self._watched[call.key] = call

    def _ours(self, part: bytes) -> bytes:
        """Return ``part`` with our current origin."""
        origin = self._uplink.origin
        return part if part[ORIGIN] == origin else with_origin(part, origin)

    def _forget(self, call: Call) -> None:
        self.calls.pop(call.key, None)
        if call.slot is not None:
            call.slot.pop(call.key, None)
            call.slot = None
        if call.silence is not None:
            self._watched.pop(call.key, None)

    def _unsend(self, call: Call) -> bool:
        """Withdraw the message from the outbox; return False if it was sent."""
        uplink = self._uplink
        waiting = uplink.held if uplink.ready else uplink.outbox
        if call.message not in waiting:
            return False
        waiting.remove(call.message)
        self.keeping.forget(call.key[SEQUENCE_OF_KEY])
        if call.message[KIND_AT] in _KEPT:
            self._uncount_cast(call.message)
        return True


def _with_time_left(now: float, call: Call) -> bytes:
    """Return the message of ``call``, which has waited here, with its remaining time."""
    if call.timeout is not None and not call.flags & Flag.STREAM:
        left = max(1, int((call.sent_at + call.timeout - now) * 1000))
        call.message = with_ttl(call.message, min(left, NO_TTL - 1))
    return call.message


def _milliseconds(seconds: float) -> int:
    """As the wire carries how long a message may take."""
    milliseconds = int(seconds * 1000)
    return milliseconds if 0 < milliseconds < NO_TTL else max(1, min(NO_TTL - 1, milliseconds))


def _named(value: object) -> str:
    """Return a name received from the router, bounded for counters and the log."""
    return "".join(c if c.isprintable() else "?" for c in str(value)[:_MAX_NAME])
