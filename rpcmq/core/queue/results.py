"""The ends of items: told to those who wait for one, and kept for those who ask later.

An item is done, dead or cancelled once. Whoever has put it may have asked for its result to be kept for a time: then it
is durable in the commit that ends the item. The reason for which an item is dead is known for as long as it is dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from rpcmq.core.queue.asker_room import AskerRoom
from rpcmq.core.queue.given_item import Key
from rpcmq.core.queue.item_ids import id_of, is_other
from rpcmq.core.queue.port import StorePort
from rpcmq.core.queue.story import Story
from rpcmq.store.contract import KEPT_OVERHEAD, Damaged, Expire, Found, Keep, Lane, Stored, Verdict

__all__ = ["CANCELLED", "DEAD", "DONE", "MOST_OF_ALL", "REFUSED", "RUNNING", "UNKNOWN", "WAITING", "Outcome", "Results"]

#: The states of :class:`Outcome`.
WAITING, RUNNING, DONE, DEAD, CANCELLED, UNKNOWN = "waiting", "running", "done", "dead", "cancelled", "unknown"
#: It has not ended, and its end cannot be waited for, because too many wait.
REFUSED = "refused"
#: Bytes of one result that is kept.
_MOST_BYTES = 1 << 20
#: Askers that wait for ends at the same time, of one queue, and of all: each takes some 5 KB.
_MOST_ASKERS, MOST_OF_ALL = 10_000, 20_000
_LETTERS = {b"d": DONE, b"l": DONE, b"c": CANCELLED}
#: Bytes of the digest of an item's id, which is kept with its result.
_DIGEST = 8


class Outcome(NamedTuple):
    """The state of an item, and how it has ended.

    Attributes:
        result: of one that is done, if it was kept or somebody waited for it; None: it was not kept.
        text: the reason for which it is dead, or has no result.
    """

    state: str
    result: bytes | None = None
    text: str = ""

    @property
    def is_end(self) -> bool:
        """Whether nothing will follow."""
        return self.state not in (WAITING, RUNNING)


_NOT_THERE = Outcome(UNKNOWN, text="it has ended, or is in another queue, and no result of it is kept")


class Results:
    """The results of the items of ``queue``.

    Args:
        is_given: whether a worker has the item of a priority and number.
        counters: of the queue.
    """

    def __init__(
        self, queue: str, store: StorePort, is_given: Callable[[int, int], bool], counters: Counter[str]
    ) -> None:
        self._queue = queue
        self._store = store
        self._is_given = is_given
        self._counters = counters
        #: Bytes of the results that are kept, or are being stored.
        self.size = 0
        #: By item, in the order in which they have asked.
        self._askers: dict[Key, dict[Callable[[str, Outcome], object], _Wait]] = {}
        self._room = AskerRoom(_MOST_ASKERS)
        #: Shared with other queues.
        self.room = AskerRoom(MOST_OF_ALL)
        self._is_expiring = False

    # --- ends --------------------------------------------------------------------------------

    def keep(self, item: Stored, until: int, state: str, result: bytes, most: int) -> list[Keep]:
        """The change that keeps the result of an item, to be stored with its end; none if there is no room.

        Args:
            most: bytes that the results of the queue may have.
        """
        letter = b"c" if state == CANCELLED else b"d"
        if len(result) > _MOST_BYTES:
            letter, result = b"l", f"its result of {len(result)} bytes is not kept: {_MOST_BYTES} are the most".encode()
        value = letter + _digest(id_of(item)) + result
        size = len(value) + KEPT_OVERHEAD
        if self.size + size > most:
            self._counters["results not kept"] += 1
            return []
        self.size += size
        return [Keep(item.lane, item.number, until, value)]

    def ended(self, item: Stored | Damaged, outcome: Outcome) -> None:
        """An item has ended, durably: tell those who wait for that."""
        askers = self._askers.pop((item.lane.priority, item.number), {}) if self._askers else {}
        for asker, wait in askers.items():
            self._leave(wait)
            asker(id_of(item), outcome)

    def expire(self, now: int) -> None:
        """Forget the results whose time is over at ``now`` (milliseconds of the wall clock)."""
        if not self.size or self._is_expiring:
            return
        self._is_expiring = True

        def expired(verdicts: list[Verdict]) -> None:
            self._is_expiring = False
            self.size -= verdicts[0].number

        self._store.apply([Expire(self._queue, now)], expired)

    # --- questions ---------------------------------------------------------------------------

    def ask(self, priority: int, number: int, then: Callable[[Outcome], object], id: str = "") -> None:
        """Tell ``then`` how the item is, or has ended.

        Args:
            id: of the item: of another one in its place nothing is told; empty: any.
        """
        lane = Lane(self._queue, priority)

        def found(item: Found | None) -> None:
            if item is None:
                self._store.result(lane, number, lambda kept: then(_kept(kept, id)))
            elif is_other(id_of(item.item), id):
                then(_NOT_THERE)
            elif item.state == "dead":
                then(Outcome(DEAD, text=_reason(item)))
            else:
                then(Outcome(RUNNING if self._is_given(priority, number) else WAITING))

        self._store.find(lane, number, found)

    def wait(
        self, priority: int, number: int, then: Callable[[Outcome], object],
        asked: Callable[[], object] = lambda: None, id: str = "", origin: bytes = b"",
    ) -> Callable[[], bool]:  # fmt: skip
        """Tell ``then`` how the item has ended, once it has; return a function that forgets the question.

        That one returns whether there was anything to forget. Where too many wait, ``then`` is told at once how it has
        ended, or :data:`REFUSED`, or is told that when another one has less than an equal share of all.

        Args:
            asked: called when the store was asked whether it has ended already.
            id: as for :meth:`ask`.
            origin: the process that asks.
        """
        if not (self._room.admits(origin) and self.room.admits(origin)):
            self._ask_once(priority, number, then, asked, id)
            return lambda: False
        key = priority, number

        def told(ended: str, outcome: Outcome) -> None:
            then(_NOT_THERE if is_other(ended, id) else outcome)

        def forget() -> bool:
            askers = self._askers.get(key, {})
            if told not in askers:
                return False
            del askers[told]
            self._leave(wait)
            if not askers:
                del self._askers[key]
            return True

        def send_away() -> None:
            if forget():
                then(self._refused())

        wait = self._askers.setdefault(key, {})[told] = _Wait(origin, send_away)
        self._room.enter(*wait)
        self.room.enter(*wait)

        def found(outcome: Outcome) -> None:
            # It may have ended, and been told, while the store was asked.
            if outcome.is_end and forget():
                then(outcome)
            asked()

        self.ask(priority, number, found, id)
        return forget

    def _ask_once(
        self, priority: int, number: int, then: Callable[[Outcome], object], asked: Callable[[], object], id: str
    ) -> None:
        def found(outcome: Outcome) -> None:
            then(outcome if outcome.is_end else self._refused())
            asked()

        self.ask(priority, number, found, id)

    def _refused(self) -> Outcome:
        return Outcome(REFUSED, text=f"queue {self._queue!r}: too many wait for the ends of items already: ask again")

    def _leave(self, wait: _Wait) -> None:
        self._room.leave(*wait)
        self.room.leave(*wait)


class _Wait(NamedTuple):
    """One who waits: the process, and what sends it away."""

    origin: bytes
    send_away: Callable[[], object]


def _digest(id: str) -> bytes:
    return sha256(id.encode()).digest()[:_DIGEST]


def _kept(kept: bytes, id: str) -> Outcome:
    state, digest, result = _LETTERS.get(kept[:1]), kept[1 : 1 + _DIGEST], kept[1 + _DIGEST :]
    if state is None or (id and digest != _digest(id)):
        return _NOT_THERE
    if kept[:1] == b"l":
        return Outcome(state, text=str(result, "utf-8"))
    return Outcome(state, result if state == DONE else None)


def _reason(found: Found) -> str:
    if not isinstance(found.item, Stored):
        return "damaged: its row in the store is not as it was written"
    return Story.from_bytes(found.item.state).reason
