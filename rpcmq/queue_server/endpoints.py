"""The methods of a queue server: those of every queue, and those of one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import gevent

from rpcmq.client.later import Later
from rpcmq.client.queue.messages import message_bytes
from rpcmq.client.queue.protocol import Crowded, PutAnswer, Record, check_queue, version_refusal
from rpcmq.client.queue.records import most_records, unpack_records
from rpcmq.core.queue.cancelling import CANCELLED, ENDED, cancel
from rpcmq.core.queue.item_ids import is_other, shown_id
from rpcmq.core.queue.operators import Operators
from rpcmq.core.queue.periodic import Periodic, PeriodicKey, check_name
from rpcmq.core.queue.queues import NewItem, Queues
from rpcmq.core.queue.results import Outcome
from rpcmq.core.queue.views import ItemView
from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.queue_server.fair_turns import End, Turns, caller_now
from rpcmq.queue_server.named_items import check_place
from rpcmq.queue_server.periodic import PeriodicItems
from rpcmq.queue_server.untold_deaths import death_of
from rpcmq.store.contract import Maker, Verdict

__all__ = ["AllQueues", "OneQueue"]

T = TypeVar("T")

_MOST_MILLISECONDS = 1 << 53
#: Bounds of times (seconds).
_LONGEST = 4_000_000
_FARTHEST = 1000.0 * _LONGEST
_NO_MAKER = Maker(0, 0)
#: The longest that an answer waits for the end of an item (seconds).
_PATIENCE = 30.0
#: Work of a question to the store, in items.
_QUESTION = 50


class AllQueues:
    """The methods of a queue server, whatever its queues.

    Args:
        serve: opens a queue and serves it, unless that is done.
        knows: whether there is a queue of that name.
        knows_periodic: whether anybody puts a periodic item.
        waits_for: the reason for which the store answers nothing, or nothing.
        elsewhere: opens a queue at another owner, and returns its name: what is put without an owner in mind goes
            there. None: it comes here.
    """

    def __init__(
        self, owner: str, serve: Callable[[str], object], knows: Callable[[str], bool],
        knows_periodic: Callable[[PeriodicKey], bool], waits_for: Callable[[], str],
        elsewhere: Callable[[str], str] | None = None,
    ) -> None:  # fmt: skip
        self._owner = owner
        self._serve = serve
        self._elsewhere = elsewhere
        self._knows = knows
        self._knows_periodic = knows_periodic
        self._waits_for = waits_for

    def waits_for(self, ctx: Any) -> str:
        """Tell those whose put is not answered the reason; empty: there is none."""
        return self._waits_for()

    def knows(self, ctx: Any, queue: str) -> bool:
        """Return whether ``queue`` is one of this owner."""
        return self._knows(check_queue(queue))

    def periodic(self, ctx: Any, queue: str, name: str) -> dict[str, Any]:
        """Tell whether an owner puts a periodic item of that name, or may do so, or the reason for which none can."""
        try:
            key = PeriodicKey(check_queue(queue), check_name(name))
        except ValueError as error:
            return {"refusal": str(error)}
        # Who stands in for another owner may not have heard all yet.
        return {"known": self._elsewhere is not None or self._knows_periodic(key)}

    def open(self, ctx: Any, queue: str, owner: str = "", version: int = 1) -> str:
        """Serve ``queue`` here, or, unless this ``owner`` is meant, where new items go; return its owner's name.

        Raises:
            UsageError: its name is none, or the client speaks another ``version``.
        """
        check_queue(queue)
        if refusal := version_refusal(self._owner, version):
            raise UsageError(refusal)
        if self._elsewhere is not None and owner != self._owner:
            return self._elsewhere(queue)
        self._serve(queue)
        return self._owner


class OneQueue:
    """The methods of one queue. All but ``put``, which answers so, raise ``Crowded`` where too much waits.

    Args:
        wall: milliseconds of the wall clock now.
        declare: gives a queue settings.
        turns: of all that is asked of the store.
        periodic: the periodic items of this owner.
        is_own: whether it is this queue server itself that asks now.
        lost: the reason for which nothing more is to be put, or nothing.
    """

    def __init__(
        self, name: str, owner: str, queues: Queues, wall: Callable[[float], int],
        declare: Callable[[str, dict[str, Any]], Later[dict[str, Any]]], turns: Turns, periodic: PeriodicItems,
        is_own: Callable[[], bool], lost: Callable[[], str],
    ) -> None:  # fmt: skip
        self._is_own = is_own
        self._lost = lost
        self._turns = turns
        self._name = name
        self._owner = owner
        self._queues = queues
        self._wall = wall
        self._declare = declare
        self._periodic = periodic

    def put(self, ctx: Any, producer: int, records: bytes, version: int = 1) -> Later[list[Any]]:
        """Put items, all or none; the answer comes once they are on disk."""
        later: Later[list[Any]] = Later()
        if refusal := version_refusal(self._owner, version):
            later.answer(list(PutAnswer(refusal, [], [], is_blind=True)))
            return later
        if type(records) is not bytes:
            later.answer(list(PutAnswer("its records are no bytes", [], [])))
            return later
        try:
            put = partial(self._put, later, producer, records, self._wall(monotonic()))
            self._turns.take(caller_now(), most_records(records), len(records), put, later.fail)
        except Crowded as error:
            later.answer(list(PutAnswer(str(error), [], [], True)))
        return later

    def _put(self, later: Later[list[Any]], producer: int, records: bytes, came: int, end: End) -> None:
        # It has waited for its turn since it came, from when on delay and expiry count.
        refuse = _ending(later, end, lambda reason: list(PutAnswer(str(reason), [], [])))
        if lost := self._lost():
            refuse(f"queue store: {lost}")
            return
        try:
            items = [_new_item(producer, record, came) for record in unpack_records(records)]
        except (TypeError, ValueError, OverflowError) as error:
            refuse(f"an item is malformed: {error}")
            return
        tell = _ending(later, end, lambda verdicts: list(_answer(verdicts)))
        self._queues.put(monotonic(), self._name, items, tell, refuse)

    def declare(self, ctx: Any, settings: dict[str, Any]) -> Later[dict[str, Any]]:
        """Give the queue settings; the answer comes once they are on disk."""
        return self._in_turn(lambda: self._declare(self._name, settings))

    def _in_turn(self, ask: Callable[[], Later[dict[str, Any]]]) -> Later[dict[str, Any]]:
        later: Later[dict[str, Any]] = Later()

        def begin(end: End) -> None:
            def failed(error: BaseException) -> None:
                later.fail(error)
                end()

            ask().then(_ending(later, end, lambda answer: answer), failed)

        self._turns.take(caller_now(), _QUESTION, 0, begin, later.fail)
        return later

    def declare_periodic(
        self, ctx: Any, name: str, cron: str, zone: str, missed: str, record: bytes, here: bool
    ) -> Later[dict[str, Any]]:
        """Put an item at the times of ``cron``; the answer comes once that is on disk, or names who puts it already."""
        try:
            (given,) = unpack_records(record)
            item = _new_item(1, given._replace(counter=1), 0)
            periodic = Periodic(
                self._name, name, cron.strip(), zone, missed, item.priority, float(given.expires), item.series.decode(),
                item.unique.decode(), item.message,
            )  # fmt: skip
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            return _refusal(error)
        return self._in_turn(lambda: self._periodic.declare(periodic, here))

    def remove_periodic(self, ctx: Any, name: str, here: bool) -> Later[dict[str, Any]]:
        """Put a periodic item no more; the answer comes once that is on disk, or names who puts it."""
        try:
            key = PeriodicKey(self._name, check_name(name))
        except ValueError as error:
            return _refusal(error)
        return self._in_turn(lambda: self._periodic.remove(key, here))

    # Of another item in that place, which has not this ``id``, nothing is told, and nothing becomes of it.

    def state(self, ctx: Any, priority: int, number: int, id: str = "") -> Later[tuple[Any, ...]]:
        """Tell the state of an item, how often it has failed, and the reason."""
        check_place(priority, number, id)
        later: Later[tuple[Any, ...]] = Later()

        def ask(end: End) -> None:
            shown = _ending(later, end, lambda view: _state_of(view, id))
            Operators(self._queues).show(self._name, priority, number, shown)

        self._turns.take(caller_now(), _QUESTION, 0, ask, later.fail)
        return later

    def cancel(self, ctx: Any, priority: int, number: int, id: str = "") -> Later[bool]:
        """End an item that no worker has; whether it has ended by that."""
        check_place(priority, number, id)
        later: Later[bool] = Later()

        def begin(end: End) -> None:
            answered = _ending(later, end, lambda answer: answer == CANCELLED)
            cancel(self._queues, monotonic(), self._name, priority, number, answered, id)

        self._turns.take(caller_now(), _QUESTION, 0, begin, later.fail)
        return later

    def died(self, ctx: Any, outcome: str) -> None:
        """Fail: so the dispatch log has that an item has died; nobody calls it but the queue server itself.

        Raises:
            PermissionError: somebody else did; the record of that call says so, and not that an item has died.
        """
        if not self._is_own():
            raise PermissionError("nobody but the queue server itself tells that an item has died")
        raise death_of(self._name, outcome)

    def result(self, ctx: Any, priority: int, number: int, seconds: float, id: str = "") -> Later[tuple[Any, ...]]:
        """Tell how an item has ended, once it has; else how it is, after so many seconds."""
        check_place(priority, number, id)
        if type(seconds) not in (int, float):
            raise ValueError(f"seconds must be a number, not {short_repr(seconds)}")
        patience = max(0.0, min(float(seconds), _PATIENCE))
        later: Later[tuple[Any, ...]] = Later()
        results, caller = self._queues.queue(self._name).results, caller_now()
        timers: list[gevent.Greenlet[..., None]] = []

        def ended(outcome: Outcome) -> None:
            for timer in timers:
                timer.kill(block=False)
            later.answer(tuple(outcome))

        def ask(end: End) -> None:
            forget = results.wait(priority, number, ended, end, id, caller)

            def give_up() -> None:
                if forget():
                    results.ask(priority, number, lambda outcome: later.answer(tuple(outcome)), id)

            timers.append(gevent.spawn_later(patience, give_up))

        self._turns.take(caller_now(), _QUESTION, 0, ask, later.fail)
        return later


def _ending(later: Later[T], end: End, make: Callable[[Any], T]) -> Callable[[Any], None]:
    """Return a function that answers ``later`` with what ``make`` makes of its argument, and ends the turn in any case.

    It is called with what the store says, when the caller of the method is not there any more to hear of an error.
    """

    def answered(said: Any) -> None:
        try:
            later.answer(make(said))
        except Exception as error:
            later.fail(error)
            raise
        finally:
            end()

    return answered


def _state_of(view: ItemView | None, id: str) -> tuple[Any, ...]:
    if view is None or is_other(shown_id(view.id, view.maker), id):
        return ENDED, 0, ""
    endings = view.story.endings
    return view.state, view.story.attempts, view.damage or (endings[-1].text if endings else "")


def _refusal(error: Exception) -> Later[dict[str, Any]]:
    answer: Later[dict[str, Any]] = Later()
    answer.answer({"refusal": str(error)})
    return answer


def _answer(verdicts: list[Verdict]) -> PutAnswer:
    others = [at for at, verdict in enumerate(verdicts) if verdict.is_other]
    return PutAnswer("", [verdict.number for verdict in verdicts], others)


def _new_item(producer: int, record: Record, wall: int) -> NewItem:
    id, counter, digest, priority, delay, expires, key, method, format, body, keep_result, unique = record
    if not method or not 0 <= priority <= 9:
        raise ValueError("its method or priority is out of bounds")
    if not 0 <= keep_result < _LONGEST:
        raise ValueError("the time for which its result is kept is out of bounds")
    if not (-_FARTHEST < delay < _FARTHEST and -_FARTHEST < expires < _FARTHEST):
        raise ValueError("its delay or expiry is out of bounds")
    if id:
        str(id, "utf-8")
        maker = _NO_MAKER
    elif type(producer) is int and 0 < producer < 1 << 63 and 0 < counter < 1 << 63:
        maker = Maker(producer, counter)
    else:
        raise ValueError("it has no id")
    return NewItem(
        message_bytes(method.encode(), format, body), digest, id, maker, priority, _at(wall, delay) if delay else 0,
        _at(wall, expires) if expires else 0, key, 0, 0, keep_result, unique,
    )  # fmt: skip


def _at(wall: int, seconds: float) -> int:
    """The time in so many seconds; 0: none."""
    return min(wall + max(1, int(seconds * 1000)), _MOST_MILLISECONDS) if seconds > 0 else 0
