"""What the router keeps of the calls and casts in its hands: their deadlines and their ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from rpcmq.core.common.drops import Drop, DropNotices, Drops
from rpcmq.core.common.text import shortened
from rpcmq.core.common.timing_wheel import DeadlineWheel
from rpcmq.core.router import explain
from rpcmq.core.router.acknowledgements import Receipts
from rpcmq.core.router.dispatch_log import DispatchLog
from rpcmq.core.router.faults import reraise
from rpcmq.core.router.links import Link, LinkTable
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.topics import Pending, Queue
from rpcmq.core.router.turns import ERROR_STEPS, Turns
from rpcmq.errors import Outcome
from rpcmq.wire import NO_TTL, Flag, Kind, control, message

__all__ = ["ENDED_AT_ONCE", "Tracking"]

_OK = int(Outcome.OK)
#: Messages that expire, or lose their caller, in one go: each takes some 25 us, and all others wait meanwhile.
ENDED_AT_ONCE = 250
#: Why a message is dropped that is refused with this outcome.
_REFUSED = {
    Outcome.OVERLOADED: "queue full",
    Outcome.NO_CONSUMER: "no consumer",
    Outcome.PROTOCOL: "format not accepted",
}
#: Calls that came within so long have come together (seconds).
_TOGETHER = 0.0005


class Tracking:
    """Pending messages from their acceptance to their end, wherever they are meanwhile."""

    # CPython 3.11 finds attributes slowly, and methods with them, on instances that have more than 30 in a dict.
    __slots__ = (
        "_links", "_more_at", "_notices", "_settings", "_slot", "_slot_ttl", "_slot_until", "calls_in_flight",
        "counters", "draining", "drops", "ending", "log", "on_fault", "receipts", "turns", "wheel",
    )  # fmt: skip

    def __init__(self, settings: Settings, links: LinkTable) -> None:
        self._settings = settings
        self._links = links
        self.wheel: DeadlineWheel[Pending] = DeadlineWheel()
        self.calls_in_flight = 0
        self.draining = False
        #: Of a drain: nothing is waited for any more.
        self.ending = False
        self.counters: Counter[str] = Counter()
        self.receipts = Receipts(links)
        #: Where the work of a message that costs more than its own handling is counted.
        self.turns = Turns()
        #: Called in the handler of an exception that must cost one message only.
        self.on_fault: Callable[[float], None] = reraise
        self.drops = Drops()
        self._notices = DropNotices()
        #: Gets each message that has ended; None: off.
        self.log: DispatchLog | None = None
        # Calls that came together and may take equally long share a slot of the wheel. It is kept here
        # until the wheel is used for anything else, which might forget a slot that has become empty.
        self._slot: dict[Pending, Pending] = {}
        self._slot_until = -1.0
        self._slot_ttl = 0
        #: When more had expired than was ended.
        self._more_at: float | None = None

    # --- deadlines ---------------------------------------------------------------------------

    def arm(self, pending: Pending, deadline: float) -> None:
        """``pending`` expires at ``deadline``."""
        self._slot_until = -1.0
        pending.slot = slot = self.wheel.slot(deadline)
        slot[pending] = pending

    def arm_call(self, now: float, pending: Pending) -> None:
        """A call expires when its caller says, within the router's own bound."""
        self.arm(pending, now + self._seconds(pending.ttl))

    def arm_cast(self, now: float, pending: Pending) -> None:
        """A cast that has to wait expires at its own deadline, or when its mailbox lets it go."""
        settings = self._settings
        age = settings.mailbox_max_seconds if pending.destination.registered else settings.unclaimed_seconds
        left = pending.ttl / 1000 - (now - pending.received_at) if pending.ttl != NO_TTL else age
        self.arm(pending, now + max(0.0, min(left, age)))

    def disarm(self, pending: Pending) -> None:
        """``pending`` expires no more."""
        if pending.slot is not None:
            del pending.slot[pending]
            pending.slot = None

    def _slot_of(self, now: float, ttl: int) -> dict[Pending, Pending]:
        self._slot_until = until = now + _TOGETHER
        self._slot_ttl = ttl
        self._slot = self.wheel.slot(until + self._seconds(ttl))
        return self._slot

    def _seconds(self, ttl: int) -> float:
        settings = self._settings
        seconds = settings.default_timeout_seconds if ttl == NO_TTL else ttl / 1000
        return min(seconds, settings.max_ttl_seconds)

    def next_deadline(self) -> float | None:
        """When :meth:`tick` wants to be called."""
        self._slot_until = -1.0
        if self._more_at is not None:
            # More was due already then: not the deadline that has passed, or the shell would think itself late.
            return self._more_at
        due = self.wheel.next_deadline()
        # Asked at the end of each wake-up.
        for other in (self.receipts.next_deadline(), self.drops.next_deadline(), self._notices.next_deadline()):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def tick(self, now: float) -> None:
        """End what has expired."""
        self._slot_until = -1.0
        self.receipts.tick(now)
        expired = self.wheel.expire(now, ENDED_AT_ONCE)
        self._more_at = now if len(expired) == ENDED_AT_ONCE else None
        for pending in expired:
            pending.slot = None
            try:
                if pending.link is not None:
                    self._time_out(now, pending, pending.link)
                else:
                    self._age_out(now, pending)
            except Exception:
                # The others that are due are not in the wheel any more.
                self.on_fault(now)
        for origin, rows in self._notices.due(now).items():
            self._tell_drops(origin, rows)

    def _time_out(self, now: float, pending: Pending, link: Link) -> None:
        text, details = explain.timed_out(now, pending)
        if pending.consumer is None:
            self.count_drop(now, pending, "expired")
        self.finish(now, pending, Outcome.TIMEOUT)
        self.withdraw(pending)
        self.tell(link, pending.key, Outcome.TIMEOUT, text, details)

    def _age_out(self, now: float, pending: Pending) -> None:
        queue = pending.queue
        if queue is None:
            return
        own_limit = pending.ttl != NO_TTL and now - pending.received_at >= pending.ttl / 1000
        if pending.destination.consumers and not own_limit:
            self.arm_cast(now, pending)  # its consumers are busy, not away
            return
        queue.remove(pending)
        self.drop(now, pending, queue, "expired" if own_limit else "aged out")
        self.record(now, pending, Outcome.TIMEOUT if own_limit else Outcome.NO_CONSUMER)

    # --- drops -------------------------------------------------------------------------------

    def drop(self, now: float, pending: Pending, queue: Queue, reason: str) -> None:
        """``pending``, a cast, is dropped from ``queue``: count it, and have its sender told."""
        queue.count_dropped(reason)
        self.count_drop(now, pending, reason, told=False)

    def count_drop(self, now: float, pending: Pending, reason: str, told: bool = True) -> None:
        """Count ``pending`` among what was dropped.

        Args:
            told: whether its sender is told with an ERROR of its own, as all callers are.
        """
        verb = "call" if pending.link is not None else "fanout" if pending.flags & Flag.FANOUT else "cast"
        destination = pending.destination
        drop = Drop(destination.name, verb, reason)
        sender = self._links.by_origin(pending.key[:12])
        # A fanout is for those who listen at that moment; that there is nobody is no fault.
        loud = not told and reason != "no consumer"
        self.drops.add(
            now,
            drop,
            method=destination.method,
            sender=sender.identity if sender is not None else "",
            consumer=pending.consumer.link.identity if pending.consumer is not None else "",
            log=loud,
        )
        if loud:
            self._notices.add(now, pending.key[:12], drop)

    def _tell_drops(self, origin: bytes, rows: dict[Drop, int]) -> None:
        link = self._links.by_origin(origin)
        if link is not None and link.wants_drops:
            told = [[drop.topic, drop.verb, drop.reason, count] for drop, count in rows.items()]
            link.send(control(Kind.DROPPED, {"dropped": told}))

    def purge(self, now: float, pending: Pending, by: str) -> None:
        """``pending``, which waits, is dropped because the operator ``by`` wants its queue empty."""
        queue, link = pending.queue, pending.link
        assert queue is not None
        if link is not None:
            self.count_drop(now, pending, "purged")
            self.finish(now, pending, Outcome.CANCELLED)
            self.withdraw(pending)
            text = f"{by} purged {queue.name!r}; the call did not run"
            details = {"topic": pending.destination.name, "method": pending.destination.method, "started": "no"}
            self.tell(link, pending.key, Outcome.CANCELLED, shortened(text), details)
            return
        queue.remove(pending)
        self.disarm(pending)
        self.drop(now, pending, queue, "purged")
        self.record(now, pending, Outcome.CANCELLED)

    # --- ends --------------------------------------------------------------------------------

    def finish(self, now: float, pending: Pending, outcome: Outcome) -> None:
        """The call has ended for its caller."""
        link = pending.link
        assert link is not None
        del link.calls[pending.key]
        self.calls_in_flight -= 1
        self.disarm(pending)
        self.record(now, pending, outcome)

    def record(self, now: float, pending: Pending, outcome: int, handler_us: int = NO_TTL) -> None:
        """Count and log how ``pending`` ended."""
        if pending.kept:
            self.receipts.note(now, pending)
        pending.usage.size_bytes -= pending.charge
        pending.charge = 0
        statistics, seconds = pending.destination.statistics, now - pending.received_at
        if outcome != _OK:
            statistics.ended(outcome, seconds)
        elif seconds == statistics.run_seconds:
            statistics.run += 1
        else:
            statistics.answered(seconds)
        if self.log is not None:
            self.log.ended(now, pending, outcome, handler_us=handler_us)

    def withdraw(self, pending: Pending) -> None:
        """Nobody waits for it any more: out of the queue, or tell the consumer that has it."""
        if pending.queue is not None:
            pending.queue.remove(pending)
        elif pending.consumer is not None:
            pending.consumer.link.send(message(Kind.CANCEL, key=pending.key, consumer=pending.consumer.tag))
            pending.drop_payload()

    def tell(self, link: Link, key: bytes, outcome: Outcome, text: str, details: dict[str, Any]) -> None:
        """Tell the sender of ``key`` how it ended."""
        self.turns.spent += ERROR_STEPS
        link.send(control(Kind.ERROR, {"outcome": outcome, "text": text, "details": details}, key=key))

    def _refuse(
        self, now: float, pending: Pending, caster: Link | None, outcome: Outcome, why: explain.Explanation
    ) -> bool:
        text, details = why
        waits = caster is not None and outcome is Outcome.OVERLOADED and not pending.flags & Flag.CONFIRM
        told = pending.link is not None or caster is not None
        # In another format it may still be taken.
        if not (waits or (told and outcome is Outcome.PROTOCOL)):
            self.count_drop(now, pending, _REFUSED[outcome], told)
        if pending.link is not None:
            self.finish(now, pending, outcome)
            self.tell(pending.link, pending.key, outcome, text, details)
            return False
        # Its sender is told here what to do with it.
        pending.kept = pending.kept and caster is None
        self.record(now, pending, outcome)
        if caster is not None:
            if waits:
                # The order of this sender's casts to the queue is kept: later ones are refused too,
                # until it starts again with this one.
                caster.stalled[pending.destination.queue] = int.from_bytes(pending.key[12:])
            self.tell(caster, pending.key, outcome, text, details)
        return False

    def _not_taken(self, link: Link, key: bytes) -> None:
        """The router takes no more, or not so many."""
        if self.draining:
            self.tell(link, key, Outcome.DRAINING, "the router is shutting down; not accepted", {})
            return
        text = f"the router has its {self.calls_in_flight} calls in flight"
        self.tell(link, key, Outcome.OVERLOADED, text, {"limit": "call.max_in_flight"})

    def _unknown(self, link: Link, what: str) -> None:
        self.counters[what] += 1
        link.counters[what] += 1
