"""Liveness of links: who is silent, who has been away for too long, who does not take what it is sent.

* A connected link that is silent for ``unresponsive_seconds`` becomes unresponsive, or quiet.
* A link that is away for ``consumer_grace_seconds`` lapses: what its consumers had goes elsewhere until it is back.
* A link that is away for ``resume_seconds`` ends, and so does one whose outbox exceeds its limits.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil

from rpcmq.core.router.base_link import outgoing_bytes
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import AWAY_FOR, LinkTable
from rpcmq.core.router.model import Link
from rpcmq.core.router.settings import Settings
from rpcmq.wire import Kind, pack
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["Liveness"]

#: Checking 100,000 links in one go would delay calls noticeably.
_CHECKED_AT_ONCE = 500
#: An outbox is measured when more than this many messages are unacknowledged, or any wait.
_MEASURED_FROM = 1000


class Liveness:
    """Checks each link of ``links`` once in a round of at most a second, some at a time."""

    def __init__(self, settings: Settings, links: LinkTable) -> None:
        self._settings = settings
        self._links = links
        #: The links of this round that have not been checked.
        self._unchecked: list[Link] = []
        self._pause = 0.0
        self._next_check = 0.0
        #: Whether silent links are sent something in this round, and when that is due again.
        self._probing = False
        self._next_probe = 0.0

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        due = self._next_check
        if self._links.away:
            due = min(due, next(iter(self._links.away)).since + self._settings.resume_seconds)
        if self._links.in_grace:
            due = min(due, next(iter(self._links.in_grace)).since + self._settings.consumer_grace_seconds)
        return due

    def tick(self, now: float) -> list[Link]:
        """Check for silence and absence; return the links that have lapsed."""
        if now >= self._next_check:
            self._check_some(now)
        for link in _away_since(now, self._links.away, self._settings.resume_seconds):
            self._links.end_safely(now, link, f"{AWAY_FOR} {now - link.since:.1f} s")
        lapsed = _away_since(now, self._links.in_grace, self._settings.consumer_grace_seconds)
        return [link for link in lapsed if self._links.happens(now, link, "lapsed")]

    def _check_some(self, now: float) -> None:
        if not self._unchecked:
            self._begin_round(now)
        checked = self._unchecked[-_CHECKED_AT_ONCE:]
        # Advance first: whatever fails in a check, the next one covers the other links.
        del self._unchecked[-_CHECKED_AT_ONCE:]
        self._next_check = now + self._pause
        overflowing: list[tuple[Link, str]] = []
        for link in checked:
            if link.state is LinkState.ENDED:
                continue
            try:
                self._check_silence(now, link)
                if problem := self._outbox_overflow(link):
                    overflowing.append((link, problem))
            except Exception:
                self._links.on_fault(now, link.identity, b"")
        # Only once all silent links are known: their work goes to the others.
        for link, problem in overflowing:
            self._links.end_safely(now, link, problem)

    def _begin_round(self, now: float) -> None:
        settings = self._settings
        self._unchecked = list(self._links)
        self._probing = now >= self._next_probe
        if self._probing:
            self._next_probe = now + settings.heartbeat_seconds
        turn = min(settings.heartbeat_seconds / 4, settings.unresponsive_seconds / 4, 1.0)
        self._pause = max(0.05, turn) / max(1, ceil(len(self._unchecked) / _CHECKED_AT_ONCE))

    def _check_silence(self, now: float, link: Link) -> None:
        if link.queue_type == MESH_TYPE:
            return  # routers have a pace of their own: rpcmq.core.router.mesh.heartbeats
        if link.is_responsive:
            if now - link.heard >= self._settings.unresponsive_seconds:
                self._links.silent(now, link)
        elif link.state is not LinkState.AWAY:
            if (link.state is LinkState.UNRESPONSIVE) != link.is_counted_on:
                self._links.silent(now, link)  # its calls have ended meanwhile, or what had come before was handled
            if self._probing:
                # If its connection has gone unnoticed, the send will tell.
                link.send_last(pack(Kind.HEARTBEAT))

    def _outbox_overflow(self, link: Link) -> str:
        """Return which limit the messages to ``link`` exceed; empty if none."""
        if not link.outbox and link.unacknowledged <= _MEASURED_FROM:
            return ""
        settings = self._settings
        for count, what in (
            (len(link.outbox), "wait to be sent"),
            (link.unacknowledged, "were sent and not acknowledged"),
        ):
            if count > settings.outbox_max_messages:
                return f"{count} messages {what}; link.outbox_max_messages = {settings.outbox_max_messages}"
        size = outgoing_bytes(link)
        if size > settings.outbox_max_bytes:
            return f"{size} bytes wait to be sent or acknowledged; link.outbox_max_bytes = {settings.outbox_max_bytes}"
        return ""


def _away_since(now: float, links: OrderedDict[Link, None], seconds: float) -> list[Link]:
    """Remove and return the ``links`` that went away ``seconds`` ago."""
    due: list[Link] = []
    while links and now >= next(iter(links)).since + seconds:
        due.append(links.popitem(last=False)[0])
    return due
