"""Questions to the owner of a queue, or of an item, that may be asked again: in steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from time import monotonic
from typing import Any

from rpcmq.client.queue.absence import Absence, absent
from rpcmq.client.queue.places import ItemPlace, ItemState
from rpcmq.client.queue.protocol import NO_RESULT, REFUSED, Crowded, all_queues, at_owner, check_queue
from rpcmq.client.queue.puts import Producer
from rpcmq.client.queue.settings import check_settings
from rpcmq.client.queue.steps import LONGEST_PAUSE, Ask, Pause, Steps, growing_pauses
from rpcmq.errors import (
    AccessDenied,
    CallError,
    CallTimeout,
    ItemDead,
    NoConsumer,
    NoResult,
    Overloaded,
    RemoteError,
    RouterUnreachable,
    UsageError,
)
from rpcmq.payload.bounded_text import short_repr

__all__ = ["cancel", "declare", "result", "state", "until_answered"]

#: The states of an item that has not ended.
_UNENDED = ("waiting", "running")
#: The longest that one question for a result waits, and that its answer takes beyond that (seconds); beyond the time
#: of whoever asks it is waited for less: its owner may be stopped.
_AT_ONCE, _ANSWER, _LATE = 20.0, 10.0, 1.0
#: In so many seconds a queue server has taken over the items of an owner that is gone, if one does (seconds).
_HEIR = 30.0
#: The exception by which a queue server says so, as it comes here.
_CROWDED = f"{Crowded.__module__}.{Crowded.__qualname__}"


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

    answer = yield from until_answered(ask, seconds)
    if refusal := answer.get("refusal"):
        raise UsageError(f"queue {queue!r}: {refusal}")
    return dict(answer["settings"])


def state(place: ItemPlace, seconds: float) -> Steps[ItemState]:
    """Ask for the state of an item; see :meth:`rpcmq.Receipt.state`."""
    return ItemState(*(yield from _ask_owner(place, _question(place, "state"), seconds)))


def cancel(place: ItemPlace, seconds: float) -> Steps[bool]:
    """Cancel an item; see :meth:`rpcmq.Receipt.cancel`."""
    return bool((yield from _ask_owner(place, _question(place, "cancel"), seconds)))


def result(place: ItemPlace, seconds: float) -> Steps[tuple[int, bytes]]:
    """Wait for the result of an item: format and payload; see :meth:`rpcmq.Receipt.result`."""
    deadline = monotonic() + seconds
    args = place.key()
    while True:
        left = max(0.0, deadline - monotonic())
        message = {"method": "result", "args": {**args, "seconds": min(left, _AT_ONCE)}}

        try:
            state, kept, text = yield from _ask_owner(place, message, left, _AT_ONCE + _ANSWER, _LATE)
        except CallTimeout as error:
            text = f"{_name(place)}: its owner has not said within {seconds:g} s whether it has ended: {error}"
            raise CallTimeout(text) from error
        if state == REFUSED:
            yield Pause(LONGEST_PAUSE)
        elif state not in _UNENDED:
            return _result_of(place, state, kept, text)
        if monotonic() >= deadline:
            raise CallTimeout(f"{_name(place)} has not ended within {seconds:g} s: it is {text or state}")


def until_answered(ask: Callable[[float], Steps[Any]], seconds: float, owner: str = "") -> Steps[Any]:
    """Ask, within so many seconds, until there is an answer.

    Args:
        owner: who is asked; empty: any queue server, of which one must be there, or to be expected.

    Raises:
        CallError, RouterUnreachable: there was none.
    """
    deadline, pauses = monotonic() + seconds, growing_pauses()
    while True:
        try:
            return (yield from ask(max(0.001, deadline - monotonic())))
        except AccessDenied:
            raise
        except RemoteError as error:
            if error.exc_type != _CROWDED:
                raise
            left = deadline - monotonic()
            if left <= 0:
                raise Overloaded(error.value) from None
        except (CallError, RouterUnreachable) as error:
            left = deadline - monotonic()
            absence = absent(error) if isinstance(error, CallError) else None
            if absence is not None and (left <= 0 or absence.is_final or _is_gone(absence, owner, seconds - left)):
                raise NoConsumer(absence.text(owner)) from error
            if left <= 0:
                raise
        yield Pause(min(next(pauses), left))


def _is_gone(absence: Absence, owner: str, waited: float) -> bool:
    """Return whether nobody of the name ``owner`` is there, nor has taken over its items in ``waited`` seconds."""
    return waited >= _HEIR and bool(owner) and absence.is_without(owner)


def _result_of(place: ItemPlace, state: str, kept: bytes | None, text: str) -> tuple[int, bytes]:
    if state == "dead":
        raise ItemDead(f"{_name(place)} is dead: {text}")
    if state == "cancelled":
        raise NoResult(f"{_name(place)} was cancelled")
    if not kept:
        why = text or "it is done, and its result was not asked for"
        raise NoResult(f"{_name(place)}: {why}; put it with keep_result=SECONDS, and ask in time")
    if kept[0] == NO_RESULT:
        raise NoResult(f"{_name(place)} is done: {str(kept[1:], 'utf-8', 'replace')}")
    return kept[0], kept[1:]


def _name(place: ItemPlace) -> str:
    return f"item {short_repr(place.id)} of queue {place.queue!r} at {place.owner}"


def _question(place: ItemPlace, method: str) -> Mapping[str, Any]:
    return {"method": method, "args": place.key()}


def _ask_owner(
    place: ItemPlace, message: Mapping[str, Any], seconds: float, each: float = inf, late: float = 0.0
) -> Steps[Any]:
    """Ask the owner of an item.

    Args:
        each: seconds that one question may take.
        late: seconds that an answer may take beyond all ``seconds``.

    Raises:
        NoConsumer: it has no such queue.
    """
    question = {"method": "knows", "args": {"queue": place.queue}}
    deadline = monotonic() + seconds

    def ask(left: float) -> Steps[Any]:
        try:
            return (yield Ask(at_owner(place.queue, place.owner), message, min(each, left + late), True))
        except NoConsumer:
            left = max(0.001, deadline - monotonic())
            try:
                known = yield Ask(all_queues(place.owner), question, left, True)
            except AccessDenied:
                known = True  # whoever may ask for this queue alone
            if known:
                raise  # it is about to serve it, or the router is about to hear of that
            return None

    answer = yield from until_answered(ask, seconds, place.owner)
    if answer is None:
        raise NoConsumer(f"{place.owner} has no queue {place.queue!r}, and so no item {short_repr(place.id)} of it")
    return answer
