"""Messages of one queue server to the others, which may be lost, and are sent again."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rpcmq.client import Client
from rpcmq.client.queue.protocol import OPERATORS
from rpcmq.errors import RpcError
from rpcmq.wire import Address

__all__ = ["AGAIN", "AT_ONCE", "check_told", "tell"]

log = logging.getLogger("rpcmq.queue")

#: The others are asked so often (seconds) for what they know, and told of so much in one message.
AGAIN, AT_ONCE = 60.0, 100
#: No more of one message is heard.
_MOST_HEARD = 1000
#: The longest that such a message is kept for a queue server that is away (seconds).
_LIFE = 60.0


def tell(client: Client, topic: str, owner: str, method: str, args: dict[str, Any]) -> None:
    """Have the queue server of ``owner``, or where that is empty each one, run a method; its result is not wanted."""
    message = {"method": method, "args": args}
    address = Address(topic, owner, OPERATORS)
    try:
        if owner:
            client.cast(None, address, message, ttl=_LIFE)
        else:
            client.fanout_cast(None, address, message)
    except RpcError as error:
        log.warning("other queue servers were not told of %s: %s", topic, error)


def check_told(told: Sequence[object]) -> None:
    """Check that so much may be told in one message.

    Raises:
        ValueError: it is too much.
    """
    if len(told) > _MOST_HEARD:
        raise ValueError(f"a queue server is told of {_MOST_HEARD} things at once at the most, not of {len(told)}")
