"""Connections as programs hold them: of their own, or given back to a pool for use again."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from compat.nova import options
from rpcmq.errors import RpcError

import eventlet.pools
from nova.rpc import common

__all__ = ["ConnectionContext", "Pool", "get_connection_pool", "pools"]


class Pool(eventlet.pools.Pool):
    """Connections that were closed, for use again.

    ``Pool([conf, connection_cls,] max_size=..., order_as_stack=...)``
    """

    def __init__(self, conf: Any = None, connection_cls: Any = None, **kwargs: Any) -> None:
        self.conf = conf
        self.connection_cls = connection_cls
        self.reply_proxy = None
        kwargs.setdefault("max_size", int(options.value("rpc_conn_pool_size", conf)))
        kwargs.setdefault("order_as_stack", False)
        super().__init__(min_size=0, **kwargs)
        pools.add(self)

    def create(self) -> Any:
        """A new connection."""
        cls = self.connection_cls or importlib.import_module("nova.rpc.connection").Connection
        return cls(self.conf)

    def empty(self) -> None:
        """Close unused connections."""
        while self.free_items:
            self.get().close()
            self.current_size -= 1


#: All that are in use.
pools: WeakSet[Pool] = WeakSet()


def get_connection_pool(conf: Any = None, connection_cls: Any = None) -> Pool:
    """The pool of a class of connections."""
    cls = connection_cls or importlib.import_module("nova.rpc.connection").Connection
    if getattr(cls, "pool", None) is None:
        cls.pool = Pool(conf, cls, order_as_stack=True)
    return cls.pool  # type: ignore[no-any-return]


class ConnectionContext(common.Connection):
    """A connection as programs hold it: pooled, or (``pooled=False``) of its own.

    ``ConnectionContext([conf, connection_pool,] pooled=True, server_params=None)``

    Attributes:
        connection: the real one; None once this was closed.
    """

    def __init__(
        self, conf: Any = None, connection_pool: Any = None, pooled: bool = True, server_params: Any = None
    ) -> None:
        self.connection: Any = None
        self.connection_pool = connection_pool or get_connection_pool(conf)
        self.pooled = pooled
        if pooled:
            self.connection = self.connection_pool.get()
        else:
            cls = self.connection_pool.connection_cls or importlib.import_module("nova.rpc.connection").Connection
            self.connection = cls(conf, server_params=server_params)

    def close(self) -> None:
        """Give a pooled connection back, clean; close any other."""
        connection, self.connection = self.connection, None
        if connection is None:
            return
        if not self.pooled:
            # Its consumers have stopped all the same; a router that cannot be reached has forgotten them.
            with contextlib.suppress(RpcError):
                connection.close()
            return
        connection.reset()
        self.connection_pool.put(connection)

    def __del__(self) -> None:
        # A connection that consumes goes on; one that was only forgotten goes back.
        if self.connection is not None and self.pooled:
            self.close()

    def _real(self) -> Any:
        if self.connection is None:
            raise common.InvalidRPCConnectionReuse()
        return self.connection

    def create_consumer(self, topic: str, proxy: Any, fanout: bool = False) -> Any:
        """As the connection's."""
        return self._real().create_consumer(topic, proxy, fanout)

    def create_worker(self, topic: str, proxy: Any, pool_name: str) -> Any:
        """As the connection's."""
        return self._real().create_worker(topic, proxy, pool_name)

    def join_consumer_pool(
        self, callback: Callable[[Any], Any], pool_name: str, topic: str, exchange_name: str, ack_on_error: bool = True
    ) -> Any:
        """As the connection's."""
        return self._real().join_consumer_pool(callback, pool_name, topic, exchange_name, ack_on_error)

    def consume_in_thread(self) -> Any:
        """As the connection's."""
        return self._real().consume_in_thread()

    def __getattr__(self, key: str) -> Any:
        if key.startswith("__") or key in ("connection", "connection_pool", "pooled"):
            raise AttributeError(key)
        return getattr(self._real(), key)
