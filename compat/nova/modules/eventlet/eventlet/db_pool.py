"""Pools of connections to a database, whose calls run in native threads so that they block nobody."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from . import tpool
from .pools import Pool
from .timeout import Timeout

__all__ = [
    "BaseConnectionPool",
    "ConnectTimeout",
    "ConnectionPool",
    "DatabaseConnector",
    "PooledConnectionWrapper",
    "RawConnectionPool",
    "TpooledConnectionPool",
    "cleanup_rollback",
]

LOG = logging.getLogger(__name__)


class ConnectTimeout(Exception):
    """The database did not answer in time."""


def cleanup_rollback(conn: Any) -> None:
    """Undo what was not committed, before somebody else gets the connection."""
    conn.rollback()


class PooledConnectionWrapper:
    """A connection of a pool, until it is closed: that gives it back. So does forgetting it."""

    def __init__(self, connection: Any, pool: BaseConnectionPool, created: float) -> None:
        self._base: Any = connection
        self._pool = pool
        self._created = created

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or self.__dict__.get("_base") is None:
            raise AttributeError(name)
        return getattr(self._base, name)

    def __bool__(self) -> bool:
        return self._base is not None

    def close(self) -> None:
        """Give the connection back; it can't be used any more."""
        self._pool.put(self)

    def __del__(self) -> None:
        if self.__dict__.get("_base") is not None:
            self._pool.put(self)


class BaseConnectionPool(Pool):
    """Up to ``max_size`` connections; closed ones are used again, the last one first.

    Args:
        db_module: the driver, with a function ``connect``.
        args, kwargs: what that takes.
        max_idle, max_age: how long a connection may be unused, and how long it lives (seconds). One that is older is
            closed when it is given back, or would be used again.
        connect_timeout: how long to connect (seconds).
        cleanup: called with each connection that is given back; if it raises, that is closed. None: nothing.
    """

    def __init__(
        self,
        db_module: Any,
        *args: Any,
        min_size: int = 0,
        max_size: int = 4,
        max_idle: float = 10,
        max_age: float = 30,
        connect_timeout: float = 5,
        cleanup: Callable[[Any], None] | None = cleanup_rollback,
        **kwargs: Any,
    ) -> None:
        self._db_module, self._args, self._kwargs = db_module, args, kwargs
        self.max_idle, self.max_age, self.connect_timeout = max_idle, max_age, connect_timeout
        self.cleanup = cleanup
        super().__init__(min_size=0, max_size=max_size, order_as_stack=True)
        self.min_size = min_size
        for each in [self.get() for _ in range(min_size)]:
            self.put(each)

    def connect(self) -> Any:
        """Make a connection."""
        return self._db_module.connect(*self._args, **self._kwargs)

    def create(self) -> Any:
        """Make a connection that is not the pool's. Raises ConnectTimeout."""
        with Timeout(self.connect_timeout, ConnectTimeout()):
            return self.connect()

    def get(self) -> PooledConnectionWrapper:
        """Take a connection, connecting if none is free; wait for one if no more may be made."""
        while True:
            taken = super().get()
            if not isinstance(taken, tuple):
                return PooledConnectionWrapper(taken, self, monotonic())
            connection, created, unused_since = taken
            now = monotonic()
            if now - created < self.max_age and now - unused_since < self.max_idle:
                return PooledConnectionWrapper(connection, self, created)
            self.current_size -= 1
            _close(connection)

    def put(self, item: PooledConnectionWrapper) -> None:
        """Give a connection back; one that can't be used again is closed."""
        connection, item._base = item._base, None
        if connection is None:
            return
        now = monotonic()
        too_many = self.current_size > self.max_size
        if not too_many and now - item._created < self.max_age and self._cleaned(connection):
            super().put((connection, item._created, now))
            return
        _close(connection)
        self.current_size -= 1
        if self.waiting() and not too_many:
            self._replace()

    def _replace(self) -> None:
        """Make a connection for whoever waits for one."""
        self.current_size += 1
        try:
            connection = self.create()
        except BaseException:
            self.current_size -= 1
            raise
        now = monotonic()
        super().put((connection, now, now))

    def _cleaned(self, connection: Any) -> bool:
        try:
            if self.cleanup is not None:
                self.cleanup(connection)
        except Exception:
            LOG.warning("a connection of the pool could not be cleaned up, and is closed", exc_info=True)
            return False
        return True

    def clear(self) -> None:
        """Close all that are free."""
        while self.free_items:
            self.current_size -= 1
            _close(self.free_items.popleft()[0])


def _close(connection: Any) -> None:
    try:
        connection.close()
    except Exception:
        LOG.debug("a connection of the pool could not be closed", exc_info=True)


class RawConnectionPool(BaseConnectionPool):
    """One whose driver is cooperative, so that its calls may run right here."""


class TpooledConnectionPool(BaseConnectionPool):
    """One whose driver would block all green threads."""

    def connect(self) -> Any:
        """Make a connection, which like its cursors runs in native threads."""
        return tpool.Proxy(tpool.execute(super().connect), autowrap_names=("cursor",))


ConnectionPool = TpooledConnectionPool


class DatabaseConnector:
    """A pool for each database.

    Args:
        module: the driver.
        credentials: by host, or under "default": user, password and other keywords for ``connect``.
        conn_pool: the class of the pools; None: :data:`ConnectionPool`.
        args, kwargs: what that takes besides.
    """

    def __init__(
        self,
        module: Any,
        credentials: Mapping[str, Mapping[str, Any]],
        conn_pool: type[BaseConnectionPool] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        self._module, self._credentials = module, credentials
        self._class = conn_pool or ConnectionPool
        self._args, self._kwargs = args, kwargs
        self._pools: dict[tuple[Any, ...], BaseConnectionPool] = {}

    def credentials_for(self, host: str) -> Mapping[str, Any]:
        """The credentials of a host. Raises KeyError if there are none, and no default."""
        return self._credentials[host if host in self._credentials else "default"]

    def get(self, host: str, dbname: str, port: int | None = None) -> BaseConnectionPool:
        """The pool of a database."""
        key = (host, dbname, port)
        if key not in self._pools:
            place = {"host": host, "db": dbname} | ({} if port is None else {"port": port})
            keywords = {**self._kwargs, **place, **self.credentials_for(host)}
            self._pools[key] = self._class(self._module, *self._args, **keywords)
        return self._pools[key]
