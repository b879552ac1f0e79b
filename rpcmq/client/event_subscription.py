"""One pattern of events and its handler."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from rpcmq.client.interrupts import is_interrupt
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import PayloadRefused, ProtocolError
from rpcmq.payload.bounded_text import printable_exception
from rpcmq.payload.seal import NotTrusted
from rpcmq.transport.home import Home, Housed, at_home

__all__ = ["BaseSubscription", "Event", "Subscription", "SubscriptionOwner"]

log = logging.getLogger("rpcmq.client")


class Event:
    """An event on its way through the handlers of this process."""

    __slots__ = ("handlers", "link", "message", "refused", "seen")

    def __init__(self, link: EventSource, message: bytes, handlers: int) -> None:
        #: Over which it came, and is acknowledged.
        self.link = link
        self.message = message
        self.handlers = handlers
        #: Whether a handler has decoded it; and why it was refused for all of them.
        self.seen = False
        self.refused: NotTrusted | None = None


class EventSource(Protocol):
    """Gives events, and is told when they are handled: a link to a router."""

    def opened(self, event: Event) -> tuple[Any, str, Any]:
        """Return the context, topic and payload of ``event``."""

    def handled(self, event: Event) -> None:
        """Release ``event``, which a handler has finished."""


class SubscriptionOwner(Protocol):
    """Has subscriptions at one router, or at several."""

    def remove(self, subscription: BaseSubscription) -> None:
        """``subscription`` was closed."""


class BaseSubscription(ABC):
    """One pattern, and the events for it that have not been handled yet.

    Attributes:
        pattern: as it was given.
        received: events that were handled, or are being handled.
        lost: events that this process lost because it was too slow to take them.
    """

    def __init__(self, owner: SubscriptionOwner, client: Housed, pattern: str) -> None:
        self._owner = owner
        #: Keeps the client from being garbage-collected, and so closed, while there are subscriptions.
        self._client = client
        self.shell = client.shell
        self._queue: deque[Event] = deque()
        self._limited_log = RateLimitedLog(log)
        self._closed = False
        self.pattern = pattern
        self.received = 0
        self.lost = 0

    def offer(self, event: Event) -> None:
        """Take a matching event. Called in the loop."""
        self._queue.append(event)
        self._wake()

    def end(self) -> None:
        """Get no more events. To be called in the loop."""
        if not self._closed:
            self._closed = True
            self._owner.remove(self)
            self._wake()

    @abstractmethod
    def _wake(self) -> None:
        """Have whoever handles the events look for them, and whether this has ended."""

    def _failed(self, error: BaseException) -> None:
        """Log ``error``, for which an event was not handled."""
        kind = type(error).__qualname__
        if isinstance(error, NotTrusted):
            return  # counted and logged where it was refused
        if isinstance(error, (PayloadRefused, ProtocolError)):
            self._limited_log.error(kind, f"event for {self.pattern} not handled: {error}")
        else:
            self._limited_log.error(kind, f"handler of {self.pattern} failed", printable_exception(error))

    def _drop_queue(self) -> None:
        while self._queue:
            event = self._queue.popleft()
            event.link.handled(event)


class Subscription(BaseSubscription):
    """One pattern and its handler. Events are handled one after the other.

    Attributes:
        pattern: as it was given.
        received: events that were handled, or are being handled.
        lost: events that this process lost because it was too slow to take them.
    """

    def __init__(
        self, handler: Callable[[Any, str, Any], None], owner: SubscriptionOwner, client: Housed, pattern: str
    ) -> None:
        super().__init__(owner, client, pattern)
        self._handler = handler
        self._wakeup = self.shell.event()
        self.shell.spawn(self._run)

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._client.home

    @at_home
    def close(self) -> None:
        """Get no more events."""
        self.end()

    def _wake(self) -> None:
        self._wakeup.set()

    def _run(self) -> None:
        while not self._closed:
            self._wakeup.wait()
            self._wakeup.clear()
            while self._queue and not self._closed:
                event = self._queue.popleft()
                try:
                    ctx, topic, payload = event.link.opened(event)
                    self.received += 1
                    self._handle(ctx, topic, payload)
                except BaseException as error:  # also SystemExit or a gevent.Timeout: the subscription goes on
                    self._failed(error)
                    if is_interrupt(error):
                        raise
                finally:
                    event.link.handled(event)
        self._drop_queue()

    def _handle(self, ctx: Any, topic: str, payload: Any) -> None:
        if self.shell.outside is None:
            self._handler(ctx, topic, payload)
        else:
            self.shell.outside(self._handler, ctx, topic, payload)
