"""Casts and events of this process until the router acknowledges them, and casts until a consumer has them.

**The window.** ``open`` counts the casts and events that the router does not have, as far as is known: those it has not
acknowledged, and those it gave back, which wait here. Each counts once, though there may be several *copies* of it: one
that was refused, and is not acknowledged yet, and one that waits or was sent since. :meth:`Casts.has_room` tells
whether one more may be sent. A full queue stalls its own destination only: what it refused waits in ``refused`` and is
offered again.

**Retained casts.** A router that acknowledges deliveries lets the sender retain each cast until a consumer has it: if
the router is killed, its next life gets them again (:meth:`Casts.take_resendable`). A process that goes on at
another router leaves them behind: the former one may live, and whoever has them from there must not get them twice.
Unless that has shut down in order: then it has said which ones a consumer has, and the others go along. Or if both are
of a mesh whose routers ask all consumers before they start what was sent to another one: then all go along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container
from math import inf

from rpcmq.core.process.losses import Losses
from rpcmq.core.process.mesh_moves import for_next_owner
from rpcmq.core.process.refused_casts import RefusedCasts
from rpcmq.core.process.retained_casts import RetainedCasts, by_sequence
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
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
        open, open_bytes: casts and events that the router has not acknowledged, or has given back, and their size.
        refused: casts that full queues refused, waiting to be offered again.
        returned: casts and events, by key, that a router that is shutting down has given back.
        retained: casts that the router has acknowledged, and no consumer yet.
        losses: what was dropped, refused or discarded.
    """

    __slots__ = (
        "_ask_at", "_confirmed", "_on_refused", "_retains", "_retry_at", "_superseded", "_uplink", "counters", "losses",
        "open", "open_bytes", "refused", "retained", "returned",
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
        self.returned: dict[bytes, bytes] = {}
        #: Keys of those that the router has confirmed, and not acknowledged: it has them.
        self._confirmed: set[bytes] = set()
        #: Copies that count no more, because another waits or was sent since: how many of each key are unacknowledged.
        self._superseded: dict[bytes, int] = {}
        #: The times to offer refused casts again, and to ask the router next which messages it has received.
        self._retry_at: float | None = None
        self._ask_at = 0.0
        uplink.on_acknowledged = self._on_acknowledged
        uplink.on_interrupted = self.recount
        uplink.handle(Kind.DELIVERED, self._on_delivered)
        uplink.handle(Kind.DROPPED, self.losses.on_dropped)

    # --- sending -----------------------------------------------------------------------------

    def send(self, message: bytes, address: bytes) -> None:
        """Send an unconfirmed cast or event."""
        try:
            self.open += 1
            self.open_bytes += size_of(message)
            if self._retains:
                self.retained.retain(message)
            if not self.refused.queues or not self.refused.wait_behind(message, address):
                self._uplink.send(message)
        except BaseException:
            self._sending_was_interrupted(message)
            raise

    def send_confirmed(self, message: bytes) -> None:
        """Send a cast or event whose confirmation is waited for."""
        try:
            self._count(message)
            self.retain(message)
            self._uplink.send(message)
        except BaseException:
            self._sending_was_interrupted(message)
            raise

    def _sending_was_interrupted(self, message: bytes) -> None:
        """Find out whether ``message`` is on its way: a signal's handler can raise between any two steps."""
        if message[KEY] not in self.recount():
            self.forget(message[KEY])

    def retain(self, message: bytes) -> None:
        """Retain the cast ``message``, which is counted already."""
        if self._retains:
            self.retained.retain(message)

    def withdraw(self, message: bytes) -> None:
        """Forget the message ``message``, which was taken out of the outbox."""
        self.forget(message[KEY])
        if message[KIND_AT] in RETAINED_KINDS:
            self._uncount(message)

    def forget(self, key: bytes) -> None:
        """Retain the message with ``key`` no longer; nothing happens if it was not retained."""
        self.retained.forget(key[SEQUENCE_OF_KEY])

    def has_room(self, address: bytes, casts: int, size_bytes: int, total_bytes: int) -> bool:
        """Return whether another cast to ``address`` may be sent.

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
        if not self.open:
            return 0
        confirmed, retains, has_ended = self._confirmed, self._retains, self.retained.has_ended
        sent = self._uplink.sent
        return self.open - len({m[KEY] for m in sent if m[KEY] in confirmed or (retains and has_ended(m))})

    def _count(self, message: bytes) -> None:
        self.open += 1
        self.open_bytes += size_of(message)

    def _uncount(self, message: bytes) -> None:
        self.open -= 1
        self.open_bytes -= size_of(message)

    # --- from the router ---------------------------------------------------------------------

    def _on_acknowledged(self, messages: list[bytes]) -> None:
        refused, superseded = self.refused, self._superseded
        for message in messages:
            if message[KIND_AT] in RETAINED_KINDS:
                if superseded and message[KEY] in superseded:
                    self._forget_copy(message[KEY])
                    continue
                self._uncount(message)
                if refused.queues and message[LOW_FLAGS_AT] & _RESENT:
                    refused.forget(message)
        if self._confirmed:
            self._confirmed.difference_update(message[KEY] for message in messages)

    def _forget_copy(self, key: bytes) -> None:
        copies = self._superseded[key] - 1
        if copies:
            self._superseded[key] = copies
        else:
            del self._superseded[key]

    def _supersede(self, sent: bytes | None, message: bytes) -> None:
        """Count ``message``, which waits or is sent again, in place of ``sent``, if that is unacknowledged."""
        self._count(message)
        if sent is not None:
            self._uncount(sent)
            self._superseded[sent[KEY]] = self._superseded.get(sent[KEY], 0) + 1

    def on_confirmed(self, key: bytes) -> None:
        """Handle the confirmation of the message with ``key``: the router has it."""
        if self._uplink.find_sent(key) is not None:
            self._confirmed.add(key)

    def _on_delivered(self, now: float, message: bytes) -> None:
        self.retained.forget(payload_of(message))

    def on_error(self, now: float, key: bytes, outcome: int, error: CallError) -> bool:
        """Handle the refusal of the message with ``key``, which nobody waits for.

        Returns:
            False if it is no cast or event that is sent again or replaced.
        """
        sent = self._uplink.find_sent(key)
        message = sent or self._uplink.find_arrived(key) or self.retained.get(key)
        if outcome not in _REOFFERED:
            self.forget(key)
        if message is None or message[KIND_AT] not in RETAINED_KINDS or message[LOW_FLAGS_AT] & _CONFIRM:
            return False
        if outcome in _REOFFERED:
            if message[KEY] not in self.returned and not self.refused.is_waiting(message):
                self._supersede(sent, message)
                self._put_back(now, message, outcome, error)
        else:
            other = self._on_refused(message, error)
            if other is not None:
                self._supersede(sent, other)
                self.retain(other)
                self._uplink.send(other)
            else:
                self.counters["casts refused"] += 1
                self.losses.add_refused(now, message, error)
        return True

    def _put_back(self, now: float, message: bytes, outcome: object, error: CallError) -> None:
        if outcome == Outcome.DRAINING:
            self.refused.forget(message)
            self.returned[message[KEY]] = message
            return
        self.refused.put_back(message, error)
        self._retry_at = self._retry_at or now + _RETRY_CAST
        self.counters["casts put back"] += 1

    def refuse(self, message: bytes, error: CallError) -> None:
        """Report that ``message`` was refused for good, and that nothing is sent instead."""
        self.counters["casts refused"] += 1
        self._on_refused(message, error)

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
        self.losses.report(now, self.retained)

    def _reoffer(self) -> None:
        try:
            for message in self.refused.in_order():
                self._uplink.send(self._uplink.with_current_origin(with_flag(message, _RESENT)))
                self.refused.offer(message)
            self._retry_at = None
        except BaseException:
            self.recount()
            raise

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
        self.losses.report(now, self.retained)
        self.losses.report(inf, self.retained)

    # --- the link comes back -----------------------------------------------------------------

    def take_resendable(self, welcome: Welcome, unsent: set[bytes], awaited: Container[bytes]) -> dict[bytes, bytes]:
        """Return the casts and events to send again, by their former keys, in order, each once.

        One that a full queue gave back may have been sent more than once, and waits here as well. Those that the router
        had are offered to its next life, and to another router if it has shut down in order or that one asks the
        consumers: in this one, or in one that may live, they are not lost. One that a consumer has, or that was refused
        for good, is not among them, even if only the acknowledgement was lost.

        Args:
            unsent: keys of the messages that were never sent.
            awaited: keys of the messages somebody waits for.
        """
        waiting = self.refused.clear()
        # Sent casts were retained if the former router acknowledged deliveries, whatever the new one does.
        sent = [message for message in welcome.sent if not (self._retains and self.retained.has_ended(message))]
        messages = [*self.returned.values(), *sent, *waiting]
        messages = [message for message in messages if message[KIND_AT] in RETAINED_KINDS]
        self.returned, self._retry_at = {}, None
        self._confirmed.clear()
        is_adopted = self._uplink.moves.is_adopted_by(welcome)
        is_next_life = welcome.next_life and welcome.same_handle
        if is_next_life or is_adopted or (welcome.elsewhere and welcome.drained):
            retained = {message[KEY]: message for message in self.retained}
            known = unsent.union(message[KEY] for message in messages)
            for key in retained.keys() - known:
                message = retained[key]
                messages.append(message if key in awaited else without_flag(message, _CONFIRM_OR_MANDATORY))
        elif welcome.elsewhere:
            self._leave_behind({message[KEY] for message in self.retained} - unsent - {m[KEY] for m in messages})
        messages.sort(key=by_sequence)
        ours = self._uplink.with_current_origin
        resent = for_next_owner if is_adopted else _as_resent
        again = {message[KEY]: ours(resent(_without_unneeded_confirm(message, awaited))) for message in messages}
        self._retains = self._uplink.tells_delivered
        # Deliveries of the others would never be acknowledged.
        first = [ours(message) for message in welcome.unsent]
        self.retained.replace_all([*first, *again.values()] if self._retains else [])
        return again

    def _leave_behind(self, keys: Collection[bytes]) -> None:
        if keys:
            self.counters["casts left behind"] += len(keys)
            self.losses.on_loss(
                f"{len(keys)} casts waiting for a consumer are held by the former router only, and are lost if it was "
                "killed: this process goes on at another one"
            )

    def recount(self) -> Collection[bytes]:
        """Count anew the casts and events there are, and return their keys.

        To be called when a session has begun anew, and when a signal has interrupted what changes the counts.
        """
        uplink = self._uplink
        queued = [message for message in (*uplink.outbox, *uplink.held) if message[KIND_AT] in RETAINED_KINDS]
        sent = [message for message in uplink.sent if message[KIND_AT] in RETAINED_KINDS]
        self.refused.recount({message[KEY] for message in sent}, {message[KEY] for message in queued})
        self.retained.recount()
        copies = [*sent, *queued, *self.refused.in_order(), *self.returned.values()]
        self._superseded = {key: n - 1 for key, n in Counter(copy[KEY] for copy in copies).items() if n > 1}
        latest = {copy[KEY]: copy for copy in copies}
        self.open, self.open_bytes = len(latest), sum(map(size_of, latest.values()))
        return latest


def _without_unneeded_confirm(message: bytes, awaited: Container[bytes]) -> bytes:
    """Return ``message`` without CONFIRM if nobody waits for it: a refusal would otherwise be final."""
    if not message[LOW_FLAGS_AT] & _CONFIRM or message[KEY] in awaited:
        return message
    return without_flag(message, _CONFIRM_OR_MANDATORY)


def _as_resent(message: bytes) -> bytes:
    return with_flag(message, _RESENT)
