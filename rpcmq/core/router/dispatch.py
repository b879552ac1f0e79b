"""The RoundRobin engine: calls and casts from their callers to consumers, and answers home.

Invariants (``Dispatch.check``):

* A call is in its link's ``calls`` until it has ended for the caller, which happens exactly once.
* A pending message is in exactly one place: a queue, or a consumer's ``in_flight``; each has a key at most once. A
  message that repeats a key is refused, and never takes the place of the one that has it: credit counts each.
* If a consumer is ready, nothing waits that it could take.

``accept`` and ``reply`` are the router's hot path: what they do for each message is written out in
them rather than called, and what is rare is a call away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from math import inf
from struct import Struct

from rpcmq.core.common.drops import Drop
from rpcmq.core.common.session import WINDOW_BYTES
from rpcmq.core.router import explain
from rpcmq.core.router.directory import Directory
from rpcmq.core.router.links import Link, LinkState, LinkTable, outgoing_bytes
from rpcmq.core.router.request_table import ENDED_AT_ONCE, Tracking
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.streams import ITEMS_UNASKED, MAX_ITEMS_GRANTED, is_stream, items_left
from rpcmq.core.router.topics import ALONE, Consumer, Destination, Pending, Queue, Topic
from rpcmq.core.router.usage import MESSAGE_OVERHEAD, SharedUsage
from rpcmq.errors import Outcome, ProtocolError
from rpcmq.wire import (
    MAX_SETTLEMENTS,
    NO_TTL,
    SETTLEMENT,
    Address,
    Flag,
    Kind,
    control,
    message,
    payload_of,
    remade,
    size_of,
    without_error,
)

__all__ = ["Dispatch"]

#: Of a header: length, kind, flags, attempt and format as one, consumer, ttl, key, and the lengths of
#: address, method and trace.
_unpack_request = Struct(">IxBHxHBI20sHBB").unpack_from
#: Of a header: kind, attempt, consumer, ttl (what the handler took), key, and the lengths of address, method and
#: trace as one.
_unpack_reply = Struct(">5xB3xBxBI20sI").unpack_from
# Looking up and comparing a member of an enum costs more than a step of the hot path.
_CAST, _FAULT, _ITEM = int(Kind.CAST), int(Kind.FAULT), int(Kind.ITEM)
_DELIVERIES = (int(Kind.REQUEST), _CAST)
_ANSWERS = (int(Kind.REPLY), _FAULT, int(Kind.END))
_CONFIRM, _FANOUT, _IDEMPOTENT, _RESENT = Flag.CONFIRM, Flag.FANOUT, Flag.IDEMPOTENT, Flag.RESENT
#: A cast with one of these waits for the consumers of the router's previous life to come back.
_HELD = Flag.RESENT | Flag.MANDATORY
_OK, _REMOTE_ERROR, _PROTOCOL = int(Outcome.OK), int(Outcome.REMOTE_ERROR), int(Outcome.PROTOCOL)
#: Messages, and bytes, that wait for a caller before a sign of life of its call: more, and it is let go.
_MAX_BEFORE_ALIVE = 1000
_MAX_BYTES_BEFORE_ALIVE = 8 << 20
#: A message that waited for less is not given a new header: its ttl is as good as right (seconds).
_NO_TIME = 0.001
#: An idempotent message whose consumers die is given to at most so many of them.
MAX_ATTEMPTS = 5
#: Casts that one registration may say it had before, of which processes remember 4096; and all together.
_MAX_RECENT = 10_000
_MAX_RECENT_OF_ALL = 4_000_000


def _is_consumed(destination: Destination) -> bool:
    """Whether somebody who is connected consumes it, or a group of it."""
    topics: tuple[Destination | Topic, ...] = (destination, *destination.groups.values())
    return any(consumer.link.route is not None for each in topics for consumer in each.consumers)


class Dispatch(Tracking):
    """Tracks each call and cast from receipt to settlement."""

    __slots__ = (
        "_deserted", "_deserted_at", "_destinations", "_directory", "_holding", "_hoping", "_recent", "_recent_until",
        "_recover_until", "_releasing", "allows", "last_number", "on_offence",
    )  # fmt: skip

    def __init__(self, settings: Settings, links: LinkTable, directory: Directory, now: float) -> None:
        super().__init__(settings, links)
        self._directory = directory
        self._destinations = directory.destinations
        self._recover_until = now + settings.recovery_seconds
        self._holding: list[Link] = []
        #: Links that have ended and left calls, of which only so many are ended at a time.
        self._deserted: deque[Link] = deque()
        self._deserted_at = now
        #: Mandatory calls that wait for consumers to come back after a restart.
        self._hoping: list[Pending] = []
        self._releasing = False
        #: Casts that consumers had from the router's previous life, by the topic and group that they consume.
        self._recent: dict[tuple[Address, str], set[bytes]] = {}
        self._recent_until = now + settings.mailbox_max_seconds
        #: Whether the sender's key has the right to send it there; it is told if not.
        self.allows: Callable[[Link, bytes, Destination | None], bool] = lambda link, part, destination: True
        #: Called with (now, link, message, error) where a message is refused after it was taken in.
        self.on_offence: Callable[[float, Link, bytes, ProtocolError], None] = lambda now, link, part, error: None
        #: The last that a message got, and so how many there were. Each number ends in one record of the log.
        self.last_number = 0

    # --- from callers ------------------------------------------------------------------------

    def accept(self, now: float, link: Link, part: bytes) -> None:
        """A call or cast.

        Raises:
            ProtocolError: malformed, not from this link, or a call whose sequence is in flight already.
        """
        (
            length, kind, flags, form, tag, ttl, key, address_length, method_length, trace_length,
        ) = _unpack_request(part)  # fmt: skip
        cut = 40 + address_length + method_length
        destination = self._destinations.get(part[40:cut])
        if destination is None or cut + trace_length > length:
            # Who has no right makes no topics.
            if link.granted is not None and not self.allows(link, part, None):
                return
            destination = self._directory.resolve(now, part)
        if not key.startswith(link.origin):
            raise ProtocolError(f"origin {key[:12].hex()} is not this link's", "origin")
        if not 0 < form < 8 or tag:
            text = f"attempt {part[9]}, payload format {part[10]}, consumer {part[11]}: expected 0, 1 to 7, 0"
            raise ProtocolError(text, "format")
        pending = Pending()
        pending.key = key
        pending.message = part
        pending.destination = destination
        pending.link = pending.queue = pending.consumer = pending.slot = None
        pending.ttl = ttl
        pending.attempt = 0
        pending.kept = False
        pending.received_at = pending.dispatched_at = now
        pending.usage = usage = link.usage
        pending.charge = charge = (length if not flags or not flags & 1 else size_of(part)) + MESSAGE_OVERHEAD
        if kind == _CAST:
            self._cast(now, link, pending, flags, form)
            return
        granted = link.granted
        if granted is not None and destination not in granted and not self.allows(link, part, destination):
            return
        calls = link.calls
        if key in calls:
            raise ProtocolError("sequence of a call that is in flight", "duplicate")
        if (self.draining or self.calls_in_flight >= self._settings.max_calls_in_flight) and not self._goes_on(flags):
            self._not_taken(link, key)
            if not self.draining:
                destination.statistics.calls += 1
                drop = Drop(destination.name, "call", "too many calls")
                self.drops.add(now, drop, method=destination.method, sender=link.identity, log=False)
                self.record(now, self._copy(pending), Outcome.OVERLOADED)
            return
        self.last_number = pending.number = self.last_number + 1
        pending.link = link
        calls[key] = pending
        self.calls_in_flight += 1
        usage.size_bytes += charge
        known = now <= self._slot_until and ttl == self._slot_ttl
        pending.slot = slot = self._slot if known else self._slot_of(now, ttl)
        slot[pending] = pending
        groups = destination.groups
        if groups:
            destination = self._lead(pending)
        destination.statistics.calls += 1
        consumer = destination.pick()
        if consumer is not None and consumer.accepts >> form & 1:
            if not self._deliver(now, pending, consumer):
                return
        elif not self._route(now, pending):
            return
        if groups:
            self._copy_to_groups(now, pending, groups.values())

    def _cast(self, now: float, link: Link, pending: Pending, flags: int, form: int) -> None:
        granted = link.granted_casts
        is_known = granted is None or (pending.destination in granted and not flags & _FANOUT)
        if not is_known and not self.allows(link, pending.message, pending.destination):
            return
        if link.held or (flags & _HELD and now < self._recover_until and self._is_early(link, pending, flags)):
            if not link.held:
                self._holding.append(link)
            link.held.append(pending.message)
            link.usage.size_bytes += pending.charge
            return
        groups = pending.destination.groups
        if groups and not flags & _FANOUT:
            # What may be said of its queue is said of that in which it waits.
            self._lead(pending)
        if flags & _RESENT and self._was_had(pending.key, pending.destination.topic):
            self._had_before(now, link, pending, groups)
            return
        if self.draining and not (flags & _CONFIRM and self._goes_on(flags)):
            self._not_taken(link, pending.key)
            return
        if link.stalled and self._stays_stalled(link, pending):
            return
        if flags & _FANOUT:
            self._fan_out(now, link, pending)
            return
        pending.kept = link.keeps
        link.usage.size_bytes += pending.charge
        self.last_number = pending.number = self.last_number + 1
        destination = pending.destination
        consumer = destination.pick()
        if consumer is not None and consumer.accepts >> form & 1:
            if not self._deliver(now, pending, consumer, link):
                return
        elif not self._route(now, pending, link):
            return
        destination.statistics.casts += 1
        if groups:
            self._copy_to_groups(now, pending, groups.values())
        if flags & _CONFIRM:
            self._confirm(link, pending)

    def _had_before(self, now: float, link: Link, pending: Pending, groups: dict[str, Topic]) -> None:
        """A consumer had the cast from the router's previous life: confirm it, and do not deliver it."""
        self.counters["duplicate casts dropped"] += 1
        # If others wait behind it, it has had its turn.
        self._unstall(link, pending)
        self._confirm(link, pending)
        if link.keeps:
            self.receipts.note(now, pending)
        if groups and not pending.flags & Flag.FANOUT and not self.draining:
            self._copy_to_groups(now, pending, groups.values())

    def _copy(self, pending: Pending) -> Pending:
        """``pending`` as a message in its own right."""
        self.last_number += 1
        return pending.copy(self.last_number)

    def _is_early(self, link: Link, pending: Pending, flags: int) -> bool:
        """Whether consumers that are on their way back after a restart matter to this cast."""
        # A process that is new has nothing that an earlier life of the router may have delivered.
        if link.returning or not flags & Flag.MANDATORY:
            return link.returning
        return self._links.has_returned or not _is_consumed(pending.destination)

    def _route(self, now: float, pending: Pending, caster: Link | None = None) -> bool:
        """Not straight to a consumer: wait, go to one that accepts the format, or be refused."""
        destination = pending.destination
        consumers = destination.consumers
        form = pending.message[10]
        self.turns.spent += len(consumers) >> 4
        if consumers and not all(c.accepts >> form & 1 for c in consumers):
            accepts = 0xFF
            for consumer in consumers:
                accepts &= consumer.accepts
                if consumer.ready and consumer.accepts >> form & 1:
                    return self._deliver(now, pending, consumer, caster)
            text = f"{destination.name!r} has no free consumer that accepts payload format {form}"
            return self._refuse(now, pending, caster, Outcome.PROTOCOL, (text, {"accepts": accepts}))
        if pending.flags & Flag.MANDATORY and not any(c.link.route is not None for c in consumers):
            # A router does not know whom it had in an earlier life, nor whether there was one.
            if pending.link is None or now >= self._recover_until:
                return self._refuse(now, pending, caster, Outcome.NO_CONSUMER, explain.no_consumer(now, destination))
            self._hoping.append(pending)
        settings = self._settings
        queue = destination.queue
        first = queue.get(pending.key)
        if first is not None and self._is_deserted(first, pending):
            self._desert(now, first)
        elif first is not None:
            return self._repeated(now, pending, first, caster)
        # What was held after a restart was acknowledged to its sender: it is not refused any more.
        has_room = queue.has_room(pending.size, settings.queue_max_messages, settings.queue_max_bytes)
        if not has_room and not self._releasing:
            queue.count_dropped("refused: full")
            return self._refuse(now, pending, caster, Outcome.OVERLOADED, explain.overloaded(destination, settings))
        if pending.link is None:
            self.arm_cast(now, pending)
        queue.append(pending)
        return True

    def _lead(self, pending: Pending) -> Destination:
        """Where a message to a topic with groups goes itself: to the topic, unless only groups use it."""
        destination = pending.destination
        if not destination.registered:
            first = next(iter(destination.groups.values()))
            pending.destination = destination = self._directory.in_group(first, destination.method)
        return destination

    def _copy_to_groups(self, now: float, pending: Pending, groups: Iterable[Topic]) -> None:
        """Copies of a call are casts: it has one answer."""
        part = pending.message
        if part[5] != _CAST:
            part = remade(part, part[:5] + bytes((_CAST,)) + part[6:])
        shared = SharedUsage(pending.usage, size_of(part))
        shared.size_bytes += 1
        for group in groups:
            if group is pending.destination.topic:
                continue
            to = self._directory.in_group(group, pending.destination.method)
            consumer = to.pick()
            is_there = pending.key in to.queue or (consumer is not None and pending.key in consumer.in_flight)
            if is_there or (pending.flags & Flag.RESENT and self._was_had(pending.key, group)):
                self.counters["duplicate casts dropped"] += 1
                continue
            copy = self._copy(pending)
            copy.message, copy.link, copy.destination = part, None, to
            to.statistics.casts += 1
            self._charge_copy(copy, shared)
            if consumer is not None and consumer.accepts >> part[10] & 1:
                self._deliver(now, copy, consumer)
            else:
                self._route(now, copy)
        shared.size_bytes -= 1

    def _stays_stalled(self, link: Link, pending: Pending) -> bool:
        if pending.destination.queue not in link.stalled or pending.flags & Flag.CONFIRM:
            return False
        if self._unstall(link, pending):
            return False
        text, details = explain.overloaded(pending.destination, self._settings, is_behind=True)
        self.tell(link, pending.key, Outcome.OVERLOADED, text, details)
        return True

    def _unstall(self, link: Link, pending: Pending) -> bool:
        """Let later casts to its queue come if ``pending`` is the refused one that they wait for."""
        queue = pending.destination.queue
        is_first = link.stalled.get(queue) == int.from_bytes(pending.key[12:]) and bool(pending.flags & Flag.RESENT)
        if is_first:
            del link.stalled[queue]
        return is_first

    def _fan_out(self, now: float, link: Link, pending: Pending) -> None:
        destination = pending.destination
        destination.statistics.casts += 1
        settings = self._settings
        flags, form, size = pending.flags, pending.message[10], pending.size
        if not destination.consumers and flags & Flag.MANDATORY:
            refused = explain.no_consumer(now, destination)
            self._refuse(now, self._copy(pending), link, Outcome.NO_CONSUMER, refused)
            return
        reached = repeated = 0
        shared = SharedUsage(link.usage, size)
        # One for the loop, which may come to the end of a copy before it makes the next.
        shared.size_bytes += 1
        self.turns.spent += 4 * len(destination.consumers)
        for consumer in list(destination.consumers):
            if pending.key in consumer.in_flight or pending.key in consumer.backlog:
                repeated += 1
                continue
            copy = self._copy(pending)
            if not consumer.accepts >> form & 1:
                self.drop(now, copy, consumer.backlog, "format not accepted")
                self.record(now, copy, Outcome.PROTOCOL)
            elif consumer.ready:
                self._charge_copy(copy, shared)
                self._deliver(now, copy, consumer)
                reached += 1
            elif consumer.backlog.has_room(size, settings.queue_max_messages, settings.queue_max_bytes):
                self._charge_copy(copy, shared)
                self.arm_cast(now, copy)
                consumer.backlog.append(copy)
                reached += 1
            else:
                self.drop(now, copy, consumer.backlog, "queue full")
                self.record(now, copy, Outcome.OVERLOADED)
        shared.size_bytes -= 1
        if not destination.consumers:
            copy = self._copy(pending)
            self.drop(now, copy, destination.queue, "no consumer")
            self.record(now, copy, Outcome.NO_CONSUMER)
        if repeated:
            self._note_repeated(now, link, pending)
        if flags & Flag.CONFIRM:
            self._confirm(link, pending, reached)

    def _charge_copy(self, copy: Pending, shared: SharedUsage) -> None:
        copy.usage, copy.charge = shared, 1
        shared.size_bytes += 1

    def _confirm(self, link: Link, pending: Pending, reached: int = 1) -> None:
        if pending.flags & Flag.CONFIRM:
            link.send(message(Kind.CONFIRM, reached.to_bytes(4), key=pending.key))

    def refuse(self, now: float, link: Link, part: bytes) -> None:
        """A call or cast of a link for which too much is held already.

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
        destination = self._directory.resolve(now, part)
        if part[5] == _CAST and not part[7] & (Flag.FANOUT | Flag.CONFIRM):
            # As in a full queue: what follows is refused, too, until this one is offered again.
            link.stalled.setdefault(destination.queue, int.from_bytes(part[28:36]))
        self.counters[f"refused: {limit}"] += 1
        text = f"{link.usage.size_bytes} bytes of calls and casts of {link.identity} have not ended"
        details = {"topic": destination.name, "limit": limit}
        self.tell(link, part[16:36], Outcome.OVERLOADED, f"{text}; {limit} = {value}", details)

    def cancel(self, now: float, link: Link, part: bytes) -> None:
        """The caller gave up: a queued call never runs, a running one is told."""
        pending = link.calls.get(part[16:36])
        if pending is None:
            return
        self.finish(now, pending, Outcome.CANCELLED)
        self.withdraw(pending)

    def grant(self, now: float, link: Link, part: bytes) -> None:
        """The caller takes more items of a stream: it was busy with those it has, and the time starts again.

        Raises:
            ProtocolError: there is no count.
        """
        if part[36:40] != b"\0\0\0\0" or len(part) != 44:
            raise ProtocolError("GRANT needs a count of 4 bytes and nothing else", "length")
        pending = link.calls.get(part[16:36])
        if pending is None or pending.consumer is None:
            return
        if is_stream(pending):
            self.disarm(pending)
            self.arm_call(now, pending)
        items = int.from_bytes(part[40:])
        if not items:
            return  # all that it says is said to us
        left = items_left(pending) + items
        if left > MAX_ITEMS_GRANTED:
            text = f"{left} items of the stream were granted and not sent; {MAX_ITEMS_GRANTED} may be"
            self._break_off(now, pending, Outcome.PROTOCOL, text)
            return
        pending.items_left = left
        pending.consumer.link.send(part)

    def _break_off(self, now: float, pending: Pending, outcome: Outcome, text: str) -> None:
        """End a call of which one side does what it must not, for both."""
        caller = pending.link
        assert caller is not None
        self.counters["calls broken off"] += 1
        self.finish(now, pending, outcome)
        self.tell(caller, pending.key, outcome, text, {"topic": pending.destination.name, "started": "yes"})
        self.withdraw(pending)

    # --- to consumers ------------------------------------------------------------------------

    def _deliver(self, now: float, pending: Pending, consumer: Consumer, caster: Link | None = None) -> bool:
        """Whether ``consumer`` got it; False if it has a message with that key already, and ``pending`` has ended."""
        key, in_flight = pending.key, consumer.in_flight
        if key in in_flight and not self._takes_over(now, pending, in_flight[key]):
            return self._repeated(now, pending, in_flight[key], caster)
        in_flight[key] = pending
        pending.consumer = consumer
        pending.dispatched_at = now
        if consumer.level != ALONE:
            consumer.topic.ready.move(consumer)
        part = pending.message
        waited = now - pending.received_at
        if consumer.tag or pending.attempt or waited >= _NO_TIME:
            part = self._readdressed(pending, consumer, waited)
        link = consumer.link
        link.outbox.append(part)
        if not link.marked:
            link.mark()
        return True

    def _takes_over(self, now: float, pending: Pending, old: Pending) -> bool:
        """Whether ``pending`` replaces ``old``: a caller whose link had ended has come back and asks again."""
        if not self._is_deserted(old, pending):
            return False
        if not old.abandoned:
            self._desert(now, old)
        # What the consumer still says of the earlier one is not about this one.
        pending.attempt = (old.attempt + 1) % 256
        return True

    def _is_deserted(self, old: Pending, pending: Pending) -> bool:
        """Whether ``old`` is a call of an earlier link of the caller of ``pending``, with the same handle."""
        return old.link is not None and pending.link is not None and old.link is not pending.link

    def _repeated(self, now: float, pending: Pending, first: Pending, caster: Link | None) -> bool:
        """End ``pending``, which has the key of ``first`` in the same place; returns False."""
        link = pending.link
        if link is not None:
            self.finish(now, pending, Outcome.PROTOCOL)
            self._note_repeated(now, link, pending)
            return False
        if pending.kept and not first.kept and first.consumer is not None:
            self.receipts.note(now, pending)
        first.kept, pending.kept = first.kept or pending.kept, False
        self.record(now, pending, Outcome.PROTOCOL)
        if caster is not None:
            self._unstall(caster, pending)
            self._note_repeated(now, caster, pending)
        else:
            self.counters["duplicate casts dropped"] += 1
        return False

    def _note_repeated(self, now: float, link: Link, pending: Pending) -> None:
        """Tell ``link`` that it has used a sequence twice; where it came back, it may not know better."""
        if pending.link is None and pending.flags & Flag.RESENT:
            self.counters["duplicate casts dropped"] += 1
            if not pending.flags & Flag.FANOUT:
                self._confirm(link, pending)
            return
        self.on_offence(now, link, pending.message, ProtocolError("sequence of a message in flight", "duplicate"))

    def _readdressed(self, pending: Pending, consumer: Consumer, waited: float) -> bytes:
        part = pending.message
        if not pending.attempt and waited < _NO_TIME:
            return remade(part, part[:11] + consumer.tag.to_bytes() + part[12:])
        ttl = pending.ttl
        if ttl != NO_TTL:
            ttl = max(0, ttl - int(waited * 1000))
        head = part[:9] + bytes((pending.attempt, part[10], consumer.tag)) + ttl.to_bytes(4)
        return remade(part, head + part[16:])

    def feed(self, now: float, consumer: Consumer) -> None:
        """Give ``consumer`` what waits for it, oldest first, while it is ready."""
        consumer.topic.ready.place(consumer)
        fed_bytes = 0
        while consumer.ready:
            oldest: Queue | None = None
            least: float = inf
            for queue in consumer.queues:
                number = queue.head_number()
                if number is not None and number < least:
                    oldest, least = queue, number
            if oldest is None:
                return
            pending = oldest.popleft()
            if pending.link is None:
                self.disarm(pending)
            elif self._deserted and pending.link.state is LinkState.ENDED:
                self._desert(now, pending)
                continue
            if consumer.accepts >> pending.message[10] & 1:
                self._deliver(now, pending, consumer)
                fed_bytes += pending.size
                if fed_bytes >= WINDOW_BYTES:
                    consumer.link.window_full()
            else:
                self._not_accepted(now, pending, consumer, oldest)

    def _not_accepted(self, now: float, pending: Pending, consumer: Consumer, queue: Queue) -> None:
        text = f"{consumer.link.identity} does not accept payload format {pending.message[10]}"
        caster = self._links.by_origin(pending.key[:12])
        if pending.link is None:
            queue.count_dropped("format not accepted")
        self._refuse(now, pending, caster, Outcome.PROTOCOL, (text, {"accepts": consumer.accepts}))

    # --- from consumers ----------------------------------------------------------------------

    def taken(self, now: float, link: Link, parts: list[bytes]) -> None:
        """The process has received ``parts``.

        It runs what it has, whatever becomes of this router, and the senders of casts need not keep those. Idempotent
        ones are kept until they have ended: they may go to another process if this one is lost.
        """
        in_flight = {tag: consumer.in_flight for tag, consumer in link.consumers.items() if consumer.in_flight}
        if not in_flight:
            return
        for part in parts:
            if part[5] == _CAST and part[11] in in_flight:
                pending = in_flight[part[11]].get(part[16:36])
                if pending is not None and pending.kept and not part[7] & _IDEMPOTENT:
                    self.receipts.note(now, pending)

    def reply(self, now: float, link: Link, part: bytes) -> None:
        """REPLY, FAULT or END: a call is done."""
        kind, attempt, tag, handler_us, key, lengths = _unpack_reply(part)
        consumer = link.consumers.get(tag)
        pending = consumer.in_flight.pop(key, None) if consumer is not None else None
        if pending is None or consumer is None:
            self._unknown(link, "reply for an unknown call")
            return
        if attempt != pending.attempt:
            consumer.in_flight[key] = pending
            self._unknown(link, "reply of an earlier attempt")
            return
        outcome = _OK if kind != _FAULT else _REMOTE_ERROR
        error = ""
        if lengths:
            if kind == _FAULT and lengths == part[38] << 8 and 40 + part[38] <= len(part):
                part, error = without_error(part)
            else:
                part, outcome = self._malformed_reply(link, key), _PROTOCOL
        caller, slot = pending.link, pending.slot
        if caller is None or slot is None:
            self.counters["late replies"] += 1
            if caller is None:
                self.record(now, pending, Outcome.PROTOCOL)  # a cast is to be settled, not answered
        else:
            if type(part) is not bytes and (caller.is_full or caller.route is None):
                part, outcome = self._within_bounds(caller, pending, part, outcome)
            caller.outbox.append(part)
            if not caller.marked:
                caller.mark()
            # As `finish` does for all other ends.
            pending.usage.size_bytes -= pending.charge
            del caller.calls[key]
            del slot[pending]
            self.calls_in_flight -= 1
            statistics, seconds = pending.destination.statistics, now - pending.received_at
            if outcome != _OK:
                statistics.ended(outcome, seconds)
            elif seconds == statistics.run_seconds:
                statistics.run += 1
            else:
                statistics.answered(seconds)
            log = self.log
            if log is not None:
                size = len(part) if type(part) is bytes else size_of(part)
                if not error:
                    log.ended(now, pending, outcome, size, handler_us)
                else:
                    log.failed(now, pending, outcome, size, handler_us, error)
        consumer.settled += 1
        consumer.progressed_at = now
        if consumer.level != ALONE:
            self._relieved(now, consumer)
        shared, own, backlog = consumer.queues
        if shared.size_bytes or own.size_bytes or backlog.size_bytes:
            self.feed(now, consumer)

    def _within_bounds(self, caller: Link, pending: Pending, part: bytes, outcome: int) -> tuple[bytes, int]:
        """The large answer ``part`` and its outcome; an error instead if too much waits for the caller already."""
        waiting, most = outgoing_bytes(caller), self._settings.outbox_max_bytes
        if waiting + size_of(part) <= most:
            return part, outcome
        self.counters["answers beyond the bound"] += 1
        text = f"the answer of {size_of(part)} bytes was not kept: {waiting} bytes wait for this caller already"
        details = {"topic": pending.destination.name, "started": "yes", "limit": "link.outbox_max_bytes"}
        body = {"outcome": Outcome.LINK_LOST, "text": f"{text} (link.outbox_max_bytes = {most})", "details": details}
        return control(Kind.ERROR, body, key=pending.key), int(Outcome.LINK_LOST)

    def _malformed_reply(self, link: Link, key: bytes) -> bytes:
        self._unknown(link, "malformed reply")
        text = f"{link.identity} sent a malformed reply"
        return control(Kind.ERROR, {"outcome": Outcome.PROTOCOL, "text": text, "details": {}}, key=key)

    def settle(self, now: float, link: Link, part: bytes) -> None:
        """Casts are done.

        Raises:
            ProtocolError: the payload is not a whole number of settlements.
        """
        payload = payload_of(part)
        if len(payload) % SETTLEMENT.size:
            raise ProtocolError(f"SETTLE of {len(payload)} bytes is no multiple of {SETTLEMENT.size}", "length")
        if len(payload) > MAX_SETTLEMENTS * SETTLEMENT.size:
            text = f"SETTLE of {len(payload) // SETTLEMENT.size} records; {MAX_SETTLEMENTS} may be"
            raise ProtocolError(text, "length")
        # As many steps as microseconds, about.
        self.turns.spent += len(payload) // SETTLEMENT.size
        consumer = link.consumers.get(part[11])
        if consumer is None:
            self._unknown(link, "settlement of an unknown consumer")
            return
        in_flight = consumer.in_flight
        for key, attempt, outcome, handler_us in SETTLEMENT.iter_unpack(payload):
            pending = in_flight.pop(key, None)
            if pending is None or pending.attempt != attempt or pending.link is not None:
                if pending is not None:
                    in_flight[key] = pending
                self._unknown(link, "settlement of an unknown cast")
                continue
            self.record(now, pending, outcome, handler_us)
            consumer.settled += 1
        consumer.progressed_at = now
        self._relieved(now, consumer)
        self.feed(now, consumer)

    def item(self, now: float, link: Link, part: bytes) -> None:
        """ITEM of a stream, or ALIVE (a sign of life, perhaps with progress)."""
        consumer = link.consumers.get(part[11])
        pending = consumer.in_flight.get(part[16:36]) if consumer is not None else None
        if pending is None or pending.attempt != part[9] or part[36:40] != b"\0\0\0\0":
            self._unknown(link, "item of an unknown call")
            return
        if consumer is not None:
            consumer.progressed_at = now
        caller = pending.link
        if caller is None or pending.slot is None:
            return
        if part[5] == _ITEM:
            self._pass_item(now, link, caller, pending, part)
        elif self._has_time_for(caller, part):
            caller.send(part)
        else:
            self.counters["signs of life not passed on"] += 1

    def _pass_item(self, now: float, link: Link, caller: Link, pending: Pending, part: bytes) -> None:
        left = items_left(pending)
        waiting, most = outgoing_bytes(caller) if part[7] & Flag.DETACHED else 0, self._settings.outbox_max_bytes
        if not left:
            text = f"{link.identity} sent more items than were granted"
            self._break_off(now, pending, Outcome.PROTOCOL, text)
        elif waiting + size_of(part) > most:
            text = (
                f"an item was not kept: {waiting} bytes wait for this caller already (link.outbox_max_bytes = {most})"
            )
            self._break_off(now, pending, Outcome.LINK_LOST, text)
        else:
            pending.items_left = left - 1
            caller.send(part)
            if is_stream(pending):
                self.disarm(pending)
                self.arm_call(now, pending)

    def _has_time_for(self, caller: Link, part: bytes) -> bool:
        """Whether a sign of life is passed on: nothing is lost by one that is not, but much by piling them up."""
        if caller.is_full or len(caller.outbox) > _MAX_BEFORE_ALIVE:
            return False
        return not part[7] & Flag.DETACHED or outgoing_bytes(caller) < _MAX_BYTES_BEFORE_ALIVE

    def _relieved(self, now: float, consumer: Consumer) -> None:
        """``consumer`` has less in flight than before."""
        consumer.topic.ready.move(consumer)
        if consumer.stopping and not consumer.in_flight:
            consumer.link.consumers.pop(consumer.tag, None)
            self.consumer_gone(now, consumer, "unregistered")

    # --- after a restart of the router -------------------------------------------------------

    def _was_had(self, key: bytes, topic: Topic) -> bool:
        """Whether a consumer of ``topic``, or of the group that it is, had the cast in the router's previous life."""
        return bool(self._recent) and key in self._recent.get((topic.address, topic.group), ())

    def seen_before(self, now: float, address: Address, group: str, keys: bytes) -> None:
        """A consumer of ``address`` says which casts it had in the router's previous life (20 bytes each).

        Args:
            group: that it consumes; empty for the topic itself.

        Raises:
            ProtocolError: the length is not a multiple of 20, or there are too many.
        """
        if len(keys) % 20 or len(keys) > 20 * _MAX_RECENT:
            text = f"{len(keys)} bytes of recent casts are no multiple of 20, or more than {_MAX_RECENT} of them"
            raise ProtocolError(text, "length")
        # Who has not come back with its casts until then does not come back, and what is reported later
        # is of this life of the router.
        if now < self._recent_until and keys:
            if sum(map(len, self._recent.values())) >= _MAX_RECENT_OF_ALL:
                self.counters["recent casts beyond the bound"] += len(keys) // 20
                return
            known = self._recent.setdefault((address._replace(server=""), group), set())
            known.update(keys[i : i + 20] for i in range(0, len(keys), 20))

    def let_go(self, now: float) -> list[tuple[Link, list[bytes]]]:
        """What was held for the recovery window that is over now: to be taken as if it had just come.

        Say :meth:`let_gone` when that is done.
        """
        if self._recent and now >= self._recent_until:
            self._recent.clear()
        if now < self._recover_until or not (self._holding or self._hoping):
            return []
        self._give_up_hope(now)
        holding, self._holding = self._holding, []
        released = [(link, link.held) for link in holding]
        for link in holding:
            # They are counted again as they are accepted.
            link.usage.size_bytes -= sum(size_of(part) + MESSAGE_OVERHEAD for part in link.held)
            link.held = []
        self._releasing = True
        return released

    def _give_up_hope(self, now: float) -> None:
        hoping, self._hoping = self._hoping, []
        for pending in hoping:
            destination = pending.destination
            if pending.queue is not None and not any(c.link.route is not None for c in destination.consumers):
                pending.queue.remove(pending)
                self._refuse(now, pending, None, Outcome.NO_CONSUMER, explain.no_consumer(now, destination))

    def let_gone(self) -> None:
        """What :meth:`let_go` gave was taken."""
        self._releasing = False

    def next_deadline(self) -> float | None:
        """When :meth:`tick` or :meth:`let_go` wants to be called."""
        deadline = super().next_deadline()
        if self._deserted:
            return self._deserted_at
        if self._holding or self._hoping:
            return self._recover_until if deadline is None else min(deadline, self._recover_until)
        return deadline

    def has_room(self, now: float, link: Link) -> None:
        """The link takes work again."""
        for consumer in list(link.consumers.values()):
            consumer.credit = consumer.granted
            self.feed(now, consumer)

    # --- links and consumers that go ---------------------------------------------------------

    def consumer_gone(self, now: float, consumer: Consumer, reason: str) -> None:
        """What ``consumer`` had goes on elsewhere where it may, and ends with LinkLost where not."""
        unsent = {m[16:36] for m in consumer.link.outbox if m[5] in _DELIVERIES}
        pendings = sorted(consumer.in_flight.values(), key=lambda p: p.number, reverse=True)
        consumer.in_flight.clear()
        again: list[Pending] = []
        for pending in pendings:
            if pending.abandoned:
                continue
            flags = pending.flags
            may_run = flags & Flag.IDEMPOTENT and pending.attempt < MAX_ATTEMPTS - 1
            if (pending.key in unsent or may_run) and not flags & Flag.FANOUT:
                again.append(pending)
            elif pending.link is not None:
                text, details = explain.consumer_lost(now, pending, reason)
                self.count_drop(now, pending, "consumer lost")
                self.finish(now, pending, Outcome.LINK_LOST)
                self.tell(pending.link, pending.key, Outcome.LINK_LOST, text, details)
            else:
                self.drop(now, pending, pending.destination.queue, "consumer lost")
                self.record(now, pending, Outcome.LINK_LOST)
        for pending in list(consumer.backlog):
            consumer.backlog.remove(pending)
            self.disarm(pending)
            self.drop(now, pending, pending.destination.queue, "consumer left")
            self.record(now, pending, Outcome.NO_CONSUMER)
        waiting: list[Pending] = []
        for pending in reversed(again):
            if pending.key not in unsent:
                pending.attempt += 1
                pending.items_left = ITEMS_UNASKED
            pending.consumer = None
            other = pending.destination.pick()
            if other is None:
                waiting.append(pending)
            elif other.accepts >> pending.message[10] & 1:
                self._deliver(now, pending, other)
            else:
                self._route(now, pending, self._links.by_origin(pending.key[:12]))
        for pending in reversed(waiting):
            queue = pending.destination.queue
            first = queue.get(pending.key)
            if first is not None:
                self._repeated(now, pending, first, None)
                continue
            if pending.link is None:
                self.arm_cast(now, pending)
            queue.append_left(pending)

    def caller_gone(self, now: float, link: Link) -> None:
        """Nobody waits for the calls of ``link`` any more. Its casts go on, also those that are held."""
        if undelivered := link.unacknowledged_of(_ANSWERS):
            self.counters["answers to a caller that has gone"] += undelivered
        self._deserted.append(link)
        self._end_deserted(now)

    def _end_deserted(self, now: float) -> None:
        """End calls whose callers have gone: so many now, the others with the next ticks."""
        room, self._deserted_at = ENDED_AT_ONCE, now
        while self._deserted and room:
            link = self._deserted[0]
            for pending in list(islice(link.calls.values(), room)):
                self._desert(now, pending)
                room -= 1
            if not link.calls:
                self._deserted.popleft()

    def _desert(self, now: float, pending: Pending) -> None:
        self.finish(now, pending, Outcome.CANCELLED)
        self.withdraw(pending)

    def tick(self, now: float) -> None:
        """Do what is due."""
        super().tick(now)
        if self._deserted:
            self._end_deserted(now)

    def drain(self, now: float) -> None:
        """Take nothing more; calls that nobody has yet go back to their callers, unharmed."""
        self.draining = True
        for link in list(self._links):
            for pending in [p for p in link.calls.values() if p.queue is not None]:
                self.finish(now, pending, Outcome.DRAINING)
                self.withdraw(pending)
                self.tell(link, pending.key, Outcome.DRAINING, "the router is shutting down; it did not run", {})

    def _goes_on(self, flags: int) -> bool:
        """Whether what was begun before a drain may need this to end: a handler asks for it and waits.

        Any that runs will do: handlers ask over their service's link or over that of another client of their process.
        """
        if not flags & Flag.NESTED or self.ending or not self.draining:
            return False
        return any(consumer.in_flight for each in self._links for consumer in each.consumers.values())

    def give_up(self, now: float) -> None:
        """The drain is over. Callers are told of what has not ended; what may run again goes to the next life."""
        for link in list(self._links):
            for pending in list(link.calls.values()):
                consumer = pending.consumer
                if consumer is None or pending.flags & Flag.IDEMPOTENT:
                    self.finish(now, pending, Outcome.DRAINING)
                    self.tell(link, pending.key, Outcome.DRAINING, "the router has shut down; send it again", {})
                else:
                    text, details = explain.not_waited_for(now, pending)
                    self.finish(now, pending, Outcome.LINK_LOST)
                    self.tell(link, pending.key, Outcome.LINK_LOST, text, details)

    def unsettled(self) -> Iterator[Pending]:
        """All that has not ended: calls of all callers, then casts, in flight and waiting."""
        for link in (*self._links, *self._deserted):
            yield from link.calls.values()
            for consumer in link.consumers.values():
                yield from (p for p in (*consumer.in_flight.values(), *consumer.backlog) if p.link is None)
        for topic in self._directory:
            for queue in (topic.queue, *(server.queue for server in topic.servers.values())):
                yield from (p for p in queue if p.link is None)

    def check(self) -> None:
        """Assert the invariants. For tests: it looks at everything."""
        calls = sum(len(link.calls) for link in self._deserted)
        for link in self._links:
            calls += len(link.calls)
            for key, pending in link.calls.items():
                assert pending.link is link and pending.key == key
                assert pending.slot is not None and pending in pending.slot
                assert (pending.queue is None) != (pending.consumer is None)
            for consumer in link.consumers.values():
                assert len(consumer.in_flight) <= consumer.granted
                assert all(p.consumer is consumer and p.queue is None for p in consumer.in_flight.values())
                assert not (consumer.ready and any(consumer.queues))
        assert calls == self.calls_in_flight
        for topic in self._directory:
            topic.ready.check()
