"""Checks each request, delivery, call, task and registration of the engines here against its transition table.

:func:`check_states` watches the fields that a state follows from, on the classes themselves: the engines are the
unmodified ones, and no path past the check is left. It costs some microseconds a call, and nothing where it was not
called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any

from rpcmq.core.common.illegal_events import IllegalEvents
from rpcmq.core.process.call import Call
from rpcmq.core.process.call_states import TRANSITIONS as OF_CALLS
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.task import Registration, Task
from rpcmq.core.process.task_states import REGISTRATION_TRANSITIONS, TaskState
from rpcmq.core.process.task_states import TRANSITIONS as OF_TASKS
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Consumer, Delivery, Link, Request
from rpcmq.core.router.request_states import (
    DELIVERY_TRANSITIONS,
    TRANSITIONS,
    DeliveryState,
    RequestState,
    end_event,
)
from rpcmq.core.router.roundrobin.restart_recovery import Recovery

__all__ = ["check_states", "seen", "unchecked"]

#: Number of times that each (state, event) was seen, of links too.
seen: Counter[tuple[Enum, str]] = Counter()
_illegal = IllegalEvents()
#: Class, name, and what it was before.
_replaced: list[tuple[type, str, Any]] = []
_ENDED = RequestState.ENDED


def check_states() -> None:
    """Check from now on, in this process; illegal events are those of an engine (``raise_illegal_events``)."""
    if _replaced:
        return
    _Watched(Request, "queue", _queue_event)
    _Watched(Request, "delivery", _delivery_event)
    _Watched(Request, "outcome", _outcome_event)
    _InFlightSlot()
    for name, event in (("answer", "answered"), ("error", "failed"), ("cancelled", "cancelled")):
        _CallField(name, event)
    _State(Task, OF_TASKS, TaskState.RECEIVED)
    _State(Registration, REGISTRATION_TRANSITIONS, None)
    holds, happens, start = Recovery.holds, LinkTable.happens, Calls.start

    def checked(self: Recovery, now: float, link: Any, request: Request, flags: int) -> bool:
        if not holds(self, now, link, request, flags):
            return False
        _happens(TRANSITIONS, request.state, "held", "request")
        return True

    def noted(self: LinkTable, now: float, link: Link, event: str) -> bool:
        # The table of links is checked by the engine itself.
        seen[link.state, event] += 1
        return happens(self, now, link, event)

    def started(self: Calls, now: float, call: Call, *args: Any, **options: Any) -> Call:
        _happens(OF_CALLS, call.state, "started", "call")
        return start(self, now, call, *args, **options)

    _replace(Calls, "start", started)
    _replace(Recovery, "holds", checked)
    _replace(LinkTable, "happens", noted)


@contextmanager
def unchecked() -> Iterator[None]:
    """Have the engines as they are in production meanwhile."""
    was_checked = bool(_replaced)
    while _replaced:
        owner, name, before = _replaced.pop()
        setattr(owner, name, before)
    try:
        yield
    finally:
        if was_checked:
            check_states()


def _replace(owner: type, name: str, by: object) -> None:
    _replaced.append((owner, name, owner.__dict__[name]))
    setattr(owner, name, by)


class _Watched:
    """Stands for a slot of a class: checks each change of it."""

    def __init__(self, owner: type, name: str, event_of: Callable[[Any, Any, Any], str]) -> None:
        self._slot = owner.__dict__[name]
        self._event_of = event_of
        _replace(owner, name, self)

    def __get__(self, request: Any, owner: type | None = None) -> Any:
        return self if request is None else self._slot.__get__(request, owner)

    def __set__(self, request: Any, value: Any) -> None:
        try:
            state, old = request.state, self._slot.__get__(request)
        except AttributeError:
            # It is being made.
            self._slot.__set__(request, value)
            return
        event = self._event_of(state, old, value)
        self._slot.__set__(request, value)
        if event:
            _happens(TRANSITIONS, state, event, "request")
            assert request.state is TRANSITIONS[state, event], f"request: {event} led to {request.state.value}"
            if request.state is _ENDED:
                for delivery in request.deliveries():
                    if delivery.state is DeliveryState.ABANDONED:
                        _happens(DELIVERY_TRANSITIONS, DeliveryState.OPEN, "request ended", "delivery")


def _queue_event(state: RequestState, old: Any, new: Any) -> str:
    if new is not None:
        return "queued"
    # What has ended is taken out of its queue, too.
    return "taken" if old is not None and state is not _ENDED else ""


def _delivery_event(state: RequestState, old: Delivery | None, new: Delivery | None) -> str:
    if new is old:
        return ""
    if new is not None and new.earlier is old:
        return "delivered"
    if state is _ENDED:
        return ""
    return "returned" if new is None else "one returned"


def _outcome_event(state: RequestState, old: int | None, new: int | None) -> str:
    return "" if new is None else end_event(new)


class _CallField:
    """Stands for a slot of a call: setting it to anything true is an event."""

    def __init__(self, name: str, event: str) -> None:
        self._slot: Any = Call.__dict__[name]
        self._event = event
        _replace(Call, name, self)

    def __get__(self, call: Any, owner: type | None = None) -> Any:
        return self if call is None else self._slot.__get__(call, owner)

    def __set__(self, call: Call, value: Any) -> None:
        if value:
            _happens(OF_CALLS, call.state, self._event, "call")
        self._slot.__set__(call, value)


class _State:
    """Stands for the slot ``state`` of a class. The table has one event at most that leads from one state to another.

    Args:
        initial: that of an object whose state was not set yet; None: the one that is set first.
    """

    def __init__(self, owner: type, table: dict[Any, Any], initial: Enum | None) -> None:
        self._slot: Any = owner.__dict__["state"]
        self._table = table
        self._what = owner.__name__.lower()
        self._initial = initial
        self._events = {(before, after): event for (before, event), after in table.items()}
        assert len(self._events) == len(table)
        _replace(owner, "state", self)

    def __get__(self, row: Any, owner: type | None = None) -> Any:
        return self if row is None else self._slot.__get__(row, owner)

    def __set__(self, row: Any, state: Enum) -> None:
        try:
            before = self._slot.__get__(row)
        except AttributeError:
            before = self._initial
        if before is not None:
            event = self._events.get((before, state), f"made {state.value}")
            _happens(self._table, before, event, self._what)
        self._slot.__set__(row, state)


class _InFlight(dict[bytes, Delivery]):
    """The deliveries that are with a consumer."""

    def __setitem__(self, key: bytes, delivery: Delivery) -> None:
        request = delivery.request
        if request.delivery is not delivery or request.state is not RequestState.DELIVERED:
            _illegal.add(f"delivery: given while its request is {request.state.value}, or with another")
        super().__setitem__(key, delivery)

    def _close(self, delivery: Delivery) -> None:
        _happens(DELIVERY_TRANSITIONS, delivery.state, "closed", "delivery")

    def __delitem__(self, key: bytes) -> None:
        self._close(self[key])
        super().__delitem__(key)

    def pop(self, key: bytes, *default: Any) -> Any:
        if key in self:
            self._close(self[key])
        return super().pop(key, *default)

    def clear(self) -> None:
        for delivery in self.values():
            self._close(delivery)
        super().clear()


class _InFlightSlot:
    """Stands for ``Consumer.in_flight``."""

    def __init__(self) -> None:
        self._slot: Any = Consumer.__dict__["in_flight"]
        _replace(Consumer, "in_flight", self)

    def __get__(self, consumer: Any, owner: type | None = None) -> Any:
        return self if consumer is None else self._slot.__get__(consumer, owner)

    def __set__(self, consumer: Consumer, value: dict[bytes, Delivery]) -> None:
        self._slot.__set__(consumer, _InFlight(value))


def _happens(table: dict[Any, Any], state: Enum, event: str, what: str) -> None:
    if (state, event) not in table:
        _illegal.add(f"{what}: {event} while it is {state.value}")
    seen[state, event] += 1
