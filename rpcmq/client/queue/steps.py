"""The verbs of queues, step by step, whoever takes the steps: a greenlet, a thread, or a task of asyncio."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from rpcmq.errors import RpcError
from rpcmq.transport.current_hub import pause
from rpcmq.transport.shell import WaitableEvent
from rpcmq.wire import Address

__all__ = ["LONGEST_PAUSE", "Ask", "Caller", "End", "Pause", "Steps", "Wait", "growing_pauses", "next_step", "take"]

T = TypeVar("T")
#: Pauses between two attempts to have an answer (seconds): the first, and the longest.
_FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


class Ask(NamedTuple):
    """Call a queue server; its answer is sent into the steps, an :class:`RpcError` thrown.

    Attributes:
        mandatory: fail at once if it is not there.
    """

    topic: Address
    message: Mapping[str, Any]
    seconds: float
    mandatory: bool


class Pause(NamedTuple):
    """Wait for so many seconds."""

    seconds: float


class Wait(NamedTuple):
    """Wait for somebody else; only where that is a greenlet of the same loop."""

    event: WaitableEvent


@dataclass(frozen=True)
class End(Generic[T]):
    """All steps were taken."""

    result: T


Steps = Generator[Ask | Pause | Wait, Any, T]


class Caller(Protocol):
    """Calls a method of a service and returns its result."""

    def __call__(self, topic: Address, msg: Mapping[str, Any], timeout: float, *, mandatory: bool) -> Any:
        """Call it; see :meth:`rpcmq.Client.call`."""


def growing_pauses() -> Iterator[float]:
    """The pauses between attempts to have an answer (seconds), without an end: each twice the one before, up to one."""
    seconds = _FIRST_PAUSE
    while True:
        yield seconds
        seconds = min(LONGEST_PAUSE, 2 * seconds)


def next_step(steps: Steps[T], answer: Any = None, error: RpcError | None = None) -> Ask | Pause | Wait | End[T]:
    """Go on to the next step, with the ``answer`` to the last one, or the ``error`` that it had."""
    try:
        return steps.send(answer) if error is None else steps.throw(error)
    except StopIteration as end:
        return End(end.value)


def take(steps: Steps[T], call: Caller) -> T:
    """Take all ``steps`` here; return their result."""
    try:
        return _take(steps, call)
    finally:
        # Now, and not when it is garbage: others may wait for what they were about to do.
        steps.close()


def _take(steps: Steps[T], call: Caller) -> T:
    step = next_step(steps)
    while not isinstance(step, End):
        answer, error = None, None
        if isinstance(step, Pause):
            pause(step.seconds)
        elif isinstance(step, Wait):
            step.event.wait()
        else:
            try:
                answer = call(step.topic, step.message, step.seconds, mandatory=step.mandatory)
            except RpcError as raised:
                error = raised
        step = next_step(steps, answer, error)
    return step.result
