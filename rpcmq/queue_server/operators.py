"""The methods for operators: to look at the queues of this owner, and to change something about them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from time import monotonic
from typing import Any

from gevent.event import AsyncResult

from rpcmq.client.later import Later
from rpcmq.client.queue.protocol import Crowded, check_queue
from rpcmq.core.queue.dead_items import Progress
from rpcmq.core.queue.given_item import Key
from rpcmq.core.queue.operators import PEEK_STATES, Operators
from rpcmq.core.queue.periodic import PeriodicKey
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.queues import Queues
from rpcmq.core.queue.views import ItemView
from rpcmq.payload.bounded_text import short_repr
from rpcmq.queue_server.fair_turns import End, Turns, caller_now
from rpcmq.queue_server.item_rows import item_row
from rpcmq.queue_server.named_items import Named, is_known, mark_of, named_items, position_at, progress_at
from rpcmq.queue_server.watch import Watch
from rpcmq.server.log import log_event

__all__ = ["ChangeEndpoint", "LookEndpoint"]

#: Items that are shown at once; and with the stories of their attempts, of which one may have 40 KB; or messages.
_MOST, _MOST_LARGE = 1000, 100

#: The states of items that can be moved.
_MOVED = ("dead", "ready")

#: Work of a look at items for the store, in items.
_PEEK = 1000

log = logging.getLogger("rpcmq.queue")


class LookEndpoint:
    """The methods by which operators look at queues.

    Args:
        about: returns the owner, and who serves its queues.
        served: the queues, by name.
        look: returns the row of each queue, by name.
        store: returns the state of the store.
        turns: of all that is asked of the store.
        periodic: returns the rows of the periodic items of all queues.
    """

    def __init__(
        self, about: Callable[[], dict[str, Any]], queues: Queues, served: Mapping[str, Watch],
        look: Callable[[], dict[str, dict[str, Any]]], store: Callable[[], dict[str, Any]], turns: Turns,
        periodic: Callable[[], list[dict[str, Any]]],
    ) -> None:  # fmt: skip
        self._turns = turns
        self._about = about
        self._queues = queues
        self._operators = Operators(queues)
        self._look = look
        self._served = served
        self._store = store
        self._periodic = periodic

    def queues(self, ctx: Any) -> dict[str, Any]:
        """The queues, each with its state and its numbers of items."""
        rows = [{"queue": name, **row} for name, row in self._look().items()]
        return {**self._about(), "store": self._store(), "queues": rows}

    def periodic(self, ctx: Any, queue: str = "") -> list[dict[str, Any]] | None:
        """The periodic items, or those of ``queue``; None: that is not known here."""
        if queue and not is_known(self._served, queue):
            return None
        return [row for row in self._periodic() if queue in ("", row["queue"])]

    def show(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Tell all about one queue; None: it is not known here."""
        if not is_known(self._served, queue):
            return None
        served = self._served[queue]
        settings = asdict(self._queues.queue(queue).policy)
        return {"queue": queue, **served.row(monotonic()), "settings": settings, "store": self._store()}

    def items(
        self, ctx: Any, queue: str, state: str, most: int, has_story: bool = False, has_message: bool = False,
        after: Sequence[int] | None = None,
    ) -> list[dict[str, Any]] | None:  # fmt: skip
        """Tell of the first items in ``state``; None: the queue is not known here.

        Args:
            most: items: 1,000 at the most, or 100 with their stories or messages, and 4 MiB of them.
            after: of dead ones those that follow the one with this ``mark``.

        Raises:
            ValueError: there is no such state, ``most`` is no number, or ``after`` is no mark.
        """
        if not is_known(self._served, queue):
            return None
        if state not in PEEK_STATES or type(most) is not int:
            raise ValueError(f"state must be one of {', '.join(PEEK_STATES)}, and most a number")
        begins = position_at(after)
        found: AsyncResult[list[ItemView]] = AsyncResult()
        limit = _MOST_LARGE if has_story or has_message else _MOST

        def peek(end: End) -> None:
            def take(views: list[ItemView]) -> None:
                found.set(views)
                end()

            self._operators.peek(queue, state, max(1, min(most, limit)), take, begins)

        self._turns.take(caller_now(), _PEEK, 0, peek, found.set_exception)
        views, wall = found.get() or [], self._queues.wall(monotonic())
        return [item_row(view, wall, has_story, has_message) for view in views]


class ChangeEndpoint:
    """The methods by which operators change queues. Each returns None where the queue is not known here.

    Args:
        served: the queues, by name.
        serve: serves a queue, which is made if it is not there.
        unserve: serves a queue of which nothing was ever said no more.
        turns: of all that is asked of the store.
        remove_periodic: removes a periodic item, whoever puts it.
    """

    def __init__(
        self, queues: Queues, served: Mapping[str, Watch], serve: Callable[[str], object],
        unserve: Callable[[str], object], remove_periodic: Callable[[PeriodicKey, bool], Later[dict[str, Any]]],
        turns: Turns,
    ) -> None:  # fmt: skip
        self._turns = turns
        self._queues = queues
        self._operators = Operators(queues)
        self._served = served
        self._serve = serve
        self._unserve = unserve
        self._remove_periodic = remove_periodic

    # --- queues ------------------------------------------------------------------------------

    def pause(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Give no items of the queue to workers; those that workers have go on."""
        return self._switch(queue, self._operators.pause)

    def drain(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Put no more items into the queue, and give those that are there."""
        return self._switch(queue, self._operators.drain)

    def resume(self, ctx: Any, queue: str) -> dict[str, Any] | None:
        """Put items into the queue, and give them to workers, again."""
        return self._switch(queue, self._operators.resume)

    def _switch(self, name: str, switch: Callable[[str, Callable[[], object]], None]) -> dict[str, Any] | None:
        if not is_known(self._served, name):
            return None
        queue = self._queues.queue(name)
        before = queue.is_paused, queue.is_draining
        stored: AsyncResult[None] = AsyncResult()
        switch(name, stored.set)
        stored.get()
        has_changed = before != (queue.is_paused, queue.is_draining)
        if has_changed:
            what = "is paused" if queue.is_paused else "drains" if queue.is_draining else "goes on"
            _note(name, f"queue {name!r} {what}: an operator said so")
        return {"changed": has_changed}

    def set(self, ctx: Any, queue: str, settings: dict[str, Any], create: bool) -> dict[str, Any] | None:
        """Give the queue other settings; return all of them, or the reason for which they are refused."""
        known = [field.name for field in fields(Policy)]
        if unknown := sorted(set(settings) - set(known)):
            return {"refusal": f"there is no setting {unknown[0]!r}; there are {', '.join(known)}"}
        if not is_known(self._served, queue) and not create:
            return None
        check_queue(queue)
        try:
            replace(Policy(), **settings)
            self._serve(queue)
            policy = replace(self._queues.queue(queue).policy, **settings)
        except ValueError as error:
            return {"refusal": str(error)}
        stored: AsyncResult[None] = AsyncResult()
        self._queues.declare(monotonic(), queue, policy, stored.set)
        stored.get()
        self._queues.queue(queue).on_ready()
        shown = ", ".join(f"{name}={value}" for name, value in settings.items())
        _note(queue, f"queue {queue!r} has other settings: an operator said {shown}")
        return {"settings": asdict(policy)}

    def remove_periodic(self, ctx: Any, queue: str, name: str) -> Later[dict[str, Any]] | None:
        """Put a periodic item no more, here and at whoever has taken it over."""
        if not is_known(self._served, queue):
            return None
        return self._remove_periodic(PeriodicKey(queue, name), True)

    # --- items -------------------------------------------------------------------------------

    def retry(
        self, ctx: Any, queue: str, items: Named | None, mark: Sequence[int] | None = None
    ) -> dict[str, Any] | None:
        """Put dead items again, to be tried as often as new ones; all of them where ``items`` is None.

        Args:
            mark: of all of them some thousand are changed, from there on, which is at first
                :data:`rpcmq.client.queue.protocol.FIRST_MARK`.

        Returns:
            ``items``: their number; ``missed``: item -> the reason, for those that are named and stay as they are;
            ``mark``: where to go on, None where nothing is left.
        """
        now = monotonic()
        return self._change_dead(queue, "put again", items, mark, lambda of: partial(of.retry, now, queue))

    def drop(
        self, ctx: Any, queue: str, items: Named | None, mark: Sequence[int] | None = None
    ) -> dict[str, Any] | None:
        """Forget dead items; all of them where ``items`` is None. As for :meth:`retry`."""
        now = monotonic()
        return self._change_dead(queue, "dropped", items, mark, lambda of: partial(of.drop, now, queue))

    def move(
        self, ctx: Any, queue: str, to: str, state: str, items: Named | None, mark: Sequence[int] | None = None
    ) -> dict[str, Any] | None:
        """Put items, dead ones or all that are ready, into the queue ``to``, which is made if it is not there.

        As for :meth:`retry`; those that are ready are moved all at once.
        """
        if not is_known(self._served, queue):
            return None
        if state not in _MOVED:
            raise ValueError(f"state must be {' or '.join(_MOVED)}, not {short_repr(state)}")
        if state == "ready" and items is not None:
            raise ValueError("items can be named where they are dead; all that are ready are moved together")
        named_items(items)
        was_served = check_queue(to) in self._served
        self._serve(to)
        now, moved = monotonic(), f"moved to {to!r}"
        try:
            if state == "dead":
                return self._change_dead(queue, moved, items, mark, lambda of: partial(of.move_dead, now, queue, to))
            count = self._run(lambda of, then: of.move_ready(now, queue, to, then))
            return self._changed(queue, moved, count, {}, None)
        finally:
            if not was_served:
                self._unserve(to)  # unless something is in it now

    def _change_dead(
        self, queue: str, done: str, items: Named | None, mark: Sequence[int] | None,
        verb_of: Callable[[Operators], Callable[[Callable[[int], object], list[Key] | None, Progress], None]],
    ) -> dict[str, Any] | None:  # fmt: skip
        if not is_known(self._served, queue):
            return None
        named, progress = named_items(items), progress_at(mark)
        count = self._run(lambda of, then: verb_of(of)(then, named, progress))
        missed = {
            f"{priority}/{number}": self._why_not(queue, priority, number)
            for priority, number in progress.missed[:_MOST]
        }
        return self._changed(queue, done, count, missed, mark_of(progress) if named is None else None)

    def _changed(
        self, queue: str, done: str, count: int, missed: dict[str, str], mark: list[int] | None
    ) -> dict[str, Any]:
        if count:
            _note(queue, f"queue {queue!r}: {count} item(s) {done} by an operator", items=count)
        return {"items": count, "missed": missed, "mark": mark}

    def _run(self, change: Callable[[Operators, Callable[[int], object]], None]) -> int:
        """Make a change page by page, each in its turn; return the number of items."""
        changed: AsyncResult[int] = AsyncResult()
        caller = caller_now()

        def in_turn(work: int, begin: Callable[[End], object]) -> None:
            try:
                self._turns.take(caller, work, 0, begin, changed.set_exception)
            except Crowded as error:
                changed.set_exception(error)

        change(Operators(self._queues, in_turn), changed.set)
        return changed.get() or 0

    def _why_not(self, queue: str, priority: int, number: int) -> str:
        """Say why an item was not changed as dead ones are."""
        found: AsyncResult[ItemView | None] = AsyncResult()
        self._operators.show(queue, priority, number, found.set)
        view = found.get()
        if view is None:
            return "there is no such item: it has ended, or was never put"
        return "it is damaged: drop it" if view.damage else f"it is {view.state}, not dead"


def _note(queue: str, text: str, **fields: Any) -> None:
    log_event(log, logging.INFO, "queue changed", text, queue=queue, **fields)
