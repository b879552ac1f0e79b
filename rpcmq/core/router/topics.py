"""Topics, the queues in front of them and the consumers behind them.

A *topic* is (exchange, topic). Behind it stand consumers, one for each registration, and each
consumer has a server name. Messages wait in a :class:`Queue`: one shared by all consumers of the
topic, one for each server of the topic, and one for each consumer (fanout). A consumer that becomes
free takes the oldest message of the three.

A *group* of a topic is a topic beside it: it has consumers of its own, and gets its own copy of each
message that is sent to the topic.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING

from rpcmq.core.router.usage import Usage
from rpcmq.errors import Outcome
from rpcmq.histogram import Histogram, microseconds
from rpcmq.wire import Address, flags_of, size_of, without_payload

if TYPE_CHECKING:
    from rpcmq.core.router.links import Link

__all__ = ["ALONE", "Consumer", "Destination", "LeastInFlight", "Pending", "Queue", "Statistics", "Topic"]

_OK = int(Outcome.OK)
#: Statistics count at the latest when so many different latencies have come together.
_MAX_UNCOUNTED = 64


class Pending:
    """A call or cast that the router tracks until it is settled."""

    __slots__ = (
        "attempt",
        "charge",
        "consumer",
        "destination",
        "dispatched_at",
        "items_left",
        "kept",
        "key",
        "link",
        "message",
        "number",
        "queue",
        "received_at",
        "slot",
        "ttl",
        "usage",
    )  # fmt: skip

    key: bytes
    message: bytes
    #: The caller's link; None for a cast, which leaves nothing to be sent back.
    link: Link | None
    destination: Destination
    #: Where it waits; None once dispatched.
    queue: Queue | None
    consumer: Consumer | None
    #: The deadline wheel's slot that holds it; None without a deadline. A call has one until it ends.
    slot: dict[Pending, Pending] | None
    #: How many consumers had it before and may have run it, modulo 256.
    attempt: int
    #: Whether its sender keeps it until it is told that it need not.
    kept: bool
    #: Counts arrivals in the router, and the copies made there: the smaller is the older.
    number: int
    #: Milliseconds that it had left when it came; NO_TTL for no limit.
    ttl: int
    received_at: float
    dispatched_at: float
    #: Where its bytes are counted, and how many; 0 before it is accepted and once it has ended.
    usage: Usage
    charge: int
    #: Items of a stream that may still be sent; not set before the first was, or was granted.
    items_left: int

    @property
    def flags(self) -> int:
        """The flags that it came with."""
        return flags_of(self.message)

    @property
    def size(self) -> int:
        """Bytes of the message with its payload."""
        return size_of(self.message)

    @property
    def abandoned(self) -> bool:
        """The call has ended for its caller, but its consumer has not settled it."""
        return self.slot is None and self.link is not None

    def copy(self, number: int) -> Pending:
        """The same message, to be delivered to one more consumer."""
        copy = Pending()
        copy.key, copy.message, copy.number = self.key, self.message, number
        copy.link, copy.destination, copy.attempt = self.link, self.destination, self.attempt
        copy.ttl, copy.kept = self.ttl, False
        copy.received_at, copy.dispatched_at = self.received_at, self.dispatched_at
        copy.queue = copy.consumer = copy.slot = None
        copy.usage, copy.charge = self.usage, 0
        return copy

    def drop_payload(self) -> None:
        """Nobody is to get it any more, but it is still counted where it is."""
        self.message = without_payload(self.message)


class Queue:
    """Messages that wait, oldest first, bounded in number and bytes."""

    __slots__ = ("_waiting", "dropped", "name", "size_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Of all that wait; 0 only if nothing does, since no message is empty.
        self.size_bytes = 0
        self.dropped: dict[str, int] = {}
        # By key; by itself where that is taken: two queues may become one.
        self._waiting: OrderedDict[bytes | Pending, Pending] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._waiting.values())

    def __contains__(self, key: bytes) -> bool:
        """Whether a message with ``key`` waits here."""
        return key in self._waiting

    def get(self, key: bytes) -> Pending | None:
        """The message with ``key`` that waits here."""
        return self._waiting.get(key)

    def has_room(self, size: int, max_messages: int, max_bytes: int) -> bool:
        """Whether a message of ``size`` bytes fits under both bounds."""
        return len(self._waiting) < max_messages and self.size_bytes + size <= max_bytes

    def append(self, pending: Pending) -> None:
        """Let ``pending`` wait at the end."""
        pending.queue = self
        self._waiting[pending if pending.key in self._waiting else pending.key] = pending
        self.size_bytes += pending.size

    def append_left(self, pending: Pending) -> None:
        """Put ``pending`` back to the front: it had its turn and could not be delivered."""
        self.append(pending)
        self._waiting.move_to_end(self._name(pending), last=False)

    def head_number(self) -> int | None:
        """Arrival number of the oldest, None when empty."""
        for pending in self._waiting.values():
            return pending.number
        return None

    def popleft(self) -> Pending:
        """Remove and return the oldest."""
        _, pending = self._waiting.popitem(last=False)
        self._taken(pending)
        return pending

    def remove(self, pending: Pending) -> None:
        """Remove ``pending``, wherever it stands."""
        del self._waiting[self._name(pending)]
        self._taken(pending)

    def count_dropped(self, reason: str) -> None:
        """Remember that a message was lost here, and why."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def _name(self, pending: Pending) -> bytes | Pending:
        return pending.key if self._waiting.get(pending.key) is pending else pending

    def _taken(self, pending: Pending) -> None:
        pending.queue = None
        self.size_bytes -= pending.size


#: The ``level`` of a consumer that stands in no level: it takes no work now, or has all it may have.
_NOWHERE = -1
#: The ``level`` of the only consumer of a topic that takes work: there is nobody to compare it with.
ALONE = -2


class Consumer:
    """A process's registration on a topic. Mutated by the dispatch engine only."""

    __slots__ = (
        "accepts", "backlog", "credit", "granted", "in_flight", "level", "link", "peer_url", "progressed_at", "queues",
        "server", "settled", "stopping", "tag", "topic",
    )  # fmt: skip

    def __init__(self, link: Link, tag: int, topic: Topic, server: str, credit: int) -> None:
        self.link = link
        self.tag = tag
        self.topic = topic
        self.server = server
        #: Deliveries that the process takes at a time; and how many it is given: none while its link is full.
        self.granted = credit
        self.credit = 0 if link.is_full else credit
        self.accepts = link.accepts
        self.backlog = Queue(f"{topic.server(server).queue.name} (fanout)")
        #: All that it takes messages from.
        self.queues = (topic.queue, topic.server(server).queue, self.backlog)
        self.in_flight: dict[bytes, Pending] = {}
        self.settled = 0
        #: When it answered or settled something last, or sent an item or a sign of life.
        self.progressed_at = 0.0
        #: Where the process listens for peers; empty if it does not.
        self.peer_url = ""
        #: Where it stands in the topic's LeastInFlight.
        self.level = _NOWHERE
        self.stopping = False

    @property
    def ready(self) -> bool:
        """Whether it may be given work now."""
        return len(self.in_flight) < self.credit and not self.stopping and self.link.answering


class LeastInFlight:
    """The consumers that take work, by how much they have in flight; equals take turns.

    All operations are O(1) amortised, whatever the number of consumers. One that is alone (most
    topics have one consumer) stands in no level and costs nothing to move.
    """

    __slots__ = ("_alone", "_levels", "_lowest", "_members")

    def __init__(self) -> None:
        self._members: dict[Consumer, None] = {}
        self._alone: Consumer | None = None
        self._levels: list[OrderedDict[Consumer, None]] = []
        self._lowest = 0

    def place(self, consumer: Consumer) -> None:
        """Take ``consumer`` in, or leave it out, as it takes work or not; then :meth:`move` it."""
        members = self._members
        if (consumer in members) != (consumer.link.answering and not consumer.stopping):
            if consumer in members:
                del members[consumer]
            else:
                members[consumer] = None
            before, self._alone = self._alone, next(iter(members)) if len(members) == 1 else None
            for one in (before, self._alone):
                if one is not None:
                    self.move(one)
        self.move(consumer)

    def move(self, consumer: Consumer) -> None:
        """Put ``consumer`` where its load says; not needed while it is ``ALONE``."""
        if consumer is self._alone:
            level = ALONE
        else:
            level = len(consumer.in_flight)
            if level >= consumer.credit or consumer.stopping or not consumer.link.answering:
                level = _NOWHERE
        old = consumer.level
        if level == old:
            return
        levels = self._levels
        if old >= 0:
            del levels[old][consumer]
        consumer.level = level
        if level < 0:
            return
        while len(levels) <= level:
            levels.append(OrderedDict())
        levels[level][consumer] = None
        if level < self._lowest:
            self._lowest = level

    def pick(self) -> Consumer | None:
        """The consumer with the least in flight; of equals the one that has waited longest."""
        alone = self._alone
        if alone is not None:
            return alone if len(alone.in_flight) < alone.credit else None
        levels = self._levels
        for level in range(self._lowest, len(levels)):
            if levels[level]:
                self._lowest = level
                return next(iter(levels[level]))
        self._lowest = len(levels)
        return None

    def check(self) -> None:
        """Assert that everyone stands where it should. For tests: it looks at everything."""
        assert (self._alone is not None) == (len(self._members) == 1)
        filed = {consumer: level for level, row in enumerate(self._levels) for consumer in row}
        for consumer in self._members:
            assert consumer.link.answering and not consumer.stopping
            if consumer is self._alone:
                assert consumer.level == ALONE and consumer not in filed
            elif consumer.ready:
                assert consumer.level == filed.pop(consumer) == len(consumer.in_flight) >= self._lowest
            else:
                assert consumer.level == _NOWHERE
        assert not filed


class Statistics:
    """What became of the messages of one (topic, server, fanout-less) address and method.

    Each message, and each copy of one, counts once, when it ends: just as the dispatch log has one record of it, so
    the outcomes are those of its records, and the latency is the histogram of their ``total_us``.
    """

    __slots__ = ("_answered", "_latency", "_outcomes", "calls", "casts", "method", "name", "run", "run_seconds")

    def __init__(self, name: str, method: str) -> None:
        self.name = name
        self.method = method
        self.calls = 0
        self.casts = 0
        #: Seconds -> how many of OK took so long, until they are counted. All that is answered in one
        #: wake-up and came in one took the same time, so a busy router counts many at a time.
        self._answered: dict[float, int] = {}
        #: How many of OK in a row have taken so long, which are not among those yet.
        self.run = 0
        self.run_seconds = -1.0
        self._outcomes: dict[int, int] = {}
        self._latency = Histogram()

    def answered(self, seconds: float) -> None:
        """A message ended with OK, ``seconds`` after it came."""
        if seconds != self.run_seconds:
            self._end_run()
            self.run_seconds = seconds
            if len(self._answered) >= _MAX_UNCOUNTED:
                self._count()
        self.run += 1

    def _end_run(self) -> None:
        if self.run:
            self._answered[self.run_seconds] = self._answered.get(self.run_seconds, 0) + self.run
            self.run = 0

    def ended(self, outcome: int, seconds: float) -> None:
        """A message ended with ``outcome``, ``seconds`` after it came."""
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
        self._latency.record(microseconds(seconds))

    @property
    def outcomes(self) -> dict[int, int]:
        """How many ended with each outcome."""
        self._count()
        return self._outcomes

    @property
    def latency(self) -> Histogram:
        """Whole microseconds from receipt in the router to the end, however that came."""
        self._count()
        return self._latency

    def _count(self) -> None:
        self._end_run()
        answered, self._answered = self._answered, {}
        for seconds, count in answered.items():
            self._latency.record(microseconds(seconds), count)
        if answered:
            self._outcomes[_OK] = self._outcomes.get(_OK, 0) + sum(answered.values())


class Topic:
    """All that the router knows of one (exchange, topic)."""

    __slots__ = (
        "address", "consumers", "copies", "group", "groups", "last_seen", "leaving", "queue", "ready", "registered",
        "servers", "targets",
    )  # fmt: skip

    def __init__(self, address: Address, group: str = "") -> None:
        self.address = address
        #: The name of the group that this is; empty for the topic itself.
        self.group = group
        #: The groups that get a copy of each message.
        self.groups: dict[str, Topic] = {}
        #: Of a group: where the copies of the messages that call a method go, by the method.
        self.copies: dict[str, Destination] = {}
        self.queue = Queue(f"{address} (group {group})" if group else str(address))
        self.consumers: dict[Consumer, None] = {}
        #: Those that take no more, and had something when they said so: it may come back, if they are lost.
        self.leaving: set[Consumer] = set()
        self.ready = LeastInFlight()
        self.servers: dict[str, Server] = {}
        #: Somebody has consumed it at least once since it was last forgotten.
        self.registered = False
        self.last_seen = 0.0
        #: Keys of this topic in the router's table of destinations.
        self.targets: list[bytes] = []

    def server(self, name: str) -> Server:
        """The server ``name`` of this topic, known from now on."""
        server = self.servers.get(name)
        if server is None:
            server = self.servers[name] = Server(self, name)
        return server

    @property
    def forgettable(self) -> bool:
        """Nobody consumes it, nobody who did has anything of it, and nothing waits."""
        if self.consumers or self.groups or self.queue or any(c.in_flight for c in self.leaving):
            return False
        return not any(s.queue for s in self.servers.values())


class Server:
    """One server of a topic (``compute.node-7``): usually one consumer, or a few worker processes."""

    __slots__ = ("consumers", "last_seen", "name", "queue", "registered", "topic")

    def __init__(self, topic: Topic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.queue = Queue(str(topic.address._replace(server=name)) if name else topic.queue.name)
        self.consumers: dict[Consumer, None] = {}
        self.registered = False
        self.last_seen = 0.0

    def pick(self) -> Consumer | None:
        """Its ready consumer with the least in flight; of equals the one that was picked longest ago."""
        best, least = None, inf
        consumers = self.consumers
        for consumer in consumers:
            load = len(consumer.in_flight)
            if load < least and load < consumer.credit and consumer.link.answering:
                best, least = consumer, load
        if best is not None and len(consumers) > 1:
            del consumers[best]
            consumers[best] = None
        return best


class Destination:
    """An address and method as they were resolved once: where such messages go."""

    __slots__ = ("groups", "method", "pick", "queue", "server", "statistics", "topic")

    def __init__(self, topic: Topic, server: Server | None, method: str, statistics: Statistics) -> None:
        self.topic = topic
        self.server = server
        self.method = method
        self.queue = server.queue if server else topic.queue
        self.statistics = statistics
        #: The groups that get a copy; none for what is sent to one server.
        self.groups = {} if server else topic.groups
        #: Says who should get the next message; None when nobody is ready.
        self.pick: Callable[[], Consumer | None] = server.pick if server else topic.ready.pick

    @property
    def consumers(self) -> dict[Consumer, None]:
        """All who consume it, ready or not."""
        return self.server.consumers if self.server else self.topic.consumers

    @property
    def registered(self) -> bool:
        """Somebody has consumed it at least once."""
        return self.server.registered if self.server else self.topic.registered

    @property
    def last_seen(self) -> float:
        """When its last consumer left."""
        return self.server.last_seen if self.server else self.topic.last_seen

    @property
    def name(self) -> str:
        """The address as text."""
        return self.queue.name
