"""Subscriptions of all connections: one at the router for each pattern, whose events are encoded once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from gevent.lock import RLock

from rpcmq import Client, Subscription
from rpcmq.errors import Overloaded, PayloadError, RpcError
from rpcmq.gateway.messages import MessageCodec

__all__ = ["Listener", "SharedSubscriptions"]


class Listener(Protocol):
    """A connection that subscribes."""

    def event(self, number: int, tail: bytes) -> None:
        """Its subscription ``number`` has an event."""

    def lost(self, number: int, count: int) -> None:
        """Its subscription ``number`` has lost ``count`` events."""


class _Pattern:
    """A pattern, and who listens to it."""

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        #: (connection, id of its subscription), in order.
        self.listeners: dict[tuple[Listener, int], None] = {}
        #: Events that the router's subscription had lost when the listeners were told.
        self.told_lost = 0
        self.wanted = 0
        self.lock = RLock()


class SharedSubscriptions:
    """Subscribes by ``client``.

    Args:
        codec: encodes the events.
        most: patterns at a time.
    """

    def __init__(self, client: Client, codec: MessageCodec, most: int) -> None:
        self._client = client
        self._codec = codec
        self._most = most
        self._patterns: dict[str, _Pattern] = {}
        #: Events that no browser could be given, because their payload is none that JSON carries.
        self.unencodable = 0

    def __len__(self) -> int:
        return len(self._patterns)

    def add(self, pattern: str, listener: Listener, number: int) -> Callable[[], None]:
        """Have ``listener`` get the events of ``pattern`` from now on; waits until the router has confirmed.

        Returns:
            A function that ends it.

        Raises:
            RpcError: the router refuses, or there are too many patterns.
        """
        shared = self._patterns.get(pattern)
        if shared is None:
            if len(self._patterns) >= self._most:
                raise Overloaded(f"more patterns are subscribed to than limits.patterns = {self._most}")
            shared = self._patterns[pattern] = _Pattern()
        shared.wanted += 1
        try:
            with shared.lock:  # a second one waits for the first
                if shared.subscription is None:
                    shared.subscription = self._client.subscribe(pattern, partial(self._event, shared))
        except BaseException:
            self._release(pattern, shared)
            raise
        shared.listeners[listener, number] = None
        return partial(self._remove, pattern, shared, listener, number)

    def tell_lost(self) -> None:
        """Tell all listeners of the events that were lost on the way to here. To be called once a second."""
        for shared in list(self._patterns.values()):
            lost = shared.subscription.lost if shared.subscription is not None else 0
            count, shared.told_lost = lost - shared.told_lost, lost
            if count > 0:
                self._lose(shared, count)

    def _remove(self, pattern: str, shared: _Pattern, listener: Listener, number: int) -> None:
        if shared.listeners.pop((listener, number), listener) is None:
            self._release(pattern, shared)

    def _release(self, pattern: str, shared: _Pattern) -> None:
        shared.wanted -= 1
        if shared.wanted:
            return
        del self._patterns[pattern]
        if shared.subscription is not None:
            try:
                shared.subscription.close()
            except RpcError:
                pass  # the client is closed: so is the subscription

    def _event(self, shared: _Pattern, ctx: Any, topic: str, payload: Any) -> None:
        try:
            tail = self._codec.event_tail(topic, payload)
        except PayloadError:
            self.unencodable += 1
            self._lose(shared, 1)
            return
        for listener, number in list(shared.listeners):
            listener.event(number, tail)

    def _lose(self, shared: _Pattern, count: int) -> None:
        for listener, number in list(shared.listeners):
            listener.lost(number, count)
