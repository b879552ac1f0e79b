"""The directory of topics: their consumers, and address resolution.

A topic that was consumed once is remembered (and so keeps what is sent to it) until nobody has
consumed it, and nothing has waited in it, for ``mailbox_max_seconds``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rpcmq.core.router.directory_watcher import DirectoryWatcher
from rpcmq.core.router.model import Consumer, Destination, Link, Server, Topic
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.statistics_table import OTHER, StatisticsTable
from rpcmq.errors import ProtocolError
from rpcmq.wire import Address, address_and_method_of, address_of, parse

__all__ = ["Directory"]

#: Topics scanned in one tick: a scan of 100,000 at once would delay calls noticeably.
_SWEPT_AT_ONCE = 500
#: Most groups of a topic: each message is copied to all of them.
_MAX_GROUPS = 1000
_SWEEP_PAUSE = 0.02
#: Addresses with a method that are remembered of one topic, and bytes of all: callers can name any number of methods.
#: Others cost a few microseconds more for each message.
_MAX_TARGETS = 5_000
_MAX_TARGET_BYTES = 256 << 20
#: Memory of one entry beside its own bytes.
_TARGET_OVERHEAD = 300


class Directory:
    """The topics of a router."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: (exchange, topic, group) -> all that is known of it.
        self._topics: dict[tuple[str, str, str], Topic] = {}
        #: (exchange, "topic.server") -> that server, for callers who name it as one topic.
        self._aliases: dict[tuple[str, str], Server] = {}
        self.statistics = StatisticsTable(settings)
        #: Number of servers of all topics, and of topics and servers never consumed.
        self._servers = self._unclaimed = 0
        self._next_sweep = 0.0
        self._unswept: list[Topic] = []
        #: (address block + method) as on the wire -> where it goes. A cache.
        self.destinations: dict[bytes, Destination] = {}
        #: Of that cache.
        self._target_bytes = 0
        #: Told of what changes here.
        self.watcher = DirectoryWatcher()

    def __len__(self) -> int:
        return len(self._topics)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._topics.values())

    # --- addresses ---------------------------------------------------------------------------

    def resolve(self, now: float, message: bytes) -> Destination:
        """Return the destination of ``message``.

        Raises:
            ProtocolError: its variable parts do not fit or its address is malformed, or there would
                be too many topics.
        """
        parse(message)
        key = address_and_method_of(message)
        known = self.destinations.get(key)
        if known is not None:
            return known
        block = address_of(message)
        address = Address.decode(block)
        try:
            method = key[len(block) :].decode()
        except UnicodeDecodeError:
            raise ProtocolError("method name is not UTF-8", "address") from None
        topic, server = self._find(now, address)
        if not self._has_room(topic, key):
            return Destination(topic, server, method, self.statistics.of(OTHER, OTHER))
        name = str(server.queue.name if server else topic.queue.name)
        destination = Destination(topic, server, method, self.statistics.of(name, method))
        self._remember(topic, key, destination)
        return destination

    def lookup(self, exchange: str, name: str, group: str = "") -> tuple[Topic, Server | None] | None:
        """The topic ``name`` or a group of it, or the server that ``name`` is the own topic of; None: not known."""
        topic = self._topics.get((exchange, name, group))
        if topic is not None:
            return topic, None
        server = self._aliases.get((exchange, name))
        if server is not None and not group:
            return server.topic, server
        for at in (at for at, letter in enumerate(name) if letter == "." and not group):
            topic = self._topics.get((exchange, name[:at], ""))
            if topic is not None and (server := topic.servers.get(name[at + 1 :])) is not None:
                return topic, server
        return None

    def forget(self, topic: Topic) -> bool:
        """Forget ``topic`` now rather than once it has been idle for long; return whether it was unused."""
        if not topic.forgettable:
            return False
        self._forget_statistics(topic.targets)
        self._forget(topic)
        return True

    def _find(self, now: float, address: Address) -> tuple[Topic, Server | None]:
        topic = self._topics.get((address.exchange, address.topic, ""))
        if address.server:
            topic = topic or self._create(now, address)
            return topic, self._server(now, topic, address)
        if topic is None:
            server = self._aliases.get((address.exchange, address.topic)) or self.watcher.find_alias(now, address)
            if server is not None:
                return server.topic, server
            topic = self._create(now, address)
        return topic, None

    def _admit(self, address: Address, claimed: bool) -> None:
        """Enforce the topic limits: senders create topics by addressing them, and must not crowd out services."""
        settings = self._settings
        most = settings.max_unclaimed_topics
        if len(self._topics) + self._servers >= settings.max_topics:
            raise ProtocolError(f"topic limit reached (topics.max_topics = {settings.max_topics})", "too many topics")
        if not claimed and self._unclaimed >= most:
            raise ProtocolError(
                f"{str(address)!r}: unclaimed topic limit reached (mailbox.max_unclaimed_topics = {most})",
                "too many topics",
            )

    def _create(self, now: float, address: Address, claimed: bool = False, group: str = "") -> Topic:
        self._admit(address, claimed)
        topic = Topic(Address(address.topic, "", address.exchange), group)
        topic.last_seen = now
        self._topics[address.exchange, address.topic, group] = topic
        self._unclaimed += 1
        self.watcher.made(now, topic)
        return topic

    def _server(self, now: float, topic: Topic, address: Address, claimed: bool = False) -> Server:
        server = topic.servers.get(address.server)
        if server is None:
            self._admit(address, claimed)
            server = topic.server(address.server)
            server.last_seen = now
            self._servers += 1
            self._unclaimed += 1
            self.watcher.made(now, server)
        return server

    # --- consumers ---------------------------------------------------------------------------

    def register(self, now: float, link: Link, tag: int, address: Address, credit: int, group: str = "") -> Consumer:
        """Let ``link`` consume (topic, server), or a group of the topic.

        Raises:
            ProtocolError: the tag is in use, or the topic is the own topic of a server.
        """
        if tag in link.consumers:
            raise ProtocolError(f"consumer tag {tag} is in use on this link", "tag")
        topic, server = self.declare(now, address, group)
        consumer = Consumer(link, tag, topic, address.server, credit)
        link.consumers[tag] = consumer
        topic.consumers[consumer] = None
        server.consumers[consumer] = None
        self.watcher.registered(now, consumer)
        return consumer

    def declare(self, now: float, address: Address, group: str = "") -> tuple[Topic, Server]:
        """Queue messages to (topic, server), or to a group of the topic, from now on, though nobody consumes it yet.

        Raises:
            ProtocolError: the topic is the own topic of a server, or there would be too many.
        """
        literal = self._topics.get((address.exchange, address.topic, ""))
        if literal is None or not (literal.registered or literal.groups):
            self.watcher.find_alias(now, address)  # which is known here then
        self._refuse_alias(address)
        topic = self._topic(now, address, group)
        server = self._server(now, topic, address, True)
        topic.last_seen = server.last_seen = now
        for place in (topic, server):
            self._claim(place)
            if not place.registered_here:
                place.registered_here = True
                self.watcher.declared(now, place)
        return topic, server

    def learn(self, now: float, address: Address, group: str = "") -> Topic | Server:
        """Queue messages to (topic, server), or to a group of the topic, which another router knows.

        Raises:
            ProtocolError: as for :meth:`declare`.
        """
        self._refuse_alias(address)
        topic = self._topic(now, address, group)
        place = self._server(now, topic, address, True) if address.server else topic
        self._claim(place)
        return place

    def place_of(self, address: Address, group: str = "") -> Topic | Server | None:
        """The topic, group or server that has exactly this address here; None: there is none."""
        topic = self._topics.get((address.exchange, address.topic, group))
        return topic.servers.get(address.server) if topic is not None and address.server else topic

    def _refuse_alias(self, address: Address) -> None:
        alias = self._aliases.get((address.exchange, address.topic))
        if alias is not None:
            text = f"topic {address.topic!r} is the own topic of server {alias.name!r} of {alias.topic.queue.name!r}"
            raise ProtocolError(text, "address")

    def _claim(self, place: Topic | Server) -> None:
        """``place`` is known in its own right, not only because it was addressed."""
        if place.registered:
            return
        place.registered = True
        self._unclaimed -= 1
        if isinstance(place, Server) and place.name and not place.topic.group:
            self._alias(place.topic, place)

    def _topic(self, now: float, address: Address, group: str) -> Topic:
        topic = self._topics.get((address.exchange, address.topic, group))
        if topic is None and group:
            whole = self._topic(now, address, "")
            if len(whole.groups) >= _MAX_GROUPS:
                raise ProtocolError(f"topic {address.topic!r}: group limit reached ({_MAX_GROUPS})", "too many groups")
            topic = whole.groups.get(group)
            if topic is None:  # the topic itself may have been made just now, with the groups that others know of it
                topic = whole.groups[group] = self._create(now, address, True, group)
        return topic or self._create(now, address, True)

    def in_group(self, group: Topic, method: str) -> Destination:
        """Return the destination of the copy for ``group`` of a message that calls ``method``."""
        destination = group.copies.get(method)
        if destination is None:
            statistics = self.statistics.of(group.queue.name, method)
            destination = Destination(group, None, method, statistics)
            if statistics.method == method:
                # Callers can name any number of methods: those beyond the bound of statistics are not remembered.
                group.copies[method] = destination
        return destination

    def _alias(self, topic: Topic, server: Server) -> None:
        exchange = topic.address.exchange
        name = f"{topic.address.topic}.{server.name}"
        literal = self._topics.get((exchange, name, ""))
        if literal is not None:
            if literal.registered or literal.groups:
                return
            targets = {key: self.destinations[key] for key in literal.targets}
            self._forget_statistics([key for key, old in targets.items() if old.server])
            self._forget(literal)
            for key, old in targets.items():
                if not old.server:
                    self._remember(topic, key, Destination(topic, server, old.method, old.statistics))
            for request in list(literal.queue):
                literal.queue.remove(request)
                request.destination = Destination(
                    topic, server, request.destination.method, request.destination.statistics
                )
                server.queue.append(request)
        self._aliases.setdefault((exchange, name), server)

    def unregister(self, now: float, consumer: Consumer) -> None:
        """Stop deliveries to ``consumer``; messages in flight stay with it."""
        topic = consumer.topic
        consumer.stopping = True
        if consumer.in_flight:
            topic.leaving.add(consumer)
        topic.ready.place(consumer)
        topic.consumers.pop(consumer, None)
        server = topic.servers[consumer.server]
        server.consumers.pop(consumer, None)
        if not topic.consumers:
            topic.last_seen = topic.left_at = now
        if not server.consumers:
            server.last_seen = server.left_at = now
        self.watcher.unregistered(now, consumer)

    # --- forgetting --------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Forget topics and servers that have been idle for long enough."""
        if now < self._next_sweep:
            return
        settings = self._settings
        if not self._unswept:
            self._unswept = list(self._topics.values())
        for topic in self._unswept[-_SWEPT_AT_ONCE:]:
            self._sweep(now, topic)
        del self._unswept[-_SWEPT_AT_ONCE:]
        rest = min(settings.mailbox_max_seconds, settings.unclaimed_seconds, 60.0) / 4
        self._next_sweep = now + (_SWEEP_PAUSE if self._unswept else max(_SWEEP_PAUSE, rest))

    def _sweep(self, now: float, topic: Topic) -> None:
        address = topic.address
        if self._topics.get((address.exchange, address.topic, topic.group)) is not topic:
            return
        topic.leaving = {consumer for consumer in topic.leaving if consumer.in_flight}
        settings = self._settings
        keep = settings.mailbox_max_seconds if topic.registered else settings.unclaimed_seconds
        if topic.forgettable and now - topic.last_seen >= keep and not self.watcher.keeps(now, topic):
            self._forget_statistics(topic.targets)
            self._forget(topic)
        else:
            self._forget_servers(now, topic)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._next_sweep

    def _forget(self, topic: Topic) -> None:
        self._forget_targets(topic.targets)
        topic.targets.clear()
        for server in list(topic.servers.values()):
            self._forget_server(server)
        exchange, name = topic.address.exchange, topic.address.topic
        del self._topics[exchange, name, topic.group]
        if topic.group:
            del self._topics[exchange, name, ""].groups[topic.group]
            for method in topic.copies:
                self.statistics.forget(topic.queue.name, method)
        if not topic.registered:
            self._unclaimed -= 1
        topic.registered_here = False
        self.watcher.forgotten(topic)

    def _forget_servers(self, now: float, topic: Topic) -> None:
        left = {consumer.server for consumer in topic.leaving}
        idle = (s for s in topic.servers.values() if not s.consumers and not s.remotes and s.name not in left)
        old = {s for s in idle if self._is_old(now, s) and not self.watcher.keeps(now, s)}
        if not old:
            return
        for server in old:
            self._forget_server(server)
        gone = [key for key in topic.targets if self.destinations[key].server in old]
        self._forget_statistics(gone)
        self._forget_targets(gone)
        topic.targets = [key for key in topic.targets if key in self.destinations]

    def _is_old(self, now: float, server: Server) -> bool:
        settings = self._settings
        keep = settings.mailbox_max_seconds if server.registered else settings.unclaimed_seconds
        return not server.queue and now - server.last_seen >= keep

    def _forget_server(self, server: Server) -> None:
        del server.topic.servers[server.name]
        self._servers -= 1
        if not server.registered:
            self._unclaimed -= 1
        name = server.topic.address.exchange, f"{server.topic.address.topic}.{server.name}"
        if self._aliases.get(name) is server:
            del self._aliases[name]
        server.registered_here = False
        self.watcher.forgotten(server)

    def _has_room(self, topic: Topic, key: bytes) -> bool:
        if len(topic.targets) >= _MAX_TARGETS or len(self.destinations) >= 2 * self._settings.max_topics:
            return False
        return self._target_bytes + _size_of(key) <= _MAX_TARGET_BYTES

    def _remember(self, topic: Topic, key: bytes, destination: Destination) -> None:
        self.destinations[key] = destination
        self._target_bytes += _size_of(key)
        topic.targets.append(key)

    def _forget_targets(self, targets: list[bytes]) -> None:
        for key in targets:
            del self.destinations[key]
            self._target_bytes -= _size_of(key)

    def _forget_statistics(self, targets: list[bytes]) -> None:
        for key in targets:
            statistics = self.destinations[key].statistics
            if statistics.name != OTHER:
                self.statistics.forget(statistics.name, statistics.method)


def _size_of(key: bytes) -> int:
    return len(key) + _TARGET_OVERHEAD
