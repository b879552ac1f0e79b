"""A driver that sends each notification to ``<notification topic>.<priority>``, where it waits for a consumer.

Its older name is ``rabbit_notifier``. In Diablo it casts, and nothing of the message is kept for a consumer that
comes later; from Essex on it notifies, which declares the queue.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

import compat.nova
from compat.nova import options

LOG = logging.getLogger(__name__)

options.register_nova_options("notification_topics", "notification_topic", "default_notification_level")


def notify(*args: Any) -> None:
    """Send ``([context,] message)``; what goes wrong is logged."""
    send(args)


def send(args: tuple[Any, ...], topics: list[str] | None = None, **how: Any) -> None:
    """:func:`notify`, with keywords for ``rpc.notify``; to ``topics``, or to those of the configuration."""
    message = args[-1]
    context = args[0] if len(args) > 1 else None
    priority = str(message.get("priority") or options.value("default_notification_level")).lower()
    for topic in topics or _topics():
        try:
            _send(context, f"{topic}.{priority}", message, how)
        except Exception:
            LOG.exception("Could not send notification to %s. Payload=%s", topic, message)


def _topics() -> list[str]:
    """The topics of ``notification_topics``; Diablo's single ``notification_topic``, if somebody changed it."""
    single = options.value("notification_topic")
    if single != options.default("notification_topic"):
        return [single]
    return [*options.value("notification_topics")]


def _send(context: Any, topic: str, message: dict[str, Any], how: dict[str, Any]) -> None:
    from nova.context import get_admin_context

    rpc: Any = importlib.import_module("nova.rpc")
    context = get_admin_context() if context is None else context
    if compat.nova.era() in ("cactus", "diablo"):
        rpc.cast(context, topic, message)
    elif compat.nova.era() == "essex":
        rpc.notify(context, topic, message)
    else:
        rpc.notify(context, topic, message, **how)
