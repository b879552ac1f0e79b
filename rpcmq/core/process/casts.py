"""Casts and events of this process until the router acknowledges them, and casts until a consumer has them.

**The window.** ``open`` counts the casts and events that the router has not acknowledged; :meth:`Casts.has_room` tells
whether one more may be sent. A full queue stalls its own destination only: what it refused waits in ``refused`` and is
offered again.

**Retained casts.** A router that acknowledges deliveries lets the sender retain each cast until a consumer has it: if
the router is killed, its next incarnation gets them again (:meth:`Casts.take_resendable`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container
from math import inf

from rpcmq.core.process.losses import Losses
from rpcmq.core.process.refused_casts import RefusedCasts
from rpcmq.core.process.retained_casts import RetainedCasts, by_sequence
from rpcmq.core.process.uplink import Uplink, Welcome
from rpcmq.errors import CallError, Outcome
from rpcmq.wire import (
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    SEQUENCE_OF_KEY,
    Flag,
    Kind,
    payload_of,
    size_of,
    with_flag,
    without_flag,
)

__all__ = ["RETAINED_KINDS", "Casts"]

#: Pause before a refused cast is offered again (seconds).
_RETRY_CAST = 0.1
#: Interval of acknowledgement requests while casts or events are unacknowledged (seconds). By itself the router does so
#: after 128 messages only, and messages not known to have arrived when a process ends count as lost.
_ASK_EVERY = 0.25
#: Kinds that the sender retains until the router acknowledges them.
RETAINED_KINDS = (int(Kind.CAST), int(Kind.PUBLISH))
#: Reasons of refusals after which the cast is offered again.
_REOFFERED = (Outcome.DRAINING, Outcome.OVERLOADED)
_CONFIRM, _RESENT = Flag.CONFIRM, Flag.RESENT
_CONFIRM_OR_MANDATORY = Flag.CONFIRM | Flag.MANDATORY


class Casts:
    """Casts and events over one uplink.

    Args:
        uplink: the link to the router.
        on_refused: called with a cast that the router refused for good, and the error; returns the message to send
            instead, or None.
        max_retained: most casts retained until a consumer has them.
        max_retained_bytes: most bytes of them.

    Attributes:
        open, open_bytes: casts and events that the router has not acknowledged, and their size.
        refused: casts that full queues refused, waiting to be offered again.
        retained: casts that the router has acknowledged, and no consumer yet.
        losses: what was dropped, refused or discarded.
    """

    __slots__ = (
        "_ask_at", "_on_refused", "_retains", "_retry_at", "_returned", "_uplink", "counters", "losses", "open",
        "open_bytes", "refused", "retained",
    )  # fmt: skip

    def __init__(
        self,
        uplink: Uplink,
        on_refused: Callable[[bytes, CallError], bytes | None],
        max_retained: int = 10_000,
        max_retained_bytes: int = 16 << 20,
    ) -> None:
        self._uplink = uplink
        self._on_refused = on_refused
        self.open = self.open_bytes = 0
        self.refused = RefusedCasts()
        self.retained = RetainedCasts(max_retained, max_retained_bytes)
        self.losses = Losses()
        self.counters: Counter[str] = Counter()
        #: Whether the router acknowledges deliveries.
        self._retains = False
        #: Messages returned by a router that is shutting down.
        self._returned: list[bytes] = []
        #: When to offer refused casts again, and when to ask the router next which messages it has received.
        self._retry_at: float | None = None
        self._ask_at = 0.0
        uplink.on_acknowledged = self._on_acknowledged
        uplink.handle(Kind.DELIVERED, self._on_delivered)
        uplink.handle(Kind.DROPPED, self.losses.on_dropped)

    # --- sending -----------------------------------------------------------------------------

    def send(self, part: bytes, address: bytes) -> None:
        """Send an unconfirmed cast or event."""
        # `track`, written out: this is the hot path.
        self.open += 1
        self.open_bytes += size_of(part)
        if self._retains:
            self.retained.retain(part)
        if not self.refused.queues or not self.refused.wait_behind(part, address):
            self._uplink.send(part)

    def track(self, part: bytes) -> None:
        """Count the cast or event ``part``, which the caller of this sends, and retain it where that has a purpose."""
        self.open += 1
        self.open_bytes += size_of(part)
        if self._retains:
            self.retained.retain(part)

    def retain(self, part: bytes) -> None:
        """Retain the cast ``part``, which is counted already."""
        if self._retains:
            self.retained.retain(part)

    def withdraw(self, part: bytes) -> None:
        """Forget the message ``part``, which was taken out of the outbox."""
        self.forget(part[KEY])
        if part[KIND_AT] in RETAINED_KINDS:
            self._uncount(part)

    def forget(self, key: bytes) -> None:
        """Retain the message with ``key`` no longer; nothing happens if it was not retained."""
        self.retained.forget(key[SEQUENCE_OF_KEY])

    def has_room(self, address: bytes, casts: int, size_bytes: int, total_bytes: int) -> bool:
        """Whether another cast to ``address`` may be sent.

        A full queue stalls its own destination only: of the other casts only those on their way count.

        Args:
            casts, size_bytes: limits of the casts on their way, with those that wait for a full queue of this address.
            total_bytes: limit of the bytes of all casts, with all that wait for full queues.
        """
        if self.open_bytes >= total_bytes:
            return False
        refused = self.refused
        open_casts, open_bytes = self.open - refused.casts, self.open_bytes - refused.size_bytes
        if refused.queues and (queue := refused.queues.get(address)) is not None:
            open_casts += queue.casts
            open_bytes += queue.size_bytes
        return open_casts < casts and open_bytes < size_bytes

    @property
    def at_risk(self) -> int:
        """Casts and events that the router may not have: neither acknowledged, nor known to be a consumer's."""
        if not self.open or not self._retains:
            return self.open
        has_ended = self.retained.has_ended
        return self.open - sum(has_ended(part) for part in self._uplink.sent)

    def _count(self, part: bytes) -> None:
        self.open += 1
        self.open_bytes += size_of(part)

    def _uncount(self, part: bytes) -> None:
        self.open -= 1
        self.open_bytes -= size_of(part)

    # --- from the router ---------------------------------------------------------------------

    def _on_acknowledged(self, parts: list[bytes]) -> None:
        refused = self.refused
        for part in parts:
            if part[KIND_AT] in RETAINED_KINDS:
                self._uncount(part)
                if refused.queues and part[LOW_FLAGS_AT] & _RESENT:
                    refused.acknowledged(part)

    def _on_delivered(self, now: float, part: bytes) -> None:
        self.retained.forget(payload_of(part))

    def on_error(self, now: float, key: bytes, outcome: object, error: CallError) -> bool:
        """Handle the refusal of the message with ``key``, which nobody waits for.

        Returns:
            False if it is no cast or event that is sent again or replaced.
        """
        part = self._uplink.find_sent(key) or self.retained.get(key)
        if outcome not in _REOFFERED:
            self.forget(key)
        if part is None or part[KIND_AT] not in RETAINED_KINDS or part[LOW_FLAGS_AT] & _CONFIRM:
            return False
        if outcome == Outcome.DRAINING:
            self._count(part)
            self._returned.append(part)
        elif outcome == Outcome.OVERLOADED:
            if self.refused.put_back(part, error):
                self._count(part)
            self._retry_at = self._retry_at or now + _RETRY_CAST
            self.counters["casts put back"] += 1
        else:
            other = self._on_refused(part, error)
            if other is not None:
                self.track(other)
                self._uplink.send(other)
            else:
                self.counters["casts refused"] += 1
                self.losses.add_refused(now, part, error)
        return True

    def refuse(self, part: bytes, error: CallError) -> None:
        """Report that ``part`` was refused for good, and that nothing is sent instead."""
        self.counters["casts refused"] += 1
        self._on_refused(part, error)

    # --- time --------------------------------------------------------------------------------

    @property
    def _awaits_acknowledgement(self) -> bool:
        return self.open > 0 and self._uplink.unacknowledged > 0

    def tick(self, now: float) -> None:
        """Offer refused casts again, ask for acknowledgements and report losses, each when it is due."""
        if self._uplink.ready:
            if self._retry_at is not None and now >= self._retry_at:
                self._reoffer()
            if self._awaits_acknowledgement and now >= self._ask_at:
                self._ask_at = now + _ASK_EVERY
                self._uplink.ask_acknowledgement()
        self.losses.report(now, self.retained.discarded)

    def _reoffer(self) -> None:
        self._retry_at = None
        for part in self.refused.take_waiting():
            self._uplink.send(self._uplink.with_current_origin(with_flag(part, _RESENT)))

    def deadlines(self) -> tuple[float | None, ...]:
        """The times at which :meth:`tick` has something to do (monotonic seconds)."""
        uplink = self._uplink
        retry_at = ask_at = None
        if uplink.ready:
            retry_at = self._retry_at
            ask_at = max(self._ask_at, uplink.heard) if self._awaits_acknowledgement else None
        discarded_at = uplink.heard if self.retained.discarded > self.losses.discarded else None
        return retry_at, ask_at, discarded_at, *self.losses.deadlines()

    def close(self, now: float) -> None:
        """Report the losses not yet reported. To be called at the end."""
        self.losses.report(now, self.retained.discarded)
        self.losses.report(inf, self.retained.discarded)

    # --- the link comes back -----------------------------------------------------------------

    def take_resendable(self, welcome: Welcome, unsent: set[bytes], awaited: Container[bytes]) -> dict[bytes, bytes]:
        """Return the casts and events to send again, by their former keys, in order, each once.

        One that a full queue gave back may have been sent more than once, and waits here as well. Those that the router
        had are offered to its next incarnation only: in this one, or in another router, they are not lost. One that a
        consumer has, or that was refused for good, is not among them, even if only the acknowledgement was lost.

        Args:
            unsent: keys of the messages that were never sent.
            awaited: keys of the messages somebody waits for.
        """
        waiting = self.refused.clear()
        # Sent casts were retained if the former router acknowledged deliveries, whatever the new one does.
        sent = [part for part in welcome.sent if not (self._retains and self.retained.has_ended(part))]
        parts = [part for part in (*self._returned, *sent, *waiting) if part[KIND_AT] in RETAINED_KINDS]
        self._returned, self._retry_at = [], None
        if welcome.next_life and welcome.same_handle:
            retained = {part[KEY]: part for part in self.retained}
            known = unsent.union(part[KEY] for part in parts)
            for key in retained.keys() - known:
                part = retained[key]
                parts.append(part if key in awaited else without_flag(part, _CONFIRM_OR_MANDATORY))
        parts.sort(key=by_sequence)
        ours = self._uplink.with_current_origin
        again = {part[KEY]: ours(with_flag(_without_unneeded_confirm(part, awaited), _RESENT)) for part in parts}
        self._retains = self._uplink.tells_delivered
        # Deliveries of the others would never be acknowledged.
        first = [ours(part) for part in welcome.unsent]
        self.retained.replace_all([*first, *again.values()] if self._retains else [])
        return again

    def recount(self) -> None:
        """Count the casts and events in the outbox as the open ones: all others have ended or were put into it."""
        self.open = self.open_bytes = 0
        for part in self._uplink.outbox:
            if part[KIND_AT] in RETAINED_KINDS:
                self._count(part)


def _without_unneeded_confirm(part: bytes, awaited: Container[bytes]) -> bytes:
    """Return ``part`` without CONFIRM if nobody waits for it: a refusal would otherwise be final."""
    if not part[LOW_FLAGS_AT] & _CONFIRM or part[KEY] in awaited:
        return part
    return without_flag(part, _CONFIRM_OR_MANDATORY)
