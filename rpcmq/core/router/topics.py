"""Topics, the queues in front of them and the consumers behind them.

A *topic* is (exchange, topic). Behind it stand consumers, one for each registration, and each
consumer has a server name. Messages wait in a :class:`Queue`: one shared by all consumers of the
topic, one for each server of the topic, and one for each consumer (fanout). A consumer that becomes
free takes the oldest message of the three.

A *group* of a topic is a topic beside it: it has consumers of its own, and gets its own copy of each
message that is sent to the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rpcmq.core.router.consumer import Consumer
from rpcmq.core.router.least_busy import LeastBusy
from rpcmq.core.router.method_statistics import Statistics
from rpcmq.core.router.request import Request
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.wire import Address

__all__ = ["Destination", "Server", "Topic"]


class Topic:
    """A topic, (exchange, topic): its consumers, servers, groups and queue."""

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
        self.queue: Queue[Request] = Queue(f"{address} (group {group})" if group else str(address))
        self.consumers: dict[Consumer, None] = {}
        #: Unregistered consumers with deliveries in flight, which come back if they are lost.
        self.leaving: set[Consumer] = set()
        self.ready: LeastBusy[Consumer] = LeastBusy()
        self.servers: dict[str, Server] = {}
        #: Whether it has ever been consumed.
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
        """Whether it can be forgotten: no consumers, nothing in flight, nothing waiting."""
        if self.consumers or self.groups or self.queue or any(c.in_flight for c in self.leaving):
            return False
        return not any(s.queue for s in self.servers.values())


class Server:
    """One server of a topic (``compute.node-7``): usually one consumer, or a few worker processes."""

    __slots__ = ("consumers", "last_seen", "name", "queue", "registered", "topic")

    def __init__(self, topic: Topic, name: str) -> None:
        self.topic = topic
        self.name = name
        self.queue: Queue[Request] = Queue(str(topic.address._replace(server=name)) if name else topic.queue.name)
        self.consumers: dict[Consumer, None] = {}
        self.registered = False
        self.last_seen = 0.0

    def pick(self) -> Consumer | None:
        """Return its least busy ready consumer; among equals, the one picked longest ago."""
        best, least = None, inf
        consumers = self.consumers
        for consumer in consumers:
            load = len(consumer.in_flight)
            if load < least and load < consumer.credit and consumer.link.is_responsive:
                best, least = consumer, load
        if best is not None and len(consumers) > 1:
            del consumers[best]
            consumers[best] = None
        return best


_NOBODY: LeastBusy[Consumer] = LeastBusy()


class Destination:
    """A resolved address and method."""

    __slots__ = ("groups", "method", "pick", "queue", "ready", "server", "statistics", "topic")

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

    @property
    def consumers(self) -> dict[Consumer, None]:
        """Its consumers, ready or not."""
        return self.server.consumers if self.server else self.topic.consumers

    @property
    def registered(self) -> bool:
        """Whether it has been consumed at least once."""
        return self.server.registered if self.server else self.topic.registered

    @property
    def last_seen(self) -> float:
        """The time at which the last consumer left (monotonic seconds)."""
        return self.server.last_seen if self.server else self.topic.last_seen

    @property
    def name(self) -> str:
        """The address as text."""
        return self.queue.name
