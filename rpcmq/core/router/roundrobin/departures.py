"""Consumers and callers that go, and what becomes of their requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice

from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.model import Consumer, Delivery, Link, Request, Server, Topic
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.deadlines import ENDED_AT_ONCE
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.hedged_ends import HedgedEnds
from rpcmq.core.router.roundrobin.request_streams import has_begun
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.roundrobin.restart_recovery import Recovery
from rpcmq.errors import Outcome
from rpcmq.wire import KEY, KIND_AT, Flag, Kind
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["MAX_ATTEMPTS", "Departures"]

#: Most delivery attempts of an idempotent message whose consumers die.
MAX_ATTEMPTS = 5
_DELIVERIES = (int(Kind.REQUEST), int(Kind.CAST))
_ANSWERS = (int(Kind.REPLY), int(Kind.FAULT), int(Kind.END))


class Departures:
    """Ends, or delivers again, what those who go leave behind."""

    __slots__ = (
        "_deliveries", "_end_more_at", "_hedged_ends", "_recovery", "_requests", "_unserved", "asks", "deserted",
        "on_forwarded_lost", "on_left",
    )  # fmt: skip

    def __init__(
        self, requests: RequestTable, deliveries: Deliveries, recovery: Recovery, hedged_ends: HedgedEnds
    ) -> None:
        self._requests = requests
        self._hedged_ends = hedged_ends
        self._recovery = recovery
        self._deliveries = deliveries
        #: Ended links with unfinished calls, which are ended a bounded number at a time.
        self.deserted: deque[Link] = deque()
        #: Mandatory calls that wait where nobody is left, and are ended a bounded number at a time.
        self._unserved: dict[Request, None] = {}
        self._end_more_at = 0.0
        #: Finds out whether a delivery was started whose consumer is gone: (now, delivery, reason); False: it does not.
        self.asks: Callable[[float, Delivery, str], bool] = lambda now, delivery, reason: False
        #: Called with (now, delivery, whether it was never sent, reason) where the consumer of a request is gone that
        #: another router owns.
        self.on_forwarded_lost: Callable[[float, Delivery, bool, str], None] = _nobody_owns_it
        #: Called with (now, consumer) when one that takes nothing more is done with what it had.
        self.on_left: Callable[[float, Consumer], None] = lambda now, consumer: None

    def relieved(self, now: float, consumer: Consumer) -> None:
        """Deliver more to ``consumer``, which has less in flight than before."""
        consumer.topic.ready.move(consumer)
        if consumer.stopping and not consumer.in_flight:
            consumer.link.consumers.pop(consumer.tag, None)
            self.consumer_gone(now, consumer, "unregistered")

    def consumer_gone(self, now: float, consumer: Consumer, reason: str) -> None:
        """Redeliver the deliveries of ``consumer`` where that is allowed; end the others with LinkLost."""
        unsent = {m[KEY] for m in consumer.link.outbox if m[KIND_AT] in _DELIVERIES}
        deliveries = sorted(consumer.in_flight.values(), key=lambda each: each.request.number)
        consumer.in_flight.clear()
        again: list[Request] = []
        requests, identity = self._requests, consumer.link.identity
        for delivery in deliveries:
            request = delivery.request
            is_unsent = request.key in unsent
            if type(request) is Forwarded:
                self.on_forwarded_lost(now, delivery, is_unsent, reason)
                continue
            if request.has_ended:
                self._hedged_ends.lost(now, delivery)
                continue
            requests.journal.note(now, request.key, "consumer gone, unsent" if is_unsent else "consumer gone", identity)
            if delivery.earlier is not None or request.delivery is not delivery:
                self._hedged_ends.lost(now, delivery)  # others have it
            elif (is_unsent or _may_run_again(delivery)) and not request.flags & Flag.FANOUT:
                request.take_back(delivery)
                request.attempts += not is_unsent
                again.append(request)
            else:
                self.end(now, delivery, reason)
        self._end_backlog(now, consumer)
        self._deliveries.deliver_again(now, again)
        if consumer in consumer.topic.leaving:
            consumer.topic.leaving.discard(consumer)
            self.on_left(now, consumer)
        self.left(now, consumer)

    def router_away(self, now: float, link: Link) -> None:
        """Redeliver what the neighbour at ``link`` has where that is allowed; it may come back and be given more."""
        for consumer in link.consumers.values():
            taken = set(consumer.in_flight)
            self.consumer_gone(now, consumer, "connection lost")
            link.outbox[:] = [m for m in link.outbox if m[KIND_AT] not in _DELIVERIES or m[KEY] not in taken]

    def lost_elsewhere(self, now: float, delivery: Delivery, identity: str) -> None:
        """The consumer ``identity`` of another router has gone with ``delivery``."""
        request = delivery.request
        if delivery.earlier is not None or request.delivery is not delivery:
            self._hedged_ends.lost(now, delivery)  # others have it
        elif _may_run_again(delivery):
            request.take_back(delivery)
            request.attempts += 1
            self._deliveries.deliver_again(now, [request])
        else:
            self._end_elsewhere(now, delivery, identity)

    def _end_elsewhere(self, now: float, delivery: Delivery, identity: str) -> None:
        requests, request, router = self._requests, delivery.request, delivery.consumer.link.identity
        if request.reply_to is None:
            requests.drop(now, request, request.destination.queue, "consumer lost")
            requests.record(now, request, Outcome.LINK_LOST)
        elif requests.finish(now, request, Outcome.LINK_LOST):
            text, details = _lost(now, delivery, "its router says", f"{identity} (router {router})")
            requests.count_drop(now, request, "consumer lost")
            requests.tell(request.reply_to, request.key, Outcome.LINK_LOST, text, details | {"server": identity})

    def end(self, now: float, delivery: Delivery, reason: str) -> None:
        """End the request of ``delivery``, whose consumer is done with it and has not answered."""
        requests, request = self._requests, delivery.request
        if self.asks(now, delivery, reason):
            return
        if request.reply_to is not None:
            text, details = _lost(now, delivery, reason)
            if requests.finish(now, request, Outcome.LINK_LOST):
                requests.count_drop(now, request, "consumer lost")
                requests.tell(request.reply_to, request.key, Outcome.LINK_LOST, text, details)
        else:
            requests.drop(now, request, request.destination.queue, "consumer lost")
            requests.record(now, request, Outcome.LINK_LOST)

    def _end_backlog(self, now: float, consumer: Consumer) -> None:
        requests = self._requests
        for request in list(consumer.backlog):
            consumer.backlog.remove(request)
            requests.deadlines.disarm(request)
            requests.drop(now, request, request.destination.queue, "consumer left")
            requests.record(now, request, Outcome.NO_CONSUMER)

    def left(self, now: float, consumer: Consumer) -> None:
        """End the mandatory calls that wait for ``consumer`` if it was the last there. Casts go on waiting."""
        topic = consumer.topic
        self.nobody_left(now, topic, topic.servers.get(consumer.server))

    def nobody_left(self, now: float, *places: Topic | Server | None) -> None:
        """End the mandatory calls that wait at those of ``places`` where nobody is left."""
        for each in places:
            if each is None or each.consumers or each.remotes or not each.queue:
                continue
            self._requests.turns.spent += len(each.queue) >> 4
            for request in each.queue:
                is_mandatory = request.is_call and request.flags & Flag.MANDATORY
                if is_mandatory and not self._recovery.awaits_consumer(now, request):
                    self._unserved[request] = None
        self._end_unserved(now)

    def _end_unserved(self, now: float) -> None:
        """End mandatory calls that nobody can take any more, a bounded number in each tick."""
        self._end_more_at = now
        requests = self._requests
        for request in list(islice(self._unserved, ENDED_AT_ONCE)):
            del self._unserved[request]
            caller = request.reply_to
            if request.queue is None or request.destination.consumers or request.destination.remotes:
                continue  # it has ended, or somebody has come
            if caller is None or caller.state is LinkState.ENDED:
                continue  # it ends with its caller's others
            outcome, (text, details) = explain.no_consumer(now, request)
            if requests.finish(now, request, outcome):
                requests.withdraw(request)
                requests.count_drop(now, request, "consumer lost" if request.attempts else "no consumer")
                requests.tell(caller, request.key, outcome, text, details)

    def caller_gone(self, now: float, link: Link) -> None:
        """End the calls of ``link``, which has ended. Its casts go on, held ones included."""
        if undelivered := link.unacknowledged_of(_ANSWERS):
            self._requests.counters["answers to ended links"] += undelivered
        self.deserted.append(link)
        self._end_deserted(now)

    def tick(self, now: float) -> None:
        """End more of the calls whose callers, or consumers, have gone."""
        if self.deserted:
            self._end_deserted(now)
        if self._unserved:
            self._end_unserved(now)

    def _end_deserted(self, now: float) -> None:
        """End calls whose callers have gone, a bounded number in each tick."""
        room, self._end_more_at = ENDED_AT_ONCE, now
        while self.deserted and room:
            link = self.deserted[0]
            for request in list(islice(link.calls.values(), room)):
                if link.queue_type == MESH_TYPE and not request.flags & Flag.STREAM:
                    # Another router, their callers' next one, may ask for them; not for streams, which would wait.
                    self._requests.finish(now, request, Outcome.CANCELLED)
                else:
                    self._requests.cancel(now, request)
                room -= 1
            if not link.calls:
                self.deserted.popleft()

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._end_more_at if self.deserted or self._unserved else None


def _may_run_again(delivery: Delivery) -> bool:
    request = delivery.request
    return bool(request.flags & Flag.IDEMPOTENT) and request.attempts < MAX_ATTEMPTS - 1 and not has_begun(delivery)


def _lost(now: float, delivery: Delivery, reason: str, who: str = "") -> explain.Explanation:
    text, details = explain.consumer_lost(now, delivery, reason, who)
    if has_begun(delivery):
        text += ", and items of its stream were sent, which no other consumer can be given"
    return text, details


def _nobody_owns_it(now: float, delivery: Delivery, is_unsent: bool, reason: str) -> None:
    pass
