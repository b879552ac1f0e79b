"""The verbs of events: notify, publish and subscribe."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import time
from typing import Any, Literal, overload
from uuid import uuid4

from rpcmq.client.arguments import context_dict
from rpcmq.client.base import BaseClient
from rpcmq.client.event_subscription import Subscription
from rpcmq.client.methods import check_handler
from rpcmq.client.shown_names import shown_as
from rpcmq.client.thread_process import ThreadProcess
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.home import run_at_home

__all__ = ["EventVerbs", "notification"]

_PRIORITIES = ("DEBUG", "INFO", "WARN", "WARNING", "ERROR", "CRITICAL", "AUDIT", "SAMPLE")


@shown_as("Client")
class EventVerbs(BaseClient):
    """The verbs of events: notify, publish and subscribe."""

    @overload
    def notify(
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
    def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: bool = False,
    ) -> int | None: ...
    def notify(
        self,
        ctx: Any,
        event_type: str,
        payload: Any,
        priority: str = "INFO",
        *,
        publisher_id: str | None = None,
        confirm: bool = False,
    ) -> int | None:
        """Publish an event, to topic ``notifications.<priority>.<event type>``.

        So ``notify(ctx, "compute.x", ...)`` goes to ``notifications.info.compute.x``: the patterns ``notifications.#``,
        ``notifications.info.#`` and ``notifications.*.compute.#`` match it, ``compute.#`` does not.

        Subscribers receive a mapping with message_id, event_type, publisher_id, priority,
        timestamp (seconds since the epoch) and payload.

        Returns:
            With ``confirm``: how many subscribers there are.

        Raises:
            UsageError: the priority is unknown or the event type is no topic.
            PayloadError: the payload cannot be encoded.
        """
        topic, event = notification(event_type, payload, priority, publisher_id or self.identity)
        return self.publish(ctx, topic, event, confirm=confirm)

    @overload
    def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: Literal[True]) -> int: ...
    @overload
    def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None: ...
    def publish(self, ctx: Any, topic: str, payload: Any, *, confirm: bool = False) -> int | None:
        """Send ``payload`` to all who subscribe to a pattern that matches ``topic``.

        Returns:
            With ``confirm``: how many subscribers there are.

        Raises:
            PayloadError: the payload cannot be encoded.
            UsageError: the topic is malformed.
        """
        if not self.shell.is_current:
            if not confirm and self.publish_soon(ctx, topic, payload):
                return None
            return run_at_home(EventVerbs.publish, self, ctx, topic, payload, confirm=confirm)
        return self.event_link().publish(context_dict(ctx), topic, payload, confirm)

    def publish_soon(self, ctx: Any, topic: str, payload: Any) -> bool:
        """Publish an event without a wait, if that is possible and any thread may do it; return whether it was."""
        links = self._links
        process, link = links.process, links.event_link
        if link is None or not isinstance(process, ThreadProcess) or not process.posts or process.connection.abandoned:
            return False
        process.check_usable()
        return link.publish_soon(process, context_dict(ctx), topic, payload)

    def subscribe(self, pattern: str, handler: Callable[[Any, str, Any], None], *, window: int = 1000) -> Subscription:
        """Have ``handler(ctx, topic, payload)`` called for each event whose topic matches ``pattern``.

        Args:
            pattern: words between dots; ``*`` is one word, ``#`` any number of words. It is matched with the whole
                topic; that of what :meth:`notify` sends begins with ``notifications.<priority>.``.
            handler: runs in one greenlet for all events of this subscription, in order; in one thread, where the client
                lives in plain threads. It is not ``async``.
            window: events that may be on their way to here at once.

        Returns:
            The subscription; ``close()`` ends it, ``lost`` counts events lost because this
            subscriber was too slow.

        Raises:
            UsageError: a wrong argument.
            RouterUnreachable: there is no router.
        """
        check_handler(handler)
        if self.shell.is_current:
            return self._subscribed(pattern, handler, window)
        return self.home.run_or_undo(Subscription.end, self._subscribed, pattern, handler, window)

    def _subscribed(self, pattern: str, handler: Callable[[Any, str, Any], None], window: int) -> Subscription:
        return self.subscriptions().subscribe(self, pattern, partial(Subscription, handler), window)


def notification(event_type: str, payload: Any, priority: str, publisher_id: str) -> tuple[str, dict[str, Any]]:
    """Build what :meth:`EventVerbs.notify` publishes: its topic, and the event.

    Raises:
        UsageError: the priority is unknown.
    """
    if not isinstance(priority, str) or priority.upper() not in _PRIORITIES:
        raise UsageError(f"priority {short_repr(priority)} is unknown; known: {', '.join(_PRIORITIES)}")
    event = {
        "message_id": str(uuid4()),
        "event_type": event_type,
        "publisher_id": publisher_id,
        "priority": priority.upper(),
        "timestamp": time(),
        "payload": payload,
    }
    return f"notifications.{priority.lower()}.{event_type}", event
