"""The answers of workers, checked: a worker is a peer like any other."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from rpcmq.client.failures import ToldFailure
from rpcmq.client.queue.protocol import DONE, FAILED, REJECTED, WorkAnswer
from rpcmq.errors import RemoteError
from rpcmq.payload.bounded_text import short_repr

__all__ = ["LONGEST", "answer_of"]

#: The longest that an item may run (seconds): a router takes no longer calls.
LONGEST = 86_400.0
#: The longest pause before an item is tried again (seconds).
_LATEST = 4_000_000.0
#: Characters of a reason, whose end says most, and of the name of a worker.
_TEXT, _NAME = 16_000, 255

#: A failure that a worker tells by its arguments, as it comes here.
_TOLD = f"{ToldFailure.__module__}.{ToldFailure.__qualname__}"


def answer_of(result: Callable[[], Any]) -> WorkAnswer:
    """The answer of a worker: what it has returned, or the arguments of what it has raised.

    Raises:
        CallError: there is none.
        TypeError, ValueError: what came is none.
        Exception: the worker has raised something else.
    """
    try:
        answer = WorkAnswer.of(result())
    except RemoteError as error:
        if error.exc_type != _TOLD:
            raise
        answer = WorkAnswer.of(error.remote_args)
    return _checked(answer)


def _checked(answer: WorkAnswer) -> WorkAnswer:
    again, seconds, worker = answer.again, answer.seconds, answer.worker
    if answer.outcome not in (DONE, FAILED, REJECTED):
        raise _wrong("outcome", answer.outcome)
    if type(answer.text) is not str:
        raise _wrong("text", answer.text)
    if again is not None and not _is_time(again):
        raise _wrong("again", again)
    if type(answer.format) is not int or not 0 <= answer.format <= 255:
        raise _wrong("format", answer.format)
    if type(answer.result) is not bytes:
        raise _wrong("result", answer.result)
    if not _is_time(seconds):
        raise _wrong("seconds", seconds)
    if type(worker) is not str:
        raise _wrong("worker", worker)
    if type(answer.is_begun) is not bool:
        raise _wrong("is_begun", answer.is_begun)
    if not answer.text and again is None and seconds <= LONGEST and worker.isascii() and len(worker) <= _NAME:
        return answer  # nearly always
    return WorkAnswer(
        answer.outcome, _plain(answer.text[-_TEXT:]), None if again is None else min(again, _LATEST), answer.format,
        answer.result, min(seconds, LONGEST), _plain(worker[:_NAME]), answer.is_begun,
    )  # fmt: skip


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and value >= 0 and isfinite(value)  # type: ignore[operator, arg-type]


def _plain(text: str) -> str:
    """``text`` without what cannot be written."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _wrong(name: str, value: object) -> ValueError:
    return ValueError(f"the worker's answer is malformed: {name} = {short_repr(value)}")
