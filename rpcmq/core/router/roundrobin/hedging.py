"""Calls are given to further consumers: at once, or when one has had them for so long.

A caller asks for it (HEDGE), for a call that may run more than once. It is bounded: by ``hedge.budget``, in proportion
to the calls of the method; and nothing is given twice while messages wait for the same consumers. A consumer that is
at another router is preferred where the first is at this one, so that a router that stalls does not hold up both. No
process has the same call twice. What could not be given when that was due is tried again, after twice the time; what
comes back, because nobody has begun it, at once.

Who asks for a delay as the method's percentile gets what the latency policy says
(:attr:`Hedging.usual`); without an entry there the call is not hedged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count

from rpcmq.core.router.forwarded import Elsewhere
from rpcmq.core.router.hedge import Hedge, HedgeCounts
from rpcmq.core.router.model import Consumer, Delivery, Destination, Link, Request
from rpcmq.core.router.rights import matches
from rpcmq.core.router.roundrobin.deadlines import ENDED_AT_ONCE
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.hedged_ends import HedgedEnds
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.settings import Settings
from rpcmq.errors import ProtocolError
from rpcmq.payload.format import has_stream
from rpcmq.wire import FORMAT_AT, KEY, Flag, with_flag
from rpcmq.wire.hedge import PERCENTILES, HedgeTerms

__all__ = ["Hedging", "Usual"]

#: Seconds of each of ``PERCENTILES``, by exchange, topic and method.
Usual = Mapping[tuple[str, str, str], tuple[float, float, float]]
#: Entries, beside twice the calls in flight, from which on those of calls that have ended are removed.
_FEW = 1024


class Hedging:
    """Gives calls to further consumers when that is due.

    Attributes:
        usual: how long methods usually take, as the latency policy says.
    """

    __slots__ = ("_deliveries", "_due", "_ends", "_numbers", "_requests", "_settings", "usual")

    def __init__(self, settings: Settings, requests: RequestTable, deliveries: Deliveries, ends: HedgedEnds) -> None:
        self._ends = ends
        self._settings = settings
        self._requests = requests
        self._deliveries = deliveries
        #: The time to look, a number, and whose call of which key; also of calls that have ended meanwhile.
        self._due: list[tuple[float, int, Link, bytes]] = []
        self._numbers = count()
        self.usual: Usual = {}

    def begin(self, now: float, link: Link, message: bytes) -> None:
        """HEDGE: several consumers may have a call of ``link``.

        Raises:
            ProtocolError: malformed, or of a call that may not run more than once, or may not have several answers.
        """
        terms = HedgeTerms.of(message)
        request = link.calls.get(message[KEY])
        if request is None:
            return  # it has ended, or was refused
        flags = request.flags
        if not flags & Flag.IDEMPOTENT or flags & Flag.STREAM or has_stream(request.message[FORMAT_AT]):
            raise ProtocolError("HEDGE of a call that is not idempotent, or of a stream: it cannot run twice", "hedge")
        if request.hedged is not None:
            raise ProtocolError("second HEDGE of a call", "duplicate")
        statistics = request.destination.statistics
        counts = statistics.hedges
        if counts is None:
            counts = statistics.hedges = HedgeCounts(statistics.calls)
        counts.calls += 1
        delay = terms.delay
        if terms.percentile:
            usual = self.usual.get(_method_of(request.destination))
            if usual is None:
                counts.withheld["not in the latency policy"] += 1
                return
            delay = usual[PERCENTILES.index(terms.percentile)]
        request.hedge = hedge = Hedge(terms.consumers, delay, terms.exception_wins)
        self._give_or_wait(now, link, request, hedge)

    def _give_or_wait(self, now: float, link: Link, request: Request, hedge: Hedge) -> None:
        """Give ``request`` to another consumer if that is due and can be; look again later."""
        while hedge.left:
            latest = request.delivery
            if latest is not None and now < latest.dispatched_at + hedge.delay:
                self._look_at(latest.dispatched_at + hedge.delay, link, request, hedge)
                return
            reason = self._withheld_for(now, request) or self._give(now, request, hedge)
            if reason:
                if not hedge.was_withheld:
                    hedge.was_withheld = True
                    self._counts(request).withheld[reason] += 1
                self._look_at(now + hedge.next_pause(), link, request, hedge)
                return

    def _withheld_for(self, now: float, request: Request) -> str:
        """The reason for which no further consumer is to have ``request`` now; empty: there is none."""
        destination, delivery, settings = request.destination, request.delivery, self._settings
        if delivery is None or destination.queue.size_bytes:
            return "overloaded"
        if self._requests.draining or hasattr(delivery, "item_credit"):
            return "too late"
        if (gate := self._deliveries.gate) is not None and gate(now, request) is not None:
            return "stopped"
        if _is_free(destination, settings):
            return ""
        is_within = self._counts(request).affords(
            destination.statistics.calls, settings.hedge_budget, settings.hedge_burst
        )
        return "" if is_within else "budget"

    def _give(self, now: float, request: Request, hedge: Hedge) -> str:
        """Give ``request`` to another consumer; return why that could not be, or nothing."""
        had = [delivery.consumer for delivery in request.deliveries()]
        message = request.message
        # Also in the record of the call. What others have of it is theirs.
        request.message = with_flag(message, Flag.HEDGED)
        is_here = any(type(each) is not Elsewhere for each in had)
        if not (
            (is_here and self._deliveries.elsewhere.take_beside(now, request))
            or self._give_here(now, request, had)
            or (not is_here and self._deliveries.elsewhere.take_beside(now, request))
        ):
            request.message = message
            return "nobody else is free"
        delivery, counts = request.delivery, self._counts(request)
        assert delivery is not None
        if hedge.first is None:
            hedge.first = had[-1]
        hedge.left -= 1
        counts.deliveries += 1
        if not _is_free(request.destination, self._settings):
            counts.spend()
        self._requests.journal.note(now, request.key, "hedged", delivery.consumer.link.identity)
        return ""

    def come_back(self, now: float, delivery: Delivery) -> None:
        """``delivery`` has come back, and was not begun: if others have its call, it may be given to one more instead.

        At once, but where that has happened before: peers that return all they get are not to be asked without end.
        """
        request = delivery.request
        hedge, link = request.hedged, request.reply_to
        if hedge is None or hedge.first is None or link is None or request.has_ended or request.delivery is None:
            return
        if hedge.first is delivery.consumer:
            hedge.first = [each.consumer for each in request.deliveries()][-1]
        hedge.left += 1
        self._counts(request).take_back(_is_free(request.destination, self._settings))
        self._look_at(now + hedge.next_pause() if hedge.came_back else now, link, request, hedge)
        hedge.came_back = True

    def _give_here(self, now: float, request: Request, had: list[Consumer]) -> bool:
        processes = {consumer.link.identity for consumer in had}
        form, key = request.message[FORMAT_AT], request.key

        def suits(consumer: Consumer) -> bool:
            is_able = bool(consumer.accepts >> form & 1) and key not in consumer.in_flight
            return is_able and consumer.link.identity not in processes and consumer.ready

        other = _pick_other(request.destination, suits)
        return other is not None and self._deliveries.deliver(now, request, other)

    def _counts(self, request: Request) -> HedgeCounts:
        counts = request.destination.statistics.hedges
        assert counts is not None
        return counts

    # --- time --------------------------------------------------------------------------------

    def _look_at(self, when: float, link: Link, request: Request, hedge: Hedge) -> None:
        if hedge.due is not None and hedge.due <= when:
            return
        hedge.due, due = when, self._due
        if len(due) > 2 * self._requests.calls_in_flight + _FEW:
            due[:] = [each for each in due if _is_looked_at(*each)]
            heapify(due)
        heappush(due, (when, next(self._numbers), link, request.key))

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        # Asked at the end of each wake-up.
        due, samples = self._due, self._ends.samples
        if not samples:
            return due[0][0] if due else None
        first = next(iter(samples.values()))
        return min(first, due[0][0]) if due else first

    def tick(self, now: float) -> None:
        """Give calls whose time has come to further consumers, a bounded number in each tick."""
        self._ends.tick(now)
        due = self._due
        for _ in range(ENDED_AT_ONCE):
            if not due or due[0][0] > now:
                return
            entry = heappop(due)
            _, _, link, key = entry
            if not _is_looked_at(*entry):
                continue
            request = link.calls[key]
            hedge = request.hedged
            assert hedge is not None
            hedge.due = None
            try:
                self._give_or_wait(now, link, request, hedge)
            except Exception:
                self._requests.on_fault(now, "", key)


def _is_looked_at(when: float, number: int, link: Link, key: bytes) -> bool:
    """Return whether the call is to be looked at: it has not ended, nor was it looked at earlier."""
    request = link.calls.get(key)
    hedge = request.hedged if request is not None else None
    return hedge is not None and hedge.due == when


def _method_of(destination: Destination) -> tuple[str, str, str]:
    address = destination.topic.address
    return address.exchange, address.topic, destination.method


def _is_free(destination: Destination, settings: Settings) -> bool:
    """Return whether calls to ``destination`` need no budget."""
    name = destination.topic.address.topic
    return any(matches(pattern, name) for pattern in settings.hedge_unbounded)


def _pick_other(destination: Destination, suits: Callable[[Consumer], bool]) -> Consumer | None:
    """The least busy of the consumers that ``suits`` accepts; None if there is none."""
    server = destination.server
    if server is None:
        return destination.topic.ready.pick_other(suits)
    able = filter(suits, server.consumers)
    return min(able, key=lambda each: len(each.in_flight) + each.occupied, default=None)
