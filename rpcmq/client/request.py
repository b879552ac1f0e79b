"""The request that a handler is running for: time left, progress, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any

from rpcmq.core.process.task import Task

__all__ = ["Request", "current_request"]

Progress = Callable[[Task, Any], None]
_current: ContextVar[tuple[Task, Progress] | None] = ContextVar("rpcmq_request", default=None)
#: The request that the current greenlet handles; None outside of a handler. Cheaper than :func:`current_request`.
handling = _current.get


class Request:
    """A handler's view of the call or cast it runs for.

    Attributes:
        method: the method called.
        topic: the address the message was delivered for.
        is_call: somebody waits for the result.
        attempt: 0, or how many consumers had it before.
        trace: W3C traceparent of the caller, or empty.
    """

    __slots__ = ("_progress", "_task", "attempt", "deadline", "is_call", "method", "topic", "trace")

    def __init__(self, task: Task, progress: Progress) -> None:
        self._task = task
        self._progress = progress
        self.method = task.method
        self.topic = task.registration.address
        self.is_call = task.is_call
        self.attempt = task.attempt
        self.trace: bytes = task.trace
        #: Monotonic seconds; None without a deadline.
        self.deadline = None if task.ttl is None else task.received_at + task.ttl

    @property
    def remaining(self) -> float | None:
        """Seconds until the caller gives up, not below 0; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the caller has given up or is gone, so that nobody will use the result."""
        return self._task.is_for_nobody

    def progress(self, value: Any) -> None:
        """Tell the caller how far this is; it gets ``value`` in its ``on_progress`` callback.

        Raises:
            PayloadError: ``value`` cannot be encoded.
        """
        self._progress(self._task, value)


def current_request() -> Request | None:
    """The request that the current greenlet runs for, None outside of a handler.

    A greenlet that a handler spawns is part of the request, and so inherits its deadline, if it is
    given the context: ``gevent.spawn(contextvars.copy_context().run, function)``.
    """
    current = handling()
    return None if current is None else Request(*current)


def set_current_request(task: Task, progress: Progress) -> None:
    """Set the current greenlet's request to ``task``. Cheap: the Request is made on demand."""
    _current.set((task, progress))
