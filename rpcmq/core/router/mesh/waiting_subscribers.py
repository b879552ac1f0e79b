"""Processes whose subscription is confirmed once other routers have it, too, or after a second."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.mesh.neighbours import Neighbour
from rpcmq.core.router.model import Link
from rpcmq.core.router.pubsub.other_routers import Pattern
from rpcmq.errors import Outcome
from rpcmq.wire import KEY
from rpcmq.wire.bodies import ErrorBody

__all__ = ["WaitingSubscribers"]

#: Seconds after which a subscription is confirmed though a router that answers has not confirmed it.
CONFIRM_SECONDS = 1.0


class WaitingSubscribers:
    """The subscribers that wait, by pattern, the longest first."""

    def __init__(self) -> None:
        self._waiting: dict[Pattern, _Waiting] = {}
        #: Subscriptions that were confirmed before a router had confirmed them.
        self.unconfirmed = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, now: float, link: Link, pattern: Pattern, answer: bytes, missing: Iterable[Neighbour]) -> None:
        """Send ``answer`` to ``link`` when each router of ``missing`` has confirmed ``pattern``."""
        waiting = self._waiting.get(pattern)
        if waiting is None:
            waiting = self._waiting[pattern] = _Waiting(now + CONFIRM_SECONDS)
        waiting.missing.update(missing)
        former = waiting.answers.get(link)
        if former is not None:
            # One that asks again and again must not fill the table.
            _send(link, former)
        waiting.answers[link] = answer

    def confirmed(self, neighbour: Neighbour, pattern: Pattern) -> None:
        """``neighbour`` has confirmed ``pattern``."""
        waiting = self._waiting.get(pattern)
        if waiting is not None:
            self._discard(neighbour, pattern, waiting)

    def not_waited_for(self, neighbour: Neighbour) -> None:
        """``neighbour`` does not answer."""
        for pattern, waiting in list(self._waiting.items()):
            self._discard(neighbour, pattern, waiting)

    def _discard(self, neighbour: Neighbour, pattern: Pattern, waiting: _Waiting) -> None:
        waiting.missing.discard(neighbour)
        if not waiting.missing:
            self.settle(pattern)

    def settle(self, pattern: Pattern) -> None:
        """Answer the subscribers to ``pattern`` now."""
        waiting = self._waiting.pop(pattern, None)
        if waiting is not None:
            for link, answer in waiting.answers.items():
                _send(link, answer)

    def refuse(self, pattern: Pattern, text: str) -> list[Link]:
        """Answer the subscribers to ``pattern`` that a router refuses it, and return them."""
        waiting = self._waiting.pop(pattern, None)
        if waiting is None:
            return []
        body = ErrorBody(outcome=Outcome.PROTOCOL, text=text, details={"reason": "patterns"})
        for link, answer in waiting.answers.items():
            _send(link, body.message(key=answer[KEY]))
        return list(waiting.answers)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return next(iter(self._waiting.values())).deadline if self._waiting else inf

    def tick(self, now: float) -> None:
        """Answer the subscribers that have waited for long enough."""
        while self._waiting and now >= self.next_deadline():
            self.unconfirmed += 1
            self.settle(next(iter(self._waiting)))


class _Waiting:
    """The subscribers to one pattern, and the neighbours that they wait for."""

    __slots__ = ("answers", "deadline", "missing")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.missing: set[Neighbour] = set()
        #: The answer for each; a link has one at most.
        self.answers: dict[Link, bytes] = {}


def _send(link: Link, message: bytes) -> None:
    if link.state is not LinkState.ENDED:
        link.send(message)
