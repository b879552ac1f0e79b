"""The periodic items of a queue server, and what the queue servers of a mesh tell each other of them.

One owner puts a periodic item: the one at which it was declared first. A declaration elsewhere is sent there, unless
that owner is gone; then it is the other one's. An owner that was away hears so before it puts anything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import gevent

from rpcmq.client import Client
from rpcmq.client.later import Later
from rpcmq.client.queue.protocol import PERIODIC, check_queue
from rpcmq.core.queue.periodic import Periodic, PeriodicKey, check_name
from rpcmq.core.queue.periodic_homes import MOST_HOMES, Home, PeriodicHomes
from rpcmq.core.queue.periodic_puts import PeriodicPuts
from rpcmq.core.queue.queues import Queues
from rpcmq.queue_server.peer_messages import AGAIN, AT_ONCE, check_told, tell
from rpcmq.server.log import log_event

__all__ = ["PeriodicItems"]

log = logging.getLogger("rpcmq.queue")

#: Seconds after the start before which nothing is put: until then the others have said what they have taken over.
_HEARD = 5.0
#: The others are asked again for what they know from so much before the last declaration on (milliseconds).
_BEFORE = 3_600_000

Answer = Later[dict[str, Any]]


class PeriodicItems:
    """The methods of a queue server for the others, and its periodic items.

    Args:
        owner: of this queue server.
        notes: of the store, as it was opened.
        on_earlier: called when :meth:`next_deadline` may be earlier than it was.
    """

    def __init__(
        self, queues: Queues, client: Client, owner: str, notes: Mapping[str, bytes], on_earlier: Callable[[], object]
    ) -> None:
        self._store = queues.store
        self._client = client
        self._owner = owner
        self._homes = PeriodicHomes(notes)
        self._puts = PeriodicPuts(queues, notes, monotonic() + _HEARD, _clock(), _warn, on_earlier)

    @property
    def count(self) -> int:
        """The number of periodic items that this queue server puts."""
        return len(self._puts)

    def is_known(self, key: PeriodicKey) -> bool:
        """Return whether anybody puts the items of ``key``, as far as it was heard here."""
        return bool(self._homes.owner(key)) or key in self._puts

    def declare(self, periodic: Periodic, here: bool) -> Answer:
        """Put ``periodic`` from now on; the answer comes once that is on disk, or names the owner that has it.

        Args:
            here: whoever has it.
        """
        answer: Answer = Later()
        key, clock = periodic.key, _clock()
        if self._answer_owner(answer, key, here):
            return answer
        home = self._homes.next(key, self._owner, clock)

        def stored(row: dict[str, Any]) -> None:
            answer.answer({"periodic": {**row, "owner": self._owner}})
            self._tell([(*key, *home)])

        try:
            if not self._homes.has_room(key):
                raise ValueError(f"a mesh has {MOST_HOMES} periodic items at the most")
            self._puts.declare(periodic, clock, PeriodicHomes.note(key, home), stored)
        except ValueError as error:
            answer.answer({"refusal": str(error)})
        else:
            self._homes.learn(key, home)
            text = f"queue {key.queue!r}: periodic item {key.name!r} is put at {periodic.cron!r} {periodic.zone}"
            log_event(log, logging.INFO, "periodic item", text, queue=key.queue)
        return answer

    def remove(self, key: PeriodicKey, here: bool) -> Answer:
        """Put the items of ``key`` no more; the answer comes once that is on disk, or names the owner that has it.

        Args:
            here: whoever has it.
        """
        answer: Answer = Later()
        if self._answer_owner(answer, key, here):
            return answer
        if not self.is_known(key):
            answer.answer({"removed": False, "was_here": False})
            return answer
        home = self._homes.next(key, "", _clock())
        self._homes.learn(key, home)

        def stored(was_there: bool) -> None:
            answer.answer({"removed": True, "was_here": was_there})
            self._tell([(*key, *home)])

        self._puts.remove(key, PeriodicHomes.note(key, home), stored)
        log_event(
            log, logging.INFO, "periodic item", f"queue {key.queue!r}: periodic item {key.name!r} is put no more",
            queue=key.queue,
        )  # fmt: skip
        return answer

    def _answer_owner(self, answer: Answer, key: PeriodicKey, here: bool) -> bool:
        owner = self._homes.owner(key)
        if here or owner in ("", self._owner):
            return False
        answer.answer({"owner": owner})
        return True

    def rows(self, queue: str = "") -> list[dict[str, Any]]:
        """All about the periodic items of this owner, or those of ``queue``."""
        return self._puts.rows(queue)

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Put what is due."""
        self._puts.tick(now, _clock())

    def next_deadline(self, now: float) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return self._puts.next_deadline(now, _clock())

    # --- among queue servers -----------------------------------------------------------------

    def endpoint(self) -> _HomesEndpoint:
        """The methods for the other queue servers."""
        return _HomesEndpoint(self)

    def learn(self, homes: list[tuple[str, str, int, str]]) -> None:
        """Take over which owners put what, where that is newer than what is known here.

        Raises:
            ValueError: these are too many, or of another form.
        """
        check_told(homes)
        for queue, name, at, owner in homes:
            key, home = PeriodicKey(check_queue(queue), check_name(name)), Home.checked(at, owner)
            if not self._homes.has_room(key):
                _warn(f"queue {queue!r}: periodic item {name!r} of {owner} is not remembered: there are too many")
                continue
            if not self._homes.learn(key, home):
                continue
            note = PeriodicHomes.note(key, home)
            if key in self._puts and owner != self._owner:
                what = f"is put by {owner} from now on, where it was declared" if owner else "was removed elsewhere"
                text = f"queue {queue!r}: periodic item {name!r} {what}"
                log_event(log, logging.WARNING, "periodic item", text, queue=queue, owner=owner)
                self._puts.remove(key, note, lambda was_there: None)
            else:
                self._store.apply([note], lambda verdicts: None)
        if notes := self._homes.forget_oldest():
            self._store.apply(notes, lambda verdicts: None)

    def answer(self, owner: str, since: int) -> None:
        """Tell the queue server of ``owner`` who puts what, as far as it was declared since that time."""
        if owner == self._owner:
            return
        told = [home for home in self._homes.known() if home[2] >= since]
        for begin in range(0, len(told), AT_ONCE):
            self._tell(told[begin : begin + AT_ONCE], owner)

    def keep_up(self) -> None:
        """Ask the others what was declared while this one was away, and now and then what it has missed."""
        since = 0
        while True:
            tell(self._client, PERIODIC, "", "ask", {"owner": self._owner, "since": since})
            gevent.sleep(AGAIN)
            since = max(0, max((home[2] for home in self._homes.known()), default=0) - _BEFORE)

    def _tell(self, homes: list[tuple[str, str, int, str]], owner: str = "") -> None:
        # Not where the store has answered, whose other answers wait meanwhile.
        gevent.spawn(tell, self._client, PERIODIC, owner, "learn", {"homes": homes})


class _HomesEndpoint:
    """The methods for other queue servers."""

    def __init__(self, items: PeriodicItems) -> None:
        self._items = items

    def learn(self, ctx: Any, homes: list[tuple[str, str, int, str]]) -> None:
        """Take over which owners put what."""
        self._items.learn(homes)

    def ask(self, ctx: Any, owner: str, since: int) -> None:
        """Tell the queue server of ``owner`` what is known here."""
        self._items.answer(owner, since)


def _warn(text: str) -> None:
    log_event(log, logging.WARNING, "periodic item", text)


def _clock() -> int:
    """Milliseconds of the wall clock, as it is set now: the times of a schedule are those that people see."""
    return int(time.time() * 1000)
