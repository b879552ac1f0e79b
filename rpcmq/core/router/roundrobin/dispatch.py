"""The RoundRobin engine: calls and casts from their callers to consumers, and answers home.

Invariants (``Dispatch.check``):

* A call is in its link's ``calls`` until it has ended for the caller, which happens exactly once.
* A request waits in one queue, or is with the consumer of each of its deliveries. No queue and no consumer has two of
  one key: a message that repeats a key is refused, and never takes the place of the one that has it, for credit
  (``consumer_credit``) counts each.
* If a consumer is ready, nothing waits that it could take.

``accept`` and ``reply`` are the router's hot path: what they do for each message is written out in
them rather than called, and what is rare is a call away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rpcmq.core.common.drops import Drop
from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.forwarded import Forwarded
from rpcmq.core.router.least_busy import ALONE
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Delivery, Link, Request
from rpcmq.core.router.roundrobin.answer_bounds import is_too_large, no_room, too_large
from rpcmq.core.router.roundrobin.casts import Casts, resolve_group
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.departures import Departures
from rpcmq.core.router.roundrobin.drain import return_undelivered_calls
from rpcmq.core.router.roundrobin.hedged_ends import HedgedEnds
from rpcmq.core.router.roundrobin.hedging import Hedging
from rpcmq.core.router.roundrobin.mailboxes import Mailboxes
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.roundrobin.restart_recovery import Recovery
from rpcmq.core.router.roundrobin.returns import Returns
from rpcmq.core.router.roundrobin.settlements import Settlements
from rpcmq.core.router.roundrobin.stream_relay import Streams
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.usage import MESSAGE_OVERHEAD
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import (
    ATTEMPT_AT,
    FORMAT_AT,
    HEADER_BYTES,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    ORIGIN_OF_KEY,
    Flag,
    Kind,
    has_error_name,
    sequence_of,
    size_of,
    split_error_name,
    unpack_reply,
    unpack_request,
)
from rpcmq.wire.bodies import ErrorBody

__all__ = ["Dispatch"]

# Looking up and comparing a member of an enum costs more than a step of the hot path.
_CAST, _FAULT = int(Kind.CAST), int(Kind.FAULT)
_FANOUT, _IDEMPOTENT, _RESENT = Flag.FANOUT, Flag.IDEMPOTENT, Flag.RESENT
_OK, _REMOTE_ERROR, _PROTOCOL = int(Outcome.OK), int(Outcome.REMOTE_ERROR), int(Outcome.PROTOCOL)


class Dispatch:
    """Takes requests from callers and answers from consumers.

    Its parts: ``requests`` (each request and its end), ``recovery`` (what waits for processes to come back),
    ``deliveries`` (to consumers), ``hedging`` (to further ones), ``hedged_ends``, ``casts``, ``streams``,
    ``settlements``, ``returns`` (what consumers give back), ``departures`` (consumers and callers that go).
    """

    __slots__ = (
        "_destinations", "_directory", "_links", "_settings", "adopts", "casts", "deliveries", "departures",
        "hedged_ends", "hedging", "held_elsewhere", "on_forwarded_answered", "recovery", "refuses_nested_work",
        "requests", "returns", "settlements", "streams",
    )  # fmt: skip

    def __init__(self, settings: Settings, links: LinkTable, directory: Directory, now: float) -> None:
        self._settings, self._links, self._directory = settings, links, directory
        self._destinations = directory.destinations
        self.requests = RequestTable(settings, links)
        self.recovery = Recovery(settings, links, self.requests, now)
        mailboxes = Mailboxes(settings, self.requests, self.recovery)
        self.deliveries = Deliveries(links, self.requests, self.recovery, mailboxes)
        self.casts = Casts(
            directory, self.requests, self.recovery, mailboxes, self.deliveries, self._is_needed_by_running_work
        )
        self.streams = Streams(settings, self.requests)
        self.hedged_ends = HedgedEnds(settings, self.requests)
        self.hedging = Hedging(settings, self.requests, self.deliveries, self.hedged_ends)
        self.departures = Departures(self.requests, self.deliveries, self.recovery, self.hedged_ends)
        self.settlements = Settlements(self.requests, self.deliveries, self.departures)
        self.returns = Returns(self.requests, self.deliveries, self.departures, self.hedging)
        #: Takes a call that was sent to another router before: (now, link, request); False: it does not.
        self.adopts: Callable[[float, Link, Request], bool] = lambda now, link, request: False
        #: Called with (now, request, delivery) when the answer to another router's request is in its outbox; or None.
        self.on_forwarded_answered: Callable[[float, Forwarded, Delivery], None] | None = None
        #: Requests that no link has, and no queue of a topic: copies that neighbours have, messages that are asked for.
        self.held_elsewhere: list[Iterable[Request]] = []
        #: Whether a drain waits for running handlers no more, and so returns what these ask for, too.
        self.refuses_nested_work = False

    # --- from callers ------------------------------------------------------------------------

    def accept(self, now: float, link: Link, message: bytes) -> None:  # noqa: C901 - the hot path
        """Accept a call or cast.

        Raises:
            ProtocolError: malformed, not from this link, or a call whose sequence is in flight already.
        """
        (
            length, kind, flags, form, tag, ttl, key, address_length, method_length, trace_length,
        ) = unpack_request(message)  # fmt: skip
        cut = HEADER_BYTES + address_length + method_length
        destination = self._destinations.get(message[HEADER_BYTES:cut])
        if destination is None or cut + trace_length > length:
            # A sender without the right must not create topics.
            if link.allowed_calls is not None and not self._links.access.may_send(link, message, None):
                return
            destination = self._directory.resolve(now, message)
        if not key.startswith(link.origin):
            raise ProtocolError(f"origin {key[ORIGIN_OF_KEY].hex()} is not this link's", "origin")
        if not 0 < form < 8 or tag:
            found = f"attempt {message[ATTEMPT_AT]}, payload format {message[FORMAT_AT]}, consumer {tag}"
            raise ProtocolError(f"{found}: expected 0, 1 to 7, 0", "format")
        request = Request()
        request.key = key
        request.message = message
        request.destination = destination
        request.is_call = is_call = kind != _CAST
        request.reply_to = request.queue = request.delivery = request.slot = request.outcome = None
        request.ttl = ttl
        request.attempts = 0
        request.kept = False
        request.received_at = now
        request.usage = usage = link.usage
        request.charge = charge = (length if not flags or not flags & 1 else size_of(message)) + MESSAGE_OVERHEAD
        allowed = link.allowed_calls
        if not is_call:
            allowed = link.allowed_casts
            is_known = allowed is None or (destination in allowed and not flags & _FANOUT)
            if is_known or self._links.access.may_send(link, message, destination):
                self.casts.accept(now, link, request, flags, form)
            return
        if (
            allowed is not None
            and destination not in allowed
            and not self._links.access.may_send(link, message, destination)
        ):
            return
        calls = link.calls
        if key in calls:
            raise ProtocolError("sequence of a call that is in flight", "duplicate")
        requests = self.requests
        if (
            requests.draining or requests.calls_in_flight >= self._settings.max_calls_in_flight
        ) and not self._is_needed_by_running_work(flags):
            self._refuse_call(now, link, request)
            return
        calls[key] = request
        requests.last_number = request.number = requests.last_number + 1
        request.reply_to = link
        requests.calls_in_flight += 1
        usage.size_bytes += charge
        deadlines = requests.deadlines
        known = now <= deadlines.slot_until and ttl == deadlines.slot_ttl
        request.slot = slot = deadlines.slot if known else deadlines.slot_of(now, ttl)
        slot[request] = request
        groups = destination.groups
        if groups:
            destination = resolve_group(self._directory, request)
        if flags & _RESENT and self.adopts(now, link, request):
            destination.statistics.calls += 1
            return
        destination.statistics.calls += 1
        if self.deliveries.gate is not None and self.deliveries.stops(now, request):
            return
        # As `pick` does, written out for most topics.
        consumer = destination.ready.alone
        if consumer is None or len(consumer.in_flight) >= consumer.credit:
            consumer = destination.pick()
        if consumer is not None and consumer.accepts >> form & 1 and key not in consumer.in_flight:
            self.deliveries.give(now, request, consumer, message)
        elif not self.deliveries.route(now, request, consumer):
            return
        if groups:
            self.casts.copy_to_groups(now, request, groups.values())

    def _refuse_call(self, now: float, link: Link, request: Request) -> None:
        requests, destination = self.requests, request.destination
        requests.refuse_new(link, request.key)
        if not requests.draining:
            destination.statistics.calls += 1
            drop = Drop(destination.name, "call", "too many calls")
            requests.drops.add(now, drop, method=destination.method, sender=link.identity, log=False)
            requests.record(now, requests.copy(request), Outcome.OVERLOADED)  # it was charged to nobody

    def refuse(self, now: float, link: Link, message: bytes) -> None:
        """Refuse a call or cast of a link over its memory limit.

        Raises:
            ProtocolError: as :meth:`accept`.
        """
        settings = self._settings
        limit = link.overdrawn or "link.max_bytes"
        value = {
            "link.max_bytes": settings.link_max_bytes,
            "security.max_bytes_per_key": settings.max_bytes_per_key,
            "router.max_bytes": settings.router_max_bytes,
        }[limit]
        destination = self._directory.resolve(now, message)
        if message[KIND_AT] == _CAST and not message[LOW_FLAGS_AT] & (Flag.FANOUT | Flag.CONFIRM):
            # As for a full queue: later casts are refused, too, until this one is offered again.
            link.stalled.setdefault(destination.queue, sequence_of(message))
        self.requests.counters[f"refused: {limit}"] += 1
        text = f"{link.usage.size_bytes} bytes of calls and casts of {link.identity} have not ended"
        details = {"topic": destination.name, "limit": limit}
        self.requests.tell(link, message[KEY], Outcome.OVERLOADED, f"{text}; {limit} = {value}", details)

    def cancel(self, now: float, link: Link, message: bytes) -> None:
        """Cancel a call: a queued one never runs, a running one is notified."""
        request = link.calls.get(message[KEY])
        if request is not None:
            self.requests.cancel(now, request)

    # --- from consumers ----------------------------------------------------------------------

    def reply(self, now: float, link: Link, message: bytes) -> Delivery | None:  # noqa: C901 - the hot path
        """Handle REPLY, FAULT or END: a call has ended.

        Returns:
            The delivery that was answered; None if it is not there (any more).
        """
        kind, attempt, tag, handler_us, key, lengths = unpack_reply(message)
        requests = self.requests
        try:
            consumer = link.consumers[tag]
            delivery = consumer.in_flight[key]
        except KeyError:
            requests.count_unknown(link, "reply for an unknown call")
            return None
        if attempt != delivery.attempt:
            requests.count_unknown(link, "reply of an earlier attempt")
            return None
        del consumer.in_flight[key]
        request = delivery.request
        if type(request) is Forwarded:
            requests.on_forwarded_run(now, request, link)
        outcome = _OK if kind != _FAULT else _REMOTE_ERROR
        error = ""
        if lengths:
            if kind == _FAULT and has_error_name(message):
                bare, error = split_error_name(message)
                if type(request) is not Forwarded:
                    message = bare  # its owner splits it
            else:
                message, outcome = self._malformed_reply(link, key), _PROTOCOL
        caller, slot = request.reply_to, request.slot
        if caller is None or slot is None or (outcome and self.hedged_ends.outlives(request, delivery, outcome)):
            requests.counters["late replies"] += 1
            if caller is None:
                requests.record(now, request, Outcome.PROTOCOL)  # a cast is to be settled, not answered
            elif type(request) is Forwarded:
                request.owner.send(message)  # for which that consumer is free now
            self.hedged_ends.unused(now, request, delivery, message, outcome, handler_us, error)
        else:
            if type(message) is not bytes:
                if is_too_large(request, message):
                    requests.counters["answers dropped: too large"] += 1
                    message, outcome = too_large(link, request, message)
                elif caller.is_full or caller.route is None:
                    message, outcome = self._bounded_answer(caller, request, message, outcome)
            caller.outbox.append(message)
            if not caller.marked:
                caller.mark()
            if requests.watches_answers:
                if requests.owes_answers and caller.maker is not link:
                    caller.owe(key, link)
                if self.on_forwarded_answered is not None and type(request) is Forwarded:
                    self.on_forwarded_answered(now, request, delivery)
                if requests.on_answered is not None:
                    requests.on_answered(now, delivery, message)
            # As `finish` does for all other ends.
            request.outcome = outcome
            request.usage.size_bytes -= request.charge
            del caller.calls[key]
            del slot[request]
            requests.calls_in_flight -= 1
            statistics, seconds = request.destination.statistics, now - request.received_at
            if outcome != _OK:
                statistics.ended(outcome, seconds)
            elif seconds == statistics.run_seconds:
                statistics.run += 1
            else:
                statistics.answered(seconds)
            log = requests.log
            if log is not None and type(request) is not Forwarded:
                size = len(message) if type(message) is bytes else size_of(message)
                if not error:
                    log.ended(now, request, delivery, outcome, size, handler_us)
                else:
                    log.failed(now, request, delivery, outcome, size, handler_us, error)
            if delivery.earlier is not None or request.delivery is not delivery:
                self.hedged_ends.won(now, request, delivery, message, outcome)
            else:
                request.delivery = None  # as `settled_by` does
        consumer.settled += 1
        consumer.progressed_at = now
        if consumer.level != ALONE:
            self.departures.relieved(now, consumer)
        shared, own, backlog = consumer.queues
        if shared.size_bytes or own.size_bytes or backlog.size_bytes or self.deliveries.tickets:
            self.deliveries.deliver_waiting(now, consumer)
        return delivery

    def _bounded_answer(self, caller: Link, request: Request, message: bytes, outcome: int) -> tuple[bytes, int]:
        """Return the large answer ``message`` and its outcome, or an error if too much waits for the caller already."""
        waiting, most = outgoing_bytes(caller), self._settings.outbox_max_bytes
        if waiting + size_of(message) <= most:
            return message, outcome
        self.requests.counters["answers dropped: outbox full"] += 1
        return no_room(request, message, waiting, most)

    def _malformed_reply(self, link: Link, key: bytes) -> bytes:
        self.requests.count_unknown(link, "malformed reply")
        text = f"{link.identity} sent a malformed reply"
        return ErrorBody(outcome=Outcome.PROTOCOL, text=text, details={"started": "yes"}).message(key=key)

    def has_room(self, now: float, link: Link) -> None:
        """Resume deliveries to ``link``, whose window has room again."""
        for consumer in list(link.consumers.values()):
            consumer.restore_credit()
            self.deliveries.deliver_waiting(now, consumer)

    # --- life --------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """The time of the next :meth:`tick`, or of ``recovery``'s next release (monotonic seconds)."""
        due = self.requests.next_deadline()
        for other in (self.departures.next_deadline(), self.recovery.next_deadline(), self.hedging.next_deadline()):
            if other is not None and (due is None or other < due):
                due = other
        return due

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.requests.tick(now)
        self.departures.tick(now)
        self.hedging.tick(now)

    def begin_drain(self, now: float) -> None:
        """Undelivered calls go back to their callers. Accept only what running handlers need."""
        self.requests.draining = True
        return_undelivered_calls(now, self._links, self.requests, self._is_needed_by_running_work(Flag.NESTED))

    def _is_needed_by_running_work(self, flags: int) -> bool:
        """Return whether work begun before the drain may need this message to end: its handler waits for it.

        Any running handler counts: it may use its service's link or that of another client of its process.
        """
        if not flags & Flag.NESTED or self.refuses_nested_work or not self.requests.draining:
            return False
        return any(consumer.in_flight for each in self._links for consumer in each.consumers.values())

    def unsettled(self) -> Iterator[Request]:
        """Iterate over all unfinished messages: calls of all callers, then casts, in flight and waiting."""
        for link in (*self._links, *self.departures.deserted):
            yield from link.calls.values()
            for consumer in link.consumers.values():
                in_flight = (delivery.request for delivery in consumer.in_flight.values())
                yield from (each for each in (*in_flight, *consumer.backlog) if not each.is_call)
        for topic in self._directory:
            for queue in (topic.queue, *(server.queue for server in topic.servers.values())):
                yield from (each for each in queue if not each.is_call)
        yield from (each for requests in self.held_elsewhere for each in requests if not each.is_call)

    def check(self) -> None:
        """Assert the invariants. For tests: scans every table."""
        calls = sum(len(link.calls) for link in self.departures.deserted)
        for link in self._links:
            calls += len(link.calls)
            for key, request in link.calls.items():
                assert request.is_call and request.reply_to is link and request.key == key
                assert request.slot is not None and request in request.slot
                assert (request.queue is None) != (request.delivery is None)
            for consumer in link.consumers.values():
                # One that has come from another router goes on with what it has, beyond its credit.
                assert len(consumer.in_flight) <= consumer.granted or link.follows_mesh
                for delivery in consumer.in_flight.values():
                    assert delivery.consumer is consumer and delivery.request.queue is None
                    assert delivery.request.has_ended or any(delivery is each for each in delivery.request.deliveries())
                assert consumer in self.deliveries.unheard or not (consumer.ready and any(consumer.queues))
        assert calls == self.requests.calls_in_flight
        for topic in self._directory:
            topic.ready.check()
