"""The settings of a queue, as a program declares them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypedDict

from rpcmq.core.queue.policy import Policy
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["QueueSettings", "check_settings"]


class QueueSettings(TypedDict, total=False):
    """The settings of a queue; docs/queues.md says what each is. Times are seconds."""

    attempts: int
    backoff: float
    backoff_factor: float
    backoff_most: float
    lease: float
    on_lost: str
    losses: int
    concurrency: int
    rate: float
    max_items: int
    max_bytes: int
    max_result_bytes: int
    alarm: float


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse settings that no queue can have.

    Raises:
        UsageError: one is unknown, or wrong; the text names it.
    """
    known = [field.name for field in fields(Policy)]
    for name in settings:
        if name not in known:
            raise UsageError(f"a queue has no setting {short_repr(name)}; it has {', '.join(known)}")
    try:
        Policy(**settings)
    except ValueError as error:
        raise UsageError(f"the settings of a queue: {error}") from None
