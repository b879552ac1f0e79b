"""A process of the simulation that publishes and subscribes, over the link that the client has for events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rpcmq.core.common.topic_patterns import PatternTrie
from rpcmq.core.process.call import Call
from rpcmq.core.process.recent_messages import RecentMessages
from rpcmq.core.process.welcome import Welcome
from rpcmq.drill.history import What
from rpcmq.wire import KEY, KIND_AT, NO_TTL, Address, Kind, address_of, pack
from rpcmq.wire.bodies import SubscribeBody
from tests.faults.plan import Operation
from tests.faults.roaming_process import RoamingProcess
from tests.faults.simulated_process import Seen, id_of

__all__ = ["EventProcess"]

#: Events that may be under way to a subscriber.
_WINDOW = 16


class EventProcess(RoamingProcess):
    """Subscribes to patterns as :class:`rpcmq.client.event_link.EventLink` does, and publishes.

    Args:
        patterns: that it subscribes to.
        rest: as of :class:`RoamingProcess`.
    """

    def __init__(self, patterns: Sequence[str], *rest: Any) -> None:
        super().__init__(*rest, queue_type="pubsub")
        self._patterns = patterns
        self._trie: PatternTrie[str] = PatternTrie()
        for pattern in patterns:
            self._trie.add(pattern.encode(), pattern)
        self._recent = RecentMessages()
        self._recent.look_up_often()
        self._taken = 0
        self.uplink.handle(Kind.PUBLISH, self._event)
        self.uplink.handle(Kind.LOST, lambda now, message: None)

    def _subscribe(self, pattern: str) -> None:
        call = Call(pattern, 0, None)
        call.waiter = lambda: self._subscribed(call)
        payload, address = SubscribeBody(window=_WINDOW).payload(), Address(pattern).encode()
        self.calls.start(self._network.now, call, Kind.SUBSCRIBE, payload, address=address)

    def _subscribed(self, call: Call) -> None:
        if call.error is None:
            self._stage.record(Seen.SUBSCRIBED, call.address, {}, self.name)

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        super()._welcomed(now, welcome)
        if welcome.resumed:
            return
        self._taken = 0
        # Subscriptions go first: a process may subscribe to its own events.
        events = self.uplink.outbox[:]
        self.uplink.outbox.clear()
        waiting = [call for call in self.calls.open.values() if call.message[KIND_AT] == Kind.SUBSCRIBE]
        for call in waiting:
            self.uplink.send(call.message)
        for pattern in self._patterns:
            if all(call.address != pattern for call in waiting):
                self._subscribe(pattern)
        self.uplink.outbox.extend(events)

    def send(self, operation: Operation) -> None:
        """Publish an event."""
        self._stage.record(What.SUBMIT, operation.id, {"verb": "event", "topic": operation.topic}, self.name)
        address = Address(operation.topic).encode()
        payload = f"{operation.id} {operation.topic}".encode()
        key = self.uplink.next_key()
        self.casts.send(pack(Kind.PUBLISH, payload, format=1, key=key, address=address, ttl=NO_TTL), address)

    def _event(self, now: float, message: bytes) -> None:
        self._taken += 1
        self.uplink.mark()
        key = message[KEY]
        if self._recent.is_known(key):
            return
        self._recent.add(key)
        topic = Address.decode(address_of(message)).topic
        if self._trie.match(topic.encode()):
            self._stage.record(Seen.EVENT, id_of(message), {"topic": topic}, self.name)

    def before_flush(self) -> None:
        super().before_flush()
        if self._taken:
            self.uplink.send(pack(Kind.EVENT_CREDIT, self._taken.to_bytes(4)))
            self._taken = 0
