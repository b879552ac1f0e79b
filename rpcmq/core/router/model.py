"""The rows of the router's tables: links, requests and their deliveries, consumers and topics.

They refer to each other, all ways round, and so are one module. A *link* has requests and consumers; what is true of it
without these is :mod:`rpcmq.core.router.base_link`. A *request* is a call or cast; its states and events, and those of
its deliveries, are :mod:`rpcmq.core.router.request_states`.

A *topic* is (exchange, topic). Behind it stand consumers, one for each registration, and each consumer has a server
name. Messages wait in a :class:`Queue`: one shared by all consumers of the topic, one for each server of the topic, and
one for each consumer (fanout). A consumer that becomes free takes the oldest of the three. A *group* of a topic is a
topic beside it, with consumers of its own, and gets its own copy of each message that is sent to the topic.

:class:`~rpcmq.core.router.directory.Directory`, :class:`~rpcmq.core.router.link_table.LinkTable` and
:mod:`rpcmq.core.router.roundrobin` change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rpcmq.core.common.session import Session
from rpcmq.core.common.stream_credit import StreamCredit
from rpcmq.core.router.base_link import BaseLink
from rpcmq.core.router.consumer_credit import ConsumerCredit
from rpcmq.core.router.hedge import Hedge
from rpcmq.core.router.least_busy import NOWHERE, LeastBusy
from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.remotes import NO_REMOTES, Remotes
from rpcmq.core.router.request_credit import RequestCredit
from rpcmq.core.router.request_states import DeliveryState, RequestState
from rpcmq.core.router.usage import Usage
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import Address, flags_of, size_of, without_payload
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["Consumer", "Delivery", "Destination", "Handler", "Link", "Request", "Server", "Topic"]


class Link(BaseLink):
    """A process's connection of one queue type, with the work that came from it and goes to it."""

    __slots__ = (
        "allowed_calls", "allowed_casts", "calls", "consumers", "handlers", "held", "lapsed_consumers", "stalled",
    )  # fmt: skip

    #: Handlers of its messages, by kind.
    handlers: list[Handler]
    #: Calls in flight, by key.
    calls: dict[bytes, Request]
    #: Registrations, by tag.
    consumers: dict[int, Consumer]
    #: Consumers removed while the link was away; restored when it resumes.
    lapsed_consumers: list[Consumer]
    #: Casts that wait for the end of the recovery window after a restart of the router.
    held: list[bytes]
    #: Queues that refused a cast of this link -> sequence of the cast that must come next.
    stalled: dict[Queue[Request], int]
    #: Destinations to which it may send calls and casts, as far as decided; None: no restriction.
    allowed_calls: set[Destination] | None
    allowed_casts: set[Destination] | None

    def __init__(self, dirty: list[Session], identity: str, queue_type: str, handle: int, router_id: int) -> None:
        super().__init__(dirty, identity, queue_type, handle, router_id)
        self.handlers = []
        self.calls, self.consumers, self.stalled = {}, {}, {}
        self.lapsed_consumers, self.held = [], []
        self.allowed_calls = self.allowed_casts = None

    def window_full(self) -> None:
        """Stop deliveries to its consumers: messages wait in bounded queues, from which others can take them."""
        if not self.is_full:
            self.is_full = True
            self.counters["window full"] += 1
            for consumer in self.consumers.values():
                consumer.withhold_credit()
                consumer.topic.ready.move(consumer)

    @property
    def is_counted_on(self) -> bool:
        """Whether somebody waits for it: it consumes, subscribes, has calls in flight, or is another router's."""
        return bool(self.consumers or self.patterns or self.calls) or self.queue_type == MESH_TYPE


#: Handles one message of a link. Nobody looks at what it returns.
Handler = Callable[[float, Link, bytes], object]


class Request:
    """A call or cast that the router tracks until it has ended.

    It waits in a queue, or is with the consumers of its deliveries: one, but for a request that was given to several.
    """

    __slots__ = (
        "attempts", "charge", "delivery", "destination", "hedge", "is_call", "kept", "key", "message", "number",
        "outcome", "queue", "received_at", "reply_to", "slot", "ttl", "usage",
    )  # fmt: skip

    key: bytes
    message: bytes
    #: Whether somebody waits for an answer.
    is_call: bool
    #: The link that the answer goes to; None for a cast.
    reply_to: Link | None
    destination: Destination
    #: The queue in which it waits; None while it is delivered.
    queue: Queue[Request] | None
    #: The latest, which is with its consumer; None while there is none. See :meth:`deliveries`.
    delivery: Delivery | None
    #: Its outcome; None: it has not ended. It may be one that a consumer made up.
    outcome: int | None
    #: Of a call that several consumers may have; not set otherwise. See :attr:`hedged`.
    hedge: Hedge
    #: The deadline wheel's slot that holds it; None without a deadline. A call has one until it ends.
    slot: dict[Request, Request] | None
    #: Number of consumers that had it before and may have run it, modulo 256.
    attempts: int
    #: Whether its sender retains it until delivery is acknowledged.
    kept: bool
    #: Counts arrivals in the router, and the copies made there: the smaller is the older.
    number: int
    #: Milliseconds that it had left when it came; NO_TTL for no limit.
    ttl: int
    received_at: float
    #: The usage record charged for it, and the bytes charged; 0 before acceptance and after its end.
    usage: Usage
    charge: int

    @property
    def flags(self) -> int:
        """The flags of the message."""
        return flags_of(self.message)

    @property
    def size(self) -> int:
        """Bytes of the message with its payload."""
        return size_of(self.message)

    @property
    def hedged(self) -> Hedge | None:
        """The way in which several consumers may have it; None: one has it at a time."""
        try:
            return self.hedge
        except AttributeError:
            return None

    @property
    def has_ended(self) -> bool:
        """Whether it has ended for its sender, although a consumer may still have it."""
        return self.outcome is not None

    @property
    def state(self) -> RequestState:
        """Whether it waits, is with a consumer or has ended."""
        if self.outcome is not None:
            return RequestState.ENDED
        if self.queue is not None:
            return RequestState.WAITING
        return RequestState.DELIVERED if self.delivery is not None else RequestState.ROUTING

    @property
    def consumer(self) -> Consumer | None:
        """The consumer that has it, of several the latest; None: nobody."""
        return self.delivery.consumer if self.delivery is not None else None

    @property
    def dispatched_at(self) -> float:
        """The time of its delivery; until then, of its arrival (monotonic seconds)."""
        return self.delivery.dispatched_at if self.delivery is not None else self.received_at

    def deliveries(self) -> Iterator[Delivery]:
        """The deliveries that are with their consumers, the latest first."""
        delivery = self.delivery
        while delivery is not None:
            yield delivery
            delivery = delivery.earlier

    def take_back(self, delivery: Delivery) -> None:
        """``delivery`` is with its consumer no more."""
        if self.delivery is delivery:
            self.delivery = delivery.earlier
            return
        later = next(each for each in self.deliveries() if each.earlier is delivery)
        later.earlier = delivery.earlier

    def settled_by(self, delivery: Delivery) -> None:
        """Let go of ``delivery``: the two would keep each other, and the message, alive until the collector comes."""
        if self.delivery is delivery:
            self.delivery = delivery.earlier

    def copy(self, number: int) -> Request:
        """The same message as a request in its own right, for one more group or consumer."""
        copy = Request()
        copy.key, copy.message, copy.number = self.key, self.message, number
        copy.is_call, copy.reply_to, copy.destination = self.is_call, self.reply_to, self.destination
        copy.attempts, copy.ttl, copy.kept = self.attempts, self.ttl, False
        copy.received_at = self.received_at
        copy.queue = copy.delivery = copy.slot = copy.outcome = None
        copy.usage, copy.charge = self.usage, 0
        return copy

    def drop_payload(self) -> None:
        """Drop the payload: the message is delivered to nobody any more, but still counted."""
        self.message = without_payload(self.message)


class Delivery:
    """A request that was given to one consumer, and what that has said of it since."""

    __slots__ = ("attempt", "consumer", "dispatched_at", "earlier", "item_credit", "request", "stream")

    request: Request
    consumer: Consumer
    #: The number of consumers that had the request before and may have run it, modulo 256.
    attempt: int
    dispatched_at: float
    #: The delivery of the same request before this one that is still with its consumer.
    earlier: Delivery | None
    #: Credit of the stream that answers the request; not set before the first item was sent, or granted.
    item_credit: StreamCredit
    #: Credit of the request's stream; not set before the first grant.
    stream: RequestCredit

    @property
    def state(self) -> DeliveryState:
        """Whether its consumer has it, and anybody waits for what that does."""
        if self.consumer.in_flight.get(self.request.key) is not self:
            return DeliveryState.CLOSED
        return DeliveryState.OPEN if self.request.outcome is None else DeliveryState.ABANDONED


class Consumer(ConsumerCredit):
    """A process's registration on a topic. Mutated by the dispatch engine only."""

    __slots__ = (
        "accepts", "backlog", "in_flight", "level", "link", "peer_url", "progressed_at", "queues",
        "server", "settled", "stopping", "tag", "topic",
    )  # fmt: skip

    def __init__(self, link: Link, tag: int, topic: Topic, server: str, credit: int) -> None:
        super().__init__(credit, link.is_full)
        self.link = link
        self.tag = tag
        self.topic = topic
        self.server = server
        self.accepts = link.accepts
        self.backlog: Queue[Request] = Queue(f"{topic.server(server).queue.name} (fanout)")
        #: The queues it takes messages from.
        self.queues = (topic.queue, topic.server(server).queue, self.backlog)
        self.in_flight: dict[bytes, Delivery] = {}
        self.settled = 0
        #: Time of its last answer, settlement, item or sign of life.
        self.progressed_at = 0.0
        #: URL of the process's peer socket; empty if it has none.
        self.peer_url = ""
        #: Its level in the topic's LeastBusy.
        self.level = NOWHERE
        self.stopping = False

    @property
    def ready(self) -> bool:
        """Whether it may be given work now: it has credit, stays, and its process is not silent."""
        return len(self.in_flight) < self.credit and not self.stopping and self.link.is_responsive


class Topic:
    """A topic, (exchange, topic): its consumers, servers, groups and queue."""

    __slots__ = (
        "address", "consumers", "copies", "group", "groups", "last_seen", "leaving", "left_at", "queue", "ready",
        "registered", "registered_here", "remotes", "servers", "targets",
    )  # fmt: skip

    def __init__(self, address: Address, group: str = "") -> None:
        self.address = address
        #: The name of the group that this is; empty for the topic itself.
        self.group = group
        #: The groups that get a copy of each message.
        self.groups: dict[str, Topic] = {}
        #: Of a group: where the copies of the messages that call a method go, by the method.
        self.copies: dict[str, Destination] = {}
        self.queue: Queue[Request] = Queue(f"{address} (group {group})" if group else str(address))
        self.consumers: dict[Consumer, None] = {}
        #: Unregistered consumers with deliveries in flight, which come back if they are lost.
        self.leaving: set[Consumer] = set()
        self.ready: LeastBusy[Consumer] = LeastBusy()
        self.servers: dict[str, Server] = {}
        #: Whether it has ever been consumed, at any router of the mesh; and whether that was here.
        self.registered = self.registered_here = False
        #: The times at which it was consumed, declared or made last, and at which its last consumer left (monotonic
        #: seconds).
        self.last_seen = self.left_at = 0.0
        #: Keys of this topic in the router's table of destinations.
        self.targets: list[bytes] = []
        #: The neighbours that have consumers of it, and how much of it they take.
        self.remotes: Remotes[Delivery] = NO_REMOTES

    def server(self, name: str) -> Server:
        """The server ``name`` of this topic, known from now on."""
        server = self.servers.get(name)
        if server is None:
            server = self.servers[name] = Server(self, name)
        return server

    @property
    def forgettable(self) -> bool:
        """Whether it can be forgotten: no consumers anywhere, nothing in flight, nothing waiting."""
        if self.consumers or self.remotes or self.groups or self.queue or any(c.in_flight for c in self.leaving):
            return False
        return not any(s.queue or s.remotes for s in self.servers.values())


class Server:
    """One server of a topic (``compute.node-7``): usually one consumer, or a few worker processes."""

    __slots__ = (
        "consumers", "last_seen", "left_at", "name", "queue", "registered", "registered_here", "remotes", "topic",
    )  # fmt: skip

    def __init__(self, topic: Topic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.queue: Queue[Request] = Queue(str(topic.address._replace(server=name)) if name else topic.queue.name)
        self.consumers: dict[Consumer, None] = {}
        # As for a topic.
        self.registered = self.registered_here = False
        self.last_seen = self.left_at = 0.0
        self.remotes: Remotes[Delivery] = NO_REMOTES

    def pick(self) -> Consumer | None:
        """Return its least busy ready consumer; among equals, the one picked longest ago."""
        best: Consumer | None = None
        least = 1 << 32  # more than there can be
        consumers = self.consumers
        for consumer in consumers:
            load, occupied = len(consumer.in_flight), consumer.occupied
            if load < consumer.credit and load + occupied < least and consumer.link.is_responsive:
                best, least = consumer, load + occupied
        if best is not None and len(consumers) > 1:
            del consumers[best]
            consumers[best] = None
        return best


_NOBODY: LeastBusy[Consumer] = LeastBusy()


class Destination:
    """A resolved address and method."""

    __slots__ = ("groups", "hosted", "method", "pick", "queue", "ready", "server", "statistics", "topic")

    def __init__(self, topic: Topic, server: Server | None, method: str, statistics: Statistics) -> None:
        self.topic = topic
        self.server = server
        self.method = method
        self.queue = server.queue if server else topic.queue
        self.statistics = statistics
        #: The groups that get a copy; none for what is sent to one server.
        self.groups = {} if server else topic.groups
        #: The consumers of the topic, for a look at the one that is alone; of a server's own topic there is none.
        self.ready = _NOBODY if server else topic.ready
        #: Returns the consumer for the next message; None if none is ready.
        self.pick: Callable[[], Consumer | None] = server.pick if server else topic.ready.pick
        #: The same for requests that another router owns, and counts; None before the first one.
        self.hosted: Destination | None = None

    def host(self) -> Destination:
        """Make :attr:`hosted`."""
        hosted = self.hosted = Destination(self.topic, self.server, self.method, Statistics("", ""))
        return hosted

    @property
    def remotes(self) -> Remotes[Delivery]:
        """The neighbours that have consumers of it."""
        return self.server.remotes if self.server else self.topic.remotes

    @property
    def consumers(self) -> dict[Consumer, None]:
        """Its consumers, ready or not."""
        return self.server.consumers if self.server else self.topic.consumers

    @property
    def registered(self) -> bool:
        """Whether it has been consumed at least once, here or at another router."""
        return self.server.registered if self.server else self.topic.registered

    @property
    def left_at(self) -> float:
        """The time at which the last consumer left, here or elsewhere (monotonic seconds); 0: there was none."""
        return self.server.left_at if self.server else self.topic.left_at

    @property
    def last_seen(self) -> float:
        """The time at which it was consumed, declared or made last (monotonic seconds)."""
        return self.server.last_seen if self.server else self.topic.last_seen

    @property
    def name(self) -> str:
        """The address as text."""
        return self.queue.name
