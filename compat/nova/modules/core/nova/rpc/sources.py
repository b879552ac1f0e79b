"""The consumers of a connection: where their messages come from, and who is given them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from compat.nova import transport
from rpcmq import Address

from nova.rpc import amqp, common

__all__ = ["Source", "ignore", "process"]

LOG = logging.getLogger(__name__)


class Source:
    """One consumer of a connection: where from, to whom, and the registration while it consumes."""

    def __init__(self, address: Address, callback: Callable[[Any], Any], group: str, fanout: bool) -> None:
        self.address = address
        self.callback = callback
        self.group = group
        self.fanout = fanout
        #: Whether its messages run in green threads of their own even while being iterated over.
        self.threaded = False
        #: Whether the consumer has ended; messages waiting for it are dropped.
        self.ended = False
        self.incoming: transport.Incoming | None = None


def process(callback: Callable[[Any], Any], message: Any) -> None:
    """A message that cannot be processed must not keep its consumer from the next."""
    try:
        if type(message) is not transport.Message:
            message = common.deserialize_msg(message)
        elif not isinstance(callback, amqp.ProxyCallback):
            # A plain callback reads the keys itself.
            message = message.flat()
        callback(message)
    except Exception:
        LOG.exception("skipping a message that cannot be processed")


def ignore(message: Any) -> None:
    """The callback of a consumer that was given none."""
