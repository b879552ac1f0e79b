"""The functions every driver offers, whatever broker it is named after."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from compat.nova import options

from nova.rpc import amqp as rpc_amqp
from nova.rpc import common as rpc_common
from nova.rpc.amqp import (
    ConnectionContext,
    Pool,
    RpcContext,
    call,
    cast,
    cleanup,
    create_connection,
    create_consumer,
    create_consumer_set,
    fanout_cast,
    msg_reply,
    multicall,
    notify,
)
from nova.rpc.classes import (
    AdapterConsumer,
    Consumer,
    ConsumerSet,
    DirectConsumer,
    DirectPublisher,
    FanoutAdapterConsumer,
    FanoutPublisher,
    Publisher,
    TopicAdapterConsumer,
    TopicPublisher,
)
from nova.rpc.connection import Connection

__all__ = [
    "AdapterConsumer",
    "Connection",
    "ConnectionContext",
    "ConnectionPool",
    "Consumer",
    "ConsumerSet",
    "DirectConsumer",
    "DirectPublisher",
    "FanoutAdapterConsumer",
    "FanoutPublisher",
    "Pool",
    "Publisher",
    "RpcContext",
    "TopicAdapterConsumer",
    "TopicPublisher",
    "call",
    "cast",
    "cleanup",
    "create_connection",
    "create_consumer",
    "create_consumer_set",
    "fanout_cast",
    "msg_reply",
    "multicall",
    "notify",
    "of_module",
    "register_opts",
    "rpc_amqp",
    "rpc_common",
]

#: Connections that were closed, for use again.
ConnectionPool = rpc_amqp.get_connection_pool()


def of_module(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """``cast_to_server`` and ``fanout_cast_to_server`` of the driver ``name``, which use its own ``Connection``.

    Programs put another class in its place.
    """

    def pool() -> Any:
        return rpc_amqp.get_connection_pool(None, sys.modules[name].Connection)

    def cast_to_server(*arguments: Any) -> None:
        rpc_amqp.cast_to_server(*arguments, pool())

    def fanout_cast_to_server(*arguments: Any) -> None:
        rpc_amqp.fanout_cast_to_server(*arguments, pool())

    return cast_to_server, fanout_cast_to_server


def register_opts(conf: Any) -> None:
    """Make the options of RPC known to ``conf``."""
    options.register(conf)
