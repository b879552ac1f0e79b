"""Mailboxes: messages wait for a consumer in bounded queues, and are refused where these overflow.

A queue has room for ``queue.max_messages`` and ``queue.max_bytes``. Its sender offers a refused cast again; until then
its later casts to that queue are refused, too, so that none overtakes it. The age at which a message leaves its mailbox
is in ``deadlines``, the texts of refusals are in ``explain``.
"""

from __future__ import annotations

from rpcmq.core.router.model import Link, Request
from rpcmq.core.router.roundrobin import explain
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.core.router.roundrobin.restart_recovery import Recovery
from rpcmq.core.router.settings import Settings
from rpcmq.core.router.waiting_queue import Queue
from rpcmq.errors import Outcome
from rpcmq.wire import Flag, sequence_of_key

__all__ = ["Mailboxes"]


class Mailboxes:
    """Puts requests into queues that have room."""

    __slots__ = ("_recovery", "_requests", "_settings")

    def __init__(self, settings: Settings, requests: RequestTable, recovery: Recovery) -> None:
        self._settings = settings
        self._requests = requests
        self._recovery = recovery

    def put_or_refuse(self, now: float, request: Request, caster: Link | None) -> bool:
        """Have ``request`` wait in its queue; refuse it if that is full.

        Args:
            caster: the link of the sender if it is a cast that has just come.

        Returns:
            Whether it waits; if not it has ended.
        """
        settings, destination, requests = self._settings, request.destination, self._requests
        queue = destination.queue
        has_room = queue.has_room(request.size, settings.queue_max_messages, settings.queue_max_bytes)
        if not has_room and not self._recovery.is_releasing:
            queue.count_dropped("refused: full")
            requests.refuse(now, request, caster, Outcome.OVERLOADED, explain.overloaded(destination, settings))
            return False
        if not request.is_call:
            requests.deadlines.arm_cast(now, request)
        queue.append(request)
        return True

    def has_room(self, queue: Queue[Request], size: int) -> bool:
        """Return whether ``queue`` takes another message of ``size`` bytes."""
        return queue.has_room(size, self._settings.queue_max_messages, self._settings.queue_max_bytes)

    # --- casts behind a refused one ----------------------------------------------------------

    def stays_stalled(self, link: Link, request: Request) -> bool:
        """Return whether a cast of ``link`` refused before must come to that queue first; the sender is told."""
        if request.destination.queue not in link.stalled or request.flags & Flag.CONFIRM:
            return False
        if self.unstall(link, request):
            return False
        text, details = explain.overloaded(request.destination, self._settings, is_behind=True)
        self._requests.tell(link, request.key, Outcome.OVERLOADED, text, details)
        return True

    def unstall(self, link: Link, request: Request) -> bool:
        """Let later casts to its queue come if ``request`` is the refused one that they wait for."""
        queue = request.destination.queue
        is_first = link.stalled.get(queue) == sequence_of_key(request.key) and bool(request.flags & Flag.RESENT)
        if is_first:
            del link.stalled[queue]
        return is_first
