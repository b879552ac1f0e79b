"""Casts as they come: held, refused, copied to groups, fanned out, or delivered."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rpcmq.core.router.directory import Directory
from rpcmq.core.router.model import Destination, Link, Request, Topic
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.deliveries import Deliveries
from rpcmq.core.router.roundrobin.mailboxes import Mailboxes
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.roundrobin.restart_recovery import Recovery
from rpcmq.core.router.usage import SharedUsage
from rpcmq.errors import Outcome
from rpcmq.payload.format import has_stream
from rpcmq.wire import FORMAT_AT, KEY, KIND_AT, Flag, Kind, size_of, ttl_of, with_kind

__all__ = ["Casts", "resolve_group"]

_CONFIRM, _FANOUT, _RESENT = Flag.CONFIRM, Flag.FANOUT, Flag.RESENT


class Casts:
    """Takes casts, and makes the copies of messages that go to several."""

    __slots__ = (
        "_deliveries", "_directory", "_is_needed_by_running_work", "_mailboxes", "_recovery", "_requests", "adopts",
    )  # fmt: skip

    def __init__(
        self,
        directory: Directory,
        requests: RequestTable,
        recovery: Recovery,
        mailboxes: Mailboxes,
        deliveries: Deliveries,
        goes_on: Callable[[int], bool],
    ) -> None:
        self._directory = directory
        self._requests = requests
        self._recovery = recovery
        self._mailboxes = mailboxes
        self._deliveries = deliveries
        self._is_needed_by_running_work = goes_on
        #: Takes a cast that was sent to another router before: (now, link, request); False: it does not.
        self.adopts: Callable[[float, Link, Request], bool] = lambda now, link, request: False

    def accept(self, now: float, link: Link, request: Request, flags: int, form: int) -> None:
        """The cast ``request``, of the payload format ``form``, which ``link`` has sent and may send."""
        requests, deliveries = self._requests, self._deliveries
        if (link.held or flags) and self._recovery.holds(now, link, request, flags):
            return
        groups = request.destination.groups
        if groups and not flags & _FANOUT:
            # Resolve the group first: refusals must name the queue that the cast waits in.
            resolve_group(self._directory, request)
        if flags & _RESENT and self._recovery.is_delivered_already(request.key, request.destination.topic):
            self._skip(now, link, request, groups)
            return
        if requests.draining and not (flags & _CONFIRM and self._is_needed_by_running_work(flags)):
            requests.refuse_new(link, request.key)
            return
        if link.stalled and self._mailboxes.stays_stalled(link, request):
            return
        if flags & _FANOUT:
            self._fan_out(now, link, request, is_owned=True)
            return
        request.kept = link.keeps
        link.usage.size_bytes += request.charge
        requests.last_number = request.number = requests.last_number + 1
        destination = request.destination
        if flags & _RESENT and self.adopts(now, link, request):
            destination.statistics.casts += 1
            if flags & _CONFIRM:
                deliveries.confirm(link, request)
            return
        if deliveries.gate is not None and deliveries.stops(now, request, link):
            return
        # As `pick` does, written out for most topics.
        consumer = destination.ready.alone
        if consumer is None or len(consumer.in_flight) >= consumer.credit:
            consumer = destination.pick()
        if consumer is not None and consumer.accepts >> form & 1 and request.key not in consumer.in_flight:
            deliveries.give(now, request, consumer, request.message)
        elif not deliveries.route(now, request, consumer, link):
            return
        destination.statistics.casts += 1
        if groups:
            self.copy_to_groups(now, request, groups.values())
        if flags & _CONFIRM:
            deliveries.confirm(link, request)

    def _skip(self, now: float, link: Link, request: Request, groups: dict[str, Topic]) -> None:
        """Confirm a cast that the router's previous life delivered, and do not deliver it again."""
        self._requests.counters["duplicate casts dropped"] += 1
        # Casts stalled behind it may proceed.
        self._mailboxes.unstall(link, request)
        self._deliveries.confirm(link, request)
        if link.keeps:
            self._requests.receipts.note(now, request)
        if groups and not request.flags & Flag.FANOUT and not self._requests.draining:
            self.copy_to_groups(now, request, groups.values(), link)

    # --- copies ------------------------------------------------------------------------------

    def copy_to_groups(self, now: float, request: Request, groups: Iterable[Topic], sender: Link | None = None) -> None:
        """Copy ``request`` to each group but its own. Copies of a call are casts: it has one answer.

        Args:
            sender: of a message that a former life of this router, or another router, has copied before.
        """
        requests, deliveries = self._requests, self._deliveries
        message = request.message
        if has_stream(message[FORMAT_AT]):
            requests.counters["not copied to groups: with a stream"] += 1  # which has one reader
            return
        if message[KIND_AT] != Kind.CAST:
            message = with_kind(message, Kind.CAST)
        shared = SharedUsage(request.usage, size_of(message))
        # The loop holds a reference: a copy may end before the next one is made.
        shared.size_bytes += 1
        for group in groups:
            if group is request.destination.topic:
                continue
            to = self._directory.in_group(group, request.destination.method)
            consumer = to.pick()
            is_there = request.key in to.queue or (consumer is not None and request.key in consumer.in_flight)
            if is_there or (request.flags & Flag.RESENT and self._recovery.is_delivered_already(request.key, group)):
                requests.counters["duplicate casts dropped"] += 1
                continue
            copy = requests.copy(request)
            copy.message, copy.is_call, copy.reply_to, copy.destination = message, False, None, to
            copy.delivery = None
            to.statistics.casts += 1
            _charge_copy(copy, shared)
            if sender is not None and self.adopts(now, sender, copy):
                continue
            if consumer is not None and consumer.accepts >> message[FORMAT_AT] & 1:
                deliveries.deliver(now, copy, consumer)
            else:
                deliveries.route(now, copy)
        shared.size_bytes -= 1

    def fan_out_here(self, now: float, link: Link, message: bytes, destination: Destination) -> None:
        """Copy ``message``, a fanout that the router at ``link`` owns, to each consumer here."""
        request = Request()
        request.key, request.message, request.destination = message[KEY], message, destination
        request.is_call, request.reply_to, request.kept = False, None, False
        request.attempts, request.ttl, request.received_at = 0, ttl_of(message), now
        request.queue = request.delivery = request.slot = request.outcome = None
        request.usage, request.charge = link.usage, 0
        self._fan_out(now, link, request)

    def _fan_out(self, now: float, link: Link, request: Request, is_owned: bool = False) -> None:
        requests, deliveries = self._requests, self._deliveries
        destination = request.destination
        destination.statistics.casts += 1
        flags, size, key, form = request.flags, request.size, request.key, request.message[FORMAT_AT]
        remotes = destination.remotes if is_owned else {}
        if not destination.consumers and not remotes and flags & Flag.MANDATORY:
            requests.refuse(now, requests.copy(request), link, *explain.no_consumer(now, request))
            return
        reached = repeated = 0
        shared = SharedUsage(link.usage, size)
        shared.size_bytes += 1
        requests.turns.spent += 4 * len(destination.consumers)
        for consumer in list(destination.consumers):
            if key in consumer.in_flight or key in consumer.backlog:
                repeated += 1
                continue
            requests.last_number = number = requests.last_number + 1
            copy = request.copy(number)
            if not consumer.accepts >> form & 1:
                requests.drop(now, copy, consumer.backlog, "format not accepted")
                requests.record(now, copy, Outcome.PROTOCOL)
                continue
            if consumer.ready:
                _charge_copy(copy, shared)
                deliveries.deliver(now, copy, consumer)
            elif self._mailboxes.has_room(consumer.backlog, size):
                _charge_copy(copy, shared)
                requests.deadlines.arm_cast(now, copy)
                consumer.backlog.append(copy)
            else:
                requests.drop(now, copy, consumer.backlog, "queue full")
                requests.record(now, copy, Outcome.OVERLOADED)
                continue
            reached += 1
        shared.size_bytes -= 1
        if remotes:
            reached += deliveries.elsewhere.fan_out(request)
        elif not destination.consumers:
            copy = requests.copy(request)
            requests.drop(now, copy, destination.queue, "no consumer")
            requests.record(now, copy, Outcome.NO_CONSUMER)
        if repeated:
            deliveries.note_repeated(now, link, request)
        if flags & Flag.CONFIRM:
            deliveries.confirm(link, request, reached)


def resolve_group(directory: Directory, request: Request) -> Destination:
    """Return the original's destination: the topic itself, or its first group if only groups are consumed."""
    destination = request.destination
    if not destination.registered:
        first = next(iter(destination.groups.values()))
        request.destination = destination = directory.in_group(first, destination.method)
    return destination


def _charge_copy(copy: Request, shared: SharedUsage) -> None:
    copy.usage, copy.charge = shared, 1
    shared.size_bytes += 1
