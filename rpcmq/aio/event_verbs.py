"""The verbs of events for asyncio: notify, publish and subscribe."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Literal, overload

from rpcmq.aio.base import BaseClient
from rpcmq.aio.subscription import Handler, Subscription
from rpcmq.client.event_subscription import SubscriptionOwner
from rpcmq.client.event_verbs import notification
from rpcmq.client.shown_names import shown_as
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.home import Housed

__all__ = ["EventVerbs"]


@shown_as("Client")
class EventVerbs(BaseClient):
    """The verbs of events: notify, publish and subscribe."""

    @overload
    async def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: Literal[True],
    ) -> int: ...
    @overload
    async def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: bool = False,
    ) -> int | None: ...
    async def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: bool = False,
    ) -> int | None:
        """Publish an event, to topic ``notifications.<priority>.<event type>``. See :meth:`rpcmq.Client.notify`."""
        topic, event = notification(event_type, payload, priority, publisher_id or self.identity)
        return await self.publish(ctx, topic, event, confirm=confirm)

    @overload
    async def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: Literal[True]) -> int: ...
    @overload
    async def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None: ...
    async def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None:
        """Send ``payload`` to all who subscribe to ``topic``. See :meth:`rpcmq.Client.publish`.

        It waits only for the first connection for events, where too many are on their way, and with ``confirm``.
        """
        caller = self.caller
        if not confirm and self._client.publish_soon(ctx, topic, payload):
            return None
        return await caller.bridge.in_thread(self._client.publish, ctx, topic, payload, confirm=confirm)

    async def subscribe(self, pattern: str, handler: Handler, *, window: int = 1000) -> Subscription:
        """Have ``handler(ctx, topic, payload)`` called for each event whose topic matches ``pattern``.

        Args:
            pattern: as for :meth:`rpcmq.Client.subscribe`.
            handler: runs in one task of this event loop for all events of this subscription, in order, in the context
                of the caller. It may be ``async``; one that is not must not block.
            window: events that may be on their way to here at once.

        Returns:
            The subscription; ``await close()`` ends it, as does the end of the event loop, and ``lost`` counts events
            lost because this subscriber was too slow.

        Raises:
            UsageError: a wrong argument.
            RouterUnreachable: there is no router.
        """
        if not callable(handler):
            raise UsageError(f"handler must be callable, not {short_repr(handler)}")
        bridge = self.caller.bridge
        new = partial(Subscription, bridge, bridge.port(), handler, copy_context())
        return await bridge.in_thread(self._subscribed, pattern, new, window, undo=Subscription.end)

    def _subscribed(
        self, pattern: str, new: Callable[[SubscriptionOwner, Housed, str], Subscription], window: int
    ) -> Subscription:
        return self._client.subscriptions().subscribe(self._client, pattern, new, window)
