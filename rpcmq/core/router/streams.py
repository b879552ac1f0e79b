"""How many items of a stream may come: its caller grants them, and a consumer that sends more breaks the protocol."""

from __future__ import annotations

from rpcmq.core.router.topics import Pending
from rpcmq.wire import LOW_FLAGS_AT, Flag

__all__ = ["ITEMS_UNASKED", "MAX_ITEMS_GRANTED", "is_stream", "items_left"]

#: Items that may come before anything was granted.
ITEMS_UNASKED = 16
#: Items that were granted and not sent, at most.
MAX_ITEMS_GRANTED = 1024


def is_stream(pending: Pending) -> bool:
    """Whether each item starts the call's deadline anew."""
    return bool(pending.message[LOW_FLAGS_AT] & Flag.STREAM)


def items_left(pending: Pending) -> int:
    """How many items its consumer may still send."""
    try:
        return pending.items_left
    except AttributeError:
        return ITEMS_UNASKED
