"""The settings that programs declare for a queue: the same at all queue servers of a mesh.

Who is asked changes its own, and tells all others. One that was away asks for what was declared meanwhile when it
starts. The last declaration counts, by the clocks of the queue servers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from time import monotonic
from typing import Any

import gevent

from rpcmq.client import Client
from rpcmq.client.later import Later
from rpcmq.client.queue.protocol import SETTINGS, check_queue
from rpcmq.core.queue.policy import Policy
from rpcmq.core.queue.queues import Queues
from rpcmq.payload.bounded_text import short_repr
from rpcmq.queue_server.peer_messages import AGAIN, AT_ONCE, check_told, tell
from rpcmq.store.contract import Note

__all__ = ["Declarations"]

log = logging.getLogger("rpcmq.queue")

#: The time of a declaration is noted under this name and that of the queue.
_DECLARED = "declared "
#: Queues whose declared settings are kept.
_MOST = 1000
#: The others are asked again for what was declared from so much before what is known on (milliseconds).
_BEFORE = 3_600_000
#: A time that is so much later than now is that of a clock that is wrong (milliseconds): it counts as none.
_WRONG = 24 * 3_600_000


class Declarations:
    """The settings that the queue servers agree on, as one of them knows them.

    Args:
        owner: of this queue server.
        notes: of the store, as it was opened.
    """

    def __init__(self, queues: Queues, client: Client, owner: str, notes: Mapping[str, bytes]) -> None:
        self._queues = queues
        self._client = client
        self._owner = owner
        #: The time of the last declaration of each queue (milliseconds of the wall clock of who was asked).
        self._times = {
            name[len(_DECLARED) :]: int.from_bytes(at) for name, at in notes.items() if name.startswith(_DECLARED)
        }

    def declare(self, queue: str, settings: Mapping[str, Any]) -> Later[dict[str, Any]]:
        """Give ``queue`` other settings here and at all other queue servers; the answer has all that it has now."""
        answer: Later[dict[str, Any]] = Later()
        try:
            policy = replace(self._queues.queue(queue).policy, **settings)
        except (TypeError, ValueError) as error:
            answer.answer({"refusal": str(error)})
            return answer
        at = max(self._clock(), self._known_at(queue) + 1)

        def stored() -> None:
            answer.answer({"settings": asdict(policy)})
            gevent.spawn(self._tell, [(queue, at, dict(settings))])

        self._change(queue, at, policy, stored)
        return answer

    def _change(self, queue: str, at: int, policy: Policy, then: Callable[[], object]) -> None:
        self._times[queue] = at
        self._queues.store.apply([Note(_DECLARED + queue, at.to_bytes(8))], lambda verdicts: None)
        self._queues.declare(monotonic(), queue, policy, then)
        self._queues.queue(queue).on_ready()

    def _clock(self) -> int:
        return self._queues.wall(monotonic())

    def _known_at(self, queue: str) -> int:
        """The time of the last declaration of ``queue``; 0: none is known."""
        at = self._times.get(queue, 0)
        return at if at <= self._clock() + _WRONG else 0

    # --- among queue servers ---------------------------------------------------------------------

    def endpoint(self) -> _SettingsEndpoint:
        """The methods for the other queue servers."""
        return _SettingsEndpoint(self)

    def learn(self, declared: list[tuple[str, int, dict[str, Any]]]) -> None:
        """Take over settings that were declared elsewhere, where they are newer than what is known here.

        Raises:
            ValueError: these are too many, or of another form.
        """
        check_told(declared)
        for queue, at, settings in declared:
            check_queue(queue)
            if type(at) is not int or at > self._clock() + _WRONG:
                log.warning("queue %r: settings are not taken over: %s is no time until now", queue, short_repr(at))
                continue
            if at <= self._known_at(queue):
                continue
            if queue not in self._times and len(self._times) >= _MOST:
                log.warning("queue %r: its settings are not taken over: %d queues have been declared", queue, _MOST)
                continue
            # What is refused makes no queue.
            before = self._queues.queue(queue).policy if self._queues.has(queue) else Policy()
            try:
                policy = replace(before, **settings)
            except (TypeError, ValueError) as error:
                log.warning("queue %r: settings of another queue server are not taken over: %s", queue, error)
            else:
                self._change(queue, at, policy, lambda: None)

    def answer(self, owner: str, since: int) -> None:
        """Tell the queue server of ``owner`` what was declared since that time."""
        if owner == self._owner:
            return
        times = sorted((name, at) for name, at in self._times.items() if at >= since)
        told = [(name, at, asdict(self._queues.queue(name).policy)) for name, at in times]
        for begin in range(0, len(told), AT_ONCE):
            self._tell(told[begin : begin + AT_ONCE], owner)

    def keep_up(self) -> None:
        """Ask the others what was declared while this one was away, and now and then what it has missed."""
        since = 0
        while True:
            tell(self._client, SETTINGS, "", "ask", {"owner": self._owner, "since": since})
            gevent.sleep(AGAIN)
            since = max(0, max(map(self._known_at, self._times), default=0) - _BEFORE)

    def _tell(self, declared: list[tuple[str, int, dict[str, Any]]], owner: str = "") -> None:
        tell(self._client, SETTINGS, owner, "learn", {"declared": declared})


class _SettingsEndpoint:
    """The methods for other queue servers."""

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations

    def learn(self, ctx: Any, declared: list[tuple[str, int, dict[str, Any]]]) -> None:
        """Take over settings that were declared elsewhere."""
        self._declarations.learn(declared)

    def ask(self, ctx: Any, owner: str, since: int) -> None:
        """Tell the queue server of ``owner`` what was declared since that time."""
        self._declarations.answer(owner, since)
