"""The methods for operators: to look at the queues of this owner, and to change something about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, replace
from time import monotonic
from typing import Any

from gevent.event import Event

from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.queues import Queues
from rpcmq.queue_server.watch import Watch

__all__ = ["Change", "Look"]


class Look:
    """The methods by which operators look at queues.

    Args:
        owner: the name of the router that this queue server belongs to.
        served: the queues, by name.
        look: returns the row of each queue, by name.
        store: returns the state of the store.
    """

    def __init__(
        self, owner: str, queues: Queues, served: Mapping[str, Watch], look: Callable[[], dict[str, dict[str, Any]]],
        store: Callable[[], dict[str, Any]],
    ) -> None:  # fmt: skip
        self._owner = owner
        self._queues = queues
        self._look = look
        self._served = served
        self._store = store

    def queues(self, ctx: Any) -> dict[str, Any]:
        """The queues, each with its state and its numbers of items."""
        rows = [{"queue": name, **row} for name, row in self._look().items()]
        return {"owner": self._owner, "store": self._store(), "queues": rows}

    def show(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Tell all about one queue; None: it is not known here."""
        served = self._served.get(queue)
        if served is None:
            return None
        settings = asdict(self._queues.queue(queue).policy)
        return {"queue": queue, **served.row(monotonic()), "settings": settings, "store": self._store()}


class Change:
    """The methods by which operators change queues. Each method returns None where the queue is not known here."""

    def __init__(self, queues: Queues, served: Mapping[str, Watch], serve: Callable[[str], object]) -> None:
        self._queues = queues
        self._operators = Operators(queues)
        self._served = served
        self._serve = serve

    def pause(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Give no items of the queue to workers; those that workers have go on."""
        return self._set_paused(queue, True, self._operators.pause)

    def resume(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Give items of the queue to workers again."""
        return self._set_paused(queue, False, self._operators.resume)

    def _set_paused(
        self, name: str, is_paused: bool, verb: Callable[[str, Callable[[], object]], object]
    ) -> dict[str, Any] | None:
        if name not in self._served:
            return None
        was, stored = self._queues.queue(name).is_paused, Event()
        verb(name, stored.set)
        stored.wait()
        return {"changed": was != is_paused}

    def set(self, ctx: Any, queue: str, settings: dict[str, Any], create: bool) -> dict[str, Any] | None:
        """Give the queue other settings; return all of them, or the reason for which they are refused."""
        if queue not in self._served:
            if not create:
                return None
            self._serve(queue)
        before = self._queues.queue(queue).policy
        known = [field.name for field in fields(Policy)]
        if unknown := sorted(set(settings) - set(known)):
            return {"refusal": f"there is no setting {unknown[0]!r}; there are {', '.join(known)}"}
        try:
            policy = replace(before, **settings)
        except ValueError as error:
            return {"refusal": str(error)}
        stored = Event()
        self._queues.declare(monotonic(), queue, policy, stored.set)
        stored.wait()
        self._queues.queue(queue).on_ready()
        return {"settings": asdict(policy)}
