"""A driver that logs each notification, as JSON, to the logger ``nova.notification.<event type>``."""

from __future__ import annotations

import logging
from typing import Any

from compat.nova import options, primitives


def notify(*args: Any) -> None:
    """Log ``([context,] message)``."""
    message = args[-1]
    priority = str(message.get("priority") or options.value("default_notification_level")).lower()
    logger = logging.getLogger(f"nova.notification.{message['event_type']}")
    getattr(logger, "warning" if priority == "warn" else priority)("%s", primitives.dumps(message))
