"""The methods of a queue server: those of every queue, and those of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import gevent

from rpcmq.client.later import Later
from rpcmq.client.queue.messages import Message
from rpcmq.client.queue.protocol import REFUSED, PutAnswer, Record, check_queue
from rpcmq.client.queue.records import unpack_records
from rpcmq.core.queue.cancelling import CANCELLED, ENDED, cancel
from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.queues import NewItem, Queues
from rpcmq.core.queue.refusals import Refused
from rpcmq.core.queue.results import Outcome
from rpcmq.core.queue.views import ItemView
from rpcmq.store.contract import Maker, Verdict

__all__ = ["AllQueues", "OneQueue"]

_MOST_MILLISECONDS = 1 << 53
#: Bound of times (seconds).
_LONGEST = 4_000_000
#: The longest that an answer waits for the end of an item (seconds).
_PATIENCE = 30.0


class AllQueues:
    """The methods of a queue server, whatever its queues.

    Args:
        serve: opens a queue and serves it, unless that is done.
    """

    def __init__(self, owner: str, serve: Callable[[str], object]) -> None:
        self._owner = owner
        self._serve = serve

    def open(self, ctx: Any, queue: str) -> str:
        """Serve ``queue`` here; return the name of this owner."""
        self._serve(check_queue(queue))
        return self._owner


class OneQueue:
    """The methods of one queue.

    Args:
        wall: milliseconds of the wall clock now.
        declare: gives a queue settings.
    """

    def __init__(
        self, name: str, queues: Queues, wall: Callable[[float], int],
        declare: Callable[[str, dict[str, Any]], Later[dict[str, Any]]],
    ) -> None:  # fmt: skip
        self._name = name
        self._queues = queues
        self._wall = wall
        self._declare = declare

    def put(self, ctx: Any, producer: int, records: bytes) -> Later[tuple[Any, ...]] | tuple[Any, ...]:
        """Put items, all or none; the answer comes once they are on disk."""
        now = monotonic()
        wall = self._wall(now)
        try:
            items = [_new_item(producer, record, wall) for record in unpack_records(records)]
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            return tuple(PutAnswer(f"an item is malformed: {error}", [], []))
        later: Later[tuple[Any, ...]] = Later()
        self._queues.put(
            now, self._name, items, lambda verdicts: later.answer(_answer(verdicts)),
            lambda refusal: later.answer(tuple(PutAnswer(str(refusal), [], []))),
        )  # fmt: skip
        return later

    def declare(self, ctx: Any, settings: dict[str, Any]) -> Later[dict[str, Any]]:
        """Give the queue settings; the answer comes once they are on disk."""
        return self._declare(self._name, settings)

    def state(self, ctx: Any, priority: int, number: int) -> Later[tuple[Any, ...]]:
        """Tell the state of an item, how often it has failed, and the reason."""
        later: Later[tuple[Any, ...]] = Later()

        def shown(view: ItemView | None) -> None:
            if view is None:
                later.answer((ENDED, 0, ""))
                return
            endings = view.story.endings
            text = view.damage or (endings[-1].text if endings else "")
            later.answer((view.state, view.story.attempts, text))

        Operators(self._queues).show(self._name, priority, number, shown)
        return later

    def cancel(self, ctx: Any, priority: int, number: int) -> Later[bool]:
        """End an item that no worker has; whether it has ended by that."""
        later: Later[bool] = Later()
        end = partial(cancel, self._queues, monotonic(), self._name, priority, number)
        end(lambda answer: later.answer(answer == CANCELLED))
        return later

    def result(self, ctx: Any, priority: int, number: int, seconds: float) -> Later[tuple[Any, ...]]:
        """Tell how an item has ended, once it has; else how it is, after so many seconds."""
        later: Later[tuple[Any, ...]] = Later()
        results = self._queues.queue(self._name).results
        timers: list[gevent.Greenlet[..., None]] = []

        def ended(outcome: Outcome) -> None:
            for timer in timers:
                timer.kill(block=False)
            later.answer(tuple(outcome))

        try:
            forget = results.wait(priority, number, ended)
        except Refused as error:
            later.answer((REFUSED, None, str(error)))
            return later

        def give_up() -> None:
            if forget():
                results.ask(priority, number, lambda outcome: later.answer(tuple(outcome)))

        timers.append(gevent.spawn_later(max(0.0, min(seconds, _PATIENCE)), give_up))
        return later


def _answer(verdicts: list[Verdict]) -> tuple[Any, ...]:
    others = [at for at, verdict in enumerate(verdicts) if verdict.is_other]
    return tuple(PutAnswer("", [verdict.number for verdict in verdicts], others))


def _new_item(producer: int, record: Record, wall: int) -> NewItem:
    method = record.method.encode()
    names = record.id, record.key, record.unique
    if not 0 < len(method) <= 255 or not 0 <= record.priority <= 9 or max(map(len, names)) > 255:
        raise ValueError("its method, priority, id or a key is out of bounds")
    if not 0 <= record.keep_result < _LONGEST:
        raise ValueError("the time for which its result is kept is out of bounds")
    str(record.id, "utf-8")
    if not record.id and not (0 < producer < 1 << 63 and 0 < record.counter < 1 << 63):
        raise ValueError("it has no id")
    return NewItem(
        Message(method, record.format, record.body).to_bytes(), record.digest, record.id,
        Maker(0, 0) if record.id else Maker(producer, record.counter), record.priority, _at(wall, record.delay),
        _at(wall, record.expires), record.key, keep_result=record.keep_result, unique=record.unique,
    )  # fmt: skip


def _at(wall: int, seconds: float) -> int:
    """The time in so many seconds; 0: none."""
    return min(wall + max(1, int(seconds * 1000)), _MOST_MILLISECONDS) if seconds > 0 else 0
