"""The interface that the connections of all drivers have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self


class Connection:
    """The interface of every driver's connection."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop what consumes on it; a pooled one goes back to its pool."""
        raise NotImplementedError

    def create_consumer(self, topic: str, proxy: Any, fanout: bool = False) -> Any:
        """Have ``proxy`` run what comes for ``topic``: in turn with others, or each message if ``fanout``."""
        raise NotImplementedError

    def create_worker(self, topic: str, proxy: Any, pool_name: str) -> Any:
        """Have ``proxy`` share the messages for ``topic`` with the other members of a pool."""
        raise NotImplementedError

    def join_consumer_pool(
        self, callback: Callable[[Any], Any], pool_name: str, topic: str, exchange_name: str, ack_on_error: bool = True
    ) -> Any:
        """Have ``callback`` share the notifications for ``topic`` with the other members of a pool."""
        raise NotImplementedError

    def consume_in_thread(self) -> Any:
        """Serve all its consumers in a green thread."""
        raise NotImplementedError
