"""A consumer whose handler only hands each message over, and so needs no thread of its own for that.

To wake a worker takes longer than the handler itself, and its thread then waits for the engines that woke it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Any

from rpcmq.client.consumer import Consumer
from rpcmq.core.process.task import Task
from rpcmq.transport.shell import Workers

__all__ = ["PromptConsumer"]

#: Largest payload that is decoded in the loop, which nothing else happens in meanwhile (bytes).
_LARGE = 64 * 1024


class PromptConsumer(Consumer):
    """Calls its handler in the loop of a plain thread, while that does not wait, and otherwise beside it.

    Args:
        is_prompt: whether the handler keeps each message at present, and neither waits nor runs what might.
        others: as for :class:`Consumer`.
    """

    def __init__(self, *others: Any, is_prompt: Callable[[], bool], **options: Any) -> None:
        super().__init__(*others, **options)
        self._workers = _PromptWorkers(self._workers, self._run, is_prompt)

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        # The loop keeps the engines: it is in the middle of their work.
        return super()._call(function, *args) if self.shell.can_wait else function(*args)


class _PromptWorkers(Workers[Task]):
    __slots__ = ("_is_prompt", "_others", "_run")

    def __init__(self, others: Workers[Task], run: Callable[[Task], None], is_prompt: Callable[[], bool]) -> None:
        self._others = others
        self._run = run
        self._is_prompt = is_prompt

    def start(self, item: Task) -> None:
        if len(item.payload) <= _LARGE and self._is_prompt():
            Context().run(self._run, item)
        else:
            self._others.start(item)

    def close(self) -> None:
        self._others.close()
