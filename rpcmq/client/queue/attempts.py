"""An attempt at an item: all that a worker does around the method, in whatever way it runs that."""

from __future__ import annotations

import traceback
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

from rpcmq.client.consumer import PLAIN_VALUES
from rpcmq.client.failures import FailedItem, ToldFailure
from rpcmq.client.methods import ASYNC
from rpcmq.client.process import Process
from rpcmq.client.queue.items import Item, Reject, RetryLater, set_current_item
from rpcmq.client.queue.protocol import DONE, FAILED, MOST_RESULT_BYTES, NO_RESULT, REJECTED, WorkAnswer, WorkOrder
from rpcmq.client.queue.transits import Transits
from rpcmq.client.request import Request, handling
from rpcmq.core.process.pulse import Pulse
from rpcmq.core.process.task import Task
from rpcmq.errors import LeaseLost, PayloadError, PayloadRefused, UsageError
from rpcmq.payload.format import Format
from rpcmq.wire import Address

__all__ = ["Attempt", "ItemEndpoint", "begun"]

#: The lease is over so much earlier here than where the item came from (seconds), or this share of it where that is
#: less: clocks go at different rates.
_MARGIN, _MARGIN_SHARE = 1.0, 0.1
#: The router is asked so many times in the time of a lease, at least.
_QUESTIONS = 4
_JSON = int(Format.JSON)
#: Characters of a reason; the end of a traceback says most.
_LONGEST = 16_000


class Expired(Exception):
    """Nobody wants the item any more: it was longer on its way than that."""


class Attempt:
    """One attempt.

    Args:
        order: as the queue server gave it.
        task, request: by which it did.
        process: the engines of the link by which it came.
        transits: of the items of this worker.

    Raises:
        ToldFailure: its lease is over, or nobody wants it any more, so that it is not to be begun here.
    """

    def __init__(
        self, order: Sequence[Any], task: Task, request: Request, process: Process, transits: Transits
    ) -> None:
        self.order = WorkOrder.of(order)
        self._process = process
        self._begun = monotonic()
        lease, pulse = self.order.lease, process.uplink.pulse
        asks_more = pulse.at_most(lease / _QUESTIONS)
        self.item = Item(self.order, partial(_remaining, pulse, task, lease))
        self._check_lease()
        if self.order.unwanted_left:
            self._check_wanted(request.deadline, transits)
        if self.order.tell or asks_more:
            request.progress(None)
        set_current_item(self.item)

    def _check_lease(self) -> None:
        """Hand the item back, not begun, where another worker may have it: so it is after this process was stopped.

        Raises:
            ToldFailure: so it is.
        """
        try:
            self.item.check()
        except LeaseLost as error:
            raise self._not_begun(error) from None

    def _check_wanted(self, deadline: float | None, transits: Transits) -> None:
        """Hand the item back, not begun, where it has expired on its way.

        Args:
            deadline: of its call (monotonic seconds).

        Raises:
            ToldFailure: so it is.
        """
        if deadline is not None and transits.has_expired(self.order, deadline, self._begun):
            # It is looked at again at once where it came from: it may be wanted all the same.
            raise self._not_begun(Expired("nobody wants it any more"), 0.0)

    def _not_begun(self, error: Exception, again: float | None = None) -> ToldFailure:
        answer = self._answer(FAILED, str(error), again)._replace(is_begun=False)
        return ToldFailure(answer, error, True, self._told(False))

    def _told(self, is_dead: bool) -> FailedItem:
        return FailedItem(self.order.queue, self.order.id, self.order.attempt, is_dead)

    def body(self, address: Address) -> dict[str, Any]:
        """The context and arguments that the item carries; at home where there is a trust policy.

        Raises:
            PayloadRefused: they are not decoded here.
        """
        body = self._process.payloads.item(address, self.order.format, self.order.body)
        if type(body) is not dict:
            raise PayloadRefused(f"the item must be a mapping with context and args, not {type(body).__name__}")
        return body

    def done(self, result: Any) -> list[Any]:
        """The answer to an item whose method has returned ``result``.

        A result that is wanted and cannot be encoded, or is too large, is no reason to do the work again: the reason
        takes its place.

        Raises:
            UsageError: the method has not run, or not to its end.
        """
        if type(result) not in PLAIN_VALUES:
            _check_has_run(self.order.method, result)
        if not self.order.wants_result:
            return list(self._answer(DONE))
        try:
            format, encoded = self._process.codec.encode(result)
        except PayloadError as error:
            format, encoded = NO_RESULT, f"its result cannot be encoded: {error}"[:_LONGEST].encode()
        if (size := len(encoded)) > MOST_RESULT_BYTES:
            text = f"its result of {size} bytes is not kept: {MOST_RESULT_BYTES} are the most; keep it elsewhere"
            format, encoded = NO_RESULT, text.encode()
        return list(self._answer(DONE, format=int(format), result=encoded))

    def raised(self, error: BaseException) -> ToldFailure:
        """The answer to an item whose method has raised ``error``; to be raised: so the router's log has a failure."""
        item = self._told(self.order.is_last or isinstance(error, Reject))
        if isinstance(error, RetryLater):
            return ToldFailure(self._answer(FAILED, str(error)[:_LONGEST], error.seconds), error, True, item)
        if isinstance(error, Reject):
            return ToldFailure(self._answer(REJECTED, str(error)[:_LONGEST]), error, True, item)
        return ToldFailure(self._answer(FAILED, _traceback_of(error)), error, False, item)

    def _answer(
        self, outcome: str, text: str = "", again: float | None = None, format: int = _JSON, result: bytes = b""
    ) -> WorkAnswer:
        seconds = monotonic() - self._begun
        return WorkAnswer(outcome, text, again, format, result, seconds, self._process.identity)


class ItemEndpoint(ABC):
    """The endpoint of a worker. Queue servers call the method that an item names, so that whoever looks sees its name.

    Whichever it is, :meth:`run` runs, which is told the method, too. So it is called where no such method is served.
    """

    @abstractmethod
    def run(self, ctx: Any, order: Sequence[Any]) -> Any:
        """Work at an item."""

    @abstractmethod
    def _serves(self, name: str) -> bool:
        """Return whether the program's endpoint has the public method ``name``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Only names that there are: what is found is remembered.
        if name.startswith("_") or not self._serves(name):
            raise AttributeError(name)
        return self.run


def begun(order: Sequence[Any], process_of: Callable[[Task], Process], transits: Transits) -> Attempt:
    """Begin at the item of the current request.

    Args:
        process_of: the engines of the link by which it came.
        transits: of the items of this worker.

    Raises:
        ToldFailure: its lease is over, or nobody wants it any more, so that it is not to be begun here.
    """
    current = handling()
    assert current is not None
    return Attempt(order, current[0], Request(*current), process_of(current[0]), transits)


def _remaining(pulse: Pulse, task: Task, lease: float) -> float:
    if task.is_for_nobody:
        return 0.0
    return task.counted_on(pulse) + lease - min(_MARGIN, _MARGIN_SHARE * lease) - monotonic()


def _check_has_run(method: str, result: Any) -> None:
    kind = type(result)
    if isinstance(result, (types.CoroutineType, types.GeneratorType)):
        # Python need not complain as well that it was never awaited.
        result.close()
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        raise UsageError(
            f"{method!r} gives its result item by item, and nobody asks a worker for these: have it run to its end, "
            "and return"
        )
    if hasattr(kind, "__await__"):
        raise UsageError(f"{method!r} returned something to await ({kind.__name__}): {ASYNC}")


def _traceback_of(error: BaseException) -> str:
    """The traceback from the method on, where it was called."""
    here = error.__traceback__
    while here is not None and str(here.tb_frame.f_globals.get("__name__")).startswith("rpcmq."):
        here = here.tb_next
    lines = traceback.format_exception(type(error), error, error.__traceback__ if here is None else here)
    return "".join(lines).rstrip()[-_LONGEST:]
