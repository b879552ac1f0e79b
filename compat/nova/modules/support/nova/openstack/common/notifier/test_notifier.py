"""A driver that keeps the notifications, for tests."""

from __future__ import annotations

from typing import Any

NOTIFICATIONS: list[Any] = []


def notify(*args: Any) -> None:
    """Keep the message of ``([context,] message)``."""
    NOTIFICATIONS.append(args[-1])
