"""OS threads for the handlers of a client in a background thread, whose hub must not block."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from gevent.threadpool import ThreadPool

__all__ = ["GeventHandlerThreads"]

T = TypeVar("T")


class GeventHandlerThreads:
    """At most ``most`` OS threads, started as they are needed.

    Args:
        most: calls beyond that wait for a thread.
    """

    def __init__(self, most: int) -> None:
        self._pool = ThreadPool(most)

    def call(self, function: Callable[..., T], *args: object) -> T:
        """Call ``function`` in a thread, with the current context variables, while the hub keeps running.

        Raises:
            BaseException: what ``function`` raises.
        """
        value, error = self._pool.apply(copy_context().run, (_outcome, function, args))
        if error is not None:
            raise error
        return value  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the threads, each once its call has ended."""
        self._pool.kill()


def _outcome(function: Callable[..., T], args: tuple[object, ...]) -> tuple[T | None, BaseException | None]:
    # gevent would print an exception leaving the thread, even if it is handled later.
    try:
        return function(*args), None
    except BaseException as error:
        return None, error
