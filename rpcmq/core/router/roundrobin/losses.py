"""The losses of processes that consume: whoever watches them is told before their work goes elsewhere.

A process whose connection is lost is *away*, and may come back. It is *gone* where its work is taken from it because it
has not, or because a new process has come in its place. One that says goodbye, is kicked, or breaks a limit is no loss.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import AWAY_FOR, REPLACED
from rpcmq.core.router.model import Link
from rpcmq.wire.bodies import MESH_TYPE

__all__ = ["LossObserver", "Losses"]


class LossObserver(Protocol):
    """Gets to know of losses."""

    def consumer_away(self, now: float, link: Link) -> None:
        """The connection of ``link`` is lost, whose process consumes."""

    def consumer_gone(self, now: float, link: Link) -> None:
        """The process of ``link`` is taken for dead; its consumers still have what they had."""

    def consumer_back(self, now: float, link: Link) -> None:
        """The process of ``link``, which was away, is back."""


class Losses:
    """Tells ``observers`` of losses.

    Args:
        guarded: runs a step; see :meth:`rpcmq.core.router.faults.FaultReporter.guarded`.
    """

    def __init__(self, guarded: Callable[..., None]) -> None:
        self._guarded = guarded
        self._away: set[Link] = set()
        self.observers: list[LossObserver] = []

    def link_changed(self, now: float, link: Link) -> None:
        """``link`` stops or starts answering, is away or back."""
        if not self.observers or link.queue_type == MESH_TYPE:
            return
        if link.state is LinkState.AWAY:
            if link.consumers or link.lapsed_consumers:
                self._away.add(link)
                self._tell("consumer_away", now, link)
        elif link in self._away:
            self._away.discard(link)
            self._tell("consumer_back", now, link)

    def link_lapsed(self, now: float, link: Link) -> None:
        """The work of ``link`` is about to be taken from it, because it has not come back in time."""
        if link in self._away:
            self._tell("consumer_gone", now, link)

    def link_ended(self, now: float, link: Link, reason: str) -> None:
        """``link`` has ended, and still has its consumers."""
        if link not in self._away:
            return
        self._away.discard(link)
        if link.consumers and reason.startswith((REPLACED, AWAY_FOR)):
            self._tell("consumer_gone", now, link)

    def _tell(self, event: str, now: float, link: Link) -> None:
        for observer in self.observers:
            self._guarded(now, getattr(observer, event), link)
