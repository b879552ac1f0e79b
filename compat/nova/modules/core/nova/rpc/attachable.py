"""Consumers as Diablo m4 had them: made first, attached to a green thread then."""

from __future__ import annotations

from typing import Any

__all__ = ["create_consumer", "create_consumer_set"]


class _Attachable:
    """The result of Diablo m4's ``create_consumer``: it consumes once it is attached."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def attach_to_eventlet(self) -> Any:
        """Consume in a green thread; returns what stops it."""
        return self._connection.consume_in_thread()

    def close(self) -> None:
        """Stop."""
        self._connection.close()


def create_consumer(conn: Any, topic: str, proxy: Any, fanout: bool = False) -> _Attachable:
    """Diablo m4: a consumer of ``topic`` on ``conn``."""
    conn.create_consumer(topic, proxy, fanout)
    return _Attachable(conn)


class _ConsumerSet(_Attachable):
    def __init__(self, connection: Any, consumers: list[Any]) -> None:
        super().__init__(connection)
        self.consumer_list = consumers

    def wait(self, limit: int | None = None) -> None:
        """Consume in this green thread, so many messages at most."""
        self._connection.consume(limit)


def create_consumer_set(conn: Any, consumers: list[Any]) -> _ConsumerSet:
    """Diablo m4: consumers that are waited for together."""
    return _ConsumerSet(conn, consumers)
