"""A driver that sends nothing."""

from __future__ import annotations

from typing import Any


def notify(*args: Any) -> None:
    """Do nothing with ``([context,] message)``."""
