"""The requests in a router's hands: how each of them ends, which happens once.

States and events are those of :mod:`rpcmq.core.router.request_states`. All ends but an answer go through
:meth:`RequestTable.record`, those of calls through :meth:`RequestTable.finish` before: there an illegal one is noticed
in production, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rpcmq.core.common.drops import Drop, DropNotices, Drops
from rpcmq.core.common.text import shorten
from rpcmq.core.router.dispatch_log import DispatchLog
from rpcmq.core.router.faults import reraise
from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.journal import Journal
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Delivery, Destination, Link, Request
from rpcmq.core.router.request_states import TRANSITIONS, end_event
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.acknowledgements import DeliveryAcknowledgements
from rpcmq.core.router.roundrobin.deadlines import Deadlines
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.turns import ERROR_STEPS, Turns
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.errors import Outcome
from rpcmq.wire import NO_TTL, ORIGIN_OF_KEY, STAMP, Flag, Kind, pack, sequence_of_key
from rpcmq.wire.bodies import DroppedBody, ErrorBody

__all__ = ["RequestTable"]

_OK = int(Outcome.OK)
#: Outcome of a refusal -> reason of the drop.
_REFUSED = {
    Outcome.OVERLOADED: "queue full",
    Outcome.NO_CONSUMER: "no consumer",
    Outcome.LINK_LOST: "no consumer",
    Outcome.PROTOCOL: "format not accepted",
    Outcome.CANCELLED: "quarantined",
}
#: Events of the journal: how calls end without an answer.
_ENDED = {outcome: f"ended: {outcome.name.lower()}" for outcome in Outcome}


class RequestTable:
    """Requests from their acceptance to their end, wherever they are meanwhile."""

    __slots__ = (
        "_links", "_notices", "_settings", "about_absent", "calls_in_flight", "counters", "deadlines", "draining",
        "drops", "journal", "last_number", "log", "on_answered", "on_fault", "on_forwarded_ended", "on_forwarded_run",
        "on_recorded", "owes_answers", "receipts", "turns", "watches_answers",
    )  # fmt: skip

    def __init__(self, settings: Settings, links: LinkTable) -> None:
        self._settings = settings
        self._links = links
        self.deadlines = Deadlines(settings)
        self.calls_in_flight = 0
        #: The last that a request got, and so how many there were. Each number ends in one record of the log.
        self.last_number = 0
        #: Nothing new is taken any more.
        self.draining = False
        self.counters: Counter[str] = Counter()
        self.receipts = DeliveryAcknowledgements(links)
        #: Counter of work beyond a message's own handling.
        self.turns = Turns()
        #: Called in the handler of an exception that must cost one message only.
        self.on_fault: Callable[[float, str, bytes], None] = reraise
        #: Counts of the ends of requests that were not just delivered and answered.
        self.journal = Journal()
        self.drops = Drops()
        self._notices = DropNotices()
        #: Returns the details of an error for want of consumers, beside the address.
        self.about_absent: Callable[[Destination], dict[str, Any]] = lambda destination: {}
        #: Gets each request that has ended; None: off.
        self.log: DispatchLog | None = None
        #: Whether consumers keep answers to calls that must not start twice, until the callers have them.
        self.owes_answers = False
        #: Called with (now, request, outcome) of each that :meth:`record` has ended; None: nobody watches.
        self.on_recorded: Callable[[float, Request, int], None] | None = None
        #: Called with (now, delivery, answer) when a call is answered while ``watches_answers``; None: nobody watches.
        self.on_answered: Callable[[float, Delivery, bytes], None] | None = None
        #: Whether anything but the caller is to know of answers.
        self.watches_answers = False
        #: Called with (now, request, outcome, microseconds of the handler) for those that another router owns.
        self.on_forwarded_ended: Callable[[float, Forwarded, int, int], None] = lambda now, request, outcome, us: None
        #: Called with (now, request, link) when the consumer at ``link`` has ended one of those, whoever waits for it.
        self.on_forwarded_run: Callable[[float, Forwarded, Link], None] = lambda now, request, link: None

    def copy(self, request: Request) -> Request:
        """``request`` as a request in its own right."""
        self.last_number += 1
        return request.copy(self.last_number)

    def count_unknown(self, link: Link, reason: str) -> None:
        """Count what ``link`` says of something that is not there (any more)."""
        self.counters[reason] += 1
        link.counters[reason] += 1

    def whereabouts(self, now: float, key: bytes) -> Iterator[str]:
        """Tell where the call ``key`` is now, if it has not ended. Casts are in no table by their keys."""
        link = self._links.by_origin(key[ORIGIN_OF_KEY])
        request = link.calls.get(key) if link is not None else None
        if request is None:
            return
        destination = request.destination
        yield f"now: {now - request.received_at:.3f} s old, of {destination.name!r}, attempt {request.attempts}"
        if request.queue is not None:
            yield f"now: waits in {request.queue.name!r}"
        for delivery in request.deliveries():
            yield f"now: with {delivery.consumer.link.identity} for {now - delivery.dispatched_at:.3f} s"

    # --- deadlines ---------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        due = self.deadlines.next_deadline()
        # Asked at the end of each wake-up.
        for other in (self.receipts.next_deadline(), self.drops.next_deadline(), self._notices.next_deadline()):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def tick(self, now: float) -> None:
        """End expired messages."""
        self.receipts.tick(now)
        for request in self.deadlines.expire(now):
            try:
                if request.reply_to is not None:
                    self._time_out(now, request, request.reply_to)
                else:
                    self._age_out(now, request)
            except Exception:
                # The others that are due are not in the wheel any more.
                self.on_fault(now, "", request.key)
        for origin, rows in self._notices.due(now).items():
            self._tell_drops(origin, rows)

    def _time_out(self, now: float, request: Request, link: Link) -> None:
        text, details = explain.timed_out(now, request)
        is_dropped = request.delivery is None
        if not self.finish(now, request, Outcome.TIMEOUT):
            return
        if is_dropped:
            self.count_drop(now, request, "expired")
        self.withdraw(request)
        self.tell(link, request.key, Outcome.TIMEOUT, text, details)

    def _age_out(self, now: float, request: Request) -> None:
        queue = request.queue
        if queue is None:
            return
        own_limit = request.ttl != NO_TTL and now - request.received_at >= request.ttl / 1000
        if (request.destination.consumers or request.destination.remotes) and not own_limit:
            self.deadlines.arm_cast(now, request)  # its consumers are busy, not away
            return
        if not own_limit and self.deadlines.arm_left(now, request):
            return
        queue.remove(request)
        self.drop(now, request, queue, "expired" if own_limit else "aged out")
        self.record(now, request, Outcome.TIMEOUT if own_limit else Outcome.NO_CONSUMER)

    # --- drops -------------------------------------------------------------------------------

    def drop(self, now: float, request: Request, queue: Queue[Request], reason: str) -> None:
        """``request``, a cast, is dropped from ``queue``: count it, and have its sender told."""
        queue.count_dropped(reason)
        self.count_drop(now, request, reason, told=False)

    def count_drop(self, now: float, request: Request, reason: str, told: bool = True) -> None:
        """Count ``request`` among what was dropped.

        Args:
            told: whether its sender is told with an ERROR of its own, as all callers are.
        """
        verb = "call" if request.is_call else "fanout" if request.flags & Flag.FANOUT else "cast"
        destination, consumer = request.destination, request.consumer
        self.journal.note(now, request.key, f"dropped: {reason}", consumer.link.identity if consumer else "")
        drop = Drop(destination.name, verb, reason)
        sender = self._links.by_origin(request.key[ORIGIN_OF_KEY])
        # A fanout reaches current consumers only; having none is no error.
        loud = not told and reason != "no consumer"
        self.drops.add(
            now,
            drop,
            method=destination.method,
            sender=sender.identity if sender is not None else "",
            consumer=consumer.link.identity if consumer is not None else "",
            log=loud,
        )
        if loud:
            self._notices.add(now, request.key[ORIGIN_OF_KEY], drop)

    def _tell_drops(self, origin: bytes, rows: dict[Drop, int]) -> None:
        link = self._links.by_origin(origin)
        if link is not None and link.wants_drops:
            told = tuple((drop.topic, drop.verb, drop.reason, count) for drop, count in rows.items())
            link.send(DroppedBody(dropped=told).message())

    def purge(self, now: float, request: Request, by: str) -> None:
        """``request``, which waits, is dropped because the operator ``by`` wants its queue empty."""
        queue, link = request.queue, request.reply_to
        assert queue is not None
        if link is not None:
            if not self.finish(now, request, Outcome.CANCELLED):
                return
            self.count_drop(now, request, "purged")
            self.withdraw(request)
            text = f"{by} purged {queue.name!r}; the call did not run"
            details = {"topic": request.destination.name, "method": request.destination.method, "started": "no"}
            self.tell(link, request.key, Outcome.CANCELLED, shorten(text), details)
            return
        queue.remove(request)
        self.deadlines.disarm(request)
        self.drop(now, request, queue, "purged")
        self.record(now, request, Outcome.CANCELLED)

    # --- ends --------------------------------------------------------------------------------

    def finish(self, now: float, request: Request, outcome: Outcome) -> bool:
        """End the call for its caller.

        Returns:
            False if that was illegal: nothing has changed, and nobody is to be told.

        Raises:
            IllegalEvent: it was illegal, in tests.
        """
        link = request.reply_to
        assert link is not None
        if (request.state, end_event(outcome)) not in TRANSITIONS:
            self._report_illegal(now, request, outcome)
            return False
        self.journal.note(now, request.key, _ENDED[outcome])
        del link.calls[request.key]
        self.calls_in_flight -= 1
        self.deadlines.disarm(request)
        self.record(now, request, outcome)
        return True

    def lose(self, now: float, request: Request, why: str, details: Mapping[str, Any]) -> None:
        """Nobody can know whether ``request`` has run: its caller is told, a cast is dropped.

        Args:
            details: for the caller, beside what is known of each request.
        """
        destination, caller = request.destination, request.reply_to
        if caller is None:
            self.drop(now, request, destination.queue, "consumer lost")
            self.record(now, request, Outcome.LINK_LOST)
            if request.queue is not None:
                request.queue.remove(request)
        elif request.outcome is None and self.finish(now, request, Outcome.LINK_LOST):
            self.withdraw(request)
            self.count_drop(now, request, "consumer lost")
            told = {"topic": destination.name, "method": destination.method, "started": "unknown", **details}
            self.tell(caller, request.key, Outcome.LINK_LOST, f"{why}; it may have run", told)

    def cancel(self, now: float, request: Request) -> None:
        """The caller wants no answer, or has gone: a call that waits never runs, whoever runs it is told."""
        if self.finish(now, request, Outcome.CANCELLED):
            self.withdraw(request)

    def break_off(self, now: float, request: Request, outcome: Outcome, text: str) -> None:
        """End a call for both sides because one of them broke the protocol."""
        caller = request.reply_to
        assert caller is not None
        if not self.finish(now, request, outcome):
            return
        self.counters["calls aborted"] += 1
        self.tell(caller, request.key, outcome, text, {"topic": request.destination.name, "started": "yes"})
        self.withdraw(request)

    def record(self, now: float, request: Request, outcome: int, handler_us: int = NO_TTL) -> None:
        """End ``request``: count and log how.

        Raises:
            IllegalEvent: it has ended before, in tests.
        """
        if request.outcome is not None:
            self._report_illegal(now, request, outcome)
            return
        request.outcome = outcome
        if request.kept:
            self.receipts.note(now, request)
        request.usage.size_bytes -= request.charge
        request.charge = 0
        statistics, seconds = request.destination.statistics, now - request.received_at
        if outcome != _OK:
            statistics.ended(outcome, seconds)
        elif seconds == statistics.run_seconds:
            statistics.run += 1
        else:
            statistics.answered(seconds)
        if type(request) is Forwarded:
            self.on_forwarded_ended(now, request, outcome, handler_us)
        elif self.log is not None:
            self.log.ended(now, request, request.delivery, outcome, handler_us=handler_us)
        if self.on_recorded is not None:
            self.on_recorded(now, request, outcome)

    def _report_illegal(self, now: float, request: Request, outcome: int) -> None:
        text = f"request: {end_event(outcome)} while it is {request.state.value}"
        self._links.report_illegal(now, text, key=request.key)

    def withdraw(self, request: Request, spared: Delivery | None = None) -> None:
        """Nobody waits for it any more: out of the queue, or tell those who have it, but the consumer of ``spared``."""
        if request.queue is not None:
            request.queue.remove(request)
            return
        for delivery in request.deliveries():
            if delivery is not spared:
                self.tell_cancelled(delivery)
            request.drop_payload()

    def tell_cancelled(self, delivery: Delivery) -> None:
        """Tell the consumer of ``delivery`` that nobody waits for its answer."""
        request, consumer = delivery.request, delivery.consumer
        hops, attempt = request.message[STAMP][0], delivery.attempt
        consumer.link.send(pack(Kind.CANCEL, key=request.key, consumer=consumer.tag, hops=hops, attempt=attempt))

    def tell(self, link: Link, key: bytes, outcome: Outcome, text: str, details: dict[str, Any]) -> None:
        """Send an ERROR about the message ``key`` to its sender."""
        self.turns.spent += ERROR_STEPS
        link.send(ErrorBody(outcome=outcome, text=text, details=details).message(key=key))

    def refuse(
        self, now: float, request: Request, caster: Link | None, outcome: Outcome, why: explain.Explanation
    ) -> None:
        """``request``, which nobody has, is not taken, or goes no further.

        Args:
            caster: the link of the sender if it is a cast that has just come, and that is to be told.
        """
        text, details = why
        if outcome is Outcome.NO_CONSUMER:
            details |= self.about_absent(request.destination)
        waits = caster is not None and outcome is Outcome.OVERLOADED and not request.flags & Flag.CONFIRM
        told = request.is_call or caster is not None
        # It may still be accepted in another format.
        if not (waits or (told and outcome is Outcome.PROTOCOL)):
            self.count_drop(now, request, _REFUSED[outcome], told)
        if request.reply_to is not None:
            if self.finish(now, request, outcome):
                self.tell(request.reply_to, request.key, outcome, text, details)
            return
        # The ERROR below tells its sender what to do with it.
        request.kept = request.kept and caster is None
        self.record(now, request, outcome)
        if caster is not None:
            if waits:
                # The order of this sender's casts to the queue is kept: later ones are refused too,
                # until it starts again with this one.
                caster.stalled[request.destination.queue] = sequence_of_key(request.key)
            self.tell(caster, request.key, outcome, text, details)

    def refuse_new(self, link: Link, key: bytes) -> None:
        """Refuse a call or cast because of a drain or the limit of calls in flight."""
        if self.draining:
            self.tell(link, key, Outcome.DRAINING, "the router is shutting down; not accepted", {})
            return
        text = f"limit of calls in flight reached (call.max_in_flight = {self._settings.max_calls_in_flight})"
        self.tell(link, key, Outcome.OVERLOADED, text, {"limit": "call.max_in_flight"})
