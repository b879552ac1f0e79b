"""Questions to the owner of a queue, or of an item, that may be asked again: in steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from rpcmq.client.queue.places import ItemPlace, ItemState
from rpcmq.client.queue.protocol import at_owner, check_queue
from rpcmq.client.queue.puts import Producer
from rpcmq.client.queue.settings import check_settings
from rpcmq.client.queue.steps import Ask, Pause, Steps
from rpcmq.errors import AccessDenied, CallError, NoConsumer, RouterUnreachable, UsageError

__all__ = ["cancel", "declare", "state"]

#: Pauses between two attempts (seconds): the first, and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


def declare(producer: Producer, queue: str, settings: Mapping[str, Any], seconds: float) -> Steps[dict[str, Any]]:
    """Give a queue settings; see :meth:`rpcmq.Client.declare_queue`."""
    check_queue(queue)
    check_settings(settings)
    message = {"method": "declare", "args": {"settings": dict(settings)}}

    def ask(seconds: float) -> Steps[Any]:
        owner = yield from producer.owner(queue, seconds)
        try:
            return (yield Ask(at_owner(queue, owner), message, seconds, True))
        except NoConsumer:
            producer.forget_owner(queue)
            raise

    answer = yield from _until_answered(ask, seconds)
    if refusal := answer.get("refusal"):
        raise UsageError(f"queue {queue!r}: {refusal}")
    return dict(answer["settings"])


def state(place: ItemPlace, seconds: float) -> Steps[ItemState]:
    """Ask for the state of an item; see :meth:`rpcmq.Receipt.state`."""
    return ItemState(*(yield from _ask_owner(place, "state", seconds)))


def cancel(place: ItemPlace, seconds: float) -> Steps[bool]:
    """Cancel an item; see :meth:`rpcmq.Receipt.cancel`."""
    return bool((yield from _ask_owner(place, "cancel", seconds)))


def _ask_owner(place: ItemPlace, method: str, seconds: float) -> Steps[Any]:
    message = {"method": method, "args": place.key()}

    def ask(seconds: float) -> Steps[Any]:
        return (yield Ask(at_owner(place.queue, place.owner), message, seconds, True))

    return (yield from _until_answered(ask, seconds))


def _until_answered(ask: Callable[[float], Steps[Any]], seconds: float) -> Steps[Any]:
    """Ask, within so many seconds, until there is an answer.

    Raises:
        CallError, RouterUnreachable: there was none.
    """
    deadline, wait = monotonic() + seconds, _FIRST_PAUSE
    while True:
        try:
            return (yield from ask(max(0.001, deadline - monotonic())))
        except AccessDenied:
            raise
        except (CallError, RouterUnreachable):
            left = deadline - monotonic()
            if left <= 0:
                raise
        yield Pause(min(wait, left))
        wait = min(_LONGEST_PAUSE, 2 * wait)
