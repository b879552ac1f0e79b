"""The PubSub engine: one copy of each event to each subscriber that has a matching pattern.

A subscriber grants a window of events it may be sent and gives them back with TAKEN as it handles
them. What does not fit waits in its own bounded queue; when that is full, its oldest events are
lost, counted, and it is told how many. No other subscriber notices.

In a mesh, another router is one subscriber (:mod:`rpcmq.core.router.mesh.events`): it has the patterns of its
processes, and gives the events to these only.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

from rpcmq.core.common.drops import Drop
from rpcmq.core.common.text import shorten
from rpcmq.core.common.topic_patterns import PatternTrie, pattern_states, split_words
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.pubsub.other_routers import NoOtherRouters, OtherRouters, Pattern
from rpcmq.core.router.pubsub.subscriber import NeighbourSubscriber, Subscriber
from rpcmq.errors import ProtocolError
from rpcmq.wire import (
    FORMAT_AT,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    ORIGIN,
    Address,
    Flag,
    Kind,
    address_of,
    pack,
    parse,
    payload_of,
    size_of,
)
from rpcmq.wire.bodies import MESH_TYPE, SubscribeBody, SubscribedBody

__all__ = ["PubSub"]

#: Window that subscribers get during a drain.
_ANY_NUMBER = 1 << 62
#: Memory of a held event beside its bytes.
_OVERHEAD_BYTES = 100
#: Patterns of ended links that are removed at once: a router's link can have 100,000, which take a second.
_REMOVED_AT_ONCE = 2000
_PAUSE = 0.01


class PubSub(NodeType):
    """Subscriptions and events of all exchanges."""

    def __init__(self, context: NodeContext) -> None:
        self._settings = settings = context.settings
        self._drops = context.drops
        self._turns = context.turns
        self._links = context.links
        self._guarded = context.guarded
        self.kinds = {
            Kind.SUBSCRIBE: self.subscribe,
            Kind.UNSUBSCRIBE: self.unsubscribe,
            Kind.PUBLISH: self.publish,
            Kind.EVENT_CREDIT: self.taken,
        }
        self.answered = {Kind.SUBSCRIBE, Kind.PUBLISH}
        #: After a restart, events are held until then for subscribers to return.
        self._hold_until = context.now + settings.recovery_seconds
        self._held: deque[tuple[Link, bytes]] = deque()
        self._held_bytes = 0
        self._tries: dict[bytes, PatternTrie[Link]] = {}
        #: The patterns of processes, and the number of links that have each.
        self.patterns: dict[Pattern, int] = {}
        self.other_routers: OtherRouters = NoOtherRouters()
        #: Neighbours that may not get everything: called with an address block, and True.
        self.limits: dict[Link, Callable[[bytes, bool], bool]] = {}
        #: Ended links, and their patterns that are still to be removed.
        self._ended: deque[tuple[Link, list[Pattern]]] = deque()
        self._next_removal = 0.0
        self.published: Counter[str] = Counter()

    def subscribe(self, now: float, link: Link, message: bytes) -> None:
        """Add a pattern to the link's subscriptions.

        Raises:
            ProtocolError: malformed, or too many patterns.
        """
        pattern = self.address(message)
        window = SubscribeBody.of(message).window
        if pattern not in link.patterns:
            self._check_room(link, pattern)
            if link.window is None:
                link.window = Subscriber(window)
            self.add(now, link, pattern)
        answer = SubscribedBody(pattern=pattern[1].decode()).message(key=message[KEY])
        self.other_routers.confirm(now, link, pattern, answer)

    def _check_room(self, link: Link, pattern: Pattern) -> None:
        settings = self._settings
        states = pattern_states(pattern[1])
        used = link.window.states if link.window is not None else 0
        if len(link.patterns) >= settings.pubsub_max_patterns:
            text = (
                f"{len(link.patterns)} patterns are subscribed to; pubsub.max_patterns = {settings.pubsub_max_patterns}"
            )
            raise ProtocolError(text, "patterns")
        if used + states > settings.pubsub_max_pattern_states:
            text = (
                f"pattern {shorten(pattern[1].decode())!r} can add {states} states to the match of an event, and the"
                f" {len(link.patterns)} patterns subscribed to {used} already; pubsub.max_pattern_states ="
                f" {settings.pubsub_max_pattern_states}: use fewer words after a '#' or '*'"
            )
            raise ProtocolError(text, "patterns")

    def add(self, now: float, link: Link, pattern: Pattern) -> None:
        """Give ``link``, which has a window, the events for ``pattern``, which it has not yet.

        Raises:
            ProtocolError: the pattern is malformed.
        """
        assert link.window is not None
        states = pattern_states(pattern[1])
        exchange = pattern[0]
        trie = self._tries.get(exchange)
        if trie is None:
            trie = self._tries[exchange] = PatternTrie()
        trie.add(pattern[1], link)
        link.window.states += states
        link.patterns[pattern] = None
        if link.queue_type != MESH_TYPE:
            links = self.patterns[pattern] = self.patterns.get(pattern, 0) + 1
            if links == 1:
                self._guarded(now, self.other_routers.wanted, pattern)

    def unsubscribe(self, now: float, link: Link, message: bytes) -> None:
        """Remove a pattern from the link's subscriptions.

        Raises:
            ProtocolError: malformed.
        """
        self.take(now, link, self.address(message))
        link.send(SubscribedBody(pattern="").message(key=message[KEY]))

    def take(self, now: float, link: Link, pattern: Pattern) -> None:
        """Give ``link`` no more events for ``pattern``, if it had any."""
        subscriber = link.window
        if subscriber is None or pattern not in link.patterns:
            return
        del link.patterns[pattern]
        self._remove(now, link, pattern)
        subscriber.states -= pattern_states(pattern[1])
        if not link.patterns:
            subscriber.clear()

    def publish(self, now: float, link: Link, message: bytes) -> None:
        """An event.

        Raises:
            ProtocolError: malformed, or not from this link.
        """
        if message[ORIGIN] != link.origin:
            raise ProtocolError(f"origin {message[ORIGIN].hex()} is not this link's", "origin")
        self._publish(now, link, message)

    def publish_from(self, now: float, neighbour: Link, message: bytes) -> None:
        """Give an event that another router has passed on to the processes of this one, and to nobody else.

        Raises:
            ProtocolError: malformed.
        """
        self._publish(now, neighbour, message)

    def _publish(self, now: float, link: Link, message: bytes) -> None:
        exchange, topic = self.address(message)
        if self._held or (now < self._hold_until and self._links.has_returned):
            split_words(topic)  # validate now: the match would refuse it too late
            self._hold(now, link, message)
        else:
            self._pass_on(now, link, message, exchange, topic)

    def _hold(self, now: float, link: Link, message: bytes) -> None:
        self._held.append((link, message))
        self._held_bytes += size_of(message) + _OVERHEAD_BYTES
        while self._held_bytes > self._settings.pubsub_max_bytes:
            # Subscribers that have not returned miss it; the others do not.
            self.published["released early"] += 1
            self._release_one(now)

    def _release_one(self, now: float) -> None:
        link, message = self._held.popleft()
        self._held_bytes -= size_of(message) + _OVERHEAD_BYTES
        self._pass_on(now, link, message, *self.address(message))

    @property
    def held(self) -> int:
        """Number of events held for subscribers to return after a restart."""
        return len(self._held)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` or :meth:`release` (monotonic seconds)."""
        due = self._hold_until if self._held else inf
        return min(due, self._next_removal) if self._ended else due

    def tick(self, now: float) -> None:
        """Remove some patterns of links that have ended."""
        if self._ended and now >= self._next_removal:
            self._remove_some(now)

    def release(self, now: float) -> None:
        """Release held events once they are due, as many as fit into a turn."""
        self._turns.spent = 0
        while self._held and now >= self._hold_until and not self._turns.is_over:
            self._release_one(now)

    def _pass_on(self, now: float, link: Link, message: bytes, exchange: bytes, topic: bytes) -> None:
        trie = self._tries.get(exchange)
        reached = 0
        if trie is not None:
            visited = trie.visited
            matching: Sequence[Link] = trie.match(topic)
            self._turns.spent += len(matching) + ((trie.visited - visited) >> 3)
            if link.queue_type == MESH_TYPE:
                matching = [each for each in matching if each.queue_type != MESH_TYPE]
            if self.limits:
                matching = [each for each in matching if self._may_get(each, message)]
            for subscriber in matching:
                reached += self._offer(now, subscriber, message)
        self.published["copies"] += reached
        if link.queue_type == MESH_TYPE:
            self.published["from routers"] += 1
            return
        self.published["events"] += 1
        if message[LOW_FLAGS_AT] & Flag.CONFIRM:
            link.send(pack(Kind.CONFIRM, reached.to_bytes(4), key=message[KEY]))

    def _may_get(self, link: Link, message: bytes) -> bool:
        may_get = self.limits.get(link)
        return may_get is None or may_get(address_of(message), True)

    def lost_by(self, now: float, neighbour: Link, message: bytes) -> None:
        """Tell processes that events for them were lost at another router, on the way to this one.

        Raises:
            ProtocolError: malformed.
        """
        parse(message)
        payload = payload_of(message)
        if len(payload) != 4:
            raise ProtocolError("LOST needs a count of 4 bytes", "length")
        count = int.from_bytes(payload)
        self.published["lost by routers"] += count
        if address_of(message):
            exchange, topic = self.address(message)
            trie = self._tries.get(exchange)
            concerned: Iterable[Link] = trie.match(topic) if trie is not None else ()
        else:
            concerned = self._links
        for link in concerned:
            self._turns.spent += 1
            if link.window is not None and link.queue_type != MESH_TYPE:
                link.window.lost[neighbour.identity.encode()] += count
                self._flow(link, link.window)

    def taken(self, now: float, link: Link, message: bytes) -> None:
        """Extend a subscriber's window by the number of events it has handled.

        Raises:
            ProtocolError: the count is malformed, or nothing is subscribed to.
        """
        payload = payload_of(message)
        subscriber: Subscriber | None = link.window
        if len(payload) != 4 or subscriber is None:
            raise ProtocolError("TAKEN needs a count of 4 bytes and a subscription", "length")
        # Excess credit stems from before the link started over, and is void.
        subscriber.delivered -= min(subscriber.delivered, int.from_bytes(payload))
        self._flow(link, subscriber)

    def link_changed(self, now: float, link: Link) -> None:
        """Send a subscriber that answers what waits for it."""
        if link.is_responsive and link.window is not None:
            self._flow(link, link.window)

    def link_has_room(self, now: float, link: Link) -> None:
        """Send a subscriber what waits for it."""
        self.link_changed(now, link)

    def begin_drain(self, now: float) -> None:
        """Flush subscribers' queues whatever their windows: the router is about to stop.

        It is bounded already, and their processes keep it until their handlers get to it.
        """
        for link in self._links:
            if link.window is not None:
                link.window.window = _ANY_NUMBER
                self.link_changed(now, link)

    def link_ended(self, now: float, link: Link, reason: str) -> None:
        """Nothing is wanted any more."""
        self._ended.append((link, list(link.patterns)))
        link.patterns.clear()
        subscriber, link.window = link.window, None
        if subscriber is not None:
            unsent = [message for message in link.outbox if message[KIND_AT] == Kind.PUBLISH] + list(subscriber.queue)
            for topic, count in Counter(map(_topic_of, unsent)).items():
                self._drops.add(now, Drop(topic, "event", "subscriber left"), count, consumer=link.identity)
            if isinstance(subscriber, NeighbourSubscriber):
                for message in unsent:
                    subscriber.lose(message)
                self._guarded(now, self.other_routers.ended, link, subscriber)
        self._remove_some(now)

    def _remove_some(self, now: float) -> None:
        self._next_removal = now + _PAUSE
        rest = _REMOVED_AT_ONCE
        while self._ended and rest:
            link, patterns = self._ended[0]
            while patterns and rest:
                rest -= 1
                self._remove(now, link, patterns.pop())
            if not patterns:
                self._ended.popleft()

    def address(self, message: bytes) -> Pattern:
        """Exchange and topic, or pattern, of ``message``.

        Raises:
            ProtocolError: malformed.
        """
        parse(message)
        address = Address.decode(address_of(message))
        return address.exchange.encode(), address.topic.encode()

    def _remove(self, now: float, link: Link, pattern: Pattern) -> None:
        trie = self._tries[pattern[0]]
        trie.remove(pattern[1], link)
        if not len(trie):
            del self._tries[pattern[0]]
        if link.queue_type != MESH_TYPE:
            links = self.patterns[pattern] = self.patterns[pattern] - 1
            if not links:
                del self.patterns[pattern]
                self._guarded(now, self.other_routers.unwanted, pattern)

    def _drop(self, now: float, link: Link, subscriber: Subscriber, message: bytes, reason: str) -> None:
        subscriber.dropped[reason] += 1
        self._drops.add(now, Drop(_topic_of(message), "event", reason), consumer=link.identity)

    def _offer(self, now: float, link: Link, message: bytes) -> bool:
        subscriber = link.window
        if subscriber is None:
            return False  # it has ended, and its patterns are being removed
        if not link.accepts >> message[FORMAT_AT] & 1:
            self._drop(now, link, subscriber, message, "format not accepted")
            return False
        if subscriber.delivered < subscriber.window and link.is_responsive and not (subscriber.queue or link.is_full):
            subscriber.delivered += 1
            link.send(message)
            return True
        settings = self._settings
        subscriber.queue.append(message)
        subscriber.size_bytes += size_of(message)
        while len(subscriber.queue) > settings.pubsub_max_messages or subscriber.size_bytes > settings.pubsub_max_bytes:
            oldest = subscriber.queue.popleft()
            subscriber.size_bytes -= size_of(oldest)
            self._drop(now, link, subscriber, oldest, "slow subscriber")
            subscriber.lose(oldest)
        return True

    def _flow(self, link: Link, subscriber: Subscriber) -> None:
        if subscriber.lost and subscriber.delivered < subscriber.window:
            for notice in subscriber.notices():
                link.send(notice)
        while subscriber.queue and subscriber.delivered < subscriber.window and link.is_responsive and not link.is_full:
            message = subscriber.queue.popleft()
            subscriber.size_bytes -= size_of(message)
            subscriber.delivered += 1
            link.send(message)


def _topic_of(message: bytes) -> str:
    return Address.decode(address_of(message)).topic
